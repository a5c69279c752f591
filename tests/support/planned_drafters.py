"""Drafters that follow a plan or chance."""

import random
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Series

import numpy as np
from numpy.typing import NDArray

from surefoot.decoding import Draft, Sequence
from surefoot.decoding.noise import gumbel


class PlanlessDrafter:
    """A drafter that keeps nothing, and drafts nothing unless its children say so."""

    name = "test"

    def propose(self, wanted: Series[tuple[Sequence, int]]) -> list[Draft]:
        return [Draft(self.draft(sequence, most), self.name) for sequence, most in wanted]

    def draft(self, sequence: Sequence, most: int) -> Series[int]:  # noqa: ARG002
        return ()

    def learn(self, sequence: Sequence, draft: Draft, accepted: int) -> None:
        pass

    def forget(self, sequence: Sequence) -> None:
        pass


class FunctionDrafter(PlanlessDrafter):
    """Drafts what a function of (sequence, most) returns."""

    def __init__(self, function: Callable[[Sequence, int], Series[int]]) -> None:
        self._function = function

    def draft(self, sequence: Sequence, most: int) -> Series[int]:
        return self._function(sequence, most)


class RandomDrafter(PlanlessDrafter):
    """Drafts random tokens, of random length or as many as wanted."""

    def __init__(self, seed: int, vocabulary_size: int, *, full: bool = False) -> None:
        self._draws = random.Random(seed)
        self._size = vocabulary_size
        self._full = full

    def draft(self, sequence: Sequence, most: int) -> Series[int]:  # noqa: ARG002
        length = most if self._full else self._draws.randint(0, most)
        return [self._draws.randrange(self._size) for _ in range(length)]


class FailingDrafter(RandomDrafter):
    """Drafts random tokens so many times for all sequences together, and raises from then on."""

    name = "failing"

    def __init__(self, drafts: int, vocabulary_size: int) -> None:
        super().__init__(drafts, vocabulary_size, full=True)
        self._left = drafts

    def draft(self, sequence: Sequence, most: int) -> Series[int]:
        if not self._left:
            raise RuntimeError("no more drafts")
        self._left -= 1
        return super().draft(sequence, most)


class OracleDrafter(PlanlessDrafter):
    """Knows the text, and drafts it right or wrong, position by position.

    Args:
        texts: for each sequence's memory id its whole text, prompt included.
        right: whether to be right at a position of the sequence.
        vocabulary_size: wrong tokens are the right one plus 1, modulo this.
    """

    def __init__(
        self,
        texts: Mapping[int, Series[int]],
        vocabulary_size: int,
        right: Callable[[int], bool] = lambda _: True,
    ) -> None:
        self._texts = texts
        self._size = vocabulary_size
        self._right = right

    def draft(self, sequence: Sequence, most: int) -> Series[int]:
        start = len(sequence.committed)
        text = self._texts[sequence.memory.id][start : start + most]
        return [
            token if self._right(position) else (token + 1) % self._size
            for position, token in enumerate(text, start)
        ]


class CoupledDrafter(PlanlessDrafter):
    """Draws from its own distribution with the target's positional noise.

    Args:
        rows: shape (vocabulary, vocabulary): its logits after each token.
        seed: whose noise to use; None for the sequence's own.
    """

    def __init__(self, rows: NDArray[np.float32], seed: int | None = None) -> None:
        self._rows = rows
        self._seed = seed
        self._tokens = np.arange(rows.shape[1])

    def draft(self, sequence: Sequence, most: int) -> Series[int]:
        seed = sequence.sampling.seed if self._seed is None else self._seed
        last, tokens = sequence.committed[-1], []
        for position in range(len(sequence.committed), len(sequence.committed) + most):
            scores = self._rows[last] + gumbel(seed, position, self._tokens)
            last = int(scores.argmax())
            tokens.append(last)
        return tokens
