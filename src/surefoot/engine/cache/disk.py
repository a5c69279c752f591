"""The disk tier: a folder of states, which several servers may share.

A file is written under another name and moved into place, so nobody sees half of one; its name
follows from what is in it, so two servers that write the same do no harm; one that another server
has removed is a miss. Whatever else goes wrong turns the tier off, with one warning.
"""

import hashlib
import logging
import os
import tempfile
import time
from pathlib import Path

from surefoot.engine.cache.packing import StateFileError, pack, read_text, unpack
from surefoot.engine.cache.store import Entry, Store
from surefoot.engine.cache.tokens import Tokens

log = logging.getLogger(__name__)

_SUFFIX = ".state"
_UNFINISHED = ".part"
_STALE_SECONDS = 3600


class DiskTier:
    """States in files.

    Args:
        folder: where; made if it is not there. Each model has a folder of its own in it.
        budget: bytes in that, files of other servers included.
        identity: the runtime's.

    Attributes:
        store: an entry for each file, with its path.
        problem: why the tier is off, in words; empty while it works.
    """

    def __init__(self, folder: Path, budget: int, identity: str) -> None:
        self.store: Store[Path] = Store(budget)
        self.problem = ""
        self._identity = identity
        self._folder = folder / hashlib.sha256(identity.encode()).hexdigest()[:16]
        self._seen = -1
        self._bad: set[Path] = set()
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            for part in self._folder.glob(f"*{_UNFINISHED}"):
                if time.time() - part.stat().st_mtime > _STALE_SECONDS:
                    part.unlink(missing_ok=True)
            self._probe()
        except OSError as error:
            self._turn_off(error)
        self.refresh()

    def refresh(self) -> None:
        """See what other servers have added and removed since the last look."""
        if self.problem:
            return
        try:
            seen = self._folder.stat().st_mtime_ns
            if seen == self._seen:
                return
            self._seen = seen
            there = {path: path.stat() for path in sorted(self._folder.glob(f"*{_SUFFIX}"))}
        except FileNotFoundError as error:
            if not self._folder.exists():
                self._turn_off(error)
            else:
                self._seen = -1  # a file went while it was looked at; so look again next time
            return
        except OSError as error:
            self._turn_off(error)
            return
        known = {entry.payload: entry for entry in self.store}
        for path, entry in known.items():
            if path not in there:
                self.store.remove(entry)
        fresh = [path for path in there if path not in known and path not in self._bad]
        for path in sorted(fresh, key=lambda path: there[path].st_mtime_ns):
            self._add(path, there[path].st_size)

    def put(self, text: Tokens, parts: dict[str, bytes]) -> bool:
        """Write a state; whether it is there now."""
        if self.problem or self.store.held(text) is not None:
            return not self.problem
        data = pack(self._identity, text, parts)
        if len(data) > self.store.budget:
            return False
        self.refresh()
        path = self._folder / (_name_of(text) + _SUFFIX)
        try:
            self._write(path, data)
        except OSError as error:
            self._turn_off(error)
            return False
        if self.store.held(text) is None:
            self.store.add(text, path, len(data))
        while self.store.full and (victim := self.store.victim()) is not None:
            self.drop(victim)
        return True

    def get(self, entry: Entry[Path]) -> dict[str, bytes] | None:
        """Read a state; None if it is gone, or is not what it should be."""
        try:
            data = entry.payload.read_bytes()
            text, parts = unpack(data, self._identity)
            if text.tobytes() != entry.tokens.tobytes():
                raise StateFileError("it is of another text than it was")
            os.utime(entry.payload)
        except FileNotFoundError:
            self.store.remove(entry)
            return None
        except (OSError, StateFileError) as error:
            log.warning("the cached state %s is skipped: %s", entry.payload, error)
            self._bad.add(entry.payload)
            self.store.remove(entry)
            return None
        return parts

    def drop(self, entry: Entry[Path]) -> None:
        """Remove a file."""
        self.store.remove(entry)
        try:
            entry.payload.unlink(missing_ok=True)
        except OSError as error:
            self._turn_off(error)

    def _add(self, path: Path, size: int) -> None:
        try:
            with path.open("rb") as file:
                text = read_text(file, self._identity)
        except FileNotFoundError:
            return
        except (OSError, StateFileError) as error:
            log.warning("%s is no cached state that can be used, and is skipped: %s", path, error)
            self._bad.add(path)
            return
        if self.store.held(text) is None:
            self.store.add(text, path, size)

    def _probe(self) -> None:
        """Find out now, and not at the first state, whether anything can be written."""
        handle, name = tempfile.mkstemp(dir=self._folder, suffix=_UNFINISHED)
        os.close(handle)
        Path(name).unlink()

    def _write(self, path: Path, data: bytes) -> None:
        handle, name = tempfile.mkstemp(dir=self._folder, suffix=_UNFINISHED)
        part = Path(name)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)

    def _turn_off(self, error: OSError) -> None:
        if not self.problem:
            self.problem = f"{self._folder}: {error.strerror or error}"
            log.warning("the disk cache is off: %s", self.problem)
        for entry in self.store:
            self.store.remove(entry)


def _name_of(text: Tokens) -> str:
    return hashlib.sha256(text.tobytes()).hexdigest()[:32]
