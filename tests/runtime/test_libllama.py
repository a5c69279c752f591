"""What the runtime over libllama promises: passes, logits, tokenizer, closing."""

import itertools
import logging
import random
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Series
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from surefoot import models
from surefoot.decoding import DecodeError, Feed
from surefoot.runtime.base import Runtime, TokenizerMissingError
from surefoot.runtime.libllama import (
    LibllamaRuntime,
    LoadSettings,
    RuntimeClosedError,
    binding,
    load,
    log,
)
from tests.conftest import FAMILY_FILES
from tests.support.random_models import random_model

TEXT = (
    'def greet(name):\n    """Say hello to {name}, naïvely: 你好 🦶."""\n    return f"Hi {name}"\n'
)


@pytest.fixture(scope="module")
def hybrid() -> Iterator[LibllamaRuntime]:
    settings = LoadSettings(
        models.TARGET, slots=4, context_length=512, threads=1, batch_size=256, all_outputs=True
    )
    with load(settings) as runtime:
        yield runtime


@pytest.fixture
def empty(hybrid: LibllamaRuntime) -> Iterator[LibllamaRuntime]:
    yield hybrid
    for sequence in range(2 * hybrid.slots):
        hybrid.drop(sequence)


def some_tokens(count: int, seed: int = 0, vocabulary: int = 8000) -> list[int]:
    return random.Random(seed).choices(range(vocabulary), k=count)


def solo_logits(runtime: LibllamaRuntime, tokens: Series[int], last: int) -> NDArray[np.float32]:
    """Logits of the last tokens, on a sequence of its own, in one pass after the others."""
    spare = runtime.slots
    head, tail = tokens[:-last], tokens[-last:]
    if head:
        runtime.decode([Feed(spare, head, 0, outputs=0)])
    rows = runtime.decode([Feed(spare, tail, len(head), outputs=last)])[0].copy()
    runtime.drop(spare)
    return rows


def test_it_is_a_runtime(hybrid: LibllamaRuntime) -> None:
    runtime: Runtime = hybrid
    assert (runtime.slots, runtime.context_length, runtime.batch_size) == (4, 512, 256)
    assert runtime.vocabulary_size == 8192
    assert runtime.logit_noise == 0.5


def test_the_model_says_what_it_is(hybrid: LibllamaRuntime) -> None:
    info = hybrid.info
    assert (info.name, info.architecture) == ("surefoot-tiny-35moe", "qwen35moe")
    assert info.training_context == 4096
    assert info.parameters == 23_392_864
    assert 20_000_000 < info.size < 26_000_000
    assert "<|im_start|>" in (info.chat_template or "")
    assert info.eos_text == "<|im_end|>"
    assert "hybrid" in info.memory


# Tokenizer


@pytest.mark.parametrize("text", ["", " ", TEXT, "<|im_start|>user\nHi<|im_end|>\n", "\0\x01"])
def test_text_comes_back_from_its_tokens(hybrid: LibllamaRuntime, text: str) -> None:
    tokens = hybrid.tokenizer.encode(text, special=False)
    assert b"".join(map(hybrid.tokenizer.piece, tokens)) == text.encode()


def test_long_texts_are_tokenized_whole(hybrid: LibllamaRuntime) -> None:
    text = TEXT * 300
    tokens = hybrid.tokenizer.encode(text)
    assert b"".join(map(hybrid.tokenizer.piece, tokens)) == text.encode()


def test_special_tokens_are_taken_as_such_only_if_asked(hybrid: LibllamaRuntime) -> None:
    encode = hybrid.tokenizer.encode
    assert len(encode("<|im_end|>")) == 1
    assert len(encode("<|im_end|>", special=False)) > 1


def test_control_tokens_have_no_text_but_the_models_own_markup_has(
    hybrid: LibllamaRuntime,
) -> None:
    encode, piece = hybrid.tokenizer.encode, hybrid.tokenizer.piece
    assert piece(encode("<|im_end|>")[0]) == b""
    for markup in ("<think>", "<tool_call>"):
        assert b"".join(map(piece, encode(markup))) == markup.encode()


