"""Each parameter does what it is for, and says what is wrong with a value out of its range."""

import math
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from surefoot.decoding import (
    GREEDY,
    Breakers,
    Chooser,
    Ending,
    InvalidParameterError,
    NoTokenError,
    Sampling,
    ScoreWish,
    Sequence,
    raw_scores,
)
from surefoot.decoding.memory import CuttableMemory
from surefoot.decoding.scores import most_likely, nth_largest
from surefoot.drafting.scripted import ScriptedDrafter
from tests.support.fixed import FixedTarget
from tests.support.play import begin, generated, play_out

ROW = np.array([4.0, 3.6, 3.2, 2.6, 2.0, 1.0, 0.0, -3.0], np.float32)
HISTORY = [0, 1, 2, 0, 1]
PLAIN = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)

CHANGES: dict[str, dict[str, Any]] = {
    "seed": {"seed": 1},
    "temperature": {"temperature": 0.3},
    "dynatemp_range": {"dynatemp_range": 0.9},
    "dynatemp_exponent": {"dynatemp_range": 0.9, "dynatemp_exponent": 4.0},
    "top_k": {"top_k": 2},
    "top_p": {"top_p": 0.5},
    "min_p": {"min_p": 0.5},
    "typical_p": {"typical_p": 0.3},
    "top_n_sigma": {"top_n_sigma": 0.4},
    "min_keep": {"min_p": 1.0, "min_keep": 3},
    "xtc_probability": {"xtc_probability": 1.0},
    "xtc_threshold": {"xtc_probability": 1.0, "xtc_threshold": 0.2},
    "samplers": {"min_p": 0.5, "samplers": ("temperature",)},
    "repeat_penalty": {"repeat_penalty": 2.0},
    "repeat_last_n": {"repeat_penalty": 2.0, "repeat_last_n": 1},
    "presence_penalty": {"presence_penalty": 2.0},
    "frequency_penalty": {"frequency_penalty": 1.0},
    "dry_multiplier": {"dry_multiplier": 3.0},
    "dry_base": {"dry_multiplier": 1.0, "dry_base": 6.0, "dry_allowed_length": 1},
    "dry_allowed_length": {"dry_multiplier": 3.0, "dry_allowed_length": 3},
    "dry_penalty_last_n": {"dry_multiplier": 3.0, "dry_penalty_last_n": 3},
    "mirostat": {"mirostat": 2, "mirostat_tau": 0.7},
    "mirostat_tau": {"mirostat": 2, "mirostat_tau": 0.4},
    "mirostat_eta": {"mirostat": 2, "mirostat_tau": 0.7, "mirostat_eta": 5.0},
    "logit_bias": {"logit_bias": ((5, 100.0),)},
    "min_tokens": {"min_tokens": 500},
    "ignore_eos": {"ignore_eos": True},
}
"""A value for each parameter, with what it needs to matter."""

WITHOUT: dict[str, dict[str, Any]] = {
    "samplers": {"min_p": 0.5},
    "min_keep": {"min_p": 1.0},
    "mirostat_eta": {"mirostat": 2, "mirostat_tau": 0.7},
    "mirostat_tau": {"mirostat": 2, "mirostat_tau": 0.7},
    "repeat_last_n": {"repeat_penalty": 2.0},
    "dry_base": {"dry_multiplier": 1.0, "dry_allowed_length": 1},
    "dry_allowed_length": {"dry_multiplier": 3.0},
    "dry_penalty_last_n": {"dry_multiplier": 3.0},
    "dynatemp_exponent": {"dynatemp_range": 0.9},
    "xtc_threshold": {"xtc_probability": 1.0},
}
"""What it is compared with, where that is not all of them off."""


def text(sampling: Sampling) -> list[int]:
    """Tokens chosen one after another, each from the same logits."""
    chooser = Chooser(sampling, HISTORY, frozenset([1]))
    tokens = []
    for _ in range(200):
        choice = chooser.choose(ROW, 0.0)
        chooser.advance(choice)
        tokens.append(choice.token)
    return tokens


