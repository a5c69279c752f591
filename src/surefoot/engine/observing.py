"""Those who watch an engine at work: the watchdog, the recorder, whoever a test brings along."""

import logging
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Series
from typing import Any

from surefoot.decoding import Played, Sequence
from surefoot.engine.generation import Generation
from surefoot.engine.lane import Lane
from surefoot.engine.slot import Slot

log = logging.getLogger(__name__)


class Observer:
    """Hears what becomes of generations, from the engine's own thread; does nothing by itself."""

    def entered(self, lane: Lane, slot: Slot) -> None:
        """A generation has entered a slot."""

    def absorbed(self, slot: Slot, tokens: int) -> None:
        """A pass has absorbed so many tokens of the prompt in a slot."""

    def played(self, slots: Series[Slot], parts: Series[Played]) -> None:
        """A round was played for slots; the rows of its parts are good during this call alone."""

    def lost(self, slots: Series[Slot], error: Exception) -> None:
        """The memories of slots were lost to a failed pass, and will be absorbed again."""

    def between(self, lane: Lane, slot: Slot) -> None:
        """A generation goes on after a round, whose memory has settled; it may be touched now."""

    def noted(self, sequence: Sequence, event: str, facts: Mapping[str, Any]) -> None:
        """Another observer has something to say about a sequence."""

    def ended(self, generation: Generation) -> None:
        """A generation is over."""


class Observers(Observer):
    """Tells several observers. One that raises is not told any more, and harms nobody.

    Args:
        observers: who is told, in that order.
    """

    def __init__(self, observers: Series[Observer] = ()) -> None:
        self._observers = list(observers)

    def add(self, observer: Observer) -> None:
        """Tell one more, after all others."""
        self._observers.append(observer)

    def entered(self, lane: Lane, slot: Slot) -> None:
        """See `Observer`, as for all that follow."""
        self._tell(lambda each: each.entered(lane, slot))

    def absorbed(self, slot: Slot, tokens: int) -> None:
        """Tell all."""
        self._tell(lambda each: each.absorbed(slot, tokens))

    def played(self, slots: Series[Slot], parts: Series[Played]) -> None:
        """Tell all."""
        self._tell(lambda each: each.played(slots, parts))

    def lost(self, slots: Series[Slot], error: Exception) -> None:
        """Tell all."""
        self._tell(lambda each: each.lost(slots, error))

    def between(self, lane: Lane, slot: Slot) -> None:
        """Tell all."""
        self._tell(lambda each: each.between(lane, slot))

    def noted(self, sequence: Sequence, event: str, facts: Mapping[str, Any]) -> None:
        """Tell all."""
        self._tell(lambda each: each.noted(sequence, event, facts))

    def ended(self, generation: Generation) -> None:
        """Tell all."""
        self._tell(lambda each: each.ended(generation))

    def _tell(self, tell: Callable[[Observer], None]) -> None:
        for observer in tuple(self._observers):
            try:
                tell(observer)
            except Exception:
                log.exception("%s has failed and is switched off", type(observer).__name__)
                self._observers.remove(observer)
