"""`ngram-cache`: by statistics of the sequence, of other requests, and of a corpus."""

import errno
import logging
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.decoding import NO_DRAFT
from surefoot.drafting import ngram_cache
from surefoot.drafting.lookup_file import load_counts, save_counts
from surefoot.drafting.ngram_cache import NgramCache
from surefoot.drafting.ngram_counts import NgramCounts, extended
from tests.drafting import reference
from tests.drafting.texts import draft, propose, random_text, sequence_of

SOURCE = random_text(2, 200)
SECRET = [7, 8, 9, 7, 8, 9, 7, 8, 9]
token_lists = st.lists(st.integers(0, 3), min_size=1, max_size=30)


def counted(text: list[int], sizes: slice = slice(None)) -> NgramCounts:
    counts, keys = NgramCounts(), list[int]()
    for token in text:
        counts.add(keys[sizes], token)
        keys = extended(keys, token)
    return counts


@settings(print_blob=True, deadline=None)
@given(
    chunks=st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=8), min_size=1, max_size=6),
    corpus=st.lists(st.integers(0, 3), max_size=30),
    others=st.none() | st.lists(token_lists, max_size=2),
    most=st.integers(1, 8),
)
def test_drafts_equal_a_search_through_all_texts(
    chunks: list[list[int]], corpus: list[int], others: list[list[int]] | None, most: int
) -> None:
    dynamic = None if others is None else NgramCounts()
    drafter = NgramCache(counted(corpus, slice(1, 2)), dynamic)
    for other in others or []:
        draft(drafter, sequence_of(other))
    sequence = sequence_of(chunks[0])
    for chunk in [[], *chunks[1:]]:
        sequence.committed += chunk
        expected = reference.ngram_cache(sequence.committed, most, corpus, others)
        assert draft(drafter, sequence, most) == expected


def test_a_draft_is_no_longer_than_asked_nor_than_llama_servers() -> None:
    sequence = sequence_of([*SOURCE, 1, *SOURCE[:5]])
    assert draft(NgramCache(), sequence) == SOURCE[5:13]
    assert draft(NgramCache(), sequence, most=3) == SOURCE[5:8]


def test_tokens_are_counted_behind_ngrams_of_earlier_rounds() -> None:
    sequence, drafter = sequence_of(SOURCE[:1]), NgramCache()
    for token in [*SOURCE[1:], 1, *SOURCE[:5]]:
        draft(drafter, sequence)
        sequence.committed.append(token)
    assert draft(drafter, sequence) == SOURCE[5:13]


def test_the_static_counts_are_asked_last() -> None:
    static = counted([1, 2, 9, 1, 2, 9], slice(1, 2))
    assert draft(NgramCache(static), sequence_of([1, 2]), 1) == [9]
    assert draft(NgramCache(static), sequence_of([1, 2, 3, 1, 2, 3, 1, 2]), 1) == [3]


def test_requests_share_text_only_through_dynamic_counts() -> None:
    for drafter, expected in ((NgramCache(), []), (NgramCache(dynamic=NgramCounts()), [9, 7, 8])):
        first = sequence_of(SECRET)
        draft(drafter, first)
        drafter.forget(first)
        assert draft(drafter, sequence_of([7, 8]), 3) == expected


def test_what_the_static_file_says_is_not_changed_by_requests() -> None:
    static = counted(SECRET, slice(1, 2))
    before = [(key, dict(followers)) for key, followers in static]
    for shared in (None, NgramCounts()):
        draft(NgramCache(static, shared), sequence_of([7, 8, 1, 7, 8, 1, 7, 8]))
    assert [(key, dict(followers)) for key, followers in static] == before


def test_the_dynamic_file_carries_over_a_restart_what_requests_taught(tmp_path: Path) -> None:
    path = tmp_path / "dynamic"
    first = NgramCache(dynamic=NgramCounts(), save_to=path)
    draft(first, sequence_of(SECRET))
    assert not path.exists()
    first.close()
    saved = {key: dict(followers) for key, followers in load_counts(path)}
    assert saved == {key: dict(followers) for key, followers in counted(SECRET)}
    second = NgramCache(dynamic=load_counts(path), save_to=path)
    assert draft(second, sequence_of([7, 8]), 3) == [9, 7, 8]


def test_dynamic_counts_get_the_end_of_a_text_and_nothing_of_one_not_asked_for() -> None:
    dynamic = NgramCounts()
    drafter = NgramCache(dynamic=dynamic)
    sequence, other = sequence_of(SECRET[:3]), sequence_of(SOURCE)
    draft(drafter, sequence)
    sequence.committed += SECRET[3:]
    for ended in (sequence, other):
        drafter.forget(ended)
    assert {key for key, _ in dynamic} == {key for key, _ in counted(SECRET)}


def test_without_a_dynamic_file_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for drafter in (NgramCache(), NgramCache(dynamic=NgramCounts())):
        draft(drafter, sequence_of(SECRET))
        drafter.close()
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_not_touched_if_nothing_was_learnt(tmp_path: Path) -> None:
    path = tmp_path / "dynamic"
    save_counts(counted(SECRET), path)
    before = path.stat()
    drafter = NgramCache(dynamic=load_counts(path), save_to=path)
    drafter.close()
    after = path.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_full_disk_gives_a_warning_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "dynamic"
    save_counts(counted([1, 2, 3]), path)
    before = path.read_bytes()
    drafter = NgramCache(dynamic=load_counts(path), save_to=path)
    draft(drafter, sequence_of(SECRET))

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(os, "fsync", full)
        drafter.close()
    assert "not saved" in caplog.text
    assert "No space left" in caplog.text
    assert path.read_bytes() == before
    drafter.close()
    assert draft(NgramCache(dynamic=load_counts(path)), sequence_of([7, 8]), 3) == [9, 7, 8]


def test_dynamic_counts_do_not_grow_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ngram_cache, "MOST_SHARED", 1000)
    dynamic = NgramCounts()
    drafter = NgramCache(dynamic=dynamic)
    for seed in range(10):
        sequence = sequence_of([*SECRET * 3, *random_text(seed, 400)])
        draft(drafter, sequence)
        drafter.forget(sequence)
        assert len(dynamic) <= 1000
    assert draft(drafter, sequence_of([7, 8]), 3) == [9, 7, 8]


def test_nothing_is_drafted_for_new_text_or_a_single_token() -> None:
    for text in ([1], [1, 2], [1, 2, 3, 4, 5, 6]):
        assert propose(NgramCache(), sequence_of(text)) == NO_DRAFT


def test_the_draft_bears_the_drafters_name() -> None:
    assert propose(NgramCache(), sequence_of([1] * 5)).drafter == "ngram-cache"
