"""The oracle, and the near-tie rule as tests apply it.

The oracle decodes one token at a time from an empty memory. A text is right if at each position the
oracle, going on from that text's own prefix, makes the same choice, or calls its choice a near tie.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from surefoot.decoding import Feed, Sampling, Target, choose


@dataclass
class Agreement:
    """How a text compares with the oracle's choices along it.

    Attributes:
        positions: tokens compared.
        near_tie_differences: positions at which they differ and the oracle's choice is a near tie.
        wrong: positions at which they differ and it is not.
    """

    positions: int
    near_tie_differences: list[int]
    wrong: list[int]

    def __str__(self) -> str:
        return (
            f"{self.positions} tokens compared, {len(self.near_tie_differences)} differ at near "
            f"ties {self.near_tie_differences}, {len(self.wrong)} are wrong {self.wrong}"
        )


def one_at_a_time(
    target: Target, tokens: list[int], sequence: int = 0, *, keep: bool = False
) -> NDArray[np.float32]:
    """The oracle's logits after each token, shape (len(tokens), vocabulary).

    The sequence's memory is empty afterwards, unless it is to be kept.
    """
    target.drop(sequence)
    rows = [
        target.decode([Feed(sequence, [token], position, outputs=1)])[0][0].copy()
        for position, token in enumerate(tokens)
    ]
    if not keep:
        target.drop(sequence)
    return np.array(rows)


def compare(
    target: Target, prompt: list[int], text: list[int], sampling: Sampling, sequence: int = 0
) -> Agreement:
    """Compare a generated text with the oracle's choices along it."""
    rows = one_at_a_time(target, prompt + text[:-1], sequence)[len(prompt) - 1 :]
    agreement = Agreement(len(text), [], [])
    for index, (token, row) in enumerate(zip(text, rows, strict=True)):
        choice = choose(row, sampling, len(prompt) + index, target.logit_noise)
        if choice.token != token:
            (agreement.near_tie_differences if choice.near_tie else agreement.wrong).append(index)
    return agreement
