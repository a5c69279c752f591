"""Chat templates: the embedded model's renders as trained, and no template can do harm."""

import logging
from pathlib import Path
from typing import Any

import pytest
from gguf import GGUFReader

from surefoot import models
from surefoot.chat import ChatTemplate, ChatTemplateError, template_for

SOURCE = (Path(__file__).parents[2] / "tools/train/chat_template.jinja").read_text()

USER = {"role": "user", "content": "Hi"}


@pytest.fixture(scope="module")
def embedded() -> ChatTemplate:
    """The template that the embedded model file carries."""
    field = GGUFReader(models.TARGET).get_field("tokenizer.chat_template")
    assert field is not None
    return ChatTemplate(str(field.contents()), eos_text="<|im_end|>")


@pytest.mark.parametrize(
    ("messages", "options", "expected"),
    [
        (
            [{"role": "system", "content": "Be brief."}, USER],
            {},
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
            "<|im_start|>assistant\n",
        ),
        (
            [USER, {"role": "assistant", "content": "<think>\nhm\n</think>\n\nHello"}, USER],
            {},
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello<|im_end|>\n"
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
        ),
        (
            [
                USER,
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [
                        {"function": {"name": "weather", "arguments": '{"city": "Paris"}'}}
                    ],
                },
                {"role": "tool", "content": "sunny", "tool_call_id": "1"},
                {"role": "tool", "content": "21 °C", "tool_call_id": "2"},
            ],
            {},
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
            '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>'
            "<|im_end|>\n<|im_start|>user\n<tool_response>\nsunny\n</tool_response>\n"
            "<tool_response>\n21 °C\n</tool_response><|im_end|>\n<|im_start|>assistant\n",
        ),
        (
            [USER],
            {"enable_thinking": False},
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
        ),
        ([USER], {"add_generation_prompt": False}, "<|im_start|>user\nHi<|im_end|>\n"),
    ],
    ids=["system", "assistant", "tool", "enable_thinking", "no_generation_prompt"],
)
def test_the_embedded_template_renders_what_the_model_was_trained_on(
    embedded: ChatTemplate,
    messages: list[dict[str, Any]],
    options: dict[str, Any],
    expected: str,
) -> None:
    assert embedded.render(messages, **options) == expected
    assert ChatTemplate(SOURCE).render(messages, **options) == expected


def test_tools_are_json_without_escapes(embedded: ChatTemplate) -> None:
    tool = {"type": "function", "function": {"name": "größer", "description": "a < b & 'c'"}}
    text = embedded.render([USER], tools=[tool])
    assert (
        '{"type": "function", "function": {"name": "größer", "description": "a < b & \'c\'"}}'
        in text
    )


def test_text_parts_are_joined_for_templates_that_take_text(embedded: ChatTemplate) -> None:
    parts = [{"type": "text", "text": "H"}, {"type": "text", "text": "i"}]
    assert embedded.render([{"role": "user", "content": parts}]) == embedded.render([USER])
    plain = ChatTemplate("{{ messages[0].content + '!' }}")
    assert plain.render([{"role": "user", "content": parts}]) == "Hi!"


def test_a_template_that_reads_only_parts_gets_parts() -> None:
    template = ChatTemplate(
        "{% for m in messages %}{% for part in m.content %}{{ part.text }}{% endfor %}{% endfor %}"
    )
    assert template.render([USER]) == "Hi"


def test_developer_is_system_for_templates_that_do_not_know_it() -> None:
    message = {"role": "developer", "content": "Hi"}
    assert ChatTemplate("{{ messages[0].role }}").render([message]) == "system"
    source = "{% if messages[0].role == 'developer' %}{{ messages[0].role }}{% endif %}"
    assert ChatTemplate(source).render([message]) == "developer"


def test_bos_and_eos_are_known_to_the_template() -> None:
    template = ChatTemplate("{{ bos_token }}|{{ eos_token }}", "<s>", "</s>")
    assert template.render([USER]) == "<s>|</s>"


