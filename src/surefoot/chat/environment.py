"""The Jinja environment that chat templates expect: Hugging Face's, sandboxed.

The names here are an interface that model files rely on; its source is transformers'
`chat_template_utils.py`.
"""

import json
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment


class RefusedByTemplateError(Exception):
    """The template called `raise_exception`; the text is the template's own."""


class GenerationTag(Extension):
    """`{% generation %}`: marks what an assistant wrote, for training; here it changes nothing."""

    tags = {"generation"}  # noqa: RUF012 - Jinja's interface

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """Put the body where the block was."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def environment() -> ImmutableSandboxedEnvironment:
    """A new environment: templates can change nothing and reach nothing but what they are given."""
    made = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, loopcontrols]
    )
    made.filters["tojson"] = _to_json
    made.globals["raise_exception"] = _raise_exception
    made.globals["strftime_now"] = _strftime_now
    return made


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as models were trained on it: Jinja's own filter escapes `<` and non-ASCII."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _raise_exception(message: str) -> NoReturn:
    raise RefusedByTemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)
