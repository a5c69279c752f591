"""`draft-simple` on simulated models: what it costs, what it keeps, and what may go wrong."""

import logging
import sys
from collections.abc import Sequence as Series
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from surefoot.decoding import (
    GREEDY,
    Draft,
    Ending,
    Feed,
    RollbackRefusedError,
    Round,
    Sampling,
    Sequence,
)
from surefoot.drafting.draft_model import FAILURES_ALLOWED, DraftModel
from surefoot.drafting.minima import probability
from surefoot.engine import Engine, Generation, GenerationState, Request
from surefoot.runtime.simulated import SimulatedRuntime
from tests.drafting.texts import draft, sequence_of
from tests.support.fixed import FixedTarget
from tests.support.kinds import KINDS, simulated
from tests.support.oracle import Oracle
from tests.support.play import begin, generated, play_out

PROMPTS = [[1, 2, 3, 4, 5], [9, 8, 7], [20, 21, 22, 23, 24, 25, 26, 27], [3]]
WAYS = [GREEDY, Sampling(seed=3), Sampling(seed=5, temperature=1.5, top_k=0, top_p=1.0, min_p=0.0)]
LENGTH = 60

every_kind = pytest.mark.parametrize("kind", KINDS)


class Watched(DraftModel):
    """Looks into the draft model's memory after each proposal."""

    def __init__(self, kind: str, model: SimulatedRuntime, **settings: Any) -> None:
        super().__init__(model, **settings)
        self.model = model
        self.longest: list[int] = []
        self._oracle = Oracle(kind)

    def propose(self, wanted: Series[tuple[Sequence, int]]) -> list[Draft]:
        drafts = super().propose(wanted)
        for (sequence, most), proposed in zip(wanted, drafts, strict=True):
            assert len(proposed.tokens) <= most
            text = [*sequence.committed, *proposed.tokens]
            slot = sequence.memory.id
            absorbed = text[: self.model.length(slot)]
            assert len(absorbed) == self.model.length(slot)
            assert self.model.state(slot) == self._oracle.state(absorbed)
        self.longest.append(max(len(proposed.tokens) for proposed in drafts))
        return drafts


class Chances(FixedTarget):
    """A draft model with known probabilities: row `t` is the log-probabilities after token `t`."""

    slots = 1
    context_length = 1000
    batch_size = 100

    def __init__(self, table: Series[Series[float]]) -> None:
        super().__init__(np.log(np.array(table, dtype=np.float32)))


LOOP = [[0.6 if token == (last + 1) % 5 else 0.1 for token in range(5)] for last in range(5)]
"""Each of five tokens is followed by the next."""


def greedy(tokens: Series[int]) -> Sequence:
    sequence = sequence_of(tokens)
    sequence.sampling = GREEDY
    return sequence


def ending(runtime: SimulatedRuntime, length: int = LENGTH) -> Ending:
    return Ending(runtime.tokenizer.end_of_generation, max_tokens=length)


def start(target: SimulatedRuntime, sampling: Sampling, *, max_draft: int = 16) -> list[Sequence]:
    """A sequence in each slot of a target."""
    return [
        begin(
            target,
            PROMPTS[slot],
            slot=slot,
            slots=target.slots,
            sampling=sampling,
            ending=ending(target),
            max_draft=max_draft,
        )
        for slot in range(target.slots)
    ]


# What it proposes


@every_kind
@pytest.mark.parametrize("sampling", WAYS)
def test_a_draft_model_equal_to_the_target_is_always_right(kind: str, sampling: Sampling) -> None:
    target = simulated(kind, slots=4)
    sequences = start(target, sampling)
    play_out(target, sequences, DraftModel(simulated(kind, slots=4), n_max=5))
    for sequence in sequences:
        counts = sequence.counts
        assert counts.drafted == counts.accepted > 0
        assert sequence.committed[sequence.prompt_length :] == Oracle(kind).text_to_end(
            PROMPTS[sequence.memory.id], LENGTH, sampling
        )


@every_kind
@pytest.mark.parametrize("sampling", WAYS)
def test_the_text_is_the_targets_whatever_kind_of_memory_drafts(
    kind: str, sampling: Sampling
) -> None:
    for drafting in [*KINDS, "rigid"]:
        target = simulated(kind, slots=2)
        sequences = start(target, sampling)
        play_out(target, sequences, DraftModel(simulated(drafting, slots=2), n_max=4))
        for sequence in sequences:
            prompt = PROMPTS[sequence.memory.id]
            assert generated(sequence) == Oracle(kind).text_to_end(prompt, LENGTH, sampling)
            assert sequence.counts.drafted > 0


