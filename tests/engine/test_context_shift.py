"""A full context: an end that says so, or a shift where the memory allows it (case I8)."""

import random
from typing import Any

import pytest

from surefoot.decoding import (
    GREEDY,
    Drafter,
    Feed,
    InvalidParameterError,
    Sampling,
    Sequence,
    choose,
)
from surefoot.drafting.draft_model import DraftModel
from surefoot.drafting.mtp import MtpDrafter
from surefoot.drafting.ngram_simple import NgramSimple
from surefoot.engine import Engine, GenerationState, Request
from surefoot.engine.context_shift import region
from surefoot.runtime.libllama import LoadSettings, binding, load
from tests.conftest import FAMILY_FILES
from tests.engine.playing import VOCABULARY, Asker, oracle_of, play, run_all, runtime_of
from tests.support.kinds import KINDS, simulated
from tests.support.oracle import Oracle
from tests.support.planned_drafters import FunctionDrafter, RandomDrafter
from tests.support.random_models import random_model
from tests.support.toy_head import ToyHead, WatchedRuntime

CONTEXT = 64
PROMPT = (300, 301, 302, 303, 304, 305)
SAMPLINGS = {"greedy": GREEDY, "sampled": Sampling(seed=9, temperature=1.3)}


def shifted_text(
    prompt: tuple[int, ...], count: int, sampling: Sampling, keep: int, discard: int
) -> list[int]:
    """What the toy model says when its context is shifted, by a walk that knows no engine."""
    oracle = oracle_of("attention", end_rate=0)
    window, said = list(prompt), []
    for position in range(len(prompt), len(prompt) + count):
        if len(window) == CONTEXT:
            gone = discard or (len(window) - keep) // 2
            del window[keep : keep + gone]
        token = choose(oracle.logits(window), sampling, position, 0.0).token
        window.append(token)
        said.append(token)
    return said


def engine_with(drafter: Drafter | None = None, **settings: Any) -> Engine:
    runtime = runtime_of("attention", end_rate=0, context_length=CONTEXT, **settings)
    return Engine(runtime, drafter, max_draft=6, context_shift=True)


def drafters(text: list[int]) -> dict[str, Drafter | None]:
    """Drafters by name; some know the text."""

    def right(sequence: Sequence, most: int) -> list[int]:
        start = sequence.position
        known = text[start : start + most]
        return [t if at % 3 else (t + 1) % VOCABULARY for at, t in enumerate(known, start)]

    return {
        "none": None,
        "partly right": FunctionDrafter(right),
        "random": RandomDrafter(5, VOCABULARY),
        "ngram": NgramSimple(size_n=2),
    }


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
@pytest.mark.parametrize(("keep", "discard"), [(0, 0), (4, 0), (-1, 10), (3, 1), (999, 40)])
@pytest.mark.parametrize("kind", ["none", "partly right", "random", "ngram"])
def test_a_text_goes_on_behind_its_context_the_same_with_any_drafter(
    kind: str, sampling: Sampling, keep: int, discard: int
) -> None:
    """Case I8: context 64, 200 tokens, with and without speculation."""
    kept = len(PROMPT) if keep in (-1, 999) else max(1, keep)
    expected = shifted_text(PROMPT, 200, sampling, kept, discard)
    engine = engine_with(drafters([*PROMPT, *expected])[kind])
    generation = engine.run(
        Request(PROMPT, sampling=sampling, max_tokens=200, n_keep=keep, n_discard=discard)
    )
    assert generation.state is GenerationState.FINISHED, generation.error
    assert generation.tokens == expected
    assert generation.finish == ("length", "max tokens")
    assert generation.summary.generated_tokens == 200
    assert generation.summary.context_shifts > 1
    assert generation.summary.recoveries == 0
    assert len(generation.entries) == 200
    if kind == "partly right" and discard != 1:  # else each token has a shift of its own
        assert generation.summary.counts.accepted > 80


