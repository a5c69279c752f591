"""Passes that fail and roll-backs that are refused: what was committed stands, text is right."""

from collections.abc import Callable
from collections.abc import Sequence as Series

import numpy as np
import pytest
from numpy.typing import NDArray

from surefoot.decoding import DecodeError, Feed, RollbackRefusedError
from surefoot.engine import Delta, Engine, GenerationState
from surefoot.engine.player import FAILURES_ALLOWED
from surefoot.runtime.simulated import SimulatedRuntime
from tests.engine.playing import ALL_KINDS, LANGUAGE, Asker, engine_of, run_all
from tests.support.kinds import KINDS

PROMPTS = [[300 + 7 * number, *range(260, 262 + 3 * number)] for number in range(4)]
ATTEMPTS = 1 + FAILURES_ALLOWED


class Refusing(SimulatedRuntime):
    """A hybrid whose forks are refused when asked to."""

    refuse: Callable[[int], bool]

    def fork(self, source: int, copy: int, start: int, end: int) -> None:
        if self.refuse(source):
            raise RollbackRefusedError(f"sequence {source} can't be forked, as planned")
        super().fork(source, copy, start, end)


class Harmful(SimulatedRuntime):
    """A hybrid on which passes with a certain token in them go wrong.

    Attributes:
        harm: called with the pass's rows before they are handed out; may spoil them or raise.
    """

    token = 499

    def __init__(self, harm: Callable[[NDArray[np.float32]], None], slots: int) -> None:
        super().__init__("hybrid", slots=slots, **LANGUAGE)
        self.harm = harm
        self._marked: set[int] = set()

    def decode(self, feeds: Series[Feed]) -> list[NDArray[np.float32]]:
        rows = super().decode(feeds)
        for index, feed in enumerate(feeds):
            self._marked.discard(feed.sequence) if feed.start == 0 else None
            if self.token in feed.tokens:
                self._marked.add(feed.sequence)
            if feed.sequence in self._marked and feed.outputs:
                rows[index] = rows[index].copy()
                self.harm(rows[index])
        return rows


def fail(_: NDArray[np.float32]) -> None:
    raise DecodeError("this device can't compute that")


def spoil(rows: NDArray[np.float32]) -> None:
    rows[:] = np.nan


@pytest.mark.parametrize("kind", ALL_KINDS)
@pytest.mark.parametrize("batch", [512, 4])
def test_a_pass_that_fails_once_anywhere_changes_no_text(kind: str, batch: int) -> None:
    """Every pass that there is fails once: prompt chunks, the first round, the last round."""
    asker = Asker(kind, length=10)
    texts = [asker.says(prompt) for prompt in PROMPTS[:2]]
    settings = {"slots": 2, "batch_size": batch * 2}
    engine, runtime = engine_of(kind, asker.drafter(PROMPTS), **settings)
    run_all(engine, map(asker.request, PROMPTS[:2]))
    for number in range(runtime.calls):
        engine, runtime = engine_of(kind, asker.drafter(PROMPTS), fail_decode={number}, **settings)
        generations = run_all(engine, map(asker.request, PROMPTS[:2]))
        assert [g.tokens for g in generations] == texts
        assert runtime.calls == runtime.passes + 1
        # A failed pass costs those their memory that were in it, each once.
        assert 1 <= sum(g.summary.recoveries for g in generations) <= 2
        for generation in generations:
            assert generation.state is GenerationState.FINISHED
            assert generation.summary.passes == generation.summary.counts.rounds


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_passes_that_fail_at_random_change_no_text(kind: str) -> None:
    asker = Asker(kind, length=30)
    for seed in range(10):
        language = {"seed": 0, "slots": 3}
        draws = np.random.default_rng(seed)
        engine, _ = engine_of(
            kind,
            asker.drafter(PROMPTS),
            fail_decode=lambda _, draws=draws: bool(draws.random() < 0.15),
            **language,
        )
        for generation in run_all(engine, map(asker.request, PROMPTS)):
            text = asker.says(generation.request.prompt)
            if generation.state is GenerationState.FINISHED:
                assert generation.tokens == text
            else:
                assert generation.tokens == text[: len(generation.tokens)]


@pytest.mark.parametrize("kind", ALL_KINDS)
@pytest.mark.parametrize("start", [0, 1, 5])
def test_passes_that_fail_for_ever_end_the_request_with_the_reason(kind: str, start: int) -> None:
    """Theme C: no loop; and the slot is as good as new once passes work again."""
    broken = True
    asker = Asker(kind)
    engine, runtime = engine_of(
        kind, asker.drafter(PROMPTS), fail_decode=lambda number: broken and number >= start
    )
    [generation] = run_all(engine, [asker.request(PROMPTS[3])])
    assert runtime.calls == start + ATTEMPTS
    assert generation.state is GenerationState.FAILED
    assert generation.error == f"pass {runtime.calls - 1} failed, as planned (3 times in a row)"
    assert generation.finish is None
    text = asker.says(PROMPTS[3])
    assert generation.tokens == text[: len(generation.tokens)]
    assert engine.slots[0].generation is None
    broken = False
    for prompt in (PROMPTS[3], [*PROMPTS[3], *text, 300]):
        [generation] = run_all(engine, [asker.request(prompt)])
        assert generation.tokens == asker.says(prompt)
    # Nothing that a failed request left behind counts as cached.
    assert generation.summary.recoveries == 0


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_only_failures_in_a_row_count(kind: str) -> None:
    """Two failed passes, one that absorbs, a round that commits; over and over."""
    asker = Asker(kind)
    engine, runtime = engine_of(kind, fail_decode=lambda number: number % 4 < FAILURES_ALLOWED)
    [generation] = run_all(engine, [asker.request(PROMPTS[1])])
    assert generation.tokens == asker.says(PROMPTS[1])
    assert runtime.calls == 4 * len(generation.tokens)
    assert generation.summary.recoveries == 2 * len(generation.tokens)


