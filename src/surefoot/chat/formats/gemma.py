"""FunctionGemma's calls: `call:name{key:<escape>text<escape>,other:1}<end_function_call>`."""

import json
import re

from surefoot.chat.formats.calls import Progress

_END = "<end_function_call>"
_ESCAPE = "<escape>"


class GemmaReader:
    """Reads a call as a whole, since its arguments are no JSON; see `CallReader`."""

    def __init__(self) -> None:
        self.out: list[tuple[str] | str] = []
        self._text = ""

    def feed(self, char: str) -> Progress:
        """Take a character; see `CallReader`."""
        text = self._text + char
        head = text.lstrip()[: len("call:")]
        if not "call:".startswith(head):
            return Progress.FAILED
        if not text.endswith(_END):
            self._text = text
            return Progress.MORE
        found = re.fullmatch(r"\s*call:([^{\s]+)\s*(\{.*\})\s*", text[: -len(_END)], re.DOTALL)
        arguments = None if found is None else _json(found[2])
        if found is None or arguments is None:
            return Progress.FAILED
        self.out += [(found[1],), arguments]
        return Progress.DONE


def _json(text: str) -> str | None:
    """The arguments as JSON; None if they can't be read."""
    parts = text.split(_ESCAPE)
    written = ""
    for index, part in enumerate(parts):
        if index % 2:
            written += json.dumps(part, ensure_ascii=False)
        else:
            written += re.sub(r"([{,]\s*)([A-Za-z_][\w.\-]*)(\s*:)", r'\1"\2"\3', part)
    try:
        value = json.loads(written)
    except ValueError:
        return None
    return json.dumps(value, ensure_ascii=False)
