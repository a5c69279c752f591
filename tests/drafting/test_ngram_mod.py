"""`ngram-mod`: token by token, whatever followed the last n tokens when they were last seen."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.decoding import NO_DRAFT, Draft
from surefoot.drafting.ngram_mod import NgramMod
from surefoot.drafting.ngram_table import NgramTable
from tests.drafting import reference
from tests.drafting.texts import draft, propose, random_text, sequence_of

SOURCE = random_text(2, 200)


def short(shared: NgramTable | None = None) -> NgramMod:
    return NgramMod(n_match=3, n_min=2, n_max=8, shared=shared)


@settings(print_blob=True, deadline=None)
@given(
    chunks=st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=12), min_size=1, max_size=12),
    most=st.integers(1, 20),
    n_match=st.integers(1, 6),
    n_min=st.integers(0, 10),
    n_max=st.integers(0, 20),
)
def test_drafts_equal_a_search_through_the_whole_text(
    chunks: list[list[int]], most: int, n_match: int, n_min: int, n_max: int
) -> None:
    drafter = NgramMod(n_match, n_min, n_max)
    sequence = sequence_of(chunks[0])
    for chunk in [[], *chunks[1:]]:
        sequence.committed += chunk
        expected = reference.ngram_mod(sequence.committed, most, n_match, n_min, n_max)
        assert draft(drafter, sequence, most) == expected


def test_a_draft_goes_on_from_one_occurrence_to_a_later_one() -> None:
    text = [1, 2, 3, 4, 0, 2, 3, 4, 5, 0, 1, 2, 3]
    assert draft(NgramMod(n_match=3, n_min=0, n_max=3), sequence_of(text)) == [4, 5, 0]


def test_a_run_shorter_than_n_min_is_not_used() -> None:
    text = [*SOURCE[:10], 1, *SOURCE[:6]]
    drafter = NgramMod(n_match=6, n_min=11, n_max=20)
    assert propose(drafter, sequence_of(text)) == NO_DRAFT
    drafter = NgramMod(n_match=6, n_min=10, n_max=20)
    assert draft(drafter, sequence_of(text)) == [*SOURCE[6:10], 1, *SOURCE[:5]]


def test_a_draft_is_no_longer_than_asked_nor_than_n_max() -> None:
    sequence = sequence_of([*SOURCE, 1, *SOURCE[:24]])
    assert draft(NgramMod(), sequence) == SOURCE[24:88]
    assert draft(NgramMod(n_max=50), sequence) == SOURCE[24:74]


def test_asking_for_fewer_tokens_than_n_min_gives_the_head_of_a_long_enough_run() -> None:
    sequence = sequence_of([*SOURCE, 1, *SOURCE[:24]])
    assert draft(NgramMod(n_min=48), sequence, most=16) == SOURCE[24:40]


def test_n_max_stands_in_for_a_larger_n_min() -> None:
    sequence = sequence_of([*SOURCE, 1, *SOURCE[:24]])
    assert draft(NgramMod(n_min=48, n_max=32), sequence) == SOURCE[24:56]


def test_the_draft_bears_the_drafters_name() -> None:
    assert propose(short(), sequence_of([1, 2, 3, 1, 2, 3])).drafter == "ngram-mod"


def test_requests_share_text_only_through_a_shared_table() -> None:
    for drafter, expected in ((short(), []), (short(NgramTable(1 << 16)), SOURCE[3:11])):
        assert draft(drafter, sequence_of(SOURCE)) == []
        assert draft(drafter, sequence_of(SOURCE[:3])) == expected


def test_the_sequences_own_text_comes_before_the_shared_table() -> None:
    drafter = short(NgramTable(1 << 16))
    own = sequence_of([1, 2, 3, 4, 5, 1, 2, 3])
    assert draft(drafter, own)[:2] == [4, 5]
    assert draft(drafter, sequence_of([1, 2, 3, 9, 9, 9])) == []
    assert draft(drafter, own)[:2] == [4, 5]


@pytest.mark.parametrize(("accepted", "kept"), [(1, False), (2, True)])
def test_five_drafts_in_a_row_accepted_by_less_than_a_quarter_empty_the_shared_table(
    accepted: int, kept: bool
) -> None:
    drafter = short(NgramTable(1 << 16))
    sequence = sequence_of(SOURCE)
    drafter.propose([(sequence, 8)])
    for reported in (0, 0, 0, 0, 2, 0, 0, 0, 0, accepted):
        assert draft(drafter, sequence_of(SOURCE[:3])) != []
        drafter.learn(sequence, Draft(range(8), drafter.name), reported)
    assert (draft(drafter, sequence_of(SOURCE[:3])) != []) is kept


def test_a_sequences_own_text_outlives_bad_drafts() -> None:
    drafter = short()
    sequence = sequence_of([*SOURCE, 1, *SOURCE[:3]])
    for _ in range(10):
        assert draft(drafter, sequence) == SOURCE[3:11]
        drafter.learn(sequence, Draft(range(8), drafter.name), 0)


def test_a_shared_table_that_is_too_full_is_emptied_before_the_next_request() -> None:
    table = NgramTable(400)
    drafter = short(table)
    draft(drafter, sequence_of(SOURCE))
    assert table.occupancy > 0.25
    drafter.propose([(sequence_of([1]), 8)])
    assert table.occupancy == 0
