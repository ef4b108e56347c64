"""Migrations of the state store: an ordered list of steps, each from one format to the next.

state of format N -> the steps above N, in order -> state of this version's format, all in one transaction: a step that fails
leaves the store as it was. A step may be run twice on the same site (killed after it had written files, before the commit), so
each looks at what is there. To change the store: declare the table or column in state.py, raise STATE_FORMAT, and add a step.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import sqlalchemy as sa

from stormpetrel.store.identity import identity_of, new_identity, read_identity, write_identity
from stormpetrel.store.registry.entries import Entry, write_entry
from stormpetrel.store.upkeep.forgotten import ForgottenStore


@dataclass(frozen=True, slots=True)
class SiteFiles:
    """What lies next to a state store: steps that move something out of it write here."""

    folder: Path
    key: bytes

    @property
    def tables(self) -> Path:
        """Where the tables lie."""
        return self.folder / "tables"

    @property
    def models(self) -> Path:
        """Where the models lie."""
        return self.folder / "models"


@dataclass(frozen=True, slots=True)
class Migration:
    """What a step works on: a connection inside the transaction, the tables as declared now, and the site's files (if any)."""

    connection: sa.Connection
    metadata: sa.MetaData
    files: SiteFiles | None

    def table(self, name: str) -> sa.Table:
        """A table as this version declares it."""
        return self.metadata.tables[name]

    def create(self, *names: str) -> None:
        """Create tables unless they are there."""
        for name in names:
            self.table(name).create(self.connection, checkfirst=True)

    def add_column(self, table: str, name: str) -> None:
        """Add a column that may be null, as this version declares it, unless it is there."""
        if name not in {column["name"] for column in sa.inspect(self.connection).get_columns(table)}:
            kind = self.table(table).c[name].type.compile(self.connection.dialect)
            self.connection.execute(sa.text(f"ALTER TABLE {table} ADD COLUMN {name} {kind}"))

    def facts(self) -> dict[str, str]:
        """The rows of `meta`."""
        return {row.key: row.value for row in self.connection.execute(sa.select(self.table("meta")))}

    def keep(self, facts: dict[str, str]) -> None:
        """Put rows into `meta`, in place of those of the same key."""
        meta = self.table("meta")
        self.connection.execute(sa.delete(meta).where(meta.c.key.in_(facts)))
        self.connection.execute(sa.insert(meta), [{"key": key, "value": value} for key, value in facts.items()])


@dataclass(frozen=True, slots=True)
class Step:
    """From the format before `to`."""

    to: int
    what: str
    run: Callable[[Migration], None]


def migrate(migration: Migration, *, version: int) -> None:
    """Bring a store of format `found` up to the newest format; the caller holds the lock and commits."""
    for step in STEPS:
        if step.to > version:
            step.run(migration)
            migration.keep({"format": str(step.to)})


def _identify_site(migration: Migration) -> None:
    """State and tables get to know each other, and what only the state knew is kept next to the tables and the models as well."""
    files = migration.files
    there = identity_of(migration.facts()) or (read_identity(files.tables) if files else None)
    identity = there or new_identity()
    migration.keep(identity.as_facts())
    if files is None:
        return
    _keep_tombstones(migration, files)
    _note_models(migration, files)
    write_identity(files.tables, identity)  # last: it says that the rest is there


def _keep_tombstones(migration: Migration, files: SiteFiles) -> None:
    tombstones = ForgottenStore(files.tables, nullcontext)  # the lock is held
    tombstones.create()
    tombstones.add(list(migration.connection.execute(sa.select(migration.table("forgotten").c.digest)).scalars()))


def _note_models(migration: Migration, files: SiteFiles) -> None:
    """Write next to each model what the registry knows of it; ModelRegistry seals the entries once the site is open."""
    for row in migration.connection.execute(sa.select(migration.table("models"))).all():
        entry = Entry(row.name, row.version, row.created, json.loads(row.about))
        write_entry(files.models / entry.name / f"{entry.version:05d}", entry)


def _add_columns(migration: Migration) -> None:
    migration.add_column("incidents", "recorded")
    migration.add_column("outages", "resource")


def _name_tokens_by_user(migration: Migration) -> None:
    """Make the table of tokens anew: no database changes what is unique in the same words as another."""
    table = migration.table("tokens")
    rows = [dict(row._mapping) for row in migration.connection.execute(sa.text("SELECT * FROM tokens"))]
    table.drop(migration.connection)
    table.create(migration.connection)
    if rows:
        migration.connection.execute(sa.insert(table), rows)
    migration.create("digests")


STEPS: Final = (
    Step(2, "the registry of models", lambda migration: migration.create("models")),
    Step(
        3,
        "tokens, opinions on advice, saved views, the audit trail",
        lambda migration: migration.create("tokens", "opinions", "views", "audit"),
    ),
    Step(4, "outages", lambda migration: migration.create("outages")),
    Step(5, "state and tables know each other; tombstones and entries of models lie beside the tables as well", _identify_site),
    Step(
        6,
        "incidents, what people did to them, mutes, watchers, messages",
        lambda migration: migration.create("incidents", "incident_acts", "mutes", "watchers", "messages"),
    ),
    Step(7, "which incidents are in their table; which machine an outage is of", _add_columns),
    Step(8, "what policies and people decided and did", lambda migration: migration.create("actions")),
    Step(9, "answers of administrators on cases", lambda migration: migration.create("case_answers")),
    Step(10, "mail to users", lambda migration: migration.create("mails")),
    Step(11, "tokens are named by their users; who wants the weekly digest", _name_tokens_by_user),
)
