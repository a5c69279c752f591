"""What the engine generates is what the oracle says: alone, side by side, and in whatever slot."""

from dataclasses import replace

import pytest

from surefoot.decoding import Sampling
from surefoot.drafting.ngram_simple import NgramSimple
from surefoot.engine import Delta, Generation, GenerationState
from tests.engine.playing import ALL_KINDS, Asker, engine_of, play, run_all
from tests.support.kinds import KINDS

PROMPTS = [[300 + 7 * number, *range(260, 262 + 3 * number)] for number in range(6)]
SAMPLINGS = {"greedy": Sampling(temperature=0), "sampled": Sampling(seed=11, temperature=1.2)}


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
@pytest.mark.parametrize("kind", ALL_KINDS)
def test_a_request_says_what_the_oracle_says(kind: str, sampling: Sampling) -> None:
    asker = Asker(kind, sampling=sampling)
    text = asker.says(PROMPTS[2])
    deltas: list[Delta] = []
    for drafter in (None, asker.drafter(PROMPTS), NgramSimple(size_n=2)):
        engine, runtime = engine_of(kind, drafter)
        deltas.clear()
        generation = engine.run(asker.request(PROMPTS[2]), deltas.append)
        assert generation.tokens == text
        assert generation.state is GenerationState.FINISHED
        assert [token for delta in deltas for token in delta.tokens] == text
        pieces = b"".join(map(runtime.tokenizer.piece, text)).decode(errors="replace")
        assert generation.text == "".join(delta.text for delta in deltas) == pieces
        assert [delta.state.over for delta in deltas] == [False] * (len(deltas) - 1) + [True]
        assert generation.summary.generated_tokens == len(text)


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
@pytest.mark.parametrize("kind", ALL_KINDS)
def test_more_requests_than_slots_all_say_what_they_say_alone(
    kind: str, sampling: Sampling
) -> None:
    asker = Asker(kind, sampling=sampling)
    engine, _ = engine_of(kind, asker.drafter(PROMPTS), slots=3)
    generations = run_all(engine, map(asker.request, PROMPTS))
    assert [g.tokens for g in generations] == [asker.says(prompt) for prompt in PROMPTS]
    if kind != "rigid":
        assert all(g.summary.counts.rollbacks > 0 for g in generations)


@pytest.mark.parametrize("kind", KINDS)
def test_a_request_that_joins_another_midway_disturbs_neither(kind: str) -> None:
    """Case J2."""
    asker = Asker(kind)
    for steps in range(1, 12, 2):
        engine, _ = engine_of(kind, asker.drafter(PROMPTS), slots=2)
        first = engine.submit(asker.request(PROMPTS[0]), lambda _: None)
        for _ in range(steps):
            engine.step()
        second = engine.submit(asker.request(PROMPTS[5]), lambda _: None)
        play(engine)
        assert first.tokens == asker.says(PROMPTS[0])
        assert second.tokens == asker.says(PROMPTS[5])


@pytest.mark.parametrize("kind", KINDS)
def test_all_slots_are_alike(kind: str) -> None:
    """Case J1: the same request gives the same text and the same acceptance in each slot."""
    asker = Asker(kind)
    done: list[tuple[list[int], object]] = []
    for slot in range(4):
        engine, _ = engine_of(kind, asker.drafter(PROMPTS), slots=4)
        for earlier in range(slot):  # a slot that was never used comes first
            engine.run(asker.request(PROMPTS[earlier]))
        generation = engine.submit(asker.request(PROMPTS[5]), lambda _: None)
        engine.step()
        assert engine.slots[slot].generation is generation
        play(engine)
        done.append((generation.tokens, generation.summary.counts))
    assert done == [done[0]] * 4
    assert done[0][0] == asker.says(PROMPTS[5])


