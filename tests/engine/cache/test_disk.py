"""States on disk outlive the server, are shared by two, and never fail a request."""

import errno
import logging
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from surefoot.engine.cache import StateFileError, pack, unpack
from surefoot.engine.cache.tokens import as_tokens
from tests.engine.cache.bench import LONG, NEW, PLENTY, Bench
from tests.engine.playing import ALL_KINDS

PIECES = [LONG[start : start + 60] for start in range(0, 600, 100)]


def bench_on(folder: Path, kind: str = "hybrid", **settings: Any) -> Bench:
    """A server with nothing but a slot and a disk tier, so that all goes there."""
    return Bench(kind, device=0, ram=0, **{"disk": PLENTY, "folder": folder, **settings})


def files_in(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.state"))


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_what_one_server_has_left_another_one_goes_on_from(kind: str, tmp_path: Path) -> None:
    """Also what was on the device and in memory when the first was closed."""
    first = Bench(kind, disk=PLENTY, folder=tmp_path)
    histories = [first.turn(piece).history for piece in PIECES]
    first.engine.close()
    second = bench_on(tmp_path, kind)
    for history in histories:
        turn = second.turn([*history, *NEW])
        assert turn.reused >= len(history) - 1
        assert turn.origin == "disk"


def test_two_servers_share_a_folder(tmp_path: Path) -> None:
    """Each finds what the other writes while both run, and what one removes the other misses."""
    one, other = bench_on(tmp_path), bench_on(tmp_path)
    history = one.turn(PIECES[0]).history
    assert other.turn([*history, *NEW]).origin == "disk"
    for path in files_in(tmp_path):
        path.unlink()
    assert other.turn(PIECES[1]).reused == 0
    history = one.turn(PIECES[2]).history
    assert other.turn([*history, *NEW]).reused == len(history) - 1


def test_the_folder_stays_within_its_budget_whoever_writes(tmp_path: Path) -> None:
    budget = 40_000
    one, other = bench_on(tmp_path, disk=budget), bench_on(tmp_path, disk=budget)
    for piece in PIECES:
        one.turn(piece)
        other.turn(piece[:30])
    assert 0 < sum(path.stat().st_size for path in files_in(tmp_path)) <= budget


def test_damaged_and_foreign_files_are_skipped_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bench = bench_on(tmp_path)
    history = bench.turn(PIECES[0]).history
    bench.engine.close()
    files = files_in(tmp_path)
    assert len(files) == 1
    for path in files:
        data = bytearray(path.read_bytes())
        data[-10] ^= 1
        path.write_bytes(data)
    (files[0].parent / "other.state").write_bytes(b"something else")
    (files[0].parent / "empty.state").write_bytes(b"")
    with caplog.at_level(logging.WARNING):
        assert bench_on(tmp_path).turn([*history, *NEW]).reused == 0
    assert caplog.text.count("checksum") == 1
    assert caplog.text.count("other.state") == caplog.text.count("empty.state") == 1


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_a_full_or_read_only_folder_turns_the_tier_off_with_one_warning(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bench = bench_on(tmp_path)
    bench.turn(PIECES[0])

    def fail(*_: object, **__: object) -> None:
        raise OSError(code, "no")

    monkeypatch.setattr(tempfile, "mkstemp", fail)
    with caplog.at_level(logging.WARNING):
        for piece in PIECES[1:]:
            bench.turn(piece)
        late = bench_on(tmp_path)
        late.turn(PIECES[0])
    assert caplog.text.count("the disk cache is off") == 2  # one for each server
    assert bench.engine.cache.describe()["disk_problem"]
    assert bench.turn(PIECES[0]).reused == 0


def test_a_write_that_fails_half_way_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = bench_on(tmp_path)
    bench.turn(PIECES[0])
    before = files_in(tmp_path)

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    bench.turn(PIECES[1])
    assert files_in(tmp_path) == before
    assert not list(tmp_path.rglob("*.part"))


def test_a_folder_that_is_gone_turns_the_tier_off(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "states"
    bench = bench_on(folder)
    history = bench.turn(PIECES[0]).history
    shutil.rmtree(folder)
    with caplog.at_level(logging.WARNING):
        bench.turn(PIECES[1])
        assert bench.turn([*history, *NEW]).reused == 0
    assert caplog.text.count("the disk cache is off") == 1


def test_a_folder_that_can_not_be_made_turns_the_tier_off(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("in the way")
    with caplog.at_level(logging.WARNING):
        bench = bench_on(tmp_path / "file" / "states")
        bench.turn(PIECES[0])
    assert caplog.text.count("the disk cache is off") == 1


def test_other_models_states_are_never_mixed_up(tmp_path: Path) -> None:
    bench_on(tmp_path).turn(PIECES[0])
    assert bench_on(tmp_path, "recurrent").turn(PIECES[0]).reused == 0


def test_a_packed_state_comes_back_and_says_what_is_wrong_with_it() -> None:
    text, parts = as_tokens([1, 2, 3]), {"target": b"state\nof it", "draft-mtp": b""}
    data = pack("me", text, parts)
    tokens, found = unpack(data, "me")
    assert np.array_equal(tokens, text)
    assert found == parts
    for wrong, reason in (
        (data[:-1], "cut short"),
        (data[:30], "header|no state"),
        (data[:5], "no state"),
        (b"x" * 100, "no state"),
        (data[:-1] + b"?", "checksum"),
        (data + b"more", "where"),
    ):
        with pytest.raises(StateFileError, match=reason):
            unpack(wrong, "me")
    with pytest.raises(StateFileError, match="a state of me, and this is you"):
        unpack(data, "you")