def test_it_draws_with_the_sequences_own_noise_and_parameters() -> None:
    drafts = set()
    for sampling in [*WAYS, Sampling(seed=4), Sampling(seed=3, temperature=1.5)]:
        sequence = sequence_of(PROMPTS[0])
        sequence.sampling = sampling
        proposed = draft(DraftModel(simulated("attention"), n_max=8), sequence)
        assert proposed == Oracle("attention").text(PROMPTS[0], 8, sampling)
        drafts.add(tuple(proposed))
    assert len(drafts) == 5


def test_a_draft_has_n_max_tokens_and_no_more_than_asked_for() -> None:
    drafter = DraftModel(simulated("hybrid"), n_max=6)
    sequence = sequence_of(PROMPTS[0])
    assert len(draft(drafter, sequence)) == 6
    sequence.committed.append(1)
    assert len(draft(drafter, sequence, most=2)) == 2


def test_a_draft_below_n_min_is_not_used_and_not_begun_where_there_is_no_room() -> None:
    model = simulated("hybrid")
    drafter = DraftModel(model, n_max=6, n_min=3)
    sequence = sequence_of(PROMPTS[0])
    assert draft(drafter, sequence, most=2) == []
    assert model.passes == 0
    assert len(draft(drafter, sequence, most=3)) == 3


def test_p_min_ends_a_draft_at_the_first_unlikely_token() -> None:
    """Case K5. Tokens follow each other with falling certainty: 0, 1, 2, 3, then 4 is a guess."""
    chain = [
        [0.01, 0.96, 0.01, 0.01, 0.01],
        [0.05, 0.05, 0.80, 0.05, 0.05],
        [0.10, 0.10, 0.10, 0.60, 0.10],
        [0.15, 0.15, 0.15, 0.15, 0.40],
        [0.20, 0.30, 0.20, 0.15, 0.15],
    ]
    expected = {0.0: [1, 2, 3, 4], 0.5: [1, 2, 3], 0.7: [1, 2], 0.9: [1], 0.97: []}
    for p_min, tokens in expected.items():
        assert draft(DraftModel(Chances(chain), n_max=4, p_min=p_min), greedy([0])) == tokens
    assert draft(DraftModel(Chances(chain), n_max=4, p_min=0.7, n_min=3), greedy([0])) == []


def test_a_probability_is_that_among_all_tokens_however_far_the_logits_lie_apart() -> None:
    logits = np.array([200.0, 199.0, -200.0], dtype=np.float32)
    assert probability(logits, 0) == pytest.approx(1 / (1 + np.exp(-1)))
    assert probability(logits, 2) == 0


def test_a_draft_ends_with_the_token_that_ends_the_request() -> None:
    for ends in (Ending(frozenset({3})), Ending(stop_tokens=frozenset({3}))):
        sequence = greedy([0])
        sequence.ending = ends
        assert draft(DraftModel(Chances(LOOP), n_max=8), sequence) == [1, 2, 3]


# What it costs


@every_kind
@pytest.mark.parametrize("sampling", WAYS)
def test_a_draft_costs_one_pass_for_each_of_its_tokens(kind: str, sampling: Sampling) -> None:
    """Right drafts and, from a model that speaks another language, wrong ones."""
    for language in (0, 1):
        target, model = simulated(kind, end_rate=0.0), simulated(kind, seed=language, end_rate=0.0)
        (sequence,) = start(target, sampling)
        play_out(target, [sequence], DraftModel(model, n_max=4))
        counts = sequence.counts
        assert model.passes == counts.drafted > 40
        assert target.passes == counts.rounds + 1
        assert (counts.rollbacks > 10) == (language == 1)


@every_kind
def test_sequences_share_the_passes(kind: str) -> None:
    target, model = simulated(kind, slots=4), simulated(kind, slots=4)
    drafter = Watched(kind, model, n_max=4)
    play_out(target, start(target, WAYS[1]), drafter)
    assert model.passes == sum(drafter.longest)


def test_sequences_that_stop_early_drop_out() -> None:
    model = simulated("attention", slots=2)
    drafter = DraftModel(model, n_max=8)
    sequences = [sequence_of(prompt) for prompt in PROMPTS[:2]]
    sequences[1].memory.id = 1
    drafts = drafter.propose([(sequences[0], 2), (sequences[1], 7)])
    assert [len(proposed.tokens) for proposed in drafts] == [2, 7]
    assert model.passes == 7
    assert model.tokens_evaluated == len(PROMPTS[0]) + 1 + len(PROMPTS[1]) + 6


