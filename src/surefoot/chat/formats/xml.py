"""Qwen3-Coder's calls: `<function=name><parameter=key>value</parameter></function>`."""

import json
import re
from collections.abc import Callable
from collections.abc import Sequence as Series

from surefoot.chat.formats.base import Tool
from surefoot.chat.formats.calls import Progress
from surefoot.chat.formats.values import Parameters

END_OF_VALUE = "</parameter>"


class XmlReader:
    """Reads such a call, and writes its arguments as JSON; see `CallReader`.

    Args:
        tools: tell which parameters are texts; others are read as JSON.
        end: what follows `</function>`, blanks left out; empty for nothing.
    """

    def __init__(self, tools: Series[Tool], end: str = "") -> None:
        self.out: list[tuple[str] | str] = []
        self._tools = tools
        self._end = end
        self._state = "function"
        self._held = ""
        self._parameters = Parameters(None)
        self._count = 0
        self._key = ""
        self._fresh = False
        self._value: list[str] | None = None  # of a value that is no text, until its end

    def feed(self, char: str) -> Progress:
        """Take a character; see `CallReader`."""
        self._held += char
        match self._state:
            case "function":
                return self._tag("<function=", self._begin)
            case "parameter":
                if "</function>".startswith(self._held.strip()):
                    return self._close() if self._held.strip() == "</function>" else Progress.MORE
                return self._tag("<parameter=", self._open)
            case "value":
                self._in_value(char)
                return Progress.MORE
        rest = self._held.strip()
        if rest == self._end:
            return Progress.DONE
        return Progress.MORE if self._end.startswith(rest) else Progress.FAILED

    @property
    def whole(self) -> bool:
        """Whether the call has been closed."""
        return self._state == "end"

    def _tag(self, start: str, then: Callable[[str], None]) -> Progress:
        text = self._held.strip()
        found = re.fullmatch(re.escape(start) + r"([^>\s]+)>", text)
        if found:
            self._held = ""
            then(found[1])
            return Progress.MORE
        known = start.startswith(text) or (text.startswith(start) and ">" not in text)
        return Progress.MORE if known else Progress.FAILED

    def _begin(self, name: str) -> None:
        self._state = "parameter"
        for tool in self._tools:
            if tool["name"] == name:
                self._parameters = Parameters(tool.get("parameters"))
        self.out.append((name,))

    def _open(self, key: str) -> None:
        self._state, self._key, self._fresh = "value", key, True
        self._value = None if self._parameters.takes_text(key) else []
        self.out.append(("{" if not self._count else ", ") + json.dumps(key) + ": ")
        self._count += 1
        if self._value is None:
            self.out.append('"')

    def _in_value(self, char: str) -> None:
        """A value up to its end tag; one line break on either side belongs to the tags."""
        if self._fresh:
            self._fresh = False
            if char == "\n":
                self._held = ""
                return
        if self._held.endswith(END_OF_VALUE):
            self._pass_on(self._held[: -len(END_OF_VALUE)].removesuffix("\n"))
            if self._value is None:
                self.out.append('"')
            else:
                self.out.append(self._parameters.json(self._key, "".join(self._value)))
            self._state, self._held = "parameter", ""
        elif len(self._held) > len(END_OF_VALUE):
            # What may belong to the end tag waits, with the line break in front of it.
            self._pass_on(self._held[0])
            self._held = self._held[1:]

    def _pass_on(self, text: str) -> None:
        if self._value is None:
            self.out.append(json.dumps(text, ensure_ascii=False)[1:-1])
        else:
            self._value.append(text)

    def _close(self) -> Progress:
        self.out.append("}" if self._count else "{}")
        self._state, self._held = "end", ""
        return Progress.MORE if self._end else Progress.DONE
