"""What a format of reasoning and tool calls is: events, the parser's protocol, rules for calls."""

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Series
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

Tool = Mapping[str, Any]
"""A function as OpenAI describes it: `name`, `description`, `parameters`."""

SpecialToken = Callable[[str], int | None]
"""The id of a special token by its text; None if the vocabulary has none like that."""


class ContentDelta(NamedTuple):
    """More of the answer."""

    text: str


class ReasoningDelta(NamedTuple):
    """More of the reasoning."""

    text: str


class CallStart(NamedTuple):
    """A tool call begins; calls are counted from 0."""

    call: int
    name: str


class CallArguments(NamedTuple):
    """More of a call's arguments, a JSON text."""

    call: int
    text: str


Event = ContentDelta | ReasoningDelta | CallStart | CallArguments


class Parser(Protocol):
    """Takes an answer apart as it comes. How it is cut into pieces makes no difference."""

    def feed(self, text: str) -> list[Event]:
        """What a further piece of text brings."""

    def finish(self) -> list[Event]:
        """What was held back, once no more text comes. Nothing is made up."""

    @property
    def cut(self) -> bool:
        """Whether a call has begun and its arguments are not complete, as far as has been seen."""


class CallRules(NamedTuple):
    """How calls are written, for a grammar.

    Attributes:
        triggers: texts that begin a call.
        grammar: one call from its trigger to its end, in Lark as llguidance takes it.
    """

    triggers: tuple[str, ...]
    grammar: str


@dataclass(frozen=True, slots=True)
class Tags:
    """What stands around reasoning.

    Attributes:
        start: what begins it.
        end: what ends it.
        again: what else may begin it, where it comes once more; empty for nothing.
    """

    start: str
    end: str
    again: str = ""


class Format(Protocol):
    """How a family of models writes reasoning and tool calls."""

    @property
    def name(self) -> str:
        """Its name, as `--tool-format` takes it."""

    @property
    def markup(self) -> tuple[str, ...]:
        """Special tokens whose text the parser has to see."""

    @property
    def reasoning(self) -> Tags | None:
        """What stands around reasoning; None if the format has none."""

    def parser(
        self,
        tools: Series[Tool],
        *,
        reasoning: bool,
        opened: bool,
        calls: bool,
        bound: bool = False,
    ) -> Parser:
        """A parser for one answer.

        Reasoning comes in front of the answer. It ends at its first end tag; a start tag behind
        that, with nothing but blanks and stray end tags between, opens it again. Such strays are
        left out. `surefoot.constraints.reasoning` counts by the same rule.

        A function that is not among the tools is called all the same, and the client decides; only
        where a call has no tag is it told by the name of a tool. What can't be a call is content,
        word for word. A call whose name has been told stays, as far as it came.

        Args:
            tools: the functions that may be called.
            reasoning: whether reasoning is told apart from the answer.
            opened: whether the prompt has begun the reasoning already.
            calls: whether calls are told apart.
            bound: whether rules hold for the answer, which then begins at the first end tag.
        """

    def rules(self, tools: Series[Tool], special: SpecialToken) -> CallRules | None:
        """How calls of some functions are written; None if no grammar can say it.

        Args:
            tools: the functions that may be called, at least one.
            special: tells which texts are special tokens.
        """