@pytest.mark.parametrize("name", CHANGES)
def test_each_parameter_changes_the_text(name: str) -> None:
    """Case H2: none is taken and then ignored."""
    with_it = replace(PLAIN, **CHANGES[name])
    without = replace(PLAIN, **WITHOUT.get(name, {}))
    assert getattr(with_it, name) != getattr(without, name)
    assert text(with_it) != text(without)


def test_no_parameter_is_left_out_here() -> None:
    """Breakers are resolved elsewhere; `test_sampling_past.py` has them."""
    assert {field.name for field in fields(Sampling)} - set(CHANGES) == {"dry_sequence_breakers"}


BAD: dict[str, list[Any]] = {
    "seed": [-1, 2**64],
    "temperature": [-0.1, math.nan, math.inf],
    "dynatemp_range": [-0.1, math.nan, math.inf],
    "dynatemp_exponent": [-1.0, math.nan],
    "top_k": [-1],
    "top_p": [0.0, -0.5, 1.1, math.nan],
    "min_p": [-0.1, 1.1, math.nan],
    "typical_p": [0.0, 1.5, math.nan],
    "top_n_sigma": [math.nan, math.inf],
    "min_keep": [-1],
    "xtc_probability": [-0.1, 1.1, math.nan],
    "xtc_threshold": [-0.1, 1.1, math.nan],
    "samplers": [("top_k", "topk")],
    "repeat_last_n": [-2],
    "repeat_penalty": [0.0, -1.0, math.nan, math.inf, 1e-9],
    "presence_penalty": [math.nan, math.inf, 1e31],
    "frequency_penalty": [math.nan, -math.inf, -1e31],
    "dry_multiplier": [-0.1, math.nan, math.inf],
    "dry_base": [0.9, math.nan, math.inf, 1e300],
    "dry_allowed_length": [-1],
    "dry_penalty_last_n": [-2],
    "mirostat": [-1, 3, 1.5],
    "mirostat_tau": [-1.0, math.nan],
    "mirostat_eta": [-1.0, math.nan],
    "logit_bias": [((3, math.nan),), ((3, math.inf),), ((-1, 1.0),)],
    "min_tokens": [-1],
}


@pytest.mark.parametrize("name", BAD)
def test_a_value_out_of_range_is_named(name: str) -> None:
    for value in BAD[name]:
        with pytest.raises(InvalidParameterError, match=name) as caught:
            Sampling(**{name: value})
        assert "must" in str(caught.value) or "there are" in str(caught.value)


def test_a_bias_for_a_token_that_there_is_not_says_so() -> None:
    with pytest.raises(InvalidParameterError, match="no token 8; ids go from 0 to 7"):
        Chooser(Sampling(logit_bias=((8, 1.0),))).choose(ROW, 0.0)


EXTREMES: list[dict[str, Any]] = [
    {"temperature": 1e308, "dynatemp_range": 1e308},
    {"temperature": 0.0, "dynatemp_range": 0.5, "dynatemp_exponent": 1e9},
    {"repeat_penalty": 1e-6, "repeat_last_n": -1},
    {"repeat_penalty": 1e6, "presence_penalty": 1e30, "frequency_penalty": -1e30},
    {"dry_multiplier": 1e30, "dry_base": 1e38, "dry_allowed_length": 0},
    {"mirostat": 1, "mirostat_tau": 1e6},
    {"mirostat": 2, "mirostat_tau": 1e6, "mirostat_eta": 1e6},
    {"top_n_sigma": 1e-30, "min_keep": 10**9},
    {"top_k": 10**9, "top_p": 1e-30, "typical_p": 1e-30},
    {"logit_bias": ((0, 1e308), (1, -1e308), (2, -math.inf))},
    {"xtc_probability": 1.0, "xtc_threshold": 0.0},
]


@pytest.mark.parametrize("given", EXTREMES)
def test_extreme_values_give_a_token_and_no_warning(given: dict[str, Any]) -> None:
    sampling = replace(PLAIN, **given)
    chooser = Chooser(sampling, HISTORY)
    for _ in range(20):
        choice = chooser.choose(ROW, 0.1)
        assert 0 <= choice.token < len(ROW)
        _, shares = chooser.distribution(ROW)
        assert shares.sum() == pytest.approx(1.0)
        chooser.advance(choice)


