"""Reasoning, content and tool calls come out the same, however the text is cut into pieces."""

import json
from collections.abc import Iterable
from collections.abc import Sequence as Series
from typing import Any

import pytest
from gguf import GGUFReader
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot import models
from surefoot.chat.formats import (
    FORMATS,
    CallArguments,
    CallStart,
    ContentDelta,
    Event,
    ReasoningDelta,
    Tags,
    Tool,
    detect_format,
    opens_reasoning,
)

WEATHER: dict[str, Any] = {
    "name": "get_weather",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city"],
    },
}
TOOLS: list[dict[str, Any]] = [WEATHER, {"name": "f"}, {"name": "g"}]
Answer = tuple[str, str, list[tuple[str, str]]]
"""Reasoning, content, and the calls: names and arguments."""

PARIS = {"city": "Paris", "days": 2}


def json_ends(text: str) -> bool:
    """Whether a text is JSON, and all of it."""
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _ds(name: str) -> str:
    return f"<{chr(0xFF5C)}{name.replace(' ', chr(0x2581))}{chr(0xFF5C)}>"


DS_CALL = f"{_ds('tool call begin')}get_weather{_ds('tool sep')}"
DS_SECTION = _ds("tool calls begin")
DS_OLD = f"{_ds('tool call begin')}function{_ds('tool sep')}get_weather\n```json\n"
DS_END = _ds("tool call end")
FUNCTION = "<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n"

