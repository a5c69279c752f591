"""The command-line options for speculation, under llama-server's names.

Names and meaning are those of build 11434 (`common/arg.cpp`). Defaults and ranges are declared in
`settings.py`.
"""

import argparse
import logging
from collections.abc import Iterable
from collections.abc import Sequence as Series
from dataclasses import fields
from pathlib import Path
from typing import Any, NoReturn

from surefoot.decoding import InvalidParameterError, check_rates
from surefoot.drafting.base import KINDS, check_types
from surefoot.drafting.settings import (
    SpeculationSettings,
    check_draft_lengths,
    check_limits,
    check_probability,
    runs_a_model,
)

NUMBERS = {
    "--spec-draft-n-max": "most tokens in a draft, for drafters that run a model",
    "--spec-draft-n-min": "don't use drafts shorter than N, for drafters that run a model",
    "--spec-ngram-simple-size-n": "ngram-simple: look up the last N tokens",
    "--spec-ngram-simple-size-m": "ngram-simple: most tokens in a draft",
    "--spec-ngram-simple-min-hits": "ngram-simple: how often they must have occurred before",
    "--spec-ngram-map-k-size-n": "ngram-map-k: look up the last N tokens",
    "--spec-ngram-map-k-size-m": "ngram-map-k: most tokens in a draft",
    "--spec-ngram-map-k-min-hits": "ngram-map-k: how often they must have occurred before",
    "--spec-ngram-map-k4v-size-n": "ngram-map-k4v: look up the last N tokens",
    "--spec-ngram-map-k4v-size-m": "ngram-map-k4v: tokens told apart, and most in a draft",
    "--spec-ngram-map-k4v-min-hits": "ngram-map-k4v: how often they must have occurred before",
    "--spec-ngram-mod-n-match": "ngram-mod: look up the last N tokens",
    "--spec-ngram-mod-n-min": "ngram-mod: draft only where N tokens or more can be predicted",
    "--spec-ngram-mod-n-max": "ngram-mod: most tokens in a draft",
}
"""Options that take a number; the field of the settings is named like the option."""

OTHERS = (
    "--spec-draft-p-min",
    "--spec-draft-model",
    "--ctx-size-draft",
    "--spec-draft-ngl",
    "--spec-draft-threads",
    "--spec-ngram-shared",
    "--lookup-cache-static",
    "--lookup-cache-dynamic",
    "--spec-synth-rates",
    "--spec-synth-len",
)
"""Options of other kinds; the field is named like the option here, too."""

NEEDS = {
    "--ctx-size-draft": ("draft-simple",),
    "--spec-draft-ngl": ("draft-simple",),
    "--spec-draft-threads": ("draft-simple",),
    "--spec-ngram-shared": ("ngram-mod", "ngram-cache"),
    "--lookup-cache-static": ("ngram-cache",),
    "--lookup-cache-dynamic": ("ngram-cache",),
}
"""The kinds of drafter that an option is for, where its name doesn't tell."""

REMOVED = {
    ("--draft", "--draft-n", "--draft-max"): "--spec-draft-n-max or --spec-ngram-mod-n-max",
    ("--draft-min", "--draft-n-min"): "--spec-draft-n-min or --spec-ngram-mod-n-min",
    ("--spec-ngram-size-n",): "--spec-ngram-simple-size-n or --spec-ngram-mod-n-match",
    ("--spec-ngram-size-m",): "--spec-ngram-simple-size-m",
    ("--spec-ngram-min-hits",): "--spec-ngram-simple-min-hits",
}
"""Older spellings that llama-server refuses with a hint, and what to use in their place."""

_DEFAULTS = {field.name: field.default for field in fields(SpeculationSettings)}
_LOG = logging.getLogger(__name__)


def add_speculation_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that say which drafters to use, and how."""
    group = parser.add_argument_group("speculation")
    group.add_argument(
        "--spec-type",
        action="append",
        metavar="TYPE,...",
        help=f"drafters, to be tried in this order, those that run a model last: "
        f"{', '.join(KINDS)}; or none or auto, which stand alone. auto is the default: a model "
        f"given with -md, else the model's own head if it has one, else "
        f"{','.join(SpeculationSettings().types)}. draft-simple needs -md, except with the model "
        f"that comes with surefoot, which has a draft model beside it",
    )
    group.add_argument(
        "--spec-default",
        action="append_const",
        dest="spec_type",
        const="ngram-mod",
        help="the same as --spec-type ngram-mod",
    )
    for flag, meaning in NUMBERS.items():
        default = _DEFAULTS[_field(flag)]
        group.add_argument(flag, type=int, metavar="N", help=f"{meaning} (default: {default})")
    group.add_argument(
        "--spec-ngram-shared",
        action="store_true",
        default=None,
        help="ngram-mod, ngram-cache: let requests be drafted for from each other's text "
        "(default: keep them apart)",
    )
    group.add_argument(
        "-lcs",
        "--lookup-cache-static",
        type=Path,
        metavar="FILE",
        help="ngram-cache: lookup file made from a corpus by llama-lookup-create; only read",
    )
    group.add_argument(
        "-lcd",
        "--lookup-cache-dynamic",
        type=Path,
        metavar="FILE",
        help="ngram-cache: lookup file to which all requests' text is added, prompts included, and "
        "from which all are drafted for; made if there is none, written at the end",
    )
    group.add_argument(
        "--spec-synth-rates",
        type=_rates,
        metavar="P0,P1,...",
        help="for benchmarks: accept drafts up to each token with these probabilities, whatever "
        "the model says; the text is not the model's",
    )
    group.add_argument(
        "--spec-synth-len",
        type=float,
        metavar="L",
        help="the same, with such probabilities that a round of the longest draft commits L tokens "
        "on average",
    )
    _add_draft_model_arguments(parser)
    for flags, instead in REMOVED.items():
        group.add_argument(*flags, action=_Removed, instead=instead, help=argparse.SUPPRESS)


def _add_draft_model_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that say which model drafts, and how it is loaded."""
    group = parser.add_argument_group("speculation with a draft model")
    group.add_argument(
        "-md",
        "--model-draft",
        "--spec-draft-model",
        dest="spec_draft_model",
        type=Path,
        metavar="FILE",
        help="GGUF file of the model that drafts; without --spec-type it is used as draft-simple",
    )
    group.add_argument(
        "--spec-draft-p-min",
        "--draft-p-min",
        type=float,
        metavar="P",
        help="a draft ends before the first token that the model that drafts finds less probable "
        f"(default: {_DEFAULTS['draft_p_min']})",
    )
    group.add_argument(
        "-cd",
        "--ctx-size-draft",
        type=int,
        metavar="N",
        help="the draft model's tokens of context for each slot; 0 for as many as it was trained "
        "with (default: as many as the target has)",
    )
    group.add_argument(
        "-ngld",
        "--spec-draft-ngl",
        "--gpu-layers-draft",
        "--n-gpu-layers-draft",
        type=_gpu_layers,
        metavar="N",
        help="the draft model's layers to keep on the GPU, or 'all' (default: all, if there is a "
        "GPU backend)",
    )
    group.add_argument(
        "-td",
        "--spec-draft-threads",
        "--threads-draft",
        type=int,
        metavar="N",
        help="CPU threads for the draft model (default: as many as for the target)",
    )


