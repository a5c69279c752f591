"""What a request asks of its text, as plain data: grammar, reasoning, tool calls."""

from dataclasses import dataclass
from typing import Literal

GrammarKind = Literal["json_object", "json_schema", "gbnf", "lark", "regex", "choice"]


@dataclass(frozen=True, slots=True)
class Grammar:
    """Rules for a whole text.

    Attributes:
        kind: the language that the rules are written in. `json_object` is any JSON object.
        source: the rules; for `json_schema` the schema and for `choice` a list of strings, in JSON;
            empty for `json_object`.
    """

    kind: GrammarKind
    source: str = ""


@dataclass(frozen=True, slots=True)
class Reasoning:
    """A part of the text in which the model thinks; no other rule holds inside.

    Attributes:
        start: text that begins it, such as "<think>".
        end: text that ends it, such as "</think>".
        opened: whether the prompt has begun it already; else it may begin the answer.
        budget: most tokens inside, after which the end is forced; None for no limit.
        message: text put in front of a forced end.
        again: another text that begins it, where it comes once more; empty for none.
    """

    start: str
    end: str
    opened: bool = False
    budget: int | None = None
    message: str = ""
    again: str = ""


@dataclass(frozen=True, slots=True)
class Calls:
    """Tool calls within free text.

    Attributes:
        triggers: texts that begin a call; each of them is where the grammar begins, too.
        grammar: rules for a call from its trigger on, trigger and end tag included.
        required: whether the answer must be a call, with no free text in front of it.
        parallel: whether others may follow the first; else nothing may.
    """

    triggers: tuple[str, ...]
    grammar: Grammar
    required: bool = False
    parallel: bool = True


@dataclass(frozen=True, slots=True)
class ControlSpec:
    """All rules of a request. Reasoning comes first; then either a grammar or calls hold.

    Attributes:
        grammar: rules for the answer; None for none.
        reasoning: how the model thinks before it; None if it does not, or nobody cares.
        calls: tool calls in the answer; None for none.
    """

    grammar: Grammar | None = None
    reasoning: Reasoning | None = None
    calls: Calls | None = None
