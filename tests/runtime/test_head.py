"""Hidden rows of a model that libllama runs, and the heads that go on from them."""

from collections.abc import Iterator
from collections.abc import Sequence as Series
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from surefoot import models
from surefoot.decoding import DecodeError, Feed, Head, HeadFeed, HeadOutput, Rows
from surefoot.runtime.base import ModelLoadError
from surefoot.runtime.libllama import (
    LibllamaRuntime,
    LoadSettings,
    MtpHead,
    NoHeadError,
    RuntimeClosedError,
    binding,
    load,
    open_head,
)
from surefoot.runtime.libllama.head_file import HeadFile
from tests.conftest import FAMILY_FILES
from tests.support import split_heads
from tests.support.random_models import random_model

BLOCK = 8
"""The embedded model's layer that is a head."""


@pytest.fixture(scope="module")
def target() -> Iterator[LibllamaRuntime]:
    settings = LoadSettings(models.TARGET, slots=4, context_length=256, threads=1, mtp=True)
    with load(settings) as runtime:
        yield runtime


@pytest.fixture(scope="module")
def head(target: LibllamaRuntime) -> MtpHead:
    return open_head(target)


@pytest.fixture(autouse=True)
def empty(target: LibllamaRuntime, head: MtpHead) -> Iterator[None]:
    yield
    for sequence in range(2 * target.slots):
        target.drop(sequence)
    for sequence in range(target.slots):
        head.cut(sequence, 0)


class Watcher:
    """Keeps a copy of the rows of each pass, and what they were given as."""

    def __init__(self) -> None:
        self.passes: list[list[NDArray[np.float32]]] = []
        self.given: Series[Rows] = []

    def __call__(self, feeds: Series[Feed], rows: Series[Rows]) -> None:
        assert [len(given) for given in rows] == [len(feed.tokens) for feed in feeds]
        self.given = rows
        self.passes.append([given.copy() for given in rows])


def tokens_for(sequence: int, count: int) -> list[int]:
    return [(31 * i + 977 * sequence) % 8000 for i in range(count)]


def rows_for(seed: int, count: int, size: int = 256) -> Rows:
    return np.random.default_rng(seed).standard_normal((count, size), np.float32)


def output_of(head: MtpHead, feed: HeadFeed, number: int = 0) -> HeadOutput:
    (output,) = head.decode([feed], number)
    assert output is not None
    return HeadOutput(output.logits.copy(), output.row.copy())


# Rows of the target


@pytest.mark.parametrize("snapshots", [0, 4])
@pytest.mark.parametrize("widths", [{1: 4, 0: 9, 2: 1}, {0: 3, 3: 3}, {2: 7, 1: 1, 3: 2, 0: 1}])
def test_each_token_of_each_sequence_gets_its_own_row(
    snapshots: int, widths: dict[int, int]
) -> None:
    """In whatever order the feeds come, and into whatever pieces libllama cuts the pass."""
    settings = LoadSettings(
        models.TARGET, slots=4, context_length=64, threads=1, snapshots=snapshots
    )
    with load(settings) as runtime:
        watcher = Watcher()
        runtime.watch(watcher)
        feeds = [
            Feed(sequence, tokens_for(sequence, width), 0, outputs=(sequence * 2) % (width + 1))
            for sequence, width in widths.items()
        ]
        runs = runtime.graph_runs
        runtime.decode(feeds)
        assert (runtime.graph_runs - runs > 1) == (len(set(widths.values())) > 1)
        together = watcher.passes[0]
        for feed, rows in zip(feeds, together, strict=True):
            runtime.drop(feed.sequence)
            runtime.decode([feed._replace(outputs=0)])
            (alone,) = watcher.passes[-1]
            assert alone.shape == (len(feed.tokens), 256)
            assert np.abs(rows - alone).max() < 0.3
            others = [np.abs(rows[-1] - row).max() for row in alone[:-1]]
            assert all(difference > 3 for difference in others)


def test_rows_do_not_depend_on_which_tokens_want_logits(target: LibllamaRuntime) -> None:
    watcher = Watcher()
    target.watch(watcher)
    tokens = tokens_for(0, 6)
    for outputs in (0, 1, 3, 6, 2, 0):
        logits = target.decode([Feed(0, tokens, 0, outputs)])
        assert logits[0].shape == (outputs, 8192)
        target.drop(0)
    target.unwatch(watcher)
    assert all(np.array_equal(rows[0], watcher.passes[0][0]) for rows in watcher.passes)


