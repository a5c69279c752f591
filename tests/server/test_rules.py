"""What the text must look like: schemas, grammars, expressions and choices, in every spelling."""

import json
import re
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from surefoot.drafting.ngram_simple import NgramSimple
from surefoot.runtime.simulated import SimulatedRuntime
from tests.server.running import Running

USER = [{"role": "user", "content": "tell me"}]
SCHEMA = {
    "type": "object",
    "properties": {"kind": {"enum": ["cat", "dog"]}, "age": {"type": "integer", "maximum": 99}},
    "required": ["kind", "age"],
    "additionalProperties": False,
}
GBNF = 'root ::= "- " [ab]{2,4} ("\\n- " [ab]{2,4})?'
LARK = '%llguidance {}\nstart: "<" /[a-z]{1,5}/ ">"'
WORDS = ["yes, of course", "never"]


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    runtime = SimulatedRuntime(vocabulary_size=512, slots=2, context_length=512, end_rate=1 / 250)
    with Running(runtime, NgramSimple(size_n=2)) as running:
        yield running


def fits_schema(text: str) -> bool:
    jsonschema.validate(json.loads(text), SCHEMA)
    return True


def fits_gbnf(text: str) -> bool:
    return bool(re.fullmatch(r"- [ab]{2,4}(\n- [ab]{2,4})?", text))


FIELDS: list[tuple[dict[str, Any], Any]] = [
    ({"json_schema": SCHEMA}, fits_schema),
    ({"json_schema": json.dumps(SCHEMA)}, fits_schema),
    ({"guided_json": SCHEMA}, fits_schema),
    ({"structured_outputs": {"json": SCHEMA}}, fits_schema),
    ({"response_format": {"type": "json_object", "schema": SCHEMA}}, fits_schema),
    ({"response_format": {"type": "json_schema", "schema": SCHEMA}}, fits_schema),
    (
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "pet", "strict": True, "schema": SCHEMA},
            }
        },
        fits_schema,
    ),
    ({"grammar": GBNF}, fits_gbnf),
    ({"guided_grammar": GBNF}, fits_gbnf),
    ({"structured_outputs": {"grammar": GBNF, "json": None}}, fits_gbnf),
    ({"response_format": {"type": "grammar", "grammar": GBNF}}, fits_gbnf),
    ({"grammar": LARK}, lambda text: re.fullmatch("<[a-z]{1,5}>", text)),
    ({"regex": "[0-9]{3}-[0-9]{2}"}, lambda text: re.fullmatch("[0-9]{3}-[0-9]{2}", text)),
    ({"guided_regex": "[xyz]{3}"}, lambda text: re.fullmatch("[xyz]{3}", text)),
    ({"structured_outputs": {"regex": "[xyz]{3}"}}, lambda text: re.fullmatch("[xyz]{3}", text)),
    ({"choice": WORDS}, lambda text: text in WORDS),
    ({"guided_choice": WORDS}, lambda text: text in WORDS),
    ({"structured_outputs": {"choice": WORDS}}, lambda text: text in WORDS),
]


@pytest.mark.parametrize(("fields", "fits"), FIELDS, ids=lambda part: str(part)[:60])
def test_each_spelling_holds_the_text_to_its_rules(
    server: Running, fields: dict[str, Any], fits: Any
) -> None:
    for path, request in (
        ("completions", {"prompt": "once"}),
        ("chat/completions", {"messages": USER}),
    ):
        for seed in range(3):
            wanted: dict[str, Any] = {**request, **fields, "seed": seed, "temperature": 1.5}
            answer = server.answer(path, **wanted)
            [choice] = answer["choices"]
            text = choice["text"] if "text" in choice else choice["message"]["content"]
            assert fits(text), text
            assert choice["finish_reason"] == "stop"
            assert answer["surefoot"]["warnings"] == []
            plain = server.answer(path, **wanted, speculative=False)
            assert plain["choices"] == answer["choices"]


