"""What can be said of a JSON schema before llguidance sees it, and where a fault in one lies.

Nothing that a schema demands may be dropped in silence: keywords that llguidance does not know as
demands are refused by it, and those that nobody knows are warned of here.
"""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from surefoot.constraints.errors import GrammarError

Schema = dict[str, Any]

_SCHEMAS_BY_NAME = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_SCHEMA_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_SCHEMAS = (
    "items",
    "additionalItems",
    "additionalProperties",
    "propertyNames",
    "contains",
    "not",
    "if",
    "then",
    "else",
    "unevaluatedItems",
    "unevaluatedProperties",
)

_DEMANDS = {
    "type",
    "enum",
    "const",
    "required",
    "minProperties",
    "maxProperties",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minContains",
    "maxContains",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "pattern",
    "format",
    "dependentRequired",
    "$ref",
    "$dynamicRef",
}
_REMARKS = {
    "$schema",
    "$id",
    "id",
    "$anchor",
    "$dynamicAnchor",
    "$vocabulary",
    "$comment",
    "title",
    "description",
    "default",
    "examples",
    "example",
    "deprecated",
    "readOnly",
    "writeOnly",
    "contentEncoding",
    "contentMediaType",
    "contentSchema",
    "nullable",
    "discriminator",
    "x-guidance",
}
KNOWN = _DEMANDS | _REMARKS | {*_SCHEMAS_BY_NAME, *_SCHEMA_LISTS, *_SCHEMAS}

MOST_TRIALS = 200
"""So many parts of a schema are tried to find the one at fault."""

FINITE_TYPES = ("string", "number", "integer", "boolean", "null")


def schema_of(source: str) -> Schema:
    """A schema as a request has it.

    Raises:
        GrammarError: it is none, or nothing satisfies it.
    """
    try:
        schema = json.loads(source)
    except RecursionError as error:
        raise GrammarError("json_schema", "has too many levels inside each other") from error
    except ValueError as error:
        raise GrammarError("json_schema", f"is no valid JSON: {error}") from error
    if schema is True:
        return {}
    if not isinstance(schema, dict):
        raise GrammarError("json_schema", "must be a JSON object; false allows no text at all")
    return schema


def parts(schema: Schema, path: str = "#") -> Iterator[tuple[str, Schema]]:
    """A schema and all schemas in it, each with its path; outer ones first."""
    waiting = [(path, schema)]
    while waiting:
        place, part = waiting.pop(0)
        yield place, part
        waiting.extend(_inner(part, place))


_EXCLUDING = re.compile(r"\[\^((?:\\.|[^\]\\])*)\]")


def warnings(schema: Schema) -> list[str]:
    """What a schema seems to demand but does not."""
    found = []
    for path, part in parts(schema):
        unknown = [repr(key) for key in part if key not in KNOWN and not key.startswith("x-")]
        if unknown:
            found.append(f"json_schema: {', '.join(unknown)} at {path} means nothing")
        if part.get("nullable") is True:
            found.append(f"json_schema: 'nullable' at {path} means nothing; put null into type")
        if any(_excludes_escaped(pattern) for pattern in _patterns(part)):
            found.append(
                f"json_schema: the pattern at {path} excludes quotes or backslashes, which JSON "
                "writes as escapes; they are not kept out"
            )
    return found


def _patterns(part: Schema) -> list[str]:
    further = part.get("patternProperties")
    found = [part.get("pattern"), *(further if isinstance(further, dict) else ())]
    return [pattern for pattern in found if isinstance(pattern, str)]


def _excludes_escaped(pattern: str) -> bool:
    """Whether a class of a pattern excludes characters that are escaped in JSON; llguidance lets
    them through."""
    return any('"' in found or r"\\" in found for found in _EXCLUDING.findall(pattern))


def at_fault(schema: Schema, complaint: str, complaint_about: Callable[[Schema], str]) -> str:
    """The path of the innermost part that llguidance complains about in the same words.

    Args:
        schema: the whole schema.
        complaint: what is wrong with it.
        complaint_about: tells what is wrong with another schema; empty for nothing.
    """
    names: Schema = {
        key: schema[key] for key in ("$schema", "$defs", "definitions") if key in schema
    }
    path, part, trials = "#", schema, 0
    while True:
        for place, inner in _inner(part, path):
            trials += 1
            if trials > MOST_TRIALS:
                return path
            # Names are needed for references, but their own faults must not be found again.
            known: Schema = {k: v for k, v in names.items() if k not in inner}
            if complaint_about({**known, **inner}) == complaint:
                path, part = place, inner
                break
        else:
            return path


def never_ends(schema: Schema) -> bool:
    """Whether every text would have to go on for ever, since a part demands itself."""
    by_path = dict(parts(schema))
    finite: set[str] = set()
    while True:
        more = {path for path, part in by_path.items() if _may_end(part, path, by_path, finite)}
        if more == finite:
            return "#" not in finite
        finite = more


def _may_end(part: Schema, path: str, by_path: dict[str, Schema], finite: set[str]) -> bool:
    def ends(place: str) -> bool:
        return place not in by_path or place in finite

    reference = part.get("$ref")
    if isinstance(reference, str) and not ends(reference):
        return False
    if "enum" in part or "const" in part:
        return True
    for key, enough in (("allOf", all), ("anyOf", any), ("oneOf", any)):
        options = part.get(key)
        if isinstance(options, list) and options:
            places = [f"{path}/{key}/{index}" for index in range(len(options))]
            if not enough(map(ends, places)):
                return False
    types = part.get("type")
    kinds = [types] if isinstance(types, str) else types
    if not isinstance(kinds, list) or any(kind in FINITE_TYPES for kind in kinds):
        return True
    if "object" in kinds and all(
        ends(f"{path}/properties/{_escaped(name)}") for name in _strings(part.get("required"))
    ):
        return True
    least = part.get("minItems", 0)
    first = part.get("prefixItems")
    given = len(first) if isinstance(first, list) else 0
    return "array" in kinds and (
        not isinstance(least, int)
        or (
            all(ends(f"{path}/prefixItems/{index}") for index in range(min(given, least)))
            and (least <= given or ends(f"{path}/items"))
        )
    )


def _strings(value: object) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _inner(schema: Schema, path: str) -> list[tuple[str, Schema]]:
    found: list[tuple[str, Any]] = []
    for key in _SCHEMAS_BY_NAME:
        named = schema.get(key)
        if isinstance(named, dict):
            found += [(f"{path}/{key}/{_escaped(name)}", part) for name, part in named.items()]
    for key in _SCHEMA_LISTS:
        listed = schema.get(key)
        if isinstance(listed, list):
            found += [(f"{path}/{key}/{index}", part) for index, part in enumerate(listed)]
    found += [(f"{path}/{key}", schema[key]) for key in _SCHEMAS if key in schema]
    return [(place, part) for place, part in found if isinstance(part, dict)]


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
