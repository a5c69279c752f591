"""From grammars as users write them to llguidance's own."""

import json
import re
from typing import Any

from llguidance import LLMatcher, LLParserLimits

from surefoot.constraints.errors import GrammarError
from surefoot.constraints.gbnf import lark_from_gbnf
from surefoot.constraints.schemas import schema_of
from surefoot.constraints.spec import Grammar
from surefoot.constraints.vocabulary import Vocabulary

WHITESPACE = r"[ ]?(\r?\n[ \t]{0,40})?"
"""Whitespace that JSON may have between its parts: one space, or a line break and an indent. Runs
without a bound let a model write blanks until its tokens are used up."""

_PADDING = "/[ \\t\\r\\n]{1,4}/"
_JSON_OPTIONS: dict[str, Any] = {
    "whitespace_flexible": True,
    "whitespace_pattern": WHITESPACE,
    "lenient": False,
}

LARK_MARK = "%llguidance"
"""A grammar that begins with it is Lark, as llama.cpp has it; others are GBNF."""

MOST_REPETITIONS = 10_000
"""A regular expression may count so far. Greater counts take seconds before they fail."""

_COUNT = re.compile(r"(?<!\\)\{(\d*)(?:,(\d*))?\}")

LIMITS = LLParserLimits(
    max_items_in_row=20_000,  # four for each optional property that may come next
    initial_lexer_fuel=1_000_000,
    step_lexer_fuel=200_000,
    step_max_items=500_000,  # some 25 ms; single characters as lexemes and 250,000 tokens need it
    max_lexer_states=250_000,
    max_grammar_size=500_000,
    verbose_errors=False,
)
"""What a grammar may cost before it is refused."""


def compiled(grammar: Grammar, vocabulary: Vocabulary, *, padded: bool = False) -> str:
    """A grammar in llguidance's own form.

    Args:
        grammar: as the user has written it.
        vocabulary: the model's tokens.
        padded: whether a few blanks may stand in front of it, if it is JSON.

    Raises:
        GrammarError: it is not in its language at all; `LLMatcher` finds the other errors.
    """
    match grammar.kind:
        case "json_object" | "json_schema":
            object_only = grammar.kind == "json_object"
            schema = {"type": "object"} if object_only else schema_of(grammar.source)
            return compiled_schema(schema, padded=padded)
        case "gbnf":
            return str(LLMatcher.grammar_from_lark(_from_gbnf(grammar.source, vocabulary)))
        case "lark":
            return str(LLMatcher.grammar_from_lark(grammar.source))
        case "regex":
            return str(LLMatcher.grammar_from_regex(_counted(grammar.source)))
        case "choice":
            return str(LLMatcher.grammar_from_lark(_choice(grammar.source)))


def compiled_schema(schema: dict[str, Any], *, padded: bool = False) -> str:
    """A JSON schema in llguidance's own form.

    Args:
        schema: the schema.
        padded: whether a few blanks may stand in front of the JSON.

    Raises:
        GrammarError: it has too many levels.
    """
    try:
        text = json.dumps({**schema, "x-guidance": _JSON_OPTIONS})
        if not padded:
            return str(LLMatcher.grammar_from_json_schema(text))
    except (RecursionError, ValueError) as error:
        raise GrammarError("json_schema", "has too many levels inside each other") from error
    lines = ["start: PADDING? body", f"body: %json {text}", f"PADDING: {_PADDING}"]
    return str(LLMatcher.grammar_from_lark("\n".join(lines)))


def _from_gbnf(source: str, vocabulary: Vocabulary) -> str:
    if not source.strip():
        raise GrammarError("grammar", "is empty")
    if source.lstrip().startswith(LARK_MARK):
        return source
    return lark_from_gbnf(source, vocabulary.single, vocabulary.size)


def _counted(source: str) -> str:
    for found in _COUNT.finditer(source):
        if any(
            len(count) > 9 or int(count) > MOST_REPETITIONS for count in found.groups() if count
        ):
            raise GrammarError(
                "regex",
                f"column {found.start() + 1}: {found[0]} repeats more than "
                f"{MOST_REPETITIONS} times; allow fewer",
            )
    return source


def _choice(source: str) -> str:
    try:
        options = json.loads(source)
    except (ValueError, RecursionError) as error:
        raise GrammarError("choice", f"is no valid JSON: {error}") from error
    if not isinstance(options, list) or not options:
        raise GrammarError("choice", "must be a list of texts, at least one")
    if not all(isinstance(option, str) and option for option in options):
        raise GrammarError("choice", "every choice must be a text that is not empty")
    # One lexeme, not a rule: a parser's row holds only so many alternatives.
    distinct = " | ".join(json.dumps(option) for option in dict.fromkeys(options))
    return f"start: CHOICE\nCHOICE: {distinct}"
