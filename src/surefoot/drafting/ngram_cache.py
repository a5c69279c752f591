"""`ngram-cache`: the token that usually followed the last few tokens, by statistics.

The meaning is that of llama.cpp's lookup decoding (build 11434, `common/ngram-cache.cpp`,
`examples/lookup`): for each token of a draft the n-grams of 4, 3, 2 and 1 tokens before it are
asked, longest first, in the sequence's own counts (lax thresholds), then in the *dynamic* counts of
other requests (strict ones); the *static* counts, made beforehand from a large corpus, tip the
balance between followers, and are asked last themselves, with 2 tokens.

Where text goes is decided like this. A sequence's own counts go when it does. Dynamic counts exist
only if the user gives a dynamic lookup file or asks for `--spec-ngram-shared`: the file is by its
nature a collection of what was said to this server and by it, so to name one is to consent that
all requests, prompts included, are counted into it and drafted for from it, now and after a
restart; those that are not speculated for are left out. Without a file, sharing lasts as long as
the process. The static file is only ever read.

Other differences to llama-server:

- Every new token is counted behind the n-grams before it, as llama.cpp's `llama-lookup` does.
  llama-server counts only n-grams that lie within the tokens of one round.
- A sequence's counts are its own. llama-server keeps those of a slot for the slot's next request.
- The dynamic file is written when the drafter is closed. llama-server never writes it, and aborts
  where a lookup file is missing or damaged.
- Of followers seen equally often the one that was so first counts; llama.cpp doesn't say which.
"""

import logging
from collections.abc import Sequence as Series
from pathlib import Path

from surefoot.decoding import NO_DRAFT, Draft, Sequence
from surefoot.drafting.lookup_file import LookupFileError, save_counts
from surefoot.drafting.ngram_counts import NgramCounts, Seen, Threshold, extended, likely

N_MAX = 8
"""Most tokens in a draft; llama-server has no option for it either."""

LAX = (Threshold(2, 66), Threshold(2, 50), Threshold(1, 50), Threshold(1, 50))
STRICT = (Threshold(4, 75), Threshold(3, 66), Threshold(2, 66), Threshold(2, 66))
"""By the length of the n-gram, from 1 token on; llama.cpp's figures."""

STATIC_SIZE = 2
"""Tokens in the n-grams that are looked up in the static counts."""

MOST_SHARED = 1 << 20
"""Above so many n-grams the dynamic counts are halved between two requests, so that what was seen
once goes, which the strict thresholds don't heed anyway: some 100 MB, or a quarter of a million
tokens of text without repetitions."""

_LOG = logging.getLogger(__name__)


class NgramCache:
    """Drafts by statistics of the sequence, of other requests, and of a corpus.

    Args:
        static: counts made from a corpus; they are only read.
        dynamic: counts that all sequences feed and are drafted for from; None to keep them apart.
        save_to: where `close` saves the dynamic counts; None not to.
    """

    name = "ngram-cache"
    longest_draft = N_MAX

    def __init__(
        self,
        static: NgramCounts | None = None,
        dynamic: NgramCounts | None = None,
        save_to: Path | None = None,
    ) -> None:
        self._static = static or NgramCounts()
        self._dynamic = dynamic
        self._save_to = save_to
        self._unsaved = False
        self._pasts: dict[Sequence, _Past] = {}

    def propose(self, wanted: Series[tuple[Sequence, int]]) -> list[Draft]:
        """The tokens that are likely enough one after the other, for each sequence."""
        return [self._draft(sequence, most) for sequence, most in wanted]

    def learn(self, sequence: Sequence, draft: Draft, accepted: int) -> None:
        """Nothing: the text itself is all there is to learn from."""

    def forget(self, sequence: Sequence) -> None:
        """Drop the sequence's counts; the dynamic ones get the rest of it, and stay in bounds."""
        past = self._pasts.pop(sequence, None)
        if self._dynamic is not None and past is not None:
            self._unsaved |= past.read_on(sequence.committed, self._dynamic)
            self._dynamic.prune(MOST_SHARED)

    def close(self) -> None:
        """Save the dynamic counts. If that fails a warning says so, and they can be saved again."""
        if self._dynamic is None or self._save_to is None or not self._unsaved:
            return
        try:
            save_counts(self._dynamic, self._save_to)
        except LookupFileError as error:
            _LOG.warning("what was learnt is not saved: %s", error)
        else:
            self._unsaved = False

    def _draft(self, sequence: Sequence, most: int) -> Draft:
        past = self._pasts.get(sequence)
        if past is None:
            past = self._pasts[sequence] = _Past()
        self._unsaved |= past.read_on(sequence.committed, self._dynamic)
        keys = past.keys
        tokens: list[int] = []
        for _ in range(min(most, N_MAX)):
            token = self._next(past.counts, keys)
            if token is None:
                break
            tokens.append(token)
            keys = extended(keys, token)
        return Draft(tokens, self.name) if tokens else NO_DRAFT

    def _next(self, own: NgramCounts, keys: list[int]) -> int | None:
        """The token to expect behind the n-grams of these keys."""
        if len(keys) < STATIC_SIZE:
            return None
        evidence = self._static.get(keys[STATIC_SIZE - 1])
        token = _longest(own, keys, evidence, LAX)
        if token is None and self._dynamic is not None:
            token = _longest(self._dynamic, keys, evidence, STRICT)
        if token is None and evidence is not None:
            token = likely(evidence, None, LAX[STATIC_SIZE - 1])
        return token


def _longest(
    counts: NgramCounts, keys: list[int], evidence: Seen | None, thresholds: Series[Threshold]
) -> int | None:
    """What the longest n-gram expects that has something to say."""
    for size in range(len(keys), 0, -1):
        seen = counts.get(keys[size - 1])
        if seen is not None:
            token = likely(seen, evidence, thresholds[size - 1])
            if token is not None:
                return token
    return None


class _Past:
    """The counts of one sequence, and the keys of the n-grams that are its last tokens."""

    __slots__ = ("_read", "counts", "keys")

    def __init__(self) -> None:
        self._read = 0
        self.counts = NgramCounts()
        self.keys: list[int] = []

    def read_on(self, committed: list[int], dynamic: NgramCounts | None) -> bool:
        """Count what was committed since the last time; returns whether there was anything."""
        new = committed[self._read :]
        keys = self.keys
        for token in new:
            self.counts.add(keys, token)
            if dynamic is not None:
                dynamic.add(keys, token)
            keys = extended(keys, token)
        self.keys = keys
        self._read = len(committed)
        return bool(new)
