"""Lookup files: n-gram counts on disk, in llama.cpp's format.

As `llama-lookup-create`, `llama-lookup` and `llama-lookup-merge` write them (build 11434,
`common/ngram-cache.cpp`): no header; 32-bit integers in the machine's byte order; for each n-gram
its 4 tokens (-1 behind the end of a shorter one), the number of different followers, and for each
of these the token and its count. Of an n-gram that occurs twice the first record counts.

The format says nothing of the model, so a file for another one is found out only by tokens that
the vocabulary doesn't have.
"""

import os
import shutil
import struct
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from surefoot.decoding import SurefootError
from surefoot.drafting.ngram_counts import LONGEST, NgramCounts, key_of, ngram_of

_NO_TOKEN = -1
_MOST = (1 << 31) - 1
"""The largest number that the format has room for."""

_HEAD = struct.Struct(f"={LONGEST + 1}i")
_FOLLOWER = struct.Struct("=2i")
_PADDING = [_NO_TOKEN] * LONGEST


class LookupFileError(SurefootError):
    """A lookup file can't be read or written.

    Args:
        path: the file.
        problem: what is wrong, and what to do.
    """

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"lookup file {path}: {problem}")


def load_counts(path: Path, vocabulary_size: int | None = None) -> NgramCounts:
    """Read a lookup file.

    Args:
        path: the file.
        vocabulary_size: how many tokens the model has; None if that is not known.

    Raises:
        LookupFileError: it can't be read, is damaged, or was made for another model.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise LookupFileError(path, f"can't be read: {error.strerror}; check the path") from error
    counts = NgramCounts()
    try:
        for ngram, followers in _records(data, vocabulary_size or _MOST):
            counts.put(key_of(ngram), followers)
    except _BadRecordError as error:
        raise LookupFileError(path, str(error)) from None
    return counts


def open_counts(path: Path, vocabulary_size: int | None = None) -> NgramCounts:
    """Read a lookup file that will be written again; none is made yet where there is none.

    Raises:
        LookupFileError: it can't be read, is damaged, was made for another model, or can't be
            written.
    """
    folder = path.resolve().parent
    if not folder.is_dir():
        raise LookupFileError(path, "there is no such folder; make it, or give another path")
    if not os.access(folder, os.W_OK):
        raise LookupFileError(path, "its folder can't be written to; give another path")
    return load_counts(path, vocabulary_size) if path.exists() else NgramCounts()


class _BadRecordError(Exception):
    """What is wrong at some place of a file."""

    def __init__(self, byte: int, problem: str) -> None:
        super().__init__(
            f"is damaged or no lookup file: it {problem} at byte {byte}; "
            "give another path, or remove it"
        )


class _UnknownTokenError(_BadRecordError):
    """A token that the vocabulary doesn't have."""

    def __init__(self, token: int, vocabulary_size: int) -> None:
        Exception.__init__(
            self,
            f"was made for another model: it has a token {token}, and this model's vocabulary has "
            f"{vocabulary_size}; give the file that was made for this model",
        )


def _records(data: bytes, vocabulary_size: int) -> Iterator[tuple[list[int], dict[int, int]]]:
    """Each n-gram, and its followers with their counts."""
    at = 0
    while at < len(data):
        if len(data) - at < _HEAD.size:
            raise _BadRecordError(at, "ends within an n-gram")
        *padded, different = _HEAD.unpack_from(data, at)
        ngram = padded[: LONGEST - padded.count(_NO_TOKEN)]
        if not ngram or min(ngram) < 0:
            raise _BadRecordError(at, "has an impossible n-gram")
        if different < 1:
            raise _BadRecordError(at, f"has an n-gram with {different} followers")
        at += _HEAD.size
        if len(data) - at < different * _FOLLOWER.size:
            raise _BadRecordError(at, "ends within the followers of an n-gram")
        pairs = struct.unpack_from(f"={2 * different}i", data, at)
        followers = dict(zip(pairs[::2], pairs[1::2], strict=True))
        if len(followers) < different or min(followers) < 0 or min(pairs[1::2]) < 1:
            raise _BadRecordError(at, "has impossible followers of an n-gram")
        largest = max(*ngram, *followers)
        if largest >= vocabulary_size:
            raise _UnknownTokenError(largest, vocabulary_size)
        yield ngram, followers
        at += different * _FOLLOWER.size


def save_counts(counts: NgramCounts, path: Path) -> None:
    """Write a lookup file; the old one stands until the new one is complete.

    A new file is readable for its owner alone, since it tells of the texts it was made from.

    Raises:
        LookupFileError: it can't be written; the old one is as it was.
    """
    target = path.resolve()
    try:
        with tempfile.NamedTemporaryFile(
            prefix=f".{target.name}.", dir=target.parent, delete=False
        ) as file:
            try:
                file.writelines(_packed(counts))
                file.flush()
                os.fsync(file.fileno())
                if target.exists():
                    shutil.copymode(target, file.name)
                Path(file.name).replace(target)
            except BaseException:
                with suppress(OSError):
                    Path(file.name).unlink()
                raise
    except OSError as error:
        raise LookupFileError(
            path,
            f"can't be written: {error.strerror}; make room there, or give another path",
        ) from error


def _packed(counts: NgramCounts) -> Iterator[bytes]:
    """The file's records."""
    for key, followers in counts:
        ngram = ngram_of(key)
        yield _HEAD.pack(*ngram, *_PADDING[len(ngram) :], len(followers))
        for token, count in followers.items():
            yield _FOLLOWER.pack(token, min(count, _MOST))
