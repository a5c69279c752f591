"""Readers of single calls, character by character, so that no cut of the text matters."""

import json
import re
from collections.abc import Callable, Collection, Mapping
from collections.abc import Sequence as Series
from enum import Enum
from typing import Any, Protocol

from surefoot.chat.formats.base import Tool
from surefoot.chat.formats.scanning import JsonEnd, arguments_text, json_string

ARGUMENT_KEYS = ("arguments", "parameters")
"""Keys that models give to a call's arguments."""

BEGINS_VALUE = frozenset('{["-0123456789tfn')
"""Characters that a JSON value can begin with."""

LONGEST_HEAD = 400
"""Most characters in front of a call's arguments; more are no call's head."""


class Progress(Enum):
    """How a reader fares."""

    MORE = "more"
    DONE = "done"
    FAILED = "failed"


class CallReader(Protocol):
    """Reads calls behind their trigger.

    Attributes:
        out: what has been understood since it was last emptied: a name begins a call, as a tuple,
            and texts go on with its arguments. What comes behind the last of it, an empty text
            too, is given back if the reader fails.
    """

    out: list[tuple[str] | str]

    def feed(self, char: str) -> Progress:
        """Take a character. After FAILED it is as if it had not been taken."""


class ObjectReader:
    """A JSON object with the function's name and its arguments: `{"name": .., "arguments": ..}`.

    Args:
        end: what follows the object; empty for nothing.
        names: the only names that make it a call; None for any.
    """

    def __init__(self, end: str = "", names: Collection[str] | None = None) -> None:
        self.out: list[tuple[str] | str] = []
        self._end = end
        self._names = names
        self._state = "open"
        self._key: str | None = None
        self._value = JsonEnd()
        self._name: str | None = None
        self._arguments: str | None = None
        self._streams = False
        self._tail = ""

    def feed(self, char: str) -> Progress:
        """Take a character; see `CallReader`."""
        match self._state:
            case "value":
                return self._in_value(char)
            case "key":
                return self._in_key(char)
            case "end":
                return self._at_end(char)
        if char.isspace():
            return Progress.MORE
        wanted = {"open": "{", "first": '"}', "next": '"', "colon": ":", "after": ",}"}[self._state]
        return self._structure(char) if char in wanted else Progress.FAILED

    def _structure(self, char: str) -> Progress:
        match char:
            case "{":
                self._state = "first"
            case '"':
                self._state, self._value = "key", JsonEnd()
                self._value.feed(char)
            case ":":
                self._state, self._value = "value", JsonEnd()
            case ",":
                self._state = "next"
            case "}":
                return self._close()
        return Progress.MORE

    def _in_key(self, char: str) -> Progress:
        if not self._value.feed(char):
            return Progress.MORE
        self._state, self._key = "colon", json_string(self._value.text)
        return Progress.FAILED if self._key is None else Progress.MORE

    def _in_value(self, char: str) -> Progress:
        value = self._value
        if not value.first:
            if char.isspace():
                return Progress.MORE
            if char not in BEGINS_VALUE:
                return Progress.FAILED
            # An object is passed on as it comes, once it is known whose arguments it is.
            self._streams = char == "{" and self._has_arguments and self._name is not None
        elif value.scalar and char in ",}":
            return self._structure(char) if self._take() else Progress.FAILED
        done = value.feed(char)
        if self._streams:
            self._arguments = ""
            self.out.append(char)
        return Progress.MORE if not done or self._take() else Progress.FAILED

    @property
    def _has_arguments(self) -> bool:
        return self._key in ARGUMENT_KEYS and self._arguments is None

    def _take(self) -> bool:
        """A value is complete; tells whether it still is a call."""
        self._state = "after"
        if self._streams:
            self._streams = False
        elif self._key == "name" and self._name is None:
            self._name = json_string(self._value.text)
            if not self._name or (self._names is not None and self._name not in self._names):
                return False
            self.out.append((self._name,))
            if self._arguments is not None:
                self.out.append(self._arguments)
        elif self._has_arguments:
            self._arguments = arguments_text(self._value.text.strip())
            if self._name is not None:
                self.out.append(self._arguments)
        return True

    def _close(self) -> Progress:
        if self._name is None:
            return Progress.FAILED
        self.out.append("{}" if self._arguments is None else "")
        self._state = "end"
        return Progress.MORE if self._end else Progress.DONE

    def _at_end(self, char: str) -> Progress:
        if not self._tail and char.isspace():
            return Progress.MORE
        tail = self._tail + char
        if tail == self._end:
            return Progress.DONE
        if not self._end.startswith(tail):
            return Progress.FAILED
        self._tail = tail
        return Progress.MORE


class SeveralReader:
    """Calls in a row, such as `[{..}, {..}]` or `{..}; {..}`.

    Args:
        make: makes a reader for the next of them.
        end: what ends them; empty if nothing does.
    """

    def __init__(self, make: Callable[[], CallReader], end: str = "") -> None:
        self._make = make
        self._end = end
        self._one: CallReader | None = make()
        self.out = self._one.out

    def feed(self, char: str) -> Progress:
        """Take a character; see `CallReader`."""
        if self._one is None:
            if char == self._end:
                return Progress.DONE
            if char != "{":
                return Progress.MORE if char.isspace() or char in ",;" else Progress.FAILED
            self._one = self._make()
            self._one.out = self.out
        progress = self._one.feed(char)
        if progress is not Progress.DONE:
            return progress
        self._one = None
        return Progress.MORE