def test_no_pass_is_spent_on_a_shift() -> None:
    engine = engine_with()
    generation = engine.run(Request(PROMPT, sampling=GREEDY, max_tokens=200))
    assert engine.runtime.passes == 1 + 200
    assert generation.summary.prefilled_tokens == len(PROMPT) - 1


def test_slots_shift_by_themselves() -> None:
    """Whoever shifts, the others' texts are their own."""
    engine = engine_with(RandomDrafter(1, VOCABULARY), slots=3)
    prompts = [(300 + slot, *PROMPT[: 3 * slot]) for slot in range(3)]
    requests = [Request(p, sampling=GREEDY, max_tokens=150, n_keep=2) for p in prompts]
    for generation, prompt in zip(run_all(engine, requests), prompts, strict=True):
        assert generation.tokens == shifted_text(prompt, 150, GREEDY, min(2, len(prompt)), 0)


def test_a_group_that_shares_its_prompts_cells_shifts_by_absorbing_again() -> None:
    """To move a cell that another sequence has would move it there, too."""
    engine = engine_with(slots=2)
    requests = [
        Request(PROMPT, sampling=Sampling(seed=s, temperature=1.2), max_tokens=150, n_keep=1)
        for s in range(2)
    ]
    group = engine.submit_group(requests, [lambda _: None] * 2)
    play(engine)
    for generation, request in zip(group, requests, strict=True):
        assert generation.tokens == shifted_text(PROMPT, 150, request.sampling, 1, 0)


@pytest.mark.parametrize("failing", [70, 75, 90, 130])
def test_a_failed_pass_behind_a_shift_is_recovered_from(failing: int) -> None:
    engine = engine_with(fail_decode=[failing])
    generation = engine.run(Request(PROMPT, sampling=GREEDY, max_tokens=200, n_keep=3))
    assert generation.summary.recoveries == 1
    assert generation.tokens == shifted_text(PROMPT, 200, GREEDY, 3, 0)


def test_only_what_lies_before_the_gap_becomes_cache() -> None:
    """The rest was computed while the model saw what is gone."""
    engine = engine_with()
    generation = engine.run(Request(PROMPT, sampling=GREEDY, max_tokens=100, n_keep=4))
    assert generation.sequence is not None
    window = [*generation.sequence.committed[:30], 300]
    again = engine.run(Request(tuple(window), sampling=GREEDY, max_tokens=5))
    assert again.summary.cached_tokens == 4
    assert again.tokens == Asker("attention", end_rate=0, length=5).says(window)


def test_random_regions_leave_room_and_the_last_token() -> None:
    seed = random.SystemRandom().getrandbits(32)
    print(f"seed {seed}")
    draws = random.Random(seed)
    runtime = runtime_of("attention", context_length=CONTEXT)
    engine = Engine(runtime, context_shift=True)
    for _ in range(300):
        length = draws.randint(CONTEXT, 2 * CONTEXT)
        prompt = draws.randint(1, CONTEXT - 1)
        request = Request(
            tuple([300] * prompt),
            max_tokens=500,
            n_keep=draws.choice([-1, 0, draws.randint(0, 100)]),
            n_discard=draws.choice([0, 1, draws.randint(0, 100)]),
        )
        sequence = engine._maker.sequence(request, engine.main, engine.slots[0])
        sequence.committed += [301] * (length - prompt)
        keep, discard = region(sequence, request)
        assert 1 <= keep <= prompt
        assert discard >= 1
        assert length - discard < CONTEXT
        assert keep + discard < length


# Drafters with a memory of their own


def test_a_draft_model_goes_on_drafting_behind_a_shift() -> None:
    like: dict[str, Any] = {"vocabulary_size": VOCABULARY, "end_rate": 0}
    model = simulated("attention", **like, context_length=CONTEXT)
    engine = engine_with(DraftModel(model, n_max=4))
    generation = engine.run(Request(PROMPT, sampling=GREEDY, max_tokens=200, n_keep=2))
    assert generation.tokens == shifted_text(PROMPT, 200, GREEDY, 2, 0)
    counts = generation.summary.counts
    assert counts.drafter_errors == 0
    assert counts.accepted == counts.drafted > 150  # it is the same model, shifted likewise


