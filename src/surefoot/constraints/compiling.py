"""From grammars as users write them to llguidance's own, and the errors of both."""

import json
import re
from typing import Any

from llguidance import LLMatcher, LLParserLimits
from llguidance.gbnf_to_lark import any_to_lark

from surefoot.constraints.errors import GrammarError
from surefoot.constraints.spec import Grammar

WHITESPACE = r"[ ]?(\r?\n[ \t]{0,40})?"
"""Whitespace that JSON may have between its parts: one space, or a line break and an indent. Runs
without a bound let a model write blanks until its tokens are used up."""

_PADDING = "/[ \\t\\r\\n]{1,4}/"
_JSON_OPTIONS: dict[str, Any] = {"whitespace_flexible": True, "whitespace_pattern": WHITESPACE}

LARK_MARK = "%llguidance"
"""A grammar that begins with it is Lark, as llama.cpp has it; others are GBNF."""


def compiled(grammar: Grammar, *, padded: bool = False) -> str:
    """A grammar in llguidance's own form.

    Args:
        grammar: as the user has written it.
        padded: whether a few blanks may stand in front of it.

    Raises:
        GrammarError: it is not in its language at all; `LLMatcher` finds the other errors.
    """
    match grammar.kind:
        case "json_object" | "json_schema":
            schema = _schema(grammar)
            if padded:
                schema = {**schema, "x-guidance": _JSON_OPTIONS}
                return _padded(f"%json {json.dumps(schema)}")
            return str(LLMatcher.grammar_from_json_schema(schema, defaults=_JSON_OPTIONS))  # type: ignore[arg-type]
        case "gbnf":
            return str(LLMatcher.grammar_from_lark(_from_gbnf(grammar.source)))
        case "lark":
            return str(LLMatcher.grammar_from_lark(grammar.source))
        case "regex":
            return str(LLMatcher.grammar_from_regex(grammar.source))
        case "choice":
            return str(LLMatcher.grammar_from_lark(_choice(grammar.source)))


def _padded(body: str) -> str:
    lines = ["start: PADDING? body", f"body: {body}", f"PADDING: {_PADDING}"]
    return str(LLMatcher.grammar_from_lark("\n".join(lines)))


def _schema(grammar: Grammar) -> dict[str, Any]:
    if grammar.kind == "json_object":
        return {"type": "object"}
    try:
        schema = json.loads(grammar.source)
    except ValueError as error:
        raise GrammarError("json_schema", f"is no valid JSON: {error}") from error
    if schema is True:
        return {}
    if not isinstance(schema, dict):
        raise GrammarError("json_schema", "must be a JSON object; false allows no text at all")
    return schema


def _from_gbnf(source: str) -> str:
    if not source.strip():
        raise GrammarError("grammar", "is empty")
    if source.lstrip().startswith(LARK_MARK):
        return source
    try:
        return str(any_to_lark(_ESCAPE.sub(_character, source)))
    except Exception as error:
        raise GrammarError("grammar", f"is no valid GBNF: {error}") from error


_ESCAPE = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|.)", re.DOTALL)
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def _character(found: re.Match[str]) -> str:
    """An escape of a code point as the character itself, which is all that Lark knows of it."""
    code = found[1] or found[2] or found[3]
    if code is None:
        return found[0]
    character = chr(int(code, 16))
    if character in '"\\[]^-':
        return "\\" + character
    return _NAMED.get(character, character)


def _choice(source: str) -> str:
    try:
        options = json.loads(source)
    except ValueError as error:
        raise GrammarError("choice", f"is no valid JSON: {error}") from error
    if not isinstance(options, list) or not options:
        raise GrammarError("choice", "must be a list of texts, at least one")
    if not all(isinstance(option, str) and option for option in options):
        raise GrammarError("choice", "every choice must be a text that is not empty")
    return "start: " + " | ".join(json.dumps(option) for option in options)


LIMITS = LLParserLimits(
    max_items_in_row=2000,
    initial_lexer_fuel=1_000_000,
    step_lexer_fuel=200_000,
    max_lexer_states=250_000,
    max_grammar_size=500_000,
)
"""What a grammar may cost before it is refused."""


def problem(name: str, message: str) -> GrammarError:
    """llguidance's complaint about a grammar."""
    text = " ".join(message.split())
    return GrammarError(name, f"can't be used: {text[:600]}")
