"""Request fields of other servers: refused if they would change the answer, never ignored then.

A field that asks for nothing special is accepted. One that nobody here knows is ignored, as
llama-server does, and the response says so in `surefoot.warnings`.
"""

from collections.abc import Mapping
from typing import Any

import orjson

from surefoot.server.errors import invalid

NEUTRAL: dict[str, tuple[Any, ...]] = {
    "adaptive_target": (-1,),
    "add_generation_prompt": (True,),
    "allowed_token_ids": (),
    "audio": (),
    "bad_words": ([],),
    "best_of": (1,),
    "chat_template": (),
    "continue_final_message": (False,),
    "documents": ([],),
    "early_stopping": (False,),
    "echo": (False,),
    "function_call": ("none", "auto"),
    "functions": ([],),
    "grammar_lazy": (False,),
    "grammar_triggers": ([],),
    "include_stop_str_in_output": (False,),
    "length_penalty": (1,),
    "logprobs": (False,),
    "lora": ([],),
    "modalities": (["text"],),
    "n_indent": (0,),
    "parse_tool_calls": (True,),
    "prompt_logprobs": (),
    "reasoning": (),
    "skip_special_tokens": (True,),
    "suffix": ("",),
    "thinking": ({"type": "disabled"},),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "top_logprobs": (0,),
    "truncate_prompt_tokens": (),
    "use_beam_search": (False,),
    "verbosity": ("medium",),
    "web_search_options": (),
}
"""Fields that would change the answer and are not supported yet, with the values that change
nothing; null never does."""

OFF_BELOW_ZERO = frozenset({"adaptive_target"})
"""Those that are off at any number below 0."""

HARMLESS = frozenset(
    {
        "metadata",
        "parallel_tool_calls",
        "prediction",
        "prompt_cache_key",
        "prompt_cache_retention",
        "safety_identifier",
        "service_tier",
        "store",
        "user",
    }
)
"""Fields that change nothing in the text, whatever their value."""


def check_foreign_fields(fields: Mapping[str, Any]) -> list[str]:
    """Refuse what is not supported; returns warnings about what is ignored.

    Raises:
        ApiError: a field asks for something that is not supported.
    """
    warnings = []
    for name, value in fields.items():
        if value is None and name in NEUTRAL:
            continue
        if name in NEUTRAL:
            if not _changes_nothing(name, value):
                raise invalid(name, _refusal(NEUTRAL[name]), code="unsupported_field")
        elif name not in HARMLESS:
            warnings.append(f"unknown field {name!r} was ignored")
    return warnings


def _changes_nothing(name: str, value: Any) -> bool:
    number = isinstance(value, int | float)
    if name in OFF_BELOW_ZERO and number and value < 0:
        return True
    return any(_same(value, other) for other in NEUTRAL[name])


def _same(value: Any, other: Any) -> bool:
    """Equality that takes 0 and 0.0 for the same and 0 and false not."""
    return bool(value == other) and isinstance(value, bool) == isinstance(other, bool)


def _refusal(neutral: tuple[Any, ...]) -> str:
    accepted = f" or set it to {orjson.dumps(neutral[0]).decode()}" if neutral else ""
    return f"is not supported by this server yet; leave it out{accepted}"