CASES: list[tuple[str, str, Answer]] = [
    ("hermes", "Just text, a < b.", ("", "Just text, a < b.", [])),
    ("hermes", "<think>\nHm.\n</think>\n\nYes.", ("Hm.\n", "Yes.", [])),
    (
        "hermes",
        'Let me see.\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "a }\\" b"}}\n'
        "</tool_call>",
        ("", "Let me see.\n", [("get_weather", '{"city": "a }\\" b"}')]),
    ),
    (
        "hermes",
        '<think>x</think><tool_call>{"arguments": {"city": "P"}, "name": "f"}</tool_call>\n'
        '<tool_call>{"name": "g", "arguments": {}}</tool_call>',
        ("x", "", [("f", '{"city": "P"}'), ("g", "{}")]),
    ),
    (
        "hermes",
        '<tool_call>{"name": "f", "arguments": "{\\"a\\": 1}"}</tool_call>',
        ("", "", [("f", '{"a": 1}')]),
    ),
    ("hermes", "<tool_call>no call</tool_call>", ("", "<tool_call>no call</tool_call>", [])),
    ("hermes", "<tool_call>[1]", ("", "<tool_call>[1]", [])),
    ("hermes", "ends with <tool_c", ("", "ends with <tool_c", [])),
    ("hermes", '<tool_call>{"name": "f", "arguments": {"a": [1,', ("", "", [("f", '{"a": [1,')])),
    ("hermes", '<tool_call>{"name": "', ("", '<tool_call>{"name": "', [])),
    ("hermes", "<think>never ends", ("never ends", "", [])),
    (
        "qwen3-coder",
        f"Go.\n<tool_call>\n{FUNCTION}<parameter=days>\n2\n</parameter>\n</function>\n</tool_call>",
        ("", "Go.\n", [("get_weather", '{"city": "Paris", "days": 2}')]),
    ),
    (
        "qwen3-coder",
        '<tool_call>\n<function=get_weather>\n<parameter=city>\nline "1"\nline < 2\n</parameter>\n'
        "<parameter=days>\nmany\n</parameter>\n</function>\n</tool_call>\n<tool_call><function=f>"
        "</function></tool_call>",
        (
            "",
            "",
            [("get_weather", '{"city": "line \\"1\\"\\nline < 2", "days": "many"}'), ("f", "{}")],
        ),
    ),
    ("qwen3-coder", f"{FUNCTION}</function>", ("", "", [("get_weather", '{"city": "Paris"}')])),
    ("llama3", '{"name": "f", "parameters": {"a": 1}}', ("", "", [("f", '{"a": 1}')])),
    ("llama3", '<|python_tag|>{"name": "f", "parameters": {}}', ("", "", [("f", "{}")])),
    ("llama3", '{"other": 1}', ("", '{"other": 1}', [])),
    ("llama3", "plain", ("", "plain", [])),
    (
        "mistral",
        'Ok.[TOOL_CALLS] [{"name": "f", "arguments": {"a": 1}}, {"name": "g", "arguments": {}}]',
        ("", "Ok.", [("f", '{"a": 1}'), ("g", "{}")]),
    ),
    (
        "mistral",
        '[THINK]hm[/THINK][TOOL_CALLS]f[ARGS]{"a": 1}[TOOL_CALLS]g[ARGS]{}',
        ("hm", "", [("f", '{"a": 1}'), ("g", "{}")]),
    ),
    (
        "harmony",
        "<|channel|>analysis<|message|>Think.<|end|><|start|>assistant<|channel|>commentary "
        'to=functions.get_weather <|constrain|>json<|message|>{"city":"Paris"}<|call|>',
        ("Think.", "", [("get_weather", '{"city":"Paris"}')]),
    ),
    (
        "harmony",
        "<|channel|>analysis<|message|>T<|end|><|start|>assistant<|channel|>final<|message|>Hi!",
        ("T", "Hi!", []),
    ),
    (
        "harmony",
        ' to=functions.f<|channel|>commentary json<|message|>{"a":"<b>"}<|call|><|start|>assistant'
        "<|channel|>commentary to=functions.g <|constrain|>json<|message|><|call|>",
        ("", "", [("f", '{"a":"<b>"}'), ("g", "{}")]),
    ),
    (
        "harmony",
        "<|channel|>commentary<|message|>First.<|end|>\n<|start|>assistant to=functions.f"
        "<|channel|>commentary<|message|>{}<|call|>",
        ("", "First.", [("f", "{}")]),
    ),
    ("harmony", "to be or not", ("", "to be or not", [])),
    ("harmony", " to=nobody", ("", " to=nobody", [])),
    ("harmony", "<|channel|>fin", ("", "", [])),
    (
        "harmony",
        '<|channel|>commentary to=functions.f<|message|>{"a": ',
        ("", "", [("f", '{"a": ')]),
    ),
    (
        "harmony",
        "<|channel|>commentary to=functions.f<|end|>",
        ("", "<|channel|>commentary to=functions.f", []),
    ),
    (
        "gemma",
        "<start_function_call>call:get_weather{city:<escape>Paris, {x}<escape>,days:2}"
        "<end_function_call>",
        ("", "", [("get_weather", '{"city": "Paris, {x}", "days": 2}')]),
    ),
    (
        "gemma",
        '<start_function_call>call:f{a:<escape>x<end_function_call>"\n<escape>,b:[1,[],{}],'
        "c:{d:true,e:{}}, f:[<escape><escape>]}\n<end_function_call>\n<start_function_call>call:g{}"
        "<end_function_call>so",
        (
            "",
            "so",
            [
                (
                    "f",
                    '{"a": "x<end_function_call>\\"\\n", "b": [1, [], {}], '
                    '"c": {"d": true, "e": {}}, "f": [""]}',
                ),
                ("g", "{}"),
            ],
        ),
    ),
    (
        "gemma",
        '<start_function_call>call:f{a:10:30,"b":"x, y",c:None}<end_function_call>',
        ("", "", [("f", '{"a": "10:30", "b": "x, y", "c": "None"}')]),
    ),
    (
        "gemma",
        "<start_function_call>call:f{a:<escape>x<esc",
        ("", "", [("f", '{"a": "x')]),
    ),
    (
        "gemma",
        "<start_function_call>call:f{a:1,}<end_function_call>",
        ("", "}<end_function_call>", [("f", '{"a": 1, ')]),
    ),
    ("gemma", "<start_function_call>call:{}", ("", "<start_function_call>call:{}", [])),
    (
        "gemma4",
        '<|channel>thought\nHm.\n<channel|>Well.<|tool_call>call:f{a:<|"|>x<|"|>,'
        '<|"|>b c<|"|>:-1.5}<tool_call|><|tool_call>call:g{}<tool_call|>',
        ("Hm.\n", "Well.", [("f", '{"a": "x", "b c": -1.5}'), ("g", "{}")]),
    ),
    ("gemma", "<start_function_call>what?", ("", "<start_function_call>what?", [])),
    (
        "deepseek",
        f'<think>a</think>Hi.{_ds("tool calls begin")}{DS_CALL}{{"city": "P"}}{DS_END}'
        f"{DS_CALL}{{}}{DS_END}{_ds('tool calls end')}",
        ("a", "Hi.", [("get_weather", '{"city": "P"}'), ("get_weather", "{}")]),
    ),
    (
        "deepseek",
        f'{_ds("tool calls begin")}{DS_OLD}{{"city": "P"}}\n```{DS_END}{_ds("tool calls end")}',
        ("", "", [("get_weather", '{"city": "P"}')]),
    ),
    ("hermes", "  ", ("", "  ", [])),
    ("hermes", "<think>a</think>\n\n<tool_call>no", ("a", "<tool_call>no", [])),
    ("hermes", '<tool_call>{"name": "f"}</tool_call>', ("", "", [("f", "{}")])),
    ("hermes", '<tool_call>{"name": "f", "arguments": null}</tool_call>', ("", "", [("f", "{}")])),
    ("hermes", '<tool_call>{"name": "f", "arguments": ""}</tool_call>', ("", "", [("f", "{}")])),
    (
        "hermes",
        '<tool_call>{"name": "f", "arguments": {}, "parameters": {}, "arguments": {"a": 1}}'
        "</tool_call>",
        ("", "", [("f", "{}")]),
    ),
    (
        "hermes",
        '<tool_call>{"a\nb": 1}</tool_call>',
        ("", '<tool_call>{"a\nb": 1}</tool_call>', []),
    ),
    ("hermes", '<tool_call>{"\\q": {}}', ("", '<tool_call>{"\\q": {}}', [])),
    ("hermes", '<tool_call>{"name": }', ("", '<tool_call>{"name": }', [])),
    (
        "hermes",
        '<tool_call>{"name": "f", "\\q": {}, "arguments": {"a": 1}}</tool_call>',
        ("", "", [("f", '{"a": 1}')]),
    ),
    (
        "hermes",
        '<tool_call>{"name": "f", "arguments": }</tool_call>',
        ("", ', "arguments": }</tool_call>', [("f", "")]),
    ),
    ("hermes", '<tool_call>{"name": 1}', ("", '<tool_call>{"name": 1}', [])),
    ("hermes", '<tool_call>{"name": ""}', ("", '<tool_call>{"name": ""}', [])),
    (
        "hermes",
        '<tool_call>{"name": "f", "arguments": {"a": "</tool_call>"}}</tool_call>',
        ("", "", [("f", '{"a": "</tool_call>"}')]),
    ),
    (
        "hermes",
        '<tool_call>{"name": "f", "arguments": {}}\n</tool_cup> is lost?',
        ("", "</tool_cup> is lost?", [("f", "{}")]),
    ),
    (
        "hermes",
        '<tool_call>{"name": "größe", "arguments": {"ü": "東京 \U0001f600"}}</tool_call>',
        ("", "", [("größe", '{"ü": "東京 \U0001f600"}')]),
    ),
    (
        "qwen3-coder",
        "<tool_call><function=f>\n<para> and on",
        ("", "<para> and on", [("f", "")]),
    ),
    (
        "llama3",
        '{"name": "f", "parameters": {"a": 1}}; {"name": "g", "parameters": {}}',
        ("", "", [("f", '{"a": 1}'), ("g", "{}")]),
    ),
    (
        "llama3",
        '<|python_tag|>{"name": "f", "parameters": {}}\n{"name": "g", "parameters": {}} so',
        ("", "so", [("f", "{}"), ("g", "{}")]),
    ),
    ("llama3", ' {\n "name" : "f", "parameters": {}}', ("", "", [("f", "{}")])),
    (
        "llama3",
        '{"type": "function", "name": "f", "parameters": {}}',
        ("", "", [("f", "{}")]),
    ),
    ("llama3", '\n{"name": "Ada", "age": 3}', ("", '\n{"name": "Ada", "age": 3}', [])),
    ("llama3", '<|python_tag|>print("a")', ("", '<|python_tag|>print("a")', [])),
    (
        "mistral",
        '[TOOL_CALLS]f[CALL_ID]a1B2c3d4E[ARGS]{"a": 1}[TOOL_CALLS]g[ARGS]{}',
        ("", "", [("f", '{"a": 1}'), ("g", "{}")]),
    ),
    (
        "mistral",
        '[TOOL_CALLS] [{"name": "f", "arguments": {}}, {"town": 1}]',
        ("", ', {"town": 1}]', [("f", "{}")]),
    ),
    ("none", "<think>a</think>\n\nb<tool_call>", ("a", "b<tool_call>", [])),
]


