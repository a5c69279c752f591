"""Lookup files: llama.cpp's own format, read and written without losing anything."""

import errno
import os
import stat
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.drafting.lookup_file import LookupFileError, load_counts, open_counts, save_counts
from surefoot.drafting.ngram_counts import NgramCounts, key_of, ngram_of

Table = dict[tuple[int, ...], dict[int, int]]

TABLE: Table = {(5,): {7: 2, 8: 1}, (1, 2): {0: 1}, (1, 2, 3, 4): {9: 70_000}}
WORDS = [
    *[5, -1, -1, -1, 2, 7, 2, 8, 1],
    *[1, 2, -1, -1, 1, 0, 1],
    *[1, 2, 3, 4, 1, 9, 70_000],
]
"""The same as `common_ngram_cache_save` writes it."""


def packed(words: list[int]) -> bytes:
    return struct.pack(f"={len(words)}i", *words)


def written(folder: Path, words: list[int], tail: bytes = b"") -> Path:
    path = folder / "lookup.bin"
    path.write_bytes(packed(words) + tail)
    return path


def table_of(counts: NgramCounts) -> Table:
    return {tuple(ngram_of(key)): dict(followers) for key, followers in counts}


def counts_of(table: Table) -> NgramCounts:
    counts = NgramCounts()
    for ngram, followers in table.items():
        counts.put(key_of(ngram), followers)
    return counts


def test_a_file_of_llama_cpp_is_read(tmp_path: Path) -> None:
    assert table_of(load_counts(written(tmp_path, WORDS))) == TABLE


def test_a_file_is_written_as_llama_cpp_writes_it(tmp_path: Path) -> None:
    save_counts(counts_of(TABLE), tmp_path / "new")
    assert (tmp_path / "new").read_bytes() == packed(WORDS)


tokens = st.integers(0, 20) | st.just((1 << 31) - 2)


@settings(print_blob=True, deadline=None)
@given(
    table=st.dictionaries(
        st.lists(tokens, min_size=1, max_size=4).map(tuple),
        st.dictionaries(tokens, st.integers(1, (1 << 31) - 1), min_size=1, max_size=3),
        max_size=6,
    )
)
def test_what_is_saved_is_loaded_again(
    table: Table, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("lookup") / "file"
    save_counts(counts_of(table), path)
    assert table_of(load_counts(path)) == table


def test_a_count_that_is_too_large_for_the_format_is_written_as_the_largest(tmp_path: Path) -> None:
    save_counts(counts_of({(1,): {2: 1 << 40}}), tmp_path / "file")
    assert table_of(load_counts(tmp_path / "file")) == {(1,): {2: (1 << 31) - 1}}


def test_an_empty_file_has_no_counts(tmp_path: Path) -> None:
    assert len(load_counts(written(tmp_path, []))) == 0


def test_of_an_ngram_that_comes_twice_the_first_record_counts(tmp_path: Path) -> None:
    words = [1, -1, -1, -1, 1, 7, 2, 1, -1, -1, -1, 1, 8, 3]
    assert table_of(load_counts(written(tmp_path, words))) == {(1,): {7: 2}}


@pytest.mark.parametrize("length", range(1, 4 * len(WORDS)))
def test_a_file_that_was_cut_is_an_error_unless_cut_between_records(
    length: int, tmp_path: Path
) -> None:
    path = tmp_path / "cut"
    path.write_bytes(packed(WORDS)[:length])
    if length in (4 * 9, 4 * 16):
        assert len(load_counts(path)) > 0
    else:
        with pytest.raises(LookupFileError, match=r"damaged or no lookup file.*remove it"):
            load_counts(path)


@pytest.mark.parametrize(
    "words",
    [
        [-1, -1, -1, -1, 1, 7, 1],
        [1, -1, 2, -1, 1, 7, 1],
        [1, -2, -1, -1, 1, 7, 1],
        [1, -1, -1, -1, 0],
        [1, -1, -1, -1, -3, 7, 1],
        [1, -1, -1, -1, 1, 7, 0],
        [1, -1, -1, -1, 1, -1, 1],
        [1, -1, -1, -1, 2, 7, 1, 7, 1],
        [1, -1, -1, -1, 1 << 30, 7, 1],
        list(struct.unpack("=6i", b"GGUF\x03\0\0\0" + struct.pack("=QQ", 750, 52))) + [1] * 100,
        list(struct.unpack("=6i", b"Once upon a time, there ")) * 20,
    ],
)
def test_a_foreign_or_damaged_file_is_an_error_that_says_what_to_do(
    words: list[int], tmp_path: Path
) -> None:
    path = written(tmp_path, [*WORDS, *words])
    with pytest.raises(LookupFileError, match=r"damaged or no lookup file.*remove it") as caught:
        load_counts(path)
    assert str(path) in str(caught.value)
    assert path.exists()


def test_a_file_for_a_larger_vocabulary_is_an_error(tmp_path: Path) -> None:
    path = written(tmp_path, WORDS)
    assert len(load_counts(path, vocabulary_size=10)) == 3
    with pytest.raises(LookupFileError, match=r"another model: it has a token 9, .* 9; give"):
        load_counts(path, vocabulary_size=9)


def test_a_file_that_is_not_there_is_an_error_unless_it_is_to_be_made(tmp_path: Path) -> None:
    with pytest.raises(LookupFileError, match="can't be read: No such file"):
        load_counts(tmp_path / "none")
    assert len(open_counts(tmp_path / "none")) == 0
    with pytest.raises(LookupFileError, match="no such folder; make it"):
        open_counts(tmp_path / "none" / "none")
    with pytest.raises(LookupFileError, match="can't be read: Is a directory"):
        open_counts(tmp_path)


def test_a_file_that_is_damaged_is_not_taken_for_one_to_be_made(tmp_path: Path) -> None:
    with pytest.raises(LookupFileError, match="damaged"):
        open_counts(written(tmp_path, WORDS, tail=b"\0"))


def test_a_folder_that_can_not_be_written_to_is_found_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(LookupFileError, match="can't be written to"):
        open_counts(written(tmp_path, WORDS))


def full_disk(_: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_the_old_file_stands_if_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, WORDS)
    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(LookupFileError, match="No space left on device; make room"):
        save_counts(counts_of({(1,): {2: 3}}), path)
    assert path.read_bytes() == packed(WORDS)
    assert list(tmp_path.iterdir()) == [path]


def test_a_new_file_is_for_its_owner_and_an_old_one_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "file"
    save_counts(counts_of(TABLE), path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o640)
    save_counts(counts_of(TABLE), path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    path, link = written(tmp_path, []), tmp_path / "link"
    link.symlink_to(path)
    save_counts(counts_of(TABLE), link)
    assert link.is_symlink()
    assert path.read_bytes() == packed(WORDS)
