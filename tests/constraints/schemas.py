"""Fifty JSON schemas over the draft-2020-12 keywords that grammars support."""

from typing import Any

SCHEMAS: list[dict[str, Any]] = [
    {"type": "object"},
    {"type": "array"},
    {"type": "string"},
    {"type": "integer"},
    {"type": "number"},
    {"type": "boolean"},
    {"type": "null"},
    {"type": ["string", "null"]},
    {"type": ["integer", "boolean"]},
    {"enum": ["red", "green", 3, None, True]},
    {"const": {"a": [1, "two"]}},
    {"const": "only"},
    {"type": "string", "minLength": 2, "maxLength": 5},
    {"type": "string", "maxLength": 0},
    {"type": "string", "pattern": "^[a-z]{2,4}-[0-9]+$"},
    {"type": "string", "pattern": "^(ab|cd)*$", "maxLength": 20},
    {"type": "string", "format": "date"},
    {"type": "string", "format": "time"},
    {"type": "string", "format": "date-time"},
    {"type": "string", "format": "email"},
    {"type": "string", "format": "ipv4"},
    {"type": "string", "format": "uuid"},
    {"type": "integer", "minimum": 3, "maximum": 17},
    {"type": "integer", "exclusiveMinimum": -5, "exclusiveMaximum": 5},
    {"type": "integer", "minimum": 1000},
    {"type": "integer", "maximum": -1000},
    {"type": "integer", "multipleOf": 5, "minimum": 0, "maximum": 100},
    {"type": "number", "minimum": 0.5, "maximum": 1.5},
    {"type": "number", "exclusiveMinimum": 0},
    {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 3},
    {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 2},
    {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "items": False},
    {
        "type": "array",
        "prefixItems": [{"const": 1}],
        "items": {"type": "null"},
        "minItems": 1,
        "maxItems": 3,
    },
    {"type": "array", "items": {"type": "array", "items": {"enum": ["x", "o"]}, "maxItems": 2}},
    {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
    {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
        "required": ["b"],
        "additionalProperties": False,
    },
    {"type": "object", "properties": {}, "additionalProperties": False},
    {"type": "object", "additionalProperties": {"type": "integer"}},
    {
        "type": "object",
        "patternProperties": {"^x[0-9]$": {"type": "boolean"}},
        "additionalProperties": False,
    },
    {"anyOf": [{"type": "integer"}, {"type": "string", "maxLength": 3}]},
    {"oneOf": [{"type": "integer"}, {"type": "string", "maxLength": 3}]},
    {
        "allOf": [
            {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
            {"properties": {"b": {"type": "boolean"}}, "required": ["b"]},
        ]
    },
    {
        "$defs": {"name": {"type": "string", "minLength": 1, "maxLength": 8}},
        "type": "object",
        "properties": {"first": {"$ref": "#/$defs/name"}, "last": {"$ref": "#/$defs/name"}},
        "required": ["first", "last"],
        "additionalProperties": False,
    },
    {
        "$defs": {
            "tree": {
                "type": "object",
                "properties": {
                    "value": {"type": "integer"},
                    "left": {"anyOf": [{"$ref": "#/$defs/tree"}, {"type": "null"}]},
                },
                "required": ["value", "left"],
                "additionalProperties": False,
            }
        },
        "$ref": "#/$defs/tree",
    },
    {
        "type": "object",
        "properties": {"kind": {"const": "circle"}, "radius": {"type": "number", "minimum": 0}},
        "required": ["kind", "radius"],
        "additionalProperties": False,
    },
    {
        "anyOf": [
            {
                "type": "object",
                "properties": {"kind": {"const": kind}, key: {"type": "integer"}},
                "required": ["kind", key],
                "additionalProperties": False,
            }
            for kind, key in (("square", "side"), ("circle", "radius"))
        ]
    },
    {
        "type": "object",
        "properties": {"a": {"type": "object", "properties": {"b": {"type": "array"}}}},
        "required": ["a"],
    },
    {
        "title": "Person",
        "description": "Someone",
        "type": "object",
        "properties": {
            "name": {"type": "string", "title": "Name", "examples": ["Ada"]},
            "emails": {"type": "array", "items": {"type": "string", "format": "email"}},
        },
        "required": ["name"],
        "additionalProperties": False,
    },
    {"type": "object", "properties": {"a": {"type": "string", "default": "x"}}, "minProperties": 0},
    {"type": "array", "items": {"anyOf": [{"type": "null"}, {"type": "object"}]}, "maxItems": 2},
]