def test_rows_can_not_be_written_to(target: LibllamaRuntime) -> None:
    watcher = Watcher()
    target.watch(watcher)
    target.decode([Feed(0, [5, 6], 0, 1)])
    target.unwatch(watcher)
    with pytest.raises(ValueError, match="read-only"):
        watcher.given[0][0, 0] = 1.0


def test_watching_does_not_change_logits(target: LibllamaRuntime) -> None:
    feed = Feed(0, tokens_for(0, 5), 0, outputs=2)
    before = target.decode([feed])[0].copy()
    target.drop(0)
    watcher = Watcher()
    target.watch(watcher)
    during = target.decode([feed])[0].copy()
    target.drop(0)
    target.unwatch(watcher)
    after = target.decode([feed])[0].copy()
    assert np.array_equal(before, during)
    assert np.array_equal(before, after)


def test_libllama_hands_out_rows_only_while_somebody_watches(
    target: LibllamaRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(
        binding, "llama_set_embeddings_nextn", lambda _context, value, _masked: asked.append(value)
    )
    monkeypatch.setattr(binding, "llama_get_embeddings_nextn", None)
    target.decode([Feed(0, [5], 0, 1)])
    first, second = Watcher(), Watcher()
    for watcher in (first, second):
        target.watch(watcher)
    for watcher in (first, second, second):
        target.unwatch(watcher)
    target.decode([Feed(0, [5], 1, 1)])
    assert asked == [True, True, True, False, False]
    assert first.passes == []


# What a head does


def test_a_head_is_a_head(head: MtpHead) -> None:
    protocol: Head = head
    assert (protocol.heads, protocol.vocabulary_size) == (1, 8192)
    assert protocol.room >= 256


def test_sequences_share_a_pass_and_each_is_as_alone(head: MtpHead) -> None:
    alone = []
    for sequence, width in ((0, 3), (1, 1), (2, 5)):
        feed = HeadFeed(sequence, tokens_for(sequence, width), rows_for(sequence, width), 0, True)
        alone.append((feed, output_of(head, feed)))
        head.cut(sequence, 0)
    before = head.passes
    order = [2, 0, 1]
    outputs = head.decode([alone[i][0]._replace(output=i != 1) for i in order])
    assert head.passes == before + 1
    for i, output in zip(order, outputs, strict=True):
        if i == 1:
            assert output is None
        else:
            assert output is not None
            assert np.abs(output.logits - alone[i][1].logits).max() < 0.3
            assert np.abs(output.row - alone[i][1].row).max() < 0.3
        assert head.length(i) == len(alone[i][0].tokens)


def test_what_is_cut_off_leaves_no_trace(head: MtpHead) -> None:
    tokens, rows = tokens_for(0, 8), rows_for(0, 8)
    straight = output_of(head, HeadFeed(0, tokens, rows, 0, True))
    head.cut(0, 0)
    head.decode([HeadFeed(0, tokens[:5], rows[:5], 0, False)])
    head.decode([HeadFeed(0, [9, 9, 9], rows_for(9, 3), 5, True)])
    head.cut(0, 5)
    assert head.length(0) == 5
    head.cut(0, 7)
    assert head.length(0) == 5
    again = output_of(head, HeadFeed(0, tokens[5:], rows[5:], 5, True))
    assert np.abs(again.logits - straight.logits).max() < 0.3
    assert np.abs(again.row - straight.row).max() < 0.3


def test_the_row_that_comes_out_is_that_of_the_last_token(head: MtpHead) -> None:
    """libllama's own way to ask for rows of outputs gives that of the first one here."""
    tokens, rows = tokens_for(0, 4), rows_for(0, 4)
    together = output_of(head, HeadFeed(0, tokens, rows, 0, True))
    head.cut(0, 0)
    single = [
        output_of(head, HeadFeed(0, tokens[i : i + 1], rows[i : i + 1], i, True)) for i in range(4)
    ]
    assert np.abs(together.row - single[3].row).max() < 0.3
    assert np.abs(together.row - single[0].row).max() > 1


@pytest.mark.parametrize(
    ("feeds", "message"),
    [
        ([HeadFeed(4, [1], rows_for(0, 1), 0, True)], "sequence 4"),
        ([HeadFeed(-1, [1], rows_for(0, 1), 0, True)], "sequence -1"),
        ([HeadFeed(0, [], rows_for(0, 0), 0, False)], "0 tokens"),
        ([HeadFeed(0, [1], rows_for(0, 1), 3, True)], "its memory holds 0"),
        ([HeadFeed(0, [1, 2], rows_for(0, 1), 0, True)], r"rows of shape \(1, 256\)"),
        ([HeadFeed(0, [1], rows_for(0, 1, 255), 0, True)], r"rows of shape \(1, 255\)"),
        ([HeadFeed(0, [8192], rows_for(0, 1), 0, True)], "token id 8192"),
        ([HeadFeed(0, [1] * 400, rows_for(0, 400), 0, True)], "would grow to 400"),
        ([HeadFeed(0, [1], rows_for(0, 1), 0, True)] * 2, "there twice"),
        ([], "0 tokens in one pass"),
    ],
)
def test_a_pass_beyond_the_limits_is_refused(
    head: MtpHead, feeds: list[HeadFeed], message: str
) -> None:
    """libllama would abort the process over some of these."""
    before = head.passes
    with pytest.raises(DecodeError, match=message):
        head.decode(feeds)
    with pytest.raises(DecodeError, match="no head 1"):
        head.decode([HeadFeed(0, [1], rows_for(0, 1), 0, True)], 1)
    assert head.passes == before
    assert head.length(0) == 0


def test_a_head_is_closed_with_its_target_or_before() -> None:
    settings = LoadSettings(models.TARGET, context_length=64, threads=1, mtp=True)
    feed = HeadFeed(0, [1], rows_for(0, 1), 0, True)
    runtime = load(settings)
    first, second = open_head(runtime), open_head(runtime)
    first.close()
    first.close()
    assert second.decode([feed])[0] is not None
    runtime.close()
    runtime.close()
    for head in (first, second):
        head.close()
        with pytest.raises(RuntimeClosedError):
            head.decode([feed])
        with pytest.raises(RuntimeClosedError):
            head.cut(0, 0)
    with pytest.raises(RuntimeClosedError):
        runtime.watch(Watcher())


# Several heads


@pytest.mark.parametrize(("family", "heads"), [("hy_v3", 2), ("mimo2", 3)])
def test_several_heads_have_memories_of_their_own(family: str, heads: int) -> None:
    path = random_model(family, FAMILY_FILES)
    settings = LoadSettings(path, slots=2, context_length=64, threads=1, mtp=True)
    with load(settings) as runtime:
        head = open_head(runtime)
        assert head.heads == heads
        tokens, rows = [3, 50, 7, 9, 100, 2], rows_for(1, 6, 64)
        feed = HeadFeed(1, tokens, rows, 0, True)
        alone = []
        for number in range(heads):
            alone.append(output_of(head, feed, number))
            head.cut(1, 0, number)
        for one, other in pairwise(alone):
            assert np.abs(one.logits - other.logits).max() > 0.5
            assert np.abs(one.row - other.row).max() > 0.5
        # Now each goes its own pace, beside another sequence.
        for number in range(heads):
            head.decode(
                [
                    HeadFeed(0, [5, 6], rows_for(7, 2, 64), 0, False),
                    HeadFeed(1, tokens[: number + 1], rows[: number + 1], 0, False),
                ],
                number,
            )
        for number in reversed(range(heads)):
            assert head.length(1, number) == number + 1
            rest = HeadFeed(1, tokens[number + 1 :], rows[number + 1 :], number + 1, True)
            output = output_of(head, rest, number)
            assert np.abs(output.logits - alone[number].logits).max() < 1e-3
            assert np.abs(output.row - alone[number].row).max() < 1e-3


def test_more_slots_than_libllama_can_keep_several_heads_for_are_refused() -> None:
    path = random_model("mimo2", FAMILY_FILES)
    with (
        load(LoadSettings(path, slots=86, context_length=16, longest_draft=3, mtp=True)) as runtime,
        pytest.raises(NoHeadError, match="3 heads for 85 slots at most, and there are 86"),
    ):
        open_head(runtime)


# Where heads come from


def test_a_head_in_a_file_of_its_own_is_the_same_head(head: MtpHead) -> None:
    feed = HeadFeed(0, tokens_for(0, 6), rows_for(0, 6), 0, True)
    expected = output_of(head, feed)
    path = split_heads.head_of(models.TARGET, FAMILY_FILES, BLOCK)
    trunk = split_heads.trunk_of(models.TARGET, FAMILY_FILES, BLOCK)
    for model in (models.TARGET, trunk):
        with load(LoadSettings(model, context_length=64, threads=1)) as runtime:
            other = open_head(runtime, path)
            assert other.tokenizer.encode("def") == runtime.tokenizer.encode("def")
            assert np.array_equal(output_of(other, feed).logits, expected.logits)


def test_a_model_without_a_head_says_so() -> None:
    trunk = split_heads.trunk_of(models.TARGET, FAMILY_FILES, BLOCK)
    for path in (trunk, models.DRAFT, random_model("llama", FAMILY_FILES)):
        with (
            load(LoadSettings(path, context_length=64, threads=1, mtp=True)) as runtime,
            pytest.raises(NoHeadError, match=f"{path.name} has no multi-token-prediction head"),
        ):
            open_head(runtime)


def test_a_head_that_was_not_asked_for_is_not_there() -> None:
    with (
        load(LoadSettings(models.TARGET, context_length=64, threads=1)) as runtime,
        pytest.raises(NoHeadError, match="its heads have not been loaded"),
    ):
        open_head(runtime)


@pytest.mark.parametrize("mtp", [False, True])
def test_a_model_that_lost_its_head_loads_and_says_so(mtp: bool) -> None:
    """Case O2: libllama itself would refuse the file."""
    path = split_heads.beheaded(models.TARGET, FAMILY_FILES, BLOCK)
    with load(LoadSettings(path, context_length=64, threads=1, mtp=mtp)) as runtime:
        text = runtime.decode([Feed(0, runtime.tokenizer.encode("import os\nimport"), 0, 1)])[0]
        assert runtime.tokenizer.piece(int(text[0].argmax())).startswith(b" ")
        if mtp:
            with pytest.raises(NoHeadError, match=r"announces 1 .*blk\.8\.nextn\.eh_proj\.weight"):
                open_head(runtime)


@pytest.mark.parametrize("family", ["hy_v3", "mimo2"])
def test_one_of_several_heads_lost_is_noticed(family: str) -> None:
    """libllama loads such a file without a word, and aborts the process when the head is run."""
    whole = random_model(family, FAMILY_FILES)
    path = split_heads.rewritten(
        whole, FAMILY_FILES / f"{family}-lost.gguf", lambda name: not name.startswith("blk.3.")
    )
    problem = HeadFile.of(path).problem
    assert problem is not None
    assert "blk.3.nextn.eh_proj.weight is missing" in problem


def test_a_head_of_another_model_is_refused(target: LibllamaRuntime) -> None:
    path = random_model("mimo2", FAMILY_FILES)
    with pytest.raises(NoHeadError, match="is made for architecture mimo2 with rows of 64, and"):
        open_head(target, path)


def test_a_file_of_a_head_is_no_model() -> None:
    """libllama would crash on it."""
    path = split_heads.head_of(models.TARGET, FAMILY_FILES, BLOCK)
    with pytest.raises(ModelLoadError, match=r"a multi-token-prediction head and nothing else"):
        load(LoadSettings(path))


def test_a_head_that_libllama_has_no_graph_for_is_refused() -> None:
    one = HeadFile("a.gguf", "qwen35moe", 9, 1, None, alone=False)
    assert one.problem is None
    for architecture, heads, words in (
        ("qwen35moe", 2, "runs no more than one of a model of architecture qwen35moe"),
        ("exaone-moe", 1, "can't run the head of a model of architecture exaone-moe"),
    ):
        other = HeadFile("a.gguf", architecture, 9, heads, None, alone=False)
        assert words in (other.problem or "")


def test_heads_are_found_in_any_part_of_a_model(tmp_path: Path) -> None:
    whole = random_model("hy_v3", FAMILY_FILES)
    first = tmp_path / "m-00001-of-00002.gguf"
    split_heads.rewritten(whole, first, lambda name: not name.startswith("blk."))
    assert "is missing" in (HeadFile.of(first).problem or "")
    split_heads.rewritten(
        whole, tmp_path / "m-00002-of-00002.gguf", lambda name: name.startswith("blk.")
    )
    assert HeadFile.of(first).problem is None
    assert not HeadFile.of(first).alone
