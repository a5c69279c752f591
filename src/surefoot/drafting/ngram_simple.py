"""`ngram-simple`: what followed the last n tokens when they last occurred will follow again.

The meaning is that of llama-server's drafter of this name (build 11434, `common/ngram-map.cpp`):
the last earlier occurrence of the current n-gram, and up to m tokens behind it. It scans the
history for each draft; here an index grows with the text. Further differences, each of which
finds drafts that llama-server misses or keeps a promise of its options:

- A draft may be shorter than n, the text shorter than n + m + 2 tokens, and the occurrence may be
  the very first n-gram or end one token before the current one. llama-server gives up on these.
- Where the tokens behind the occurrence reach the end of the text, the text is periodic there,
  and the draft goes on with the period.
- `min_hits` counts. llama-server takes the option for this drafter and never reads it.
"""

from collections.abc import Sequence as Series

from surefoot.decoding import NO_DRAFT, Draft, Sequence
from surefoot.drafting.ngram_index import NgramIndex
from surefoot.drafting.ngrams import continuation


class NgramSimple:
    """Drafts from the sequence's own text.

    Args:
        size_n: tokens in the n-gram that is looked up.
        size_m: most tokens in a draft.
        min_hits: how often the n-gram must have occurred before.
    """

    name = "ngram-simple"

    def __init__(self, size_n: int = 12, size_m: int = 48, min_hits: int = 1) -> None:
        self._size_n = size_n
        self.longest_draft = size_m
        self._min_hits = min_hits
        self._indexes: dict[Sequence, NgramIndex] = {}

    def propose(self, wanted: Series[tuple[Sequence, int]]) -> list[Draft]:
        """What followed the last occurrence in each sequence."""
        return [self._draft(sequence, most) for sequence, most in wanted]

    def learn(self, sequence: Sequence, draft: Draft, accepted: int) -> None:
        """Nothing: the text itself is all there is to learn from."""

    def forget(self, sequence: Sequence) -> None:
        """Drop the sequence's index."""
        self._indexes.pop(sequence, None)

    def _draft(self, sequence: Sequence, most: int) -> Draft:
        index = self._indexes.get(sequence)
        if index is None:
            index = NgramIndex(self._size_n, counting=self._min_hits > 1)
            self._indexes[sequence] = index
        index.read_on(sequence.committed)
        start = index.find(sequence.committed, self._min_hits)
        if start is None:
            return NO_DRAFT
        length = min(most, self.longest_draft)
        return Draft(continuation(sequence.committed, start, length), self.name)
