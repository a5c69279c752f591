"""What a model writes for a parameter becomes what the parameter's schema means."""

from typing import Any

import pytest

from surefoot.chat.formats.values import Parameters
from tests.chat.test_formats import TOOLS, parsed

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "colour": {"enum": ["red", "5"]},
        "shared": {"$ref": "#/$defs/Word"},
        "count": {"type": "integer"},
        "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "several": {"type": ["integer", "string"]},
        "flag": {"type": "boolean"},
        "list": {"type": "array"},
        "point": {"$ref": "#/$defs/Point"},
        "anything": {},
        "open": True,
    },
    "$defs": {
        "Word": {"type": "string"},
        "Point": {"properties": {"x": {"type": "integer"}}},
    },
}


@pytest.mark.parametrize(
    ("key", "written", "expected"),
    [
        ("text", "5", '"5"'),
        ("text", '"quoted"', '"\\"quoted\\""'),
        ("text", "\n two \n", '"\\n two \\n"'),
        ("text", "", '""'),
        ("text", "</parameter", '"</parameter"'),
        ("text", "東京 \U0001f600 \\", '"東京 \U0001f600 \\\\"'),
        ("colour", "red", '"red"'),
        ("colour", "5", '"5"'),
        ("shared", "5", '"5"'),
        ("count", "5", "5"),
        ("count", " 5 ", "5"),
        ("count", "many", '"many"'),
        ("count", "NaN", '"NaN"'),
        ("maybe", "null", "null"),
        ("maybe", "None", "null"),
        ("maybe", "5", '"5"'),
        ("maybe", '"5"', '"5"'),
        ("several", "5", "5"),
        ("several", "5.5", '"5.5"'),
        ("flag", "true", "true"),
        ("flag", "True", "true"),
        ("list", "[1, [2]]", "[1, [2]]"),
        ("list", "[" * 100_000, '"' + "[" * 100_000 + '"'),
        ("point", '{"x": 1}', '{"x": 1}'),
        ("anything", "5", '"5"'),
        ("open", "true", '"true"'),
        ("unknown", "5", '"5"'),
    ],
)
def test_a_parameter_is_what_its_schema_means(key: str, written: str, expected: str) -> None:
    text = f"<tool_call>\n<function=do>\n<parameter={key}>\n{written}\n</parameter>\n</function>\n"
    tools = [*TOOLS, {"name": "do", "parameters": SCHEMA}]
    for pieces in ([text], list(text)):
        assert parsed("qwen3-coder", pieces, tools) == (
            "",
            "",
            [("do", f'{{"{key}": {expected}}}')],
        )


def test_a_long_text_comes_as_it_is_written() -> None:
    line = "x = 1  # </param>\n"
    text = f"<function=get_weather><parameter=city>\n{line * 6_000}</parameter></function>"
    _, _, calls = parsed("qwen3-coder", [text])
    assert calls == [
        ("get_weather", '{"city": "' + (line * 6_000).strip().replace("\n", "\\n") + '"}')
    ]


@pytest.mark.parametrize(
    "schema",
    [
        {"required": 5},
        {"required": [{}]},
        {"properties": 5},
        {"properties": [1]},
        {"properties": {"a": None, "b": "x", "c": []}},
        {"properties": {"a": {"type": 5}}},
        {"properties": {"a": {"type": [{}]}}},
        *({"properties": {"a": {key: 5}}} for key in ("enum", "anyOf", "oneOf", "allOf")),
    ],
    ids=str,
)
def test_a_schema_that_is_none_is_left_to_those_who_check_it(schema: Any) -> None:
    parameters = Parameters(schema)
    for key in ("a", "b", "unknown"):
        assert parameters.options(key) is None
        assert parameters.takes_text(key) in (True, False)
        assert parameters.json(key, "5") in ("5", '"5"')
