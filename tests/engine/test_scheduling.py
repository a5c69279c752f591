"""Who is absorbed and who plays when: prompts share passes by tokens, and nobody starves."""

import random
from collections.abc import Sequence as Series

import numpy as np
import pytest
from numpy.typing import NDArray

from surefoot.decoding import Feed, ScoreWish
from surefoot.engine import Engine, Generation
from surefoot.engine.prefill_plan import chunk_room, shares
from surefoot.runtime.pieces import Cutting
from surefoot.runtime.simulated import SimulatedRuntime
from tests.engine.playing import ALL_KINDS, Asker, engine_of, play, runtime_of
from tests.support.kinds import KINDS

SHORT = [300, 301, 302, 303]


def prompt_of(length: int, first: int = 256) -> list[int]:
    return [first, *(256 + number % 200 for number in range(length - 1))]


# The plan


def test_a_short_prompt_gets_all_it_needs_and_the_others_share_the_rest() -> None:
    assert shares([1000, 19, 1000], 512) == [247, 19, 246]
    assert shares([1000], 512) == [512]
    assert shares([3, 2], 512) == [3, 2]
    assert shares([9, 9, 9], 2) == [1, 1, 0]
    assert shares([], 512) == []


def test_random_plans_use_the_room_and_are_fair() -> None:
    seed = random.SystemRandom().getrandbits(32)
    print(f"seed {seed}")
    draws = random.Random(seed)
    for _ in range(500):
        owed = [draws.choice([1, draws.randint(1, 700)]) for _ in range(draws.randint(1, 9))]
        room = draws.choice([4, 32, 512])
        given = shares(owed, room)
        assert sum(given) == min(room, sum(owed))
        for tokens, wanted in zip(given, owed, strict=True):
            assert tokens <= wanted
            if tokens < wanted:  # nobody has more than a token above those that go short
                assert max(given) <= tokens + 1


def test_to_share_a_pass_takes_no_more_graph_runs_than_a_pass_for_each() -> None:
    seed = random.SystemRandom().getrandbits(32)
    print(f"seed {seed}")
    draws = random.Random(seed)
    for _ in range(500):
        cutting = Cutting(most=512, recurrent=True, consecutive=draws.random() < 0.5, snapshots=0)
        slots = sorted(draws.sample(range(8), draws.randint(1, 6)))
        given = shares([draws.randint(1, 900) for _ in slots], 512)
        assert cutting.runs(dict(zip(slots, given, strict=True))) <= len(slots)


def test_a_chunk_beside_rounds_is_one_graph_runs_worth() -> None:
    assert chunk_room(2048, 512, beside_rounds=True) == 512
    assert chunk_room(2048, 512, beside_rounds=False) == 2048
    assert chunk_room(256, 512, beside_rounds=True) == 256


# In the engine


def steps_until(engine: Engine, generation: Generation) -> int:
    """Steps until a generation has committed its first token."""
    for steps in range(1, 2000):
        engine.step()
        if generation.tokens:
            return steps
    raise AssertionError("it never says anything")


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_a_short_prompt_does_not_wait_for_a_long_one(kind: str) -> None:
    asker = Asker(kind)
    long = prompt_of(3000)
    engine, runtime = engine_of(kind, slots=2, batch_size=64)
    first = engine.submit(asker.request(long), lambda _: None)
    engine.step()
    second = engine.submit(asker.request(SHORT), lambda _: None)
    assert steps_until(engine, second) == 1
    assert not first.tokens
    assert runtime.passes == 3  # a chunk of the first, a chunk of both, a round of the second
    play(engine)
    assert [first.tokens, second.tokens] == [asker.says(long), asker.says(SHORT)]
    assert first.summary.prefilled_tokens == len(long) - 1


class Watched(SimulatedRuntime):
    """Keeps the feeds of its passes."""

    def decode(self, feeds: Series[Feed]) -> list[NDArray[np.float32]]:
        self.fed: list[list[Feed]] = [*getattr(self, "fed", []), list(feeds)]
        return super().decode(feeds)


