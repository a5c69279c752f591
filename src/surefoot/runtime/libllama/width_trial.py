"""Putting a width class on trial: rounds as strict decoding plays them, over a known text.

The right logits are known, too. Passes of all the class's widths are mixed, with outputs and
without, and some end in wrong tokens or fillers that are undone.
"""

import hashlib
from collections.abc import Sequence as Series

import numpy as np
from numpy.typing import NDArray

from surefoot.decoding import Feed, Memory, Widths, memory_for
from surefoot.decoding.round import FILLER
from surefoot.runtime.libllama.runtime import LibllamaRuntime
from surefoot.runtime.libllama.width_text import Text

_TEXTS = 4
_EACH, _SOME = 32, 8
_NARROW = 8
"""Most rounds have one of the narrowest widths, so most of a trial's passes do."""

_LIVE, _SPARE = 0, 1


def mark(row: NDArray[np.float32]) -> bytes:
    """Equal for rows that are equal bit for bit, and for no others."""
    return hashlib.blake2b(row.tobytes(), digest_size=16).digest()


class Trial:
    """Tries classes out.

    Args:
        runtime: a model whose memory may be used.
        text: what it decodes.
    """

    def __init__(self, runtime: LibllamaRuntime, text: Text) -> None:
        self._runtime = runtime
        self._text = text

    def stands(self, widths: Widths, marks: Series[bytes]) -> bool:
        """Whether every row is right, however the text is cut into passes of these widths.

        Args:
            widths: each of them up to 32 is in some pass, and some of the wider ones are.
            marks: those of the right rows from the end of the prefix on; they bound the text.
        """
        rng = np.random.default_rng(3)
        rest = [width for width in widths.allowed if width > _EACH]
        some = rest if len(rest) <= _SOME else rng.choice(rest[:-1], _SOME - 1).tolist() + rest[-1:]
        chosen = [width for width in widths.allowed if width <= _EACH] + some
        waiting = [int(w) for w in rng.permutation(chosen) if w <= len(marks)]
        texts = 0
        while waiting or texts < _TEXTS:
            if not self._plays(widths, marks, waiting, rng):
                return False
            texts += 1
        return True

    def _plays(
        self, widths: Widths, marks: Series[bytes], waiting: list[int], rng: np.random.Generator
    ) -> bool:
        """Play rounds to the end of the text; False if a row is wrong.

        Args:
            waiting: widths that have not been in a pass yet. Those that were are taken out.
        """
        memory = memory_for(self._runtime, _LIVE, _SPARE)
        memory.clear()
        prefix = self._text.prefix
        self._text.absorb_prefix(self._runtime, _LIVE)
        memory.absorbed(prefix)
        known = 1
        while True:
            at = memory.length - prefix
            width = waiting[-1] if waiting else _drawn(widths, rng)
            if at + width > len(marks):
                memory.clear()
                return True
            right = self._right(width, known - at, memory, rng)
            if not self._pass(memory, marks, right, width - right, rng):
                memory.clear()
                return False
            known = max(known, at + right + 1)
            if waiting:
                waiting.pop()

    def _right(self, width: int, pending: int, memory: Memory, rng: np.random.Generator) -> int:
        """How many tokens of a pass are the text's own; the others are undone."""
        right = min(width, pending + int(rng.integers(width)))
        undoable = width - right <= memory.longest_draft
        return right if undoable and rng.random() < 0.5 else width

    def _pass(
        self,
        memory: Memory,
        marks: Series[bytes],
        right: int,
        wrong: int,
        rng: np.random.Generator,
    ) -> bool:
        start = memory.length
        at = start - self._text.prefix
        tokens = list(self._text.tokens[start : start + right])
        if wrong:
            memory.brace()
            drafted = int(rng.integers(wrong + 1))
            tokens += rng.integers(self._runtime.vocabulary_size, size=drafted).tolist()
            tokens += [FILLER] * (wrong - drafted)
        silent = not wrong and rng.random() < 0.25
        outputs = 0 if silent else len(tokens)
        rows = self._runtime.decode([Feed(memory.id, tokens, start, outputs, wrong)])[0]
        memory.absorbed(len(tokens))
        agreed = silent or [mark(row) for row in rows[:right]] == list(marks[at : at + right])
        memory.settle(start + right)
        return agreed


def _drawn(widths: Widths, rng: np.random.Generator) -> int:
    narrow = rng.random() < 0.75
    return int(rng.choice(widths.allowed[:_NARROW] if narrow else widths.allowed))
