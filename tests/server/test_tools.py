"""Tool calls: told apart, held to their schemas, whole and streamed alike."""

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.server.running import Running
from tests.server.scripted import HERMES_WITHOUT_REASONING, MARK, ScriptedRuntime

USER: list[Any] = [{"role": "user", "content": "look"}]


def tool(name: str, **properties: Any) -> dict[str, Any]:
    parameters = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


CITY = tool("get_weather", city={"enum": ["Rome", "Oslo"]})
ADD = tool("add", a={"type": "integer"}, b={"type": "integer"})


def call_text(name: str, **arguments: Any) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {json.dumps(arguments)}}}\n</tool_call>'


TWO = call_text("get_weather", city="Oslo") + "\n" + call_text("add", a=1, b=22)


def streamed(server: Running, **body: Any) -> tuple[dict[str, Any], str]:
    """A streamed message put together, and its finish reason."""
    message: dict[str, Any] = {"content": "", "reasoning_content": "", "tool_calls": []}
    reason = ""
    for chunk in server.stream("chat/completions", **body):
        [choice] = chunk["choices"]
        delta = choice["delta"]
        for name in ("content", "reasoning_content"):
            message[name] += delta.get(name) or ""
        for part in delta.get("tool_calls", []):
            if part["index"] == len(message["tool_calls"]):
                assert part["type"] == "function"
                assert part["id"]
                assert part["function"]["name"]
                message["tool_calls"].append({"arguments": "", **part["function"]})
            else:
                assert set(part) == {"index", "function"}
                assert set(part["function"]) == {"arguments"}
                message["tool_calls"][part["index"]]["arguments"] += part["function"]["arguments"]
        reason = choice["finish_reason"] or reason
    return message, reason


@pytest.mark.parametrize(
    ("script", "content", "calls"),
    [
        ("Sunny.", "Sunny.", []),
        (call_text("add", a=1, b=2), None, [("add", {"a": 1, "b": 2})]),
        (
            "Let me see. " + call_text("get_weather", city="Rome"),
            "Let me see. ",
            [("get_weather", {"city": "Rome"})],
        ),
        (TWO, None, [("get_weather", {"city": "Oslo"}), ("add", {"a": 1, "b": 22})]),
        ("a < b, <tool", "a < b, <tool", []),
    ],
    ids=["none", "one", "behind text", "two", "not quite"],
)
def test_calls_are_told_apart_whole_and_streamed(
    script: str, content: str | None, calls: list[Any]
) -> None:
    with Running(ScriptedRuntime(script, HERMES_WITHOUT_REASONING)) as server:
        request: dict[str, Any] = {"messages": USER, "tools": [CITY, ADD], "temperature": 0}
        answer = server.answer("chat/completions", **request)
        [choice] = answer["choices"]
        message = choice["message"]
        assert message["content"] == content
        found = message.get("tool_calls", [])
        assert [
            (call["function"]["name"], json.loads(call["function"]["arguments"])) for call in found
        ] == calls
        assert choice["finish_reason"] == ("tool_calls" if calls else "stop")
        assert len({call["id"] for call in found}) == len(found)
        whole, reason = streamed(server, **request)
        assert whole["content"] == (content or "")
        assert whole["tool_calls"] == [call["function"] for call in found]
        assert reason == choice["finish_reason"]
        assert answer["surefoot"]["warnings"] == []


def test_a_call_is_held_to_its_schema() -> None:
    wrong = call_text("get_weather", city="Paris")
    with Running(ScriptedRuntime(wrong, HERMES_WITHOUT_REASONING)) as server:
        answer = server.answer("chat/completions", messages=USER, tools=[CITY], temperature=0)
    [call] = answer["choices"][0]["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"])["city"] in ("Rome", "Oslo")