@pytest.mark.parametrize("kind", KINDS)
def test_a_round_is_one_forward_pass_for_all_that_run(kind: str) -> None:
    """Case J4, whatever the slots accept: rejected, partly accepted and undrafted side by side."""
    asker = Asker(kind)
    engine, runtime = engine_of(kind, asker.drafter(PROMPTS[:3]), slots=4)
    engine.main.round = replace(engine.main.round, runs=None)  # widths stay as unequal as they are
    generations = [engine.submit(asker.request(prompt), lambda _: None) for prompt in PROMPTS[:4]]
    while any(slot.prefilling for slot in engine.slots) or engine.waiting:
        engine.step()
    while not engine.idle:
        rounds = [g.summary.counts.rounds for g in generations]
        passes, running = runtime.passes, [g for g in generations if not g.state.over]
        engine.step()
        assert runtime.passes == passes + 1
        after = [g.summary.counts.rounds for g in generations]
        assert sum(after) - sum(rounds) == len(running)
    for generation in generations:
        assert generation.summary.passes == generation.summary.counts.rounds
    assert len({g.summary.counts.accepted for g in generations}) > 1


@pytest.mark.parametrize("kind", KINDS)
def test_requests_may_cut_drafts_short_or_turn_them_off(kind: str) -> None:
    """Case K1, K2: a request's own limit counts up to the engine's; others are not affected."""
    asker = Asker(kind)
    engine, _ = engine_of(kind, asker.drafter(PROMPTS, lambda _: True), slots=4)
    wanted = {0: 0, 1: 1, None: 4, 100: 4}
    requests = [
        asker.request(prompt, max_draft=most) for prompt, most in zip(PROMPTS, wanted, strict=False)
    ]
    for generation, longest in zip(run_all(engine, requests), wanted.values(), strict=True):
        assert len(generation.summary.counts.drafted_by_position) == longest
        assert generation.tokens == asker.says(generation.request.prompt)


def test_waiting_requests_are_served_in_order() -> None:
    asker = Asker("hybrid")
    engine, _ = engine_of("hybrid")
    ended: list[Generation] = []
    requests = [asker.request(prompt, max_tokens=3) for prompt in PROMPTS]
    generations = [engine.submit(request, lambda _: None) for request in requests]
    while not engine.idle:
        engine.step()
        ended += [g for g in generations if g.state.over and g not in ended]
    assert ended == generations


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_a_pass_never_has_more_tokens_than_the_batch_has_room_for(kind: str) -> None:
    """The runtime takes more for misuse. Long drafts are cut, and the user is told."""
    asker = Asker(kind, length=60)
    for batch, slots in ((64, 2), (64, 3), (48, 3), (40, 4), (4, 4)):
        drafter = asker.drafter(PROMPTS, lambda position: position % 11 != 0)
        engine, _ = engine_of(kind, drafter, 48, batch_size=batch, slots=slots)
        generations = run_all(engine, map(asker.request, PROMPTS))
        assert [g.tokens for g in generations] == [asker.says(prompt) for prompt in PROMPTS]
        assert all(g.summary.recoveries == 0 for g in generations)


def test_drafts_that_a_pass_has_no_room_for_are_announced(
    caplog: pytest.LogCaptureFixture,
) -> None:
    asker = Asker("hybrid")
    engine_of("hybrid", asker.drafter(PROMPTS), 48, batch_size=256, slots=4)
    assert caplog.text == ""
    engine, _ = engine_of("hybrid", asker.drafter(PROMPTS), 49, batch_size=256, slots=4)
    assert engine.max_draft == 48
    assert "drafts are cut to 48 tokens" in caplog.text


@pytest.mark.parametrize("kind", KINDS)
def test_a_prompt_is_absorbed_in_chunks_while_others_go_on(kind: str) -> None:
    asker = Asker(kind, length=40)
    long = [256 + number % 200 for number in range(300)]
    engine, runtime = engine_of(kind, slots=2, batch_size=64)
    first = engine.submit(asker.request(PROMPTS[0]), lambda _: None)
    engine.step()
    second = engine.submit(asker.request(long), lambda _: None)
    rounds = []
    while second.summary.counts.rounds == 0:
        before = runtime.passes
        engine.step()
        assert runtime.passes - before <= 2
        rounds.append(first.summary.counts.rounds)
    assert rounds == list(range(2, 2 + len(rounds)))
    play(engine)
    assert second.summary.prefilled_tokens == len(long) - 1
    assert [first.tokens, second.tokens] == [asker.says(PROMPTS[0]), asker.says(long)]
