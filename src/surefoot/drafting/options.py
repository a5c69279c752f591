"""The command-line options for speculation, under llama-server's names.

Names and meaning are those of build 11434 (`common/arg.cpp`). Defaults and ranges are declared in
`settings.py`.
"""

import argparse
import logging
from collections.abc import Iterable
from collections.abc import Sequence as Series
from dataclasses import fields
from typing import Any, NoReturn

from surefoot.drafting.base import FACTORIES, check_types
from surefoot.drafting.settings import SpeculationSettings, check_limits

NUMBERS = {
    "--spec-draft-n-max": "most tokens in a draft, for drafters that run a model",
    "--spec-draft-n-min": "don't use drafts shorter than N, for drafters that run a model",
    "--spec-ngram-simple-size-n": "ngram-simple: look up the last N tokens",
    "--spec-ngram-simple-size-m": "ngram-simple: most tokens in a draft",
    "--spec-ngram-simple-min-hits": "ngram-simple: how often they must have occurred before",
    "--spec-ngram-mod-n-match": "ngram-mod: look up the last N tokens",
    "--spec-ngram-mod-n-min": "ngram-mod: draft only where N tokens or more can be predicted",
    "--spec-ngram-mod-n-max": "ngram-mod: most tokens in a draft",
}
"""Options that take a number; the field of the settings is named like the option."""

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
        help=f"drafters, to be tried in this order: {', '.join(['none', *FACTORIES])} "
        f"(default: {','.join(SpeculationSettings().types)})",
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
        "--spec-ngram-mod-shared",
        action="store_true",
        default=None,
        help="ngram-mod: let requests be drafted for from each other's text, as llama-server does "
        "(default: keep them apart)",
    )
    for flags, instead in REMOVED.items():
        group.add_argument(*flags, action=_Removed, instead=instead, help=argparse.SUPPRESS)


def speculation_settings(options: argparse.Namespace) -> SpeculationSettings:
    """What the options say about speculation.

    An option for a drafter that isn't used is taken, as llama-server takes it, with a warning.

    Raises:
        InvalidParameterError: a drafter is unknown, or a number is outside its range.
    """
    given: dict[str, Any] = {}
    for flag in [*NUMBERS, "--spec-ngram-mod-shared"]:
        value = getattr(options, f"spec_{_field(flag)}")
        if value is not None:
            given[flag] = value
    for flag in NUMBERS.keys() & given.keys():
        check_limits(flag, _field(flag), given[flag])
    values = {_field(flag): value for flag, value in given.items()}
    if options.spec_type is not None:
        values["types"] = _types(options.spec_type)
    settings = SpeculationSettings(**values)
    _warn_of_unused(given, settings)
    return settings


def _field(flag: str) -> str:
    return flag.removeprefix("--spec-").replace("-", "_")


def _types(values: Iterable[str]) -> tuple[str, ...]:
    """The types of all `--spec-type` options, which add up until one of them says none."""
    types: list[str] = []
    for value in values:
        named = [name.strip() for name in value.split(",")]
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
    family = "draft" if kind.startswith("draft-") else kind
    return flag.startswith(f"--spec-{family}-")


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
