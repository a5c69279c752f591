"""What the rounds of a sequence did, in numbers."""

from dataclasses import dataclass, field
from itertools import zip_longest


@dataclass(slots=True)
class DrafterCounts:
    """One drafter's part in a request.

    Attributes:
        drafts: rounds in which a draft of this drafter was verified.
        drafted: its draft tokens that were verified.
        accepted: those of them that were committed.
        failure: why it was switched off for this request, in words; empty if it was not.
    """

    drafts: int = 0
    drafted: int = 0
    accepted: int = 0
    failure: str = ""


@dataclass(slots=True)
class Counts:
    """Totals over the rounds of one request.

    Attributes:
        rounds: rounds played, each of them one forward pass.
        drafted: draft tokens verified.
        accepted: draft tokens committed; what lies behind the end of a request is not.
        drafted_by_position: rounds whose draft reached position i, counted from 0.
        accepted_by_position: rounds whose draft was accepted at position i.
        by_drafter: the parts of drafters that had a draft, or failed; they add up to the totals.
        rollbacks: rounds after which the memory had to undo tokens.
        drafter_errors: times that a drafter failed; it costs drafts, not text.
        near_tie_positions: where tokens were committed that logit noise might have made others.
        speculation_off: why drafting was stopped on the way, in words; empty if it was not.
    """

    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    drafted_by_position: list[int] = field(default_factory=list)
    accepted_by_position: list[int] = field(default_factory=list)
    by_drafter: dict[str, DrafterCounts] = field(default_factory=dict)
    rollbacks: int = 0
    drafter_errors: int = 0
    near_tie_positions: list[int] = field(default_factory=list)
    speculation_off: str = ""

    def add_round(
        self, drafted: int, accepted: int, *, rolled_back: bool, drafter: str = ""
    ) -> None:
        """Count one round.

        Args:
            drafted: draft tokens verified.
            accepted: how many of them were committed.
            rolled_back: whether the memory has to undo tokens.
            drafter: who made the draft.
        """
        self.rounds += 1
        self.drafted += drafted
        self.accepted += accepted
        self.rollbacks += rolled_back
        _count_up(self.drafted_by_position, drafted)
        _count_up(self.accepted_by_position, accepted, length=len(self.drafted_by_position))
        if drafted:
            counts = self._of(drafter)
            counts.drafts += 1
            counts.drafted += drafted
            counts.accepted += accepted

    def add_failure(self, drafter: str, reason: str) -> None:
        """Count a drafter's failure, and keep the first reason."""
        self.drafter_errors += 1
        counts = self._of(drafter)
        counts.failure = counts.failure or reason

    def plus(self, other: "Counts") -> "Counts":
        """Both together."""
        parts: dict[str, DrafterCounts] = {}
        for name, part in [*self.by_drafter.items(), *other.by_drafter.items()]:
            total = parts.setdefault(name, DrafterCounts())
            total.drafts += part.drafts
            total.drafted += part.drafted
            total.accepted += part.accepted
            total.failure = total.failure or part.failure
        return Counts(
            rounds=self.rounds + other.rounds,
            drafted=self.drafted + other.drafted,
            accepted=self.accepted + other.accepted,
            drafted_by_position=_sums(self.drafted_by_position, other.drafted_by_position),
            accepted_by_position=_sums(self.accepted_by_position, other.accepted_by_position),
            by_drafter=parts,
            rollbacks=self.rollbacks + other.rollbacks,
            drafter_errors=self.drafter_errors + other.drafter_errors,
            near_tie_positions=[*self.near_tie_positions, *other.near_tie_positions],
            speculation_off="; ".join(filter(None, (self.speculation_off, other.speculation_off))),
        )

    def _of(self, drafter: str) -> DrafterCounts:
        return self.by_drafter.setdefault(drafter, DrafterCounts())

    @property
    def near_ties(self) -> int:
        """Committed tokens that logit noise might have made others."""
        return len(self.near_tie_positions)

    @property
    def acceptance(self) -> float | None:
        """Share of draft tokens that were accepted; None if there were none."""
        return self.accepted / self.drafted if self.drafted else None

    @property
    def mean_length(self) -> float | None:
        """Mean tokens committed in a round by a full count: 1 + accepted / rounds."""
        return 1 + self.accepted / self.rounds if self.rounds else None


def _sums(first: list[int], second: list[int]) -> list[int]:
    return [a + b for a, b in zip_longest(first, second, fillvalue=0)]


def _count_up(totals: list[int], reached: int, length: int = 0) -> None:
    totals.extend([0] * (max(reached, length) - len(totals)))
    for position in range(reached):
        totals[position] += 1