def table_to(token: int, other: int) -> FixedTarget:
    """A model that always wants one token, and next to it another."""
    table = np.zeros((8, 8), np.float32)
    table[:, token], table[:, other] = 5.0, 4.0
    return FixedTarget(table)


@pytest.mark.parametrize("drafted", [False, True])
def test_ten_tokens_at_least_allow_the_end_from_token_11_on(drafted: bool) -> None:
    """Case H1, also where blocks of tokens are accepted at once and drafts hold the end itself."""
    sampling = replace(GREEDY, min_tokens=10)
    target = table_to(7, 2)
    drafter = ScriptedDrafter([[2, 2, 2, 2], [2, 7, 2]], repeat=True) if drafted else None
    ending = Ending(end_of_generation=frozenset([7]), max_tokens=40)
    sequence = begin(target, [1], sampling=sampling, ending=ending)
    play_out(target, [sequence], drafter)
    assert generated(sequence) == [2] * 10 + [7]
    target = table_to(7, 2)
    never = begin(target, [1], sampling=replace(sampling, ignore_eos=True), ending=ending)
    play_out(target, [never], drafter)
    assert generated(never) == [2] * 40


@pytest.mark.parametrize("drafted", [False, True])
def test_a_bias_of_100_forces_a_token_and_a_ban_forbids_one_at_every_position(
    drafted: bool,
) -> None:
    """Case H4."""
    for bias, expected in (((5, 100.0), 5), ((7, -100.0), 2), ((7, -math.inf), 2)):
        for temperature in (0.0, 1.0):
            sampling = Sampling(temperature=temperature, top_k=1, logit_bias=(bias,))
            target = table_to(7, 2)
            drafter = ScriptedDrafter([[7, 7, 7], [2, 7, 5], [5, 5, 7]], repeat=True)
            sequence = begin(target, [1], sampling=sampling, ending=Ending(max_tokens=30))
            play_out(target, [sequence], drafter if drafted else None)
            assert generated(sequence) == [expected] * 30


def test_a_grammar_that_leaves_only_the_end_may_end_before_min_tokens() -> None:
    only_end = np.array([0b10], np.uint32)
    chooser = Chooser(replace(GREEDY, min_tokens=10), [], frozenset([1]))
    assert chooser.choose(ROW, 0.0, only_end).token == 1
    assert chooser.choose(ROW, 0.0).token == 0


def test_bans_that_leave_nothing_are_an_error() -> None:
    bans = tuple((token, -math.inf) for token in range(len(ROW)))
    for mask in (None, np.array([0b11], np.uint32)):
        with pytest.raises(NoTokenError, match="no token is left"):
            Chooser(Sampling(logit_bias=bans)).choose(ROW, 0.0, mask)


def test_xtc_takes_its_chance_apart_from_the_choice() -> None:
    """How often it acts is its probability, and where says nothing about the noise of a choice."""
    flat = np.zeros(2, np.float32)
    acts = []
    for position in range(4000):
        sampling = replace(PLAIN, seed=5, xtc_probability=0.3)
        chooser = Chooser(sampling, start=position)
        tokens, _ = chooser.distribution(flat)
        plain = Chooser(replace(PLAIN, seed=5), start=position).choose(flat, 0.0).token
        acts.append((len(tokens) == 1, plain))
    share = np.mean([acted for acted, _ in acts])
    assert abs(share - 0.3) < 0.03
    ones = [np.mean([token for acted, token in acts if acted == did]) for did in (False, True)]
    assert abs(ones[0] - 0.5) < 0.05
    assert abs(ones[1] - 0.5) < 0.05


