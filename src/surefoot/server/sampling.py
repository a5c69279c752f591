"""The sampling parameters of a body, with llama-server's names and some aliases of others."""

import math
from dataclasses import replace
from typing import Any

from surefoot.decoding import SAMPLER_LETTERS, InvalidParameterError, Sampling, ScoreWish
from surefoot.server.errors import invalid
from surefoot.server.schemas import GenerationBody
from surefoot.server.service import Service

PLAIN = (
    "temperature",
    "dynatemp_range",
    "dynatemp_exponent",
    "top_p",
    "min_p",
    "typical_p",
    "top_n_sigma",
    "min_keep",
    "xtc_probability",
    "xtc_threshold",
    "repeat_last_n",
    "repeat_penalty",
    "presence_penalty",
    "frequency_penalty",
    "dry_multiplier",
    "dry_base",
    "dry_allowed_length",
    "dry_penalty_last_n",
    "mirostat",
    "mirostat_tau",
    "mirostat_eta",
    "min_tokens",
    "ignore_eos",
)
"""Fields that are parameters by the same name."""

MOST_BIASES = 4096
MOST_TOP = 100
"""Most log-probabilities of other tokens beside each token's own."""


def sampling_of(service: Service, body: GenerationBody) -> Sampling:
    """A request's parameters: its own, else the server's.

    Raises:
        ApiError: one is out of range.
    """
    given: dict[str, Any] = {
        name: value for name in PLAIN if (value := getattr(body, name)) is not None
    }
    if body.top_k is not None:
        given["top_k"] = 0 if body.top_k == -1 else body.top_k
    if body.dry_sequence_breakers is not None:
        given["dry_sequence_breakers"] = tuple(body.dry_sequence_breakers)
    if body.samplers is not None:
        given["samplers"] = _samplers(body.samplers)
    if body.logit_bias:
        given["logit_bias"] = _biases(service, body.logit_bias)
    try:
        return replace(service.defaults, seed=service.seed_for(body.seed), **given)
    except InvalidParameterError as error:
        raise invalid(body.written(error.name), error.problem) from error


def _samplers(wanted: str | list[str]) -> tuple[str, ...]:
    """Names of samplers; llama-server also takes a text of letters."""
    if isinstance(wanted, list):
        aliases = {"top-k": "top_k", "typical_p": "typ_p", "temp": "temperature"}
        return tuple(aliases.get(name, name.replace("-", "_")) for name in wanted)
    unknown = [letter for letter in wanted if letter not in SAMPLER_LETTERS]
    if unknown:
        letters = "".join(SAMPLER_LETTERS)
        raise invalid("samplers", f"{unknown[0]!r} is no sampler's letter; there are {letters}")
    return tuple(SAMPLER_LETTERS[letter] for letter in wanted)


def _biases(
    service: Service, wanted: dict[str, float | bool] | list[list[Any]]
) -> tuple[tuple[int, float], ...]:
    """Biases by token. Texts stand for all of their tokens, and false bans.

    Raises:
        ApiError: there are too many, or one is not understood.
    """
    pairs: list[list[Any]] = wanted if isinstance(wanted, list) else []
    if isinstance(wanted, dict):
        # Keys of an object are texts always, so there digits are an id, as OpenAI writes it.
        pairs = [[_id(key), value] for key, value in wanted.items()]
    if len(pairs) > MOST_BIASES:
        raise invalid("logit_bias", f"at most {MOST_BIASES} entries, and there are {len(pairs)}")
    biases: dict[int, float] = {}
    for pair in pairs:
        if len(pair) != 2 or not isinstance(pair[0], int | str) or isinstance(pair[0], bool):
            raise invalid("logit_bias", "must have pairs of a token's id, or a text, and a bias")
        key, value = pair
        if value is True or not isinstance(value, int | float):
            raise invalid("logit_bias", f"{value!r} must be a number, or false to ban {key!r}")
        bias = -math.inf if value is False else float(value)
        for token in _tokens(service, key):
            biases[token] = biases.get(token, 0.0) + bias
    return tuple(biases.items())


def _id(key: str) -> int | str:
    return int(key[:20]) if key.isdecimal() else key


def _tokens(service: Service, key: int | str) -> list[int]:
    """The tokens that a bias is for."""
    if isinstance(key, str):
        return service.tokenizer.encode(key, special=True)
    size = service.facts.vocabulary_size
    if not 0 <= key < size:
        raise invalid("logit_bias", f"there is no token {key}; ids go from 0 to {size - 1}")
    return [key]


def wish_of(body: GenerationBody) -> ScoreWish | None:
    """What is to be told of log-probabilities; None for nothing.

    Raises:
        ApiError: more are wanted than there may be.
    """
    if body.top is None:
        if body.post_sampling_probs:
            raise invalid("post_sampling_probs", "needs n_probs or logprobs")
        return None
    field, top = body.top
    if not 0 <= top <= MOST_TOP:
        raise invalid(field, f"must lie between 0 and {MOST_TOP}, and is {top}")
    return ScoreWish(top, bool(body.post_sampling_probs))
