"""Request fields of other servers: refused if they would change the answer, never ignored then.

A field that asks for nothing special is accepted. One that nobody here knows is ignored, as
llama-server does, and the response says so in `surefoot.warnings`.
"""

from collections.abc import Mapping
from typing import Any

import orjson

from surefoot.server.errors import invalid

NEUTRAL: dict[str, tuple[Any, ...]] = {
    "add_generation_prompt": (True,),
    "audio": (),
    "best_of": (1,),
    "continue_final_message": (False,),
    "dry_multiplier": (0,),
    "dynatemp_range": (0,),
    "echo": (False,),
    "frequency_penalty": (0,),
    "function_call": ("none", "auto"),
    "functions": ([],),
    "grammar": ("",),
    "guided_choice": (),
    "guided_grammar": (),
    "guided_json": (),
    "guided_regex": (),
    "ignore_eos": (False,),
    "json_schema": ({},),
    "logit_bias": ({}, []),
    "logprobs": (False,),
    "min_tokens": (0,),
    "mirostat": (0,),
    "modalities": (["text"],),
    "n": (1,),
    "n_probs": (0,),
    "presence_penalty": (0,),
    "prompt_logprobs": (),
    "repeat_penalty": (1,),
    "repetition_penalty": (1,),
    "response_format": ({"type": "text"},),
    "samplers": (),
    "suffix": ("",),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "top_logprobs": (0,),
    "top_n_sigma": (0, -1),
    "typical_p": (1,),
    "verbosity": ("medium",),
    "web_search_options": (),
    "xtc_probability": (0,),
}
"""Fields that would change the answer and are not supported yet, with the values that change
nothing; null never does."""

HARMLESS = frozenset(
    {
        "metadata",
        "parallel_tool_calls",
        "prediction",
        "prompt_cache_key",
        "prompt_cache_retention",
        "repeat_last_n",
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
        if name in NEUTRAL:
            if value is not None and not any(_same(value, other) for other in NEUTRAL[name]):
                raise invalid(name, _refusal(NEUTRAL[name]), code="unsupported_field")
        elif name not in HARMLESS:
            warnings.append(f"unknown field {name!r} was ignored")
    return warnings


def _same(value: Any, other: Any) -> bool:
    """Equality that takes 0 and 0.0 for the same and 0 and false not."""
    return bool(value == other) and isinstance(value, bool) == isinstance(other, bool)


def _refusal(neutral: tuple[Any, ...]) -> str:
    accepted = f" or set it to {orjson.dumps(neutral[0]).decode()}" if neutral else ""
    return f"is not supported by this server yet; leave it out{accepted}"