def test_a_draft_model_with_a_shorter_context_stops_with_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = simulated("attention", vocabulary_size=VOCABULARY, end_rate=0, context_length=32)
    engine = engine_with(DraftModel(model, n_max=4))
    generation = engine.run(Request(PROMPT, sampling=GREEDY, max_tokens=200))
    assert generation.state is GenerationState.FINISHED
    assert generation.tokens == shifted_text(PROMPT, 200, GREEDY, 1, 0)
    assert caplog.text.count("no more drafts") == 1


def test_a_head_goes_on_drafting_behind_a_shift() -> None:
    like: dict[str, Any] = {"vocabulary_size": 24, "end_rate": 0.0}
    runtime = WatchedRuntime(simulated("attention", **like, context_length=CONTEXT))
    head = ToyHead(runtime, Oracle("attention", **like))
    engine = Engine(runtime, MtpDrafter(head, n_max=3), context_shift=True)
    prompt = (1, 2, 3, 4)
    plain = Engine(simulated("attention", **like, context_length=CONTEXT), context_shift=True)
    request = Request(prompt, sampling=GREEDY, max_tokens=200, n_keep=2)
    generation = engine.run(request)
    assert generation.tokens == plain.run(request).tokens
    drafted = generation.summary.counts.drafted
    before = engine.run(Request((5, 6), sampling=GREEDY, max_tokens=40)).summary.counts.drafted
    assert drafted > 2 * before > 0


class Spy(FunctionDrafter):
    """Keeps the noise positions of its drafts."""

    def __init__(self) -> None:
        super().__init__(self._none)
        self.positions: list[int] = []

    def _none(self, sequence: Sequence, most: int) -> list[int]:  # noqa: ARG002
        self.positions.append(sequence.position)
        return []


def test_no_position_of_the_noise_comes_twice() -> None:
    """Else draws behind a shift would hang on draws before it."""
    spy = Spy()
    engine = engine_with(spy)
    engine.run(Request(PROMPT, max_tokens=200))
    assert len(spy.positions) > 150
    assert spy.positions == sorted(set(spy.positions))


# Where there is none


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "attention"])
def test_memory_that_cannot_shift_is_refused_in_words_at_start_and_by_request(kind: str) -> None:
    runtime = runtime_of(kind, context_length=CONTEXT)
    with pytest.raises(InvalidParameterError, match=r"context_shift: is not possible .* memory is"):
        Engine(runtime, context_shift=True)
    engine = Engine(runtime)
    with pytest.raises(InvalidParameterError, match=r"context_shift: is not .* larger -c"):
        engine.submit(Request(PROMPT, max_tokens=9, context_shift=True), lambda _: None)
    assert engine.idle
    generation = engine.run(Request(PROMPT, max_tokens=200, context_shift=False))
    assert generation.state is GenerationState.FINISHED


def test_a_request_may_shift_or_not_whatever_the_server_does() -> None:
    runtime = runtime_of("attention", end_rate=0, context_length=CONTEXT)
    off, on = Engine(runtime), engine_with()
    assert off.run(Request(PROMPT, max_tokens=200)).finish == ("length", "context full")
    assert off.run(Request(PROMPT, max_tokens=200, context_shift=True)).summary.context_shifts
    fixed = on.run(Request(PROMPT, max_tokens=200, context_shift=False))
    assert fixed.finish == ("length", "context full")


def test_a_request_without_a_limit_ends_with_its_context() -> None:
    """Else it would have no end."""
    generation = engine_with().run(Request(PROMPT, sampling=GREEDY))
    assert generation.finish == ("length", "context full")
    assert len(generation.tokens) == CONTEXT - len(PROMPT)


@pytest.mark.parametrize(
    "fields",
    [{"n_keep": -2}, {"n_discard": -1}, {"context_shift": True, "exact": "strict"}],
    ids=str,
)
def test_impossible_shifts_are_refused_in_words(fields: dict[str, Any]) -> None:
    [name, *_] = fields
    with pytest.raises(InvalidParameterError, match=f"^{name}: "):
        Request(PROMPT, **fields)


