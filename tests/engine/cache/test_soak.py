"""Random requests with a prompt cache under pressure: texts stay right, and budgets are kept."""

import random
from pathlib import Path

import pytest

from surefoot.engine.cache import CacheSettings
from tests.engine.test_soak import CONTEXT, SLOTS, soak
from tests.support.kinds import KINDS


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("failing", [0.0, 0.02], ids=["", "with failing passes"])
def test_200_random_requests_are_right_while_states_come_and_go(
    kind: str, failing: float, tmp_path: Path
) -> None:
    seed = random.SystemRandom().getrandbits(32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    device, ram = draw.choice([0, 3000, 8000]), draw.choice([0, 5000, 50_000])
    engine = soak(
        kind,
        seed,
        failing,
        CacheSettings(device, ram, 100_000, tmp_path, every=draw.choice([16, 32])),
        checkpoints=draw.choice([1, 3, 12]),
        cells=SLOTS * CONTEXT + 200,
    )
    for name, budget in (("device", device), ("host", ram), ("disk", 100_000)):
        assert engine.cache.describe()["tiers"][name]["bytes"] <= budget
    engine.forget()
    for sequence in range(SLOTS * 2 + engine.runtime.checkpoints):
        assert engine.runtime.length(sequence) == 0  # type: ignore[attr-defined]
