"""An answer: the generations of one HTTP request, heard of on the event loop."""

import asyncio
import contextlib
import logging
import math
from dataclasses import dataclass
from functools import partial

from surefoot.decoding import SurefootError
from surefoot.engine import (
    SHUTTING_DOWN,
    Delta,
    EngineHandle,
    GenerationState,
    Journal,
    Summary,
)
from surefoot.server.errors import ApiError, overloaded, unavailable
from surefoot.server.order import Order
from surefoot.server.report import total

requests = logging.getLogger("surefoot.requests")
"""One line for each generation that is over."""


@dataclass(frozen=True, slots=True)
class News:
    """A delta, and which of the answer's generations it belongs to."""

    index: int
    delta: Delta


class Answer:
    """Generations in progress; the engine's thread fills a queue that the event loop reads.

    Whoever makes one sees to it that `cancel` is called in the end.

    Args:
        engine: where to submit.
        order: what to generate.

    Attributes:
        generations: one for each of the order's requests, group by group.
        running: how many of them there is more to hear of.

    Raises:
        PromptTooLongError: a prompt leaves no room for an answer; nothing was submitted.
        EngineStoppedError: the server is shutting down.
        QueueFullError: too many wait; none of its generations does.
    """

    def __init__(self, engine: EngineHandle, order: Order) -> None:
        self._engine = engine
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[News] = asyncio.Queue()
        self.generations: list[Journal] = []
        self._order = order
        try:
            for group in order.groups:
                first = len(self.generations)
                listeners = [partial(self._hear, first + i) for i in range(len(group))]
                self.generations += engine.submit_group(group, listeners)
        except SurefootError:
            self.cancel()
            raise
        self.running = len(self.generations)

    def _hear(self, index: int, delta: Delta) -> None:
        """Pass a delta on; called in the engine's thread, which it must not disturb."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody listens any more
            self._loop.call_soon_threadsafe(self._take, News(index, delta))

    def _take(self, news: News) -> None:
        if news.delta.state.over:
            requests.info("%s", self.generations[news.index])
        self._queue.put_nowait(news)

    async def news(self, patience: float | None = None) -> News | None:
        """The next delta; to be called while something is running.

        Args:
            patience: after so many seconds without news, None says that there is none.

        Raises:
            ApiError: a generation failed.
        """
        if self._queue.empty():
            try:
                async with asyncio.timeout(patience):
                    return self._heard(await self._queue.get())
            except TimeoutError:
                return None
        return self._heard(self._queue.get_nowait())

    @property
    def has_news(self) -> bool:
        """Whether the next delta is there already."""
        return not self._queue.empty()

    def _heard(self, news: News) -> News:
        if news.delta.state is GenerationState.FAILED:
            raise self._failure(self.generations[news.index])
        self.running -= news.delta.state.over
        return news

    def _failure(self, generation: Journal) -> ApiError:
        if generation.error == SHUTTING_DOWN:
            return unavailable()
        if generation.retry_after is not None:
            return overloaded(503, str(generation.error), generation.retry_after)
        status = 400 if generation.own_fault else 500
        return ApiError(status, generation.error or "the generation failed")

    async def finished(self) -> None:
        """Wait for all generations.

        Raises:
            ApiError: a generation failed.
        """
        while self.running:
            await self.news()

    def cancel(self) -> None:
        """End what is still running; their slots are free within one round."""
        for generation in self.generations:
            if not generation.state.over:
                self._engine.cancel(generation)

    def reason(self, index: int) -> str:
        """OpenAI's finish reason of a generation that is over."""
        finish = self.generations[index].finish
        return finish.reason if finish is not None else "stop"

    @property
    def chosen(self) -> list[int]:
        """The generations to be given: of each prompt's the likeliest by token, in that order."""
        size, count = len(self._order.groups[0]), self._order.choices
        found: list[int] = []
        for first in range(0, len(self.generations), size):
            group = list(range(first, first + size))
            if size > count:
                group.sort(key=lambda index: -_likelihood(self.generations[index]))
            found += group[:count]
        return found

    @property
    def summary(self) -> Summary:
        """The figures of all generations together; each prompt is counted once."""
        return total(
            [generation.summary for generation in self.generations],
            [g.summary for g in self.generations if g.group[0] is g],
        )


def _likelihood(generation: Journal) -> float:
    """Mean log-probability of a generation's tokens."""
    scores = [entry.scores.logprob for entry in generation.entries if entry.scores is not None]
    return sum(scores) / len(scores) if scores else -math.inf
