"""Formats in which results of the engine are kept: JSON for what is made of numbers, texts and dataclasses.

a type -> JsonCodec -> bytes and back; floats come back to the last bit, also NaN and infinity.
"""

from __future__ import annotations

import json
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

Value = TypeVar("Value")


class JsonCodec(Generic[Value]):
    """Values of a type that pydantic knows, such as `list[Run]` of a dataclass `Run`, as JSON."""

    def __init__(self, kind: Any) -> None:
        self._adapter: TypeAdapter[Value] = TypeAdapter(kind)

    def encode(self, result: Value) -> bytes:
        """The result as JSON."""
        return json.dumps(self._adapter.dump_python(result, mode="json")).encode()

    def decode(self, content: bytes) -> Value:
        """The result again; ValueError where these bytes are none."""
        try:
            return self._adapter.validate_python(json.loads(content))
        except ValidationError as error:
            raise ValueError(str(error)) from error
