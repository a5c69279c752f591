"""Runtimes beside a loaded one, held to a width class: what they share, refuse and leave alone."""

from collections.abc import Iterator

import numpy as np
import pytest

from surefoot import models
from surefoot.decoding import DecodeError, Feed, InvalidParameterError, Widths
from surefoot.runtime.base import ModelLoadError, Runtime
from surefoot.runtime.libllama import (
    LibllamaRuntime,
    LoadSettings,
    RuntimeClosedError,
    binding,
    load,
    need,
    open_head,
)
from surefoot.runtime.simulated import MisuseError, SimulatedRuntime
from tests.conftest import FAMILY_FILES
from tests.support.random_models import random_model

WIDTHS = Widths((2, 3, 8))
TOKENS = list(range(1, 65))


@pytest.fixture
def runtime() -> Iterator[LibllamaRuntime]:
    path = random_model("qwen35moe", FAMILY_FILES)
    with load(LoadSettings(path, slots=3, context_length=128, threads=1, longest_draft=4)) as found:
        yield found


# Classes


def test_a_class_finds_the_nearest_widths() -> None:
    assert [WIDTHS.up(width) for width in (1, 2, 4, 8, 9)] == [2, 2, 8, 8, None]
    assert [WIDTHS.down(width) for width in (1, 2, 7, 8, 99)] == [0, 2, 3, 8, 8]
    assert (WIDTHS.least, WIDTHS.most, WIDTHS.most_fillers) == (2, 8, 4)
    assert Widths((1,)).most_fillers == 0
    assert Widths((5,)).most_fillers == 4


@pytest.mark.parametrize("allowed", [(), (0,), (3, 2), (2, 2)])
def test_what_is_no_class_is_refused(allowed: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"width class|one token"):
        Widths(allowed)


def test_a_class_is_written_as_ranges() -> None:
    assert str(Widths((*range(2, 64), 70))) == "2-63, 70"


# Siblings


def test_a_sibling_has_a_memory_of_its_own(runtime: LibllamaRuntime) -> None:
    with runtime.sibling(WIDTHS) as sibling:
        other: Runtime = sibling
        assert (other.slots, other.widths, other.context_length) == (1, WIDTHS, 128)
        assert runtime.widths is None
        sibling.decode([Feed(0, TOKENS[:8], 0, outputs=8)])
        for tokens in (TOKENS, TOKENS[::-1]):
            runtime.decode([Feed(0, tokens[:12], 0, outputs=1)])
            runtime.drop(0)
        rows = sibling.decode([Feed(0, TOKENS[8:16], 8, outputs=8)])[0].copy()
        sibling.drop(0)
        sibling.decode([Feed(0, TOKENS[:8], 0, outputs=8)])
        assert np.array_equal(rows, sibling.decode([Feed(0, TOKENS[8:16], 8, outputs=8)])[0])
        assert (runtime.passes, sibling.passes) == (2, 4)


def test_the_weights_stay_until_the_last_runtime_is_closed() -> None:
    first = load(LoadSettings(random_model("llama", FAMILY_FILES), context_length=64, threads=1))
    second, third = first.sibling(), first.sibling(WIDTHS)
    expected = second.decode([Feed(0, TOKENS[:8], 0, outputs=8)])[0].copy()
    first.close()
    first.close()
    with pytest.raises(RuntimeClosedError):
        first.sibling()
    assert np.array_equal(third.decode([Feed(0, TOKENS[:8], 0, outputs=8)])[0], expected)
    second.close()
    grandchild = third.sibling()
    third.close()
    assert np.array_equal(grandchild.decode([Feed(0, TOKENS[:8], 0, outputs=8)])[0], expected)
    model = grandchild.model
    assert model.handle
    grandchild.close()
    with pytest.raises(RuntimeClosedError):
        _ = model.handle


@pytest.mark.parametrize(
    ("width", "outputs"), [(1, 1), (1, 0), (4, 4), (3, 1), (8, 4), (9, 9), (16, 0)]
)
def test_a_pass_outside_the_class_is_refused_and_changes_nothing(
    runtime: LibllamaRuntime, width: int, outputs: int
) -> None:
    with runtime.sibling(WIDTHS) as sibling:
        sibling.decode([Feed(0, TOKENS[:3], 0, outputs=3)])
        with pytest.raises(DecodeError, match="widths of 2-3, 8"):
            sibling.decode([Feed(0, TOKENS[3 : 3 + width], 3, outputs)])
        assert sibling.passes == 1
        sibling.decode([Feed(0, TOKENS[3:6], 3, outputs=0)])


def test_two_sequences_that_make_up_a_width_of_the_class_are_refused(
    runtime: LibllamaRuntime,
) -> None:
    """Kernels see the tokens of all sequences, and each sequence has a part of the class."""
    with runtime.sibling(WIDTHS) as sibling:
        for first, second in ((2, 2), (2, 1), (3, 5)):
            feeds = [Feed(0, TOKENS[:first], 0, first), Feed(1, TOKENS[:second], 0, second)]
            with pytest.raises(DecodeError, match="of 2 sequences"):
                sibling.decode(feeds)


def test_there_is_room_for_outputs_of_the_widest_pass(runtime: LibllamaRuntime) -> None:
    wide = Widths((2, 64))
    assert runtime.most_outputs < wide.most
    with runtime.sibling(wide) as sibling:
        assert sibling.most_outputs >= wide.most
        assert len(sibling.decode([Feed(0, TOKENS, 0, outputs=64)])[0]) == 64


