"""A trail as bytes, together with the entries that the heads hold."""

import json
from collections.abc import Iterator
from collections.abc import Sequence as Series

import numpy as np

from surefoot.drafting.trail import Trail


def pack_trail(trail: Trail, entries: Series[bytes]) -> bytes:
    """A trail without its tokens, and for each head its saved entries.

    First a line of JSON with the sizes of all that follows: the positions of each head's entries
    as 32-bit numbers, the rows' positions likewise, the rows, each head's entries.
    """
    rows = trail.rows
    parts = [np.asarray(positions, np.int32).tobytes() for positions in trail.entries]
    parts.append(np.asarray(list(rows), np.int32).tobytes())
    parts.append(b"".join(row.astype(np.float32).tobytes() for row in rows.values()))
    parts += entries
    return json.dumps([len(part) for part in parts]).encode() + b"\n" + b"".join(parts)


def unpack_trail(trail: Trail, tokens: Series[int], state: bytes) -> list[bytes]:
    """Let an empty trail know what was packed.

    Args:
        trail: with as many heads.
        tokens: the text that it was made of, or the beginning of it.
        state: from `pack_trail`.

    Returns:
        For each head its saved entries.

    Raises:
        ValueError: it is no such state.
    """
    line, _, rest = state.partition(b"\n")
    parts = list(_parts(json.loads(line), rest))
    heads = len(trail.entries)
    if len(parts) != 2 * heads + 2:
        raise ValueError(f"a state of {(len(parts) - 2) // 2} heads, and there are {heads}")
    entries = [np.frombuffer(part, np.int32).tolist() for part in parts[:heads]]
    positions = np.frombuffer(parts[heads], np.int32).tolist()
    rows = np.frombuffer(parts[heads + 1], np.float32).reshape(max(1, len(positions)), -1).copy()
    trail.put_back(tokens, entries, dict(zip(positions, rows, strict=False)))
    return parts[heads + 2 :]


def _parts(sizes: list[int], data: bytes) -> Iterator[bytes]:
    start = 0
    for size in sizes:
        yield data[start : start + size]
        start += size
    if start != len(data):
        raise ValueError(f"{len(data)} bytes, and not {start}")