def test_what_hugging_face_templates_use_is_there() -> None:
    source = (
        "{%- for n in range(9) %}{%- if n == 1 %}{%- continue %}{%- endif %}"
        "{%- if n == 3 %}{%- break %}{%- endif %}{{- n }}{%- endfor %}"
        "{% generation %}{{ messages[0].content }}{% endgeneration %}"
        "{{- strftime_now('%%') }}{{ {'b': 1, 'a': 'ü<'} | tojson(indent=1) }}\n"
        "    {% if true %}\nx\n    {% endif %}\n"
    )
    expected = '02Hi%{\n "b": 1,\n "a": "ü<"\n}\nx\n'
    assert ChatTemplate(source).render([USER]) == expected


def test_the_caller_may_name_a_variable_anything() -> None:
    variables: dict[str, Any] = {"self": 1, "messages": 2, "source": 3}
    assert (
        ChatTemplate("{{ messages[0].content }}{{ source }}").render([USER], **variables) == "Hi3"
    )


def test_a_template_tells_what_it_can_be_told(embedded: ChatTemplate) -> None:
    assert "enable_thinking" in embedded.variables
    assert "enable_thinkng" not in embedded.variables


def test_what_a_template_refuses_is_a_clear_error() -> None:
    template = ChatTemplate(
        "{% if messages[0].role != 'user' %}"
        "{{ raise_exception('roles must alternate') }}{% endif %}"
    )
    with pytest.raises(ChatTemplateError, match="refuses these messages: roles must alternate"):
        template.render([{"role": "system", "content": "x"}])


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages.missing.deeper }}",
        "{{ messages[0].content + none }}",
        "{{ 1 / 0 }}",
        "{{ range(10 ** 9) | list }}",
        "{{ [] | tojson(indent='x', sort_keys=messages) + 1 }}",
    ],
)
def test_a_template_that_fails_is_a_clear_error(source: str) -> None:
    with pytest.raises(ChatTemplateError, match="template failed on these messages"):
        ChatTemplate(source).render([USER])


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ raise_exception.__globals__.json }}",
        "{{ strftime_now.__globals__['json'].codecs.open('/etc/passwd').read() }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update(role='system') }}",
        "{{ cycler.__init__.__globals__.os.system('true') }}",
    ],
)
def test_the_sandbox_lets_nothing_out_and_nothing_be_changed(source: str) -> None:
    messages = [dict(USER)]
    with pytest.raises(ChatTemplateError, match=r"unsafe|not safely"):
        ChatTemplate(source).render(messages)
    assert messages == [USER]


@pytest.mark.parametrize(
    "source", ["{{ raise_exception.__globals__ }}", "{{ '{0.__class__}'.format(messages) }}"]
)
def test_the_sandbox_shows_nothing_of_what_is_inside(source: str) -> None:
    assert ChatTemplate(source).render([USER]) == ""


@pytest.mark.parametrize(
    "source", ["{% if %}", "{{ x", "{% for a in b %}", "{{ x | nosuchfilter }}", "{% nosuchtag %}"]
)
def test_a_template_that_is_no_jinja_is_a_clear_error_at_load(source: str) -> None:
    with pytest.raises(ChatTemplateError, match="no valid Jinja2: line 1"):
        ChatTemplate(source)


