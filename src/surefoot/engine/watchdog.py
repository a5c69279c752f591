"""The watchdog: takes speculation away from a request that it does not serve, and says why.

Three things make it bark: drafts of which nothing is accepted for very long, the same for a while
in a text that goes in circles, and passes that fail one after the other. In the second case the
model's memory is suspected, too: it is built again from the tokens, once, and what the model
chooses next is compared.
"""

import logging
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Series
from dataclasses import dataclass
from typing import Any

from surefoot.decoding import Choice, Feed, Played, Sequence, SurefootError, Target
from surefoot.decoding.round import FILLER, FORCED
from surefoot.engine.generation import Generation
from surefoot.engine.lane import Lane
from surefoot.engine.observing import Observer
from surefoot.engine.slot import Slot
from surefoot.engine.totals import Totals

log = logging.getLogger(__name__)

PATIENCE = 256
"""So many rounds in a row with a draft and no accepted token end a request's speculation.

Ordinary hard prose must not: with one round in twenty accepting something, 256 rounds without are
a matter of 2 in a million. Where not even that is accepted, drafts only cost. (The trained hybrid
on prose at temperatures from 0 to 1.5, 900 tokens each: at most 16 rounds in a row without with
ngram-cache, 11 with draft-mtp, 27 with ngram-simple.)"""

PATIENCE_IN_CIRCLES = 16
"""The same, while the text repeats itself. What repeats is the easiest of all to draft, so that
something must be wrong with the memory or the drafter."""

REPEATS = 4
"""A text goes in circles if its end consists of so many equal parts."""

LONGEST_PART = 64
SHORTEST_CIRCLES = 32
"""In tokens: of a part, and of all parts together."""

LOSSES_ALLOWED = 2
"""After so many failed passes in a row, with nothing committed, the next try is a plain one."""


@dataclass(slots=True)
class _Watch:
    """What is known of a sequence.

    Attributes:
        fruitless: rounds in a row with a draft of which nothing was accepted.
        losses: failed passes since a token was committed.
        suspected: whether its memory shall be built again.
        rebuilt: whether it has been, and no round has been played since.
        expected: what the model would have chosen next with the former memory; None if unknown.
    """

    fruitless: int = 0
    losses: int = 0
    suspected: bool = False
    rebuilt: bool = False
    expected: Choice | None = None


class Watchdog(Observer):
    """Watches all sequences of an engine.

    Args:
        totals: where it counts what it does.
        note: told what it has done, and to whom.
        patience: see `PATIENCE`; 0 looks at failed passes alone.
    """

    def __init__(
        self,
        totals: Totals,
        note: Callable[[Sequence, str, Mapping[str, Any]], None],
        patience: int = PATIENCE,
    ) -> None:
        self._totals = totals
        self._note = note
        self._patience = patience
        self._watches: dict[Sequence, _Watch] = {}

    def played(self, slots: Series[Slot], parts: Series[Played]) -> None:  # noqa: ARG002
        """Count fruitless rounds, and compare the first choice of a memory that was built again."""
        for part in parts:
            watch = self._watch(part.sequence)
            watch.losses = 0
            if watch.rebuilt and part.tokens:
                self._compare(part, watch)
            if part.draft.tokens and part.draft.drafter != FORCED:
                watch.fruitless = 0 if part.accepted else watch.fruitless + 1
                if self._patience and watch.fruitless:
                    self._judge(part.sequence, watch)

    def lost(self, slots: Series[Slot], error: Exception) -> None:
        """Count failed passes."""
        for slot in slots:
            sequence = slot.running[1]
            watch = self._watch(sequence)
            watch.losses += 1
            if watch.losses >= LOSSES_ALLOWED:
                reason = f"{watch.losses} passes in a row failed ({error})"
                self._stop(sequence, "failed passes", reason)

    def between(self, lane: Lane, slot: Slot) -> None:
        """Build a suspected memory again: forget it, and have the tokens absorbed."""
        _, sequence = slot.running
        watch = self._watch(sequence)
        if watch.suspected:
            watch.suspected, watch.rebuilt = False, True
            watch.expected = next_choice(lane.runtime, sequence)
            slot.memory.clear()
            slot.prefilling = len(sequence.pending) > 1

    def ended(self, generation: Generation) -> None:
        """Let go of it."""
        if generation.sequence is not None:
            watch = self._watches.pop(generation.sequence, None)
            if watch is not None and watch.rebuilt:
                self._totals.rebuilds["unknown"] += 1

    def _watch(self, sequence: Sequence) -> _Watch:
        return self._watches.setdefault(sequence, _Watch())

    def _judge(self, sequence: Sequence, watch: _Watch) -> None:
        fruitless = f"no draft token was accepted in {watch.fruitless} rounds in a row"
        if watch.fruitless >= self._patience:
            self._stop(sequence, "no acceptance", fruitless)
        elif watch.fruitless % PATIENCE_IN_CIRCLES == 0:
            part = repeated_part(sequence.committed[sequence.prompt_length :])
            if part:
                reason = f"{fruitless}, and the text repeats its last {part} tokens"
                self._stop(sequence, "circles", reason)
                watch.suspected = True

    def _stop(self, sequence: Sequence, cause: str, reason: str) -> None:
        """End a sequence's speculation, unless there is none any more."""
        if sequence.max_draft == 0:
            return
        sequence.max_draft = 0
        sequence.counts.speculation_off = reason
        self._totals.speculation_off[cause] += 1
        log.warning("a request goes on without speculation: %s", reason)
        self._note(sequence, "speculation off", {"cause": cause, "reason": reason})

    def _compare(self, part: Played, watch: _Watch) -> None:
        watch.rebuilt = False
        expected, token = watch.expected, part.tokens[0]
        if expected is None:
            outcome = "unknown"
        elif expected.token == token:
            outcome = "same"
        elif expected.near_tie or part.start in part.sequence.counts.near_tie_positions:
            outcome = "near tie"
        else:
            outcome = "different"
        self._totals.rebuilds[outcome] += 1
        facts = {
            "outcome": outcome,
            "position": part.start,
            "before": None if expected is None else expected.token,
            "after": token,
        }
        level = logging.ERROR if outcome == "different" else logging.WARNING
        log.log(level, "a memory was built again from its tokens; the next choice: %s", facts)
        self._note(part.sequence, "memory rebuilt", facts)


def repeated_part(tokens: Series[int]) -> int:
    """The length of the shortest part of which the text's end consists, over and over; 0 if none.

    Args:
        tokens: the text.
    """
    for part in range(1, LONGEST_PART + 1):
        length = max(REPEATS * part, SHORTEST_CIRCLES)
        if len(tokens) >= length and tokens[-length:-part] == tokens[-length + part :]:
            return part
    return 0


def next_choice(target: Target, sequence: Sequence) -> Choice | None:
    """What the model would choose next, without committing it; None if it can't be told.

    It costs a pass, and the memory is unknown afterwards.
    """
    pending, widths = sequence.pending, target.widths
    if sequence.forced:
        return None
    width = (widths.up(len(pending)) if widths else None) or len(pending)
    padding = width - len(pending)
    tokens = [*pending, *[FILLER] * padding]
    outputs = width if widths else 1
    feed = Feed(sequence.memory.id, tokens, sequence.state_len, outputs, padding)
    try:
        [rows] = target.decode([feed])
        return sequence.choose(rows[len(pending) - 1 if widths else 0], target.logit_noise)
    except SurefootError:
        return None
