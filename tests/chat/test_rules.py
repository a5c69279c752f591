"""Grammars of calls compile, take a right call and refuse a wrong one."""

from collections.abc import Iterator
from typing import Any

import pytest

from surefoot import models
from surefoot.chat.formats import FORMATS, CallArguments, CallStart
from surefoot.constraints import Controls, ControlSpec, Grammar
from surefoot.engine.vocabulary import controls_for
from surefoot.runtime.libllama import LibllamaRuntime, LoadSettings, load
from tests.chat.test_formats import DS_CALL, DS_END, DS_OLD

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


def test_a_special_tag_is_named_by_its_token() -> None:
    rules = FORMATS["hermes"].rules(TOOLS, {"<tool_call>": 7, "</tool_call>": 8}.get)
    assert rules is not None
    assert "<[7]>" in rules.grammar
    assert "<[8]>" in rules.grammar


@pytest.mark.parametrize("name", ["harmony", "gemma", "none"])
def test_formats_without_rules_say_so(name: str) -> None:
    assert FORMATS[name].rules(TOOLS, lambda _: None) is None
