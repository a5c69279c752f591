"""The supervisor: keeps a worker alive, and every request's journal.

When the worker dies, whatever the reason, it is started again and all requests go on from their
journals. A request that kills it is found out and given up; see `suspicion`.
"""

import logging
import threading
import time
from collections.abc import Callable
from collections.abc import Sequence as Series
from dataclasses import replace
from functools import cached_property
from typing import Protocol

from surefoot.constraints import Controls
from surefoot.decoding import InvalidParameterError, SurefootError
from surefoot.engine import (
    SHUTTING_DOWN,
    STALL_SECONDS,
    Delta,
    EngineStoppedError,
    Facts,
    Figures,
    GenerationState,
    Health,
    Journal,
    Listener,
    Progress,
    QueueSettings,
    Request,
    SlotDone,
    SlotOrder,
    Status,
)
from surefoot.engine.checking import check_requests
from surefoot.engine.queue import Queue
from surefoot.engine.totals import Totals
from surefoot.engine.vocabulary import Vocabulary, controls_for
from surefoot.runtime.base import Tokenizer
from surefoot.worker.channel import Channel, ChannelClosedError
from surefoot.worker.messages import (
    Age,
    Begun,
    Cancel,
    DidSlot,
    Failed,
    Message,
    Ready,
    Stop,
    Submit,
    Told,
)
from surefoot.worker.orders import Orders
from surefoot.worker.outbox import Outbox
from surefoot.worker.suspicion import Suspicion

log = logging.getLogger(__name__)

DELAYS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
"""Seconds before the next start: the first after a life in which something was achieved, then
rising with each that achieved nothing."""

SECONDS_OF_HEALTH = 60.0
"""A life that long is an achievement."""

STARTS_ALLOWED = 5
"""After so many starts in a row that failed, the open requests fail, too."""

SECONDS_TO_STOP = 10.0
"""How long a worker may take to end."""

SECONDS_BETWEEN_LOOKS = 1.0
"""How often it is looked whether the worker is silent."""


class WorkerStartError(SurefootError):
    """The worker could not be started; the text says why."""


class Worker(Protocol):
    """A worker that has been started."""

    @property
    def channel(self) -> Channel:
        """Our end of the channel to it."""

    def kill(self) -> None:
        """End it at once."""

    def ended(self, patience: float) -> str:
        """Wait for its end, forced after so many seconds; says in words how it ended."""


