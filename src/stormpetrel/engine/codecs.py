"""Formats in which results of the engine are kept: JSON for what is made of numbers, texts and dataclasses, and files by name.

a type -> JsonCodec -> bytes and back; floats come back to the last bit, also NaN and infinity. FilesCodec: name -> content.
"""

from __future__ import annotations

import base64
import binascii
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


class FilesCodec:
    """The files of a folder, content by name, as JSON with base64."""

    def encode(self, result: dict[str, bytes]) -> bytes:
        """The files as JSON."""
        return json.dumps({name: base64.b64encode(content).decode() for name, content in result.items()}).encode()

    def decode(self, content: bytes) -> dict[str, bytes]:
        """The files again; ValueError where these bytes are none."""
        try:
            files = {str(name): base64.b64decode(text, validate=True) for name, text in json.loads(content).items()}
        except (AttributeError, TypeError, binascii.Error) as error:
            raise ValueError(str(error)) from error
        if any(name in ("", ".", "..") or "/" in name or "\0" in name for name in files):
            raise ValueError("A name of a file leads out of its folder.")
        return files
