"""What a body asks of its text's form: `response_format`, grammars, choices."""

from typing import Any

import orjson

from surefoot.constraints import Grammar
from surefoot.constraints.compiling import LARK_MARK
from surefoot.server.errors import invalid
from surefoot.server.schemas import GenerationBody


def grammar_of(body: GenerationBody) -> Grammar | None:
    """The grammar that a body asks for; None for none.

    Raises:
        ApiError: it asks for several, or for one that is not understood.
    """
    found = {name: grammar for name, grammar in _asked(body).items() if grammar is not None}
    if len(found) > 1:
        raise invalid(list(found)[1], f"can't be used together with {next(iter(found))}")
    return next(iter(found.values()), None)


def _asked(body: GenerationBody) -> dict[str, Grammar | None]:
    schema = body.json_schema if body.json_schema is not None else body.guided_json
    options = body.choice if body.choice is not None else body.guided_choice
    regex = body.regex if body.regex is not None else body.guided_regex
    source = body.grammar or body.guided_grammar
    return {
        "response_format": _response_format(body.response_format),
        "json_schema": None if schema in (None, {}) else _schema(schema),
        "grammar": _written(source) if source else None,
        "regex": None if regex is None else Grammar("regex", regex),
        "choice": None if options is None else Grammar("choice", _json(options)),
        "structured_outputs": _structured(body.structured_outputs),
    }


def _written(source: str) -> Grammar:
    """A grammar as llama.cpp takes it: GBNF, or Lark if it says so."""
    lark = source.lstrip().startswith((LARK_MARK, "start:"))
    return Grammar("lark" if lark else "gbnf", source)


def _response_format(wanted: dict[str, Any] | None) -> Grammar | None:
    if wanted is None or wanted.get("type") == "text":
        return None
    match wanted.get("type"):
        case "json_object":
            schema = wanted.get("schema")
            return Grammar("json_object") if schema in (None, {}) else _schema(schema)
        case "json_schema":
            inner = wanted.get("json_schema")
            schema = inner.get("schema") if isinstance(inner, dict) else wanted.get("schema")
            if schema is None:
                raise invalid("response_format", "json_schema needs a schema in it")
            return _schema(schema)
        case "grammar":
            return _written(str(wanted.get("grammar", "")))
        case "regex":
            return Grammar("regex", str(wanted.get("pattern", "")))
        case kind:
            raise invalid(
                "response_format", f"type must be text, json_object or json_schema, not {kind!r}"
            )


def _structured(wanted: dict[str, Any] | None) -> Grammar | None:
    """vLLM's spelling."""
    if not wanted:
        return None
    match wanted:
        case {"json": schema}:
            return _schema(schema)
        case {"regex": str(pattern)}:
            return Grammar("regex", pattern)
        case {"choice": list(options)}:
            return Grammar("choice", _json(options))
        case {"grammar": str(source)}:
            return _written(source)
        case {"json_object": True}:
            return Grammar("json_object")
    raise invalid("structured_outputs", "must have one of json, regex, choice and grammar")


def _schema(schema: Any) -> Grammar:
    return Grammar("json_schema", schema if isinstance(schema, str) else _json(schema))


def _json(value: Any) -> str:
    try:
        return orjson.dumps(value).decode()
    except TypeError as error:
        raise invalid("json_schema", "is nested too deeply") from error
