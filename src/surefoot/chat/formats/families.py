"""The formats of model families, by the name that `--tool-format` takes."""

import json
import re
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Series
from dataclasses import dataclass
from typing import Any

from surefoot.chat.formats.base import CallRules, Format, Parser, SpecialToken, Tags, Tool
from surefoot.chat.formats.calls import (
    CallReader,
    NamedReader,
    ObjectReader,
    SeveralReader,
)
from surefoot.chat.formats.gemma import GemmaReader
from surefoot.chat.formats.harmony import Harmony
from surefoot.chat.formats.lark import SPACING, schema_of, terminal
from surefoot.chat.formats.mistral import MistralReader
from surefoot.chat.formats.tagged import THINK, TaggedParser
from surefoot.chat.formats.values import Parameters, Schema
from surefoot.chat.formats.xml import XmlReader

MakeReader = Callable[[Series[Tool], str], CallReader]
WriteRules = Callable[[Tool, SpecialToken], str]


@dataclass(frozen=True, slots=True)
class TaggedFormat:
    """A format in which tags stand around reasoning and calls; see `Format`.

    Attributes:
        name: its name.
        triggers: what begins a call.
        reader: reads calls behind a trigger.
        write: the grammar of one call of a function, its trigger not included.
        reasoning: the tags around reasoning.
        markup: special tokens whose text the parser has to see.
        closings: tags that are left out.
        at_start: triggers that count at the beginning only, and are part of the call.
        section: what may stand in front of the first call, where one must come.
    """

    name: str
    triggers: tuple[str, ...] = ()
    reader: MakeReader = lambda tools, trigger: ObjectReader()  # noqa: ARG005
    write: WriteRules | None = None
    reasoning: Tags | None = THINK
    markup: tuple[str, ...] = ()
    closings: tuple[str, ...] = ()
    at_start: tuple[str, ...] = ()
    section: str = ""

    def parser(
        self,
        tools: Series[Tool],
        *,
        reasoning: bool,
        opened: bool,
        calls: bool,
        bound: bool = False,
    ) -> Parser:
        """A parser for one answer; see `Format`."""
        return TaggedParser(
            self.reasoning if reasoning else None,
            opened=opened,
            triggers=self.triggers if calls else (),
            reader=lambda trigger: self.reader(tools, trigger),
            closings=self.closings,
            at_start=self.at_start if calls else (),
            bound=bound,
        )

    def rules(self, tools: Series[Tool], special: SpecialToken) -> CallRules | None:
        """How calls are written; see `Format`."""
        if self.write is None:
            return None
        trigger = self.triggers[0]
        calls = " | ".join(f"call_{index}" for index in range(len(tools)))
        section = f"{terminal(self.section, special)}? " if self.section else ""
        lines = [f"start: {section}{terminal(trigger, special)} ({calls})"]
        lines += [f"call_{index}: {self.write(tool, special)}" for index, tool in enumerate(tools)]
        if any(" value" in line for line in lines):
            lines.append(_VALUE)
        return CallRules((trigger,), "\n".join(lines))


_VALUE = 'value[suffix="\\n</parameter>\\n"]: /(?s:.*)/'
"""Any text up to its end tag."""


def _object(key: str, before: str = "", after: str = "") -> WriteRules:
    """A JSON object with name and arguments."""

    def write(tool: Tool, special: SpecialToken) -> str:
        head = f'{before}{{"name": {json.dumps(tool["name"])}, "{key}": '
        parts = [json.dumps(head), schema_of(tool), json.dumps("}")]
        if after:
            parts += ["/\\n?/", terminal(after, special)]
        return " ".join(parts)

    return write


def _xml(tool: Tool, special: SpecialToken) -> str:
    """Qwen3-Coder's call: texts run up to their end tag, other values are JSON."""
    parameters = Parameters(tool.get("parameters"))
    parts = [json.dumps(f"\n<function={tool['name']}>\n")]
    for key, schema in parameters.schemas.items():
        if schema is False:
            continue
        options = parameters.options(key)
        inner, end = "value", ""
        if not parameters.takes_text(key):
            inner = "%json " + json.dumps({**_mapping(schema), "x-guidance": SPACING})
        elif options is not None:
            inner = "(" + " | ".join(json.dumps(option) for option in options) + ")"
        if inner != "value":
            end = json.dumps("\n</parameter>\n")
        one = f"{json.dumps(f'<parameter={key}>' + chr(10))} {inner} {end}"
        parts.append(one if key in parameters.required else f"({one})?")
    parts += [json.dumps("</function>\n"), terminal("</tool_call>", special)]
    return " ".join(parts)


def _mapping(schema: Schema) -> Mapping[str, Any]:
    return {} if isinstance(schema, bool) else schema


def _mistral(tool: Tool, special: SpecialToken) -> str:
    """A name and its arguments, or a list with an object, as older models have it."""
    named = f"{json.dumps(tool['name'])} {terminal('[ARGS]', special)}? {schema_of(tool)}"
    return f'{named} | /\\s?/ "[" {_object("arguments")(tool, special)} "]"'


def _deepseek_call(tool: Tool, special: SpecialToken) -> str:
    """A name and its arguments, or what older models put around them."""
    separator, end = terminal(_SEPARATOR, special), terminal(_CALL_END, special)
    name = json.dumps(tool["name"])
    old = f'"function" {separator} {name} "\\n```json\\n" {schema_of(tool)} "\\n```" {end}'
    return f"{name} {separator} {schema_of(tool)} {end} | {old}"


