"""Save a slot to a file, restore it from one, and erase it; see `cache/slot_file.py`.

Files are read and written where the caller's thread is, and only the states themselves are copied
where the engine's is; so rounds do not wait for a disk.
"""

import logging
import os
import stat
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, TypeVar

from surefoot.decoding import InvalidParameterError, SurefootError
from surefoot.engine.cache.packing import StateFileError
from surefoot.engine.cache.slot_file import State, pack_slot, unpack_slot
from surefoot.engine.engine import Engine
from surefoot.engine.slot import Slot

log = logging.getLogger(__name__)

Result = TypeVar("Result")
Action = Literal["save", "restore", "erase"]
Problem = Literal["missing", "busy", "unusable", "disk"]
RESUMED = "resume-{}.slot"
"""The names of files that are written when the server ends."""

_LONGEST_NAME = 200


class SlotError(SurefootError):
    """A slot can't be saved, restored or erased; it is as it was.

    Attributes:
        problem: what kind of thing is wrong: a file or slot is missing, the slot is busy, the file
            can't be used for it, or the disk does not do its part.
    """

    def __init__(self, problem: Problem, text: str) -> None:
        super().__init__(text)
        self.problem = problem


@dataclass(frozen=True, slots=True)
class SlotOrder:
    """What is to be done with a slot.

    Attributes:
        action: what.
        slot: the slot's number.
        path: the file; empty to erase.
    """

    action: Action
    slot: int
    path: str = ""


class SlotDone(NamedTuple):
    """What was done.

    Attributes:
        tokens: how many tokens were saved, restored or erased.
        bytes: the file's size.
        seconds: how long it took.
    """

    tokens: int
    bytes: int
    seconds: float


class Caller(Protocol):
    """Who calls functions in the thread that owns the engine."""

    @property
    def engine(self) -> Engine:
        """The engine."""

    def call(self, function: Callable[[], Result]) -> Result:
        """Call a function between two steps; returns what it does, and raises what it raises."""


class Direct:
    """For an engine that no other thread uses."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def call(self, function: Callable[[], Result]) -> Result:
        """Call it."""
        return function()


def check_file_name(name: str) -> str:
    """A name for a file in the folder of slots.

    Raises:
        InvalidParameterError: it could lead out of the folder, or is none for a file.
    """
    if not name or name in (".", "..") or not name.isprintable() or set(name) & set('/\\:*?"<>|'):
        raise InvalidParameterError(
            "filename",
            f"must be the plain name of a file, without folders, not {name!r:.60}; files lie in "
            "the folder of --slot-save-path",
        )
    if len(name.encode()) > _LONGEST_NAME:
        raise InvalidParameterError("filename", f"must have at most {_LONGEST_NAME} bytes")
    return name


def carry_out(caller: Caller, order: SlotOrder) -> SlotDone:
    """Do what was ordered.

    Raises:
        SlotError: it can't be done; the slot is as it was.
    """
    started = time.perf_counter()
    match order.action:
        case "save":
            tokens, size = _save(caller, order.slot, Path(order.path))
        case "restore":
            tokens, size = _restore(caller, order.slot, Path(order.path))
        case "erase":
            tokens, size = caller.call(lambda: _erase(caller.engine, order.slot)), 0
    return SlotDone(tokens, size, time.perf_counter() - started)


def save_all(engine: Engine, folder: Path) -> None:
    """Save all slots that hold something, when a server ends; what can't be is told in the log."""
    for number in range(engine.runtime.slots):
        path = folder / RESUMED.format(number)
        try:
            if engine.main.slots[number].held:
                _save(Direct(engine), number, path)
            else:
                path.unlink(missing_ok=True)
        except (SlotError, OSError) as error:
            log.warning("slot %d is not saved: %s", number, error)


def restore_all(engine: Engine, folder: Path) -> int:
    """Restore the slots that `save_all` saved; returns how many tokens they hold."""
    total = 0
    for number in range(engine.runtime.slots):
        path = folder / RESUMED.format(number)
        if not path.exists():
            continue
        try:
            total += _restore(Direct(engine), number, path)[0]
        except SlotError as error:
            log.warning("slot %d is not restored: %s", number, error)
    return total


def _save(caller: Caller, slot: int, path: Path) -> tuple[int, int]:
    states = caller.call(lambda: _states(caller.engine, slot))
    parts = pack_slot(caller.engine.runtime.identity, states)
    try:
        _write(path, parts)
    except OSError as error:
        raise SlotError("disk", f"{path.name} can't be written: {error.strerror}") from error
    return len(states[0][0]), sum(len(part) for part in parts)


def _restore(caller: Caller, slot: int, path: Path) -> tuple[int, int]:
    data = _read(path)
    try:
        states = unpack_slot(data, caller.engine.runtime.identity)
    except StateFileError as error:
        raise SlotError("unusable", f"{path.name} can't be restored: {error}") from error
    caller.call(lambda: _put(caller.engine, slot, states))
    return len(states[0][0]), len(data)


def _idle_slot(engine: Engine, number: int) -> Slot:
    slots = engine.main.slots
    if not 0 <= number < len(slots):
        raise SlotError("missing", f"there is no slot {number}; they are 0 to {len(slots) - 1}")
    if slots[number].generation is not None:
        raise SlotError("busy", f"slot {number} is at work; try again when its request has ended")
    return slots[number]


def _states(engine: Engine, number: int) -> list[State]:
    slot = _idle_slot(engine, number)
    states = engine.cache.states_of(slot)
    if not states:
        raise SlotError("unusable", f"slot {number} holds nothing that could be saved")
    return states


def _put(engine: Engine, number: int, states: list[State]) -> None:
    slot = _idle_slot(engine, number)
    length = len(states[0][0])
    if length >= engine.runtime.context_length:
        raise SlotError(
            "unusable",
            f"its text has {length} tokens, and a slot has room for {engine.runtime.context_length}"
            " with an answer; start with a larger -c",
        )
    try:
        engine.cache.put_states(slot, states)
    except SurefootError as error:
        raise SlotError("unusable", f"slot {number} can't take the state: {error}") from error


def _erase(engine: Engine, number: int) -> int:
    slot = _idle_slot(engine, number)
    tokens = len(slot.held)
    slot.discard(slot.last_used)
    return tokens


def _write(path: Path, parts: list[bytes]) -> None:
    """Write a file under another name first, so that nobody sees half of one."""
    handle, name = tempfile.mkstemp(dir=path.parent, suffix=".part")
    part = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.writelines(parts)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _read(path: Path) -> bytes:
    try:
        # A link could lead out of the folder, and a pipe would never end.
        if not stat.S_ISREG(path.lstat().st_mode):
            raise SlotError("unusable", f"{path.name} is no file")
        return path.read_bytes()
    except FileNotFoundError as error:
        raise SlotError("missing", f"there is no file {path.name}") from error
    except OSError as error:
        raise SlotError("disk", f"{path.name} can't be read: {error.strerror}") from error
