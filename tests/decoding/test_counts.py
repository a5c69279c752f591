"""Counts add up, whatever happens (case O5); a failed pass counts nothing and commits nothing."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.decoding import (
    GREEDY,
    DecodeError,
    Ending,
    RollbackRefusedError,
    Round,
    Sampling,
    Sequence,
    absorb,
    memory_for,
)
from surefoot.drafting.scripted import ScriptedDrafter
from tests.support.kinds import KINDS, simulated
from tests.support.oracle import Oracle
from tests.support.planned_drafters import OracleDrafter, RandomDrafter
from tests.support.play import begin, generated, play_out

PROMPT = [3, 1, 4]


def assert_counts_add_up(sequence: Sequence) -> None:
    counts = sequence.counts
    ended_inside_the_draft = counts.accepted + counts.rounds - sequence.generated
    assert ended_inside_the_draft in (0, 1)
    assert sum(counts.accepted_by_position) == counts.accepted
    assert sum(counts.drafted_by_position) == counts.drafted
    assert len(counts.accepted_by_position) == len(counts.drafted_by_position)
    assert sorted(counts.accepted_by_position, reverse=True) == counts.accepted_by_position
    assert counts.rollbacks <= counts.rounds
    if counts.drafted:
        assert counts.acceptance == counts.accepted / counts.drafted
    else:
        assert counts.acceptance is None


@settings(max_examples=150)
@given(
    kind=st.sampled_from(sorted(KINDS)),
    seed=st.integers(0, 2**32),
    depth=st.integers(0, 8),
    most=st.integers(1, 40),
)
def test_counts_add_up(kind: str, seed: int, depth: int, most: int) -> None:
    """generated = accepted + one for each round, but for a last round that ended in its draft."""
    draws = random.Random(seed)
    sampling = Sampling(seed=seed, temperature=draws.choice([0.0, 1.0]))
    shape = {"vocabulary_size": 12, "end_rate": 1 / 16}
    text = Oracle(kind, **shape).text(PROMPT, most + depth, sampling)
    runtime = simulated(kind, **shape)
    ending = Ending(runtime.tokenizer.end_of_generation, max_tokens=most)
    sequence = begin(runtime, PROMPT, sampling=sampling, ending=ending, max_draft=depth)
    drafter = OracleDrafter({0: [*PROMPT, *text]}, 12, right=lambda _: draws.random() < 0.8)
    rounds = play_out(runtime, [sequence], drafter)
    assert_counts_add_up(sequence)
    outcomes = [outcome for (outcome,) in rounds]
    assert sequence.counts.rounds == len(outcomes)
    assert sequence.counts.drafted == sum(outcome.drafted for outcome in outcomes)
    assert sequence.counts.accepted == sum(outcome.accepted for outcome in outcomes)
    assert sequence.generated == sum(len(outcome.tokens) for outcome in outcomes)
    unused = [outcome for outcome in outcomes if len(outcome.tokens) <= outcome.drafted]
    assert sequence.counts.rollbacks == len(unused)
    bonus_missed = outcomes[-1].accepted == len(outcomes[-1].tokens)
    expected = sequence.counts.accepted + sequence.counts.rounds - bonus_missed
    assert sequence.generated == expected


def test_the_drafter_hears_what_was_committed_of_its_draft() -> None:
    """Not what was accepted behind the end."""
    text = Oracle("hybrid").text(PROMPT, 12)
    runtime = simulated("hybrid")
    sequence = begin(runtime, PROMPT, ending=Ending(frozenset({text[6]})))
    drafter = ScriptedDrafter([[*text[:2], 63], text[3:]])
    play_out(runtime, [sequence], drafter)
    assert [accepted for _, accepted in drafter.heard] == [2, 1 + text[3:].index(text[6])]


def test_mean_length_is_one_more_than_accepted_per_round() -> None:
    text = Oracle("attention").text(PROMPT, 40)
    runtime = simulated("attention")
    sequence = begin(runtime, PROMPT, ending=Ending(max_tokens=30), max_draft=4)
    assert sequence.counts.mean_length is None
    play_out(runtime, [sequence], OracleDrafter({0: [*PROMPT, *text]}, 64))
    assert sequence.counts.mean_length == 5.0


# Faults


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fails", [1, 2, 3, 5])
def test_a_failed_pass_commits_and_counts_nothing(kind: str, fails: int) -> None:
    oracle = Oracle(kind)
    prompts = [PROMPT, [9, 8]]
    texts = [[*prompt, *oracle.text(prompt, 24)] for prompt in prompts]
    runtime = simulated(kind, slots=2, fail_decode={2 + fails})
    sequences = [
        begin(runtime, prompt, slot=slot, slots=2, ending=Ending(max_tokens=20), max_draft=3)
        for slot, prompt in enumerate(prompts)
    ]
    round_ = Round(runtime, RandomDrafter(1, 64))
    for _ in range(fails):
        round_.play(sequences)
    before = [(len(s.committed), s.counts.rounds, s.counts.drafted) for s in sequences]
    with pytest.raises(DecodeError):
        round_.play(sequences)
    assert [(len(s.committed), s.counts.rounds, s.counts.drafted) for s in sequences] == before
    # The journal is all there is to know: clear, absorb, go on.
    for sequence in sequences:
        sequence.memory.clear()
        absorb(runtime, sequence, most=512)
    play_out(runtime, sequences, RandomDrafter(2, 64))
    for sequence, text in zip(sequences, texts, strict=True):
        assert generated(sequence) == text[sequence.prompt_length :][:20]
        assert_counts_add_up(sequence)


@settings(max_examples=60)
@given(
    kind=st.sampled_from(sorted(KINDS)),
    seed=st.integers(0, 2**32),
    probability=st.sampled_from([0.05, 0.2, 0.4]),
)
def test_passes_that_fail_at_random_change_no_text(
    kind: str, seed: int, probability: float
) -> None:
    text = Oracle(kind, seed=seed).text(PROMPT, 20)
    runtime = simulated(kind, seed=seed, fail_decode=probability)
    sequence = Sequence(
        committed=[*PROMPT],
        memory=memory_for(runtime, 0, 1),
        sampling=GREEDY,
        ending=Ending(max_tokens=20),
        max_draft=4,
    )
    round_ = Round(runtime, RandomDrafter(seed, 64))
    while sequence.finish is None:
        try:
            absorb(runtime, sequence, most=512)
            round_.play([sequence])
        except DecodeError:
            sequence.memory.clear()
    assert generated(sequence) == text
    assert_counts_add_up(sequence)


@pytest.mark.parametrize("kind", KINDS)
def test_a_refused_roll_back_raises_and_loses_no_token_of_any_sequence(kind: str) -> None:
    """It never reports success; what the pass decided stands and is counted, for all sequences."""
    prompts = [PROMPT, [9, 8], [7]]
    texts = [[*prompt, *Oracle(kind).text(prompt, 24)] for prompt in prompts]
    # A refused snapshot has the fork behind it; that must be refused, too.
    runtime = simulated(kind, slots=3, refuse_cut={0, 1} if "snapshots" in kind else {0})
    sequences = [
        begin(runtime, prompt, slot=slot, slots=3, ending=Ending(max_tokens=20), max_draft=2)
        for slot, prompt in enumerate(prompts)
    ]
    wrong = OracleDrafter(dict(enumerate(texts)), 64, right=lambda _: False)
    round_ = Round(runtime, wrong)
    with pytest.raises(RollbackRefusedError, match="sequence 0"):
        round_.play(sequences)
    for sequence, text in zip(sequences, texts, strict=True):
        assert generated(sequence) == text[sequence.prompt_length :][:1]
        assert sequence.counts.rounds == 1
        assert_counts_add_up(sequence)
        sequence.memory.clear()
        absorb(runtime, sequence, most=512)
    play_out(runtime, sequences, wrong)
    for sequence, text in zip(sequences, texts, strict=True):
        assert generated(sequence) == text[sequence.prompt_length :][:20]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "snapshots" in kind])
def test_a_refused_snapshot_costs_accepted_tokens_nothing_but_a_second_decoding(kind: str) -> None:
    """The fork stands behind it."""
    text = [*PROMPT, *Oracle(kind).text(PROMPT, 30)]
    runtime = simulated(kind, refuse_cut={0, 2, 3, 6})
    sequence = begin(runtime, PROMPT, ending=Ending(max_tokens=20), max_draft=2)
    drafter = OracleDrafter({0: text}, 64, right=lambda position: position % 3 != 0)
    rounds = []
    try:
        rounds = play_out(runtime, [sequence], drafter)
    except RollbackRefusedError:
        pytest.fail("the fork should have stood in")
    assert sequence.committed == text[: len(PROMPT) + 20]
    assert runtime.passes == len(rounds) + 1
