"""Readers of single calls, character by character, so that no cut of the text matters."""

import re
from collections.abc import Callable, Collection
from collections.abc import Sequence as Series
from enum import Enum
from typing import Protocol

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

    @property
    def whole(self) -> bool:
        """Whether the arguments of all calls begun so far are complete."""


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

    @property
    def whole(self) -> bool:
        """Whether the object is complete."""
        return self._state == "end"

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
        return Progress.MORE

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

    @property
    def whole(self) -> bool:
        """Whether no call is open."""
        return self._one is None


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

    @property
    def whole(self) -> bool:
        """Whether the arguments are complete."""
        return self._tail is not None

    def _at_end(self, char: str) -> Progress:
        if char.isspace():
            return Progress.MORE
        self._tail = (self._tail or "") + char
        if self._tail in self._ends:
            return Progress.DONE
        going = any(end.startswith(self._tail) for end in self._ends)
        return Progress.MORE if going else Progress.FAILED
