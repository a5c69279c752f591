"""An assistant's message, put together from what a parser finds in the text."""

import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from surefoot.chat.formats import (
    CallArguments,
    CallStart,
    ContentDelta,
    Event,
    Parser,
    ReasoningDelta,
)


@dataclass(slots=True)
class MessageReader:
    """Reads one choice's text as it comes.

    Attributes:
        parser: takes the text apart.
        content: the answer so far.
        reasoning: the reasoning so far.
        calls: the tool calls so far, as OpenAI has them.
    """

    parser: Parser
    content: str = ""
    reasoning: str = ""
    calls: list[dict[str, Any]] = field(default_factory=list)

    def feed(self, text: str) -> list[dict[str, Any]]:
        """What a further piece of text adds, as OpenAI's deltas."""
        return self._deltas(self.parser.feed(text)) if text else []

    def finish(self) -> list[dict[str, Any]]:
        """What was held back, as OpenAI's deltas."""
        return self._deltas(self.parser.finish())

    @property
    def message(self) -> dict[str, Any]:
        """The whole message."""
        message: dict[str, Any] = {
            "role": "assistant",
            "content": None if self.calls and not self.content else self.content,
            "refusal": None,
        }
        if self.reasoning:
            message["reasoning_content"] = self.reasoning
        if self.calls:
            message["tool_calls"] = self.calls
        return message

    def _deltas(self, events: Iterable[Event]) -> list[dict[str, Any]]:
        """Deltas of events; texts of the same kind that follow each other are one."""
        deltas: list[dict[str, Any]] = []
        for event in events:
            delta = self._delta(event)
            last = deltas[-1] if deltas else {}
            if len(delta) == 1 and delta.keys() == last.keys() and "tool_calls" not in delta:
                for name, text in delta.items():
                    last[name] += text
            elif delta.keys() == last.keys() == {"tool_calls"} and isinstance(event, CallArguments):
                last["tool_calls"][-1]["function"]["arguments"] += event.text
            else:
                deltas.append(delta)
        return deltas

    def _delta(self, event: Event) -> dict[str, Any]:
        match event:
            case ContentDelta(text):
                self.content += text
                return {"content": text}
            case ReasoningDelta(text):
                self.reasoning += text
                return {"reasoning_content": text}
            case CallStart(index, name):
                call = {
                    "id": f"call_{secrets.token_hex(12)}",
                    "type": "function",
                    "function": {"name": name, "arguments": ""},
                }
                self.calls.append(call)
                copy = {**call, "function": {"name": name, "arguments": ""}}
                return {"tool_calls": [{"index": index, **copy}]}
            case CallArguments(index, text):
                self.calls[index]["function"]["arguments"] += text
                return {"tool_calls": [{"index": index, "function": {"arguments": text}}]}
