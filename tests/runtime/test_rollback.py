"""What a context is found able to undo, and that forks and cuts keep to it."""

import random
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Series
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from surefoot import models
from surefoot.decoding import Feed, Rollback, RollbackRefusedError
from surefoot.runtime.libllama import LibllamaRuntime, LoadSettings, binding, load
from tests.conftest import FAMILY_FILES
from tests.support.random_models import FAMILIES, random_model

ATTENTION = {"llama", "gemma3"}
WITH_SNAPSHOTS = {"qwen35", "qwen35moe", "nemotron_h", "lfm2"}


def open_family(family: str, **settings: int) -> LibllamaRuntime:
    path = models.TARGET if family == "trained" else random_model(family, FAMILY_FILES)
    options: dict[str, Any] = {"context_length": 256, "threads": 1} | settings
    return load(LoadSettings(path, **options))


def tokens_for(runtime: LibllamaRuntime, count: int, seed: int = 0) -> list[int]:
    return random.Random(seed).choices(range(runtime.vocabulary_size), k=count)


def decode(
    runtime: LibllamaRuntime, sequence: int, tokens: Series[int], start: int
) -> NDArray[np.float32]:
    """Absorb tokens in one pass; the logits of the last, shape (1, vocabulary)."""
    return runtime.decode([Feed(sequence, tokens, start, outputs=1)])[0].copy()


def straight(
    runtime: LibllamaRuntime, tokens: Series[int], widths: Series[int]
) -> NDArray[np.float32]:
    """Logits after tokens decoded in passes of such widths, with nothing undone in between."""
    runtime.drop(0)
    start = 0
    for width in widths:
        row = decode(runtime, 0, tokens[start : start + width], start)
        start += width
    runtime.drop(0)
    return row


# What is found


@pytest.mark.parametrize("family", FAMILIES)
def test_each_family_is_found_able_to_do_what_its_memory_allows(family: str) -> None:
    with open_family(family) as runtime:
        cut = None if family in ATTENTION else 0
        assert runtime.rollback == Rollback(cut=cut, fork=True)


@pytest.mark.parametrize("family", [f for f in FAMILIES if f not in ATTENTION])
def test_snapshots_are_found_where_they_work(family: str) -> None:
    with open_family(family, snapshots=4) as runtime:
        cut = 4 if family in WITH_SNAPSHOTS else 0
        assert runtime.rollback == Rollback(cut=cut, fork=True)


def test_the_trained_models_are_found_able_to_fork_or_to_cut() -> None:
    with open_family("trained") as runtime:
        assert runtime.rollback.kind == "fork"
    with open_family("trained", snapshots=4) as runtime:
        assert (runtime.rollback.kind, runtime.rollback.cut) == ("snapshots", 4)
    with load(LoadSettings(models.DRAFT, context_length=256, threads=1)) as runtime:
        assert runtime.rollback.kind == "cut"


