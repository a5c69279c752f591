"""The engine in a thread of its own, so that others may submit and cancel from anywhere."""

import logging
import threading
from collections.abc import Callable
from collections.abc import Sequence as Series

from surefoot.decoding import SurefootError
from surefoot.engine.engine import Engine
from surefoot.engine.generation import Delta, Generation
from surefoot.engine.health import Health
from surefoot.engine.request import Request

log = logging.getLogger(__name__)


class EngineStoppedError(SurefootError):
    """The engine is shutting down and takes no more requests."""


class EngineThread:
    """Steps an engine while there is work, and sleeps without polling while there is none.

    Listeners are called from the engine's thread and must not block. One that raises has its
    generation cancelled.

    Args:
        engine: used by this thread alone from `start` on.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._wake = threading.Condition()
        self._arrived: list[Generation] = []
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="surefoot-engine", daemon=True)

    @property
    def stopping(self) -> bool:
        """Whether `stop` has been called."""
        return self._stopping

    @property
    def waiting(self) -> int:
        """How many generations wait for a slot."""
        with self._wake:
            return sum(len(first.group) for first in self._arrived) + len(self.engine.waiting)

    def health(self) -> Health:
        """Whether the engine moves; see `Engine.health`."""
        with self._wake:
            arrived = [generation for first in self._arrived for generation in first.group]
        return self.engine.health(arrived)

    def start(self) -> None:
        """Begin to work."""
        self._thread.start()

    def submit(self, request: Request, listener: Callable[[Delta], None]) -> Generation:
        """Queue a request; see `Engine.submit`.

        Raises:
            SurefootError: the request can't be served; see `Engine.submit`.
            EngineStoppedError: `stop` has been called.
        """
        [generation] = self.submit_group([request], [listener])
        return generation

    def submit_group(
        self, requests: Series[Request], listeners: Series[Callable[[Delta], None]]
    ) -> list[Generation]:
        """Queue requests of one prompt; see `Engine.submit_group`.

        Raises:
            SurefootError: as `submit`; nothing has been queued.
            QueueFullError: too many wait already.
        """
        generations: list[Generation] = []

        def guarded(index: int, listener: Callable[[Delta], None]) -> Callable[[Delta], None]:
            def tell(delta: Delta) -> None:
                try:
                    listener(delta)
                except Exception:
                    log.exception("a listener failed; its generation is cancelled")
                    generations[index].cancelled = True

            return tell

        guards = [guarded(index, listener) for index, listener in enumerate(listeners)]
        generations += self.engine.accept(requests, guards)
        with self._wake:
            if self._stopping:
                raise EngineStoppedError("the server is shutting down")
            elsewhere = sum(len(first.group) for first in self._arrived)
            self.engine.check_queue(generations, elsewhere)
            self._arrived.append(generations[0])
            self._wake.notify()
        return generations

    def cancel(self, generation: Generation) -> None:
        """Ask for a generation's end; its slot is free after at most one round."""
        generation.cancelled = True
        with self._wake:
            self._wake.notify()

    def stop(self) -> None:
        """Fail what is running and waiting, and wait for the thread to end."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        if self._thread.is_alive():
            self._thread.join()
        else:
            self._run()  # it never did, and whoever has submitted must be told

    def _run(self) -> None:
        while self._take_arrivals():
            try:
                self.engine.step()
            except Exception:
                log.exception("internal error in the engine; running requests fail")
                self.engine.fail_all("internal error; see the server's log")
        self.engine.fail_all("the server is shutting down")

    def _take_arrivals(self) -> bool:
        """Wait for work and take it in; False once the thread should end."""
        with self._wake:
            while not self._stopping and not self._arrived and self.engine.idle:
                self._wake.wait()
            arrived, self._arrived = self._arrived, []
            # Under the lock, so that nobody who asks how many wait misses them.
            for generation in arrived:
                self.engine.enqueue(generation)
            return not self._stopping
