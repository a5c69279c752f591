"""`ngram-simple`: what followed the last n tokens when they last occurred will follow again."""

from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.decoding import NO_DRAFT
from surefoot.drafting.ngram_simple import NgramSimple
from tests.drafting import reference
from tests.drafting.texts import draft, propose, random_text, sequence_of

CODE = [11, 12, 13, 14, 15, 16, 17, 18]


@settings(print_blob=True, deadline=None)
@given(
    chunks=st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=12), min_size=1, max_size=12),
    most=st.integers(1, 20),
    size_n=st.integers(1, 6),
    size_m=st.integers(1, 20),
    min_hits=st.integers(1, 3),
)
def test_drafts_equal_a_search_through_the_whole_text(
    chunks: list[list[int]], most: int, size_n: int, size_m: int, min_hits: int
) -> None:
    drafter = NgramSimple(size_n, size_m, min_hits)
    sequence = sequence_of(chunks[0])
    for chunk in [[], *chunks[1:]]:
        sequence.committed += chunk
        expected = reference.ngram_simple(sequence.committed, most, size_n, size_m, min_hits)
        assert draft(drafter, sequence, most) == expected


def test_the_last_occurrence_counts() -> None:
    text = [1, 2, 7, 0, 1, 2, 8, 0, 1, 2]
    assert draft(NgramSimple(size_n=2, size_m=1), sequence_of(text)) == [8]


def test_a_draft_is_no_longer_than_asked_nor_than_m() -> None:
    sequence = sequence_of([*CODE, 0, *CODE[:3]])
    assert draft(NgramSimple(size_n=3, size_m=2), sequence) == CODE[3:5]
    assert draft(NgramSimple(size_n=3, size_m=48), sequence, most=4) == CODE[3:7]


def test_nothing_is_drafted_for_new_text_or_one_shorter_than_n() -> None:
    drafter = NgramSimple(size_n=3)
    for text in ([1], [1, 2], [1, 2, 3], [1, 2, 3, 4, 5, 6]):
        assert propose(drafter, sequence_of(text)) == NO_DRAFT


def test_a_period_goes_on_past_the_end_of_the_text() -> None:
    sequence = sequence_of([1, 2, 3, 1, 2, 3, 1])
    assert draft(NgramSimple(size_n=4, size_m=7), sequence) == [2, 3, 1, 2, 3, 1, 2]


def test_too_few_hits_give_no_draft() -> None:
    drafter = NgramSimple(size_n=2, size_m=1, min_hits=2)
    sequence = sequence_of([1, 2, 3, 1, 2])
    assert draft(drafter, sequence) == []
    sequence.committed += [4, 1, 2]
    assert draft(drafter, sequence) == [4]


def test_a_copy_of_the_prompt_is_drafted_with_the_default_settings() -> None:
    text = random_text(1, 200)
    sequence = sequence_of([*text, 1, *text[:12]])
    assert draft(NgramSimple(), sequence) == text[12:60]


def test_the_draft_bears_the_drafters_name() -> None:
    assert propose(NgramSimple(size_n=1), sequence_of([1, 1])).drafter == "ngram-simple"
