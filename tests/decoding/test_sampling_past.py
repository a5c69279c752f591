"""What looks at the past is kept up token by token, and equals a recount at every step."""

import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from types import FrameType
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.decoding import (
    GREEDY,
    Breakers,
    Choice,
    Chooser,
    Drafter,
    Ending,
    Sampling,
    choose,
    distribution_of,
)
from surefoot.decoding.sampling import BreakerFinder
from surefoot.decoding.sampling.repeats import Repeats
from surefoot.drafting.scripted import ScriptedDrafter
from tests.support.fixed import FixedTarget
from tests.support.play import begin, generated, play_out

TEXTS = st.lists(st.integers(0, 3), max_size=60)
PLAIN = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)


def logits_left(chooser: Chooser, size: int) -> list[float]:
    """Log-probabilities of all tokens where the model's own are all alike, up to a constant."""
    tokens, shares = chooser.distribution(np.full(size, 2.0, np.float32))
    assert tokens.tolist() == list(range(size))
    return [float(value) for value in np.log(shares)]


@settings(max_examples=150)
@given(text=TEXTS, split=st.integers(0, 60), window=st.sampled_from([1, 2, 5, 20, -1]))
def test_penalties_count_what_a_recount_of_the_window_counts(
    text: list[int], split: int, window: int
) -> None:
    sampling = replace(PLAIN, repeat_last_n=window, frequency_penalty=0.5, presence_penalty=0.25)
    chooser = Chooser(sampling, text[:split])
    for at in range(split, len(text) + 1):
        seen = text[:at] if window < 0 else text[:at][-window:]
        found = logits_left(chooser, 6)  # tokens 4 and 5 never occur
        counts = Counter(seen)
        expected = [-(0.5 * counts[token] + 0.25 * (counts[token] > 0)) for token in range(6)]
        assert np.allclose(np.subtract(found, found[5]), expected, atol=1e-6)
        if at < len(text):
            chooser.advance(Choice(text[at]))


def recount(text: list[int], start: int, limit: int, least: int) -> dict[int, int]:
    """What came next where the end of a text stood before, by comparing all places with it."""
    found: dict[int, int] = {}
    for place in range(start, len(text) - 1):
        length = 0
        while place - length >= start and text[place - length] == text[-1 - length]:
            length += 1
        length = min(length, limit)
        if length >= least:
            found[text[place + 1]] = max(length, found.get(text[place + 1], 0))
    return found


@settings(max_examples=300)
@given(
    text=TEXTS,
    split=st.integers(0, 60),
    start=st.integers(0, 20),
    limit=st.integers(0, 70),
    least=st.integers(0, 4),
)
def test_repeats_are_those_of_a_comparison_of_all_places(
    text: list[int], split: int, start: int, limit: int, least: int
) -> None:
    repeats = Repeats(text[:split])
    for at in range(min(split, len(text)), len(text) + 1):
        tokens, lengths = repeats.continued(start, limit, least)
        found = dict(zip(tokens.tolist(), lengths.tolist(), strict=True))
        assert len(found) == len(tokens)
        assert found == recount(text[:at], start, limit, least)
        if at < len(text):
            repeats.append(text[at])


@pytest.mark.parametrize("text", [[7] * 3000, [*range(50)] * 60, [1, 2] * 1500])
def test_repeats_of_great_length_are_counted_whole(text: list[int]) -> None:
    """Among them more places than a dictionary is used for."""
    grown = Repeats()
    for token in text:
        grown.append(token)
    for repeats in (grown, Repeats(text)):
        tokens, lengths = repeats.continued(0, len(text), 1)
        period = len(set(text))
        assert dict(zip(tokens.tolist(), lengths.tolist(), strict=True)) == {
            text[0]: len(text) - period
        }


