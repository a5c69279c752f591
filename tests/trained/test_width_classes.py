"""Width classes as they are measured: inside one, logits are bit-equal whatever a round does.

The trials here are not those of the measurement: other tokens, other cuts, a longer text.
"""

import random
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Series
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from surefoot import models
from surefoot.decoding import GREEDY, Feed, Sampling, Widths, choose, memory_for
from surefoot.runtime.libllama import (
    LibllamaRuntime,
    LoadSettings,
    UnstableLogitsError,
    WidthReport,
    load,
    measure_widths,
    open_head,
)
from tests.conftest import FAMILY_FILES
from tests.support.quantized import four_bits
from tests.support.random_models import random_model

TRAINED = ("Q8_0", "Q4_K_M")
RANDOM = ("llama", "mamba2", "jamba")
LENGTH = 330
ENOUGH_TIME = 1e9
"""The measurement tries all that it can, however busy the computer is."""

Rows = NDArray[np.float32]
Opener = Callable[..., LibllamaRuntime]


@pytest.fixture(scope="module", autouse=True)
def measured_here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Reports are of this module's own measurements, and not of shorter ones that were kept."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("widths")))
        yield


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opener]:
    """Loads a model by its name, once for each set of options."""
    known: dict[tuple[str, int, bool], LibllamaRuntime] = {}
    with ExitStack() as stack:
        q4 = four_bits(tmp_path_factory.mktemp("q4"))

        def open_model(name: str, *, snapshots: int = 0, mtp: bool = False) -> LibllamaRuntime:
            key = (name, snapshots, mtp)
            if key not in known:
                files: dict[str, Path] = {"Q8_0": models.TARGET, "Q4_K_M": q4}
                path = files.get(name) or random_model(name, FAMILY_FILES)
                settings = LoadSettings(
                    path, context_length=512, threads=1, snapshots=snapshots, mtp=mtp
                )
                known[key] = stack.enter_context(load(settings))
            return known[key]

        yield open_model


def report_of(runtime: LibllamaRuntime) -> WidthReport:
    return measure_widths(runtime, ENOUGH_TIME)


def salad(runtime: LibllamaRuntime, seed: int) -> list[int]:
    return random.Random(seed).choices(range(runtime.vocabulary_size), k=LENGTH)


def straight(runtime: LibllamaRuntime, tokens: Series[int], width: int) -> Rows:
    """Logits by passes of one width."""
    runtime.drop(0)
    rows = [
        runtime.decode([Feed(0, tokens[at : at + width], at, outputs=width)])[0].copy()
        for at in range(0, len(tokens) - width + 1, width)
    ]
    runtime.drop(0)
    return np.concatenate(rows)


def in_rounds(runtime: LibllamaRuntime, tokens: Series[int], widths: Widths, seed: int) -> Rows:
    """Logits by rounds of any width of a class, half of which end in something to be undone.

    Where the memory goes back further than to the last right token, tokens are decoded once more;
    their rows must be the same as before. A third of the passes has no outputs.
    """
    draws = random.Random(seed)
    memory = memory_for(runtime, 0, 1)
    memory.clear()
    rows = np.full((len(tokens), runtime.vocabulary_size), np.nan, np.float32)
    committed = 0
    while True:
        start = memory.length
        width = draws.choice(widths.allowed[:8] if draws.random() < 0.8 else widths.allowed)
        if start + width > len(tokens):
            break
        wrong = 0
        if committed <= start and draws.random() < 0.5 and start:
            wrong = min(draws.randrange(width), memory.longest_draft)
            memory.brace()
        right = width - wrong
        feed = [*tokens[start : start + right], *draws.choices(range(100), k=wrong)]
        outputs = 0 if draws.random() < 1 / 3 else width
        [found] = runtime.decode([Feed(0, feed, start, outputs, tentative=wrong)])
        memory.absorbed(width)
        if outputs:
            seen = rows[start : start + right]
            again = ~np.isnan(seen[:, 0])
            assert np.array_equal(found[:right][again], seen[again])
            rows[start : start + right] = found[:right]
        committed = max(committed, start + right)
        memory.settle(start + right)
    memory.clear()
    return rows


