"""The registry of models: one folder per version, and in SQL which version is current.

A version is written whole, then entered, then made current: a training that dies half-way changes nothing.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from stormpetrel.errors import ModelError
from stormpetrel.store.filesystem import writing
from stormpetrel.store.state import StateStore
from stormpetrel.store.state import models as table


@dataclass(frozen=True, slots=True)
class ModelVersion:
    """One version of one model."""

    name: str
    version: int
    created: str
    about: Mapping[str, Any]
    current: bool


class ModelRegistry:
    """The models of a site."""

    def __init__(self, folder: Path, state: StateStore) -> None:
        self._folder = folder
        self._state = state

    def add(self, name: str, save: Callable[[Path], None], about: Mapping[str, Any]) -> ModelVersion:
        """Save a new version of a model and enter it; it is not current yet."""
        with self._state.writer_lock():
            version = max((known.version for known in self.versions(name)), default=0) + 1
            folder = self.folder_of(name, version)
            with writing(self._folder, doing="save a model"):
                if folder.exists():  # left behind by a training that died before it was entered
                    shutil.rmtree(folder)
                save(folder)
            entry = ModelVersion(name, version, datetime.now(UTC).isoformat(timespec="seconds"), dict(about), current=False)
            with self._state.transaction() as connection:
                connection.execute(
                    sa.insert(table).values(
                        name=name, version=version, created=entry.created, about=json.dumps(entry.about), current=False
                    )
                )
        return entry

    def promote(self, name: str, version: int) -> None:
        """Make a version the current one."""
        if version not in {known.version for known in self.versions(name)}:
            raise ModelError(f"There is no version {version} of the model '{name}'.", hint="Train one: stormpetrel jobs train")
        with self._state.transaction() as connection:
            connection.execute(sa.update(table).where(table.c.name == name).values(current=table.c.version == version))

    def versions(self, name: str | None = None) -> list[ModelVersion]:
        """Every version of a model (of all models if none is named), oldest first."""
        query = sa.select(table).order_by(table.c.name, table.c.version)
        if name is not None:
            query = query.where(table.c.name == name)
        with self._state.transaction() as connection:
            return [
                ModelVersion(row.name, row.version, row.created, json.loads(row.about), bool(row.current))
                for row in connection.execute(query)
            ]

    def current(self, name: str) -> ModelVersion:
        """The version in use; ModelError says how to make one where there is none."""
        for version in reversed(self.versions(name)):
            if version.current:
                return version
        raise ModelError(f"The site has no model '{name}' yet.", hint="Train one: stormpetrel jobs train")

    def folder_of(self, name: str, version: int) -> Path:
        """Where a version lies."""
        return self._folder / name / f"{version:05d}"
