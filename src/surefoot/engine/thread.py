"""The engine in a thread of its own, so that others may submit and cancel from anywhere."""

import logging
import threading
from collections.abc import Callable
from collections.abc import Sequence as Series
from concurrent.futures import Future
from typing import Any, TypeVar

from surefoot.constraints import Controls
from surefoot.decoding import SurefootError
from surefoot.engine.engine import Engine
from surefoot.engine.generation import Delta, Generation
from surefoot.engine.handle import Facts, Figures, Status
from surefoot.engine.journal import Journal
from surefoot.engine.request import Request
from surefoot.engine.slot_actions import SlotDone, SlotOrder, carry_out
from surefoot.runtime.base import Tokenizer

log = logging.getLogger(__name__)


Result = TypeVar("Result")

SHUTTING_DOWN = "the server is shutting down"
"""What generations fail with that are still open when their engine stops."""


class EngineStoppedError(SurefootError):
    """The engine is shutting down and takes no more requests."""


class EngineThread:
    """Steps an engine while there is work, and sleeps without polling while there is none.

    It is an `EngineHandle`. Listeners are called from the engine's thread and must not block. One
    that raises has its generation cancelled.

    Args:
        engine: used by this thread alone from `start` on.
        after_step: called in that thread after each step, and in the end.
    """

    def __init__(self, engine: Engine, after_step: Callable[[], None] = lambda: None) -> None:
        self.engine = engine
        self.facts = Facts.of(engine)
        self._after_step = after_step
        self._wake = threading.Condition()
        self._arrived: list[Generation] = []
        self._calls: list[tuple[Callable[[], Any], Future[Any]]] = []
        self._open = 0
        self._refusing = False
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="surefoot-engine", daemon=True)

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        return self.engine.runtime.tokenizer

    @property
    def controls(self) -> Controls:
        """Makes controls for the model's vocabulary."""
        return self.engine.controls

    @property
    def stopping(self) -> bool:
        """Whether `refuse` or `stop` has been called."""
        return self._refusing

    @property
    def open(self) -> int:
        """How many generations are not over."""
        return self._open

    def status(self) -> Status:
        """How the engine is now."""
        engine = self.engine
        with self._wake:
            arrived = [generation for first in self._arrived for generation in first.group]
        return Status(
            health=engine.health(arrived),
            figures=Figures.of(engine),
            totals=engine.totals,
            refused=engine.queue.refused,
        )

    @property
    def waiting(self) -> int:
        """How many generations wait for a slot."""
        with self._wake:
            return sum(len(first.group) for first in self._arrived) + len(self.engine.waiting)

    def start(self) -> None:
        """Begin to work."""
        self._thread.start()

    def submit(self, request: Request, listener: Callable[[Delta], None]) -> Generation:
        """Queue a request; see `Engine.submit`.

        Raises:
            SurefootError: the request can't be served; see `Engine.submit`.
            EngineStoppedError: no more requests are taken.
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
                if delta.state.over:
                    with self._wake:
                        self._open -= 1
                try:
                    listener(delta)
                except Exception:
                    log.exception("a listener failed; its generation is cancelled")
                    generations[index].cancelled = True

            return tell

        guards = [guarded(index, listener) for index, listener in enumerate(listeners)]
        generations += self.engine.accept(requests, guards)
        with self._wake:
            if self._refusing:
                raise EngineStoppedError(SHUTTING_DOWN)
            elsewhere = sum(len(first.group) for first in self._arrived)
            self.engine.check_queue(generations, elsewhere)
            self._arrived.append(generations[0])
            self._open += len(generations)
            self._wake.notify()
        return generations

    def take(self, generations: Series[Generation]) -> None:
        """Queue generations of one prompt, from `Engine.accept`, of which others keep count."""
        with self._wake:
            self._arrived.append(generations[0])
            self._wake.notify()

    def cancel(self, generation: Journal) -> None:
        """Ask for a generation's end; its slot is free after at most one round."""
        generation.cancelled = True
        with self._wake:
            self._wake.notify()

    def call(self, function: Callable[[], Result]) -> Result:
        """Call a function in the engine's thread, between two steps.

        Returns:
            What it returns. What it raises is raised here.

        Raises:
            EngineStoppedError: the engine stops.
        """
        answer: Future[Result] = Future()
        with self._wake:
            if self._stopping:
                raise EngineStoppedError(SHUTTING_DOWN)
            self._calls.append((function, answer))
            self._wake.notify()
        return answer.result()

    def slot(self, order: SlotOrder) -> SlotDone:
        """Save, restore or erase a slot; see `slot_actions`."""
        return carry_out(self, order)

    def refuse(self) -> None:
        """Take no more requests; what is running and waiting goes on."""
        with self._wake:
            self._refusing = True

    def stop(self) -> None:
        """Fail what is running and waiting, and wait for the thread to end."""
        with self._wake:
            self._refusing = self._stopping = True
            self._wake.notify()
        if self._thread.is_alive():
            self._thread.join()
        else:
            self._run()  # it never did, and whoever has submitted must be told

    def _run(self) -> None:
        while self._take_arrivals():
            self._answer_calls()
            try:
                self.engine.step()
            except Exception:
                log.exception("internal error in the engine; running requests fail")
                self.engine.fail_all("internal error; see the server's log")
            self._after_step()
        for _, answer in self._calls:
            answer.set_exception(EngineStoppedError(SHUTTING_DOWN))
        self.engine.fail_all(SHUTTING_DOWN)
        self._after_step()

    def _answer_calls(self) -> None:
        with self._wake:
            calls, self._calls = self._calls, []
        for function, answer in calls:
            try:
                answer.set_result(function())
            except Exception as error:
                answer.set_exception(error)

    def _take_arrivals(self) -> bool:
        """Wait for work and take it in; False once the thread should end."""
        with self._wake:
            while not (self._stopping or self._arrived or self._calls) and self.engine.idle:
                self._wake.wait()
            arrived, self._arrived = self._arrived, []
            # Under the lock, so that nobody who asks how many wait misses them.
            for generation in arrived:
                self.engine.enqueue(generation)
            return not self._stopping