class NamedReader:
    """A name, something between, a JSON object, and an end: `name<sep>{...}<end>`.

    Args:
        between: a pattern of what stands between the name and the arguments.
        ends: what may follow the arguments, without blanks; none for nothing.
        prefix: a pattern of what stands in front of the name.
    """

    def __init__(self, between: str, ends: Series[str] = (), prefix: str = "") -> None:
        self.out: list[tuple[str] | str] = []
        self._head = re.compile(rf"\s*{prefix}([A-Za-z0-9_.\-]+)\s*{between}\s*")
        self._ends = ends
        self._text = ""
        self._value: JsonEnd | None = None
        self._tail: str | None = None

    def feed(self, char: str) -> Progress:
        """Take a character; see `CallReader`."""
        if self._tail is not None:
            return self._at_end(char)
        if self._value is not None:
            self.out.append(char)
            if self._value.feed(char):
                self._tail = ""
                return Progress.MORE if self._ends else Progress.DONE
            return Progress.MORE
        if char == "{":
            head = self._head.fullmatch(self._text)
            if head is None:
                return Progress.FAILED
            self.out += [(head[1],), char]
            self._value = JsonEnd()
            self._value.feed(char)
            return Progress.MORE
        self._text += char
        return Progress.FAILED if len(self._text) > LONGEST_HEAD else Progress.MORE

    def _at_end(self, char: str) -> Progress:
        if char.isspace():
            return Progress.MORE
        self._tail = (self._tail or "") + char
        if self._tail in self._ends:
            return Progress.DONE
        going = any(end.startswith(self._tail) for end in self._ends)
        return Progress.MORE if going else Progress.FAILED


class XmlReader:
    """Qwen3-Coder's calls: `<function=name><parameter=key>value</parameter></function>`.

    Args:
        tools: tell which parameters are texts; others are read as JSON.
        end: what follows `</function>`, blanks left out; empty for nothing.
    """

    def __init__(self, tools: Series[Tool], end: str = "") -> None:
        self.out: list[tuple[str] | str] = []
        self._schemas = {tool["name"]: tool.get("parameters") or {} for tool in tools}
        self._end = end
        self._name = ""
        self._buffer = ""
        self._state = "function"
        self._count = 0
        self._text: bool = False
        self._written = 0

    def feed(self, char: str) -> Progress:
        """Take a character; see `CallReader`."""
        self._buffer += char
        match self._state:
            case "function":
                return self._tag(r"<function=([^>\s]+)>", "<function=", self._begin)
            case "parameter":
                if self._buffer.strip() == "</function>":
                    self.out.append("}" if self._count else "{}")
                    self._state, self._buffer = "end", ""
                    return Progress.DONE if not self._end else Progress.MORE
                if "</function>".startswith(self._buffer.strip()):
                    return Progress.MORE
                return self._tag(r"<parameter=([^>\s]+)>", "<parameter=", self._open)
            case "value":
                return self._in_value()
        rest = self._buffer.strip()
        if rest == self._end:
            return Progress.DONE
        return Progress.MORE if self._end.startswith(rest) else Progress.FAILED

    def _tag(self, pattern: str, start: str, then: Any) -> Progress:
        text = self._buffer.strip()
        found = re.fullmatch(pattern, text)
        if found:
            self._buffer = ""
            then(found[1])
            return Progress.MORE
        known = start.startswith(text) or (text.startswith(start) and ">" not in text)
        return Progress.MORE if known else Progress.FAILED

    def _begin(self, name: str) -> None:
        self._name, self._state = name, "parameter"
        self.out.append((name,))

    def _open(self, key: str) -> None:
        self.out.append(("{" if not self._count else ", ") + json.dumps(key) + ": ")
        self._count += 1
        schema = self._schemas.get(self._name, {}).get("properties", {}).get(key, {})
        self._text = _is_text(schema)
        self._state, self._written = "value", 0
        if self._text:
            self.out.append('"')

    def _in_value(self) -> Progress:
        """A value up to its end tag; one line break on either side belongs to the tags."""
        end = "</parameter>"
        value = self._buffer.removeprefix("\n")
        if self._buffer.endswith(end):
            value = value[: -len(end)].removesuffix("\n")
            if self._text:
                self.out.append(_escaped(value[self._written :]) + '"')
            else:
                self.out.append(_as_json(value))
            self._state, self._buffer = "parameter", ""
        elif self._text:
            # What may belong to the end tag waits, with the line break in front of it.
            safe = max(self._written, len(value) - len(end) - 1)
            self.out.append(_escaped(value[self._written : safe]))
            self._written = safe
        return Progress.MORE


def _is_text(schema: Mapping[str, Any]) -> bool:
    kind = schema.get("type")
    return kind == "string" or (kind is None and not schema) or ("enum" in schema and kind is None)


def _escaped(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _as_json(text: str) -> str:
    try:
        json.loads(text)
    except ValueError:
        return json.dumps(text.strip(), ensure_ascii=False)
    return text.strip()