@every_kind
def test_a_long_prompt_is_absorbed_in_chunks_one_a_round(kind: str) -> None:
    prompt = [1 + i * i % 50 for i in range(70)]
    target, model = simulated(kind), simulated(kind, batch_size=20)
    sequence = begin(target, prompt, ending=Ending(max_tokens=20))
    drafter = Watched(kind, model, n_max=4)
    rounds = play_out(target, [sequence], drafter)
    assert [outcome.drafted for (outcome,) in rounds[:5]] == [0, 0, 0, 4, 4]
    assert model.passes == sequence.counts.drafted + 3
    assert sequence.counts.drafted == sequence.counts.accepted


def test_nobody_waits_for_anothers_long_prompt() -> None:
    model = simulated("hybrid", slots=3, batch_size=20)
    drafter = DraftModel(model, n_max=4)
    long, short, other = (sequence_of(range(60)), sequence_of([1, 2]), sequence_of(range(50)))
    for slot, sequence in enumerate((long, short, other)):
        sequence.memory.id = slot
    for _ in range(6):
        before = model.passes
        drafts = drafter.propose([(sequence, 4) for sequence in (long, short, other)])
        assert len(drafts[1].tokens) == 4
        assert model.passes == before + 4
        for sequence, proposed in zip((long, short, other), drafts, strict=True):
            sequence.committed += [*proposed.tokens, 7]
    assert [len(proposed.tokens) for proposed in drafts] == [0, 4, 4]
    lengths = [model.length(slot) for slot in range(3)]
    assert lengths[0] > 20


# What it keeps


@every_kind
@pytest.mark.parametrize("sampling", WAYS)
def test_its_memory_holds_what_the_text_says_after_every_round(
    kind: str, sampling: Sampling
) -> None:
    """The target speaks another language, so that most drafts are rejected somewhere."""
    target = simulated(kind, slots=4, seed=1)
    sequences = start(target, sampling)
    play_out(target, sequences, Watched(kind, simulated(kind, slots=4), n_max=5))
    assert sum(sequence.counts.rollbacks for sequence in sequences) > 20


@every_kind
def test_accepted_drafts_stay_absorbed_where_a_tail_can_be_cut(kind: str) -> None:
    target, model = simulated(kind), simulated(kind)
    (sequence,) = start(target, GREEDY)
    play_out(target, [sequence], DraftModel(model, n_max=4))
    again = model.tokens_evaluated - len(sequence.committed)
    assert again <= 0, "a draft that is right throughout is never undone, on any memory"


@every_kind
def test_a_pause_of_50_rounds_costs_one_pass_and_no_acceptance(kind: str) -> None:
    """Case I4."""
    target, model = simulated(kind), simulated(kind)
    sequence = begin(target, PROMPTS[0], sampling=WAYS[1], ending=Ending(max_tokens=120))
    drafter = Watched(kind, model, n_max=4)
    rounds = Round(target, drafter)
    for paused in [False] * 4 + [True] * 50 + [False] * 4:
        sequence.max_draft = 0 if paused else 4
        rounds.play([sequence])
    assert sequence.counts.drafted == sequence.counts.accepted == model.passes == 32


def run(engine: Engine, prompt: Series[int], *, max_tokens: int = 40) -> Generation:
    return engine.run(Request(tuple(prompt), GREEDY, max_tokens=max_tokens))


@every_kind
def test_every_request_on_a_slot_is_drafted_for_alike(kind: str) -> None:
    """Cases I1, I2 and C7."""
    engine = Engine(simulated(kind), Watched(kind, simulated(kind), n_max=4), max_draft=4)
    for prompt in (*PROMPTS, *PROMPTS, PROMPTS[0], PROMPTS[0]):
        counts = run(engine, prompt).summary.counts
        assert counts.drafted == counts.accepted > 0


@every_kind
def test_the_next_turn_is_drafted_for_from_what_is_there(kind: str) -> None:
    """Case I3: a prefix that the target has cached is not absorbed anew by the draft model."""
    target, model = simulated(kind, end_rate=0.0), simulated(kind, end_rate=0.0)
    engine = Engine(target, DraftModel(model, n_max=4), max_draft=4)
    first = run(engine, PROMPTS[0])
    before = model.tokens_evaluated
    turn = [*PROMPTS[0], *first.tokens, 11, 12, 13]
    second = run(engine, turn)
    assert second.summary.cached_tokens > 0
    assert second.summary.counts.accepted == second.summary.counts.drafted > 0
    absorbed = model.tokens_evaluated - before
    assert absorbed <= len(second.tokens) + 3 + 2 * 4


