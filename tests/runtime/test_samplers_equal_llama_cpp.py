"""Every sampler leaves the probabilities that llama.cpp's own sampler chain leaves."""

import ctypes
import math
from collections.abc import Iterator
from typing import Any

import llama_cpp
import numpy as np
import pytest
from numpy.typing import NDArray

from surefoot import models
from surefoot.decoding import Breakers, Choice, Chooser, Sampling
from surefoot.runtime.libllama import LibllamaRuntime, LoadSettings, load

TOLERANCE = 1e-5
LEAST = 1e-9
"""Probabilities below that may be missing on one side: float32 cuts elsewhere than float64."""

NEUTRAL: dict[str, Any] = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}

CASES: dict[str, dict[str, Any]] = {
    "default": {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05},
    "top_k": {"top_k": 7},
    "top_p": {"top_p": 0.7},
    "top_p, then warm": {"top_p": 0.97, "temperature": 1.3},
    "min_p": {"min_p": 0.1},
    "min_keep": {"min_p": 0.9, "top_p": 0.2, "min_keep": 5},
    "typical_p": {"typical_p": 0.6},
    "top_n_sigma": {"top_n_sigma": 1.5},
    "xtc": {"xtc_probability": 1.0, "xtc_threshold": 0.05},
    "temperature": {"temperature": 0.3},
    "dynamic temperature": {"dynatemp_range": 0.5, "dynatemp_exponent": 1.4, "top_k": 50},
    "repeat_penalty": {"repeat_penalty": 1.3},
    "presence and frequency": {"presence_penalty": 0.4, "frequency_penalty": 0.7},
    "penalties over 5 tokens": {
        "repeat_penalty": 1.2,
        "frequency_penalty": 0.3,
        "repeat_last_n": 5,
    },
    "dry": {"dry_multiplier": 0.8},
    "dry over 20 tokens": {"dry_multiplier": 1.1, "dry_base": 2.0, "dry_penalty_last_n": 20},
    "dry from the first token": {"dry_multiplier": 0.5, "dry_allowed_length": 0},
    "logit bias": {"logit_bias": ((3, 4.0), (17, -math.inf), (29, -1.5))},
    "mirostat 1": {"mirostat": 1, "mirostat_tau": 3.0},
    "mirostat 2": {"mirostat": 2, "mirostat_tau": 2.0, "mirostat_eta": 0.3},
    "all": {
        "temperature": 1.2,
        "top_k": 100,
        "top_p": 0.9,
        "min_p": 0.02,
        "typical_p": 0.95,
        "top_n_sigma": 2.5,
        "repeat_penalty": 1.1,
        "presence_penalty": 0.2,
        "dry_multiplier": 0.8,
        "xtc_probability": 1.0,
        "logit_bias": ((5, 2.0),),
    },
    "another order": {
        "samplers": ("top_k", "temperature", "penalties", "min_p", "top_p"),
        "temperature": 0.6,
        "top_k": 30,
        "top_p": 0.8,
        "min_p": 0.01,
        "repeat_penalty": 1.5,
    },
}


@pytest.fixture(scope="module")
def runtime() -> Iterator[LibllamaRuntime]:
    with load(LoadSettings(models.TARGET, context_length=64, threads=1)) as loaded:
        yield loaded