def test_a_cut_that_changes_what_follows_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that says it cut, and did something else."""
    real = binding.llama_memory_seq_rm

    def cuts_one_too_many_and_adds_one(memory: int, sequence: int, start: int, end: int) -> bool:
        if start > 1:
            real(memory, sequence, 0, 1)
        return real(memory, sequence, start, end)

    monkeypatch.setattr(binding, "llama_memory_seq_rm", cuts_one_too_many_and_adds_one)
    with open_family("llama") as runtime:
        assert runtime.rollback == Rollback(cut=0, fork=False)


def test_a_cut_that_is_refused_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    real = binding.llama_memory_seq_rm

    def refuses(memory: int, sequence: int, start: int, end: int) -> bool:
        return start <= 0 and real(memory, sequence, start, end)

    monkeypatch.setattr(binding, "llama_memory_seq_rm", refuses)
    with open_family("llama") as runtime:
        assert runtime.rollback.kind == "none"


def test_a_fork_that_does_nothing_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binding, "llama_memory_seq_cp", lambda *_: None)
    with open_family("mamba2") as runtime:
        assert runtime.rollback == Rollback(cut=0, fork=False)


def test_finding_out_leaves_the_memory_empty_and_the_counts_at_nought() -> None:
    with open_family("jamba", slots=2) as runtime:
        assert (runtime.passes, runtime.graph_runs) == (0, 0)
        for sequence in range(4):
            decode(runtime, sequence, [1, 2], 0)


# Forks


@pytest.mark.parametrize("family", [*FAMILIES, "trained"])
def test_a_rejected_draft_leaves_no_bit_behind(family: str) -> None:
    with open_family(family) as runtime:
        tokens = tokens_for(runtime, 40)
        decode(runtime, 0, tokens[:10], 0)
        followed, length = 0, 10
        for draft_width in range(2, 8):
            runtime.fork(0, 1, followed, length)
            followed = length
            decode(runtime, 0, tokens_for(runtime, draft_width, seed=draft_width), length)
            runtime.fork(1, 0, length - 1, length)
            assert runtime.cut(0, length)
            row = decode(runtime, 0, tokens[length : length + 3], length)
            length += 3
        assert np.array_equal(row, straight(runtime, tokens, [10, 3, 3, 3, 3, 3, 3]))


@pytest.mark.parametrize("family", ["trained", "rwkv7", "gemma3"])
def test_a_fork_goes_its_own_way(family: str) -> None:
    with open_family(family) as runtime:
        tokens = tokens_for(runtime, 20)
        decode(runtime, 0, tokens[:12], 0)
        runtime.fork(0, 1, 0, 12)
        decode(runtime, 0, tokens_for(runtime, 4, seed=9), 12)
        row = decode(runtime, 1, tokens[12:16], 12)
        assert np.array_equal(row, straight(runtime, tokens, [12, 4]))


def test_a_spare_that_follows_does_not_fill_a_sliding_window_up() -> None:
    """Cells shared with a spare are never freed, so the window's cache must hold all tokens."""
    with open_family("lfm2", context_length=1500, micro_batch_size=32, longest_draft=8) as runtime:
        tokens = tokens_for(runtime, 1500)
        decode(runtime, 0, tokens[:8], 0)
        followed = 0
        for length in range(8, 1400, 16):
            runtime.fork(0, 1, followed, length)
            followed = length
            decode(runtime, 0, [1, 2, 3], length)
            runtime.fork(1, 0, length - 1, length)
            assert runtime.cut(0, length)
            decode(runtime, 0, tokens[length : length + 16], length)


def test_what_is_not_there_can_not_be_forked() -> None:
    with open_family("llama") as runtime:
        decode(runtime, 0, [1, 2, 3], 0)
        with pytest.raises(RollbackRefusedError, match="holds 3"):
            runtime.fork(0, 1, 0, 4)


@pytest.mark.parametrize(
    "call",
    [lambda r: r.fork(0, 2, 0, 1), lambda r: r.cut(-1, 1), lambda r: r.drop(2)],
    ids=["fork", "cut", "drop"],
)
def test_unknown_sequences_are_refused(call: Callable[[LibllamaRuntime], object]) -> None:
    with open_family("llama") as runtime, pytest.raises(ValueError, match="no sequence"):
        call(runtime)


# Cuts


def test_attention_is_cut_anywhere() -> None:
    with open_family("llama") as runtime:
        tokens = tokens_for(runtime, 30)
        decode(runtime, 0, tokens[:10], 0)
        decode(runtime, 0, tokens_for(runtime, 12, seed=1), 10)
        assert runtime.cut(0, 10)
        row = decode(runtime, 0, tokens[10:20], 10)
        assert np.array_equal(row, straight(runtime, tokens, [10, 10]))


@pytest.mark.parametrize("family", ["llama", "trained", "mamba2"])
def test_a_cut_to_nothing_empties_the_sequence(family: str) -> None:
    with open_family(family) as runtime:
        tokens = tokens_for(runtime, 5)
        decode(runtime, 0, tokens_for(runtime, 5, seed=1), 0)
        assert runtime.cut(0, 0)
        row = decode(runtime, 0, tokens, 0)
        assert np.array_equal(row, straight(runtime, tokens, [5]))


@pytest.mark.parametrize("family", ["llama", "trained"])
def test_a_sequence_can_not_be_cut_to_more_than_it_has(family: str) -> None:
    with open_family(family) as runtime:
        decode(runtime, 0, [1, 2, 3], 0)
        assert runtime.cut(0, 3)
        assert not runtime.cut(0, 4)


@pytest.mark.parametrize("family", ["trained", "mamba2", "jamba"])
def test_recurrent_memory_refuses_a_cut_and_is_not_changed(family: str) -> None:
    with open_family(family) as runtime:
        tokens = tokens_for(runtime, 12)
        decode(runtime, 0, tokens[:8], 0)
        assert not runtime.cut(0, 7)
        row = decode(runtime, 0, tokens[8:], 8)
        assert np.array_equal(row, straight(runtime, tokens, [8, 4]))


