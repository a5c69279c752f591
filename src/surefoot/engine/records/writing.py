"""Writing records beside the engine: it hands lines over and never waits for a disk."""

import logging
import os
import queue
import threading
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from surefoot.engine.records.format import RecordError, plain

log = logging.getLogger(__name__)

MOST_BYTES = 16 << 20
"""A file does not grow beyond that, but for a last line."""

MOST_WAITING = 1 << 14
"""So many lines may wait for the disk; records that would add more break off."""

SECONDS_TO_CLOSE = 5.0


class RecordWriter:
    """Writes lines into files of a folder, in a thread of its own.

    After the first error of the file system nothing more is written, and a warning says so.

    Args:
        folder: where the files go; made if it is not there.
        most_bytes: see `MOST_BYTES`.

    Raises:
        RecordError: the folder can't be used.
    """

    def __init__(self, folder: Path, most_bytes: int = MOST_BYTES) -> None:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise RecordError(f"can't make the folder {folder}: {error.strerror}") from error
        if not os.access(folder, os.W_OK | os.X_OK):
            raise RecordError(f"can't write into the folder {folder}")
        self._folder = folder
        self._most_bytes = most_bytes
        self._lines: queue.Queue[tuple[str, Any, bool] | None] = queue.Queue(MOST_WAITING)
        self._files: dict[str, BinaryIO] = {}
        self._written: dict[str, int] = {}
        self._broken = False
        self._thread = threading.Thread(target=self._run, name="surefoot-records", daemon=True)
        self._thread.start()

    def put(self, name: str, line: Any, *, last: bool = False) -> bool:
        """Hand over a line for a file; False if there are too many already. It must not change.

        Args:
            name: the file's.
            line: what orjson and `format.plain` can write.
            last: whether the file is complete with it.
        """
        try:
            self._lines.put_nowait((name, line, last))
        except queue.Full:
            return False
        return True

    def close(self) -> None:
        """Write what was handed over, and end; a disk that hangs is not waited for."""
        try:
            self._lines.put(None, timeout=SECONDS_TO_CLOSE)
        except queue.Full:
            return
        self._thread.join(SECONDS_TO_CLOSE)

    def _run(self) -> None:
        while (item := self._lines.get()) is not None:
            if self._broken:
                continue
            try:
                self._write(*item)
                if self._lines.empty():
                    for file in self._files.values():
                        file.flush()
            except Exception as error:
                self._broken = True
                log.warning(
                    "records are off from now on: %s can't be written (%s)", self._folder, error
                )
        for file in self._files.values():
            self._close(file)

    def _write(self, name: str, line: Any, last: bool) -> None:
        data = orjson.dumps(line, default=plain, option=orjson.OPT_SERIALIZE_NUMPY) + b"\n"
        file = self._files.get(name)
        if file is None:
            # A record holds somebody's prompt: nobody else may read it.
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
            file = os.fdopen(os.open(self._folder / name, flags, 0o600), "wb")
            self._files[name] = file
            self._written[name] = 0
        before = self._written[name]
        self._written[name] = before + len(data)
        if last or before + len(data) <= self._most_bytes:
            file.write(data)
        elif before <= self._most_bytes:
            file.write(orjson.dumps({"event": "truncated"}) + b"\n")
            self._written[name] = self._most_bytes + 1
        if last:
            del self._files[name], self._written[name]
            file.close()

    def _close(self, file: BinaryIO) -> None:
        try:
            file.close()
        except OSError as error:
            if not self._broken:
                log.warning("a record could not be written to its end: %s", error)
