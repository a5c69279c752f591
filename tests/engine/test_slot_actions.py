"""A slot's states go to a file and come back; whatever goes wrong, the slot stays as it was."""

import errno
import logging
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from surefoot.decoding import InvalidParameterError
from surefoot.engine.cache import StateFileError
from surefoot.engine.cache.slot_file import pack_slot, unpack_slot
from surefoot.engine.cache.tokens import as_tokens
from surefoot.engine.slot_actions import (
    Direct,
    SlotError,
    SlotOrder,
    carry_out,
    check_file_name,
    restore_all,
    save_all,
)
from surefoot.runtime.base import StateError
from tests.engine.cache.bench import CUTTABLE, LONG, NEW, PROMPT, Bench
from tests.engine.playing import ALL_KINDS

PIECE = LONG[:200]


def save(bench: Bench, path: Path, slot: int = 0) -> int:
    return carry_out(Direct(bench.engine), SlotOrder("save", slot, str(path))).tokens


def restore(bench: Bench, path: Path, slot: int = 0) -> int:
    return carry_out(Direct(bench.engine), SlotOrder("restore", slot, str(path))).tokens


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_another_server_goes_on_from_a_saved_slot(kind: str, tmp_path: Path) -> None:
    first, path = Bench(kind), tmp_path / "chat.slot"
    history = first.turn(PIECE).history
    saved = save(first, path)
    assert len(history) - 1 - 1 <= saved < len(history)
    second = Bench(kind, device=0, ram=0)
    assert restore(second, path) == saved
    turn = second.turn([*history, *NEW])
    assert (turn.reused, turn.origin) == (saved, "slot")


@pytest.mark.parametrize("kind", [kind for kind in ALL_KINDS if kind not in CUTTABLE])
def test_checkpoints_are_saved_and_restored_too(kind: str, tmp_path: Path) -> None:
    first, path = Bench(kind), tmp_path / "chat.slot"
    history = first.turn(PIECE).history
    save(first, path)
    second = Bench(kind)
    restore(second, path)
    changed = second.turn([*history[:150], *NEW])
    assert changed.reused >= 128
    assert "checkpoint before it" in changed.reason


def test_a_slot_is_saved_after_drafts_were_rejected(tmp_path: Path) -> None:
    """Memory stands behind what is committed then, or has a cut still to be carried out."""
    for kind in ALL_KINDS:
        bench, path = Bench(kind, drafts=[PIECE], snapshots=4), tmp_path / f"{kind}.slot"
        history = bench.turn(PIECE, draft=True).history
        saved = save(bench, path)
        other = Bench(kind, device=0, ram=0, snapshots=4)
        assert restore(other, path) == saved > 150
        assert other.turn([*history, *NEW]).reused == saved


def test_erasing_forgets_the_text_and_nothing_else() -> None:
    bench = Bench("attention", device=0, ram=0)
    history = bench.turn(PIECE).history
    done = carry_out(Direct(bench.engine), SlotOrder("erase", 0))
    assert len(history) - 1 <= done.tokens <= len(history)
    assert bench.turn(history).reused == 0