def test_the_end_of_a_turn_is_known(hybrid: LibllamaRuntime) -> None:
    assert set(hybrid.tokenizer.encode("<|im_end|>")) <= hybrid.tokenizer.end_of_generation


def test_halves_of_surrogate_pairs_are_no_reason_to_fail(hybrid: LibllamaRuntime) -> None:
    assert hybrid.tokenizer.encode("a\ud800b") == hybrid.tokenizer.encode("a?b")


def test_a_token_that_does_not_exist_has_no_piece(hybrid: LibllamaRuntime) -> None:
    for token in (-1, hybrid.vocabulary_size):
        with pytest.raises(ValueError, match="none of the"):
            hybrid.tokenizer.piece(token)


def test_a_file_without_tokenizer_loads_but_takes_no_text() -> None:
    settings = LoadSettings(random_model("llama", FAMILY_FILES), context_length=64, threads=1)
    with load(settings) as runtime:
        with pytest.raises(TokenizerMissingError, match="Feed token ids"):
            runtime.tokenizer.encode("Hello")
        assert runtime.tokenizer.piece(5) == b""
        assert runtime.tokenizer.end_of_generation == frozenset()
        assert runtime.info.eos_text == ""
        assert runtime.decode([Feed(0, [1, 2, 3], 0, outputs=1)])[0].shape == (1, 128)


# Passes


def test_logits_have_a_row_for_each_output(empty: LibllamaRuntime) -> None:
    feeds = [Feed(i, some_tokens(5, seed=i), 0, outputs=i) for i in range(4)]
    shapes = [rows.shape for rows in empty.decode(feeds)]
    assert shapes == [(i, empty.vocabulary_size) for i in range(4)]


def test_a_pass_without_outputs_only_absorbs(empty: LibllamaRuntime) -> None:
    tokens = some_tokens(12)
    (rows,) = empty.decode([Feed(0, tokens[:10], 0, outputs=0)])
    assert rows.shape == (0, empty.vocabulary_size)
    (rows,) = empty.decode([Feed(0, tokens[10:], 10, outputs=2)])
    assert np.array_equal(rows, solo_logits(empty, tokens, last=2))


def test_logits_are_read_only_views(empty: LibllamaRuntime) -> None:
    (rows,) = empty.decode([Feed(0, some_tokens(4), 0, outputs=4)])
    assert not rows.flags.owndata
    with pytest.raises(ValueError, match="read-only"):
        rows[0, 0] = 1


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
@pytest.mark.parametrize("widths", [(1, 4, 9), (9, 1, 4), (3, 3, 3)])
def test_rows_follow_the_feeds_however_the_pass_is_cut(
    empty: LibllamaRuntime, order: tuple[int, ...], widths: tuple[int, ...]
) -> None:
    """libllama runs unequal widths in pieces, and swaps the rows back afterwards."""
    prompts = [some_tokens(20 + 5 * i, seed=i) for i in range(3)]
    for i, prompt in enumerate(prompts):
        empty.decode([Feed(i, prompt, 0, outputs=0)])
    drafts = [some_tokens(width, seed=10 + i) for i, width in enumerate(widths)]
    feeds = [Feed(i, drafts[i], len(prompts[i]), outputs=len(drafts[i])) for i in order]
    found = [rows.copy() for rows in empty.decode(feeds)]
    for feed, rows in zip(feeds, found, strict=True):
        tokens = prompts[feed.sequence] + drafts[feed.sequence]
        expected = solo_logits(empty, tokens, last=feed.outputs)
        assert np.abs(rows - expected).max() <= empty.logit_noise


@pytest.mark.parametrize("family", ["jamba", "mamba2", "qwen35moe", "gemma3", "rwkv7"])
def test_rows_are_those_that_libllama_names_by_index(family: str) -> None:
    settings = LoadSettings(
        random_model(family, FAMILY_FILES), slots=4, context_length=64, threads=1
    )
    with load(settings) as runtime:
        feeds = [
            Feed(i, some_tokens(width, i, 128), 0, outputs)
            for i, width, outputs in [(3, 5, 2), (0, 1, 1), (2, 9, 9), (1, 4, 0)]
        ]
        found = runtime.decode(feeds)
        index = 0
        for sequence, tokens, _, outputs, _ in sorted(feeds):
            rows = next(r for f, r in zip(feeds, found, strict=True) if f.sequence == sequence)
            index += len(tokens)
            for back in range(outputs):
                pointer = binding.llama_get_logits_ith(runtime._context or 0, index - 1 - back)
                named = np.ctypeslib.as_array(pointer, (runtime.vocabulary_size,))
                assert np.array_equal(named, rows[outputs - 1 - back])


