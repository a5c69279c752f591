"""Other servers' words for how much to think mean what this one has, or are refused."""

from typing import Any

import pytest

from tests.server.running import Running
from tests.server.scripted import HERMES, MARK, ScriptedRuntime

USER = [{"role": "user", "content": "why"}]
THOUGHT = "<think>one two three four</think>Because."
SWITCHED = "{{ enable_thinking }}{# </think> #}" + MARK
EFFORT = "{{ reasoning_effort }}" + MARK
OFF: list[dict[str, Any]] = [
    {"thinking": {"type": "disabled"}},
    {"reasoning": {"effort": "none"}},
    {"reasoning_effort": "none"},
]


def asked(server: Running, **fields: Any) -> dict[str, Any]:
    body = {"messages": USER, "temperature": 0, "max_tokens": 60, **fields}
    answer = server.answer("chat/completions", **body)
    assert answer["surefoot"]["warnings"] == []
    return answer


def prompt_length(server: Running, **fields: Any) -> int:
    length: int = asked(server, **fields)["usage"]["prompt_tokens"]
    return length


def thought_tokens(server: Running, **fields: Any) -> int:
    details = asked(server, **fields)["usage"]["completion_tokens_details"]
    tokens: int = details["reasoning_tokens"]
    return tokens


@pytest.mark.parametrize("fields", OFF, ids=str)
def test_off_is_the_templates_switch_where_it_has_one(fields: dict[str, Any]) -> None:
    with Running(ScriptedRuntime(THOUGHT, SWITCHED)) as server:
        plain = prompt_length(server, enable_thinking=False)
        assert prompt_length(server, **fields) == plain
        assert prompt_length(server, thinking={"type": "enabled"}) == plain - len("False") + len(
            "True"
        )
    with Running(ScriptedRuntime(THOUGHT, SWITCHED.replace("enable_", ""))) as server:
        assert prompt_length(server, **fields) == plain


@pytest.mark.parametrize("fields", OFF, ids=str)
def test_off_is_a_budget_of_none_where_the_template_has_no_switch(fields: dict[str, Any]) -> None:
    with Running(ScriptedRuntime(THOUGHT, HERMES)) as server:
        assert thought_tokens(server) > 0
        assert thought_tokens(server, **fields) == 0


@pytest.mark.parametrize("fields", OFF, ids=str)
def test_a_model_that_does_not_reason_needs_not_be_turned_off(
    server: Running, fields: dict[str, Any]
) -> None:
    assert asked(server, **fields)["choices"] == asked(server)["choices"]


def test_tokens_to_think_are_a_budget() -> None:
    with Running(ScriptedRuntime(THOUGHT, HERMES)) as server:
        thinking = {"type": "enabled", "budget_tokens": 3}
        assert thought_tokens(server, thinking=thinking) == 3
        assert thought_tokens(server, thinking=thinking, reasoning_budget=3) == 3
        assert thought_tokens(server, thinking={"type": "enabled"}) == thought_tokens(server)


@pytest.mark.parametrize(
    "fields", [{"reasoning_effort": "high"}, {"reasoning": {"effort": "high"}}], ids=str
)
def test_effort_is_a_variable_where_the_template_knows_it(fields: dict[str, Any]) -> None:
    with Running(ScriptedRuntime("x", EFFORT)) as server:
        assert prompt_length(server, **fields) == prompt_length(server) + len("high")
        both = {"reasoning_effort": "high", "reasoning": {"effort": "high"}}
        assert prompt_length(server, **both) == prompt_length(server, **fields)


def test_the_usual_effort_is_accepted_anywhere(server: Running) -> None:
    for fields in ({"reasoning_effort": "medium"}, {"reasoning": {"effort": "medium"}}):
        assert asked(server, **fields)["choices"] == asked(server)["choices"]
    nothing: list[dict[str, Any]] = [{"reasoning": {}}, {"reasoning": None}, {"thinking": None}]
    for empty in nothing:
        assert asked(server, **empty)["choices"] == asked(server)["choices"]


REFUSED: list[tuple[str, str, dict[str, Any]]] = [
    ("x" + MARK, "reasoning_effort", {"reasoning_effort": "high"}),
    ("x" + MARK, "reasoning", {"reasoning": {"effort": "low"}}),
    ("x" + MARK, "thinking", {"thinking": {"type": "enabled"}}),
    (HERMES, "thinking", {"thinking": {"type": "enabled", "budget_tokens": -1}}),
    (HERMES, "thinking", {"thinking": {"type": "disabled", "budget_tokens": 5}}),
    (HERMES, "thinking", {"thinking": {"type": "adaptive"}}),
    (HERMES, "thinking", {"thinking": True}),
    (HERMES, "reasoning", {"reasoning": {"effort": 3}}),
    (HERMES, "reasoning", {"reasoning": {"max_tokens": 100}}),
    (HERMES, "reasoning", {"reasoning": "high"}),
    (
        HERMES,
        "thinking",
        {"thinking": {"type": "enabled", "budget_tokens": 5}, "reasoning_budget": 6},
    ),
    (SWITCHED, "thinking", {"thinking": {"type": "disabled"}, "enable_thinking": True}),
    (EFFORT, "reasoning", {"reasoning": {"effort": "low"}, "reasoning_effort": "high"}),
]


@pytest.mark.parametrize(("template", "field", "fields"), REFUSED, ids=str)
def test_what_has_no_equivalent_or_contradicts_itself_is_refused_by_name(
    template: str, field: str, fields: dict[str, Any]
) -> None:
    with Running(ScriptedRuntime("x", template)) as server:
        response = server.post("chat/completions", {"messages": USER, **fields})
    assert response.status_code == 400, response.text
    assert response.json()["error"]["param"].startswith(field)
    assert field in response.json()["error"]["message"]
