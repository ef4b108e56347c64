"""Results of finished items on disk, so that a run that was killed goes on where it was.

name of an item, result -> KeptResults -> one file per item, in the caller's own format (never pickle). A file that is damaged, or
of another run (other settings, other data, another version), counts as not there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, Protocol, TypeVar

from stormpetrel.errors import EngineError
from stormpetrel.private_files import write_private

FORMAT: Final = 1
_SUFFIX: Final = ".result"
Kept = TypeVar("Kept")


class Codec(Protocol[Kept]):
    """How a result becomes bytes, and bytes the same result again."""

    def encode(self, result: Kept) -> bytes:
        """The result as bytes."""

    def decode(self, content: bytes) -> Kept:
        """The result again; ValueError where these bytes are none."""


@dataclass(frozen=True, slots=True)
class KeptResults(Generic[Kept]):
    """A folder with a file for each result of a run.

    Parameters
    ----------
    folder
        Where the files lie; several runs may share it. It is made when the first result is there.
    run
        What else the results depend on besides the item's name: settings, a digest of the data, the version.
    """

    folder: Path
    run: Mapping[str, Any]
    codec: Codec[Kept]

    def has(self, name: str) -> bool:
        """Whether the result of this item is there and whole."""
        return self._content(name) is not None

    def read(self, name: str) -> Kept:
        """The result of this item."""
        content = self._content(name)
        if content is None:
            raise EngineError(f"The kept result of {name!r} in {self.folder} is gone.", hint="Run the command again.")
        return self.codec.decode(content)

    def write(self, name: str, result: Kept) -> None:
        """Keep the result of this item, whole or not at all."""
        self.folder.mkdir(parents=True, exist_ok=True)
        content = self.codec.encode(result)
        write_private(self._path(name), _header(content) + content)

    def _path(self, name: str) -> Path:
        key = json.dumps([FORMAT, self.run, name], sort_keys=True)
        return self.folder / (hashlib.sha256(key.encode()).hexdigest()[:40] + _SUFFIX)

    def _content(self, name: str) -> bytes | None:
        try:
            whole = self._path(name).read_bytes()
        except FileNotFoundError:
            return None
        digest, _, content = whole.partition(b"\n")
        if digest + b"\n" != _header(content):
            return None
        try:
            self.codec.decode(content)
        except ValueError:
            return None
        return content


def _header(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode() + b"\n"
