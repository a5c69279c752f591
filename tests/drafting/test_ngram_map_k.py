"""`ngram-map-k`: the first occurrence, no further than it was right last time."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.decoding import NO_DRAFT
from surefoot.drafting.ngram_map_k import NgramMapK
from tests.drafting import reference
from tests.drafting.texts import draft, propose, random_text, sequence_of

CODE = [11, 12, 13, 14, 15, 16, 17, 18]


@settings(print_blob=True, deadline=None)
@given(
    chunks=st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=9), min_size=1, max_size=12),
    most=st.integers(1, 20),
    size_n=st.integers(1, 4),
    size_m=st.integers(1, 12),
    min_hits=st.integers(1, 3),
    luck=st.randoms(use_true_random=False),
)
def test_drafts_equal_a_search_through_the_whole_text(
    chunks: list[list[int]], most: int, size_n: int, size_m: int, min_hits: int, luck: random.Random
) -> None:
    drafter = NgramMapK(size_n, size_m, min_hits)
    sequence = sequence_of(chunks[0])
    limits: dict[tuple[int, ...], int] = {}
    for chunk in [[], *chunks[1:]]:
        sequence.committed += chunk
        text = sequence.committed
        expected = reference.ngram_map_k(text, most, size_n, size_m, min_hits, limits)
        proposed = propose(drafter, sequence, most)
        assert list(proposed.tokens) == expected
        if expected:
            accepted = luck.randint(0, len(expected))
            drafter.learn(sequence, proposed, accepted)
            if accepted < len(expected):
                limits[tuple(text[-size_n:])] = accepted


def test_the_first_occurrence_counts() -> None:
    text = [1, 2, 7, 0, 1, 2, 8, 0, 1, 2]
    assert draft(NgramMapK(size_n=2, size_m=1), sequence_of(text)) == [7]


def test_a_draft_is_no_longer_than_its_key_was_right_last_time() -> None:
    drafter, sequence = NgramMapK(size_n=3), sequence_of([*CODE, 0, *CODE[:3]])
    drafter.learn(sequence, propose(drafter, sequence, 5), 2)
    sequence.committed += [14, 15, 99, *CODE[:3]]
    assert draft(drafter, sequence) == CODE[3:5]


def test_a_key_that_was_all_wrong_is_not_used_again() -> None:
    drafter, sequence = NgramMapK(size_n=3), sequence_of([*CODE, 0, *CODE[:3]])
    drafter.learn(sequence, propose(drafter, sequence, 5), 0)
    sequence.committed += [99, *CODE[:3]]
    assert propose(drafter, sequence) == NO_DRAFT
    sequence.committed += [99, *CODE[1:4]]
    assert draft(drafter, sequence, 3) == CODE[4:7]


def test_a_draft_cut_short_and_accepted_in_full_does_not_hold_the_next_back() -> None:
    drafter, sequence = NgramMapK(size_n=3), sequence_of([*CODE, 0, *CODE[:3]])
    drafter.learn(sequence, propose(drafter, sequence, 1), 1)
    sequence.committed += [14, 99, *CODE[:3]]
    assert draft(drafter, sequence, 5) == CODE[3:8]


def test_one_sequences_luck_is_not_anothers() -> None:
    drafter, text = NgramMapK(size_n=3), [*CODE, 0, *CODE[:3]]
    unlucky = sequence_of(text)
    drafter.learn(unlucky, propose(drafter, unlucky, 5), 0)
    assert draft(drafter, sequence_of(text), 5) == CODE[3:8]


def test_a_copy_of_the_prompt_is_drafted_with_the_default_settings() -> None:
    text = random_text(1, 200)
    sequence = sequence_of([*text, 1, *text[:12]])
    assert draft(NgramMapK(), sequence) == text[12:60]


def test_the_draft_bears_the_drafters_name() -> None:
    assert propose(NgramMapK(size_n=1), sequence_of([1, 1])).drafter == "ngram-map-k"