@every_kind
def test_a_request_after_a_cancelled_one_is_drafted_for_like_a_fresh_one(kind: str) -> None:
    drafter = Watched(kind, simulated(kind), n_max=4)
    engine = Engine(simulated(kind), drafter, max_draft=4)
    cancelled = engine.submit(Request(tuple(PROMPTS[1]), GREEDY), lambda _: None)
    for _ in range(4):
        engine.step()
    cancelled.cancelled = True
    for prompt in (PROMPTS[1], PROMPTS[2]):
        counts = run(engine, prompt).summary.counts
        assert counts.drafted == counts.accepted > 0
    assert cancelled.state is GenerationState.CANCELLED


@every_kind
def test_drafting_goes_on_when_the_target_had_to_begin_again(kind: str) -> None:
    target = simulated(kind, fail_decode={3, 6})
    engine = Engine(target, Watched(kind, simulated(kind), n_max=4), max_draft=4)
    generation = run(engine, PROMPTS[0])
    assert generation.summary.recoveries == 2
    assert generation.summary.counts.drafted == generation.summary.counts.accepted > 0
    assert generation.tokens == Oracle(kind).text_to_end(PROMPTS[0], 40, GREEDY)


def test_what_another_drafter_left_in_the_model_is_cleared_away() -> None:
    model = simulated("hybrid")
    for prompt in PROMPTS:
        drafter = Watched("hybrid", model, n_max=4)
        assert draft(drafter, greedy(prompt)) == Oracle("hybrid").text(prompt, 4)
        assert drafter.failures == 0


def test_a_forgotten_sequence_is_let_go_of() -> None:
    drafter = DraftModel(simulated("hybrid"))
    sequence = sequence_of(PROMPTS[0])
    holders = sys.getrefcount(sequence)
    draft(drafter, sequence)
    drafter.forget(sequence)
    drafter.forget(sequence)
    drafter.forget(sequence_of([1]))
    assert sys.getrefcount(sequence) == holders


def test_forgetting_a_sequence_does_not_disturb_who_came_after_it() -> None:
    model = simulated("attention")
    drafter = DraftModel(model)
    first, second = greedy(PROMPTS[0]), greedy(PROMPTS[1])
    draft(drafter, first)
    draft(drafter, second)
    drafter.forget(first)
    second.committed += Oracle("attention").text(PROMPTS[1], 3)
    before = model.tokens_evaluated
    assert draft(drafter, second, most=1)
    assert model.tokens_evaluated == before + 1


# What may go wrong


@every_kind
@pytest.mark.parametrize("sampling", WAYS)
def test_failing_passes_of_the_draft_model_cost_drafts_and_nothing_else(
    kind: str, sampling: Sampling
) -> None:
    target = simulated(kind, slots=4, end_rate=0.0)
    model = simulated(kind, slots=4, end_rate=0.0, fail_decode=0.1, refuse_cut=0.1)
    sequences = start(target, sampling)
    drafter = DraftModel(model, n_max=3)
    rounds = play_out(target, sequences, drafter)
    assert target.passes == len(rounds) + 3, "the fourth prompt has nothing to absorb"
    assert drafter.failures > 0
    assert drafter.failures == sum(s.counts.drafter_errors for s in sequences)
    for sequence in sequences:
        prompt = PROMPTS[sequence.memory.id]
        oracle = Oracle(kind, end_rate=0.0)
        assert generated(sequence) == oracle.text_to_end(prompt, LENGTH, sampling)
        assert sequence.counts.drafted == sequence.counts.accepted


