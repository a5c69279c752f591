"""What is wrong is refused with 400 in OpenAI's shape, and what means nothing is accepted."""

from typing import Any

import pytest

from tests.server.running import Running

USER = [{"role": "user", "content": "hi"}]


def refused(server: Running, path: str, body: Any, status: int = 400) -> dict[str, Any]:
    response = server.post(path, body)
    assert response.status_code == status, response.text
    error: dict[str, Any] = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    assert error["message"]
    return error


WRONG = [
    ("temperature", "hot"),
    ("temperature", -0.1),
    ("temperature", True),
    ("top_k", 1.5),
    ("top_k", -2),
    ("top_p", 0),
    ("top_p", 1.1),
    ("min_p", -0.1),
    ("min_p", 1.1),
    ("seed", "x"),
    ("seed", -2),
    ("seed", 2**64),
    ("max_tokens", 0),
    ("max_tokens", -2),
    ("max_tokens", "many"),
    ("max_tokens", 1.5),
    ("max_completion_tokens", 0),
    ("max_completion_tokens", -2),
    ("n_predict", 0),
    ("n_predict", -5),
    ("stop", 3),
    ("stop", [3]),
    ("stop", ""),
    ("stop", ["a", ""]),
    ("stop", ["x"] * 33),
    ("stop_token_ids", "x"),
    ("stop_token_ids", [512]),
    ("stop_token_ids", [-1]),
    ("stream", "yes"),
    ("stream_options", {"include_usage": "yes"}),
    ("stream_options", []),
    ("speculative", "off"),
    ("speculative", {"n_max": -1}),
    ("speculative", {"n_max": 1, "p_min": 1.5}),
    ("speculative", {"n_minimum": 1}),
    ("speculative.types", ["draft-mtp"]),
    ("cache_prompt", 1),
    ("model", 3),
]


@pytest.mark.parametrize(("field", "value"), WRONG, ids=str)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_wrong_value_is_refused_by_name(
    server: Running, field: str, value: Any, stream: bool
) -> None:
    for path, request in (
        ("completions", {"prompt": "a"}),
        ("chat/completions", {"messages": USER}),
    ):
        error = refused(server, path, {**request, "stream": stream, field: value})
        assert error["param"].startswith(field)
        assert field in error["message"]


@pytest.mark.parametrize(
    "messages",
    [
        None,
        [],
        "hi",
        [3],
        [{}],
        [{"role": "user"}],
        [{"role": "user", "content": None}],
        [{"role": "robot", "content": "hi"}],
        [{"role": "user", "content": 3}],
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
        [{"role": "user", "content": [{"type": "text"}]}],
        [*USER, {"role": "tool", "content": {}}],
    ],
    ids=str,
)
def test_wrong_messages_are_refused(server: Running, messages: Any) -> None:
    error = refused(server, "chat/completions", {"messages": messages})
    assert error["param"].startswith("messages")
    refused(server, "chat/completions", {})


@pytest.mark.parametrize(
    "prompt", [None, 3, "", [], [[]], ["a", ""], [1, "a"], [1, True], [512], [-1], [[1], [600]]]
)
def test_wrong_prompts_are_refused(server: Running, prompt: Any) -> None:
    assert refused(server, "completions", {"prompt": prompt})["param"] == "prompt"
    refused(server, "completions", {})


@pytest.mark.parametrize("name", ["messages", "tools"])
def test_template_variables_with_fields_of_their_own_are_refused(
    server: Running, name: str
) -> None:
    request = {"messages": USER, "chat_template_kwargs": {name: []}}
    error = refused(server, "chat/completions", request)
    assert error["param"] == "chat_template_kwargs"


def test_a_prompt_longer_than_the_context_is_refused_with_both_numbers(server: Running) -> None:
    for prompt in ([5] * 300, [[5], [5] * 300]):
        error = refused(server, "completions", {"prompt": prompt})
        assert "300 tokens" in error["message"]
        assert "256" in error["message"]
        assert error["code"] == "context_length_exceeded"
    assert server.engine.idle
    refused(server, "completions", {"prompt": [5] * 256})
    assert server.answer("completions", prompt=[5] * 255)["usage"]["completion_tokens"] == 1


