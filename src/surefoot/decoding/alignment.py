"""Alignment: how long drafts may be so that a pass takes few graph runs.

With recurrent memory libllama cuts a pass into pieces in which every sequence has the same number
of tokens, so each distinct width costs a graph run (`runtime/pieces.py`). Shortening the longer
drafts to a width that others have anyway saves runs. It is worth it if the pass then brings more
tokens for what it costs. A sequence that owes more tokens than others have needs a run of its own
whatever it drafts, and goes on to need one as long as its drafts are rejected; so its draft may be
left out altogether, to let it catch up. Widths are never filled up: a filler has to be undone, and
undoing makes recurrent memory decode the accepted tokens again.

Nothing here touches a token: how long a draft is decides how fast a text comes, not which.
"""

from collections.abc import Callable, Iterator, Mapping
from collections.abc import Sequence as Series
from typing import NamedTuple

from surefoot.decoding.counts import Counts

GraphRuns = Callable[[Mapping[int, int]], int]
"""How many graph runs a pass takes, given the tokens of each sequence in it by its id."""

RUN_PRICE = 3.0
"""What a graph run costs beside its tokens, counted in tokens. On an H200 through Vulkan a pass of
one token took 5.1 ms and each further one 1.2 to 2.1 ms (a random-weight file of Qwen3.5-35B-A3B's
shape, widths up to 6); on a CPU, the trained Q8_0 file, 1.9 ms and 0.5 ms."""

TRIED_EVERY = 32
"""In each so-manieth round of a sequence, the first included, its draft is not cut short, lest it
go unseen that it would be accepted."""

_BELIEVED_ROUNDS = 4.0
_BELIEVED_CHANCE = 0.9
"""What is believed of a draft token's chance, given those before it, and how many rounds of
counting outweigh that. It is much, since only what is drafted is counted."""


class Part(NamedTuple):
    """One sequence's part of a pass.

    Attributes:
        sequence: its id in the model's memory.
        pending: tokens that it owes, at least 1.
        chances: for each of its draft tokens how likely it is to be committed, none likelier than
            the one before it.
        fixed: whether its draft must stay as it is.
    """

    sequence: int
    pending: int
    chances: Series[float]
    fixed: bool = False

    @property
    def width(self) -> int:
        """Its tokens in the pass."""
        return self.pending + len(self.chances)


def aligned(parts: Series[Part], runs: GraphRuns) -> list[int]:
    """How many tokens of each draft to keep.

    Widths are given up one after the other, each time the one that pays best, until none does. One
    is given up only if that saves a graph run, now or, where a sequence catches up, later.

    Args:
        parts: of different sequences, at least one.
        runs: how many graph runs a pass takes.
    """
    widths = [part.width for part in parts]
    best = _Pass.of(parts, widths, runs)
    while best.runs > 1:
        tried = [
            _Pass.of(parts, narrower, runs)
            for width in sorted(set(best.widths))
            if (narrower := _without(parts, best.widths, width)) is not None
        ]
        owing = [_Pass.of(parts, widths, runs) for widths in _catching_up(parts, best.widths)]
        cheaper = [other for other in tried if other.runs < best.runs]
        cheaper += [other for other in owing if other.runs <= best.runs]
        other = max(cheaper, key=lambda one: one.worth, default=best)
        if other.worth <= best.worth:
            break
        best = other
    return [width - part.pending for width, part in zip(best.widths, parts, strict=True)]


def chances(counts: Counts, drafted: int) -> list[float]:
    """How likely a sequence's next draft tokens are to be committed, going by its rounds so far.

    Args:
        counts: what the rounds did.
        drafted: how many tokens the draft has.
    """
    found: list[float] = []
    believed = least = 1.0
    seen, stood = counts.drafted_by_position, counts.accepted_by_position
    for position in range(drafted):
        believed *= _BELIEVED_CHANCE
        rounds = seen[position] if position < len(seen) else 0
        accepted = stood[position] if position < len(stood) else 0
        chance = (accepted + _BELIEVED_ROUNDS * believed) / (rounds + _BELIEVED_ROUNDS)
        least = min(least, chance)
        found.append(least)
    return found


class _Pass(NamedTuple):
    """Widths, and what they are worth.

    Attributes:
        widths: tokens of each part.
        runs: graph runs that they take.
        worth: tokens expected to be committed for what a token in a pass costs.
    """

    widths: list[int]
    runs: int
    worth: float

    @classmethod
    def of(cls, parts: Series[Part], widths: list[int], runs: GraphRuns) -> "_Pass":
        needed = runs({part.sequence: w for part, w in zip(parts, widths, strict=True)})
        expected = sum(
            1 + sum(part.chances[: width - part.pending])
            for part, width in zip(parts, widths, strict=True)
        )
        return cls(widths, needed, expected / (RUN_PRICE * needed + sum(widths)))


def _without(parts: Series[Part], widths: Series[int], given_up: int) -> list[int] | None:
    """The widths if those who have one take the next one below; None if somebody can't."""
    lower = max((width for width in widths if width < given_up), default=0)
    for part, width in zip(parts, widths, strict=True):
        if width == given_up and (part.fixed or lower < part.pending):
            return None
    return [lower if width == given_up else width for width in widths]


def _catching_up(parts: Series[Part], widths: list[int]) -> Iterator[list[int]]:
    """The widths if one that owes several tokens, and shares its width with nobody, drafts none."""
    for index, (part, width) in enumerate(zip(parts, widths, strict=True)):
        if 1 < part.pending < width and not part.fixed and widths.count(width) == 1:
            yield [*widths[:index], part.pending, *widths[index + 1 :]]
