"""The queue: who waits for a slot, in which order, for how long, and how many may.

Who enters which slot is `admission.py`'s.
"""

import math
from bisect import insort
from collections.abc import Iterable, Iterator
from collections.abc import Sequence as Series
from dataclasses import dataclass
from typing import overload

from surefoot.decoding import InvalidParameterError, SurefootError
from surefoot.engine.generation import Generation

AGEING_SECONDS = 10.0
"""Waiting so long counts as much as one level of priority, so that nobody starves: a request goes
before all that come this long later for each level that they are above it."""

LONGEST_RETRY = 600
"""Nobody is told to come back later than after so many seconds."""

UNKNOWN_RETRY = 2
"""Seconds to come back after while nothing is known of how long requests take."""

_WEIGHT = 1 / 8


class QueueFullError(SurefootError):
    """There is no place in the queue.

    Attributes:
        retry_after: seconds after which there should be one.
    """

    def __init__(self, waiting: int, limit: int, retry_after: int) -> None:
        super().__init__(
            f"the server is busy: {waiting} requests wait for a slot, and {limit} may (--queue); "
            f"try again in {retry_after} s"
        )
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """Limits of the queue.

    Attributes:
        limit: how many generations may wait for a slot, at least 0; None for any number.
        timeout: seconds after which those that still wait are given up; None for never.

    Raises:
        InvalidParameterError: one is outside its range.
    """

    limit: int | None = None
    timeout: float | None = None

    def __post_init__(self) -> None:
        """Check the ranges."""
        if self.limit is not None and self.limit < 0:
            raise InvalidParameterError("queue", f"must be 0 or more, and is {self.limit}")
        if self.timeout is not None and not 0 < self.timeout < math.inf:
            raise InvalidParameterError("queue_timeout", "must be a number of seconds above 0")


class Queue(Series[Generation]):
    """The generations that wait, the next one first.

    The order is by priority, those that came first before others; see `AGEING_SECONDS`.

    Args:
        settings: its limits.
        slots: how many requests run at once.

    Attributes:
        settings: the same.
        refused: requests that found the queue full.
        timed_out: generations that have waited too long.
    """

    def __init__(self, settings: QueueSettings, slots: int) -> None:
        self.settings = settings
        self.refused = 0
        self.timed_out = 0
        self._slots = slots
        self._waiting: list[Generation] = []
        self._seconds: float | None = None

    @overload
    def __getitem__(self, index: int) -> Generation: ...
    @overload
    def __getitem__(self, index: slice) -> list[Generation]: ...
    def __getitem__(self, index: int | slice) -> Generation | list[Generation]:
        return self._waiting[index]

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Generation]:
        return iter(list(self._waiting))

    def add(self, generations: Iterable[Generation]) -> None:
        """Let generations wait; `check` has been asked."""
        for generation in generations:
            insort(self._waiting, generation, key=_rank)

    def remove(self, generation: Generation) -> None:
        """Take one out."""
        self._waiting.remove(generation)

    def check(self, arriving: int, elsewhere: int, free: int) -> None:
        """Refuse generations that there is no place for; those that find a free slot need none.

        Args:
            arriving: how many there are.
            elsewhere: how many wait that have not been added yet.
            free: slots that are free.

        Raises:
            QueueFullError: they are too many.
        """
        limit, waiting = self.settings.limit, len(self) + elsewhere
        if limit is not None and waiting + arriving > limit + free:
            self.refused += 1
            raise QueueFullError(waiting, limit, self.retry_after(1))

    def overdue(self, now: float) -> list[Generation]:
        """Those that have waited longer than their request, or the settings, allow."""
        found = []
        for generation in self:
            limit = generation.request.queue_timeout
            limit = self.settings.timeout if limit is None else limit
            if limit is not None and now - generation.submitted >= limit:
                found.append(generation)
        return found

    def served(self, seconds: float) -> None:
        """Take note of a request that has kept a slot for so long."""
        known = seconds if self._seconds is None else self._seconds
        self._seconds = known + (seconds - known) * _WEIGHT

    def retry_after(self, places: int) -> int:
        """Whole seconds in which so many requests should have left the queue, at least 1."""
        if self._seconds is None:
            return UNKNOWN_RETRY
        seconds = places * self._seconds / self._slots
        return min(LONGEST_RETRY, max(1, math.ceil(seconds)))


def _rank(generation: Generation) -> tuple[float, int]:
    """Sorts generations; since all age alike, the order of two of them never changes."""
    earlier = generation.request.priority * AGEING_SECONDS
    return generation.submitted - earlier, generation.id
