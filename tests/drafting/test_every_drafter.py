"""What every drafter that drafts from the text itself promises."""

import random
import sys
import tracemalloc
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.decoding import Drafter
from surefoot.drafting.chain import Chain
from surefoot.drafting.ngram_cache import NgramCache
from surefoot.drafting.ngram_map_k import NgramMapK
from surefoot.drafting.ngram_map_k4v import NgramMapK4V
from surefoot.drafting.ngram_mod import NgramMod
from surefoot.drafting.ngram_simple import NgramSimple
from tests.drafting.texts import CountedList, draft, play, random_text, sequence_of

Make = Callable[[], Drafter]

MAKES: dict[str, Make] = {
    "ngram-simple": lambda: NgramSimple(size_n=3, size_m=8),
    "ngram-simple, two hits": lambda: NgramSimple(size_n=3, size_m=8, min_hits=2),
    "ngram-map-k": lambda: NgramMapK(size_n=3, size_m=8),
    "ngram-map-k4v": lambda: NgramMapK4V(size_n=3, size_m=4),
    "ngram-cache": NgramCache,
    "ngram-mod": lambda: NgramMod(n_match=3, n_min=2, n_max=8),
    "chain": lambda: Chain([NgramMod(n_match=4, n_min=2, n_max=8), NgramSimple(2, 8)]),
    "chain of all": lambda: Chain(
        [NgramMapK4V(2, 5), NgramMapK(4, 8), NgramSimple(3, 8), NgramMod(3, 2, 8), NgramCache()]
    ),
}
every_drafter = pytest.mark.parametrize("make", MAKES.values(), ids=MAKES.keys())
token_lists = st.lists(st.integers(0, 3), min_size=1, max_size=40)


@every_drafter
@settings(print_blob=True, deadline=None)
@given(text=token_lists, most=st.integers(1, 12))
def test_a_draft_is_never_longer_than_asked(make: Make, text: list[int], most: int) -> None:
    assert len(draft(make(), sequence_of(text), most)) <= most


@every_drafter
@settings(print_blob=True, deadline=None)
@given(texts=st.lists(token_lists, min_size=2, max_size=4), order=st.randoms(use_true_random=False))
def test_other_sequences_make_no_difference_to_a_draft(
    make: Make, texts: list[list[int]], order: random.Random
) -> None:
    together, alone = make(), [make() for _ in texts]
    sequences = [sequence_of(text[:1]) for text in texts]
    while unfinished := [
        index for index, text in enumerate(texts) if len(sequences[index].committed) < len(text)
    ]:
        index = order.choice(unfinished)
        sequence = sequences[index]
        start = len(sequence.committed)
        sequence.committed += texts[index][start : start + order.randint(1, 5)]
        assert draft(together, sequence, 8) == draft(alone[index], sequence, 8)


@every_drafter
@settings(print_blob=True, deadline=None)
@given(text=token_lists)
def test_the_draft_depends_on_the_text_alone_and_not_on_when_it_was_asked_for(
    make: Make, text: list[int]
) -> None:
    drafter, sequence = make(), sequence_of(text[:1])
    for token in text[1:]:
        draft(drafter, sequence, 8)
        sequence.committed.append(token)
    assert draft(drafter, sequence, 8) == draft(make(), sequence_of(text), 8)


@every_drafter
def test_one_call_drafts_for_all_sequences_in_their_order(make: Make) -> None:
    sequences = [sequence_of(random_text(seed, 30, vocabulary=3)) for seed in range(20)]
    wanted = [(sequence, 1 + index % 8) for index, sequence in enumerate(sequences)]
    drafts = [list(proposed.tokens) for proposed in make().propose(wanted)]
    assert drafts == [draft(make(), sequence, most) for sequence, most in wanted]
    assert sum(map(len, drafts)) > 0


@every_drafter
def test_a_request_is_not_drafted_for_from_anothers_text(make: Make) -> None:
    drafter, text = make(), random_text(3, 100)
    first = sequence_of([*text, 1, *text[:10]])
    assert draft(drafter, sequence_of(text[:10])) == []
    draft(drafter, first)
    assert draft(drafter, sequence_of(text[:10])) == []


@every_drafter
def test_state_is_freed_on_forget(make: Make) -> None:
    drafter = make()
    sequence = sequence_of(random_text(4, 20_000))
    holders = sys.getrefcount(sequence)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        draft(drafter, sequence)
        held, _ = tracemalloc.get_traced_memory()
        drafter.forget(sequence)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held - before > 20_000
    assert after - before < 10_000
    assert sys.getrefcount(sequence) == holders


@every_drafter
def test_forgetting_twice_or_an_unknown_sequence_is_no_error(make: Make) -> None:
    drafter = make()
    known, unknown = sequence_of([1, 2, 3, 4]), sequence_of([1, 2, 3, 4])
    draft(drafter, known)
    for sequence in (known, known, unknown):
        drafter.forget(sequence)


@every_drafter
def test_a_forgotten_sequence_can_go_on(make: Make) -> None:
    drafter = make()
    sequence = sequence_of(random_text(5, 40, vocabulary=9) * 3)
    before = draft(drafter, sequence)
    drafter.forget(sequence)
    assert draft(drafter, sequence) == before != []


@every_drafter
def test_a_drafter_may_hear_of_a_draft_after_it_forgot_the_sequence(make: Make) -> None:
    drafter = make()
    sequence = sequence_of(random_text(5, 40, vocabulary=9) * 3)
    (proposed,) = drafter.propose([(sequence, 8)])
    drafter.forget(sequence)
    drafter.learn(sequence, proposed, 0)


@every_drafter
def test_the_cost_of_a_token_does_not_grow_with_the_text(make: Make) -> None:
    text = random_text(6, 2_000)
    sequence = sequence_of([0])
    sequence.committed = counted = CountedList([0])
    drafter = make()
    reads = []
    for start in range(0, len(text), 4):
        counted += text[start : start + 4]
        before = counted.reads
        draft(drafter, sequence, 16)
        reads.append(counted.reads - before)
    assert max(reads[10:]) == min(reads[10:]) <= 50


@every_drafter
def test_the_index_grows_no_faster_than_the_text(make: Make) -> None:
    drafter = make()
    sequence = sequence_of([0])
    sizes = []
    tracemalloc.start()
    try:
        for length in (10_000, 20_000, 40_000):
            sequence.committed = random_text(7, length)
            before, _ = tracemalloc.get_traced_memory()
            draft(drafter, sequence)
            after, _ = tracemalloc.get_traced_memory()
            sizes.append(after - before)
            drafter.forget(sequence)
    finally:
        tracemalloc.stop()
    assert all(larger < 2.5 * smaller for smaller, larger in pairwise(sizes))


@every_drafter
def test_the_same_request_is_drafted_for_alike_each_time(make: Make) -> None:
    drafter = make()
    code, prose = random_text(8, 80, vocabulary=9), random_text(9, 80, vocabulary=9)
    first = play(drafter, code * 2, code)
    assert first.accepted > 40
    for other in (prose, code, prose):
        play(drafter, other * 2, other)
        assert play(drafter, code * 2, code) == first