@pytest.mark.parametrize("told", [{}, {"parameters": None}], ids=str)
def test_a_function_without_parameters_gets_no_arguments(told: dict[str, Any]) -> None:
    now = {"type": "function", "function": {"name": "now", **told}}
    with Running(ScriptedRuntime(call_text("now", zone=1), HERMES_WITHOUT_REASONING)) as server:
        answer = server.answer("chat/completions", messages=USER, tools=[now], temperature=0)
    [call] = answer["choices"][0]["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {}


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        ("required", {"get_weather", "add"}),
        ({"type": "function", "function": {"name": "add"}}, {"add"}),
        (
            {
                "type": "allowed_tools",
                "allowed_tools": {
                    "mode": "required",
                    "tools": [{"type": "function", "function": {"name": "get_weather"}}],
                },
            },
            {"get_weather"},
        ),
    ],
    ids=str,
)
def test_a_call_comes_where_it_must(choice: Any, names: set[str]) -> None:
    with Running(ScriptedRuntime("I would rather not.", HERMES_WITHOUT_REASONING)) as server:
        for seed in range(4):
            answer = server.answer(
                "chat/completions",
                messages=USER,
                tools=[CITY, ADD],
                tool_choice=choice,
                parallel_tool_calls=False,
                temperature=1.0,
                seed=seed,
                max_tokens=300,
            )
            [told] = answer["choices"]
            [call] = told["message"]["tool_calls"]
            assert call["function"]["name"] in names
            if told["finish_reason"] == "length":  # an integer has no end but by chance
                continue
            assert isinstance(json.loads(call["function"]["arguments"]), dict)
            assert told["finish_reason"] == "tool_calls"
            assert told["message"]["content"] is None


def test_calls_that_are_not_allowed_are_not_made() -> None:
    allowed = {
        "type": "allowed_tools",
        "allowed_tools": {
            "mode": "auto",
            "tools": [{"type": "function", "function": {"name": "get_weather"}}],
        },
    }
    with Running(ScriptedRuntime(call_text("add", a=1, b=2), HERMES_WITHOUT_REASONING)) as server:
        body: dict[str, Any] = {"messages": USER, "tools": [CITY, ADD], "temperature": 0}
        answer = server.answer("chat/completions", **body, tool_choice=allowed)
        [call] = answer["choices"][0]["message"]["tool_calls"]
        assert call["function"]["name"] == "get_weather"


def test_one_call_alone_ends_the_answer() -> None:
    with Running(ScriptedRuntime(TWO, HERMES_WITHOUT_REASONING)) as server:
        request: dict[str, Any] = {"messages": USER, "tools": [CITY, ADD], "temperature": 0}
        alone = server.answer("chat/completions", **request, parallel_tool_calls=False)
        both = server.answer("chat/completions", **request, parallel_tool_calls=True)
        assert len(alone["choices"][0]["message"]["tool_calls"]) == 1
        assert len(both["choices"][0]["message"]["tool_calls"]) == 2
        assert alone["choices"][0]["finish_reason"] == "tool_calls"


def test_a_call_that_is_cut_off_says_so() -> None:
    with Running(ScriptedRuntime(call_text("add", a=1, b=2), HERMES_WITHOUT_REASONING)) as server:
        request: dict[str, Any] = {"messages": USER, "tools": [ADD], "temperature": 0}
        full = server.answer("chat/completions", **request)["usage"]["completion_tokens"]
        answer = server.answer("chat/completions", **request, max_tokens=full - 20)
        assert answer["choices"][0]["finish_reason"] == "length"
        [call] = answer["choices"][0]["message"]["tool_calls"]
        assert call["function"]["name"] == "add"


