"""The worker's process, as its parent sees it: started, killed, waited for."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from collections.abc import Sequence as Series
from pathlib import Path

from surefoot.worker.channel import Channel


class WorkerProcess:
    """A process with a channel to it.

    On Linux it is bound to die with the thread that makes it, which must live as long.

    Args:
        command: what to run, given the number of the file descriptor of its end of the channel.

    Attributes:
        channel: our end.
        pid: its process id.

    Raises:
        OSError: it can't be started.
    """

    def __init__(self, command: Callable[[int], Series[str]]) -> None:
        ours, theirs = socket.socketpair()
        try:
            self._process = subprocess.Popen(
                command(theirs.fileno()),
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                env={**os.environ, "PYTHONPATH": _search_path()},
                start_new_session=True,  # a Ctrl-C is the parent's to deal with
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self.channel = Channel(ours)
        self.pid = self._process.pid

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()

    def ended(self, patience: float) -> str:
        """Wait for its end, which is forced after so many seconds; says in words how it ended."""
        try:
            self._process.wait(patience)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self.channel.close()
        code = self._process.returncode
        if code >= 0:
            return f"it ended with exit code {code}"
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        hint = ", as the system does when memory runs out" if -code == signal.SIGKILL else ""
        return f"it was killed by {name}{hint}"


def python(module: str) -> list[str]:
    """A command that runs a module as we would: the same interpreter, the same search path."""
    return [sys.executable, "-P", "-m", module]


def _search_path() -> str:
    return os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
