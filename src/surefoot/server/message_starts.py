"""Where the messages of a chat begin in its prompt, which the prompt cache wants to know."""

from collections.abc import Callable
from collections.abc import Sequence as Series
from typing import Any, NamedTuple

from surefoot.chat import ChatTemplate
from surefoot.chat.template import ChatTemplateError, Message
from surefoot.engine.slot import common_prefix

_MOST_TURNS = 3
"""The starts of so many users' messages are looked for, from the last one back. Each costs a
rendering; those of earlier ones were, when they were the last."""


class MessageStarts(NamedTuple):
    """Positions in a prompt, in tokens.

    Attributes:
        positions: where messages begin, ascending.
        turn: where the last user's message begins; 0 if that is not known.
    """

    positions: tuple[int, ...] = ()
    turn: int = 0


def message_starts(
    template: ChatTemplate,
    messages: Series[Message],
    prompt: Series[int],
    encode: Callable[[str], list[int]],
    *,
    opened: bool,
    **variables: Any,
) -> MessageStarts:
    """Find them by rendering the beginnings of the conversation.

    A template may write a message otherwise when it is the last one. Then the place is taken up to
    which both texts are the same: a later prompt begins like that, too.

    Args:
        template: the model's.
        messages: the conversation.
        prompt: what the template made of it, in tokens.
        encode: makes tokens of a text.
        opened: whether the prompt begins the answer's reasoning, which the next prompt may leave
            out; then the answer's own message counts, too.
        variables: whatever else the template was told.
    """
    users = [index for index, message in enumerate(messages) if message.get("role") == "user"]
    wanted = {*users[:1], *users[-_MOST_TURNS:]}
    if opened:
        wanted.add(len(messages))
    found = {}
    for index in sorted(wanted - {0}):
        try:
            start = template.render(messages[:index], add_generation_prompt=False, **variables)
        except (ChatTemplateError, TypeError):
            continue  # it does not take half a conversation
        same = common_prefix(encode(start), tuple(prompt))
        if same:
            found[index] = same
    turn = found.get(users[-1], 0) if users else 0
    return MessageStarts(tuple(sorted(set(found.values()))), turn)