def calls_of(work: Callable[[], object]) -> int:
    """How many functions a piece of work calls, built-in ones included."""
    count = 0

    def note(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def test_a_token_takes_as_many_steps_in_a_long_text_as_in_a_short_one() -> None:
    """A model that goes round in circles is where DRY is wanted, and must not get slow there."""
    sampling = Sampling(dry_multiplier=0.8, repeat_penalty=1.1, repeat_last_n=-1)
    row = np.zeros(64, np.float32)
    steps = []
    for length in (2000, 40_000):
        chooser = Chooser(sampling, [7, 8] * (length // 2), breakers=Breakers({9: ((),)}))
        steps.append(calls_of(lambda: chooser.advance(Choice(7))))  # noqa: B023
        steps.append(calls_of(lambda: chooser.choose(row, 0.1)))  # noqa: B023
    assert steps[:2] == steps[2:]


def test_penalties_count_each_token_of_an_accepted_block() -> None:
    """Case H1: frequency penalty 1 and four drafted tokens accepted a round.

    The model wants token t + 1 after token t, in a circle of three, and nearly as much token 9, so
    that it changes its mind as soon as a token has come twice.
    """
    table = np.zeros((10, 10), np.float32)
    table[[0, 1, 2], [1, 2, 0]] = 10.0
    table[9, 0] = 10.0
    table[:, 9] = 8.5
    sampling = Sampling(temperature=0.0, frequency_penalty=1.0)

    def played(drafter: Drafter | None) -> tuple[list[int], list[int]]:
        target = FixedTarget(table)
        ending = Ending(max_tokens=24)
        sequence = begin(target, [0], sampling=sampling, ending=ending)
        outcomes = play_out(target, [sequence], drafter)
        return generated(sequence), [outcome.accepted for [outcome] in outcomes]

    plain, _ = played(None)
    blocks = [plain[start : start + 4] for start in range(0, 24, 5)]
    drafted, accepted = played(ScriptedDrafter(blocks))
    assert drafted == plain
    assert accepted[:4] == [4] * 4
    seen = [0]
    for token in plain:
        wanted = table[seen[-1]] - np.bincount(seen, minlength=10)
        assert token == wanted.argmax()
        seen.append(token)


def test_breakers_keep_repeats_apart() -> None:
    """The text "1 2 3 4 1 2": 3 would go on with a repeat, unless 1 or 2 ends what can repeat."""
    text = [1, 2, 3, 4, 1, 2]
    sampling = replace(PLAIN, dry_multiplier=1.0, dry_allowed_length=1)

    def penalised(breakers: Breakers) -> float:
        found = logits_left(Chooser(sampling, text, breakers=breakers), 6)
        return found[5] - found[3]

    assert penalised(Breakers()) == pytest.approx(1.75)
    assert penalised(Breakers({1: ((),)})) == pytest.approx(1.0)  # only "2" may repeat
    assert penalised(Breakers({2: ((),)})) == pytest.approx(0.0)
    assert penalised(Breakers({1: ((2,),)})) == pytest.approx(0.0)  # "1 2" together are one
    assert penalised(Breakers({1: ((), (2,))})) == pytest.approx(0.0)  # the longer one counts
    assert penalised(Breakers({1: ((3,),)})) == pytest.approx(1.75)
    assert penalised(Breakers({3: ((),)})) == pytest.approx(0.0)  # breakers are never punished


def test_breakers_are_tokens_that_hold_one_or_begin_one() -> None:
    pieces = [b"a", b"b", b"ab", b"xa", b"c", b"abc", b"ba"]
    encode = Mock(side_effect=lambda text: [pieces.index(text.encode())])
    finder = BreakerFinder([*pieces], encode)
    breakers = finder.find(["ab"])
    assert breakers.tails == {2: ((),), 5: ((),), 0: ((1,),), 3: ((1,),), 6: ((1,),)}
    assert (breakers.longest, sorted(breakers.single)) == (1, [2, 5])
    assert Breakers().longest == -1
    assert Breakers.of(["", "zz"], pieces, encode).tails == {}


def test_breakers_are_looked_for_once() -> None:
    pieces = Mock(wraps=None)
    pieces.__iter__ = Mock(side_effect=lambda: iter([b"a", b"b"]))
    finder = BreakerFinder(pieces, lambda _: [])
    assert finder.find(["a"]) is finder.find(["a"])
    assert pieces.__iter__.call_count == 1
    assert finder.find(["b"]) is not finder.find(["a"])


def test_a_choice_without_a_past_leaves_no_trace() -> None:
    """Greedy or not, what a draft model is asked does not depend on who asked before."""
    row = np.random.default_rng(1).normal(0, 1, 40).astype(np.float32)
    past = Sampling(seed=1, repeat_penalty=3.0, dry_multiplier=2.0)
    plain = Sampling(seed=1)
    for position in range(30):
        token = choose(row, past, position, 0.0).token
        assert token == choose(row, plain, position, 0.0).token
        assert token == choose(row, past, position, 0.0).token
        ours, theirs = distribution_of(row, past, position), distribution_of(row, plain, position)
        assert np.array_equal(ours.probabilities, theirs.probabilities)
    assert choose(row, GREEDY, 3, 0.0).token == int(row.argmax())