def test_there_is_room_for_fillers_behind_a_full_context(runtime: LibllamaRuntime) -> None:
    with runtime.sibling(Widths((63, 64))) as sibling:
        sibling.decode([Feed(0, TOKENS, 0, outputs=0)])
        sibling.decode([Feed(0, TOKENS[:63], 64, outputs=0)])
        # The last token that the context has room for, and 62 fillers.
        rows = sibling.decode([Feed(0, TOKENS[:63], 127, outputs=63)])[0]
        assert np.isfinite(rows).all()


def test_a_class_wider_than_a_graph_run_is_refused(runtime: LibllamaRuntime) -> None:
    """libllama would cut the pass in two, of other widths, without a word."""
    most = runtime.settings.micro_batch_size
    with pytest.raises(InvalidParameterError, match=f"at most {most} tokens"):
        runtime.sibling(Widths((2, most + 1)))


@pytest.mark.parametrize(("allowed", "snapshots"), [((2, 3, 6), 3), ((2, 3, 8), 0), ((1,), 3)])
def test_snapshots_that_could_not_undo_all_fillers_are_left_out(
    allowed: tuple[int, ...], snapshots: int
) -> None:
    settings = LoadSettings(
        random_model("qwen35", FAMILY_FILES), context_length=64, threads=1, snapshots=3
    )
    with load(settings) as runtime, runtime.sibling(Widths(allowed)) as sibling:
        assert sibling.settings.snapshots == snapshots
        assert sibling.rollback.kind == ("snapshots" if snapshots else "fork")


def test_a_sibling_that_does_not_fit_says_so(
    runtime: LibllamaRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(need, "available_memory", lambda: 1 << 16)
    with pytest.raises(ModelLoadError, match="65,536 bytes of memory are available"):
        runtime.sibling(WIDTHS)
    monkeypatch.undo()
    runtime.sibling(WIDTHS).close()


def test_a_sibling_whose_first_pass_fails_leaves_nothing_behind(
    runtime: LibllamaRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    freed: list[int] = []
    free = binding.llama_free

    def note_and_free(handle: int) -> None:
        freed.append(handle)
        free(handle)

    monkeypatch.setattr(binding, "llama_free", note_and_free)
    monkeypatch.setattr(binding, "llama_decode", lambda *_: -3)
    with pytest.raises(ModelLoadError, match="first pass failed"):
        runtime.sibling(WIDTHS)
    assert len(freed) == 1
    monkeypatch.undo()
    runtime.decode([Feed(0, TOKENS[:4], 0, outputs=1)])
    runtime.drop(0)


def test_a_sibling_has_a_head_of_its_own() -> None:
    settings = LoadSettings(models.TARGET, context_length=64, threads=1, mtp=True)
    with load(settings) as runtime:
        open_head(runtime)
        sibling = runtime.sibling(WIDTHS)
        head = open_head(sibling)
        rows: list[int] = []
        head.watch(lambda _, given: rows.append(len(given[0])))
        runtime.decode([Feed(0, TOKENS[:4], 0, outputs=1)])
        assert rows == []
        sibling.decode([Feed(0, TOKENS[:8], 0, outputs=8)])
        assert rows == [8]
        sibling.close()
        with pytest.raises(RuntimeClosedError):
            head.length(0)
        runtime.decode([Feed(0, TOKENS[4:8], 4, outputs=1)])


def test_a_draft_model_has_siblings_too() -> None:
    with load(LoadSettings(models.DRAFT, context_length=64, threads=1)) as runtime:
        expected = runtime.decode([Feed(0, TOKENS[:8], 0, outputs=8)])[0].copy()
        with runtime.sibling() as sibling:
            rows = sibling.decode([Feed(0, TOKENS[:8], 0, outputs=8)])[0]
            assert np.array_equal(rows, expected)
            assert sibling.widths is None


# The simulated runtime


def test_the_simulated_runtime_refuses_passes_outside_its_class() -> None:
    runtime = SimulatedRuntime("hybrid", widths=WIDTHS)
    runtime.decode([Feed(0, [1, 2, 3], 0, outputs=3)])
    runtime.decode([Feed(0, [1, 2, 3], 3, outputs=0)])
    for feeds in (
        [Feed(0, [1], 6, outputs=1)],
        [Feed(0, [1, 2, 3], 6, outputs=1)],
        [Feed(0, [1, 2], 6, outputs=2), Feed(1, [1, 2, 3], 0, outputs=3)],
    ):
        with pytest.raises(MisuseError, match="outside its width class 2-3, 8"):
            runtime.decode(feeds)


def test_a_simulated_sibling_speaks_the_same_language() -> None:
    runtime = SimulatedRuntime(
        "hybrid", slots=2, seed=9, width_noise=0.5, width_classes=(1, 2, 4), layout_noise=0.25
    )
    expected = runtime.decode([Feed(0, [1, 2, 3], 0, outputs=3)])[0].copy()
    sibling = runtime.sibling(WIDTHS)
    assert (sibling.slots, sibling.widths, sibling.length(0)) == (1, WIDTHS, 0)
    assert np.array_equal(sibling.decode([Feed(0, [1, 2, 3], 0, outputs=3)])[0], expected)
    assert runtime.length(0) == 3
    runtime.close()
    sibling.decode([Feed(0, [1, 2], 3, outputs=2)])
