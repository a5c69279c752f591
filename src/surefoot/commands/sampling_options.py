"""Options of the command line for sampling and exactness, with llama-server's names."""

import argparse
import math
import secrets
from typing import Any

from surefoot.decoding import SAMPLER_LETTERS, InvalidParameterError, Sampling

DEFAULTS = Sampling()

NUMBERS: dict[str, tuple[tuple[str, ...], type, str, str]] = {
    "temperature": (("--temp", "--temperature"), float, "T", "0 takes the most likely token"),
    "top_k": (("--top-k",), int, "N", "keep the N most likely tokens; 0 keeps all"),
    "top_p": (("--top-p",), float, "P", "keep the smallest set with this mass; 1 keeps all"),
    "min_p": (("--min-p",), float, "P", "drop tokens below this share of the most likely one"),
    "top_n_sigma": (
        ("--top-nsigma", "--top-n-sigma"),
        float,
        "N",
        "drop logits more than N deviations below the top; negative: off",
    ),
    "typical_p": (("--typical", "--typical-p"), float, "P", "keep the most typical; 1: off"),
    "min_keep": (("--min-keep",), int, "N", "truncations leave at least N tokens"),
    "xtc_probability": (("--xtc-probability",), float, "P", "how often top choices go; 0: never"),
    "xtc_threshold": (("--xtc-threshold",), float, "P", "which of them; above 0.5: none"),
    "repeat_last_n": (("--repeat-last-n",), int, "N", "penalties look at so many; -1: all"),
    "repeat_penalty": (("--repeat-penalty",), float, "X", "divides repeated logits; 1: off"),
    "presence_penalty": (("--presence-penalty",), float, "X", "for tokens that occurred"),
    "frequency_penalty": (("--frequency-penalty",), float, "X", "for each time they did"),
    "dry_multiplier": (("--dry-multiplier",), float, "X", "penalty on repeats; 0: off"),
    "dry_base": (("--dry-base",), float, "X", "growth of it with each repeated token"),
    "dry_allowed_length": (("--dry-allowed-length",), int, "N", "free length of repeats"),
    "dry_penalty_last_n": (("--dry-penalty-last-n",), int, "N", "look back so far; -1: all"),
    "dynatemp_range": (("--dynatemp-range",), float, "X", "temperature by entropy; 0: off"),
    "dynatemp_exponent": (("--dynatemp-exp",), float, "X", "how entropy maps to it"),
    "mirostat": (("--mirostat",), int, "N", "1 or 2, in the place of truncation; 0: off"),
    "mirostat_tau": (("--mirostat-ent",), float, "X", "surprise aimed at, in bits"),
    "mirostat_eta": (("--mirostat-lr",), float, "X", "how fast it is corrected"),
    "min_tokens": (("--min-tokens",), int, "N", "no end of generation before so many"),
}
"""For each number its options, type, placeholder and help."""

OPTION_NAMES = {name: spec[0][0].removeprefix("--") for name, spec in NUMBERS.items()}
"""The options' names by those of the parameters, for messages."""


def add_sampling_arguments(parser: argparse.ArgumentParser, *, seed: bool = True) -> None:
    """Add the sampling parameters."""
    group = parser.add_argument_group("sampling")
    if seed:
        group.add_argument(
            "-s",
            "--seed",
            type=int,
            default=-1,
            metavar="N",
            help="the same seed gives the same text (default: -1, a new one each time)",
        )
    for name, (flags, kind, placeholder, text) in NUMBERS.items():
        group.add_argument(
            *flags,
            dest=f"sampling_{name}",
            type=kind,
            default=getattr(DEFAULTS, name),
            metavar=placeholder,
            help=f"{text} (default: %(default)s)",
        )
    group.add_argument(
        "--samplers",
        metavar="NAMES",
        help="what is applied, in order, separated by ';' (default: all)",
    )
    group.add_argument(
        "--sampling-seq",
        "--sampler-seq",
        metavar="LETTERS",
        help=f"the same in letters (default: {''.join(SAMPLER_LETTERS)})",
    )
    group.add_argument(
        "--dry-sequence-breaker",
        action="append",
        metavar="TEXT",
        help="no repeat reaches across it; may be given several times, 'none' for none",
    )
    group.add_argument(
        "-l",
        "--logit-bias",
        action="append",
        default=[],
        metavar="ID(+/-)BIAS",
        help="make a token likelier or less likely, such as 15043+1; may be given several times",
    )
    group.add_argument("--ignore-eos", action="store_true", help="no end of generation")


def sampling_of(options: argparse.Namespace) -> Sampling:
    """The sampling parameters that the options ask for.

    Raises:
        InvalidParameterError: a value is outside its range.
    """
    seed = getattr(options, "seed", -1)
    given: dict[str, Any] = {name: getattr(options, f"sampling_{name}") for name in NUMBERS}
    if options.sampling_seq is not None:
        unknown = [letter for letter in options.sampling_seq if letter not in SAMPLER_LETTERS]
        if unknown:
            raise InvalidParameterError("sampling-seq", f"{unknown[0]!r} is no sampler's letter")
        given["samplers"] = tuple(SAMPLER_LETTERS[letter] for letter in options.sampling_seq)
    if options.samplers is not None:
        given["samplers"] = tuple(filter(None, options.samplers.split(";")))
    if options.dry_sequence_breaker is not None:
        breakers = options.dry_sequence_breaker
        given["dry_sequence_breakers"] = () if breakers == ["none"] else tuple(breakers)
    return Sampling(
        seed=secrets.randbits(32) if seed == -1 else seed,
        logit_bias=tuple(map(_bias, options.logit_bias)),
        ignore_eos=options.ignore_eos,
        **given,
    )


def _bias(text: str) -> tuple[int, float]:
    """A token and its bias, as llama-server writes them.

    Raises:
        InvalidParameterError: it is written otherwise.
    """
    for sign in "+-":
        token, found, value = text.partition(sign)
        if found and token.isdecimal():
            try:
                bias = float(sign + value)
            except ValueError:
                break
            if not math.isnan(bias):
                return int(token), bias
    raise InvalidParameterError("logit-bias", f"must look like 15043+1 or 15043-inf, not {text!r}")


def add_exactness_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the level of the promise, and how drafts are verified."""
    group = parser.add_argument_group("exactness")
    group.add_argument(
        "--exact",
        choices=["fast", "strict"],
        default="fast",
        help="strict: not a single token hangs on drafts or on other requests (default: fast, "
        "where they may differ at near ties)",
    )
    group.add_argument(
        "--verify",
        choices=["coupled", "rejection"],
        default="coupled",
        help="how drafts are verified (default: coupled, by which a seed gives the same text "
        "with any drafter)",
    )
