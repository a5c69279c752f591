"""`ngram-mod`: token by token, whatever followed the last n tokens when they were last seen.

The meaning is that of llama-server's drafter of this name (build 11434, `common/ngram-mod.cpp`
and `common/speculative.cpp`): a table from the hash of n tokens to the next token, later entries
over earlier ones. A draft grows while the table knows the next token, up to n_max; if it doesn't
get to n_min, it is not used (n_max counts for n_min where that is larger). As there, n_min is
about the run that can be predicted, and fewer tokens are handed out if fewer are wanted; and the
table does not know the text's last token yet. So when n tokens recur for the first time, the run
ends with the text, and n_min asks for so many tokens to copy; later runs may go round and round.

llama-server has one table for all its slots, so a request is drafted for from the text of others:
drafts, and with them the timing, tell of other people's requests. Here each sequence has a table
of its own, a dict that goes when the sequence does. Sharing is a setting, and adds a second table
of llama-server's size that is asked where the sequence's own has nothing. Two of its rules concern
only what others left behind, so they apply to the second table: it is emptied when five drafts of
a sequence in a row were accepted by less than a quarter, and when a new sequence finds it more
than a quarter full. (llama-server then reads the sequence's own text again at once.)

It also reads new text in chunks, up to 32 tokens behind; here the last token alone is missing.
"""

from collections.abc import Sequence as Series

from surefoot.decoding import NO_DRAFT, Draft, Sequence
from surefoot.drafting.ngram_table import NgramTable
from surefoot.drafting.ngrams import ngram_hash, ngram_hashes

LOW_ACCEPTANCE = 0.25
LOW_DRAFTS = 5
FULL = 0.25


class NgramMod:
    """Drafts by chaining predictions of single tokens.

    Args:
        n_match: tokens in the n-gram that is looked up.
        n_min: a run of fewer predictable tokens is not used.
        n_max: most tokens in a draft.
        shared: a table that all sequences feed and may draft from; None to keep them apart.
    """

    name = "ngram-mod"

    def __init__(
        self,
        n_match: int = 24,
        n_min: int = 48,
        n_max: int = 64,
        shared: NgramTable | None = None,
    ) -> None:
        self._n_match = n_match
        self._n_min = min(n_min, n_max)
        self.longest_draft = n_max
        self._shared = shared
        self._pasts: dict[Sequence, _Past] = {}

    def propose(self, wanted: Series[tuple[Sequence, int]]) -> list[Draft]:
        """The run that can be predicted for each sequence, if it is long enough."""
        return [self._draft(sequence, most) for sequence, most in wanted]

    def learn(self, sequence: Sequence, draft: Draft, accepted: int) -> None:
        """Empty the shared table if it keeps misleading the sequence."""
        past = self._pasts.get(sequence)
        if self._shared is None or past is None:
            return
        low = accepted < LOW_ACCEPTANCE * len(draft.tokens)
        past.low_drafts = past.low_drafts + 1 if low else 0
        if past.low_drafts == LOW_DRAFTS:
            self._shared.reset()
            past.low_drafts = 0

    def forget(self, sequence: Sequence) -> None:
        """Drop the sequence's own table."""
        self._pasts.pop(sequence, None)

    def _draft(self, sequence: Sequence, most: int) -> Draft:
        past = self._past(sequence)
        past.read_on(sequence.committed)
        length = max(self._n_min, min(most, self.longest_draft))
        run = self._run(sequence.committed, past, length)
        if len(run) < max(self._n_min, 1):
            return NO_DRAFT
        return Draft(run[:most], self.name)

    def _past(self, sequence: Sequence) -> "_Past":
        past = self._pasts.get(sequence)
        if past is None:
            if self._shared is not None and self._shared.occupancy > FULL:
                self._shared.reset()
            past = self._pasts[sequence] = _Past(self._n_match, self._shared)
        return past

    def _run(self, committed: list[int], past: "_Past", length: int) -> list[int]:
        """The tokens that can be predicted one after the other, at most `length`."""
        size = self._n_match
        if len(committed) < size:
            return []
        text = committed[-size:]
        for start in range(length):
            token = past.follower(ngram_hash(text[start:]))
            if token is None:
                break
            text.append(token)
        return text[size:]


class _Past:
    """Which token last followed each n-gram of one sequence.

    Reading on costs the same for every token, however long the text is.
    """

    __slots__ = ("_followers", "_read", "_shared", "_size", "low_drafts")

    def __init__(self, size: int, shared: NgramTable | None) -> None:
        self._size = size
        self._read = 0  # n-grams read; also where the next one begins
        self._followers: dict[int, int] = {}
        self._shared = shared
        self.low_drafts = 0

    def read_on(self, committed: list[int]) -> None:
        """Take in what was committed since the last time, all but the last token."""
        new = committed[self._read : -1]
        followers = new[self._size :]
        self._followers.update(zip(ngram_hashes(new, self._size), followers, strict=False))
        if self._shared is not None:
            self._shared.update(zip(ngram_hashes(new, self._size), followers, strict=False))
        self._read = max(self._read, len(committed) - 1 - self._size)

    def follower(self, key: int) -> int | None:
        """The token that followed an n-gram: in this sequence, else in the shared table."""
        token = self._followers.get(key)
        if token is None and self._shared is not None:
            token = self._shared.get(key)
        return token
