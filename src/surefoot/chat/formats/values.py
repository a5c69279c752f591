"""Values that are written without JSON's quotes: which are texts, and what others say.

Knows as much of JSON schema as that takes, and checks nothing.
"""

import json
from collections.abc import Mapping
from typing import Any

from surefoot.chat.formats.scanning import json_value

Schema = Mapping[str, Any] | bool

DEFINITIONS = ("$defs", "definitions")
"""Where a schema keeps what its `$ref`s point to."""

_DEEPEST = 8

_KINDS = {
    bool: frozenset({"boolean"}),
    int: frozenset({"integer", "number"}),
    float: frozenset({"number"}),
    str: frozenset({"string"}),
    list: frozenset({"array"}),
    dict: frozenset({"object"}),
    type(None): frozenset({"null"}),
}

_WORDS = {"true": "boolean", "false": "boolean", "null": "null", "none": "null"}
"""Words that models also write as Python has them."""


class Parameters:
    """The parameters of one function.

    Args:
        schema: the schema of its arguments, as a tool gives it.

    Attributes:
        required: names of those that must be given.
        schemas: the schema of each by its name, complete in itself.
    """

    def __init__(self, schema: Mapping[str, Any] | None) -> None:
        root = schema or {}
        shared = {key: root[key] for key in DEFINITIONS if key in root}
        self.required = frozenset(key for key in _list(root, "required") if isinstance(key, str))
        properties = root.get("properties")
        self.schemas: dict[str, Schema] = {
            key: {**shared, **value} if isinstance(value, Mapping) else value is not False
            for key, value in (properties if isinstance(properties, Mapping) else {}).items()
        }

    def takes_text(self, key: str) -> bool:
        """Whether what is written for a parameter is a text as it stands. So it is for one that
        nothing is known of."""
        return self._kinds(key) in (None, frozenset({"string"}))

    def options(self, key: str) -> list[str] | None:
        """The texts that a parameter may be; None for any."""
        schema = self.schemas.get(key, True)
        if isinstance(schema, bool):
            return None
        return [str(option) for option in _list(_resolved(schema, schema), "enum")] or None

    def json(self, key: str, text: str) -> str:
        """The JSON of what is written for a parameter that need not be a text.

        What is no JSON, or JSON of a kind that it can't be where it can be a text, is a text.
        """
        kinds = self._kinds(key)
        word = _WORDS.get(text.strip().lower())
        if word is not None and kinds is not None and word in kinds:
            return "null" if word == "null" else text.strip().lower()
        try:
            value = json_value(text)
        except ValueError:
            return json.dumps(text.strip(), ensure_ascii=False)
        if kinds is not None and "string" in kinds and not _KINDS[type(value)] & kinds:
            return json.dumps(text, ensure_ascii=False)
        return text.strip()

    def _kinds(self, key: str) -> frozenset[str] | None:
        schema = self.schemas.get(key, True)
        return None if isinstance(schema, bool) else _kinds(schema, schema, 0)


def _kinds(schema: Any, root: Mapping[str, Any], depth: int) -> frozenset[str] | None:
    """The kinds of value that a schema allows; None if it does not say."""
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return None
    schema = _resolved(schema, root)
    kind = schema.get("type")
    if isinstance(kind, str):
        return frozenset([kind])
    if kinds := [kind for kind in _list(schema, "type") if isinstance(kind, str)]:
        return frozenset(kinds)
    values = _list(schema, "enum") or ([schema["const"]] if "const" in schema else [])
    if values:
        return frozenset().union(*(_KINDS[type(value)] for value in values))
    choices = _list(schema, "anyOf") or _list(schema, "oneOf") or _list(schema, "allOf")
    found = [_kinds(choice, root, depth + 1) for choice in choices]
    if found and None not in found:
        return frozenset().union(*(kinds for kinds in found if kinds is not None))
    return frozenset({"object"}) if "properties" in schema else None


def _list(schema: Mapping[str, Any], key: str) -> list[Any]:
    """A list in a schema; an empty one where there is something else, which others complain of."""
    found = schema.get(key)
    return found if isinstance(found, list) else []


def _resolved(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """A schema, or what it refers to among the definitions."""
    for _ in range(_DEEPEST):
        reference = schema.get("$ref")
        if not isinstance(reference, str):
            break
        target: Any = root
        for step in reference.removeprefix("#/").split("/"):
            target = target.get(step) if isinstance(target, Mapping) else None
        if not isinstance(target, Mapping):
            break
        schema = target
    return schema
