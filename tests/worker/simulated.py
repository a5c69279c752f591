"""Workers on simulated runtimes: threads of the test's own process, which can be killed."""

import socket
import threading
import time
from collections.abc import Callable
from typing import Any, Self

from surefoot.decoding import SurefootError
from surefoot.engine import Delta, Engine, GenerationState
from surefoot.runtime.simulated import SimulatedRuntime
from surefoot.worker import Channel, Supervisor, work
from surefoot.worker.messages import Failed

PATIENCE = 30.0


class ThreadWorker:
    """A worker in a thread. Killing it cuts its channel, so nothing it does is heard any more."""

    def __init__(self, make: Callable[[Channel], Engine]) -> None:
        ours, theirs = socket.socketpair()
        self.channel, self._theirs = Channel(ours), Channel(theirs)
        self._make = make
        self.killed = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            work(self._make(self._theirs), self._theirs)
        except SurefootError as error:
            self._theirs.send(Failed(str(error)))
        finally:
            self._theirs.shut()

    def kill(self) -> None:
        self.killed = True
        self._theirs.shut()

    def ended(self, patience: float) -> str:
        self._theirs.shut()
        self._thread.join(patience)
        self.channel.close()
        self._theirs.close()
        return "it was killed by SIGKILL" if self.killed else "it ended with exit code 0"


class Heard:
    """A client that waits for the end."""

    def __init__(self) -> None:
        self.deltas: list[Delta] = []
        self._changed = threading.Condition()

    def __call__(self, delta: Delta) -> None:
        with self._changed:
            self.deltas.append(delta)
            self._changed.notify_all()

    def wait(self, deltas: int | None = None) -> GenerationState:
        """Until it is over, or so many deltas have come."""

        def there() -> bool:
            over = bool(self.deltas) and self.deltas[-1].state.over
            return over or (deltas is not None and len(self.deltas) >= deltas)

        with self._changed:
            assert self._changed.wait_for(there, PATIENCE), self.deltas
            return self.deltas[-1].state if self.deltas else GenerationState.WAITING

    @property
    def tokens(self) -> list[int]:
        return [token for delta in self.deltas for token in delta.tokens]

    @property
    def text(self) -> str:
        return "".join(delta.text for delta in self.deltas)


class Poisoned(SimulatedRuntime):
    """Calls `die` when a pass has a token in it that nobody should send."""

    def __init__(self, poison: int, die: Callable[[], None], **settings: Any) -> None:
        super().__init__(**settings)
        self._poison, self._die = poison, die

    def decode(self, feeds: Any) -> Any:
        if any(self._poison in feed.tokens for feed in feeds):
            self._die()
        return super().decode(feeds)


class Supervised:
    """A supervisor of workers in threads, stopped in the end; `workers` has them all."""

    def __init__(
        self, make: Callable[[Channel], Engine], runtime: SimulatedRuntime, **options: Any
    ) -> None:
        self.workers: list[ThreadWorker] = []

        def launch() -> ThreadWorker:
            self.workers.append(ThreadWorker(make))
            return self.workers[-1]

        options = {"delays": [0.0, 0.01], **options}
        self.supervisor = Supervisor(launch, lambda: runtime, **options)

    def __enter__(self) -> Self:
        self.supervisor.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.supervisor.stop()

    def wait_for_life(self, number: int) -> None:
        """Until the worker of that number, counted from 1, has the requests."""
        end = time.monotonic() + PATIENCE
        while len(self.workers) < number or self.supervisor.status().health.status == "restarting":
            assert time.monotonic() < end
            time.sleep(0.001)