def test_a_sliding_window_is_cut_only_where_it_is_still_whole() -> None:
    with open_family("gemma3", context_length=600, micro_batch_size=32) as runtime:
        tokens = tokens_for(runtime, 500)
        for start in range(0, 500, 20):
            decode(runtime, 0, tokens[start : start + 20], start)
        assert not runtime.cut(0, 100)
        assert runtime.cut(0, 480)
        row = decode(runtime, 0, tokens[480:], 480)
        assert np.array_equal(row, straight(runtime, tokens, [20] * 25))


# Snapshots, and where libllama grants what it can't do


@pytest.fixture(scope="module", params=["trained", "nemotron_h", "lfm2"])
def recurrent(request: pytest.FixtureRequest) -> Iterator[LibllamaRuntime]:
    with open_family(request.param, snapshots=4, slots=3) as runtime:
        yield runtime


@pytest.fixture
def snapshots(recurrent: LibllamaRuntime) -> Iterator[LibllamaRuntime]:
    yield recurrent
    for sequence in range(6):
        recurrent.drop(sequence)


@pytest.mark.parametrize("undone", [1, 2, 3, 4])
def test_a_short_tail_of_the_last_pass_is_cut(snapshots: LibllamaRuntime, undone: int) -> None:
    tokens = tokens_for(snapshots, 20)
    decode(snapshots, 1, tokens[:6], 0)
    wrong = tokens_for(snapshots, undone, seed=1)
    decode(snapshots, 1, tokens[6:9] + wrong, 6)
    assert snapshots.cut(1, 9)
    row = decode(snapshots, 1, tokens[9:12], 9)
    assert np.abs(row - straight(snapshots, tokens, [6, 3, 3])).max() <= snapshots.logit_noise


@pytest.mark.parametrize("undone", [2, 3, 5])
def test_snapshots_reach_no_further_than_the_last_pass(
    snapshots: LibllamaRuntime, undone: int
) -> None:
    tokens = tokens_for(snapshots, 12)
    decode(snapshots, 0, tokens[:6], 0)
    decode(snapshots, 0, tokens[6:8], 6)
    assert not snapshots.cut(0, 8 - undone)
    row = decode(snapshots, 0, tokens[8:], 8)
    assert np.array_equal(row, straight(snapshots, tokens, [6, 2, 4]))


def test_snapshots_are_used_once(snapshots: LibllamaRuntime) -> None:
    decode(snapshots, 0, tokens_for(snapshots, 8), 0)
    assert snapshots.cut(0, 6)
    assert not snapshots.cut(0, 5)


def test_a_sequence_is_not_forked_between_its_cut_and_its_next_pass(
    snapshots: LibllamaRuntime,
) -> None:
    """The copy would get the state from before the cut."""
    decode(snapshots, 1, tokens_for(snapshots, 8), 0)
    decode(snapshots, 0, tokens_for(snapshots, 8), 0)
    assert snapshots.cut(0, 6)
    with pytest.raises(RollbackRefusedError, match="must be in a pass"):
        snapshots.fork(0, 3, 0, 6)
    with pytest.raises(RollbackRefusedError, match="must be in a pass"):
        snapshots.fork(1, 0, 0, 6)
    decode(snapshots, 0, [1, 2], 6)
    snapshots.fork(0, 3, 0, 8)


def test_a_shared_state_is_not_cut(snapshots: LibllamaRuntime) -> None:
    """The spare would be cut with it."""
    decode(snapshots, 0, tokens_for(snapshots, 8), 0)
    snapshots.fork(0, 3, 0, 8)
    assert not snapshots.cut(0, 6)


def test_snapshots_that_a_later_piece_of_the_pass_may_have_moved_are_not_used(
    snapshots: LibllamaRuntime,
) -> None:
    """Widths 9, 4, 9: the second piece gathers the first and third state over the second's."""
    tokens = [tokens_for(snapshots, 20, seed=i) for i in range(3)]
    for i in range(3):
        decode(snapshots, i, tokens[i][:5], 0)
    snapshots.decode([Feed(i, tokens[i][5 : 5 + w], 5, 0) for i, w in enumerate((9, 4, 9))])
    assert [snapshots.cut(i, 5 + w - 2) for i, w in enumerate((9, 4, 9))] == [True, False, True]
    rows = [decode(snapshots, i, tokens[i][12:16], 12) for i in (0, 2)]
    for i, row in zip((0, 2), rows, strict=True):
        expected = straight(snapshots, tokens[i], [5, 7, 4])
        assert np.abs(row - expected).max() <= snapshots.logit_noise
