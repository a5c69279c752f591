"""The simulated runtime itself: the tests of decoding are worth as much as its honesty."""

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.decoding import GREEDY, DecodeError, Ending, Feed, choose
from surefoot.runtime.base import Runtime
from surefoot.runtime.simulated import (
    MisuseError,
    NearTie,
    SimulatedRuntime,
    SimulatedTokenizer,
)
from tests.support.kinds import KINDS, simulated
from tests.support.oracle import Oracle
from tests.support.play import begin, play_out

TOKENS = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8]
SIZES = [4, 5, 8, 12, 13, 31, 32, 64, 299, 300, 512, 8000]


def rows_of(runtime: SimulatedRuntime, tokens: list[int], widths: list[int]) -> list[Any]:
    """The logits after each token, decoded in passes of these widths."""
    rows: list[Any] = []
    for width in widths:
        start = len(rows)
        feed = Feed(0, tokens[start : start + width], start, outputs=width)
        rows += [row.copy() for row in runtime.decode([feed])[0]]
    return rows


@pytest.mark.parametrize("kind", KINDS)
def test_without_noise_logits_are_bit_equal_however_tokens_are_cut_into_passes(kind: str) -> None:
    expected = rows_of(simulated(kind), TOKENS, [1] * 12)
    for widths in ([12], [2] * 6, [5, 7], [1, 11], [3, 1, 8]):
        rows = rows_of(simulated(kind), TOKENS, widths)
        assert all(np.array_equal(a, b) for a, b in zip(rows, expected, strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_one_seed_is_one_model(kind: str) -> None:
    first = rows_of(simulated(kind, seed=1), TOKENS, [12])
    again = rows_of(simulated(kind, seed=1), TOKENS, [12])
    other = rows_of(simulated(kind, seed=2), TOKENS, [12])
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("kind", KINDS)
def test_logits_depend_on_every_token_in_sight(kind: str) -> None:
    last = rows_of(simulated(kind), TOKENS, [12])[-1]
    for at in range(12):
        changed = [*TOKENS]
        changed[at] += 1
        row = rows_of(simulated(kind), changed, [12])[-1]
        in_sight = kind != "windowed" or at >= 12 - KINDS["windowed"]["window"]
        assert np.array_equal(row, last) == (not in_sight)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_lent_until_the_next_pass(kind: str) -> None:
    runtime = simulated(kind)
    row = runtime.decode([Feed(0, [1], 0, outputs=1)])[0][0]
    with pytest.raises(ValueError, match="read-only"):
        row[0] = 1.0
    assert np.isfinite(row).all()
    runtime.decode([Feed(0, [2], 1, outputs=1)])
    assert np.isnan(row).all()


# Memory


@pytest.mark.parametrize("kind", KINDS)
def test_a_fork_goes_its_own_way(kind: str) -> None:
    """Copy-on-write in both directions."""
    oracle = Oracle(kind)
    runtime = simulated(kind, slots=2)
    runtime.decode([Feed(0, [1, 2, 3], 0, outputs=0)])
    runtime.fork(0, 2, 0, 3)
    a = runtime.decode([Feed(0, [4], 3, outputs=1)])[0][0].copy()
    b = runtime.decode([Feed(2, [5, 6], 3, outputs=1)])[0][0].copy()
    assert np.array_equal(a, oracle.logits([1, 2, 3, 4]))
    assert np.array_equal(b, oracle.logits([1, 2, 3, 5, 6]))
    runtime.drop(0)
    c = runtime.decode([Feed(2, [7], 5, outputs=1)])[0][0]
    assert np.array_equal(c, oracle.logits([1, 2, 3, 5, 6, 7]))


def test_a_fork_of_too_small_a_range_leaves_a_hole_that_shows() -> None:
    """Attention cells outside the range are not shared; the logits tell."""
    runtime = simulated("hybrid")
    runtime.decode([Feed(0, [1, 2, 3, 4], 0, outputs=0)])
    runtime.fork(0, 1, 2, 4)
    row = runtime.decode([Feed(1, [5], 4, outputs=1)])[0][0]
    assert not np.array_equal(row, Oracle("hybrid").logits([1, 2, 3, 4, 5]))


def test_a_stale_cell_in_a_fork_shows() -> None:
    """What the copy held at a position stays there, beside what it is given."""
    runtime = simulated("attention")
    runtime.decode([Feed(1, [1, 2, 9], 0, outputs=0)])
    runtime.decode([Feed(0, [1, 2, 3], 0, outputs=0)])
    runtime.fork(0, 1, 2, 3)
    row = runtime.decode([Feed(1, [4], 3, outputs=1)])[0][0]
    assert not np.array_equal(row, Oracle("attention").logits([1, 2, 3, 4]))


def test_a_recurrent_state_left_behind_shows() -> None:
    """Case A6: attention cut and the advanced recurrent state kept: the lengths part."""
    runtime = simulated("hybrid")
    runtime.decode([Feed(0, [1, 2, 3], 0, outputs=0)])
    assert not runtime.cut(0, 2)
    with pytest.raises(MisuseError, match="holds 3 tokens, not 2"):
        runtime.decode([Feed(0, [4], 2, outputs=1)])


@pytest.mark.parametrize("kind", ["recurrent", "hybrid"])
@pytest.mark.parametrize("snapshots", [1, 2, 4])
def test_snapshots_reach_as_far_as_they_say(kind: str, snapshots: int) -> None:
    for width in range(1, 8):
        for undone in range(1, width + 2):
            runtime = simulated(kind, snapshots=snapshots)
            runtime.decode([Feed(0, [1, 2], 0, outputs=0)])
            runtime.decode([Feed(0, [3, 4, 5, 6, 7, 8, 9][:width], 2, outputs=0)])
            reachable = undone <= snapshots and undone < width
            assert runtime.cut(0, 2 + width - undone) == reachable
            if reachable:
                expected = [1, 2, 3, 4, 5, 6, 7, 8, 9][: 2 + width - undone]
                assert runtime.state(0) == Oracle(kind).state(expected)


def test_a_fork_right_after_a_snapshot_cut_takes_the_state_from_before_it() -> None:
    """As libllama does; so a memory must not fork there. One pass later it may."""
    runtime = simulated("recurrent", snapshots=2)
    runtime.decode([Feed(0, [1, 2, 3, 4], 0, outputs=0)])
    assert runtime.cut(0, 3)
    runtime.fork(0, 1, 0, 3)
    assert (runtime.length(0), runtime.length(1)) == (3, 4)
    runtime.decode([Feed(0, [5], 3, outputs=0)])
    runtime.fork(0, 1, 0, 4)
    assert runtime.state(0) == runtime.state(1) == Oracle("recurrent").state([1, 2, 3, 5])


def test_windowed_cells_vanish_unless_they_are_shared() -> None:
    def fill(runtime: SimulatedRuntime) -> None:
        for position in range(8, 40):
            runtime.decode([Feed(0, [1], position, outputs=0)])

    lonely, shared = (simulated("windowed", window=4, window_reserve=2) for _ in range(2))
    for runtime in (lonely, shared):
        runtime.decode([Feed(0, [1] * 8, 0, outputs=0)])
    shared.fork(0, 1, 0, 8)
    fill(lonely)
    fill(shared)
    assert not lonely.cut(0, 8)
    assert shared.cut(0, 8)
    assert lonely.cut(0, 38)


# Misuse


@pytest.mark.parametrize(
    ("feeds", "problem"),
    [
        ([], "different sequences"),
        ([Feed(0, [1], 0, 0), Feed(0, [1], 1, 0)], "different sequences"),
        ([Feed(0, [1], 3, 0)], "holds 0 tokens, not 3"),
        ([Feed(2, [1], 0, 0)], "no such sequence"),
        ([Feed(0, [64], 0, 0)], "outside the vocabulary"),
        ([Feed(0, [], 0, 0)], "0 outputs from 0"),
        ([Feed(0, [1], 0, 2)], "2 outputs from 1"),
        ([Feed(0, [1] * 9, 0, 0)], "more than 8"),
    ],
)
def test_misuse_raises(feeds: list[Feed], problem: str) -> None:
    runtime = simulated("hybrid", batch_size=8)
    with pytest.raises(MisuseError, match=problem):
        runtime.decode(feeds)
    assert runtime.passes == 0


def test_a_closed_runtime_is_closed() -> None:
    runtime = simulated("hybrid")
    runtime.close()
    runtime.close()
    with pytest.raises(MisuseError, match="closed"):
        runtime.decode([Feed(0, [1], 0, 1)])


def test_a_full_context_fails_the_pass() -> None:
    runtime = simulated("attention", context_length=4)
    runtime.decode([Feed(0, [1, 2, 3], 0, 0)])
    with pytest.raises(DecodeError, match="full"):
        runtime.decode([Feed(0, [1, 2], 3, 0)])


# Noise


@given(seed=st.integers(0, 2**32))
def test_logits_move_by_no_more_than_the_stated_noise(seed: int) -> None:
    draws = random.Random(seed)
    kind = draws.choice(sorted(KINDS))
    noise = {"width_noise": 0.2, "layout_noise": 0.1, "seed": seed}
    stated = simulated(kind, **noise).logit_noise
    assert stated == pytest.approx(0.3)
    plain = rows_of(simulated(kind, **noise), TOKENS, [1] * 12)
    runtime = simulated(kind, **noise)
    for _ in range(draws.randint(0, 5)):
        runtime.drop(0)
    widths: list[int] = []
    while sum(widths) < 12:
        widths.append(draws.randint(1, 12 - sum(widths)))
    other = rows_of(runtime, TOKENS, widths)
    largest = max(float(np.abs(a - b).max()) for a, b in zip(plain, other, strict=True))
    assert largest <= stated + 1e-5


@pytest.mark.parametrize("kind", KINDS)
def test_inside_a_width_class_logits_are_bit_equal(kind: str) -> None:
    classes = {"width_noise": 0.5, "width_classes": (1, 2, 8)}
    by_width = {
        width: rows_of(simulated(kind, **classes), TOKENS[:width], [width])[0]
        for width in range(1, 12)
    }
    same = [
        {width for width in by_width if np.array_equal(by_width[width], by_width[one])}
        for one in (1, 2, 8)
    ]
    assert same == [{1}, {2, 3, 4, 5, 6, 7}, {8, 9, 10, 11}]


@pytest.mark.parametrize("kind", KINDS)
def test_layout_counts_after_a_roll_back_and_never_before(kind: str) -> None:
    plain, moved = (simulated(kind, layout_noise=0.5) for _ in range(2))
    assert np.array_equal(rows_of(plain, TOKENS, [12]), rows_of(moved, TOKENS, [1] * 12))
    plain, moved = (simulated(kind, layout_noise=0.5) for _ in range(2))
    for runtime in (plain, moved):
        runtime.decode([Feed(0, [1, 2], 0, outputs=0)])
    moved.fork(0, 1, 0, 2)
    moved.decode([Feed(0, [9, 9], 2, outputs=0)])
    moved.drop(0)
    moved.fork(1, 0, 0, 2)
    rows = [runtime.decode([Feed(0, [3], 2, outputs=1)])[0][0] for runtime in (plain, moved)]
    assert not np.array_equal(*rows)
    assert plain.state(0) == moved.state(0)


def test_a_planted_tie_is_a_near_tie_and_nothing_else_comes_close() -> None:
    runtime = simulated("hybrid", width_noise=0.01, near_ties=[NearTie(12, (20, 21))])
    row = rows_of(runtime, TOKENS, [12])[-1]
    assert {20, 21} == set(np.argsort(row)[-2:].tolist())
    assert choose(row, GREEDY, 12, runtime.logit_noise).near_tie
    others = np.delete(row, [20, 21])
    assert row[[20, 21]].min() > others.max() + 1


def test_a_planted_tie_falls_otherwise_in_each_new_layout() -> None:
    runtime = simulated("recurrent", layout_noise=0.1, near_ties=[NearTie(3, (20, 21))])
    winners = []
    for _ in range(6):
        runtime.drop(0)
        runtime.decode([Feed(0, [1, 2], 0, outputs=0)])
        winners.append(int(runtime.decode([Feed(0, [3], 2, outputs=1)])[0][0].argmax()))
    assert winners == [20, 21] * 3


# Faults


@pytest.mark.parametrize("kind", KINDS)
def test_a_failed_pass_leaves_its_sequences_wrong_and_others_alone(kind: str) -> None:
    oracle = Oracle(kind)
    runtime = simulated(kind, slots=2, fail_decode={2})
    runtime.decode([Feed(0, [1, 2, 3], 0, 0)])
    runtime.decode([Feed(1, [1, 2, 3], 0, 0)])
    with pytest.raises(DecodeError, match="as planned"):
        runtime.decode([Feed(0, [4, 5], 3, 1)])
    assert runtime.state(0) not in (oracle.state([1, 2, 3]), oracle.state([1, 2, 3, 4, 5]))
    row = runtime.decode([Feed(1, [4], 3, 1)])[0][0]
    assert np.array_equal(row, oracle.logits([1, 2, 3, 4]))
    runtime.drop(0)
    row = runtime.decode([Feed(0, [1, 2], 0, 1)])[0][0]
    assert np.array_equal(row, oracle.logits([1, 2]))


def test_faults_can_be_a_function_a_set_or_a_probability() -> None:
    def failures(**plan: Any) -> list[int]:
        runtime = simulated("attention", **plan)
        failed = []
        for number in range(40):
            try:
                runtime.drop(0)
                runtime.decode([Feed(0, [1], 0, 0)])
            except DecodeError:
                failed.append(number)
        return failed

    assert failures(fail_decode=lambda number: number % 10 == 3) == [3, 13, 23, 33]
    assert failures(fail_decode=[5, 7]) == [5, 7]
    assert failures(fail_decode=0.0) == failures() == []
    assert 5 < len(failures(fail_decode=0.4, seed=1)) < 30
    assert failures(fail_decode=0.4, seed=1) == failures(fail_decode=0.4, seed=1)


def test_graph_runs_count_the_pieces_of_unequal_passes() -> None:
    """Recurrent memory needs a run for each width among the sequences; attention needs one."""
    for kind, runs in (("hybrid", 2), ("attention", 1)):
        runtime = simulated(kind, slots=3)
        runtime.decode([Feed(0, [1, 2], 0, 0), Feed(1, [1, 2], 0, 0), Feed(2, [1], 0, 0)])
        assert (runtime.passes, runtime.graph_runs) == (1, runs)


# Language and tokenizer


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", KINDS)
def test_texts_run_in_loops_and_end_at_times(kind: str, size: int) -> None:
    """So that n-gram drafts have something to find, and ends come without limits."""
    ended, repeated, total = 0, 0, 0
    for seed in range(12):
        runtime = simulated(kind, vocabulary_size=size, seed=seed)
        ends = runtime.tokenizer.end_of_generation
        sequence = begin(runtime, [0, 1], ending=Ending(ends, max_tokens=200))
        play_out(runtime, [sequence])
        ended += sequence.committed[-1] in ends
        seen = set()
        for at in range(len(sequence.committed) - 3):
            gram = tuple(sequence.committed[at : at + 4])
            repeated += gram in seen
            seen.add(gram)
            total += 1
    assert ended >= 4
    assert 0.1 < repeated / total < 0.95


@pytest.mark.parametrize("size", SIZES)
def test_every_plain_token_has_a_text_of_its_own(size: int) -> None:
    tokenizer = SimulatedTokenizer(size)
    pieces = [tokenizer.piece(token) for token in range(size) if token not in tokenizer.control]
    assert len(set(pieces)) == len(pieces)
    assert b"" not in pieces
    assert all(tokenizer.piece(token) == b"" for token in tokenizer.control)


@given(text=st.text(), size=st.sampled_from([300, 512, 8000]))
def test_any_text_goes_through_tokens_and_back(text: str, size: int) -> None:
    tokenizer = SimulatedTokenizer(size)
    tokens = tokenizer.encode(text, special=False)
    assert b"".join(map(tokenizer.piece, tokens)) == text.encode()


def test_a_character_can_lie_in_two_tokens() -> None:
    for size in (16, 64, 512):
        tokenizer = SimulatedTokenizer(size)
        first, second = tokenizer.encode("é")
        assert tokenizer.piece(first) + tokenizer.piece(second) == "é".encode()
        assert tokenizer.successors == {first: second}


def test_special_tokens_are_taken_as_such_only_if_wanted() -> None:
    tokenizer = SimulatedTokenizer(512)
    text = "<|im_start|>user\nhi<|im_end|>"
    tokens = tokenizer.encode(text)
    assert (tokens[0], tokens[-1]) == (510, 511)
    assert tokenizer.end_of_generation == {511}
    assert not {510, 511} & set(tokenizer.encode(text, special=False))


def test_it_is_a_runtime() -> None:
    runtime: Runtime = simulated("hybrid-snapshots")
    assert runtime.info.memory == "hybrid with 2 snapshots"
    assert "im_start" in (runtime.info.chat_template or "")
    assert runtime.rollback.kind == "snapshots"
    assert simulated("windowed").rollback.kind == "cut"
    assert simulated("rigid").rollback.kind == "none"
    assert simulated("hybrid").rollback.kind == "fork"