@pytest.mark.parametrize("stop", ["Par", '"city', "}}", "Oslo"])
def test_a_call_that_a_stop_string_cuts_off_is_none_to_be_carried_out(stop: str) -> None:
    script = call_text("get_weather", city="Paris") + "\n" + call_text("get_weather", city="Oslo")
    free = tool("get_weather", city={"type": "string"})
    with Running(ScriptedRuntime(script, HERMES_WITHOUT_REASONING)) as server:
        request: dict[str, Any] = {"messages": USER, "tools": [free], "temperature": 0}
        [choice] = server.answer("chat/completions", **request, stop=[stop])["choices"]
        calls = choice["message"]["tool_calls"]
        assert len(calls) == (2 if stop == "Oslo" else 1)
        assert choice["finish_reason"] == "stop"
        whole, reason = streamed(server, **request, stop=[stop])
        assert whole["tool_calls"] == [call["function"] for call in calls]
        assert reason == "stop"


@pytest.mark.parametrize("stop", ["</tool_call>", "\n<tool_call>"])
def test_a_call_that_is_complete_when_a_stop_string_comes_may_be_carried_out(stop: str) -> None:
    with Running(ScriptedRuntime(TWO, HERMES_WITHOUT_REASONING)) as server:
        request: dict[str, Any] = {"messages": USER, "tools": [CITY, ADD], "temperature": 0}
        [choice] = server.answer("chat/completions", **request, stop=[stop])["choices"]
        [call] = choice["message"]["tool_calls"]
        assert json.loads(call["function"]["arguments"]) == {"city": "Oslo"}
        assert choice["finish_reason"] == "tool_calls"
        assert streamed(server, **request, stop=[stop])[1] == "tool_calls"


def test_the_template_sees_the_tools_unless_none_may_be_called() -> None:
    with Running(ScriptedRuntime(call_text("add", a=1, b=2), HERMES_WITHOUT_REASONING)) as server:
        request: dict[str, Any] = {"messages": USER, "temperature": 0}
        bare = server.answer("chat/completions", **request)
        none = server.answer("chat/completions", **request, tools=[ADD], tool_choice="none")
        auto = server.answer("chat/completions", **request, tools=[ADD])
        assert none["usage"]["prompt_tokens"] == bare["usage"]["prompt_tokens"]
        assert auto["usage"]["prompt_tokens"] > bare["usage"]["prompt_tokens"] + 50
        # Without tools a call is a text like any other.
        for answer in (bare, none):
            assert answer["choices"][0]["message"]["content"] == call_text("add", a=1, b=2)
            assert answer["choices"][0]["finish_reason"] == "stop"


def test_tags_that_are_tokens_are_shown_to_the_parser_alone() -> None:
    script = call_text("add", a=1, b=2)
    runtime = ScriptedRuntime(
        script, HERMES_WITHOUT_REASONING, tags=["<tool_call>", "</tool_call>"]
    )
    with Running(runtime) as server:
        request: dict[str, Any] = {"messages": USER, "temperature": 0}
        [choice] = server.answer("chat/completions", **request, tools=[ADD])["choices"]
        assert choice["message"]["tool_calls"][0]["function"]["name"] == "add"
        assert choice["message"]["content"] is None
        plain = server.answer("chat/completions", **request, reasoning_format="none")
        content = plain["choices"][0]["message"]["content"]
        assert content == script.removeprefix("<tool_call>").removesuffix("</tool_call>")


def test_log_probabilities_of_a_call_cover_its_tokens() -> None:
    with Running(ScriptedRuntime(TWO, HERMES_WITHOUT_REASONING)) as server:
        request: dict[str, Any] = {
            "messages": USER,
            "tools": [CITY, ADD],
            "temperature": 0,
            "logprobs": True,
            "return_token_ids": True,
        }
        [choice] = server.answer("chat/completions", **request)["choices"]
        content = choice["logprobs"]["content"]
        assert b"".join(bytes(entry["bytes"]) for entry in content).decode() == TWO
        assert [entry["id"] for entry in content] == choice["token_ids"]
        chunks = server.stream("chat/completions", **request)
        told = [
            entry
            for chunk in chunks
            for entry in (chunk["choices"][0]["logprobs"] or {"content": []})["content"]
        ]
        assert told == content
        ids = [i for chunk in chunks for i in chunk["choices"][0].get("token_ids", [])]
        assert ids == choice["token_ids"]
        # Ids alone come whole, too, where the parser holds their text back.
        del request["logprobs"]
        chunks = server.stream("chat/completions", **request)
        ids = [i for chunk in chunks for i in chunk["choices"][0].get("token_ids", [])]
        assert ids == choice["token_ids"]


