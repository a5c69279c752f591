"""How model families write reasoning and tool calls: a parser for each, chosen by the template."""

from surefoot.chat.formats.base import (
    CallArguments,
    CallRules,
    CallStart,
    ContentDelta,
    Event,
    Format,
    Parser,
    ReasoningDelta,
    Tags,
    Tool,
)
from surefoot.chat.formats.families import FORMATS, detect_format, opens_reasoning

__all__ = [
    "FORMATS",
    "CallArguments",
    "CallRules",
    "CallStart",
    "ContentDelta",
    "Event",
    "Format",
    "Parser",
    "ReasoningDelta",
    "Tags",
    "Tool",
    "detect_format",
    "opens_reasoning",
]
