"""Texts over five tokens whose law is known, and the chi-square test that they have it.

Seeds are fixed and printed, so a test that passes goes on passing.
"""

from collections.abc import Sequence as Series
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chisquare

from surefoot.decoding import (
    Chooser,
    ControlError,
    Drafter,
    DraftWishes,
    Ending,
    Feed,
    Round,
    Rule,
    RuleName,
    Sampling,
    ScoreWish,
    Sequence,
    TokenMask,
    memory_for,
)
from tests.support.fixed import FixedTarget

LEAST = 1e-4
"""A smaller p-value fails a test."""

Table = NDArray[np.float32]
Counts = NDArray[np.int64]
Shares = NDArray[np.float64]

TARGET: Table = np.array(
    [[0, 2, 1, -1, 0.5], [1, 0, 2, 0.3, -2], [0, 0, 0, 3, 0], [2, -1, 0, 1, 1], [0, 1, 0, 1, 2]],
    np.float32,
)
DRAFT: Table = np.array(
    [
        [1.8, 0.8, 1.2, 1, 0.5],
        [-2, 2, 0, 1, 1],
        [1, 1, 1, 0, 1],
        [0, 2, 2, -1, 0],
        [2, 0, 1, 0, -1],
    ],
    np.float32,
)
"""Far from the target's."""

WHOLE: dict[str, Any] = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}
SHAPES: dict[str, dict[str, Any]] = {
    "cold": {**WHOLE, "temperature": 0.5},
    "warm": {**WHOLE, "temperature": 1.0},
    "hot": {**WHOLE, "temperature": 1.5},
    "top-k 3": {**WHOLE, "temperature": 1.0, "top_k": 3},
    "top-p 0.8": {**WHOLE, "temperature": 1.0, "top_p": 0.8},
    "min-p 0.1": {**WHOLE, "temperature": 1.0, "min_p": 0.1},
}


class SlottedTarget(FixedTarget):
    """A draft model for one sequence.

    Args:
        table: as a `FixedTarget` takes it.
        silent_after: a pass over this token gives no numbers.
    """

    slots, context_length, batch_size = 1, 4096, 512

    def __init__(self, table: Table, silent_after: int | None = None) -> None:
        super().__init__(table)
        self._silent_after = silent_after

    def decode(self, feeds: Series[Feed]) -> list[Table]:
        rows = super().decode(feeds)
        for feed, given in zip(feeds, rows, strict=True):
            if feed.tokens[-1] == self._silent_after:
                given[-1:] = np.nan
        return rows


class Only:
    """A control that takes some tokens everywhere, and no others."""

    finished: str | None = None
    reasoning_tokens = 0

    def __init__(self, tokens: Series[int]) -> None:
        self._tokens = frozenset(tokens)
        self._mask = np.array([sum(1 << token for token in tokens)], np.uint32)

    def allowed(self) -> TokenMask:
        return self._mask

    def forced(self) -> Series[int]:
        return ()

    def permitted(self, draft: Series[int]) -> int:
        refused = (i for i, token in enumerate(draft) if token not in self._tokens)
        return next(refused, len(draft))

    def advance(self, token: int) -> None:
        if token not in self._tokens:
            raise ControlError(f"token {token} is not among those allowed")


class Texts(NamedTuple):
    """What was generated behind token 0.

    Attributes:
        tokens: shape (texts, length).
        drafted: how many first tokens of drafts were verified.
        accepted: how many of those were accepted.
        sequences: what it was generated with.
    """

    tokens: Counts
    drafted: int
    accepted: int
    sequences: list[Sequence]


def texts(
    drafter: Drafter,
    shape: dict[str, Any],
    *,
    count: int,
    length: int = 6,
    rule: RuleName = "rejection",
    judge: Rule | None = None,
    only: Series[int] = (),
    wishes: DraftWishes | None = None,
    wish: ScoreWish | None = None,
) -> Texts:
    """Texts with the seeds 0 to `count` - 1, in rounds like a server's.

    Args:
        drafter: proposes drafts.
        shape: sampling parameters, all but the seed.
        count: how many.
        length: tokens in each.
        rule: the sequences' rule.
        judge: judges in the place of the rule.
        only: the tokens that a control takes; none for no control.
        wishes: what is wanted of drafts.
        wish: what scores are wanted.
    """
    target = FixedTarget(TARGET)
    memory = memory_for(target, 0, spare_id=1)
    play = Round(target, drafter, judge)
    sequences = []
    for seed in range(count):
        memory.clear()
        sequence = Sequence(
            [0],
            memory,
            Sampling(seed=seed, **shape),
            Ending(max_tokens=length),
            rule=rule,
            control=Only(only) if only else None,
            wishes=wishes or DraftWishes(),
            wish=wish,
        )
        while sequence.finish is None:
            play.play([sequence])
            assert sequence.fault is None, sequence.fault
        drafter.forget(sequence)
        sequences.append(sequence)
    counts = [sequence.counts for sequence in sequences]
    return Texts(
        np.array([sequence.committed[1:] for sequence in sequences]),
        sum((c.drafted_by_position or [0])[0] for c in counts),
        sum((c.accepted_by_position or [0])[0] for c in counts),
        sequences,
    )


def law(shape: dict[str, Any], only: Series[int] = ()) -> Shares:
    """The target's probabilities, shape (5, 5): row t is those after token t."""
    chooser = Chooser(Sampling(**shape))
    mask = Only(only).allowed() if only else None
    rows = np.zeros(TARGET.shape)
    for token, logits in enumerate(TARGET):
        tokens, shares = chooser.distribution(logits, mask)
        rows[token, tokens] = shares
    return rows


def p_values(found: Counts, rows: Shares) -> tuple[float, float]:
    """Of the first two tokens together, and of all tokens after those in front of them."""
    first = np.zeros(rows.shape)
    np.add.at(first, (found[:, 0], found[:, 1]), 1)
    pairs = np.zeros(rows.shape)
    before = np.concatenate([np.zeros((len(found), 1), np.int64), found[:, :-1]], axis=1)
    np.add.at(pairs, (before.ravel(), found.ravel()), 1)
    values = (
        p_value(first, rows[0][:, None] * rows * len(found)),
        p_value(
            pairs,
            rows * pairs.sum(axis=1, keepdims=True),
            given=int(np.count_nonzero(pairs.sum(1))),
        ),
    )
    print(f"seeds 0-{len(found) - 1}: p {values[0]:.3g} jointly, {values[1]:.3g} token by token")
    return values


def p_value(seen: Shares | Counts, due: Shares, given: int = 1) -> float:
    """Chi-square; what has no probability must not have happened at all.

    Args:
        seen: counts.
        due: expected ones.
        given: how many sums of them are as they were found.
    """
    seen, due = np.asarray(seen, np.float64).ravel(), due.ravel()
    assert seen[due == 0].sum() == 0
    often = due >= 5  # the test holds for such cells; the rare ones are taken together
    counts = np.append(seen[often], seen[~often].sum())
    wanted = np.append(due[often], due[~often].sum())
    counts, wanted = counts[wanted > 0], wanted[wanted > 0]
    return float(chisquare(counts, wanted, ddof=given - 1).pvalue)