def speculation_settings(options: argparse.Namespace) -> SpeculationSettings:
    """What the options say about speculation.

    An option for a drafter that isn't used is taken, as llama-server takes it, with a warning.

    Raises:
        InvalidParameterError: a drafter is unknown, or a number is outside its range.
    """
    given: dict[str, Any] = {}
    for flag in [*NUMBERS, *OTHERS]:
        value = getattr(options, flag.removeprefix("--").replace("-", "_"))
        if value is not None:
            given[flag] = value
    for flag in NUMBERS.keys() & given.keys():
        check_limits(flag, _field(flag), given[flag])
    if "--spec-draft-p-min" in given:
        check_probability("--spec-draft-p-min", given["--spec-draft-p-min"])
    if "--spec-synth-rates" in given:
        check_rates("--spec-synth-rates", given["--spec-synth-rates"])
    values = {_field(flag): value for flag, value in given.items()}
    check_draft_lengths(
        "--spec-draft-n-min",
        values.get("draft_n_min", _DEFAULTS["draft_n_min"]),
        "--spec-draft-n-max",
        values.get("draft_n_max", _DEFAULTS["draft_n_max"]),
    )
    if options.spec_type is not None:
        values["types"] = _types(options.spec_type)
    elif options.spec_draft_model is not None:
        values["types"] = ("draft-simple",)
        _LOG.info("-md without --spec-type: %s drafts (draft-simple)", options.spec_draft_model)
    settings = SpeculationSettings(**values)
    _warn_of_unused(given, settings)
    return settings


def _field(flag: str) -> str:
    return flag.removeprefix("--").removeprefix("spec-").replace("-", "_")


def _gpu_layers(text: str) -> int | None:
    if text == "auto":
        return None
    return 1 << 16 if text == "all" else int(text)


def _rates(text: str) -> tuple[float, ...]:
    return tuple(float(rate) for rate in text.split(","))


def _types(values: Iterable[str]) -> tuple[str, ...]:
    """The types of all `--spec-type` options, which add up until one of them says none."""
    types: list[str] = []
    values = list(values)
    for value in values:
        named = [name.strip() for name in value.split(",")]
        if "auto" in named:
            given = " and ".join(map(repr, values))
            raise InvalidParameterError("--spec-type", f"auto stands alone, and not in {given}")
        if "none" in named and len(named) > 1:
            raise InvalidParameterError("--spec-type", f"none stands alone, and not in {value!r}")
        check_types("--spec-type", named)
        types = [] if "none" in named else types + named
    return tuple(types) or ("none",)


def _warn_of_unused(given: Iterable[str], settings: SpeculationSettings) -> None:
    for flag in given:
        if not any(_concerns(flag, kind) for kind in settings.chosen):
            chosen = ",".join(settings.chosen) or "none"
            _LOG.warning("%s has no effect with --spec-type %s", flag, chosen)


def _concerns(flag: str, kind: str) -> bool:
    """Whether an option is for a kind of drafter; those that run a model are called draft-*."""
    if flag in NEEDS:
        return kind in NEEDS[flag]
    family = "draft" if runs_a_model(kind) else kind
    return flag.startswith((f"--spec-{family}-", "--spec-synth-"))


class _Removed(argparse.Action):
    """Says what to use in place of an option that is gone."""

    def __init__(self, option_strings: Series[str], dest: str, *, instead: str, help: str) -> None:
        super().__init__(option_strings, dest, default=argparse.SUPPRESS, help=help)
        self._instead = instead

    def __call__(
        self,
        parser: argparse.ArgumentParser,  # noqa: ARG002
        namespace: argparse.Namespace,  # noqa: ARG002
        values: str | Series[Any] | None,  # noqa: ARG002
        option_string: str | None = None,  # noqa: ARG002
    ) -> NoReturn:
        raise argparse.ArgumentError(self, f"it has been removed; use {self._instead}")
