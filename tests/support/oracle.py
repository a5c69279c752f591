"""The oracle: the same model decoded one token at a time from an empty state. No speculation, no
cache, and nothing of surefoot but the rule of choice.
"""

from collections.abc import Hashable
from collections.abc import Sequence as Series
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.decoding import GREEDY, Choice, Feed, Sampling, choose
from tests.support.kinds import simulated


class Oracle:
    """Knows what a simulated model says and what its memory should hold.

    Args:
        kind: the kind of memory, as in `simulated`.
        settings: of the runtime whose oracle this is.
    """

    def __init__(self, kind: str, **settings: Any) -> None:
        self._runtime = simulated(kind, **settings)

    def choices(self, prompt: Series[int], count: int, sampling: Sampling = GREEDY) -> list[Choice]:
        """The next `count` choices after a prompt, past any end of generation."""
        tokens = list(prompt)
        row = self.logits(tokens)
        choices = []
        for _ in range(count):
            choice = choose(row, sampling, len(tokens), self._runtime.logit_noise)
            choices.append(choice)
            row = self._decode(choice.token, len(tokens))
            tokens.append(choice.token)
        return choices

    def text(self, prompt: Series[int], count: int, sampling: Sampling = GREEDY) -> list[int]:
        """The tokens of `choices`."""
        return [choice.token for choice in self.choices(prompt, count, sampling)]

    def text_to_end(self, prompt: Series[int], count: int, sampling: Sampling) -> list[int]:
        """The same up to and with the model's end of generation."""
        tokens = self.text(prompt, count, sampling)
        ends = self._runtime.tokenizer.end_of_generation
        end = next((i for i, token in enumerate(tokens) if token in ends), len(tokens))
        return tokens[: end + 1]

    def logits(self, tokens: Series[int]) -> NDArray[np.float32]:
        """The logits after some tokens; a copy."""
        self._runtime.drop(0)
        rows = [self._decode(token, position) for position, token in enumerate(tokens)]
        return rows[-1]

    def state(self, tokens: Series[int]) -> Hashable:
        """What the memory should hold after absorbing some tokens."""
        self._runtime.drop(0)
        for position, token in enumerate(tokens):
            self._runtime.decode([Feed(0, [token], position, outputs=0)])
        return self._runtime.state(0)

    def _decode(self, token: int, position: int) -> NDArray[np.float32]:
        rows = self._runtime.decode([Feed(0, [token], position, outputs=1)])[0]
        return rows[-1, :].copy()
