"""Gemma's calls: `call:name{key:<escape>text<escape>,other:1}<end_function_call>`.

So FunctionGemma's template has it; Gemma 4's has other tags. Gemma 3's template has no calls.
"""

import json
import re

from surefoot.chat.formats.calls import LONGEST_HEAD, Progress
from surefoot.chat.formats.scanning import JsonEnd, json_string, json_value

_HEAD = re.compile(r"\s*call:\s*([^{\s]+)\s*")

_CLOSING = {"{": "}", "[": "]"}


class GemmaReader:
    """Reads such a call, and writes its arguments as JSON; see `CallReader`.

    Args:
        quote: the tag on either side of a text.
        end: the tag behind the call.
    """

    def __init__(self, quote: str = "<escape>", end: str = "<end_function_call>") -> None:
        self.out: list[tuple[str] | str] = []
        self._quote = quote
        self._end = end
        self._state = "head"
        self._held = ""
        self._open: list[str] = []  # the brackets that are open
        self._behind = ""  # what follows the text at hand: a colon, or what follows a value
        self._may_close = False
        self._json = JsonEnd()

    def feed(self, char: str) -> Progress:
        """Take a character; see `CallReader`."""
        match self._state:
            case "head":
                return self._in_head(char)
            case "text":
                return self._in_text(char)
            case "json":
                return self._in_json(char)
            case "end":
                return self._at_end(char)
        if char.isspace() and not self._held:
            return Progress.MORE
        match self._state:
            case "key":
                return self._in_key(char)
            case "value":
                return self._in_value(char)
            case "colon":
                return self._colon(char)
        return self._after(char)

    @property
    def whole(self) -> bool:
        """Whether the arguments are complete."""
        return self._state == "end"

    def _in_head(self, char: str) -> Progress:
        if char == "{":
            head = _HEAD.fullmatch(self._held)
            if head is None:
                return Progress.FAILED
            self.out.append((head[1],))
            self._held = ""
            return self._begin(char)
        self._held += char
        start = self._held.lstrip()[: len("call:")]
        known = "call:".startswith(start) and len(self._held) <= LONGEST_HEAD
        return Progress.MORE if known else Progress.FAILED

    def _begin(self, bracket: str) -> Progress:
        self._open.append(bracket)
        self._state, self._may_close = ("key" if bracket == "{" else "value"), True
        self.out.append(bracket)
        return Progress.MORE

    def _in_key(self, char: str) -> Progress:
        if char == ":" and self._held:
            self.out.append(json.dumps(self._held.strip(), ensure_ascii=False))
            self._held = ""
            return self._colon(char)
        if char == "}" and not self._held and self._may_close:
            return self._after(char)
        return self._word(char, "colon")

    def _colon(self, char: str) -> Progress:
        if char != ":":
            return Progress.FAILED
        self.out.append(": ")
        self._state, self._may_close = "value", False
        return Progress.MORE

    def _in_value(self, char: str) -> Progress:
        if self._held and char in (",", _CLOSING[self._open[-1]]):
            self.out.append(_scalar(self._held.strip()))
            self._held = ""
            return self._after(char)
        if char in _CLOSING and not self._held:
            return self._begin(char)
        if char == "]" and not self._held and self._may_close:
            return self._after(char)
        return self._word(char, "after")

    def _word(self, char: str, behind: str) -> Progress:
        """More of a text without tags, unless it turns out to be the tag of one."""
        if char in "{}[],":
            return Progress.FAILED
        self._behind = behind
        if char == '"' and not self._held:
            self._state, self._json = "json", JsonEnd()
            self._json.feed(char)
            return Progress.MORE
        self._held += char
        if self._held == self._quote:
            self.out.append('"')
            self._state, self._held = "text", ""
        return Progress.MORE

    def _in_text(self, char: str) -> Progress:
        self._held += char
        if self._held == self._quote:
            self.out.append('"')
            self._state, self._held = self._behind, ""
        while not self._quote.startswith(self._held):
            self.out.append(json.dumps(self._held[0], ensure_ascii=False)[1:-1])
            self._held = self._held[1:]
        return Progress.MORE

    def _in_json(self, char: str) -> Progress:
        if self._json.feed(char):
            if json_string(self._json.text) is None:
                return Progress.FAILED
            self.out.append(self._json.text)
            self._state = self._behind
        return Progress.MORE

    def _after(self, char: str) -> Progress:
        """What follows a value, or an opening bracket: a further one, or the closing bracket."""
        if char == ",":
            self.out.append(", ")
            self._state = "key" if self._open[-1] == "{" else "value"
            self._may_close = False
            return Progress.MORE
        if char != _CLOSING[self._open[-1]]:
            return Progress.FAILED
        self._open.pop()
        self.out.append(char)
        self._state = "after" if self._open else "end"
        return Progress.MORE

    def _at_end(self, char: str) -> Progress:
        held = (self._held + char).lstrip()
        if held == self._end:
            return Progress.DONE
        if not self._end.startswith(held):
            return Progress.FAILED
        self._held = held
        return Progress.MORE


def _scalar(word: str) -> str:
    """A number, a word of JSON, or a text without its tags."""
    try:
        json_value(word)
    except ValueError:
        return json.dumps(word, ensure_ascii=False)
    return word
