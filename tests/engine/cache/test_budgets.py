"""Budgets are kept, entries move down, and what was cancelled is never kept (themes M and N)."""

import pytest

from surefoot.decoding import InvalidParameterError, RollbackRefusedError
from surefoot.engine import GenerationState
from surefoot.engine.cache import CacheSettings, bytes_of, in_bytes
from tests.engine.cache.bench import (
    FORGETTING,
    KINDS_WITH_FORKS,
    LONG,
    NEW,
    PLENTY,
    PROMPT,
    Bench,
)
from tests.engine.playing import ALL_KINDS, play
from tests.support.kinds import KINDS


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_a_hundred_turns_stay_within_the_budgets(kind: str) -> None:
    """Case M1."""
    device, ram = 8000, 20_000
    bench = Bench(kind, length=6, device=device, ram=ram, every=16)
    history = list(PROMPT)
    for number in range(100):
        turn = bench.turn([*history, 400 + number % 50])
        history = turn.history if number % 10 else list(LONG[number : number + 30])
        assert bench.tier("device")["bytes"] <= device
        assert bench.tier("host")["bytes"] <= ram
        assert bench.tier("device")["bytes"] >= 0
    assert bench.tier("device")["entries"] + bench.tier("host")["entries"] > 0


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_clearing_frees_everything(kind: str) -> None:
    """Case M2."""
    bench = Bench(kind, checkpoints=4)
    for start in range(0, 300, 50):
        bench.turn(LONG[start : start + 40])
    bench.engine.forget()
    for tier in ("device", "host"):
        assert bench.tier(tier)["bytes"] == bench.tier(tier)["entries"] == 0
    for sequence in range(2 + bench.runtime.checkpoints):
        assert bench.runtime.length(sequence) == 0
    assert bench.turn(LONG[:40]).reused == 0


@pytest.mark.parametrize("kind", FORGETTING)
def test_a_state_larger_than_the_budget_is_refused_and_the_others_stay(kind: str) -> None:
    """Case M2."""
    bench = Bench(kind, device=0, ram=4000, every=1024)
    bench.turn(PROMPT)
    kept = bench.tier("host")
    assert kept["entries"] > 0
    bench.engine.cache._tiers.host.budget = kept["bytes"] + 50
    bench.turn(LONG[:400]) if kind in ("hybrid", "hybrid-snapshots", "windowed") else None
    assert bench.tier("host")["entries"] >= kept["entries"]
    assert bench.turn(PROMPT).absorbed == 1


@pytest.mark.parametrize("kind", [*KINDS_WITH_FORKS, "attention"])
def test_what_is_evicted_on_the_device_moves_to_memory_and_is_restored_from_there(
    kind: str,
) -> None:
    bench = Bench(kind, checkpoints=2)
    texts = [LONG[start : start + 60] for start in range(0, 600, 100)]
    histories = [bench.turn(text).history for text in texts]
    assert bench.tier("device")["entries"] <= 2
    assert bench.tier("host")["entries"] > 0
    origins = []
    for history in histories:
        turn = bench.turn([*history, *NEW])
        assert turn.reused >= len(history) - 1
        origins.append(turn.origin)
    assert "host" in origins


@pytest.mark.parametrize("kind", ["attention", "hybrid", "windowed"])
@pytest.mark.parametrize("ram", [0, PLENTY], ids=["dropped", "moved"])
def test_kept_forks_make_room_for_live_slots(kind: str, ram: int) -> None:
    """Forks hold attention cells, of which there are no more than one slot needs."""
    bench = Bench(kind, ram=ram, cells=300, context_length=300, window_reserve=0)
    for start in range(0, 900, 100):
        turn = bench.turn(LONG[start : start + 200])
        assert turn.generation.state is GenerationState.FINISHED
        assert turn.generation.summary.recoveries == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_checkpoint_that_fails_costs_itself_only(kind: str) -> None:
    """Case C4, for checkpoints: the request completes without them."""
    bench = Bench(kind)
    fork = bench.runtime.fork

    def refuse(source: int, copy: int, start: int, end: int) -> None:
        if copy >= 2 * bench.runtime.slots:
            raise RollbackRefusedError("no")
        fork(source, copy, start, end)

    bench.runtime.fork = refuse  # type: ignore[method-assign]
    bench.turn(LONG[:200])
    assert bench.tier("device")["entries"] == 0
    assert bench.turn(LONG[:200]).absorbed <= 64


@pytest.mark.parametrize("kind", ALL_KINDS)
@pytest.mark.parametrize("steps", [2, 3, 6])
def test_cancelled_work_never_becomes_cache(kind: str, steps: int) -> None:
    """Case N5: neither what was absorbed of the prompt nor what was generated."""
    bench = Bench(kind, every=16, drafts=[LONG[:100]], batch_size=32)
    kept = bench.turn(PROMPT).history
    before = bench.tier("device")["entries"] + bench.tier("host")["entries"]
    generation = bench.engine.submit(bench.asker.request(LONG[:100]), lambda _: None)
    for _ in range(steps):
        bench.engine.step()
    generation.cancelled = True
    play(bench.engine)
    assert generation.state is GenerationState.CANCELLED
    assert bench.tier("device")["entries"] + bench.tier("host")["entries"] == before
    assert bench.turn(LONG[:100]).reused == 0
    assert bench.turn([*kept, *NEW]).absorbed <= len(NEW) + 1


@pytest.mark.parametrize("kind", KINDS_WITH_FORKS)
def test_failed_work_never_becomes_cache(kind: str) -> None:
    failing = [False]
    bench = Bench(kind, every=16, batch_size=32, fail_decode=lambda _: failing[0])
    generation = bench.engine.submit(bench.asker.request(LONG[:100]), lambda _: None)
    bench.engine.step()
    failing[0] = True
    play(bench.engine)
    assert generation.state is GenerationState.FAILED
    assert bench.tier("device")["entries"] == bench.tier("host")["entries"] == 0
    failing[0] = False
    assert bench.turn(LONG[:100]).reused == 0


def test_sizes_are_read_as_people_write_them() -> None:
    assert bytes_of("512M") == 512 << 20
    assert bytes_of("1.5GiB") == 3 << 29
    assert bytes_of("2g") == 2 << 30
    assert bytes_of("0") == 0
    assert in_bytes(512 << 20) == "512 MiB"
    for wrong in ("", "-1M", "2X", "M", "two"):
        with pytest.raises(ValueError, match="size"):
            bytes_of(wrong)


def test_settings_out_of_range_are_refused_by_name() -> None:
    with pytest.raises(InvalidParameterError, match="--cache-ram"):
        CacheSettings(ram=-1)
    with pytest.raises(InvalidParameterError, match="--cache-folder"):
        CacheSettings(disk=1000)
    with pytest.raises(InvalidParameterError, match="--checkpoint-every"):
        CacheSettings(every=1)