def test_passes_and_graph_runs_are_counted(empty: LibllamaRuntime) -> None:
    passes, runs = empty.passes, empty.graph_runs
    empty.decode([Feed(0, some_tokens(4), 0, 0), Feed(1, some_tokens(4), 0, 0)])
    assert (empty.passes, empty.graph_runs) == (passes + 1, runs + 1)
    empty.decode([Feed(0, some_tokens(4), 4, 0), Feed(1, some_tokens(2), 4, 0)])
    assert (empty.passes, empty.graph_runs) == (passes + 2, runs + 3)


@pytest.mark.parametrize("snapshots", [0, 3])
@pytest.mark.parametrize("family", ["llama", "mamba2", "nemotron_h", "lfm2"])
def test_graph_runs_are_libllamas_own(
    monkeypatch: pytest.MonkeyPatch, family: str, snapshots: int
) -> None:
    monkeypatch.setenv("LLAMA_BATCH_DEBUG", "1")  # libllama prints each piece of a batch
    settings = LoadSettings(
        random_model(family, FAMILY_FILES),
        slots=4,
        context_length=256,
        threads=1,
        micro_batch_size=32,
        snapshots=snapshots,
    )
    choose = random.Random(5)
    with load(settings) as runtime:
        for widest in [1, 4, 8, 40] * 5:
            feeds = [
                Feed(i, some_tokens(choose.randint(1, widest), i, 128), 0, outputs=0)
                for i in choose.sample(range(4), choose.randint(1, 4))
            ]
            before = runtime.graph_runs
            with log.captured() as lines:
                runtime.decode(feeds)
            pieces = sum("n_seqs_unq" in line.text for line in lines) - 1  # one is the input
            assert runtime.graph_runs - before == pieces, feeds
            for sequence in range(4):
                runtime.drop(sequence)


# Refused passes

