"""What a body asks of its text's form: `response_format`, grammars, choices."""

from typing import Any, NamedTuple

import orjson

from surefoot.constraints import ControlSpec, Grammar, GrammarError
from surefoot.constraints.compiling import LARK_MARK
from surefoot.server.errors import invalid
from surefoot.server.schemas import GenerationBody
from surefoot.server.service import Service


class Ruled(NamedTuple):
    """A grammar, and the field that asks for it."""

    field: str
    grammar: Grammar


def grammar_of(body: GenerationBody) -> Ruled | None:
    """The grammar that a body asks for; None for none.

    Raises:
        ApiError: it asks for several, or for one that is not understood.
    """
    found = [
        Ruled(body.written(name), grammar)
        for name, grammar in _asked(body).items()
        if grammar is not None
    ]
    if len(found) > 1:
        raise invalid(found[1].field, f"can't be used together with {found[0].field}")
    return found[0] if found else None


def checked(service: Service, spec: ControlSpec, field: str) -> list[str]:
    """Compile rules before anything is generated; returns warnings about them.

    Args:
        service: the server.
        spec: the rules.
        field: the request's field that is at fault if they are none.

    Raises:
        ApiError: they are none; the text says where they are wrong.
    """
    try:
        warnings = service.controls.check(spec)
    except GrammarError as error:
        raise invalid(field, error.problem, code="invalid_grammar") from error
    return [f"{field}: {warning}" for warning in warnings]


def _asked(body: GenerationBody) -> dict[str, Grammar | None]:
    return {
        "response_format": _response_format(body.response_format),
        "json_schema": None if body.json_schema in (None, {}) else _schema(body.json_schema),
        "grammar": _written(body.grammar) if body.grammar else None,
        "regex": None if body.regex is None else Grammar("regex", body.regex),
        "choice": None if body.choice is None else Grammar("choice", _json(body.choice)),
        "structured_outputs": _structured(body.structured_outputs),
    }


def _written(source: str) -> Grammar:
    """A grammar as llama.cpp takes it: GBNF, or Lark if it says so."""
    lark = source.lstrip().startswith((LARK_MARK, "start:"))
    return Grammar("lark" if lark else "gbnf", source)


def _response_format(wanted: dict[str, Any] | None) -> Grammar | None:
    """OpenAI's field, with additions of other servers."""
    match wanted:
        case None | {"type": "text"}:
            return None
        case {"type": "json_object"}:
            schema = wanted.get("schema")
            return Grammar("json_object") if schema in (None, {}) else _schema(_object(schema))
        case {"type": "json_schema", "json_schema": {"schema": schema}}:
            return _schema(_object(schema))
        case {"type": "json_schema", "schema": schema}:
            return _schema(_object(schema))
        case {"type": "json_schema"}:
            raise invalid("response_format", "json_schema needs a schema in it")
        case {"type": "grammar", "grammar": str(source)}:
            return _written(source)
        case {"type": "regex", "pattern": str(pattern)}:
            return Grammar("regex", pattern)
    kind = wanted.get("type")
    said = f", not {kind!r}" if isinstance(kind, str) else ""
    raise invalid("response_format", f"type must be text, json_object or json_schema{said}")


def _object(schema: Any) -> dict[str, Any]:
    if not isinstance(schema, dict):
        raise invalid("response_format", "schema must be a JSON schema, which is an object")
    return schema


def _structured(wanted: dict[str, Any] | None) -> Grammar | None:
    """vLLM's spelling. It may have one rule, and other entries that ask for nothing."""
    given = {name: value for name, value in (wanted or {}).items() if value is not None}
    if not given:
        return None
    if len(given) == 1:
        match given:
            case {"json": dict() | str() as schema}:
                return _schema(schema)
            case {"regex": str(pattern)}:
                return Grammar("regex", pattern)
            case {"choice": list(options)}:
                return Grammar("choice", _json(options))
            case {"grammar": str(source)}:
                return _written(source)
            case {"json_object": True}:
                return Grammar("json_object")
    raise invalid(
        "structured_outputs", "must have one of json, regex, choice, grammar and json_object: true"
    )


def _schema(schema: Any) -> Grammar:
    return Grammar("json_schema", schema if isinstance(schema, str) else _json(schema))


def _json(value: Any) -> str:
    try:
        return orjson.dumps(value).decode()
    except TypeError as error:
        raise invalid("json_schema", "is nested too deeply") from error
