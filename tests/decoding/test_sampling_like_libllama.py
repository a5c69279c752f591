"""The distribution after all parameters is that of libllama's own chain, within 1e-5.

Rows and parameters come from seeds, which are in the tests' names.
"""

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from surefoot import models
from surefoot.decoding import (
    DEFAULT_SAMPLERS,
    NO_BREAKERS,
    Breakers,
    Choice,
    Chooser,
    Sampling,
)
from surefoot.runtime.libllama import LibllamaRuntime, LoadSettings, load
from tests.support.libllama_chain import LibllamaChain

OFF = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
"""Every sampler does nothing."""

Row = NDArray[np.float32]


def row_of(draws: np.random.Generator, size: int) -> Row:
    """Logits with a head, as models have."""
    row = draws.normal(0, 2, size)
    row[draws.integers(0, size, 8)] += draws.gumbel(4, 2, 8)
    return row.astype(np.float32)


def ours(
    sampling: Sampling, row: Row, history: list[int], breakers: Breakers = NO_BREAKERS
) -> NDArray[np.float64]:
    """Probabilities of all tokens. The history comes half as a prompt, half token by token."""
    half = len(history) // 2
    chooser = Chooser(sampling, history[:half], breakers=breakers)
    for token in history[half:]:
        chooser.advance(Choice(token))
    tokens, shares = chooser.distribution(row)
    probabilities = np.zeros(len(row))
    probabilities[tokens] = shares
    return probabilities


def compare(sampling: Sampling, row: Row, history: list[int]) -> NDArray[np.float64]:
    with LibllamaChain(sampling, len(row)) as chain:
        chain.accept(history)
        expected, _ = chain.apply(row)
    # Its sum of thousands of probabilities is off by 1e-6 to 1e-5, in float32. Where another token
    # is needed to fill top-p or not, to within that, both answers are right.
    sums = [0.0] if sampling.top_p == 1 else [0.0, -2e-5, 2e-5]
    found = [ours(replace(sampling, top_p=sampling.top_p + off), row, history) for off in sums]
    assert min(np.abs(one - expected).max() for one in found) < 1e-5, (sampling, history)
    return expected


ALONE: dict[str, list[dict[str, Any]]] = {
    "logit_bias": [{"logit_bias": ((3, 2.5), (5, -4.0), (7, -np.inf), (9, 100.0))}],
    "twice the same bias": [{"logit_bias": ((3, 2.5), (3, 2.5))}],
    "repeat_penalty": [{"repeat_penalty": value} for value in (0.7, 1.3, 4.0)],
    "frequency_penalty": [{"frequency_penalty": value} for value in (-0.5, 0.4, 2.0)],
    "presence_penalty": [{"presence_penalty": value} for value in (-1.0, 0.8)],
    "repeat_last_n": [
        {"repeat_penalty": 1.5, "frequency_penalty": 0.3, "repeat_last_n": value}
        for value in (-1, 0, 1, 7, 20, 500)
    ],
    "dry": [
        {"dry_multiplier": 0.8, "dry_base": base, "dry_allowed_length": allowed}
        for base in (1.0, 1.1, 1.75, 30.0)
        for allowed in (0, 1, 2, 5)
    ],
    "dry_penalty_last_n": [
        {"dry_multiplier": 0.5, "dry_allowed_length": 1, "dry_penalty_last_n": value}
        for value in (-1, 0, 1, 2, 9, 40, 5000)
    ],
    "top_n_sigma": [{"top_n_sigma": value} for value in (-1.0, 0.0, 0.5, 1.0, 2.5)],
    "top_k": [{"top_k": value} for value in (0, 1, 2, 40, 5000)],
    "typical_p": [{"typical_p": value} for value in (0.1, 0.5, 0.9, 0.999)],
    "top_p": [{"top_p": value} for value in (0.01, 0.5, 0.9, 0.999)],
    "min_p": [{"min_p": value} for value in (0.001, 0.05, 0.5, 1.0)],
    "min_keep": [
        {"min_keep": 5, **other}
        for other in ({"typical_p": 0.1}, {"top_p": 0.1}, {"min_p": 0.9}, {"top_k": 2})
    ],
    "xtc": [
        {"xtc_probability": 1.0, "xtc_threshold": value, "min_keep": keep}
        for value in (0.0, 0.01, 0.1, 0.5, 0.6)
        for keep in (0, 3, 3000)
    ],
    "temperature": [{"temperature": value} for value in (0.0, 0.2, 1.7)],
    "dynatemp": [
        {"temperature": value, "dynatemp_range": spread, "dynatemp_exponent": exponent}
        for value in (0.0, 0.4, 1.2)
        for spread in (0.3, 1.5)
        for exponent in (0.5, 1.0, 2.0)
    ],
}


@pytest.mark.parametrize("name", ALONE)
@pytest.mark.parametrize("size", [30, 3000])
def test_each_parameter_alone_gives_libllamas_distribution(name: str, size: int) -> None:
    draws = np.random.default_rng([size, *name.encode()])
    for fields in ALONE[name]:
        for _ in range(6):
            history = draws.integers(0, 12, draws.integers(0, 120)).tolist()
            compare(replace(OFF, **fields), row_of(draws, size), history)