def merged(events: Iterable[Event]) -> Answer:
    reasoning, content = "", ""
    calls: list[tuple[str, str]] = []
    for event in events:
        match event:
            case ReasoningDelta(text):
                reasoning += text
            case ContentDelta(text):
                content += text
            case CallStart(index, name):
                assert index == len(calls)
                calls.append((name, ""))
            case CallArguments(index, text):
                assert index == len(calls) - 1
                calls[index] = (calls[index][0], calls[index][1] + text)
    return reasoning, content, calls


def parsed(
    name: str, pieces: Iterable[str], tools: Series[Tool] = TOOLS, **settings: bool
) -> Answer:
    wanted = {"reasoning": True, "opened": False, "calls": True} | settings
    parser = FORMATS[name].parser(tools, **wanted)
    events = [event for piece in pieces for event in parser.feed(piece)]
    return merged(events + parser.finish())


@pytest.mark.parametrize(("name", "text", "expected"), CASES)
def test_an_answer_is_taken_apart_the_same_for_any_cut(
    name: str, text: str, expected: Answer
) -> None:
    """Case G9."""
    assert parsed(name, [text]) == expected
    for width in range(1, 8):
        pieces = [text[at : at + width] for at in range(0, len(text), width)]
        assert parsed(name, pieces) == expected, width
    for at in range(len(text)):
        assert parsed(name, [text[:at], text[at:]]) == expected, at


