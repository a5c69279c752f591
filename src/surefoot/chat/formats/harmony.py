"""gpt-oss's harmony: messages in channels, each with a header between special tokens."""

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
from surefoot.chat.formats.scanning import TagScanner

_CHANNEL, _MESSAGE, _START = "<|channel|>", "<|message|>", "<|start|>"
_ENDS = ("<|end|>", "<|call|>", "<|return|>")
_ALL = (_CHANNEL, _MESSAGE, _START, "<|constrain|>", *_ENDS)


class Harmony:
    """The format; see `Format`. Calls are not held to a grammar: their header may stand in two
    places, and a channel is chosen before it is known whether a call follows."""

    name = "harmony"
    markup = _ALL
    reasoning: Tags | None = Tags(f"{_CHANNEL}analysis{_MESSAGE}", "<|end|>")

    def parser(
        self,
        tools: Series[Tool],  # noqa: ARG002 - arguments are JSON whatever the tools are
        *,
        reasoning: bool,
        opened: bool,
        calls: bool,
    ) -> Parser:
        """A parser for one answer; see `Format`."""
        return HarmonyParser(reasoning=reasoning, opened=opened, calls=calls)

    def rules(self, tools: Series[Tool], special: SpecialToken) -> CallRules | None:  # noqa: ARG002
        """None; see the class."""
        return None


class HarmonyParser:
    """Takes an answer apart by channels; see `Parser`."""

    def __init__(self, *, reasoning: bool, opened: bool, calls: bool) -> None:
        self._tells_reasoning = reasoning
        self._tells_calls = calls
        self._scanner = TagScanner()
        self._header: str | None = None
        self._kind = "reasoning" if opened else "content"
        self._index = -1

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
        return events

    def _take(self, text: str, events: list[Event]) -> None:
        if not text:
            return
        if self._header is not None:
            self._header += text
        elif self._kind == "call":
            events.append(CallArguments(self._index, text))
        elif self._kind == "reasoning" and self._tells_reasoning:
            events.append(ReasoningDelta(text))
        else:
            events.append(ContentDelta(text))

    def _pass(self, tag: str, events: list[Event]) -> None:
        match tag:
            case "<|start|>":
                self._header = ""
            case "<|channel|>":
                self._header = (self._header or "") + " channel="
            case "<|constrain|>":
                self._header = (self._header or "") + " constrain="
            case "<|message|>":
                self._open(self._header or "", events)
                self._header = None
            case _:
                self._kind = "content"

    def _open(self, header: str, events: list[Event]) -> None:
        function = re.search(r"to=(?:functions\.)?([\w.\-]+)", header)
        if function and self._tells_calls:
            self._kind = "call"
            self._index += 1
            events.append(CallStart(self._index, function[1]))
        elif "channel=analysis" in header.replace("channel= ", "channel="):
            self._kind = "reasoning"
        else:
            self._kind = "content"
