"""Parsers whose errors are one line, and that take no option for another.

What llama-server calls the options that are unknown here stands in `llama_server`.
"""

import argparse
import re
from collections.abc import Iterable, Mapping
from collections.abc import Sequence as Series
from typing import Any, NoReturn

from surefoot.commands.llama_server import advice_on

_EPILOG = (
    "Words such as draft, slot, fork and snapshot are explained in docs/glossary.md; "
    "docs/llama-server.md compares the options with llama-server's."
)
_OPTION = re.compile(r"(-[A-Za-z](?:[A-Za-z][^\s=]*)?|--[^\s=]+)(=.*)?", re.DOTALL)
_REPEATED = re.compile(r"(-(.))\2+")  # such as -vv


class OneLineParser(argparse.ArgumentParser):
    """An `ArgumentParser` that says what is wrong in one line, without all of the usage."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, and where all options are listed; exit code 2."""
        self.exit(2, f"surefoot: error: {message} (see {self.prog} --help)\n")


class CommandParser(OneLineParser):
    """The parser of a subcommand. Options can't be abbreviated, and what is unknown is refused."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, epilog=_EPILOG, **settings)

    def parse_known_args(  # type: ignore[override]
        self, args: Series[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse what comes behind the subcommand's name; nothing is left over."""
        foreign = foreign_option(args or (), self._option_string_actions)
        if foreign is not None:
            advice = advice_on(foreign)
            self.error(f"{foreign} is no option of {self.prog}" + (f"; {advice}" if advice else ""))
        known, rest = super().parse_known_args(args, namespace)
        if rest:
            self.error(f"unexpected argument {rest[0]!r}")
        return known, []


def foreign_option(arguments: Iterable[str], known: Mapping[str, argparse.Action]) -> str | None:
    """The first argument that looks like an option and is none; None if all are known.

    argparse would read llama-server's `-ctk q8_0` as -c with the value "tk". So a value can be
    written right behind its letter only where it doesn't begin with a letter, as in `-t4`.

    Args:
        arguments: as they come from the shell; behind `--` there are no options.
        known: the options that there are.
    """
    for argument in arguments:
        if argument == "--":
            return None
        found = _OPTION.fullmatch(argument)
        if found is None or found[1] in known:
            continue
        repeated = _REPEATED.fullmatch(argument)
        if repeated is None or not _stands_alone(known.get(repeated[1])):
            return found[1]
    return None


def _stands_alone(action: argparse.Action | None) -> bool:
    """Whether it is an option that takes no value."""
    return action is not None and action.nargs == 0
