"""Synthetic acceptance in the engine: whoever gets a text is told that it is not the model's."""

import pytest

from surefoot.decoding import GREEDY, SyntheticAcceptance
from surefoot.engine import Engine, Generation, Request
from tests.support.kinds import KINDS, simulated
from tests.support.planned_drafters import RandomDrafter

REQUEST = Request(prompt=(3, 1, 4), sampling=GREEDY, max_tokens=40)


def generated(kind: str, synthetic: SyntheticAcceptance | None) -> Generation:
    drafter = RandomDrafter(1, 64, full=True)
    engine = Engine(simulated(kind), drafter, max_draft=3, synthetic=synthetic)
    return engine.run(REQUEST)


@pytest.mark.parametrize("kind", KINDS)
def test_every_summary_says_whether_the_text_is_the_models(kind: str) -> None:
    real = generated(kind, None)
    synthetic = generated(kind, SyntheticAcceptance([1.0, 0.9, 0.5]))
    assert not real.summary.synthetic
    assert synthetic.summary.synthetic
    assert synthetic.tokens != real.tokens
    assert synthetic.tokens == generated(kind, SyntheticAcceptance([1.0, 0.9, 0.5])).tokens


def test_rates_of_zero_give_the_models_text_and_are_marked_all_the_same() -> None:
    never = generated("hybrid", SyntheticAcceptance([0.0] * 3))
    assert never.summary.synthetic
    assert never.tokens == generated("hybrid", None).tokens