def chain_of(sampling: Sampling, runtime: LibllamaRuntime) -> Any:
    """llama.cpp's samplers for the same parameters, without the one that draws."""
    lib = llama_cpp
    size = runtime.vocabulary_size
    chain = lib.llama_sampler_chain_init(lib.llama_sampler_chain_default_params())

    def add(sampler: Any) -> None:
        lib.llama_sampler_chain_add(chain, sampler)

    if sampling.logit_bias:
        biases = (lib.llama_logit_bias * len(sampling.logit_bias))(
            *[lib.llama_logit_bias(token, bias) for token, bias in sampling.logit_bias]
        )
        add(lib.llama_sampler_init_logit_bias(size, len(biases), biases))
    if sampling.mirostat:
        add(lib.llama_sampler_init_temp(sampling.temperature))
        tau, eta = sampling.mirostat_tau, sampling.mirostat_eta
        if sampling.mirostat == 1:
            add(lib.llama_sampler_init_mirostat(size, 1, tau, eta, 100))
        else:
            add(lib.llama_sampler_init_mirostat_v2(1, tau, eta))
        return chain
    keep = sampling.min_keep
    everything = 4096
    for name in sampling.samplers:
        match name:
            case "penalties":
                last = sampling.repeat_last_n
                add(
                    lib.llama_sampler_init_penalties(
                        size,
                        last if last >= 0 else everything,
                        sampling.repeat_penalty,
                        sampling.frequency_penalty,
                        sampling.presence_penalty,
                    )
                )
            case "dry":
                texts = [text.encode() for text in sampling.dry_sequence_breakers]
                last = sampling.dry_penalty_last_n
                add(
                    lib.llama_sampler_init_dry(
                        runtime.model.vocabulary,
                        sampling.dry_multiplier,
                        sampling.dry_base,
                        sampling.dry_allowed_length,
                        last if last >= 0 else everything,
                        (ctypes.c_char_p * len(texts))(*texts),
                        len(texts),
                    )
                )
            case "top_n_sigma":
                add(lib.llama_sampler_init_top_n_sigma(sampling.top_n_sigma))
            case "top_k":
                add(lib.llama_sampler_init_top_k(sampling.top_k))
            case "typ_p":
                add(lib.llama_sampler_init_typical(sampling.typical_p, keep))
            case "top_p":
                add(lib.llama_sampler_init_top_p(sampling.top_p, keep))
            case "min_p":
                add(lib.llama_sampler_init_min_p(sampling.min_p, keep))
            case "xtc":
                chance, threshold = sampling.xtc_probability, sampling.xtc_threshold
                add(lib.llama_sampler_init_xtc(chance, threshold, keep, 1))
            case "temperature":
                add(
                    lib.llama_sampler_init_temp_ext(
                        sampling.temperature, sampling.dynatemp_range, sampling.dynatemp_exponent
                    )
                )
    return chain


def probabilities_of(chain: Any, row: NDArray[np.float32]) -> tuple[dict[int, float], int]:
    """What a chain leaves of a row, and the token that it selects, if it does."""
    data = (llama_cpp.llama_token_data * len(row))()
    for token, logit in enumerate(row):
        data[token].id, data[token].logit = token, float(logit)
    array = llama_cpp.llama_token_data_array(data, len(row), -1, False)
    llama_cpp.llama_sampler_apply(chain, ctypes.byref(array))
    logits = np.array([array.data[i].logit for i in range(array.size)], np.float64)
    weights = np.exp(logits - logits.max())
    shares = weights / weights.sum()
    found = {array.data[i].id: float(share) for i, share in enumerate(shares) if share > LEAST}
    selected = array.data[array.selected].id if array.selected >= 0 else -1
    return found, selected


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("seed", range(6))
def test_probabilities_equal_llama_cpps(runtime: LibllamaRuntime, name: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    size, tokenizer = runtime.vocabulary_size, runtime.tokenizer
    sampling = Sampling(**{**NEUTRAL, **CASES[name]})
    few = rng.choice(size, 6, replace=False)
    newline = tokenizer.encode("\n")
    history = (
        [int(t) for t in rng.choice(few, 60)] + newline + [int(t) for t in rng.choice(few, 40)]
    )
    pieces = [tokenizer.piece(token) for token in range(size)]
    plain = tokenizer.encode
    breakers = Breakers.of(
        sampling.dry_sequence_breakers, pieces, lambda text: plain(text, special=False)
    )
    chooser = Chooser(sampling, history[:50], breakers=breakers)
    chain = chain_of(sampling, runtime)
    try:
        for token in history:
            llama_cpp.llama_sampler_accept(chain, token)
        for token in history[50:]:
            chooser.advance(Choice(token))
        for step in range(3):
            row = rng.normal(0, 4, size).astype(np.float32)
            row[few] += 6
            expected, selected = probabilities_of(chain, row)
            tokens, shares = chooser.distribution(row)
            found = dict(zip(tokens.tolist(), shares.tolist(), strict=True))
            different = {
                token: (expected.get(token, 0.0), found.get(token, 0.0))
                for token in expected.keys() | found.keys()
                if abs(expected.get(token, 0.0) - found.get(token, 0.0)) > TOLERANCE
            }
            assert not different, (name, seed, step)
            token = selected if selected >= 0 else int(few[0])
            surprise = -math.log2(found[token]) if sampling.mirostat else None
            llama_cpp.llama_sampler_accept(chain, token)
            chooser.advance(Choice(token, surprise=surprise))
    finally:
        llama_cpp.llama_sampler_free(chain)