def test_openais_client_reads_streamed_calls() -> None:
    tools: list[Any] = [CITY, ADD]
    with (
        Running(ScriptedRuntime(TWO, HERMES_WITHOUT_REASONING)) as server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client,
        client.chat.completions.stream(
            model="any", messages=USER, tools=tools, temperature=0
        ) as stream,
    ):
        final = stream.get_final_completion().choices[0]
    assert final.finish_reason == "tool_calls"
    calls = final.message.tool_calls or []
    assert [call.function.name for call in calls] == ["get_weather", "add"]
    assert json.loads(calls[1].function.arguments) == {"a": 1, "b": 22}


def test_a_template_that_shows_no_tools_is_warned_of() -> None:
    template = "{# <tool_call> #}" + MARK
    with Running(ScriptedRuntime("x", template)) as server:
        answer = server.answer("chat/completions", messages=USER, tools=[ADD])
        assert "does not show them" in answer["surefoot"]["warnings"][0]


def test_a_format_without_rules_is_warned_of_and_can_require_nothing() -> None:
    with Running(ScriptedRuntime("x", "{{ tools }}" + MARK)) as server:
        answer = server.answer("chat/completions", messages=USER, tools=[ADD])
        assert "not held to their schemas" in answer["surefoot"]["warnings"][0]
        body = {"messages": USER, "tools": [ADD], "tool_choice": "required"}
        response = server.post("chat/completions", body)
        assert response.status_code == 400
        assert response.json()["error"]["param"] == "tool_choice"


@pytest.fixture(scope="module")
def silent() -> Iterator[Running]:
    with Running(ScriptedRuntime("x", HERMES_WITHOUT_REASONING)) as server:
        yield server


WRONG: list[tuple[str, dict[str, Any]]] = [
    ("tools", {"tools": "add"}),
    ("tools", {"tools": [{"type": "function"}]}),
    ("tools", {"tools": [{"type": "web_search"}]}),
    ("tools", {"tools": [{"type": "function", "function": {"name": "a b"}}]}),
    ("tools", {"tools": [{"type": "function", "function": {"name": "a", "parameters": []}}]}),
    ("tools", {"tools": [tool("a"), tool("a")]}),
    ("tools", {"tools": [tool("a", x={"type": "fruit"})]}),
    (
        "tools",
        {
            "tools": [
                {"type": "function", "function": {"name": "a", "parameters": {"type": "array"}}}
            ]
        },
    ),
    ("tool_choice", {"tools": [ADD], "tool_choice": "always"}),
    ("tool_choice", {"tool_choice": "required"}),
    ("tool_choice", {"tools": [ADD], "tool_choice": {"type": "function"}}),
    (
        "tool_choice",
        {"tools": [ADD], "tool_choice": {"type": "function", "function": {"name": "other"}}},
    ),
    ("response_format", {"tools": [ADD], "response_format": {"type": "json_object"}}),
    ("guided_regex", {"tools": [ADD], "guided_regex": "a"}),
    ("parallel_tool_calls", {"tools": [ADD], "parallel_tool_calls": "no"}),
]


@pytest.mark.parametrize(("field", "fields"), WRONG, ids=lambda part: str(part)[:70])
def test_wrong_tools_are_refused_by_name(
    silent: Running, field: str, fields: dict[str, Any]
) -> None:
    response = silent.post("chat/completions", {"messages": USER, **fields})
    assert response.status_code == 400, response.text
    assert response.json()["error"]["param"].startswith(field)
