"""What the rounds of a sequence did, in numbers."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Counts:
    """Totals over the rounds of one request.

    Attributes:
        rounds: rounds played, each of them one forward pass.
        drafted: draft tokens verified.
        accepted: draft tokens committed; what lies behind the end of a request is not.
        drafted_by_position: rounds whose draft reached position i, counted from 0.
        accepted_by_position: rounds whose draft was accepted at position i.
        rollbacks: rounds after which the memory had to undo tokens.
        drafter_errors: times that a drafter failed; it costs drafts, not text.
        near_tie_positions: where tokens were committed that logit noise might have made others.
    """

    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    drafted_by_position: list[int] = field(default_factory=list)
    accepted_by_position: list[int] = field(default_factory=list)
    rollbacks: int = 0
    drafter_errors: int = 0
    near_tie_positions: list[int] = field(default_factory=list)

    def add_round(self, drafted: int, accepted: int, *, rolled_back: bool) -> None:
        """Count one round."""
        self.rounds += 1
        self.drafted += drafted
        self.accepted += accepted
        self.rollbacks += rolled_back
        _count_up(self.drafted_by_position, drafted)
        _count_up(self.accepted_by_position, accepted, length=len(self.drafted_by_position))

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


def _count_up(totals: list[int], reached: int, length: int = 0) -> None:
    totals.extend([0] * (max(reached, length) - len(totals)))
    for position in range(reached):
        totals[position] += 1