# On libllama


@pytest.mark.parametrize(
    ("family", "why"),
    [
        ("gemma3", "sliding window of 16"),
        ("mamba2", "recurrent"),
        ("qwen35", "recurrent, or partly so"),
        ("lfm2", "recurrent, or partly so"),
    ],
)
def test_libllamas_other_memories_say_why_they_cannot_shift(family: str, why: str) -> None:
    settings = LoadSettings(random_model(family, FAMILY_FILES), context_length=64, threads=1)
    with load(settings) as runtime:
        assert why in runtime.shift_refusal
        with pytest.raises(InvalidParameterError, match=why):
            Engine(runtime, context_shift=True)


def test_libllamas_attention_shifts_and_says_the_same_with_any_drafts() -> None:
    """Shared prompts and neighbours included; passes of a token each are compared with plain ones
    up to near ties, so here only that all of it runs and drafts are accepted is asked for."""
    settings = LoadSettings(
        random_model("llama", FAMILY_FILES), slots=2, context_length=64, longest_draft=4, threads=1
    )
    with load(settings) as runtime:
        assert runtime.shift_refusal == ""
        assert (runtime.passes, runtime.graph_runs) == (0, 0)
        for drafter in (None, NgramSimple(size_n=1), RandomDrafter(1, 128)):
            engine = Engine(runtime, drafter, max_draft=4, context_shift=True)
            requests = [
                Request((1, 2, 3, 4 + n), sampling=GREEDY, max_tokens=200, n_keep=2)
                for n in range(2)
            ]
            alone = [engine.submit(request, lambda _: None) for request in requests]
            group = engine.submit_group([requests[0]] * 2, [lambda _: None] * 2)
            play(engine)
            for generation in (*alone, *group):
                assert generation.state is GenerationState.FINISHED, generation.error
                assert len(generation.tokens) == 200
                assert generation.summary.context_shifts >= 4
                assert generation.summary.recoveries == 0
            engine.forget()


def test_a_shift_of_libllamas_memory_moves_nobody_elses_cells() -> None:
    settings = LoadSettings(
        random_model("llama", FAMILY_FILES), slots=2, context_length=64, threads=1
    )
    with load(settings) as runtime:
        tokens = list(range(1, 21))
        runtime.decode([Feed(0, tokens, 0, 0)])
        runtime.fork(0, 1, 0, 20)
        [before] = [row.copy() for row in runtime.decode([Feed(1, [50], 20, 1)])]
        assert runtime.cut(1, 20)
        assert not runtime.shift(0, 2, 5)
        [after] = runtime.decode([Feed(1, [50], 20, 1)])
        assert abs(after - before).max() < 1e-3
        runtime.drop(1)
        assert runtime.shift(0, 2, 5)
        [rows] = runtime.decode([Feed(0, [50], 15, 1)])
        assert rows.shape[0] == 1


def test_a_shift_on_libllama_keeps_distances() -> None:
    """Positions count by their distances alone. So without the first tokens the logits are the
    same, whether the others have moved down or stay where they were."""
    settings = LoadSettings(random_model("llama", FAMILY_FILES), context_length=64, threads=1)
    tokens = [(37 * n) % 128 for n in range(30)]
    with load(settings) as runtime:
        runtime.decode([Feed(0, tokens, 0, 0)])
        memory = binding.llama_get_memory(runtime.handle) or 0
        assert binding.llama_memory_seq_rm(memory, 0, 0, 7)
        [stay] = [row.copy() for row in runtime.decode([Feed(0, [50], 30, 1)])]
        runtime.drop(0)
        runtime.decode([Feed(0, tokens, 0, 0)])
        assert runtime.shift(0, 0, 7)
        [moved] = [row.copy() for row in runtime.decode([Feed(0, [50], 23, 1)])]
        runtime.drop(0)
        [whole] = [row.copy() for row in runtime.decode([Feed(0, [*tokens, 50], 0, 1)])]
    assert abs(moved - stay).max() < 0.01 * abs(whole - stay).max()
