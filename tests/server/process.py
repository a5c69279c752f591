"""`surefoot serve` in a process of its own."""

import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

COMMAND = [
    sys.executable,
    "-c",
    "from surefoot.cli import main; raise SystemExit(main())",
    "serve",
    "--threads",
    "1",
]


class ServerProcess:
    """A server of the embedded hybrid; entered once it answers, ended by Ctrl-C.

    Attributes:
        url: where it listens.
        log: the lines that it has written to stderr.
    """

    def __init__(self, *options: str) -> None:
        self.log: list[str] = []
        self.url = ""
        self._process = subprocess.Popen(
            [*COMMAND, "--port", "0", *options], stderr=subprocess.PIPE, text=True
        )
        self._ready = threading.Event()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def __enter__(self) -> Self:
        assert self._ready.wait(60), self.log
        assert self.url, self.log
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process.poll() is None:
            code = self.end(signal.SIGINT)
            if error is None:
                assert code == 0, self.log

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def workers(self) -> list[int]:
        """The ids of its child processes, dead ones that nobody has waited for included."""
        return children(self.pid)

    def send(self, by: signal.Signals) -> None:
        self._process.send_signal(by)

    def end(self, by: signal.Signals) -> int:
        """Send a signal and wait for the end; returns the exit code."""
        self.send(by)
        return self.wait()

    def wait(self) -> int:
        """Wait for the end; returns the exit code."""
        try:
            code = self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise
        finally:
            self._reader.join()
        return code

    def _read(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as stderr:
            for line in stderr:
                self.log.append(line)
                if found := re.search(r"listening on (http://\S+?),", line):
                    self.url = found.group(1)
                    self._ready.set()
        self._ready.set()


def children(parent: int) -> list[int]:
    """The ids of a process's children, zombies included."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:  # it has just gone
            continue
        if int(fields[1]) == parent:
            found.append(int(status.parent.name))
    return found


def run_server(*options: str) -> subprocess.CompletedProcess[str]:
    """A server that is expected to end by itself, soon."""
    return subprocess.run(
        [*COMMAND, *options], capture_output=True, text=True, timeout=60, check=False
    )
