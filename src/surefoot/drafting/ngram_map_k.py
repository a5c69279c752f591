"""`ngram-map-k`: like `ngram-simple`, and it remembers how much of a draft was right.

The meaning is that of llama-server's drafter of this name (build 11434, `common/ngram-map.cpp`):
the first earlier occurrence of the current n-gram (the key), and up to m tokens behind it. After
each draft the key remembers how many of its tokens were accepted, and its next draft is no longer
than that; a key none of whose tokens was accepted is not used any more. Differences:

- A draft that was accepted in full, and was short only since few tokens were asked for, doesn't
  hold the next one back.
- A draft may reach the end of the text (it goes on with the period then), and the text may be
  shorter than 2 n + m tokens. llama-server gives up on these.
- `min_hits` counts. llama-server takes the option for this drafter and never reads it.
- No other n-gram of the same hash can stand in a key's place: hashes have 64 bits, not 18.
"""

from collections.abc import Sequence as Series

from surefoot.decoding import NO_DRAFT, Draft, Sequence
from surefoot.drafting.ngram_index import NgramIndex
from surefoot.drafting.ngram_limits import Limits
from surefoot.drafting.ngrams import continuation


class NgramMapK:
    """Drafts from the sequence's own text, each n-gram no further than it was right last time.

    Args:
        size_n: tokens in the n-gram that is looked up.
        size_m: most tokens in a draft.
        min_hits: how often the n-gram must have occurred before.
    """

    name = "ngram-map-k"

    def __init__(self, size_n: int = 12, size_m: int = 48, min_hits: int = 1) -> None:
        self._size_n = size_n
        self.longest_draft = size_m
        self._min_hits = min_hits
        self._pasts: dict[Sequence, _Past] = {}

    def propose(self, wanted: Series[tuple[Sequence, int]]) -> list[Draft]:
        """What followed the first occurrence in each sequence, as far as it was right before."""
        return [self._draft(sequence, most) for sequence, most in wanted]

    def learn(self, sequence: Sequence, draft: Draft, accepted: int) -> None:
        """Remember for the key of the last draft how many tokens were accepted."""
        past = self._pasts.get(sequence)
        if past is not None:
            past.limits.learn(len(draft.tokens), accepted)

    def forget(self, sequence: Sequence) -> None:
        """Drop the sequence's index and what was remembered of its keys."""
        self._pasts.pop(sequence, None)

    def _draft(self, sequence: Sequence, most: int) -> Draft:
        past = self._pasts.get(sequence)
        if past is None:
            index = NgramIndex(self._size_n, first=True, counting=self._min_hits > 1)
            past = self._pasts[sequence] = _Past(index)
        past.index.read_on(sequence.committed)
        start = past.index.find(sequence.committed, self._min_hits)
        if start is None:
            return NO_DRAFT
        length = past.limits.length(start, min(most, self.longest_draft))
        if length == 0:
            return NO_DRAFT
        return Draft(continuation(sequence.committed, start, length), self.name)


class _Past:
    """What is known of one sequence.

    A key has one first occurrence, so the position of the token behind it stands for the key.
    """

    __slots__ = ("index", "limits")

    def __init__(self, index: NgramIndex) -> None:
        self.index = index
        self.limits = Limits()