WHOLE = [case for case in CASES if case[2][2] and all(json_ends(a) for _, a in case[2][2])]


@pytest.mark.parametrize(("name", "text", "expected"), WHOLE)
def test_a_text_that_ends_inside_a_call_is_told_from_one_that_does_not(
    name: str, text: str, expected: Answer
) -> None:
    lengths = set()
    for at in range(len(text) + 1):
        parser = FORMATS[name].parser(TOOLS, reasoning=True, opened=False, calls=True)
        _, _, calls = merged(parser.feed(text[:at]) + parser.finish())
        if not parser.cut:
            assert calls == expected[2][: len(calls)]
            lengths.add(len(calls))
    assert max(lengths) == len(expected[2])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hermes", '<tool_call>{"name": "f", "arguments": }</tool_call>'),
        ("hermes", '<tool_call>{"name": "f"}</tool_call>\n<tool_call>{"name": "g'),
        ("llama3", '{"name": "f", "parameters": {}}; {"name": "g'),
        ("gemma", "<start_function_call>call:f{a:1,}<end_function_call>"),
        ("qwen3-coder", "<tool_call><function=f>\n<para> and on"),
        ("harmony", "<|channel|>commentary to=functions.f<|message|>{}<|call|> to=functions.g"),
    ],
)
def test_a_call_that_was_broken_off_stays_so(name: str, text: str) -> None:
    parser = FORMATS[name].parser(TOOLS, reasoning=True, opened=False, calls=True)
    assert merged(parser.feed(text) + parser.finish())[2]
    assert parser.cut


FRAGMENTS = st.sampled_from(
    ["<think>", "</think>", "<tool_call>", "</tool_call>", '{"name": "f", "arguments": ', "{}", "}",
     "a", " ", "\n", "<", '"', "[TOOL_CALLS]", "[ARGS]", "f", "<function=f>", "</function>",
     "<parameter=city>", "</parameter>", "<|channel|>", "<|message|>", "final",
     "<|start|>", "<|end|>", "<|call|>", " to=functions.f", "analysis", "[",
     "]", ";", "[CALL_ID]", '{"name": "f"}', "<|python_tag|>",
     DS_CALL, DS_END, "<start_function_call>", "call:f{}", "call:f{a:", "<escape>", ",", ":",
     "<|tool_call>", '<|"|>', "<tool_call|>",
     "<|channel>thought", "<channel|>", "<end_function_call>", "é"]
)  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(
    name=st.sampled_from(sorted(FORMATS)),
    fragments=st.lists(FRAGMENTS, max_size=14),
    cuts=st.lists(st.integers(1, 9), max_size=30),
    opened=st.booleans(),
    reasoning=st.booleans(),
)
def test_any_text_is_taken_apart_the_same_for_any_cut(
    name: str, fragments: list[str], cuts: list[int], opened: bool, reasoning: bool
) -> None:
    text = "".join(fragments)
    pieces, at = [], 0
    for cut in cuts:
        pieces.append(text[at : at + cut])
        at += cut
    pieces.append(text[at:])
    whole = parsed(name, [text], opened=opened, reasoning=reasoning)
    assert parsed(name, pieces, opened=opened, reasoning=reasoning) == whole


