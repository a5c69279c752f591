"""Under rejection no draft is cut for what was drawn, which would change the law of the text.

Each of these cuts is harmless where a draft token stands by equality. Here a token that is left out
before it is judged makes all others too likely to have been judged.
"""

import numpy as np
import pytest

from surefoot.decoding import Drafter, DraftWishes, Rule, SyntheticAcceptance
from surefoot.drafting.chain import Chain
from surefoot.drafting.draft_model import DraftModel
from tests.support.laws import DRAFT, LEAST, SHAPES, SlottedTarget, Table, law, p_values, texts
from tests.support.planned_drafters import FunctionDrafter

COUNT = 1500


def wider() -> Table:
    """The draft model's logits with two tokens more than the target has, and likely ones."""
    table = np.full((7, 7), 1.5, np.float32)
    table[:5, :5] = DRAFT
    return table


DRAFTERS: dict[str, Drafter] = {
    "confidence": DraftModel(SlottedTarget(DRAFT), n_max=3, p_min=0.3),
    "confidence and length": DraftModel(SlottedTarget(DRAFT), n_max=3, n_min=2, p_min=0.35),
    "tokens that are not shared": DraftModel(SlottedTarget(wider()), n_max=3, shared=5),
    "tokens that the target has not": DraftModel(SlottedTarget(wider()), n_max=3),
    "failures": DraftModel(SlottedTarget(DRAFT, silent_after=1), n_max=3),
    "a chain": Chain(
        [
            DraftModel(SlottedTarget(DRAFT), n_max=3, p_min=0.35),
            FunctionDrafter(lambda sequence, most: [(sequence.committed[-1] + 1) % 5] * most),
        ]
    ),
}


@pytest.mark.parametrize("kind", DRAFTERS)
def test_what_ends_a_draft_leaves_the_law_alone(kind: str) -> None:
    found = texts(DRAFTERS[kind], SHAPES["warm"], count=COUNT)
    assert 0 < found.accepted < found.drafted
    assert min(p_values(found.tokens, law(SHAPES["warm"]))) > LEAST


@pytest.mark.parametrize("only", [(0, 1, 3), (0, 2, 3, 4)])
@pytest.mark.parametrize("shape", ["warm", "top-k 3"])
def test_texts_under_a_control_have_the_masked_law(shape: str, only: tuple[int, ...]) -> None:
    drafter = DraftModel(SlottedTarget(DRAFT), n_max=3)
    found = texts(drafter, SHAPES[shape], count=COUNT, only=only)
    assert 0 < found.accepted < found.drafted
    assert min(p_values(found.tokens, law(SHAPES[shape], only))) > LEAST


def test_a_requests_own_limits_leave_the_law_alone() -> None:
    drafter = DraftModel(SlottedTarget(DRAFT), n_max=3)
    wishes = DraftWishes(n_min=2, p_min=0.35)
    found = texts(drafter, SHAPES["warm"], count=COUNT, wishes=wishes)
    assert 0 < found.accepted < found.drafted
    assert min(p_values(found.tokens, law(SHAPES["warm"]))) > LEAST


def test_synthetic_acceptance_gets_only_what_the_control_permits() -> None:
    """It judges in the place of rejection, and accepts by chance whatever it gets."""
    always: Rule = SyntheticAcceptance([1.0, 1.0, 1.0])
    for drafter in (DRAFTERS["tokens that the target has not"], DRAFTERS["confidence"]):
        found = texts(drafter, SHAPES["warm"], judge=always, only=(0, 1, 2), count=50)
        assert found.accepted == found.drafted > 0
        assert set(np.unique(found.tokens)) <= {0, 1, 2}