def assert_equal_where_known(rows: Rows, expected: Rows) -> None:
    known = ~np.isnan(rows[: len(expected), 0])
    assert known.mean() > 0.4
    wrong = [i for i in np.flatnonzero(known) if not np.array_equal(rows[i], expected[i])]
    assert not wrong, f"{len(wrong)} of {known.sum()} rows differ, the first at {wrong[0]}"


@pytest.mark.parametrize("name", [*TRAINED, *RANDOM])
def test_in_the_class_any_cuts_and_roll_backs_give_the_same_bits(name: str, opened: Opener) -> None:
    runtime = opened(name)
    report = report_of(runtime)
    widths = report.widths
    print(name, [str(one) for one in report.classes], "chosen", widths)
    with runtime.sibling(widths) as sibling:
        for seed in range(3):
            tokens = salad(runtime, seed)
            expected = straight(sibling, tokens, widths.least)
            for cuts in range(3):
                rows = in_rounds(sibling, tokens, widths, seed=10 * seed + cuts)
                assert_equal_where_known(rows, expected)


@pytest.mark.parametrize("name", [*TRAINED, *RANDOM])
def test_other_classes_are_others(name: str, opened: Opener) -> None:
    """Else the test above would prove nothing."""
    runtime = opened(name)
    report = report_of(runtime)
    assert report.widths in report.classes
    assert len(report.classes) > 1, "kernels of this CPU don't change with the width"
    tokens = salad(runtime, 5)
    with runtime.sibling(outputs=report.classes[-1].most) as sibling:
        expected = straight(sibling, tokens, report.widths.least)
        for other in report.classes:
            if other != report.widths:
                rows = straight(sibling, tokens, other.least)
                length = min(len(rows), len(expected))
                assert not np.array_equal(rows[:length], expected[:length]), str(other)


@pytest.mark.parametrize("name", TRAINED)
def test_a_head_or_snapshots_do_not_move_a_bit(name: str, opened: Opener) -> None:
    """So one class holds for all ways to draft."""
    plain = opened(name)
    widths = report_of(plain).widths
    tokens = salad(plain, 8)
    with plain.sibling(widths) as sibling:
        expected = in_rounds(sibling, tokens, widths, seed=1)
    with opened(name, mtp=True).sibling(widths) as sibling:
        given: list[int] = []
        head = open_head(sibling)
        head.watch(lambda _, rows: given.append(len(rows[0])))
        rows = in_rounds(sibling, tokens, widths, seed=1)
        assert len(given) == sibling.passes
        assert np.array_equal(rows, expected, equal_nan=True)
    with opened(name, snapshots=8).sibling(widths) as sibling:
        assert sibling.rollback.kind == "snapshots" or widths.most_fillers > 8
        rows = in_rounds(sibling, tokens, widths, seed=1)
        assert_equal_where_known(rows, straight(sibling, tokens, widths.least))


@pytest.mark.parametrize("name", TRAINED)
def test_choices_that_change_with_the_width_are_near_ties(name: str, opened: Opener) -> None:
    """At 2,000 different places of texts that the model wrote, by the measured tolerance."""
    runtime = opened(name)
    tolerance = report_of(runtime).tolerance(widest=8, default=0.0)
    changed = places = 0
    samplings = (GREEDY, Sampling(seed=3, temperature=1.0), Sampling(seed=4, top_k=40, top_p=0.95))
    with runtime.sibling(outputs=8) as sibling:
        for number in range(100):
            tokens, base = written(sibling, number)
            prompt = len(tokens) - len(base) + 1
            places += len(base)
            width = (2, 7, 8)[number % 3]
            rows = straight(sibling, tokens, width)[prompt - 1 :]
            for index, (one, other) in enumerate(zip(base, rows, strict=False)):
                for sampling in samplings:
                    expected = choose(one, sampling, prompt + index, tolerance)
                    found = choose(other, sampling, prompt + index, tolerance)
                    if found.token != expected.token:
                        changed += 1
                        assert expected.near_tie or found.near_tie, (number, index, sampling)
            if places >= 2000:
                break
    assert places >= 2000
    assert changed > 0, "widths changed no choice, so that nothing has been tested"


