"""How a chat becomes the model's prompt: the template's part in it, and BOS once."""

from dataclasses import replace
from typing import Any

import pytest

from surefoot.chat import ChatTemplateError
from surefoot.runtime.base import ModelInfo
from surefoot.runtime.simulated import SimulatedRuntime, SimulatedTokenizer
from tests.server.running import Running

USER = [{"role": "user", "content": "hi"}]
BOS = 1
"""A byte that no text has, which plays the part of BOS, written <s>."""


class TokenizerWithBos(SimulatedTokenizer):
    def encode(self, text: str, *, special: bool = True, add_special: bool = False) -> list[int]:
        head = [BOS] if add_special else []
        if text.startswith("<s>"):
            head, text = [*head, BOS], text.removeprefix("<s>")
        return head + super().encode(text, special=special)


class Templated(SimulatedRuntime):
    """A simulated runtime with a BOS and a chat template of the test's choice."""

    def __init__(self, template: str | None) -> None:
        super().__init__(vocabulary_size=512)
        self.tokenizer = TokenizerWithBos(512)
        self._template = template

    @property
    def info(self) -> ModelInfo:
        return replace(super().info, chat_template=self._template, bos_text="<s>")


def prompt_of(server: Running, **body: Any) -> str:
    """The text that the template made of a request."""
    seen: list[int] = []
    submit = server.thread.submit_group

    def watch(requests: Any, listeners: Any) -> Any:
        seen.extend(requests[0].prompt)
        return submit(requests, listeners)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server.thread, "submit_group", watch)
        server.answer("chat/completions", max_tokens=1, **body)
    return b"".join(map(server.engine.runtime.tokenizer.piece, seen)).decode()


@pytest.mark.parametrize("template", ["hi", "{{ bos_token }}hi"])
def test_bos_comes_once_whether_the_template_writes_it_or_not(template: str) -> None:
    with Running(Templated(template)) as server:
        answer = server.answer("chat/completions", messages=USER, max_tokens=1)
        assert answer["usage"]["prompt_tokens"] == 3
        for prompt in ("hi", "<s>hi"):
            answer = server.answer("completions", prompt=prompt, max_tokens=1)
            assert answer["usage"]["prompt_tokens"] == 3


def test_all_that_a_message_carries_reaches_the_template() -> None:
    source = (
        "{% for m in messages %}{{ m.role }}:{{ m.name }}:{{ m.tool_call_id }}:"
        "{{ m.tool_calls[0].function.name if m.tool_calls }}:{{ m.content is none }};{% endfor %}"
    )
    call = {"id": "7", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "hi", "name": "Ann"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "ok", "tool_call_id": "7"},
    ]
    with Running(Templated(source)) as server:
        assert prompt_of(server, messages=messages) == (
            "\x01user:Ann:::False;assistant:::look:True;tool::7::False;"
        )


def test_reasoning_effort_and_template_kwargs_are_variables_of_the_template() -> None:
    with Running(Templated("{{ reasoning_effort }}/{{ mood }}")) as server:
        options = {"reasoning_effort": "high", "chat_template_kwargs": {"mood": "gay"}}
        assert prompt_of(server, messages=USER, **options) == "\x01high/gay"


def test_what_the_template_refuses_is_a_400() -> None:
    with Running(Templated("{{ raise_exception('no users here') }}")) as server:
        response = server.post("chat/completions", {"messages": USER})
    assert response.status_code == 400
    error = response.json()["error"]
    assert "no users here" in error["message"]
    assert error["param"] == "messages"
    assert error["code"] == "chat_template_error"


def test_a_model_without_a_template_gets_chatml() -> None:
    with Running(Templated(None)) as server:
        assert prompt_of(server, messages=USER) == "\x01user\nhi\nassistant\n"


def test_a_template_that_is_no_jinja_keeps_the_server_from_starting() -> None:
    with pytest.raises(ChatTemplateError, match="no valid Jinja2"):
        Running(Templated("{% if %}"))