class Supervisor:
    """An engine in a worker, as an `EngineHandle`.

    Listeners are called from threads of the supervisor's and must not block. One that raises has
    its request cancelled.

    Args:
        launch: starts a worker; called from one thread, which lives until `stop`.
        vocabulary: gives the model's vocabulary, once it is known that the worker could load it.
        timeout: a worker that has work and tells nothing for so many seconds is killed.
        queue: limits of the queue; None for none. How long requests wait is the worker's to see.
        stop_seconds: how long a worker may take to end.
        stall_seconds: a worker that has work and tells nothing for so long makes health degraded.
        delays: see `DELAYS`.

    Attributes:
        facts: what the engine is; after `start`.
    """

    facts: Facts

    def __init__(
        self,
        launch: Callable[[], Worker],
        vocabulary: Callable[[], Vocabulary],
        timeout: float = 300.0,
        queue: QueueSettings | None = None,
        stall_seconds: float = STALL_SECONDS,
        stop_seconds: float = SECONDS_TO_STOP,
        delays: Series[float] = DELAYS,
    ) -> None:
        self._launch = launch
        self._load_vocabulary = vocabulary
        self._timeout = timeout
        self._delays = delays
        self._lock = threading.RLock()
        self._open: dict[int, Journal] = {}
        self._sent: set[int] = set()
        self._in_this_life: set[int] = set()
        self._suspicion = Suspicion()
        self._outbox: Outbox | None = None
        self._heard = 0.0
        self._refusing = self._stopping = False
        self._started = threading.Event()
        self._stop_asked = threading.Event()
        self._start_error: SurefootError | None = None
        self._trouble: str | None = "starting"
        self._restarts = 0
        self._achieved = False
        self._figures, self._former = Figures(), Figures()
        self._health = Health()
        self._queue_settings = queue or QueueSettings()
        self._stall_seconds = stall_seconds
        self._stop_seconds = stop_seconds
        self._began: dict[int, float] = {}
        self._orders = Orders()
        self._totals = Totals()
        self._thread = threading.Thread(target=self._run, name="surefoot-supervisor", daemon=True)

    # What others see

    def start(self) -> None:
        """Start the worker, and wait until it has loaded its model.

        Raises:
            InvalidParameterError: an option is unusable.
            WorkerStartError: it could not be started, or it could not load the model.
        """
        self._thread.start()
        self._started.wait()
        if self._start_error is not None:
            self._thread.join()
            raise self._start_error

    @cached_property
    def _vocabulary(self) -> Vocabulary:
        return self._load_vocabulary()

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        return self._vocabulary.tokenizer

    @cached_property
    def controls(self) -> Controls:
        """Makes controls for the model's vocabulary, which is what shows errors in grammars."""
        return controls_for(self._vocabulary)

    @property
    def stopping(self) -> bool:
        """Whether no more requests are taken."""
        return self._refusing

    @property
    def open(self) -> int:
        """How many generations are not over."""
        return len(self._open)

    def status(self) -> Status:
        """How the engine is now; counters go on where the last worker's ended."""
        with self._lock:
            return Status(
                health=self._health_now(),
                figures=self._former.then(self._figures),
                totals=self._totals,
                refused=self._queue.refused,
                restarts=self._restarts,
            )

    @cached_property
    def _queue(self) -> Queue:
        """Knows how long requests take; who waits is in the journals."""
        return Queue(self._queue_settings, self.facts.slots)

    def _count(self, state: GenerationState, *, strict: bool) -> int:
        return sum(
            journal.state is state and (journal.request.exact == "strict") is strict
            for journal in self._open.values()
        )

    def _health_now(self) -> Health:
        """What the worker has said of its slots, unless it says nothing any more."""
        busy = self._count(GenerationState.RUNNING, strict=False)
        health = replace(
            self._health,
            slots_busy=busy,
            slots_idle=self.facts.slots - busy,
            strict_busy=self._count(GenerationState.RUNNING, strict=True),
            waiting=sum(each.state is GenerationState.WAITING for each in self._open.values()),
        )
        if self._trouble is not None:
            return replace(health, status="restarting", live=False, reason=self._trouble)
        silent = time.monotonic() - self._heard if self._sent else 0.0
        if silent > self._stall_seconds:
            reason = f"the worker has work and has told nothing for {silent:.0f} s"
            return replace(health, status="degraded", live=False, reason=reason)
        return health

    def submit_group(self, requests: Series[Request], listeners: Series[Listener]) -> list[Journal]:
        """Queue requests of one prompt; see `EngineHandle`.

        Raises:
            QueueFullError: too many wait already.
        """
        check_requests(
            requests,
            slots=self.facts.slots,
            vocabulary_size=self.facts.vocabulary_size,
            context_length=self.facts.context_length,
            no_strict=self.facts.no_strict,
            no_shift=self.facts.no_shift,
            controls=lambda: self.controls,
        )
        journals = [
            self._journal(request, listener)
            for request, listener in zip(requests, listeners, strict=True)
        ]
        for journal in journals:
            journal.group = journals
        with self._lock:
            if self._refusing:
                raise EngineStoppedError(SHUTTING_DOWN)
            strict = requests[0].exact == "strict"
            busy = self._count(GenerationState.RUNNING, strict=strict)
            waiting = sum(each.state is GenerationState.WAITING for each in self._open.values())
            self._queue.check(len(requests), waiting, self.facts.slots - busy)
            self._open.update((journal.id, journal) for journal in journals)
            self._submit_what_may_run()
        return journals

    def _journal(self, request: Request, listener: Listener) -> Journal:
        """A journal whose listener harms nobody else if it raises."""

        def tell(delta: Delta) -> None:
            try:
                listener(delta)
            except Exception:
                log.exception("a listener failed; its request is cancelled")
                self.cancel(journal)

        journal = Journal(request, tell, self.tokenizer, time.monotonic())
        return journal

    def cancel(self, generation: Journal) -> None:
        """Ask for a generation's end; see `EngineHandle`."""
        with self._lock:
            generation.cancelled = True
            if generation.id not in self._open:
                return
            if generation.id in self._sent and self._outbox is not None:
                self._outbox.put(Cancel(generation.id))
            else:
                self._end(generation, GenerationState.CANCELLED)

    def slot(self, order: SlotOrder) -> SlotDone:
        """Save, restore or erase a slot; see `EngineHandle`."""
        with self._lock:
            if self._stopping:
                raise EngineStoppedError(SHUTTING_DOWN)
            answer = self._orders.place(order, self._outbox)
        return answer.result()

    def refuse(self) -> None:
        """Take no more requests; what is running and waiting goes on."""
        with self._lock:
            self._refusing = True

    def stop(self) -> None:
        """Fail what is open, and end the worker."""
        with self._lock:
            self._refusing = self._stopping = True
            self._stop_asked.set()
            if self._outbox is not None:
                self._outbox.put(Stop())
        if self._thread.is_alive():
            self._thread.join()

    # The lives of workers, in the supervisor's thread

    def _run(self) -> None:
        failures = 0
        try:
            while True:
                began, self._achieved = time.monotonic(), False
                reason, ready = self._live()
                if self._start_error is not None or self._stopping:
                    break
                healthy = ready and time.monotonic() - began > SECONDS_OF_HEALTH
                failures = 0 if self._achieved or healthy else failures + 1
                delay = self._delays[min(failures, len(self._delays) - 1)]
                log.error("the worker died: %s; starting it again in %g s", reason, delay)
                self._bury(reason, failed_starts=0 if ready else failures)
                if self._stop_asked.wait(delay):
                    break
                self._restarts += 1
        except Exception as error:
            log.exception("a bug in the supervisor; the server can't go on")
            self._start_error = WorkerStartError(f"internal error: {error!r}")
        finally:
            with self._lock:
                self._refusing = self._stopping = True
                for journal in list(self._open.values()):
                    self._end(journal, GenerationState.FAILED, SHUTTING_DOWN)
            self._started.set()

    def _live(self) -> tuple[str, bool]:
        """One worker from start to end: how it ended, and whether it had loaded its model."""
        try:
            worker = self._launch()
        except OSError as error:
            return self._start_failed(f"it can't be started ({error})"), False
        outbox = Outbox(worker.channel)
        told = None
        try:
            first = self._first_message(worker)
            if isinstance(first, Ready):
                told = self._welcome(first, outbox)
            if isinstance(first, Ready) and told is None:
                told = self._listen(worker)
            elif isinstance(first, Failed):
                told = first.text
        finally:
            with self._lock:
                self._outbox = None
            self._orders.give_up()
            if told is not None:
                worker.kill()
            end = worker.ended(self._stop_seconds)
            outbox.close()
        ready = isinstance(first, Ready) and self._started.is_set()
        if isinstance(first, Failed):
            return self._start_failed(first.text, first.parameter), False
        if not ready:
            return self._start_failed(told or f"{end} while it loaded the model"), False
        return told or end, True

    def _start_failed(self, reason: str, parameter: str = "") -> str:
        """The first start's failure is the caller's to hear of."""
        if not self._started.is_set():
            if parameter:
                self._start_error = InvalidParameterError(
                    parameter, reason.removeprefix(f"{parameter}: ")
                )
            else:
                self._start_error = WorkerStartError(reason)
        return reason

    def _first_message(self, worker: Worker) -> Message | None:
        """What comes of loading the model; None if the worker has gone, or is to go."""
        while not self._stopping:
            try:
                message = worker.channel.receive(SECONDS_BETWEEN_LOOKS / 4)
            except ChannelClosedError:
                return None
            if message is not None:
                return message
        worker.kill()
        return None

    def _welcome(self, ready: Ready, outbox: Outbox) -> str | None:
        """Let a worker that is ready have the requests; else why it can't have them, in words."""
        facts = ready.facts
        if not self._started.is_set():
            try:
                _ = self._vocabulary
            except SurefootError as error:
                self._start_error = error
                return str(error)
            self.facts = facts
        elif (facts.info, facts.vocabulary_size, facts.context_length) != (
            self.facts.info,
            self.facts.vocabulary_size,
            self.facts.context_length,
        ):
            return "the model file has changed since the server was started"
        with self._lock:
            self._outbox, self._trouble = outbox, None
            if self._stopping:
                outbox.put(Stop())
            self._submit_what_may_run()
        self._started.set()
        return None

    def _listen(self, worker: Worker) -> str | None:
        """Hear the worker until it is gone; what was wrong with it, if it has to be killed."""
        stop_by: float | None = None
        while True:
            try:
                message = worker.channel.receive(min(SECONDS_BETWEEN_LOOKS, self._timeout / 4))
            except ChannelClosedError:
                return None
            now = time.monotonic()
            match message:
                case Told(progress, sign):
                    self._heard = now
                    if sign is not None:
                        self._figures, self._health = sign.figures, sign.health
                    self._hear(progress)
                case Begun(number):
                    self._heard = now
                    if (journal := self._open.get(number)) is not None:
                        journal.state = GenerationState.RUNNING
                        self._began[number] = now
                case DidSlot() as did:
                    self._orders.answer(did)
                case None if self._sent and now - self._heard > self._timeout:
                    return f"it had work and told nothing for {self._timeout:g} s"
            if self._stopping:
                stop_by = stop_by or now + self._stop_seconds
                if now > stop_by:
                    return "it did not stop"

    def _hear(self, told: list[tuple[int, Progress]]) -> None:
        cleared = False
        for number, progress in told:
            journal = self._open.get(number)
            if journal is None:
                continue
            self._achieved = self._achieved or bool(progress.tokens)
            if progress.tokens and journal.first_token is None:
                journal.first_token = time.monotonic()
            suspect = self._suspicion.suspects(journal)
            if progress.state.over:
                with self._lock:
                    self._close(journal)
                journal.hear(progress)
                self._totals.add(journal.state.value, journal.summary)
            else:
                journal.hear(progress)
            cleared = cleared or (
                suspect and (journal.state.over or not self._suspicion.suspects(journal))
            )
        if cleared:
            with self._lock:
                self._submit_what_may_run()

    # Journals, under the lock

    def _submit_what_may_run(self) -> None:
        """Send what has not been sent, groups together if none of a group has begun."""
        if self._outbox is None:
            return
        for journal in self._suspicion.admitted(self._open.values()):
            if journal.id in self._sent:
                continue
            group = [journal]
            together = [self._open.get(each.id) for each in journal.group]
            fresh = all(each and each.id not in self._sent and not each.tokens for each in together)
            if fresh and not self._suspicion.suspects(journal):
                group = [each for each in together if each is not None]
            if not self._sent:
                self._heard = time.monotonic()
            self._sent.update(each.id for each in group)
            self._in_this_life.update(each.id for each in group)
            now = time.monotonic()
            self._outbox.put(
                Submit(
                    [each.id for each in group],
                    [each.resumption() for each in group],
                    [_age(each, now) for each in group],
                )
            )

    def _bury(self, reason: str, failed_starts: int) -> None:
        """After a death: find who is guilty, and make the others ready to go on."""
        with self._lock:
            self._trouble = reason
            self._former, self._figures = self._former.then(self._figures), Figures()
            self._health = Health()
            self._began.clear()
            sent = [journal for journal in self._open.values() if journal.id in self._sent]
            running = [each for each in sent if each.state is GenerationState.RUNNING] or sent
            self._sent.clear()
            guilty = self._suspicion.died_with(running, alone=len(self._in_this_life) == 1)
            self._in_this_life.clear()
            if guilty is not None:
                error = (
                    f"request {guilty.id} is given up: the worker died "
                    f"{self._suspicion.deaths(guilty)} times in a row while it ran, with nothing "
                    f"generated between (the last time: {reason})"
                )
                log.error("%s", error)
                self._end(guilty, GenerationState.FAILED, error)
            for journal in list(self._open.values()):
                if journal.cancelled:
                    self._end(journal, GenerationState.CANCELLED)
                elif failed_starts > STARTS_ALLOWED:
                    error = f"the worker can't be started: {reason}"
                    self._end(journal, GenerationState.FAILED, error)
                else:
                    journal.resumption()

    def _end(self, journal: Journal, state: GenerationState, error: str | None = None) -> None:
        """End a request that no worker knows of."""
        self._close(journal)
        journal.summary.generated_tokens = len(journal.tokens)
        journal.hear(Progress([], 0, state, [], [], error=error))
        self._totals.add(state.value, journal.summary)

    def _close(self, journal: Journal) -> None:
        del self._open[journal.id]
        if (began := self._began.pop(journal.id, None)) is not None:
            self._queue.served(time.monotonic() - began)
        self._sent.discard(journal.id)
        self._suspicion.forget(journal)


def _age(journal: Journal, now: float) -> Age:
    first = journal.first_token
    return Age(now - journal.submitted, None if first is None else now - first)
