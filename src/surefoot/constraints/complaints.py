"""llguidance's complaints about a grammar, told so that a user finds the place."""

import re

from surefoot.constraints.errors import GrammarError
from surefoot.constraints.spec import GrammarKind

LONGEST = 400
"""Characters of a complaint or of a place that are passed on."""

_LARK_PLACE = re.compile(r"\A\s*(?:at )?(\d+)\((\d+)\): ")
_REGEX = re.compile(r"regex parse error:\n(?P<shown>.*\n)(?P<mark> *)\^+\s*\nerror: (?P<what>.*)")
_INDENT = 4
_SHOWN_AGAIN = re.compile(r"\n +\d+ \| ")
_NO_MORE = re.compile(r"<non-verbose/>|^NoExtension\w*")

NO_TEXT = "no text at all satisfies it"


def parameter(kind: GrammarKind) -> str:
    """The parameter that such a grammar comes in."""
    return "grammar" if kind in ("gbnf", "lark") else kind


def grammar_error(kind: GrammarKind, complaint: str, part: str = "") -> GrammarError:
    """A complaint as an error.

    Args:
        kind: of the grammar.
        complaint: what llguidance says.
        part: the part of the grammar that it is about, if that is known.
    """
    lark = _LARK_PLACE.match(complaint)
    regex = _REGEX.search(complaint)
    said = complaint if lark is None else complaint[lark.end() :]
    said = _NO_MORE.sub("", _SHOWN_AGAIN.split(said, maxsplit=1)[0].strip())
    place = f"at {part[:LONGEST]}: " if part else ""
    if lark is not None and parameter(kind) == "grammar":
        place = f"line {lark[1]}, column {lark[2]}: "
    if regex is not None:
        column = len(regex["mark"]) - _INDENT + 1
        said = regex["what"]
        if kind == "regex":
            place = f"column {column}: "
        else:
            said += f", column {column} of the pattern {regex['shown'].strip()!r}"
    said = " ".join(said.split())[:LONGEST] or NO_TEXT
    return GrammarError(parameter(kind), f"{place}can't be used: {said}")