def test_after_a_failure_the_sequence_has_no_draft_in_this_round_and_one_in_the_next(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = simulated("hybrid", fail_decode={2})
    drafter = Watched("hybrid", model, n_max=4)
    sequence = greedy(PROMPTS[0])
    assert draft(drafter, sequence) == []
    assert drafter.failures == 1
    assert model.length(0) == 0
    assert draft(drafter, sequence) == Oracle("hybrid").text(PROMPTS[0], 4)
    assert caplog.messages == ["draft-simple: pass 2 failed, as planned; 1 draft(s) are lost"]


def test_a_request_that_can_not_be_drafted_for_is_left_alone_after_some_failures() -> None:
    broken = simulated("hybrid", fail_decode=lambda _: True)
    drafter = DraftModel(broken)
    for request in (1, 2):
        sequence = sequence_of(PROMPTS[0])
        for _ in range(10):
            assert draft(drafter, sequence) == []
            sequence.committed.append(1)
        assert broken.calls == request * (FAILURES_ALLOWED + 1)
        assert sequence.counts.drafter_errors == FAILURES_ALLOWED + 1
        reason = sequence.counts.by_drafter["draft-simple"].failure
        assert reason == f"pass {broken.calls - 1} failed, as planned (3 times in a row)"


def test_one_sequences_failure_takes_no_drafts_from_those_that_were_done() -> None:
    model = simulated("attention", slots=2, fail_decode={2})
    drafter = DraftModel(model, n_max=8)
    sequences = [sequence_of(prompt) for prompt in PROMPTS[:2]]
    sequences[1].memory.id = 1
    drafts = drafter.propose([(sequences[0], 2), (sequences[1], 7)])
    assert [len(proposed.tokens) for proposed in drafts] == [2, 0]


def test_logits_that_are_no_numbers_are_a_failure() -> None:
    class Broken(Chances):
        def decode(self, feeds: Series[Feed]) -> list[NDArray[np.float32]]:
            return [np.full_like(rows, np.nan) for rows in super().decode(feeds)]

    drafter = DraftModel(Broken(LOOP))
    assert draft(drafter, sequence_of([0])) == []
    assert drafter.failures == 1


def test_a_refused_fork_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    model = simulated("hybrid")

    def refuse(*_: int) -> None:
        raise RollbackRefusedError("no forks today")

    monkeypatch.setattr(model, "fork", refuse)
    drafter = DraftModel(model)
    assert draft(drafter, sequence_of([0])) == []
    assert drafter.failures == 1
    assert model.length(0) == 0


def test_a_window_that_has_moved_on_makes_a_new_request_begin_anew() -> None:
    """It is no failure: the slot's last text is of no use to this one."""
    model = simulated("windowed", refuse_cut={0})
    drafter = Watched("windowed", model, n_max=4)
    draft(drafter, sequence_of([1, 2, 3, 4, 5]))
    assert len(draft(drafter, sequence_of([1, 2, 3, 9]))) == 4
    assert drafter.failures == 0


def test_without_any_way_back_it_drafts_one_token_a_round() -> None:
    target, model = simulated("attention"), simulated("rigid")
    (sequence,) = start(target, GREEDY)
    rounds = play_out(target, [sequence], DraftModel(model, n_max=4))
    assert {outcome.drafted for (outcome,) in rounds[:-1]} == {1}
    assert model.tokens_evaluated <= len(sequence.committed)


@every_kind
def test_drafts_stop_with_one_warning_where_the_draft_models_context_ends(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Case I8: a draft context of 32 tokens, a target that goes on to 128."""
    model = simulated(kind, context_length=32, end_rate=0.0)
    drafter = Watched(kind, model, n_max=4)
    for _ in range(2):
        target = simulated(kind, end_rate=0.0)
        sequence = begin(target, PROMPTS[0], ending=Ending(max_tokens=123))
        rounds = play_out(target, [sequence], drafter)
        assert sum(outcome.drafted for (outcome,) in rounds[:6]) > 15
        assert sum(outcome.drafted for (outcome,) in rounds[7:]) == 0
        reason = "the draft model's context of 32 tokens is full"
        assert sequence.counts.by_drafter["draft-simple"].failure == reason
        drafter.forget(sequence)
    assert drafter.failures == 0
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "context of 32 tokens is full" in caplog.text


def test_tokens_that_only_the_draft_model_knows_end_a_draft() -> None:
    assert draft(DraftModel(Chances(LOOP), n_max=8, shared=4), greedy([1])) == [2, 3]
    assert draft(DraftModel(Chances(LOOP), n_max=8, shared=4), greedy([3])) == []


def test_a_text_with_a_token_that_only_the_target_knows_gets_no_more_drafts() -> None:
    small = simulated("hybrid", vocabulary_size=64)
    drafter = DraftModel(small)
    sequence = sequence_of(PROMPTS[0])
    assert draft(drafter, sequence)
    sequence.committed += [64, 1]
    before = small.passes
    for _ in range(3):
        assert draft(drafter, sequence) == []
        sequence.committed.append(1)
    assert small.passes == before
    assert drafter.failures == 0
    reason = "the text has token 64, which the draft model does not know"
    assert sequence.counts.by_drafter["draft-simple"].failure == reason
    assert draft(drafter, sequence_of(PROMPTS[0]))
