"""What a request wishes of a draft comes before what the server was started with."""

import numpy as np
import pytest

from surefoot.decoding import DraftWishes, Sequence, memory_for
from surefoot.drafting.minima import Minima
from surefoot.runtime.simulated import SimulatedRuntime

LOGITS = np.log(np.array([0.7, 0.2, 0.1], dtype=np.float32))


def sequence(wishes: DraftWishes) -> Sequence:
    return Sequence([1], memory_for(SimulatedRuntime(), 0, spare_id=1), wishes=wishes)


@pytest.mark.parametrize(("wish", "least"), [(None, 2), (0, 0), (5, 5)])
def test_the_shortest_draft_is_the_requests_if_it_says_so(wish: int | None, least: int) -> None:
    assert Minima(n_min=2, p_min=0.0).length(sequence(DraftWishes(n_min=wish))) == least


@pytest.mark.parametrize(
    ("server", "wish", "forbidden"),
    [(0.0, None, [False] * 3), (0.5, None, [False, True, True]), (0.5, 0.15, [False, False, True])],
)
def test_improbable_tokens_end_a_draft_by_the_requests_measure(
    server: float, wish: float | None, forbidden: list[bool]
) -> None:
    minima, asking = Minima(n_min=0, p_min=server), sequence(DraftWishes(p_min=wish))
    assert [minima.forbid(asking, LOGITS, token) for token in range(3)] == forbidden