@pytest.mark.parametrize("harm", [fail, spoil])
def test_a_request_that_makes_passes_fail_takes_nobody_along(
    harm: Callable[[NDArray[np.float32]], None],
) -> None:
    """By exception or by logits that are no numbers: the others go on, and say what they should."""
    asker = Asker("hybrid")
    runtime = Harmful(harm, slots=3)
    engine = Engine(runtime, asker.drafter(PROMPTS), max_draft=4)
    prompts = [PROMPTS[0], [300, Harmful.token], PROMPTS[1], PROMPTS[2]]
    first, culprit, *others = run_all(engine, map(asker.request, prompts))
    assert culprit.state is GenerationState.FAILED
    assert culprit.error
    assert "3 times in a row" in culprit.error
    assert culprit.tokens == []
    for generation in (first, *others):
        assert generation.tokens == asker.says(generation.request.prompt)
    # The one pass that failed for all; from then on suspects play by themselves.
    assert first.summary.recoveries == 1
    assert culprit.summary.recoveries == 3


@pytest.mark.parametrize("kind", KINDS)
def test_a_refused_roll_back_costs_a_recovery_and_no_text(kind: str) -> None:
    """It counts as the round that it was, and as nobody else's trouble."""
    asker = Asker(kind)
    texts = [asker.says(prompt) for prompt in PROMPTS[:2]]
    recovered = 0
    for number in range(0, 30, 3):
        plan = {number, number + 1} if "snapshots" in kind else {number}
        engine, _ = engine_of(kind, asker.drafter(PROMPTS), slots=2, refuse_cut=plan)
        generations = run_all(engine, map(asker.request, PROMPTS[:2]))
        assert [g.tokens for g in generations] == texts
        for generation in generations:
            summary = generation.summary
            assert summary.passes == summary.counts.rounds
            assert summary.generated_tokens == summary.counts.accepted + summary.counts.rounds
            recovered += summary.recoveries
            assert summary.recoveries <= 1
    assert recovered > 0


@pytest.mark.parametrize("kind", KINDS)
def test_roll_backs_that_are_always_refused_end_in_plain_decoding(kind: str) -> None:
    """Each would cost the whole context; plain decoding needs none. Nobody fails for it."""
    asker = Asker(kind)
    engine, runtime = engine_of(kind, asker.drafter(PROMPTS), slots=4, refuse_cut=lambda _: True)
    generations = run_all(engine, map(asker.request, PROMPTS))
    for generation in generations:
        assert generation.tokens == asker.says(generation.request.prompt)
        assert generation.summary.recoveries == 1
    longest = max(len(prompt) for prompt in PROMPTS)
    assert runtime.tokens_evaluated <= 4 * (3 * (longest + 24) + 4 * 24)


def test_a_fork_that_is_refused_before_a_draft_costs_the_drafts() -> None:
    asker = Asker("hybrid")
    runtime = Refusing("hybrid", slots=2, **LANGUAGE)
    runtime.refuse = lambda source: source == 0
    engine = Engine(runtime, asker.drafter(PROMPTS), max_draft=4)
    first, second = run_all(engine, map(asker.request, PROMPTS[:2]))
    for generation in (first, second):
        assert generation.tokens == asker.says(generation.request.prompt)
        assert generation.summary.recoveries <= 1
    assert first.summary.recoveries == 1
    assert first.summary.counts.drafted == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_round_whose_roll_back_is_refused_is_told_at_once_and_in_full(kind: str) -> None:
    """Two tokens accepted, the third draft token rejected: all three arrive, marked as they are."""
    asker = Asker(kind)
    prompt = PROMPTS[1]
    wrong_at = len(prompt) + 2
    for refused in ((), {0, 1}):
        drafter = asker.drafter(PROMPTS, lambda position: position != wrong_at)
        engine, _ = engine_of(kind, drafter, refuse_cut=refused)
        deltas: list[Delta] = []
        generation = engine.run(asker.request(prompt), deltas.append)
        assert generation.summary.recoveries == len(refused) // 2
        assert deltas[0].tokens == asker.says(prompt)[:3]
        assert [span.drafted for span in deltas[0].spans] == [True, True, False]
        drafted = sum(span.drafted for delta in deltas for span in delta.spans)
        assert drafted == generation.summary.counts.accepted
