"""The memory after a round is the oracle's, bit for bit, on every kind of memory (theme A)."""

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.decoding import Feed, RollbackRefusedError, Round, Sequence, memory_for
from surefoot.decoding.memory import ForkedMemory
from surefoot.drafting.scripted import ScriptedDrafter
from surefoot.runtime.simulated import SimulatedRuntime
from tests.support.kinds import KINDS, simulated
from tests.support.oracle import Oracle
from tests.support.planned_drafters import FunctionDrafter
from tests.support.play import begin

PROMPT = [3, 1, 4, 1, 5]
VOCABULARY = 32


def assert_state_is_the_oracles(
    runtime: SimulatedRuntime, sequence: Sequence, oracle: Oracle
) -> None:
    """Compare what the memory holds, and the logits after the pending tokens."""
    absorbed = sequence.committed[: sequence.state_len]
    assert runtime.length(sequence.memory.id) == len(absorbed)
    assert runtime.state(sequence.memory.id) == oracle.state(absorbed)


def assert_next_logits_are_the_oracles(
    runtime: SimulatedRuntime, sequence: Sequence, oracle: Oracle
) -> None:
    """Decode what is pending, as the next round would. The sequence can't go on afterwards."""
    feed = Feed(sequence.memory.id, sequence.pending, sequence.state_len, outputs=1)
    logits = runtime.decode([feed])[0][0]
    assert np.array_equal(logits, oracle.logits(sequence.committed))


def draft_of(text: list[int], start: int, length: int, right: int) -> list[int]:
    """A draft at `start` of the whole text, of which exactly `right` tokens will be accepted."""
    draft = text[start : start + length]
    if right < length:
        draft[right] = (draft[right] + 1) % VOCABULARY
    return draft


def one_round(kind: str, length: int, right: int, *, lead: int = 0) -> None:
    """Play a round with a draft of which `right` tokens are accepted, and compare.

    Args:
        lead: so many plain rounds come first.
    """
    oracle = Oracle(kind, vocabulary_size=VOCABULARY)
    text = [*PROMPT, *oracle.text(PROMPT, 32)]
    runtime = simulated(kind, vocabulary_size=VOCABULARY)
    sequence = begin(runtime, PROMPT)
    draft = draft_of(text, len(PROMPT) + lead, length, right)
    drafter = ScriptedDrafter([*([()] * lead), draft])
    round_ = Round(runtime, drafter)
    for _ in range(lead + 1):
        outcome = round_.play([sequence])[0]
    assert (outcome.drafted, outcome.accepted) == (length, right)
    assert sequence.committed == text[: len(sequence.committed)]
    assert_state_is_the_oracles(runtime, sequence, oracle)
    assert_next_logits_are_the_oracles(runtime, sequence, oracle)