REFUSED = {
    "no tokens": ([Feed(0, [], 0, 0)], "0 tokens"),
    "no feeds": ([], "0 tokens in one pass"),
    "outputs without tokens": ([Feed(0, [1], 0, 2)], "wants logits"),
    "negative outputs": ([Feed(0, [1], 0, -1)], "wants logits"),
    "a gap": ([Feed(0, [1], 3, 1)], "memory holds 0"),
    "a sequence twice": ([Feed(0, [1], 0, 1), Feed(0, [1], 0, 1)], "twice"),
    "an unknown sequence": ([Feed(8, [1], 0, 1)], "none of the 8"),
    "a negative sequence": ([Feed(-1, [1], 0, 1)], "none of the 8"),
    "a token too high": ([Feed(0, [1, 8192], 0, 1)], "token id 8192"),
    "a negative token": ([Feed(0, [-1, 2], 0, 1)], "token id -1"),
    "a token beyond 32 bits": ([Feed(0, [1 << 40], 0, 1)], "token ids expected"),
    "a pass too wide": ([Feed(0, [1] * 257, 0, 1)], "1 to 256 are possible"),
    "a pass too wide together": ([Feed(i, [1] * 90, 0, 1) for i in range(3)], "270 tokens"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_an_impossible_pass_is_refused_and_changes_nothing(
    empty: LibllamaRuntime, case: str
) -> None:
    feeds, text = REFUSED[case]
    with pytest.raises(DecodeError, match=text):
        empty.decode(feeds)
    assert empty.decode([Feed(0, [1], 0, outputs=1)])[0].shape == (1, 8192)


def test_a_sequence_can_not_outgrow_its_room(empty: LibllamaRuntime) -> None:
    for start in (0, 256):
        empty.decode([Feed(0, [1] * 256, start, outputs=0)])
    empty.decode([Feed(0, [1] * 65, 512, outputs=1)])  # a draft may hang over
    with pytest.raises(DecodeError, match="room for 577"):
        empty.decode([Feed(0, [1], 577, outputs=1)])


def test_outputs_are_limited_by_slots_and_drafts() -> None:
    settings = LoadSettings(
        random_model("llama", FAMILY_FILES), slots=2, context_length=64, longest_draft=3, threads=1
    )
    with load(settings) as runtime:
        feeds = [Feed(0, [1] * 9, 0, outputs=5), Feed(1, [1] * 9, 0, outputs=3)]
        assert [len(rows) for rows in runtime.decode(feeds)] == [5, 3]
        with pytest.raises(DecodeError, match="room for 8"):
            runtime.decode([Feed(0, [1] * 9, 9, outputs=9)])


def test_a_full_context_is_an_error_that_leaves_the_memory_as_it_was() -> None:
    settings = LoadSettings(
        random_model("qwen35", FAMILY_FILES), slots=1, context_length=447, threads=1
    )
    with load(settings) as runtime:
        for start in range(0, 448, 64):
            runtime.decode([Feed(0, some_tokens(64, start, 128), start, outputs=0)])
        with pytest.raises(DecodeError, match=r"no free cells left for it \(code 1\)"):
            runtime.decode([Feed(1, some_tokens(100, 1, 128), 0, outputs=0)])
        runtime.decode([Feed(1, some_tokens(50, 1, 128), 0, outputs=0)])
        runtime.decode([Feed(0, [1], 448, outputs=1)])


def test_a_failed_computation_leaves_nothing_half_absorbed(
    empty: LibllamaRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = binding.llama_decode

    def computes_but_reports_failure(context: int, batch: Any) -> int:
        real(context, batch)
        return -3

    passes = empty.passes
    with monkeypatch.context() as patch:
        patch.setattr(binding, "llama_decode", computes_but_reports_failure)
        with pytest.raises(DecodeError, match=r"computation failed \(code -3\)"):
            empty.decode([Feed(0, [1, 2], 0, outputs=1)])
    assert empty.passes == passes
    empty.decode([Feed(0, [1, 2], 0, outputs=1)])


# Log and close


def test_libllamas_log_is_there_for_those_who_ask(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="surefoot.libllama"):
        load(LoadSettings(models.DRAFT, context_length=64, threads=1)).close()
    texts = [r.getMessage() for r in caplog.records if r.name == "surefoot.libllama"]
    assert any("qwen3" in text for text in texts)
    assert {r.levelno for r in caplog.records if r.name == "surefoot.libllama"} == {logging.DEBUG}


def test_a_closed_model_can_not_be_used_and_closes_again_without_harm() -> None:
    runtime = load(LoadSettings(models.DRAFT, context_length=64, threads=1))
    runtime.decode([Feed(0, [1, 2], 0, outputs=1)])
    runtime.close()
    runtime.close()
    uses: list[Callable[[], object]] = [
        lambda: runtime.decode([Feed(0, [1], 2, outputs=1)]),
        lambda: runtime.fork(0, 1, 0, 2),
        lambda: runtime.cut(0, 1),
        lambda: runtime.drop(0),
        lambda: runtime.tokenizer.encode("Hi"),
        lambda: runtime.tokenizer.piece(7),
        lambda: runtime.tokenizer.end_of_generation,
    ]
    for use in uses:
        with pytest.raises(RuntimeClosedError, match="has been closed"):
            use()
    assert runtime.info.name == "surefoot-tiny-draft"


def test_many_small_passes_equal_one_large_one(empty: LibllamaRuntime) -> None:
    tokens = some_tokens(60)
    for start, end in itertools.pairwise(range(0, 61, 6)):
        rows = empty.decode([Feed(0, tokens[start:end], start, outputs=1)])[0].copy()
    assert np.array_equal(rows[0], solo_logits(empty, tokens, last=6)[-1])


def test_a_model_without_a_bos_token_has_no_text_for_one(hybrid: LibllamaRuntime) -> None:
    assert (hybrid.info.bos_text, hybrid.info.eos_text) == ("", "<|im_end|>")
