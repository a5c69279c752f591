"""Which tokens followed each n-gram, and how often."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.drafting.ngram_counts import (
    LONGEST,
    RIVALS,
    Followers,
    NgramCounts,
    Threshold,
    extended,
    key_of,
    likely,
    ngram_of,
)

LARGEST = (1 << 31) - 2
texts = st.lists(st.integers(0, 3) | st.just(LARGEST), max_size=40)


def counted(text: list[int]) -> NgramCounts:
    counts, keys = NgramCounts(), list[int]()
    for token in text:
        counts.add(keys, token)
        keys = extended(keys, token)
    return counts


@settings(print_blob=True, deadline=None)
@given(text=texts)
def test_counts_equal_those_of_a_search_through_the_whole_text(text: list[int]) -> None:
    expected: dict[tuple[int, ...], Counter[int]] = {}
    for size in range(1, LONGEST + 1):
        for end in range(size, len(text)):
            expected.setdefault(tuple(text[end - size : end]), Counter())[text[end]] += 1
    found = {tuple(ngram_of(key)): dict(followers) for key, followers in counted(text)}
    assert found == expected


@settings(print_blob=True, deadline=None)
@given(ngram=st.lists(st.integers(0, LARGEST), min_size=1, max_size=LONGEST))
def test_a_key_tells_its_ngram(ngram: list[int]) -> None:
    keys: list[int] = []
    for token in ngram:
        keys = extended(keys, token)
    assert keys[-1] == key_of(ngram)
    assert [ngram_of(key) for key in keys] == [ngram[-size:] for size in range(1, len(ngram) + 1)]


def test_few_sightings_or_a_small_share_of_them_give_no_guess() -> None:
    assert likely(7, None, Threshold(1, 50)) == 7
    assert likely(7, None, Threshold(2, 50)) is None
    assert likely(Followers({7: 2, 8: 2}), None, Threshold(4, 50)) == 7
    assert likely(Followers({7: 2, 8: 2}), None, Threshold(5, 50)) is None
    assert likely(Followers({7: 2, 8: 2}), None, Threshold(4, 51)) is None


def test_evidence_decides_between_followers_but_not_how_likely_they_are() -> None:
    even = Followers({7: 2, 8: 2})
    assert likely(even, 8, Threshold(1, 50)) == 8
    assert likely(even, Followers({7: 1, 8: 2}), Threshold(1, 50)) == 8
    assert likely(even, Followers({7: 2, 8: 1}), Threshold(1, 50)) == 7
    assert likely(Followers({7: 3, 8: 1}), 8, Threshold(1, 50)) is None


def test_a_guess_weighs_no_more_followers_in_a_longer_text() -> None:
    many = Followers({1_000 + token: 1 for token in range(RIVALS)} | {5: RIVALS, 6: 1})
    assert likely(many, 1_000, Threshold(1, 10)) is None
    assert likely(many, 6, Threshold(1, 10)) == 5


@pytest.mark.parametrize("most", [0, 12, 100])
def test_pruning_keeps_what_was_seen_most(most: int) -> None:
    counts = counted([1, 2, 3] * 20 + list(range(10, 200)))
    before = len(counts)
    assert before > 600
    counts.prune(before)
    assert len(counts) == before
    counts.prune(most)
    assert len(counts) <= most
    if most:
        assert {tuple(ngram_of(key)) for key, _ in counts} >= {(1, 2), (2, 3), (3, 1)}
    counts.add([key_of([1])], 2)
    assert counts.get(key_of([1])) is not None
