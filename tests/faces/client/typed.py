"""The types that an OpenAPI document declares, as Python writes them."""

from __future__ import annotations

from typing import Any

_PLAIN = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
_REF = "#/components/schemas/"


def annotation(schema: dict[str, Any]) -> str:
    """The type of a value: `list[Reason] | None`."""
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(_REF)
        return "Any" if name == "JsonValue" else name
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(annotation(one) for one in schema["anyOf"]))
    if schema.get("type") == "array":
        return f"list[{annotation(schema['items'])}]"
    if schema.get("type") == "object":
        return f"dict[str, {annotation(schema.get('additionalProperties', {}))}]"
    return _PLAIN.get(str(schema.get("type")), "Any")


def declared_types(document: dict[str, Any]) -> dict[str, tuple[str, dict[str, str]]]:
    """Each schema that has fields: its meaning, and the type of each field."""
    return {
        name: (schema.get("description", ""), {field: annotation(about) for field, about in schema["properties"].items()})
        for name, schema in document["components"]["schemas"].items()
        if "properties" in schema
    }
