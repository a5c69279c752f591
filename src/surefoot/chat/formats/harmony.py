"""gpt-oss's harmony: messages in channels, each with a header between special tokens."""

import json
import re
from collections.abc import Sequence as Series

from surefoot.chat.formats.base import (
    CallArguments,
    CallRules,
    CallStart,
    ContentDelta,
    Event,
    Parser,
    ReasoningDelta,
    SpecialToken,
    Tags,
    Tool,
)
from surefoot.chat.formats.calls import LONGEST_HEAD
from surefoot.chat.formats.lark import schema_of, terminal
from surefoot.chat.formats.scanning import JsonEnd, TagScanner

_CHANNEL, _MESSAGE, _START = "<|channel|>", "<|message|>", "<|start|>"
_CONSTRAIN, _CALL = "<|constrain|>", "<|call|>"
_IN_HEADERS = (_CHANNEL, _START, _CONSTRAIN)
_ALL = (*_IN_HEADERS, _MESSAGE, "<|end|>", _CALL, "<|return|>")

_RECIPIENT = " to=functions."

_TO = re.compile(r"\bto=(?:functions\.)?([\w.\-]+)")
_ANALYSIS = re.compile(re.escape(_CHANNEL) + r"\s*analysis\b")


class Harmony:
    """The format; see `Format`."""

    name = "harmony"
    markup = _ALL
    reasoning: Tags | None = Tags(
        f"{_CHANNEL}analysis{_MESSAGE}",
        "<|end|>",
        again=f"{_START}assistant{_CHANNEL}analysis{_MESSAGE}",
    )

    def parser(
        self,
        tools: Series[Tool],  # noqa: ARG002 - arguments are JSON whatever the tools are
        *,
        reasoning: bool,
        opened: bool,
        calls: bool,
        bound: bool = False,  # noqa: ARG002 - headers tell what is reasoning
    ) -> Parser:
        """A parser for one answer; see `Format`."""
        return HarmonyParser(reasoning=reasoning, opened=opened, calls=calls)

    def rules(self, tools: Series[Tool], special: SpecialToken) -> CallRules | None:
        """How calls are written; see `Format`. The recipient stands in front of the channel or
        behind it, so it is what begins a call; where a call must come, more of the header may."""

        def tag(text: str) -> str:
            return terminal(text, special)

        calls = " | ".join(
            f"({json.dumps(tool['name'])} middle {schema_of(tool)})" for tool in tools
        )
        lines = [
            f"start: head? {json.dumps(_RECIPIENT)} ({calls}) {tag(_CALL)}",
            f'head: ({tag(_START)} "assistant")? {tag(_CHANNEL)} "commentary"'
            f' | {tag(_START)} "assistant"',
            f'middle: ({tag(_CHANNEL)} "commentary")? (" "? {tag(_CONSTRAIN)}? " "? "json")?'
            f" {tag(_MESSAGE)}",
        ]
        return CallRules((_RECIPIENT,), "\n".join(lines))


class HarmonyParser:
    """Takes an answer apart by channels; see `Parser`."""

    def __init__(self, *, reasoning: bool, opened: bool, calls: bool) -> None:
        self._tells_reasoning = reasoning
        self._tells_calls = calls
        self._scanner = TagScanner()
        self._header: str | None = None if opened else ""
        self._kind = "reasoning" if opened else "content"
        self._index = -1
        self._empty = True  # whether the call has no arguments so far
        self._arguments: JsonEnd | None = None  # until they are complete
        self._cut = False

    def feed(self, text: str) -> list[Event]:
        """What a further piece of text brings."""
        events: list[Event] = []
        while text:
            front, tag, text = self._scanner.feed(text, _ALL)
            self._take(front, events)
            if tag is not None:
                self._pass(tag, events)
        return events

    def finish(self) -> list[Event]:
        """What was held back."""
        events: list[Event] = []
        self._take(self._scanner.rest(), events)
        self._cut = self.cut
        self._give_back(events)
        return events

    @property
    def cut(self) -> bool:
        """Whether a call is incomplete; see `Parser`."""
        if self._header is not None and self._tells_calls and _TO.search(self._header):
            return True
        return self._cut

    def _take(self, text: str, events: list[Event]) -> None:
        if not text:
            return
        if self._header is None:
            self._tell(text, events)
            return
        self._header += text
        if not self._may_be_header(self._header):
            text, self._header, self._kind = self._header, None, "content"
            self._tell(text, events)

    def _may_be_header(self, text: str) -> bool:
        """Whether a text outside of messages begins one. The prompt may have begun the header, or
        the end of a message may be followed by the rest of one, so that there is no tag."""
        if len(text) > LONGEST_HEAD:
            return False
        start = text.lstrip()
        return start.startswith(_IN_HEADERS) or "to=".startswith(start[:3])

    def _tell(self, text: str, events: list[Event]) -> None:
        if self._kind == "call":
            self._empty = False
            self._follow(text)
            events.append(CallArguments(self._index, text))
        elif self._kind == "reasoning" and self._tells_reasoning:
            events.append(ReasoningDelta(text))
        else:
            events.append(ContentDelta(text))

    def _follow(self, arguments: str) -> None:
        """Look for the end of a call's arguments; they are none if anything comes behind it."""
        for char in arguments:
            if self._arguments is None:
                self._cut = self._cut or not char.isspace()
            elif (self._arguments.first or not char.isspace()) and self._arguments.feed(char):
                self._arguments, self._cut = None, False

    def _pass(self, tag: str, events: list[Event]) -> None:
        if tag in _IN_HEADERS:
            self._header = (self._header or "") + tag
        elif tag == _MESSAGE:
            self._open(self._header or "", events)
            self._header = None
        else:
            self._end(tag, events)

    def _open(self, header: str, events: list[Event]) -> None:
        function = _TO.search(header)
        if function and self._tells_calls:
            self._kind, self._empty = "call", True
            self._arguments, self._cut = JsonEnd(), True
            self._index += 1
            events.append(CallStart(self._index, function[1]))
        elif _ANALYSIS.search(header):
            self._kind = "reasoning"
            if not self._tells_reasoning:
                events.append(ContentDelta(header + _MESSAGE))
        else:
            self._kind = "content"

    def _end(self, tag: str, events: list[Event]) -> None:
        if self._header is not None:
            self._give_back(events)
        elif self._kind == "call" and self._empty:
            self._cut = False
            events.append(CallArguments(self._index, "{}"))
        elif self._kind == "reasoning" and not self._tells_reasoning:
            events.append(ContentDelta(tag))
        self._header, self._kind = "", "content"

    def _give_back(self, events: list[Event]) -> None:
        """A header without a message is content if it names a function, or has no tag; one that
        tells of a channel alone has said nothing."""
        header, self._header = self._header or "", ""
        if header.strip() and (_TO.search(header) or not header.lstrip().startswith(_IN_HEADERS)):
            events.append(ContentDelta(header))