UNSUPPORTED = [
    ("suffix", "end"),
    ("modalities", ["text", "audio"]),
    ("continue_final_message", True),
    ("functions", [{"name": "f"}]),
    ("prompt_logprobs", 1),
    ("lora", [{"id": 0, "scale": 0.5}]),
    ("n_indent", 2),
    ("grammar_lazy", True),
    ("grammar_triggers", [{"type": "word", "value": "x"}]),
    ("adaptive_target", 0.4),
    ("bad_words", ["no"]),
    ("allowed_token_ids", [5]),
    ("include_stop_str_in_output", True),
    ("skip_special_tokens", False),
    ("truncate_prompt_tokens", 10),
    ("chat_template", "{{ messages }}"),
    ("documents", [{"text": "x"}]),
    ("use_beam_search", True),
    ("length_penalty", 0.5),
    ("early_stopping", True),
    ("parse_tool_calls", False),
]


@pytest.mark.parametrize(("field", "value"), UNSUPPORTED, ids=str)
def test_what_would_change_the_answer_and_is_not_supported_is_refused_by_name(
    server: Running, field: str, value: Any
) -> None:
    for path, request in (
        ("completions", {"prompt": "a"}),
        ("chat/completions", {"messages": USER}),
    ):
        error = refused(server, path, {**request, field: value})
        assert error["param"] == field
        assert f"{field}: is not supported" in error["message"]
        assert error["code"] == "unsupported_field"


NEUTRAL: dict[str, list[Any]] = {
    "n": [1],
    "best_of": [1],
    "echo": [False],
    "suffix": [""],
    "logprobs": [False],
    "top_logprobs": [0],
    "logit_bias": [{}, []],
    "frequency_penalty": [0, 0.0],
    "presence_penalty": [0],
    "repeat_penalty": [1, 1.0],
    "response_format": [{"type": "text"}],
    "tools": [[]],
    "tool_choice": ["auto", "none"],
    "user": ["me"],
    "metadata": [{"a": "b"}],
    "store": [True],
    "parallel_tool_calls": [True, False],
    "service_tier": ["auto"],
    "cache_prompt": [True],
    "stream_options": [{"include_usage": True}],
    "temperature": [],
    "stop": [[]],
    "speculative": [True],
    "stop_token_ids": [[]],
    "model": ["gpt-4o", ""],
    "lora": [[]],
    "t_max_predict_ms": [0, -1],
    "n_indent": [0],
    "n_discard": [0],
    "grammar_lazy": [False],
    "grammar_triggers": [[]],
    "adaptive_target": [-1, -1.0, -0.5],
    "bad_words": [[]],
    "allowed_token_ids": [],
    "include_stop_str_in_output": [False],
    "skip_special_tokens": [True],
    "truncate_prompt_tokens": [],
    "chat_template": [],
    "documents": [[]],
    "use_beam_search": [False],
    "length_penalty": [1, 1.0],
    "early_stopping": [False],
    "parse_tool_calls": [True],
    "id_slot": [-1],
    "thinking": [{"type": "disabled"}],
    "reasoning": [],
}


@pytest.mark.parametrize("field", NEUTRAL)
def test_what_asks_for_nothing_special_is_accepted(server: Running, field: str) -> None:
    request: dict[str, Any] = {"prompt": "once", "seed": 1, "max_tokens": 12}
    plain = server.complete(**request)
    for value in [None, *NEUTRAL[field]]:
        answer = server.answer("completions", **request, **{field: value})
        assert answer["choices"][0]["text"] == plain
        assert answer["surefoot"]["warnings"] == []


@pytest.mark.parametrize("fields", [{"thinking": {"type": "enabled"}}, {"reasoning": {}}], ids=str)
def test_a_text_completion_can_not_be_told_to_think(
    server: Running, fields: dict[str, Any]
) -> None:
    [field] = fields
    assert refused(server, "completions", {"prompt": "a", **fields})["param"] == field


def test_bans_that_leave_no_token_are_the_requests_own_fault(server: Running) -> None:
    """It shows only while the text is made, and is no fault of the server's."""
    bans = {str(token): False for token in range(server.engine.runtime.vocabulary_size)}
    error = refused(server, "completions", {"prompt": "a", "logit_bias": bans})
    assert "token" in error["message"]
    assert server.complete("a", max_tokens=2)
