"""A drafter that may fail: its errors cost a request its drafts, never its text."""

import logging
from collections.abc import Mapping
from collections.abc import Sequence as Series

from surefoot.decoding import NO_DRAFT, Draft, Drafter, Sequence
from surefoot.drafting.closing import close_drafter
from surefoot.drafting.depth import depths_of

log = logging.getLogger(__name__)


class Guarded:
    """Turns a drafter's exceptions into missing drafts.

    A sequence for which the drafter has failed is not drafted for by it any more. The sequence's
    counts say how often that happened, and in words why.

    Args:
        drafter: may raise whatever it likes.
    """

    def __init__(self, drafter: Drafter) -> None:
        self._drafter = drafter
        self._given_up: set[Sequence] = set()
        self._logged = False

    @property
    def name(self) -> str:
        """The drafter's name."""
        return self._drafter.name

    @property
    def depths(self) -> Mapping[str, int | None]:
        """How deep it drafts; see `depths_of`."""
        return depths_of(self._drafter)

    def propose(self, wanted: Series[tuple[Sequence, int]]) -> list[Draft]:
        """Draft for each sequence that the drafter has not failed for."""
        if not self._given_up:
            return self._drafts(wanted)
        asked = [pair for pair in wanted if pair[0] not in self._given_up]
        sequences = [sequence for sequence, _ in asked]
        drafts = dict(zip(sequences, self._drafts(asked), strict=True))
        return [drafts.get(sequence, NO_DRAFT) for sequence, _ in wanted]

    def learn(self, sequence: Sequence, draft: Draft, accepted: int) -> None:
        """Tell the drafter."""
        try:
            self._drafter.learn(sequence, draft, accepted)
        except Exception as error:
            self._give_up(sequence, error)

    def forget(self, sequence: Sequence) -> None:
        """Let the drafter forget the sequence."""
        try:
            self._drafter.forget(sequence)
        except Exception as error:
            self._give_up(sequence, error)
        self._given_up.discard(sequence)

    def close(self) -> None:
        """Close the drafter."""
        close_drafter(self._drafter)

    def _drafts(self, wanted: Series[tuple[Sequence, int]]) -> list[Draft]:
        """Drafts for all in one go; if that fails, for each by itself, to see for whom it does."""
        if not wanted:
            return []
        try:
            drafts = self._drafter.propose(wanted)
            if len(drafts) != len(wanted):
                raise ValueError(f"{len(drafts)} drafts for {len(wanted)} sequences")
        except Exception as error:
            if len(wanted) > 1:
                return [draft for pair in wanted for draft in self._drafts([pair])]
            self._give_up(wanted[0][0], error)
            return [NO_DRAFT]
        return drafts

    def _give_up(self, sequence: Sequence, error: Exception) -> None:
        """Note a failure; the first one is logged with all that is known of it."""
        log.warning(
            "drafter %s failed; a request goes on without its drafts: %r",
            self.name,
            error,
            exc_info=None if self._logged else error,
        )
        self._logged = True
        sequence.counts.add_failure(self.name, str(error) or type(error).__name__)
        self._given_up.add(sequence)
