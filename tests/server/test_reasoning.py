"""Reasoning: told apart from the answer, counted, and ended by its budget."""

from typing import Any

import pytest

from surefoot.server import AnswerSettings
from tests.server.running import Running
from tests.server.scripted import HERMES, MARK, ScriptedRuntime

USER = [{"role": "user", "content": "why"}]
THOUGHT = "<think>\none two three four\n</think>\n\nBecause."


def message_of(server: Running, **fields: Any) -> dict[str, Any]:
    answer = server.answer("chat/completions", messages=USER, temperature=0, **fields)
    message: dict[str, Any] = answer["choices"][0]["message"]
    return message


def streamed(server: Running, **fields: Any) -> tuple[str, str]:
    """Reasoning and content of a stream."""
    chunks = server.stream("chat/completions", messages=USER, temperature=0, **fields)
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    return (
        "".join(delta.get("reasoning_content") or "" for delta in deltas),
        "".join(delta.get("content") or "" for delta in deltas),
    )


@pytest.mark.parametrize("tags", [(), ("<think>", "</think>")], ids=["text", "tokens"])
def test_reasoning_is_told_apart_whole_and_streamed(tags: tuple[str, ...]) -> None:
    with Running(ScriptedRuntime(THOUGHT, HERMES, tags)) as server:
        message = message_of(server)
        assert message["content"] == "Because."
        assert message["reasoning_content"].strip() == "one two three four"
        assert streamed(server) == (message["reasoning_content"], message["content"])


@pytest.mark.parametrize("tags", [(), ("<think>", "</think>")], ids=["text", "tokens"])
def test_each_of_its_tokens_is_counted_once(tags: tuple[str, ...]) -> None:
    """Case E8: as many as a recount finds, and never more than there are tokens."""
    runtime = ScriptedRuntime(THOUGHT, HERMES, tags)
    thought = runtime.tokenizer.encode("\none two three four\n")
    with Running(runtime) as server:
        for fields in ({}, {"regex": "Because."}, {"thinking_budget_tokens": 500}):
            answer = server.answer("chat/completions", messages=USER, temperature=0, **fields)
            usage = answer["usage"]
            assert usage["completion_tokens_details"]["reasoning_tokens"] == len(thought)
            assert usage["completion_tokens"] > len(thought)
        for most in range(1, len(thought) + 12):
            answer = server.answer("chat/completions", messages=USER, max_tokens=most)
            usage = answer["usage"]
            told = usage["completion_tokens_details"]["reasoning_tokens"]
            assert told <= usage["completion_tokens"] == most


def test_a_format_of_none_leaves_it_in_the_content() -> None:
    with Running(ScriptedRuntime(THOUGHT, HERMES)) as server:
        message = message_of(server, reasoning_format="none")
        assert message["content"] == THOUGHT
        assert "reasoning_content" not in message
    settings = AnswerSettings(reasoning_format="none")
    with Running(ScriptedRuntime(THOUGHT, HERMES), answers=settings) as server:
        assert message_of(server)["content"] == THOUGHT
        assert message_of(server, reasoning_format="deepseek")["content"] == "Because."
        assert server.client.get("/props").json()["reasoning_format"] == "none"


def test_reasoning_that_the_template_has_begun_is_reasoning_from_the_start() -> None:
    # The mark stands in front of the tag, so that the script goes on behind it.
    template = "{# </think> #}" + MARK + "<think>"
    with Running(ScriptedRuntime("<think>one two</think>Because.", template)) as server:
        message = message_of(server)
        assert message["reasoning_content"] == "one two"
        assert message["content"] == "Because."
        assert streamed(server) == ("one two", "Because.")
        assert message_of(server, reasoning_format="none")["content"] == "one two</think>Because."


@pytest.mark.parametrize("name", ["thinking_budget_tokens", "reasoning_budget"])
@pytest.mark.parametrize("budget", [0, 1, 5])
def test_the_budget_ends_the_reasoning(name: str, budget: int) -> None:
    runtime = ScriptedRuntime(THOUGHT, HERMES)
    with Running(runtime) as server:
        answer = server.answer("chat/completions", messages=USER, temperature=0, **{name: budget})
        details = answer["usage"]["completion_tokens_details"]
        assert details["reasoning_tokens"] == budget
        thought = answer["choices"][0]["message"].get("reasoning_content", "")
        assert "four" not in thought
        full = server.answer("chat/completions", messages=USER, temperature=0, **{name: -1})
        assert "four" in full["choices"][0]["message"]["reasoning_content"]