def written(runtime: LibllamaRuntime, number: int) -> tuple[list[int], Rows]:
    """A text of the model's own at temperature 1, and its logits one token at a time.

    Returns:
        Tokens, prompt included, and rows from the prompt's last token on.
    """
    words = ("stack", "queue", "invoice", "date_range", "merge_sorted", "csv_writer", "binary_tree")
    asked = f"Write {number + 1} lines of Python about a {words[number % len(words)]}."
    encode = runtime.tokenizer.encode
    tokens = encode(f"<|im_start|>user\n{asked}<|im_end|>\n<|im_start|>assistant\n")
    runtime.drop(0)
    prompt = len(tokens)
    runtime.decode([Feed(0, tokens[:-1], 0, outputs=0)])
    sampling = Sampling(seed=100 + number, temperature=1.0)
    rows: list[Rows] = []
    while len(tokens) < 300:
        [row] = runtime.decode([Feed(0, tokens[-1:], len(tokens) - 1, outputs=1)])[0]
        rows.append(row.copy())
        token = choose(row, sampling, len(tokens), 0.0).token
        if token in runtime.tokenizer.end_of_generation:
            break
        tokens.append(token)
    runtime.drop(0)
    return tokens[: prompt + len(rows) - 1], np.array(rows)


def test_a_width_that_breaks_equality_is_left_out_of_the_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Width 5 gives other bits, but only behind passes of other widths."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = random_model("mamba2", FAMILY_FILES)
    before = 0

    def decode(self: LibllamaRuntime, feeds: Series[Feed]) -> list[Rows]:
        nonlocal before
        rows = original(self, feeds)
        if feeds[0].outputs == 5 and 5 != before < 64:
            rows = [rows[0] + np.float32(1)]
        before = len(feeds[0].tokens)
        return rows

    with load(LoadSettings(path, context_length=512, threads=1)) as runtime:
        usual = report_of(runtime).widths
        assert 5 in usual.allowed
        next(tmp_path.rglob("*.json")).unlink()
        original = LibllamaRuntime.decode
        monkeypatch.setattr(LibllamaRuntime, "decode", decode)
        found = report_of(runtime).widths
        assert 5 not in found.allowed
        assert {2, 3, 4, 6, 7, 8} <= set(found.allowed)


def test_where_no_width_gives_the_same_logits_twice_there_is_no_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    rng = np.random.default_rng(0)
    original = LibllamaRuntime.decode

    def decode(self: LibllamaRuntime, feeds: Series[Feed]) -> list[Rows]:
        return [
            rows + rng.normal(size=rows.shape).astype(rows.dtype) for rows in original(self, feeds)
        ]

    path = random_model("mamba2", FAMILY_FILES)
    with load(LoadSettings(path, context_length=512, threads=1)) as runtime:
        monkeypatch.setattr(LibllamaRuntime, "decode", decode)
        with pytest.raises(UnstableLogitsError, match="no strict decoding here"):
            report_of(runtime)
    assert not list(tmp_path.rglob("*.json"))


@pytest.mark.parametrize("name", TRAINED)
@pytest.mark.parametrize("seconds", [0.0, 0.05, 0.5])
def test_in_less_time_less_is_tried_and_a_class_is_found_all_the_same(
    name: str,
    seconds: float,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    opened: Opener,
) -> None:
    """Width 1 stays apart then, although its rows may be those of others in a short text."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    runtime = opened(name)
    passes = 0
    original = LibllamaRuntime.decode

    def decode(self: LibllamaRuntime, feeds: Series[Feed]) -> list[Rows]:
        nonlocal passes
        passes += 1
        return original(self, feeds)

    monkeypatch.setattr(LibllamaRuntime, "decode", decode)
    report = measure_widths(runtime, seconds)
    assert report.widths in report.classes
    assert Widths((1,)) in report.classes
    if not seconds:
        assert report.positions == 8
        assert passes < 250


@pytest.mark.parametrize("length", [16, 80, 160, 224])
def test_a_short_context_is_measured_with_a_short_text(
    length: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = random_model("jamba", FAMILY_FILES)
    with load(LoadSettings(path, context_length=length, threads=1)) as runtime:
        report = report_of(runtime)
        assert report.widths in report.classes
        assert 0 < report.positions <= length // 2
        assert report.widths.most <= length // 2
