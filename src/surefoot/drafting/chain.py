"""Several drafters, tried in order: the first that has a draft for a sequence wins."""

from collections.abc import Mapping
from collections.abc import Sequence as Series

from surefoot.decoding import NO_DRAFT, Draft, Drafter, Sequence
from surefoot.drafting.guarded import Guarded


class Chain:
    """Asks each drafter for the sequences that those before it had nothing for.

    One that fails for a sequence has nothing for it any more, and the next takes over. Every
    drafter reads what is new from the sequence itself, whoever drafted it; of a draft's fate only
    the drafter that made it hears.

    Args:
        drafters: with different names, the first to be asked first.
    """

    def __init__(self, drafters: Series[Drafter]) -> None:
        self._drafters = {drafter.name: Guarded(drafter) for drafter in drafters}

    @property
    def name(self) -> str:
        """The drafters' names, joined by commas as `--spec-type` takes them."""
        return ",".join(self._drafters)

    @property
    def depths(self) -> Mapping[str, int | None]:
        """How deep each of them drafts; see `depths_of`."""
        found: dict[str, int | None] = {}
        for drafter in self._drafters.values():
            found.update(drafter.depths)
        return found

    def propose(self, wanted: Series[tuple[Sequence, int]]) -> list[Draft]:
        """Draft for each sequence; each draft bears the name of the drafter that made it."""
        drafts = [NO_DRAFT] * len(wanted)
        for drafter in self._drafters.values():
            without = [
                index
                for index, draft in enumerate(drafts)
                if not draft.tokens and _may_draft(drafter, wanted[index][0])
            ]
            if not without:
                continue
            proposed = drafter.propose([wanted[index] for index in without])
            for index, draft in zip(without, proposed, strict=True):
                drafts[index] = draft
        return drafts

    def learn(self, sequence: Sequence, draft: Draft, accepted: int) -> None:
        """Tell the drafter that made the draft."""
        if drafter := self._drafters.get(draft.drafter):
            drafter.learn(sequence, draft, accepted)

    def forget(self, sequence: Sequence) -> None:
        """Let every drafter forget the sequence."""
        for drafter in self._drafters.values():
            drafter.forget(sequence)

    def close(self) -> None:
        """Close every drafter."""
        for drafter in self._drafters.values():
            drafter.close()


def _may_draft(drafter: Drafter, sequence: Sequence) -> bool:
    """Whether the request wants drafts of that drafter."""
    types = sequence.wishes.types
    return types is None or drafter.name in types