CHOICES: dict[str, list[Any]] = {
    "temperature": [0.3, 0.8, 1.5],
    "dynatemp_range": [0.0, 0.0, 0.5],
    "top_k": [0, 5, 40],
    "top_p": [1.0, 0.95, 0.6],
    "min_p": [0.0, 0.05, 0.3],
    "typical_p": [1.0, 0.9, 0.5],
    "top_n_sigma": [-1.0, 1.5],
    "min_keep": [0, 0, 4],
    "xtc_probability": [0.0, 1.0],
    "xtc_threshold": [0.05, 0.2],
    "repeat_last_n": [8, 64, -1],
    "repeat_penalty": [1.0, 1.2, 0.9],
    "presence_penalty": [0.0, 0.6],
    "frequency_penalty": [0.0, 0.3, -0.2],
    "dry_multiplier": [0.0, 0.8],
    "dry_allowed_length": [1, 2],
    "dry_penalty_last_n": [-1, 30],
    "logit_bias": [(), ((2, 3.0), (4, -5.0)), ((1, 1.0), (3, -np.inf))],
}


def mixed(random: Random, shuffle: bool) -> Sampling:
    """Parameters of all samplers at once, in llama-server's order or another."""
    fields = {name: random.choice(values) for name, values in CHOICES.items()}
    samplers = list(DEFAULT_SAMPLERS)
    if shuffle:
        random.shuffle(samplers)
        samplers = samplers[: random.randint(1, len(samplers))]
    return replace(OFF, samplers=tuple(samplers), **fields)


def is_defined(sampling: Sampling) -> bool:
    """Whether libllama's own result is a number.

    Its typical-p takes the logarithm of the probability of each candidate, and candidates that a
    ban or top-n-sigma has put to minus infinity still are some.
    """
    banned = any(bias == -np.inf for _, bias in sampling.logit_bias)
    return sampling.typical_p == 1 or not (banned or sampling.top_n_sigma > 0)


@pytest.mark.parametrize("shuffle", [False, True], ids=["in order", "in any order"])
@pytest.mark.parametrize("seed", range(12))
def test_all_parameters_together_give_libllamas_distribution(seed: int, shuffle: bool) -> None:
    random, draws = Random(seed), np.random.default_rng(seed)
    compared = 0
    while compared < 40:
        sampling = mixed(random, shuffle)
        if is_defined(sampling):
            history = draws.integers(0, 12, draws.integers(0, 120)).tolist()
            compare(sampling, row_of(draws, random.choice([30, 3000])), history)
            compared += 1


def test_greedy_choices_are_the_tokens_that_libllamas_chain_leaves() -> None:
    """At temperature 0 its chain leaves one token; what comes behind temperature can't change it.

    Without temperature among the samplers, or with a dynamic one, it is not greedy at all.
    """
    for seed in range(300):
        random, draws = Random(seed), np.random.default_rng(seed)
        sampling = replace(mixed(random, shuffle=True), temperature=0.0, dynatemp_range=0.0)
        if is_defined(sampling):
            history = draws.integers(0, 12, 50).tolist()
            compare(sampling, row_of(draws, 200), history)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.3])
def test_mirostat_goes_on_as_libllamas_does(version: int, seed: int, temperature: float) -> None:
    """Nothing but bias and plain temperature comes before it there."""
    draws = np.random.default_rng(seed)
    sampling = replace(
        Sampling(),
        mirostat=version,
        mirostat_tau=3.0,
        temperature=temperature,
        repeat_penalty=2.0,
        top_k=1,
        dry_multiplier=2.0,
        dynatemp_range=0.3,
        logit_bias=((4, 3.0),),
    )
    chooser = Chooser(sampling)
    with LibllamaChain(sampling, 400) as chain:
        for _ in range(40):
            row = row_of(draws, 400)
            expected, drawn = chain.apply(row)
            tokens, shares = chooser.distribution(row)
            found = np.zeros(400)
            found[tokens] = shares
            assert np.abs(found - expected).max() < 1e-5
            chooser.advance(Choice(drawn, surprise=-float(np.log2(found[drawn]))))


@pytest.fixture(scope="module")
def vocabulary() -> Iterator[LibllamaRuntime]:
    with load(LoadSettings(path=models.TARGET, slots=1, context_length=64, threads=1)) as runtime:
        yield runtime


TEXTS = ("\n", ":", '"', "*", "the ", ", and", "it is a", "ing", "x" * 50, "")


@pytest.mark.parametrize("seed", range(10))
def test_dry_breaks_repeats_where_libllama_does(seed: int, vocabulary: LibllamaRuntime) -> None:
    random, draws = Random(seed), np.random.default_rng(seed)
    size, tokenizer = vocabulary.vocabulary_size, vocabulary.tokenizer
    pieces = [tokenizer.text_of(t).encode() or tokenizer.piece(t) for t in range(size)]
    lines = ["it is a thing: the end,", "and so\n", '"the *thing*" is, and it was', "the the the "]
    changed = 0
    for _ in range(6):
        texts = tuple(random.sample(TEXTS, random.randint(0, 4)))
        sampling = replace(
            OFF,
            dry_multiplier=0.6,
            dry_base=1.2,
            dry_allowed_length=random.choice([1, 2]),
            dry_penalty_last_n=random.choice([-1, 40]),
            dry_sequence_breakers=texts,
        )
        breakers = Breakers.of(texts, pieces, lambda text: tokenizer.encode(text, special=False))
        text = "".join(random.choices(lines, k=12))
        history = tokenizer.encode(text)[: random.randint(10, 120)]
        row = row_of(draws, size)
        row[history] += 8
        handle = vocabulary.model.vocabulary
        with LibllamaChain(sampling, size, handle) as chain:
            chain.accept(history)
            expected, _ = chain.apply(row)
        found = ours(sampling, row, history, breakers)
        assert np.abs(found - expected).max() < 1e-5, (texts, text)
        changed += np.abs(ours(sampling, row, history) - expected).max() > 1e-5
    assert changed