@pytest.mark.parametrize("tags", [(), ("<think>", "</think>")], ids=["text", "tokens"])
@pytest.mark.parametrize("budget", [-1, 0, 4, 14])
def test_a_second_thought_is_told_counted_and_ended_like_the_first(
    tags: tuple[str, ...], budget: int
) -> None:
    script = "<think>one two</think>\n\n</think>\n<think>three</think>\n\nBecause."
    runtime = ScriptedRuntime(script, HERMES, tags)
    with Running(runtime) as server:
        fields = {"thinking_budget_tokens": budget}
        answer = server.answer("chat/completions", messages=USER, temperature=0, **fields)
        message = answer["choices"][0]["message"]
        thought = message.get("reasoning_content", "")
        counted = answer["usage"]["completion_tokens_details"]["reasoning_tokens"]
        assert counted == len(runtime.tokenizer.encode(thought))
        assert "think>" not in message["content"]
        assert streamed(server, **fields) == (thought, message["content"])
        if budget == -1:
            assert (thought, message["content"]) == ("one twothree", "Because.")
        else:
            assert counted == min(budget, len(runtime.tokenizer.encode("one twothree")))


def test_strays_in_front_of_an_answer_whose_reasoning_the_prompt_has_ended_are_left_out() -> None:
    template = "{# <think></think> #}" + MARK
    with Running(ScriptedRuntime("</think>\n\n<think>\n\n</think>Yes.", template)) as server:
        message = message_of(server)
        assert message["content"] == "Yes."
        assert "reasoning_content" not in message


def test_the_servers_budget_holds_where_the_request_is_silent() -> None:
    settings = AnswerSettings(reasoning_budget=2)
    with Running(ScriptedRuntime(THOUGHT, HERMES), answers=settings) as server:
        for fields, expected in (({}, 2), ({"reasoning_budget": 4}, 4)):
            answer = server.answer("chat/completions", messages=USER, temperature=0, **fields)
            assert answer["usage"]["completion_tokens_details"]["reasoning_tokens"] == expected
        # It holds, too, where the reasoning stays in the content.
        assert "three" not in message_of(server, reasoning_format="none")["content"]


def test_a_message_stands_in_front_of_a_forced_end() -> None:
    with Running(ScriptedRuntime(THOUGHT, HERMES)) as server:
        fields = {"reasoning_budget": 3, "reasoning_budget_message": " ...enough."}
        message = message_of(server, **fields)
        assert message["reasoning_content"].endswith(" ...enough.")
        # An end that comes by itself has none.
        assert (
            "enough"
            not in message_of(server, **{**fields, "reasoning_budget": 99})["reasoning_content"]
        )


def test_rules_hold_for_the_answer_and_not_for_the_reasoning() -> None:
    with Running(ScriptedRuntime(THOUGHT, HERMES)) as server:
        message = message_of(server, choice=["yes", "no"])
        assert message["reasoning_content"].strip() == "one two three four"
        assert message["content"] in ("yes", "no")


def test_a_model_that_does_not_reason_is_warned_of(server: Running) -> None:
    for name in ("thinking_budget_tokens", "reasoning_budget"):
        answer = server.answer("chat/completions", messages=USER, max_tokens=2, **{name: 5})
        assert answer["surefoot"]["warnings"] == [
            f"{name}: the model's chat template has no reasoning"
        ]
        assert answer["usage"]["completion_tokens_details"]["reasoning_tokens"] == 0


def test_thinking_is_switched_by_a_field_or_a_variable() -> None:
    template = "{% if enable_thinking %}yes{% else %}no{% endif %}" + MARK
    with Running(ScriptedRuntime("x", template)) as server:

        def length(**fields: Any) -> int:
            answer = server.answer("chat/completions", messages=USER, **fields)
            assert answer["surefoot"]["warnings"] == []
            prompt: int = answer["usage"]["prompt_tokens"]
            return prompt

        assert length() == length(enable_thinking=False) == 3
        assert length(enable_thinking=True) == 4
        assert length(chat_template_kwargs={"enable_thinking": True}) == 4
        # The variable is the more particular of the two.
        both = {"enable_thinking": False, "chat_template_kwargs": {"enable_thinking": True}}
        assert length(**both) == 4


WRONG: list[tuple[str, Any]] = [
    ("reasoning_format", "gemini"),
    ("thinking_budget_tokens", -2),
    ("thinking_budget_tokens", "many"),
    ("reasoning_budget", -2),
    ("reasoning_budget_message", 3),
    ("enable_thinking", "yes"),
    ("reasoning_effort", 3),
    ("chat_template_kwargs", []),
    ("add_generation_prompt", "no"),
]


@pytest.mark.parametrize(("field", "value"), WRONG, ids=str)
def test_wrong_values_are_refused_by_name(server: Running, field: str, value: Any) -> None:
    response = server.post("chat/completions", {"messages": USER, field: value})
    assert response.status_code == 400, response.text
    assert response.json()["error"]["param"].startswith(field)
