"""Measurements of width classes: kept, found again, and never believed blindly."""

import json
import multiprocessing
import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from surefoot.decoding import Widths
from surefoot.runtime.libllama import (
    LoadSettings,
    WidthReport,
    binding,
    known_widths,
    load,
    measure_widths,
    width_cache,
)
from tests.conftest import FAMILY_FILES
from tests.support.random_models import random_model

REPORT = WidthReport(
    widths=Widths((2, 3)),
    classes=(Widths((1,)), Widths((2, 3)), Widths((8,))),
    noise_by_width=((2, 0.25), (3, 0.25), (8, 1.0)),
    median_by_width=((2, 0.1), (3, 0.2), (8, 0.5)),
    median_noise=0.1,
    flips=3,
    positions=128,
    plain_cost=1.5,
    prefill_cost=2.0,
    seconds=1.25,
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "surefoot" / "widths"


def test_what_is_kept_is_found_again(folder: Path) -> None:
    width_cache.keep("a", REPORT)
    assert width_cache.look_up("a") == REPORT
    assert width_cache.look_up("b") is None
    assert [path.name for path in folder.iterdir()] == ["a.json"]


def damaged() -> list[Any]:
    whole = json.loads(json.dumps({"key": "a"} | asdict(REPORT)))
    lacking = [{k: v for k, v in whole.items() if k != name} for name in whole]
    changes: list[dict[str, Any]] = [
        {"key": "b"},
        {"widths": {"allowed": [2, 9]}},
        {"widths": {"allowed": [2, 10**6]}, "classes": [{"allowed": [2, 10**6]}]},
        {"widths": {"allowed": []}},
        {"widths": [2, 3]},
        {"widths": {"allowed": [2, 3.0]}, "classes": [{"allowed": [2, 3.0]}]},
        {"classes": None},
        {"noise_by_width": [[2]]},
        {"noise_by_width": [[8, 1.0], [2, 1.0]]},
        {"median_by_width": [[2, float("nan")]]},
        {"median_by_width": [[2, -1.0]]},
        {"median_by_width": {"2": 1.0}},
        {"plain_cost": "1.5"},
        {"plain_cost": float("inf")},
        {"flips": True},
        {"positions": 1.5},
    ]
    others: list[Any] = [None, 5, "x", [], [whole], {}]
    return [*others, *lacking, *(whole | change for change in changes)]


@pytest.mark.parametrize("content", damaged())
def test_a_damaged_or_foreign_file_is_as_good_as_none(folder: Path, content: Any) -> None:
    folder.mkdir(parents=True)
    (folder / "a.json").write_text(json.dumps(content))
    assert width_cache.look_up("a") is None


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff\xfe\x00", b"[" * 200_000, b'{"key": "a"}' * 2]
)
def test_a_file_that_is_no_json_is_as_good_as_none(folder: Path, content: bytes) -> None:
    folder.mkdir(parents=True)
    (folder / "a.json").write_bytes(content)
    assert width_cache.look_up("a") is None


def test_a_folder_that_can_not_be_written_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    with caplog.at_level("DEBUG"):
        width_cache.keep("a", REPORT)
        assert width_cache.look_up("a") is None
    assert caplog.records
    assert all(record.levelname == "DEBUG" for record in caplog.records)


def test_a_write_that_fails_leaves_nothing_behind(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(Path, "replace", fail)
    width_cache.keep("a", REPORT)
    assert list(folder.iterdir()) == []


def _keep_often(seed: int) -> None:
    for number in range(100):
        width_cache.keep("a", replace(REPORT, flips=seed * 1000 + number))


def test_two_processes_can_keep_the_same_measurement_at_once(folder: Path) -> None:
    width_cache.keep("a", REPORT)
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_keep_often, args=(seed,)) for seed in (1, 2)]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        assert width_cache.look_up("a") is not None
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    assert [path.name for path in folder.iterdir()] == ["a.json"]


# What a measurement holds for


def test_a_measurement_holds_for_one_file_build_device_attention_and_number_of_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"12345678")
    os.utime(path, ns=(1, 1))
    settings = LoadSettings(path, threads=1)

    def key() -> str:
        return width_cache.key_of(settings, 100)

    first = key()
    assert key() == first
    for other in (
        replace(settings, threads=2),
        replace(settings, micro_batch_size=64),
        replace(settings, gpu_layers=0),
        replace(settings, threads_batch=2),
        replace(settings, cache_type_k="q8_0"),
        replace(settings, cache_type_v="q8_0"),
        replace(settings, flash_attention="on"),
    ):
        assert width_cache.key_of(other, 100) != first
    assert width_cache.key_of(settings, 101) != first
    for same in (replace(settings, snapshots=4), replace(settings, mtp=True, slots=3)):
        assert width_cache.key_of(same, 100) == first
    facts = binding.build_and_devices()
    assert len(facts) > 3, "version, commit and a device beside the CPU's features"
    monkeypatch.setattr(binding, "build_and_devices", lambda: (*facts, "another device"))
    assert key() != first
    monkeypatch.undo()
    os.utime(path, ns=(1, 2))
    assert key() != first


def test_a_measurement_is_made_once(folder: Path) -> None:
    settings = LoadSettings(random_model("rwkv7", FAMILY_FILES), context_length=64, threads=1)
    with load(settings) as runtime:
        assert known_widths(runtime) is None
        report = measure_widths(runtime)
        assert known_widths(runtime) == report
        assert measure_widths(runtime) == report
        [file] = folder.iterdir()
        file.write_text("{}")
        assert known_widths(runtime) is None


# The tolerance that follows


def test_the_tolerance_is_three_medians_among_widths_that_a_round_can_have() -> None:
    assert REPORT.tolerance(2, default=0.0) == pytest.approx(0.3)
    assert REPORT.tolerance(3, default=0.0) == pytest.approx(0.6)
    assert REPORT.tolerance(4, default=0.0) == pytest.approx(1.5)
    assert REPORT.tolerance(99, default=0.0) == pytest.approx(1.5)
    assert REPORT.noise == 1.0


def test_a_few_positions_do_not_make_the_tolerance_less_than_the_default() -> None:
    few = replace(REPORT, positions=32)
    assert few.tolerance(2, default=0.5) == 0.5
    assert few.tolerance(4, default=0.5) == pytest.approx(1.5)
    assert REPORT.tolerance(2, default=0.5) == pytest.approx(0.3)


def test_where_nothing_moved_memory_layout_still_may() -> None:
    still = replace(REPORT, median_by_width=((2, 0.0),))
    assert still.tolerance(2, default=0.5) == 0.05


def test_a_runtime_takes_its_tolerance_from_a_measurement_unless_settings_give_one() -> None:
    settings = LoadSettings(random_model("llama", FAMILY_FILES), context_length=64, threads=1)
    for given, expected in ((None, pytest.approx(1.5)), (0.125, 0.125)):
        with load(replace(settings, logit_noise=given)) as runtime:
            runtime.use_noise(REPORT)
            assert runtime.logit_noise == expected
            with runtime.sibling() as sibling:
                assert sibling.logit_noise == expected
