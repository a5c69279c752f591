"""Pieces of the grammars that calls are held to, in Lark as llguidance takes it."""

import json
from typing import Any

from surefoot.chat.formats.base import SpecialToken, Tool

SPACING = {"whitespace_flexible": True, "whitespace_pattern": r"[ ]?(\r?\n[ \t]{0,40})?"}
"""Blanks in arguments are bounded, as in all JSON that is held to a schema."""


def terminal(text: str, special: SpecialToken) -> str:
    """A text: the special token if it is one."""
    token = special(text)
    return json.dumps(text, ensure_ascii=False) if token is None else f"<[{token}]>"


NO_PARAMETERS = {"type": "object", "properties": {}, "additionalProperties": False}


def schema_of(tool: Tool) -> str:
    """A function's arguments; where no parameters are told, as OpenAI has it, there are none."""
    parameters = tool.get("parameters")
    schema: dict[str, Any] = dict(NO_PARAMETERS if parameters is None else parameters)
    schema.setdefault("type", "object")
    schema["x-guidance"] = SPACING
    return "%json " + json.dumps(schema)
