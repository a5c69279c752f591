"""`ngram-map-k4v`: what followed most often, if clearly so."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.decoding import NO_DRAFT
from surefoot.drafting.ngram_map_k4v import NgramMapK4V
from tests.drafting import reference
from tests.drafting.texts import draft, propose, random_text, sequence_of

KEY = [7, 8]


def following(*values: list[int]) -> list[int]:
    """A text in which the key is followed by each value in turn, and then stands at the end."""
    return [token for value in values for token in [*KEY, *value]] + KEY


@settings(print_blob=True, deadline=None)
@given(
    chunks=st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=9), min_size=1, max_size=12),
    most=st.integers(1, 12),
    size_n=st.integers(1, 4),
    size_m=st.integers(1, 6),
    min_hits=st.integers(1, 3),
    luck=st.randoms(use_true_random=False),
)
def test_drafts_equal_a_search_through_the_whole_text(
    chunks: list[list[int]], most: int, size_n: int, size_m: int, min_hits: int, luck: random.Random
) -> None:
    drafter = NgramMapK4V(size_n, size_m, min_hits)
    sequence = sequence_of(chunks[0])
    limits: dict[tuple[int, ...], int] = {}
    for chunk in [[], *chunks[1:]]:
        sequence.committed += chunk
        value = reference.ngram_map_k4v(sequence.committed, size_n, size_m, min_hits)
        key_and_value = (*sequence.committed[-size_n:], *value)
        expected = value[: min(most, limits.get(key_and_value, size_m))]
        proposed = propose(drafter, sequence, most)
        assert list(proposed.tokens) == expected
        if expected:
            accepted = luck.randint(0, len(expected))
            drafter.learn(sequence, proposed, accepted)
            if accepted < len(expected):
                limits[key_and_value] = accepted


def test_the_most_frequent_value_is_drafted_wherever_it_stands() -> None:
    text = following([1, 2], [3, 4], [3, 4])
    assert draft(NgramMapK4V(size_n=2, size_m=2), sequence_of(text)) == [3, 4]


def test_nothing_is_drafted_if_no_value_is_twice_as_frequent_as_the_others() -> None:
    drafter = NgramMapK4V(size_n=2, size_m=2)
    assert propose(drafter, sequence_of(following([1, 2], [3, 4]))) == NO_DRAFT
    assert propose(drafter, sequence_of(following([1, 2], [3, 4], [3, 4], [5, 6]))) == NO_DRAFT


def test_a_fifth_value_is_not_counted() -> None:
    values = [[1, 1], [2, 2], [3, 3], [4, 4], [5, 5]]
    text = following(*[[1, 1]] * 5, *values, [5, 5], [5, 5], [5, 5])
    assert draft(NgramMapK4V(size_n=2, size_m=2), sequence_of(text)) == [1, 1]


def test_too_few_hits_give_no_draft() -> None:
    drafter, sequence = NgramMapK4V(size_n=2, size_m=2, min_hits=2), sequence_of(following([1, 2]))
    assert draft(drafter, sequence) == []
    sequence.committed += [1, 2, *KEY]
    assert draft(drafter, sequence) == [1, 2]


def test_each_value_remembers_how_much_of_it_was_right() -> None:
    drafter, sequence = NgramMapK4V(size_n=2, size_m=3), sequence_of(following([1, 2, 3]))
    drafter.learn(sequence, propose(drafter, sequence), 1)
    sequence.committed += [1, 5, 6, *KEY]
    assert draft(drafter, sequence) == []
    sequence.committed += [1, 2, 3, *KEY]
    assert draft(drafter, sequence) == [1]
    for _ in range(4):
        sequence.committed += [1, 5, 6, *KEY]
    sequence.committed += [1, 5, 6, *KEY]
    assert draft(drafter, sequence) == [1, 5, 6]


def test_a_copy_of_the_prompt_is_drafted_with_the_default_settings() -> None:
    text = random_text(1, 200)
    sequence = sequence_of([*text, 1, *text[:12]])
    assert draft(NgramMapK4V(), sequence) == text[12:60]


def test_the_draft_bears_the_drafters_name() -> None:
    assert propose(NgramMapK4V(1, 1), sequence_of([1, 1, 1])).drafter == "ngram-map-k4v"