def _deepseek(name: str) -> str:
    """DeepSeek's special tokens have wide bars and blanks of their own in their texts."""
    bar, blank = chr(0xFF5C), chr(0x2581)
    return f"<{bar}{name.replace(' ', blank)}{bar}>"


_CALL_BEGIN, _CALL_END = _deepseek("tool call begin"), _deepseek("tool call end")
_CALLS_BEGIN, _CALLS_END = _deepseek("tool calls begin"), _deepseek("tool calls end")
_SEPARATOR = _deepseek("tool sep")

FORMATS: dict[str, Format] = {
    format_.name: format_
    for format_ in (
        TaggedFormat(
            "hermes",
            ("<tool_call>",),
            lambda _tools, _trigger: ObjectReader("</tool_call>"),
            _object("arguments", before="\n", after="</tool_call>"),
            markup=("<tool_call>", "</tool_call>", "<think>", "</think>"),
        ),
        TaggedFormat(
            "qwen3-coder",
            ("<tool_call>", "<function="),
            lambda tools, trigger: _xml_reader(tools, trigger),
            _xml,
            markup=("<tool_call>", "</tool_call>", "<think>", "</think>"),
            closings=("</tool_call>",),
        ),
        TaggedFormat(
            "llama3",
            ("<|python_tag|>",),
            lambda tools, trigger: _llama_reader(tools, trigger),
            _object("parameters"),
            reasoning=None,
            markup=("<|python_tag|>",),
            at_start=('{"name":', '{"type":"function"'),
        ),
        TaggedFormat(
            "mistral",
            ("[TOOL_CALLS]",),
            lambda _tools, _trigger: MistralReader(),
            _mistral,
            reasoning=Tags("[THINK]", "[/THINK]"),
            markup=("[TOOL_CALLS]", "[CALL_ID]", "[ARGS]", "[THINK]", "[/THINK]"),
        ),
        TaggedFormat(
            "gemma",
            ("<start_function_call>",),
            lambda _tools, _trigger: GemmaReader(),
            None,
            reasoning=None,
            markup=("<start_function_call>", "<end_function_call>", "<escape>"),
        ),
        TaggedFormat(
            "gemma4",
            ("<|tool_call>",),
            lambda _tools, _trigger: GemmaReader('<|"|>', "<tool_call|>"),
            None,
            reasoning=Tags("<|channel>thought", "<channel|>"),
            markup=("<|tool_call>", "<tool_call|>", '<|"|>', "<|channel>", "<channel|>"),
        ),
        TaggedFormat(
            "deepseek",
            (_CALL_BEGIN,),
            lambda _tools, _trigger: NamedReader(
                rf"(?:{re.escape(_SEPARATOR)}|```json)?",
                (_CALL_END, f"```{_CALL_END}"),
                prefix=f"(?:function{re.escape(_SEPARATOR)})?",
            ),
            _deepseek_call,
            markup=(
                *(_CALL_BEGIN, _CALL_END, _CALLS_BEGIN, _CALLS_END, _SEPARATOR),
                *("<think>", "</think>"),
            ),
            closings=(_CALLS_BEGIN, _CALLS_END),
            section=_CALLS_BEGIN,
        ),
        Harmony(),
        TaggedFormat("none"),
    )
}
"""All formats."""


def _llama_reader(tools: Series[Tool], trigger: str) -> SeveralReader:
    """Without a tag, only the name of a tool tells a call from an answer in JSON."""
    names = None if trigger else {tool["name"] for tool in tools}
    return SeveralReader(lambda: ObjectReader(names=names))


def _xml_reader(tools: Series[Tool], trigger: str) -> XmlReader:
    if trigger == "<tool_call>":
        return XmlReader(tools, "</tool_call>")
    reader = XmlReader(tools)
    for char in trigger:
        reader.feed(char)
    return reader


MARKERS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("<|channel|>", "<|message|>"), "harmony"),
    (("<function=", "<parameter="), "qwen3-coder"),
    ((_CALL_BEGIN,), "deepseek"),
    ((_CALLS_BEGIN,), "deepseek"),
    (("[TOOL_CALLS]",), "mistral"),
    (("<start_function_call>",), "gemma"),
    (("<|tool_call>call:",), "gemma4"),
    (("<|python_tag|>",), "llama3"),
    (("<tool_call>", "<arg_key>"), "none"),  # GLM's, whose calls are no JSON
    (("<tool_call>",), "hermes"),
    (('"parameters": dictionary',), "llama3"),
)
"""What in a chat template tells its format: texts that are all there, the most telling first."""


def detect_format(template: str | None) -> Format:
    """The format of a chat template; `none`, which has reasoning tags alone, if no marker is in it.

    Args:
        template: Jinja2 source; None if the model has none.
    """
    for marker, name in MARKERS:
        if template is not None and all(text in template for text in marker):
            return FORMATS[name]
    return FORMATS["none"]


def opens_reasoning(prompt: str, tags: Tags | None) -> bool:
    """Whether a rendered prompt has begun the reasoning, so that the answer goes on inside."""
    return tags is not None and prompt.rstrip().endswith(tags.start)
