"""Sampling parameters, with llama-server's names and defaults."""

import math
from dataclasses import dataclass

from surefoot.decoding.errors import InvalidParameterError
from surefoot.decoding.noise import SEED_LIMIT

DEFAULT_SAMPLERS = (
    "penalties",
    "dry",
    "top_n_sigma",
    "top_k",
    "typ_p",
    "top_p",
    "min_p",
    "xtc",
    "temperature",
)
"""llama-server's order. Logit bias comes before all of them; what is not named is not applied."""

SAMPLER_LETTERS = {
    "e": "penalties",
    "d": "dry",
    "s": "top_n_sigma",
    "k": "top_k",
    "y": "typ_p",
    "p": "top_p",
    "m": "min_p",
    "x": "xtc",
    "t": "temperature",
}
"""llama-server's letters for them, as in its default order `edskypmxt`."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """The parameters that shape the target's distribution.

    Attributes:
        seed: selects the positional noise; the same seed gives the same text.
        samplers: what is applied, in this order; see `DEFAULT_SAMPLERS` for the names.
        temperature: 0 chooses the most likely token.
        dynatemp_range: the temperature varies by so much to either side, with the entropy; 0: not.
        dynatemp_exponent: how the entropy maps to the temperature.
        top_k: keep the k most likely tokens; 0 keeps all.
        top_p: keep the smallest head of the distribution with at least this mass; 1 keeps all.
        min_p: drop tokens less likely than this share of the most likely one; 0 keeps all.
        typical_p: keep the most typical tokens with at least this mass; 1 keeps all.
        top_n_sigma: drop logits more than so many standard deviations below the top; below 0: off.
        min_keep: truncations leave at least so many tokens.
        xtc_probability: how likely top choices are excluded at a position; 0 for never.
        xtc_threshold: above that probability all but the least likely are excluded; above 0.5: off.
        repeat_last_n: penalties look at so many tokens; 0 for none, -1 for all.
        repeat_penalty: divides positive logits of tokens that occurred; 1 is off.
        presence_penalty: subtracted from logits of tokens that occurred.
        frequency_penalty: subtracted for each time that they did.
        dry_multiplier: scale of the penalty on tokens that would go on repeating; 0 is off.
        dry_base: by what it grows with each repeated token.
        dry_allowed_length: repeats up to that length are free.
        dry_penalty_last_n: looks back so many tokens; 0 for none, -1 for all.
        dry_sequence_breakers: texts that no repeat reaches across.
        mirostat: 0, 1 or 2 (Basu et al. 2021); in the place of all truncating samplers.
        mirostat_tau: the surprise aimed at, in bits.
        mirostat_eta: how fast it is corrected.
        logit_bias: what is added to the logits of some tokens; -inf bans one.
        min_tokens: no end of generation before so many tokens.
        ignore_eos: no end of generation at all.

    Raises:
        InvalidParameterError: a value is outside its range.
    """

    seed: int = 0
    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    samplers: tuple[str, ...] = DEFAULT_SAMPLERS
    dynatemp_range: float = 0.0
    dynatemp_exponent: float = 1.0
    typical_p: float = 1.0
    top_n_sigma: float = -1.0
    min_keep: int = 0
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    repeat_last_n: int = 64
    repeat_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int = -1
    dry_sequence_breakers: tuple[str, ...] = ("\n", ":", '"', "*")
    mirostat: int = 0
    mirostat_tau: float = 5.0
    mirostat_eta: float = 0.1
    logit_bias: tuple[tuple[int, float], ...] = ()
    min_tokens: int = 0
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        """Check the ranges."""
        if not 0 <= self.seed < SEED_LIMIT:
            raise InvalidParameterError("seed", "must be a whole number from 0 to 2**64 - 1")
        for name in ("top_p", "typical_p"):
            if not 0 < getattr(self, name) <= 1:
                raise InvalidParameterError(name, "must be above 0 and at most 1")
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            if not math.isfinite(value):
                raise InvalidParameterError(name, "must be a finite number")
            if not low <= value <= high:
                raise InvalidParameterError(name, _range_in_words(low, high))
        if self.repeat_penalty < 1e-6:
            raise InvalidParameterError("repeat_penalty", "must be above 0; 1 is off")
        if self.mirostat not in (0, 1, 2):
            raise InvalidParameterError("mirostat", "must be 0 (off), 1 or 2")
        unknown = [name for name in self.samplers if name not in SAMPLER_LETTERS.values()]
        if unknown:
            known = ", ".join(DEFAULT_SAMPLERS)
            raise InvalidParameterError("samplers", f"{unknown[0]!r} is none; there are {known}")
        if any(math.isnan(bias) or bias == math.inf for _, bias in self.logit_bias):
            raise InvalidParameterError("logit_bias", "biases must be numbers; -inf bans a token")
        if any(token < 0 for token, _ in self.logit_bias):
            raise InvalidParameterError("logit_bias", "token ids must be 0 or more")

    def check_tokens(self, vocabulary_size: int) -> None:
        """Make sure that a vocabulary has all tokens that are named.

        Raises:
            InvalidParameterError: it lacks one.
        """
        for token, _ in self.logit_bias:
            if token >= vocabulary_size:
                raise InvalidParameterError(
                    "logit_bias", f"there is no token {token}; ids end at {vocabulary_size - 1}"
                )


_INFINITE = math.inf

_RANGES: dict[str, tuple[float, float]] = {
    "temperature": (0, _INFINITE),
    "dynatemp_range": (0, _INFINITE),
    "dynatemp_exponent": (0, _INFINITE),
    "top_k": (0, _INFINITE),
    "min_p": (0, 1),
    "top_n_sigma": (-_INFINITE, _INFINITE),
    "min_keep": (0, _INFINITE),
    "xtc_probability": (0, 1),
    "xtc_threshold": (0, 1),
    "repeat_last_n": (-1, _INFINITE),
    "repeat_penalty": (0, 1e6),
    "presence_penalty": (-1e30, 1e30),
    "frequency_penalty": (-1e30, 1e30),
    "dry_multiplier": (0, 1e30),
    "dry_base": (1, 1e38),
    "dry_allowed_length": (0, _INFINITE),
    "dry_penalty_last_n": (-1, _INFINITE),
    "mirostat_tau": (0, _INFINITE),
    "mirostat_eta": (0, _INFINITE),
    "min_tokens": (0, _INFINITE),
}
"""Smallest and largest value of each number. Penalties beyond theirs would overflow a logit."""


def _range_in_words(low: float, high: float) -> str:
    return (
        f"must be {low:g} or more"
        if high == _INFINITE
        else f"must lie between {low:g} and {high:g}"
    )


GREEDY = Sampling(temperature=0.0)