def test_a_json_object_is_one(server: Running) -> None:
    for fields in (
        {"response_format": {"type": "json_object"}},
        {"structured_outputs": {"json_object": True}},
    ):
        request: dict[str, Any] = {"prompt": "once", "seed": 1, "max_tokens": 200, **fields}
        assert server.complete(**request).startswith("{")


@pytest.mark.parametrize(
    "fields",
    [
        {"response_format": {"type": "text"}},
        {"response_format": None},
        {"grammar": ""},
        {"json_schema": {}},
        {"structured_outputs": {}},
        {"structured_outputs": {"json": None}},
    ],
    ids=str,
)
def test_rules_that_ask_for_nothing_change_nothing(server: Running, fields: Any) -> None:
    request: dict[str, Any] = {"prompt": "once", "seed": 1, "max_tokens": 12}
    assert server.complete(**request, **fields) == server.complete(**request)


WRONG: list[tuple[str, dict[str, Any]]] = [
    ("response_format", {"response_format": {"type": "yaml"}}),
    ("response_format", {"response_format": {}}),
    ("response_format", {"response_format": "json"}),
    ("response_format", {"response_format": {"type": "json_schema"}}),
    ("response_format", {"response_format": {"type": "json_schema", "json_schema": {}}}),
    ("response_format", {"response_format": {"type": "json_object", "schema": "x"}}),
    (
        "response_format",
        {"response_format": {"type": "json_object", "schema": {"type": "fruit"}}},
    ),
    ("response_format", {"response_format": {"type": "regex"}}),
    ("json_schema", {"json_schema": "{"}),
    ("json_schema", {"json_schema": {"type": "fruit"}}),
    ("json_schema", {"json_schema": {"$ref": "#/nowhere"}}),
    ("json_schema", {"json_schema": 3}),
    ("guided_json", {"guided_json": {"type": "fruit"}}),
    ("grammar", {"grammar": "root ::= ("}),
    ("grammar", {"grammar": 'start: "a'}),
    ("grammar", {"grammar": 'root ::= "a" missing'}),
    ("guided_grammar", {"guided_grammar": "root ::= ("}),
    ("regex", {"regex": "(["}),
    ("guided_regex", {"guided_regex": "(["}),
    ("choice", {"choice": []}),
    ("choice", {"choice": ["a", ""]}),
    ("guided_choice", {"guided_choice": [3]}),
    ("structured_outputs", {"structured_outputs": {"yaml": "x"}}),
    ("structured_outputs", {"structured_outputs": {"regex": "a", "choice": ["a"]}}),
    ("structured_outputs", {"structured_outputs": {"regex": "(["}}),
    ("grammar", {"json_schema": SCHEMA, "grammar": GBNF}),
    ("json_schema", {"response_format": {"type": "json_object"}, "json_schema": SCHEMA}),
    ("guided_choice", {"regex": "a", "guided_choice": WORDS}),
]


@pytest.mark.parametrize(("field", "fields"), WRONG, ids=lambda part: str(part)[:60])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_what_is_no_rule_is_refused_before_the_first_token(
    server: Running, field: str, fields: dict[str, Any], stream: bool
) -> None:
    passes = server.engine.runtime.passes
    for path, request in (
        ("completions", {"prompt": "once"}),
        ("chat/completions", {"messages": USER}),
    ):
        response = server.post(path, {**request, **fields, "stream": stream})
        assert response.status_code == 400, response.text
        error = response.json()["error"]
        assert error["param"].startswith(field)
        assert error["message"].startswith(field)
    assert server.engine.runtime.passes == passes


def test_a_stream_under_rules_equals_the_whole(server: Running) -> None:
    for seed in range(3):
        request: dict[str, Any] = {"prompt": "once", "json_schema": SCHEMA, "seed": seed}
        text = "".join(c["choices"][0]["text"] for c in server.stream("completions", **request))
        assert text == server.complete(**request)
        assert fits_schema(text)