LEFT_OUT = {"qwen3-coder": ["</tool_call>"], "deepseek": [DS_SECTION, _ds("tool calls end")]}
"""Tags that belong to no one call and are never shown."""


@settings(max_examples=400, deadline=None)
@given(
    name=st.sampled_from(sorted(FORMATS.keys() - {"harmony"})),
    fragments=st.lists(FRAGMENTS, max_size=8),
)
def test_a_text_without_a_call_is_given_back_word_for_word(name: str, fragments: list[str]) -> None:
    text = "".join(fragments)
    _, content, calls = parsed(name, [text], reasoning=False)
    if not calls:
        for tag in LEFT_OUT.get(name, []):
            text = text.replace(tag, "")
            content = content.replace(tag, "")
        # Blanks beside tags are nobody's.
        assert "".join(content.split()) == "".join(text.split())


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_without_calls_and_reasoning_a_text_without_markup_is_content(name: str) -> None:
    text = 'A text with {"name": 1} and <b>.\n'
    assert parsed(name, [text], reasoning=False, calls=False) == ("", text, [])


def test_tags_stay_where_reasoning_is_not_told_apart() -> None:
    text = "<think>a</think>b"
    assert parsed("hermes", [text], reasoning=False) == ("", text, [])
    thought = "<|channel|>analysis<|message|>a<|end|>"
    answer = "<|start|>assistant<|channel|>final<|message|>b"
    for width in range(1, 9):
        text = thought + answer
        pieces = [text[at : at + width] for at in range(0, len(text), width)]
        assert parsed("harmony", pieces, reasoning=False) == ("", thought + "b", [])


def test_reasoning_that_the_prompt_has_begun() -> None:
    assert parsed("hermes", ["a</think>\n\nb"], opened=True) == ("a", "b", [])
    tags = FORMATS["hermes"].reasoning
    assert opens_reasoning("...assistant\n<think>\n", tags)
    assert not opens_reasoning("...assistant\n<think>\n\n</think>\n\n", tags)


@pytest.mark.parametrize(
    ("marker", "name"),
    [
        ('<tool_call>\\n{"name": <name>, "arguments": <object>}', "hermes"),
        ("<tool_call>\n<function=example><parameter=one>", "qwen3-coder"),
        ("<function=example>{}</function>", "none"),
        ("<tool_call>{name}<arg_key>{{ arguments }}", "none"),
        ("<|python_tag|>", "llama3"),
        ("[TOOL_CALLS]", "mistral"),
        ("<|channel|>final<|message|>", "harmony"),
        ("<start_function_call>", "gemma"),
        ("<|channel>thought\n<channel|> <|tool_call>call:", "gemma4"),
        (DS_CALL, "deepseek"),
        ("plain", "none"),
        (None, "none"),
    ],
)
def test_a_template_tells_its_format(marker: str | None, name: str) -> None:
    assert detect_format(marker).name == name


def test_streamed_arguments_begin_before_the_call_has_ended() -> None:
    parser = FORMATS["hermes"].parser(TOOLS, reasoning=True, opened=False, calls=True)
    events = parser.feed('<tool_call>{"name": "get_weather", "arguments": {"city": "Par')
    assert merged(events) == ("", "", [("get_weather", '{"city": "Par')])
    assert json.loads('{"city": "Par' + 'is"}') == {"city": "Paris"}


def test_the_embedded_model_writes_calls_as_hermes_does_and_thinks() -> None:
    field = GGUFReader(models.TARGET).get_field("tokenizer.chat_template")
    assert field is not None
    found = detect_format(str(field.contents()))
    assert (found.name, found.reasoning) == ("hermes", Tags("<think>", "</think>"))
