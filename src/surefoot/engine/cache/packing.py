"""A state as bytes for a file: what it is of, and a checksum that tells whether it is whole.

One line that says what the file is, one line of JSON, and the parts behind each other: the tokens
as 32-bit numbers, then the state of the target and of each drafter that keeps one.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np

from surefoot.decoding import SurefootError
from surefoot.engine.cache.tokens import Tokens

MAGIC = b"surefoot state 1\n"
_LONGEST_HEADER = 1 << 16
TARGET = "target"
"""The part that every state has."""


class StateFileError(SurefootError):
    """A file holds no state that could be used here; the text says why."""


def pack(identity: str, tokens: Tokens, parts: Mapping[str, bytes]) -> bytes:
    """A state as bytes.

    Args:
        identity: the runtime's.
        tokens: the text that was absorbed.
        parts: the state of the target, under `TARGET`, and those of drafters by their names.
    """
    text = tokens.astype("<i4").tobytes()
    digest = hashlib.sha256(text)
    for part in parts.values():
        digest.update(part)
    header = {
        "identity": identity,
        "tokens": len(tokens),
        "parts": {name: len(part) for name, part in parts.items()},
        "checksum": digest.hexdigest(),
    }
    return b"".join([MAGIC, json.dumps(header).encode(), b"\n", text, *parts.values()])


def unpack(data: bytes, identity: str) -> tuple[Tokens, dict[str, bytes]]:
    """The text and the parts of a state.

    Raises:
        StateFileError: it is none, is not whole, or is of another model.
    """
    start = data.find(b"\n", len(MAGIC)) + 1
    header = _header(data[:start], identity)
    tokens, sizes = header["tokens"], header["parts"]
    end = start + 4 * tokens
    size = end + sum(sizes.values())
    if len(data) != size:
        raise StateFileError(f"it is cut short: {len(data)} bytes, where {size} belong")
    if hashlib.sha256(memoryview(data)[start:]).hexdigest() != header["checksum"]:
        raise StateFileError("it is damaged: its checksum is wrong")
    text = np.frombuffer(data[start:end], "<i4").astype(np.int32)
    parts = {}
    for name, length in sizes.items():
        parts[name] = data[end : end + length]
        end += length
    return text, parts


def read_text(file: BinaryIO, identity: str) -> Tokens:
    """The text at the head of a file, without a look at the state.

    Raises:
        StateFileError: it is no state, or one of another model.
    """
    magic = file.readline(len(MAGIC))
    header = _header(magic + file.readline(_LONGEST_HEADER), identity)
    text = file.read(4 * header["tokens"])
    if len(text) != 4 * header["tokens"]:
        raise StateFileError("it is cut short")
    return np.frombuffer(text, "<i4").astype(np.int32)


def _header(head: bytes, identity: str) -> dict[str, Any]:
    if not head.startswith(MAGIC):
        raise StateFileError("it is no state that this version of surefoot has saved")
    try:
        header = json.loads(head[len(MAGIC) :])
        theirs = header["identity"]
        sizes = [header["tokens"], *header["parts"].values()]
        whole = all(isinstance(size, int) and size >= 0 for size in sizes)
        whole = whole and TARGET in header["parts"] and isinstance(header["checksum"], str)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise StateFileError("it is damaged: its header can't be read") from error
    if not whole:
        raise StateFileError("it is damaged: its header makes no sense")
    if theirs != identity:
        raise StateFileError(f"it is a state of {theirs}, and this is {identity}")
    return dict(header)
