"""Tools of the parsers: finding tags in a stream, and the end of a JSON value."""

import json
from collections.abc import Sequence as Series
from typing import Any


class TagScanner:
    """Finds tags in a text that comes in pieces, and holds back what may become one."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, text: str, tags: Series[str]) -> tuple[str, str | None, str]:
        """Look for the first of some tags.

        Args:
            text: the next piece.
            tags: what to look for; may be others at each call.

        Returns:
            The text in front of the tag, the tag, and what is behind it; or the text that is
            certain to be none, None, and nothing.
        """
        text = self._held + text
        self._held = ""
        hits = [(at, -len(tag), tag) for tag in tags if (at := text.find(tag)) >= 0]
        if hits:
            at, _, tag = min(hits)
            if not any(longer != tag and longer.startswith(text[at:]) for longer in tags):
                return text[:at], tag, text[at + len(tag) :]
            self._held = text[at:]
            return text[:at], None, ""
        held = max((_overlap(text, tag) for tag in tags), default=0)
        self._held = text[len(text) - held :]
        return text[: len(text) - held], None, ""

    def rest(self) -> str:
        """What has been held back."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, tag: str) -> int:
    for length in range(min(len(text), len(tag) - 1), 0, -1):
        if text.endswith(tag[:length]):
            return length
    return 0


class JsonEnd:
    """Finds where a JSON value ends, character by character. It does not check the value.

    Attributes:
        first: the value's first character; empty before there is one.
    """

    def __init__(self) -> None:
        self.first = ""
        self._parts: list[str] = []
        self._depth = 0
        self._string = False
        self._escaped = False

    def feed(self, char: str) -> bool:
        """Take a character; True if it was the last of an object, a list or a string."""
        self.first = self.first or char
        self._parts.append(char)
        if self._string:
            if self._escaped:
                self._escaped = False
            elif char == "\\":
                self._escaped = True
            elif char == '"':
                self._string = False
                return self._depth == 0
            return False
        if char == '"':
            self._string = True
        elif char in "{[":
            self._depth += 1
        elif char in "}]":
            self._depth -= 1
            return self._depth <= 0
        return False

    @property
    def text(self) -> str:
        """The value so far."""
        return "".join(self._parts)

    @property
    def scalar(self) -> bool:
        """Whether it is a number or a word so far, whose end only the next character tells."""
        return bool(self.first) and self.first not in '{["'


def json_value(text: str) -> Any:
    """What a JSON text says.

    Raises:
        ValueError: it is no JSON, or nested too deeply.
    """
    try:
        return json.loads(text, parse_constant=_refuse)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def json_string(text: str) -> str | None:
    """The string that a JSON text says; None if it says something else, or is no JSON."""
    try:
        value = json_value(text)
    except ValueError:
        return None
    return value if isinstance(value, str) else None


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is no JSON")


def arguments_text(raw: str) -> str:
    """A value as the text of a call's arguments: JSON within a string is taken out of it, and
    nothing at all is no arguments."""
    inner = json_string(raw)
    text = raw if inner is None else inner.strip()
    return "{}" if text in ("", "null") else text
