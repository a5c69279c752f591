"""What counts as a near tie under rejection: all that logits within the tolerance could change."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from surefoot.decoding import Distribution, Draft, Judgement, Sampling, Sequence, memory_for
from surefoot.decoding.rejection import rejection
from tests.support.fixed import FixedTarget
from tests.support.laws import TARGET, WHOLE

Logits = NDArray[np.float32]


def judged(draft: Draft, logits: Logits, tolerance: float, **sampling: Any) -> Judgement:
    """What the rule says of a draft's first token."""
    memory = memory_for(FixedTarget(TARGET), 0, spare_id=1)
    sequence = Sequence(list(range(5)), memory, Sampling(**{**WHOLE, **sampling}), rule="rejection")
    return rejection(sequence, draft, 0, logits, tolerance)


def drafted(chance: np.random.Generator, size: int) -> Draft:
    """A draft of one token from a distribution, of a token for certain, or none."""
    token = int(chance.integers(size))
    shares = chance.dirichlet(np.full(size, 0.7))
    sources = (Distribution(np.arange(size), shares),)
    return [Draft((token,), "", sources), Draft((token,)), Draft()][int(chance.integers(3))]


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"temperature": 0.3},
        {"temperature": 1.7, "samplers": ("top_k",)},
        {"repeat_penalty": 3.0},
    ],
)
def test_what_moving_logits_change_was_a_near_tie(more: dict[str, Any]) -> None:
    """Seeds are those of the loop, which is long enough to see each way to change a choice."""
    changed = 0
    for seed in range(1200):
        chance = np.random.default_rng(seed)
        logits = chance.normal(0, 1.5, 6).astype(np.float32)
        draft, tolerance = drafted(chance, 6), float(chance.choice([0.02, 0.1, 0.3]))
        sampling = {"seed": seed, "temperature": 1.0, **more}
        before = judged(draft, logits, tolerance, **sampling).choice
        for _ in range(6):
            moves = tolerance * 0.999 * chance.choice([-1, 1], 6)
            after = judged(draft, (logits + moves).astype(np.float32), tolerance, **sampling).choice
            if after.token != before.token:
                changed += 1
                assert before.near_tie, f"seed {seed}"
    assert changed > 100


def test_where_logits_do_not_move_there_are_no_near_ties_and_hardly_any_where_they_hardly_do() -> (
    None
):
    chance = np.random.default_rng(1)
    for tolerance, most in ((0.0, 0), (1e-4, 5)):
        near = 0
        for seed in range(500):
            logits = chance.normal(0, 1.5, 6).astype(np.float32)
            judgement = judged(drafted(chance, 6), logits, tolerance, seed=seed, temperature=1.0)
            near += judgement.choice.near_tie
        assert near <= most


@pytest.mark.parametrize(
    "unbounded",
    [{"typical_p": 0.9}, {"dynatemp_range": 0.3}, {"xtc_probability": 0.1}, {"mirostat": 2}],
)
def test_where_nothing_bounds_the_effect_every_choice_is_a_near_tie(
    unbounded: dict[str, Any],
) -> None:
    chance = np.random.default_rng(2)
    for seed in range(50):
        draft = drafted(chance, 5)
        assert judged(draft, TARGET[0], 1e-6, seed=seed, **unbounded).choice.near_tie
        assert not judged(draft, TARGET[0], 0.0, seed=seed, **unbounded).choice.near_tie


def test_a_token_that_a_drafter_can_not_have_drawn_is_judged_all_the_same() -> None:
    elsewhere = Draft((1,), "", (Distribution(np.array([2]), np.ones(1)),))
    assert judged(elsewhere, TARGET[0], 0.0, temperature=1.0).choice.token in range(5)
