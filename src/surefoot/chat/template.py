"""A chat template: renders messages with the Jinja2 source that a model file carries."""

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from jinja2 import TemplateSyntaxError, meta

from surefoot.chat.environment import RefusedByTemplateError, environment
from surefoot.decoding import SurefootError

log = logging.getLogger(__name__)

Message = Mapping[str, Any]
"""A message as OpenAI has it: `role`, `content` (text or text parts), and whatever else."""

CHATML = """\
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' + (message.content or '') + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""
"""What is used for a model file without a template, as llama-server does."""

_NEEDLE = "surefoot-needle"
_NAME = "surefoot-function"


class ChatTemplateError(SurefootError):
    """A template is no valid Jinja2, or can't render what it was given."""


class ChatTemplate:
    """Renders messages to a prompt.

    Args:
        source: Jinja2 source.
        bos_text: text of the BOS token, which templates know as `bos_token`.
        eos_text: text of the EOS token, which they know as `eos_token`.

    Attributes:
        source: as given.
        variables: the names that the template looks up, so what it can be told at all.

    Raises:
        ChatTemplateError: the source is no valid template.
    """

    def __init__(self, source: str, bos_text: str = "", eos_text: str = "") -> None:
        jinja = environment()
        try:
            self._template = jinja.from_string(source)
            self.variables = frozenset(meta.find_undeclared_variables(jinja.parse(source)))
        except TemplateSyntaxError as error:
            raise ChatTemplateError(
                f"the model's chat template is no valid Jinja2: line {error.lineno}: "
                f"{error.message}"
            ) from error
        except (SyntaxError, RecursionError, ValueError) as error:
            # Jinja2 turns a template into Python, which may refuse what came of it.
            raise ChatTemplateError(f"the model's chat template can't be used: {error}") from error
        self.source = source
        self._tokens = {"bos_token": bos_text, "eos_token": eos_text}
        self._knows_developer = "developer" in source
        self._wants_parts = self._reads_only_parts()
        self._wants_objects, self._empties = (
            self._call_needs() if "tool_calls" in source else (False, [])
        )

    def render(
        self,
        messages: Iterable[Message],
        /,
        *,
        tools: list[dict[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **variables: Any,
    ) -> str:
        """The prompt's text.

        Text parts are joined, unless the template reads nothing but parts, "developer" becomes
        "system" for templates that don't know it, and the arguments of calls become objects for
        those that need them. Content that is null or missing is an empty text; beside calls, null
        and an empty text stand for each other where the template fails on one of them.

        Args:
            messages: the conversation, oldest first.
            tools: descriptions of functions that the model may call.
            add_generation_prompt: whether to open the assistant's turn.
            variables: whatever else the template knows, such as `enable_thinking`.

        Raises:
            ChatTemplateError: the template refuses the messages or fails on them.
        """
        prepared = [self._as_expected(message) for message in messages]
        variables |= {"tools": tools, "add_generation_prompt": add_generation_prompt}
        return self._render(prepared, variables)

    def _render(self, messages: list[Message], variables: Mapping[str, Any]) -> str:
        try:
            return self._template.render({**self._tokens, **variables, "messages": messages})
        except RefusedByTemplateError as error:
            raise ChatTemplateError(
                f"the model's chat template refuses these messages: {error}"
            ) from error
        except Exception as error:  # a template is somebody's program: it may fail in any way
            raise ChatTemplateError(
                f"the model's chat template failed on these messages: {error}"
            ) from error

    def _as_expected(self, message: Message) -> Message:
        expected = dict(message)
        if expected.get("role") == "developer" and not self._knows_developer:
            expected["role"] = "system"
        calls = expected.get("tool_calls")
        if self._wants_objects and calls:
            expected["tool_calls"] = [_with_object(call) for call in calls]
        content = expected.get("content")
        if not content and not isinstance(content, list):
            content = expected["content"] = self._empty(content) if calls else ""
        if self._wants_parts and isinstance(content, str):
            expected["content"] = _parts(content)
        elif not self._wants_parts and isinstance(content, list):
            expected["content"] = "".join(part["text"] for part in content)
        return expected

    def _reads_only_parts(self) -> bool:
        """Whether the template drops a text and shows a text part: found out by trying it."""
        return not self._shows(_NEEDLE) and self._shows(_parts(_NEEDLE))

    def _empty(self, content: str | None) -> str | None:
        """Content that is empty, beside a call: as given, if the template can show that."""
        given = None if content is None else ""
        return self._empties[0] if self._empties and given not in self._empties else given

    def _call_needs(self) -> tuple[bool, list[str | None]]:
        """What a call needs to be shown in full: found out by trying it.

        Clients send arguments as a JSON text. Some templates print it, others want an object,
        which they write as JSON or go through. And some show a call only beside no content at all,
        others only beside a text, be it empty.

        Returns:
            Whether the arguments must be an object, and what empty content may be; nothing if that
            makes no difference.
        """
        as_text, as_object = f'{{"{_NEEDLE}": 1}}', {_NEEDLE: 1}

        def verbatim(shown: str) -> bool:
            # Neither escaped once more nor in braces of the template's own.
            return as_text in shown and f"{{{as_text}" not in shown

        def gone_through(shown: str) -> bool:
            return _NEEDLE in shown

        def named(shown: str) -> bool:
            return _NAME in shown

        tries: list[tuple[str | dict[str, int], Callable[[str], bool]]] = [
            (as_text, verbatim),
            (as_object, gone_through),
            (as_text, named),
        ]
        for arguments, good in tries:
            empties: list[str | None] = []
            for empty in ("", None):
                shown = self._render_call(arguments, empty)
                if good(shown) and (empty is not None or "None" not in shown):
                    empties.append(empty)
            if empties:
                return arguments is as_object, empties
        return False, []

    def _render_call(self, arguments: str | dict[str, int], content: str | None) -> str:
        function = {"name": _NAME, "arguments": arguments}
        call = {"id": "a1b2c3d4e", "type": "function", "function": function}
        messages: list[Message] = [
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": content, "tool_calls": [call]},
        ]
        try:
            return self._render(messages, {"add_generation_prompt": False})
        except ChatTemplateError:
            return ""

    def _shows(self, content: str | list[dict[str, str]]) -> bool:
        message = {"role": "user", "content": content}
        try:
            return _NEEDLE in self._render([message], {"add_generation_prompt": True})
        except ChatTemplateError:
            return False


def _with_object(call: Any) -> Any:
    """A tool call with its arguments as an object, if they are the text of one, or of nothing."""
    if not isinstance(call, dict) or not isinstance(call.get("function"), dict):
        return call
    function = call["function"]
    try:
        arguments = json.loads(function.get("arguments") or "{}")
    except (ValueError, TypeError, RecursionError):
        return call
    if not isinstance(arguments, dict):
        return call
    return {**call, "function": {**function, "arguments": arguments}}


def _parts(text: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text}]


def template_for(source: str | None, bos_text: str = "", eos_text: str = "") -> ChatTemplate:
    """A model's template or, if its file has none, ChatML.

    Raises:
        ChatTemplateError: the file's template is not valid.
    """
    if source is None:
        log.warning(
            "the model file has no chat template; using ChatML, which the model may not know"
        )
        source = CHATML
    return ChatTemplate(source, bos_text, eos_text)
