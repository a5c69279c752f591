"""A slot's file: the state of its text, and states of beginnings of it, each with its drafter's.

One line that says what the file is, one line of JSON, and the states as `packing.py` writes them,
the longest text first. The checksum covers all of them.
"""

import hashlib
import json
from collections.abc import Sequence as Series
from typing import Any

from surefoot.engine.cache.packing import StateFileError, pack, unpack
from surefoot.engine.cache.tokens import Tokens

MAGIC = b"surefoot slot 1\n"
_LONGEST_HEADER = 1 << 20

State = tuple[Tokens, dict[str, bytes]]
"""A text, and its state as parts; see `packing.pack`."""


def pack_slot(identity: str, states: Series[State]) -> list[bytes]:
    """A slot's states as bytes, to be written behind each other.

    Args:
        identity: the runtime's.
        states: the longest text first; at least one.
    """
    packed = [pack(identity, tokens, parts) for tokens, parts in states]
    header = {
        "identity": identity,
        "states": [len(data) for data in packed],
        "checksum": _checksum(packed),
    }
    return [MAGIC, json.dumps(header).encode(), b"\n", *packed]


def unpack_slot(data: bytes, identity: str) -> list[State]:
    """The states in a slot's file, the longest text first.

    Raises:
        StateFileError: it is no such file, is not whole, or is of another model.
    """
    if not data.startswith(MAGIC):
        raise StateFileError("it is no slot that this version of surefoot has saved")
    start = data.find(b"\n", len(MAGIC), len(MAGIC) + _LONGEST_HEADER) + 1
    header = _header(data[len(MAGIC) : start])
    if header["identity"] != identity:
        raise StateFileError(f"it is a slot of {header['identity']}, and this is {identity}")
    sizes = header["states"]
    if len(data) != start + sum(sizes):
        raise StateFileError(f"it is cut short: {len(data)} bytes, not {start + sum(sizes)}")
    packed = []
    for size in sizes:
        packed.append(data[start : start + size])
        start += size
    if _checksum(packed) != header["checksum"]:
        raise StateFileError("it is damaged: its checksum is wrong")
    return [unpack(part, identity) for part in packed]


def _checksum(packed: Series[bytes]) -> str:
    digest = hashlib.sha256()
    for part in packed:
        digest.update(part)
    return digest.hexdigest()


def _header(text: bytes) -> dict[str, Any]:
    try:
        header = json.loads(text)
        sizes = header["states"]
        whole = isinstance(header["identity"], str) and isinstance(header["checksum"], str)
        whole = whole and len(sizes) > 0
        whole = whole and all(isinstance(size, int) and size > 0 for size in sizes)
    except (ValueError, TypeError, KeyError) as error:
        raise StateFileError("it is damaged: its header can't be read") from error
    if not whole:
        raise StateFileError("it is damaged: its header makes no sense")
    return dict(header)