def test_long_prompts_advance_side_by_side() -> None:
    """Neither the first nor the last come has more than its share, however many passes it takes."""
    runtime = Watched("attention", vocabulary_size=512, slots=3, batch_size=60)
    engine = Engine(runtime)
    prompts = [prompt_of(1000, 300 + slot) for slot in range(3)]
    asker = Asker("attention")
    for prompt in prompts:
        engine.submit(asker.request(prompt), lambda _: None)
    for _ in range(40):
        engine.step()
        held = [runtime.length(slot) for slot in range(3)]
        assert max(held) - min(held) <= 1
    assert all(sum(len(feed.tokens) for feed in feeds) == 60 for feeds in runtime.fed)


@pytest.mark.parametrize("kind", KINDS)
def test_prefill_and_rounds_alternate_so_neither_starves(kind: str) -> None:
    """Each chunk is one graph run's worth, and a round for everybody follows each of them."""
    asker = Asker(kind, length=60)
    runtime = runtime_of(kind, slots=4, batch_size=256, micro_batch_size=32)
    engine = Engine(runtime)
    playing = [engine.submit(asker.request([300 + slot]), lambda _: None) for slot in range(2)]
    engine.step()
    prompts = [prompt_of(400, 310 + slot) for slot in range(2)]
    absorbing = [engine.submit(asker.request(prompt), lambda _: None) for prompt in prompts]
    for step in range(1, 25):
        rounds = [g.summary.counts.rounds for g in playing]
        tokens = runtime.tokens_evaluated
        engine.step()
        assert [g.summary.counts.rounds for g in playing] == [before + 1 for before in rounds]
        assert sum(g.summary.prefilled_tokens for g in absorbing) == 32 * step
        assert runtime.tokens_evaluated - tokens == 32 + len(playing)
    play(engine)
    assert [g.tokens for g in absorbing] == [asker.says(prompt) for prompt in prompts]
    assert [g.tokens for g in playing] == [asker.says([300 + slot]) for slot in range(2)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_failed_prefill_pass_costs_those_who_shared_it_a_chance_and_no_more(kind: str) -> None:
    """They go on by themselves, so that one whose passes always fail takes nobody along."""

    class Cursed(SimulatedRuntime):
        def decode(self, feeds: Series[Feed]) -> list[NDArray[np.float32]]:
            if any(270 in feed.tokens for feed in feeds):
                self._fails = lambda _: True
            try:
                return super().decode(feeds)
            finally:
                self._fails = lambda _: False

    settings = {**KINDS[kind], "vocabulary_size": 512, "end_rate": 1 / 1000}
    engine = Engine(Cursed(**settings, slots=3, batch_size=64))
    asker = Asker(kind)
    good = [[300 + slot, *([301] * 150)] for slot in range(2)]
    generations = [
        engine.submit(asker.request(prompt), lambda _: None)
        for prompt in [good[0], [*([302] * 100), 270, 271], good[1]]
    ]
    play(engine)
    assert [g.state.value for g in generations] == ["finished", "failed", "finished"]
    assert [generations[0].tokens, generations[2].tokens] == [asker.says(p) for p in good]
    assert all(g.summary.recoveries <= 1 for g in (generations[0], generations[2]))


@pytest.mark.parametrize("kind", KINDS)
def test_scored_prompts_share_no_pass_and_are_right(kind: str) -> None:
    asker = Asker(kind)
    engine, _ = engine_of(kind, slots=3, batch_size=32)
    prompts = [prompt_of(100, 300 + slot) for slot in range(3)]
    wanted = [
        asker.request(prompt, score_prompt=slot != 1, wish=ScoreWish())
        for slot, prompt in enumerate(prompts)
    ]
    generations = [engine.submit(request, lambda _: None) for request in wanted]
    play(engine)
    assert [g.tokens for g in generations] == [asker.says(prompt) for prompt in prompts]
    alone, _ = engine_of(kind, batch_size=512)
    for slot in (0, 2):
        scores = [entry.scores for entry in generations[slot].prompt_entries]
        expected = alone.run(wanted[slot]).prompt_entries
        assert scores == [entry.scores for entry in expected]
        assert len(scores) == 100