def test_mirostat_moves_towards_the_surprise_it_aims_at() -> None:
    """Over many tokens the mean surprise comes near tau, where top-k alone has another."""
    draws = np.random.default_rng(3)
    for version in (1, 2):
        sampling = Sampling(mirostat=version, mirostat_tau=2.5, temperature=1.0)
        chooser = Chooser(sampling)
        surprises = []
        for _ in range(600):
            choice = chooser.choose(draws.normal(0, 2, 500).astype(np.float32), 0.0)
            assert choice.surprise is not None
            surprises.append(choice.surprise)
            chooser.advance(choice)
        assert abs(np.mean(surprises[200:]) - 2.5) < 0.4


SHAPED = Sampling(
    temperature=0.7,
    repeat_penalty=1.3,
    presence_penalty=1.0,
    dry_multiplier=1.0,
    logit_bias=((3, 2.0), (6, -math.inf)),
    top_k=4,
)


def test_raw_scores_are_the_models_own_whatever_the_parameters_are() -> None:
    """Case L2: penalties once changed them in place."""
    row, before = ROW.copy(), ROW.copy()
    mask = np.array([0b10111111], np.uint32)
    expected = row - np.log(np.exp(row.astype(np.float64)).sum())
    for sampling in (SHAPED, replace(SHAPED, temperature=0.0), Sampling(mirostat=2)):
        chooser = Chooser(sampling, HISTORY)
        for allowed in (None, mask):
            choice = chooser.choose(row, 0.1, allowed, ScoreWish(top=8))
            assert choice.scores is not None
            assert choice.scores.logprob == pytest.approx(expected[choice.token])
            assert [token for token, _ in choice.scores.top] == list(range(8))
            assert [value for _, value in choice.scores.top] == pytest.approx(expected.tolist())
    assert np.array_equal(row, before)


def test_scores_after_sampling_are_those_of_what_is_left() -> None:
    chooser = Chooser(SHAPED, HISTORY)
    choice = chooser.choose(ROW, 0.1, None, ScoreWish(top=8, post_sampling=True))
    tokens, shares = chooser.distribution(ROW)
    expected = {int(t): math.log(p) for t, p in zip(tokens, shares, strict=True)}
    assert choice.scores is not None
    assert 1 < len(expected) <= 4
    assert dict(choice.scores.top) == pytest.approx(expected)
    assert choice.scores.logprob == pytest.approx(expected[choice.token])
    values = [value for _, value in choice.scores.top]
    assert values == sorted(values, reverse=True)
    greedy = Chooser(GREEDY).choose(ROW, 0.0, None, ScoreWish(top=3, post_sampling=True))
    assert greedy.scores == (0.0, ((0, 0.0),))
    left_out = chooser.scores(ROW, 6, ScoreWish(post_sampling=True))
    assert left_out.logprob == -math.inf


@pytest.mark.parametrize("size", [1, 2, 7, 127, 128, 1000, 5003])
def test_the_largest_values_are_found_among_any_number(size: int) -> None:
    draws = np.random.default_rng(size)
    for _ in range(20):
        values = np.round(draws.normal(0, 2, size), 1).astype(np.float32)
        values[draws.random(size) < draws.choice([0.0, 0.3])] = -np.inf
        expected = np.lexsort((np.arange(size), -values))
        for count in {1, min(3, size), size // 2 + 1, size}:
            assert nth_largest(values, count) == values[expected[count - 1]]
            assert most_likely(values, count).tolist() == expected[:count].tolist()
    assert raw_scores(np.zeros(4, np.float32), 2, 0).logprob == pytest.approx(-math.log(4))


def test_a_choice_with_breakers_is_made_by_a_sequence_with_breakers() -> None:
    """The field is handed on: a repeat that a breaker ends costs nothing."""
    sampling = replace(GREEDY, dry_multiplier=5.0, dry_allowed_length=1)
    row = np.array([0.0, 0.0, 4.0, 5.0], np.float32)
    texts = []
    for breakers in (Breakers(), Breakers({3: ((),)})):
        memory = CuttableMemory(table_to(3, 2), 0)
        sequence = Sequence([3, 3], memory, sampling=sampling, breakers=breakers)
        texts.append(sequence.choose(row, 0.0).token)
    assert texts == [2, 3]