def test_without_a_template_chatml_is_used_and_said(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        template = template_for(None)
    assert "no chat template; using ChatML" in caplog.text
    empty = {"role": "assistant", "content": None}
    assert template.render([USER, empty]) == (
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<|im_end|>\n<|im_start|>assistant\n"
    )


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("{{ call.function.arguments | tojson }}", '{"city": "Paris"}'),
        ("{{ call.function.arguments }}", '{"city": "Paris"}'),
        (
            "{% for k, v in call.function.arguments|items %}<p={{ k }}>{{ v }}</p>{% endfor %}",
            "<p=city>Paris</p>",
        ),
        (
            "{% set given = call.function.arguments %}{ {%- if given is string %}{{ given }}"
            "{% else %}{% for k, v in given|items %}{{ k }}:{{ v }}{% endfor %}{% endif %}}",
            "{city:Paris}",
        ),
        (
            "{% for k, v in call.function.arguments.items() %}{{ k }}={{ v }}{% endfor %}"
            "{{ call.function.arguments | tojson }}",
            'city=Paris{"city": "Paris"}',
        ),
    ],
)
def test_the_arguments_of_a_call_come_as_the_template_needs_them(
    written: str, expected: str
) -> None:
    source = (
        "{% for m in messages %}{% for call in m.tool_calls or [] %}" + written
        + "{% endfor %}{% endfor %}"
    )  # fmt: skip
    call = {"function": {"name": "f", "arguments": '{"city": "Paris"}'}}
    messages = [{"role": "assistant", "content": None, "tool_calls": [call]}]
    assert ChatTemplate(source).render(messages) == expected


@pytest.mark.parametrize("arguments", ["", None, "{}"])
def test_a_call_without_arguments_has_an_empty_object(arguments: str | None) -> None:
    source = (
        "{% for m in messages %}{% for call in m.tool_calls or [] %}{{ call.function.name }}"
        "{{ call.function.arguments | tojson }}{% endfor %}{% endfor %}"
    )
    call = {"function": {"name": "f", "arguments": arguments}}
    messages = [{"role": "assistant", "content": None, "tool_calls": [call]}]
    assert ChatTemplate(source).render(messages) == "f{}"


@pytest.mark.parametrize(
    "shown",
    [
        "{{ m.content + '|' }}",
        "{{ m.content }}|",
        "{% if m.content is none %}|{% endif %}",
        "{% if m.content is string %}|{% endif %}",
        "{{ m['content'] | trim }}|",
    ],
)
@pytest.mark.parametrize("content", [{"content": None}, {"content": ""}, {}])
def test_a_call_without_content_is_shown_whatever_the_template_takes_for_none(
    shown: str, content: dict[str, Any]
) -> None:
    calls = "{% for call in m.tool_calls %}{{ call.function.arguments }}{% endfor %}"
    source = (
        "{% for m in messages %}{% if m.tool_calls %}"
        + shown.replace("|{%", "|" + calls + "{%")
        + ("" if "|{%" in shown else calls)
        + "{% endif %}{% endfor %}"
    )
    call = {"function": {"name": "f", "arguments": "{}"}}
    messages = [{"role": "assistant", **content, "tool_calls": [call]}]
    assert ChatTemplate(source).render(messages) == "|{}"


@pytest.mark.parametrize("content", ["", None])
def test_empty_content_comes_as_given_if_the_template_can_show_it(content: str | None) -> None:
    source = (
        "{% for m in messages %}{{ m.tool_calls[0].function.name if m.tool_calls }}:"
        "{{ m.content is none }}{% endfor %}"
    )
    call = {"function": {"name": "f", "arguments": "{}"}}
    messages = [{"role": "assistant", "content": content, "tool_calls": [call]}]
    assert ChatTemplate(source).render(messages) == f"f:{content is None}"


def test_a_call_whose_arguments_are_not_shown_can_have_null_beside_it() -> None:
    source = (
        "{% for m in messages %}{{ m.content + ':' }}"
        "{{ m.tool_calls[0].function.name if m.tool_calls }}{% endfor %}"
    )
    call = {"function": {"name": "f", "arguments": "{}"}}
    messages = [{"role": "assistant", "content": None, "tool_calls": [call]}]
    assert ChatTemplate(source).render(messages) == ":f"


def test_content_that_is_null_is_no_word() -> None:
    assert ChatTemplate("{{ messages[0].content }}").render([{**USER, "content": None}]) == ""
