"""Grammars of calls compile, take a right call and refuse a wrong one."""

from collections.abc import Iterator
from typing import Any

import pytest

from surefoot import models
from surefoot.chat.formats import FORMATS, CallArguments, CallStart
from surefoot.constraints import Controls, ControlSpec, Grammar
from surefoot.engine.vocabulary import controls_for
from surefoot.runtime.libllama import LibllamaRuntime, LoadSettings, load
from tests.chat.test_formats import DS_CALL, DS_END, DS_OLD, DS_SECTION

TOOLS: list[dict[str, Any]] = [
    {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
    {"name": "now"},
]
SCHEMAS: dict[str, tuple[dict[str, Any], str, str]] = {
    "definitions": (
        {
            "properties": {"at": {"$ref": "#/$defs/Point"}},
            "$defs": {"Point": {"type": "object", "properties": {"x": {"type": "integer"}}}},
        },
        '{"x": 1}',
        '{"x": "a"}',
    ),
    "options": ({"properties": {"at": {"enum": ["red", "größer"]}}}, "größer", "blue"),
    "options in definitions": (
        {
            "properties": {"at": {"$ref": "#/$defs/Word"}},
            "$defs": {"Word": {"type": "string", "enum": ["red", "5"]}},
        },
        "5",
        "6",
    ),
    "options of two kinds": ({"properties": {"at": {"enum": ["red", 5]}}}, "5", "6"),
    "text or null": ({"properties": {"at": {"type": ["string", "null"]}}}, "null", "5"),
}
HEAD = "<tool_call>\n<function=get_weather>\n<parameter=city>\n"
CALLS: list[tuple[str, str, str]] = [
    (
        "hermes",
        '<tool_call>\n{"name": "get_weather", "arguments": {"city": "P"}}\n</tool_call>',
        '<tool_call>\n{"name": "get_weather", "arguments": {"town": "P"}}\n</tool_call>',
    ),
    (
        "hermes",
        '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>',
        '<tool_call>\n{"name": "then", "arguments": {}}\n</tool_call>',
    ),
    (
        "hermes",
        '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>',
        '<tool_call>\n{"name": "now", "arguments": {"zone": "CET"}}\n</tool_call>',
    ),
    ("mistral", "[TOOL_CALLS]now[ARGS]{}", '[TOOL_CALLS]now[ARGS]{"a": 1}'),
    (
        "harmony",
        " to=functions.now<|channel|>commentary <|constrain|>json<|message|>{}<|call|>",
        ' to=functions.now<|channel|>commentary <|constrain|>json<|message|>{"a": 1}<|call|>',
    ),
    (
        "qwen3-coder",
        HEAD + "a < b, </p>\n</parameter>\n<parameter=days>\n2\n</parameter>\n</function>\n"
        "</tool_call>",
        HEAD + "P\n</parameter>\n<parameter=days>\nmany\n</parameter>\n</function>\n</tool_call>",
    ),
    (
        "llama3",
        '<|python_tag|>{"name": "get_weather", "parameters": {"city": "P"}}',
        '<|python_tag|>{"name": "get_weather", "parameters": {}}',
    ),
    ("mistral", '[TOOL_CALLS]get_weather[ARGS]{"city": "P"}', "[TOOL_CALLS]get_weather[ARGS]{}"),
    (
        "mistral",
        '[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "P"}}]',
        '[TOOL_CALLS] [{"name": "get_weather", "arguments": {}}]',
    ),
    (
        "harmony",
        ' to=functions.get_weather<|channel|>commentary <|constrain|>json<|message|>{"city": "P"}'
        "<|call|>",
        " to=functions.get_weather<|channel|>commentary <|constrain|>json<|message|>{}<|call|>",
    ),
    (
        "harmony",
        ' to=functions.get_weather <|constrain|>json<|message|>{"city": "P", "days": 1}<|call|>',
        ' to=functions.get_weather <|constrain|>json<|message|>{"city": "P", "days": "a"}<|call|>',
    ),
    ("deepseek", f'{DS_CALL}{{"city": "P"}}{DS_END}', f"{DS_CALL}{{}}{DS_END}"),
    ("deepseek", f'{DS_OLD}{{"city": "P"}}\n```{DS_END}', f"{DS_OLD}{{}}\n```{DS_END}"),
]


@pytest.fixture(scope="module")
def runtime() -> Iterator[LibllamaRuntime]:
    with load(LoadSettings(models.TARGET, context_length=64, threads=1)) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def controls(runtime: LibllamaRuntime) -> Controls:
    return controls_for(runtime)


@pytest.mark.parametrize(("name", "right", "wrong"), CALLS)
def test_a_right_call_is_taken_and_read_and_a_wrong_one_is_not(
    runtime: LibllamaRuntime, controls: Controls, name: str, right: str, wrong: str
) -> None:
    rules = FORMATS[name].rules(TOOLS, lambda _: None)
    assert rules is not None
    assert right.startswith(rules.triggers)
    spec = ControlSpec(Grammar("lark", rules.grammar))
    encode = runtime.tokenizer.encode
    for text, taken in ((right, True), (wrong, False)):
        tokens = encode(text, special=False)
        assert (controls.control(spec).permitted(tokens) == len(tokens)) is taken, text
    parser = FORMATS[name].parser(TOOLS, reasoning=True, opened=False, calls=True)
    events = [*parser.feed(right), *parser.finish()]
    assert isinstance(events[0], CallStart)
    assert events[0].name in ("get_weather", "now")
    assert all(isinstance(event, CallArguments) for event in events[1:])


def test_an_empty_schema_allows_any_arguments(runtime: LibllamaRuntime, controls: Controls) -> None:
    rules = FORMATS["mistral"].rules([{"name": "f", "parameters": {}}], lambda _: None)
    assert rules is not None
    control = controls.control(ControlSpec(Grammar("lark", rules.grammar)))
    tokens = runtime.tokenizer.encode('[TOOL_CALLS]f[ARGS]{"a": 1}', special=False)
    assert control.permitted(tokens) == len(tokens)


@pytest.mark.parametrize("schema", sorted(SCHEMAS))
def test_a_parameter_in_xml_is_held_to_its_schema_and_read_by_it(
    runtime: LibllamaRuntime, controls: Controls, schema: str
) -> None:
    parameters, right, wrong = SCHEMAS[schema]
    tool = {"name": "größe_\U0001f600", "parameters": parameters}
    rules = FORMATS["qwen3-coder"].rules([tool], lambda _: None)
    assert rules is not None
    spec = ControlSpec(Grammar("lark", rules.grammar))
    for value, taken in ((right, True), (wrong, False)):
        text = (
            f"<tool_call>\n<function={tool['name']}>\n<parameter=at>\n{value}\n</parameter>\n"
            "</function>\n</tool_call>"
        )
        tokens = runtime.tokenizer.encode(text, special=False)
        assert (controls.control(spec).permitted(tokens) == len(tokens)) is taken, text


@pytest.mark.parametrize(
    "name", ["hermes", "qwen3-coder", "llama3", "mistral", "deepseek", "harmony"]
)
@pytest.mark.parametrize(
    "parameters",
    [None, {}, {"properties": {"a": True, "b": False, "c": {}}}, *(s[0] for s in SCHEMAS.values())],
)
def test_every_schema_makes_a_grammar_that_compiles(
    controls: Controls, name: str, parameters: dict[str, Any] | None
) -> None:
    tool = {"name": 'odd "name"', "parameters": parameters}
    rules = FORMATS[name].rules([tool, {"name": "g"}], lambda _: None)
    assert rules is not None
    controls.control(ControlSpec(Grammar("lark", rules.grammar)))


@pytest.mark.parametrize(
    ("name", "head"),
    [
        ("harmony", "<|start|>assistant<|channel|>commentary"),
        ("harmony", "<|channel|>commentary"),
        ("harmony", "<|start|>assistant"),
        ("deepseek", DS_SECTION),
    ],
)
def test_where_a_call_must_come_what_stands_in_front_of_it_may_come_too(
    runtime: LibllamaRuntime, controls: Controls, name: str, head: str
) -> None:
    rules = FORMATS[name].rules(TOOLS, lambda _: None)
    assert rules is not None
    call = next(right for format_, right, _ in CALLS if format_ == name)
    tokens = runtime.tokenizer.encode(head + call, special=False)
    control = controls.control(ControlSpec(Grammar("lark", rules.grammar)))
    assert control.permitted(tokens) == len(tokens)


def test_special_tokens_within_a_call_are_taken_as_tokens(
    runtime: LibllamaRuntime, controls: Controls
) -> None:
    """Harmony's tags are special; two of this vocabulary's stand for two of them."""
    encode = runtime.tokenizer.encode
    ends = encode("<|im_start|><think>")
    assert len(ends) == 2
    rules = FORMATS["harmony"].rules(
        TOOLS, dict(zip(("<|message|>", "<|call|>"), ends, strict=True)).get
    )
    assert rules is not None
    arguments = encode('{"city": "P"}', special=False)
    tokens = [
        *encode(" to=functions.get_weather<|constrain|>json", special=False),
        *(ends[0], *arguments, ends[1]),
    ]
    spec = ControlSpec(Grammar("lark", rules.grammar))
    assert controls.control(spec).permitted(tokens) == len(tokens)
    tokens[-1] = ends[0]
    assert controls.control(spec).permitted(tokens) == len(tokens) - 1


def test_a_special_tag_is_named_by_its_token() -> None:
    rules = FORMATS["hermes"].rules(TOOLS, {"<tool_call>": 7, "</tool_call>": 8}.get)
    assert rules is not None
    assert "<[7]>" in rules.grammar
    assert "<[8]>" in rules.grammar


@pytest.mark.parametrize("name", ["gemma", "gemma4", "none"])
def test_formats_without_rules_say_so(name: str) -> None:
    assert FORMATS[name].rules(TOOLS, lambda _: None) is None
