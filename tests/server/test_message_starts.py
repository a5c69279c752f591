"""The prompt cache is told where messages begin; half a conversation is all that is rendered."""

from typing import Any

from surefoot.chat.template import CHATML, ChatTemplate
from surefoot.server.message_starts import message_starts

DROPS_REASONING = """\
{%- for m in messages %}{{- '<' + m.role + '>' }}
{%- if m.role == 'assistant' and not loop.last %}{{- m.content.split('</think>')[-1] }}
{%- else %}{{- m.content }}{%- endif %}{%- endfor %}
{%- if add_generation_prompt %}{{- '<assistant><think>' }}{%- endif %}"""


def encode(text: str) -> list[int]:
    return list(text.encode())


def starts_in(source: str, messages: list[dict[str, Any]], *, opened: bool = False) -> list[str]:
    """The text at each place that was found, the last user's first."""
    template = ChatTemplate(source)
    text = template.render(messages)
    found = message_starts(template, messages, encode(text), encode, opened=opened, tools=None)
    return [text[at : at + 18] for at in (found.turn, *found.positions)]


def chat(turns: int) -> list[dict[str, Any]]:
    messages = [{"role": "system", "content": "be brief"}]
    for number in range(turns):
        messages.append({"role": "user", "content": f"q{number}"})
        messages.append({"role": "assistant", "content": f"<think>hm</think>a{number}"})
    return messages[:-1]


def test_the_first_user_message_and_the_last_ones_are_found() -> None:
    found = starts_in(CHATML, chat(6))
    assert found[0].startswith("<|im_start|>user\nq"[:18])
    assert len(found) == 1 + 4


def test_a_message_that_is_written_otherwise_when_it_is_last_is_found_where_both_agree() -> None:
    turn, *found = starts_in(DROPS_REASONING, chat(2), opened=True)
    assert found[0].startswith("<user>q0<assistant")
    # With its reasoning the first answer is another text, but for its tag.
    assert turn == found[1] == "a0<user>q1<assista"
    assert found[2] == "<assistant><think>"


def test_a_template_that_refuses_half_a_conversation_costs_nothing_but_the_places() -> None:
    source = "{% if messages | length < 4 %}{{ raise_exception('too short') }}{% endif %}" + CHATML
    assert starts_in(source, chat(2))[1:] == []
