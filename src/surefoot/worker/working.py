"""The worker's side: an engine that takes its requests from a channel, and tells it all it does."""

import logging
import threading
import time
from contextlib import suppress
from functools import partial

from surefoot.decoding import SurefootError
from surefoot.engine import (
    Engine,
    EngineThread,
    Facts,
    Figures,
    Generation,
    GenerationState,
    Progress,
    SlotError,
)
from surefoot.worker.channel import Channel, ChannelClosedError
from surefoot.worker.messages import (
    Begun,
    Cancel,
    DidSlot,
    DoSlot,
    Ready,
    Sign,
    Stop,
    Submit,
    Told,
)

log = logging.getLogger(__name__)

SECONDS_BETWEEN_SIGNS = 1.0
"""While there is work, a sign of life comes at least after each step that ends so long after the
last one; as often the figures of each request are told."""


def work(engine: Engine, channel: Channel) -> None:
    """Serve an engine until the other side says stop, or is gone."""
    _Worker(engine, channel).run()


class _Worker:
    def __init__(self, engine: Engine, channel: Channel) -> None:
        self._engine = engine
        self._channel = channel
        self._thread = EngineThread(engine, after_step=self._flush)
        self._open: dict[int, Generation] = {}
        self._progress: list[tuple[int, Progress]] = []
        self._last_sign = 0.0
        self._last_summary: dict[int, float] = {}

    def run(self) -> None:
        try:
            self._channel.send(Ready(Facts.of(self._engine)))
            self._thread.start()
            while True:
                match self._channel.receive():
                    case Submit() as order:
                        self._submit(order)
                    case Cancel(number):
                        if (generation := self._open.get(number)) is not None:
                            self._thread.cancel(generation)
                    case DoSlot() as wanted:
                        # By itself, since it may take as long as a disk does.
                        threading.Thread(target=self._do_slot, args=[wanted], daemon=True).start()
                    case Stop():
                        return
        except ChannelClosedError:
            log.info("the server is gone")
        finally:
            self._thread.stop()

    def _submit(self, order: Submit) -> None:
        try:
            generations = self._engine.accept(order.requests, [lambda _: None] * len(order.ids))
        except SurefootError as error:
            self._refuse(order.ids, str(error))
            return
        except Exception as error:
            log.exception("a request could not be taken")
            self._refuse(order.ids, f"internal error: {error!r}")
            return
        now = self._engine.now
        for number, age, generation in zip(order.ids, order.ages, generations, strict=True):
            generation.id = number
            generation.submitted = now - age.submitted
            generation.first_token = None if age.first_token is None else now - age.first_token
            generation.outlet = partial(self._tell, generation)
            generation.begun = partial(self._say, Begun(number))
            self._open[number] = generation
        self._thread.take(generations)

    def _do_slot(self, wanted: DoSlot) -> None:
        self._last_sign = 0.0  # so that the slots are told as they are afterwards
        try:
            told = DidSlot(wanted.id, self._thread.slot(wanted.order))
        except SlotError as error:
            told = DidSlot(wanted.id, None, error.problem, str(error))
        except Exception as error:
            log.exception("a slot's order failed")
            told = DidSlot(wanted.id, None, text=f"internal error: {error!r}")
        self._say(told)

    def _refuse(self, ids: list[int], reason: str) -> None:
        failed = Progress([], 0, GenerationState.FAILED, [], [], error=reason)
        self._channel.send(Told([(number, failed) for number in ids]))

    # In the engine's thread

    def _tell(self, generation: Generation, progress: Progress) -> None:
        number, now = generation.id, time.monotonic()
        if progress.state.over:
            del self._open[number]
            self._last_summary.pop(number, None)
        elif now - self._last_summary.get(number, 0.0) > SECONDS_BETWEEN_SIGNS:
            self._last_summary[number] = now
            progress = progress._replace(summary=generation.summary)
        self._progress.append((number, progress))

    def _flush(self) -> None:
        """One message for all that a step has done; none if that is nothing."""
        ended = any(progress.state.over for _, progress in self._progress)
        due = ended or time.monotonic() - self._last_sign > SECONDS_BETWEEN_SIGNS
        if not self._progress and not due:
            return
        sign = None
        if due:
            self._last_sign = time.monotonic()
            sign = Sign(Figures.of(self._engine), self._engine.health())
        progress, self._progress = self._progress, []
        self._say(Told(progress, sign))

    def _say(self, message: Begun | DidSlot | Told) -> None:
        with suppress(ChannelClosedError):  # `run` notices, and ends
            self._channel.send(message)