# Case A4: every draft length, every accepted count; the two ends by name.


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("length", range(1, 9))
def test_state_is_the_oracles_when_no_draft_token_is_accepted(kind: str, length: int) -> None:
    one_round(kind, length, right=0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("length", range(1, 9))
def test_state_is_the_oracles_when_all_draft_tokens_are_accepted(kind: str, length: int) -> None:
    one_round(kind, length, right=length)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lead", [0, 1, 3])
def test_state_is_the_oracles_for_every_accepted_count(kind: str, lead: int) -> None:
    for length in range(1, 9):
        for right in range(length + 1):
            one_round(kind, length, right, lead=lead)


@pytest.mark.parametrize("kind", KINDS)
def test_a_drafter_that_falls_silent_leaves_no_gap_in_the_state(kind: str) -> None:
    """Case A2: three right, none, three right, none."""
    oracle = Oracle(kind, vocabulary_size=VOCABULARY)
    text = [*PROMPT, *oracle.text(PROMPT, 32)]
    runtime = simulated(kind, vocabulary_size=VOCABULARY)
    sequence = begin(runtime, PROMPT)
    lengths = iter([3, 0, 3, 0])

    def draft(sequence: Sequence, _: int) -> list[int]:
        return text[(at := len(sequence.committed)) : at + next(lengths)]

    round_ = Round(runtime, FunctionDrafter(draft))
    for expected in (4, 1, 4, 1):
        assert len(round_.play([sequence])[0].tokens) == expected
        assert_state_is_the_oracles(runtime, sequence, oracle)
    assert_next_logits_are_the_oracles(runtime, sequence, oracle)


@pytest.mark.parametrize("kind", KINDS)
def test_a_drafter_that_is_always_wrong_leaves_no_trace(kind: str) -> None:
    """Case A3: a hundred rounds, each like a plain token."""
    oracle = Oracle(kind, vocabulary_size=VOCABULARY)
    text = [*PROMPT, *oracle.text(PROMPT, 120)]
    runtime = simulated(kind, vocabulary_size=VOCABULARY)
    sequence = begin(runtime, PROMPT)

    def wrong(sequence: Sequence, _: int) -> list[int]:
        length = 1 + len(sequence.committed) % 6
        return draft_of(text, len(sequence.committed), length, right=0)

    round_ = Round(runtime, FunctionDrafter(wrong))
    for _ in range(100):
        assert len(round_.play([sequence])[0].tokens) == 1
        assert sequence.state_len < len(sequence.committed)
        assert_state_is_the_oracles(runtime, sequence, oracle)
    assert sequence.committed == text[: len(PROMPT) + 100]
    assert sequence.counts.accepted == 0


@pytest.mark.parametrize("kind", ["recurrent", "hybrid", "recurrent-snapshots"])
def test_the_convolution_buffer_goes_back_with_the_rest(kind: str) -> None:
    """Case A13: compared apart, after each partial acceptance."""
    oracle = Oracle(kind, vocabulary_size=VOCABULARY)
    text = [*PROMPT, *oracle.text(PROMPT, 64)]
    runtime = simulated(kind, vocabulary_size=VOCABULARY)
    sequence = begin(runtime, PROMPT)
    round_ = Round(
        runtime,
        FunctionDrafter(lambda s, _: draft_of(text, len(s.committed), length=5, right=2)),
    )
    partial = 0
    for _ in range(12):
        partial += round_.play([sequence])[0].accepted == 2
        state: Any = runtime.state(sequence.memory.id)
        convolution = (state[1] if kind.startswith("hybrid") else state)[2]
        assert list(convolution) == sequence.committed[: sequence.state_len][-2:]
    assert partial >= 8


@pytest.mark.parametrize("kind", ["recurrent", "hybrid", "recurrent-snapshots"])
def test_the_spare_holds_all_that_was_absorbed_up_to_the_fork(kind: str) -> None:
    """Not only what a roll-back happens to need of it."""
    oracle = Oracle(kind, vocabulary_size=VOCABULARY)
    text = [*PROMPT, *oracle.text(PROMPT, 80)]
    runtime = simulated(kind, vocabulary_size=VOCABULARY)
    sequence = begin(runtime, PROMPT)
    memory = sequence.memory
    assert isinstance(memory, ForkedMemory)
    rights = iter([6, 2, 6, 0, 6, 6, 5, 6])
    round_ = Round(
        runtime,
        FunctionDrafter(lambda s, _: draft_of(text, len(s.committed), 6, right=next(rights))),
    )
    lengths = set()
    for _ in range(8):
        round_.play([sequence])
        assert runtime.state(1) == oracle.state(sequence.committed[: memory.fork_length])
        lengths.add(memory.fork_length)
    assert len(lengths) >= 4


# Cases A6 and A7: roll-backs beyond what a snapshot holds.


@pytest.mark.parametrize("kind", KINDS)
def test_undoing_a_whole_pass_is_right_or_refused(kind: str) -> None:
    """Case A6: decode three tokens, take all three back, decode another one."""
    oracle = Oracle(kind)
    runtime = simulated(kind)
    runtime.decode([Feed(0, [1, 2], 0, outputs=0)])
    runtime.decode([Feed(0, [3, 4, 5], 2, outputs=0)])
    if runtime.cut(0, 2):
        logits = runtime.decode([Feed(0, [6], 2, outputs=1)])[0][0]
        assert np.array_equal(logits, oracle.logits([1, 2, 6]))
    else:
        assert runtime.rollback.kind != "cut"
        assert runtime.state(0) == oracle.state([1, 2, 3, 4, 5])


@pytest.mark.parametrize("kind", KINDS)
def test_memory_that_undoes_a_whole_pass_says_where_it_stands(kind: str) -> None:
    """Case A6 again, through `Memory`: it goes back further rather than say yes wrongly."""
    oracle = Oracle(kind)
    runtime = simulated(kind)
    memory = memory_for(runtime, 0, 1)
    tokens = [1, 2, 3, 4, 5]
    for start, end in ((0, 2), (2, 5)):
        memory.brace()
        runtime.decode([Feed(0, tokens[start:end], start, outputs=0)])
        memory.absorbed(end - start)
    assert memory.settle(2)
    assert memory.length <= 2
    rest = [*tokens[memory.length : 2], 6]
    logits = runtime.decode([Feed(0, rest, memory.length, outputs=1)])[0][0]
    assert np.array_equal(logits, oracle.logits([1, 2, 6]))


@pytest.mark.parametrize("kind", KINDS)
def test_a_snapshot_is_never_taken_for_one_of_an_older_pass(kind: str) -> None:
    """Case A7: a pass of five, two single tokens, then three back."""
    oracle = Oracle(kind)
    tokens = [1, 2, 3, 4, 5, 6, 7, 8, 9]
    runtime = simulated(kind)
    memory = memory_for(runtime, 0, 1)
    for start, end in ((0, 2), (2, 7), (7, 8), (8, 9)):
        runtime.decode([Feed(0, tokens[start:end], start, outputs=0)])
        memory.absorbed(end - start)
    if runtime.rollback.kind != "cut":
        assert not runtime.cut(0, 6)
        assert runtime.state(0) == oracle.state(tokens)
    memory.settle(6)
    assert memory.length <= 6
    assert runtime.state(0) == oracle.state(tokens[: memory.length])


@settings(max_examples=200)
@given(kind=st.sampled_from(sorted(KINDS)), seed=st.integers(0, 2**32))
def test_any_mix_of_widths_and_depths_gives_the_oracles_state(kind: str, seed: int) -> None:
    """Case A7, fuzzed: rounds of any width, roll-backs of any depth, passes without drafts."""
    draws = random.Random(seed)
    oracle = Oracle(kind, vocabulary_size=VOCABULARY)
    runtime = simulated(kind, vocabulary_size=VOCABULARY)
    memory = memory_for(runtime, 0, 1)
    tokens: list[int] = []
    for _ in range(12):
        width = draws.randint(1, 9)
        new = [draws.randrange(VOCABULARY) for _ in range(width)]
        if draws.random() < 0.6:
            memory.brace()
        feed = [*tokens[memory.length :], *new]
        runtime.decode([Feed(0, feed, memory.length, outputs=1)])
        memory.absorbed(len(feed))
        tokens += new
        if draws.random() < 0.7:
            depth = draws.randint(0, min(len(tokens), draws.choice([3, 8, 40])))
            reach = memory.reach(len(tokens) - depth)
            try:
                undone = memory.settle(len(tokens) - depth)
            except RollbackRefusedError:
                assert kind == "windowed"
                memory.clear()
                tokens = []
                continue
            del tokens[len(tokens) - depth :]
            assert undone == (depth > 0)
            assert memory.length == reach <= len(tokens)
        assert runtime.length(0) == memory.length
        assert runtime.state(0) == oracle.state(tokens[: memory.length])


def test_windowed_memory_refuses_to_go_back_behind_its_window() -> None:
    """Old cells are gone for good: a refusal, never a yes with holes in it."""
    runtime = simulated("windowed", window=8, window_reserve=4)
    memory = memory_for(runtime, 0, 1)
    for position in range(40):
        runtime.decode([Feed(0, [position % 8], position, outputs=0)])
        memory.absorbed(1)
    state = runtime.state(0)
    with pytest.raises(RollbackRefusedError, match="40 tokens to 20"):
        memory.settle(20)
    assert (memory.length, runtime.length(0), runtime.state(0)) == (40, 40, state)
    memory.settle(36)
    oracle = Oracle("windowed", window=8)
    assert runtime.state(0) == oracle.state([position % 8 for position in range(36)])


# Next turns


@pytest.mark.parametrize("kind", KINDS)
def test_a_sequence_goes_on_from_a_partial_acceptance_with_another_history(kind: str) -> None:
    """Case A8 in decoding: a turn ends on a partial accept; the next one cuts two tokens more."""
    oracle = Oracle(kind, vocabulary_size=VOCABULARY)
    text = [*PROMPT, *oracle.text(PROMPT, 32)]
    runtime = simulated(kind, vocabulary_size=VOCABULARY)
    sequence = begin(runtime, PROMPT)
    right = FunctionDrafter(lambda s, _: draft_of(text, len(s.committed), length=6, right=4))
    for _ in range(3):
        Round(runtime, right).play([sequence])
    history = [*sequence.committed[:-2], 7, 8, 9]
    sequence.memory.settle(len(history) - 3)
    following = Sequence(history, sequence.memory)
    assert_state_is_the_oracles(runtime, following, oracle)
    before = runtime.tokens_evaluated
    assert_next_logits_are_the_oracles(runtime, following, oracle)
    assert runtime.tokens_evaluated - before <= len(history) - following.state_len