def _damaged(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def test_a_damaged_file_leaves_the_slot_as_it_was(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    first, path = Bench("hybrid"), tmp_path / "chat.slot"
    first.turn(PIECE)
    save(first, path)
    data = path.read_bytes()
    bench = Bench("hybrid", device=0, ram=0)
    held = bench.turn(PROMPT).history
    wrong: list[bytes] = [b"", b"x", data[:10], data[:-1], data + b"x", data[: len(data) // 2]]
    wrong += [_damaged(data, rng.randrange(len(data))) for _ in range(200)]
    for content in wrong:
        path.write_bytes(content)
        with pytest.raises(SlotError, match=r"chat\.slot can't be restored: it is") as caught:
            restore(bench, path)
        assert caught.value.problem == "unusable"
    assert bench.turn([*held, *NEW]).reused == len(held) - 1


def test_the_checksum_covers_the_names_of_parts() -> None:
    """Or a drafter's state would be lost without a word."""
    parts = {"target": b"state", "draft-mtp": b"entries"}
    data = b"".join(pack_slot("me", [(as_tokens([1, 2]), parts)]))
    [(tokens, found)] = unpack_slot(data, "me")
    assert (tokens.tolist(), found) == ([1, 2], parts)
    with pytest.raises(StateFileError, match="checksum"):
        unpack_slot(data.replace(b"draft-mtp", b"draft-mtq"), "me")


def test_another_models_file_is_refused_by_name(tmp_path: Path) -> None:
    first, path = Bench("recurrent"), tmp_path / "chat.slot"
    first.turn(PIECE)
    save(first, path)
    with pytest.raises(SlotError, match=r"slot of simulated recurrent.*this is simulated hybrid"):
        restore(Bench("hybrid"), path)


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_a_state_that_the_model_does_not_take_leaves_the_slot_as_it_was(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, path = Bench(kind), tmp_path / "chat.slot"
    first.turn(PIECE)
    save(first, path)
    bench = Bench(kind, device=0, ram=0)
    held = bench.turn(PROMPT).history
    load = bench.runtime.load_state

    def refuse(sequence: int, _state: bytes) -> None:
        monkeypatch.setattr(bench.runtime, "load_state", load)
        bench.runtime.drop(sequence)
        raise StateError("no room")

    monkeypatch.setattr(bench.runtime, "load_state", refuse)
    with pytest.raises(SlotError, match="slot 0 can't take the state: no room"):
        restore(bench, path)
    assert bench.turn([*held, *NEW]).reused >= len(held) - 2


def test_a_text_that_leaves_no_room_for_an_answer_is_refused(tmp_path: Path) -> None:
    first, path = Bench("attention"), tmp_path / "chat.slot"
    first.turn(PIECE)
    save(first, path)
    small = Bench("attention", context_length=128)
    with pytest.raises(SlotError, match="a slot has room for 128 with an answer"):
        restore(small, path)


@pytest.mark.parametrize(
    ("order", "problem", "reason"),
    [
        (SlotOrder("restore", 0, "nothing"), "missing", "there is no file nothing"),
        (SlotOrder("restore", 9, "chat.slot"), "missing", "there is no slot 9; they are 0 to 0"),
        (SlotOrder("save", -1, "new"), "missing", "there is no slot -1"),
        (SlotOrder("restore", 0, "folder"), "unusable", "folder is no file"),
        (SlotOrder("restore", 0, "link"), "unusable", "link is no file"),
        (SlotOrder("restore", 0, "pipe"), "unusable", "pipe is no file"),
        (SlotOrder("save", 0, "new"), "unusable", "slot 0 holds nothing that could be saved"),
        (SlotOrder("erase", 4), "missing", "there is no slot 4"),
    ],
)
def test_what_can_not_be_done_is_said_in_words(
    order: SlotOrder, problem: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    first = Bench("attention")
    first.turn(PIECE)
    save(first, Path("chat.slot"))
    Path("folder").mkdir()
    Path("link").symlink_to("chat.slot")
    os.mkfifo("pipe")
    with pytest.raises(SlotError, match=reason) as caught:
        carry_out(Direct(Bench("attention").engine), order)
    assert caught.value.problem == problem
    assert not Path("new").exists()


def test_a_busy_slot_is_left_alone(tmp_path: Path) -> None:
    bench = Bench("attention")
    bench.engine.submit(bench.asker.request(PIECE), lambda _: None)
    bench.engine.step()
    for order in (SlotOrder("save", 0, str(tmp_path / "new")), SlotOrder("erase", 0)):
        with pytest.raises(SlotError, match="slot 0 is at work") as caught:
            carry_out(Direct(bench.engine), order)
        assert caught.value.problem == "busy"


def _full(*_: Any, **__: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("spoil", ["tempfile.mkstemp", "Path.replace"])
def test_a_full_disk_leaves_the_old_file_and_no_half_one(
    spoil: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, path = Bench("attention"), tmp_path / "chat.slot"
    history = bench.turn(PIECE).history
    save(bench, path)
    before = path.read_bytes()
    bench.turn([*history, *NEW])
    with monkeypatch.context() as patch:
        patch.setattr(f"surefoot.engine.slot_actions.{spoil}", _full)
        with pytest.raises(SlotError, match="can't be written: No space left") as caught:
            save(bench, path)
    assert caught.value.problem == "disk"
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../up", "/abs", "a/b", "a\\b", "c:d", "n\0l", "line\nbreak", "x" * 300]
)
def test_no_name_leads_out_of_the_folder(name: str) -> None:
    with pytest.raises(InvalidParameterError, match="filename"):
        check_file_name(name)


@pytest.mark.parametrize("name", ["chat.bin", "Über uns.slot", "a-b_c", ".hidden", "..two"])
def test_plain_names_are_taken(name: str) -> None:
    assert check_file_name(name) == name


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_all_slots_are_saved_at_the_end_and_restored_at_the_start(
    kind: str, tmp_path: Path
) -> None:
    first = Bench(kind, slots=3)
    histories = [first.turn(LONG[start : start + 100]).history for start in (0, 300)]
    save_all(first.engine, tmp_path)
    second = Bench(kind, slots=3, device=0, ram=0)
    assert restore_all(second.engine, tmp_path) >= sum(map(len, histories)) - 4
    for history in histories:
        assert second.turn([*history, *NEW]).reused >= len(history) - 2
    # A slot that is empty at the next end leaves no file of the time before.
    save_all(Bench(kind, slots=3).engine, tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("spoil", [lambda path: path.write_bytes(b"?"), lambda path: path.mkdir()])
def test_what_can_not_be_restored_at_the_start_is_a_warning(
    spoil: Callable[[Path], object], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spoil(tmp_path / "resume-0.slot")
    bench = Bench("attention")
    with caplog.at_level(logging.WARNING):
        assert restore_all(bench.engine, tmp_path) == 0
    assert "slot 0 is not restored: resume-0.slot" in caplog.text
    bench.turn(PIECE)
