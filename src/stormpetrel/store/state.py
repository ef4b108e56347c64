"""The state store: what changes, in SQL. SQLite next to the site, or PostgreSQL by URL.

Its tables are declared in state_tables.py. `ServerLock` keeps a site on PostgreSQL to one watch, also over hosts.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from stormpetrel.errors import (
    MissingExtraError,
    NetworkFilesystemError,
    StateAwayError,
    StateLostError,
    StoreBusyError,
    StoreError,
    StoreVersionError,
)
from stormpetrel.private_files import create_private, tighten
from stormpetrel.store.filesystem import errno_in, file_lock, filesystem_type, is_network, writing
from stormpetrel.store.identity import Identity, holds_tables, identity_of, new_identity, read_identity
from stormpetrel.store.migrations import Migration, SiteFiles, migrate
from stormpetrel.store.state_tables import ALL_TABLES, METADATA, forgotten, ingests, meta

STATE_FORMAT = 11  # what each format added: migrations.py
STATE_FILE = "state.db"
_UNFINISHED = "unfinished"  # the key of `meta` that says that a new state is still being filled


class StateStore:
    """The SQL side of a site."""

    def __init__(self, engine: sa.Engine, lock_file: Path, files: SiteFiles | None = None) -> None:
        self._engine = engine
        self._lock_file = lock_file
        self._files = files
        self._holder = threading.RLock()  # the thread that holds the writer lock
        self._depth = 0  # how often that thread has taken it
        self.is_sqlite = engine.dialect.name == "sqlite"

    @contextmanager
    def transaction(self) -> Iterator[sa.Connection]:
        """A transaction: all of it, or nothing."""
        with (
            writing(self._lock_file.parent, doing="write to the state store"),
            _database_errors(),
            self._engine.begin() as connection,
        ):
            yield connection

    @contextmanager
    def writer_lock(self) -> Iterator[None]:
        """Be the only thread of any process that commits to the site's tables, until the block ends; may be nested."""
        if not self._holder.acquire(timeout=_LOCK_WAIT_S):
            raise StoreBusyError(
                f"Another part of this process has been writing to {self._lock_file.parent} for over {_LOCK_WAIT_S} s.",
                hint="Wait for it to end, and try again.",
            )
        try:
            with self._locked() if not self._depth else nullcontext():
                self._depth += 1
                try:
                    yield
                finally:
                    self._depth -= 1
        finally:
            self._holder.release()

    @contextmanager
    def undisturbed(self) -> Iterator[None]:
        """Read the site as it is at one moment: whoever writes waits."""
        with self.writer_lock():
            yield

    @contextmanager
    def _locked(self) -> Iterator[None]:
        if self.is_sqlite:
            with ExitStack() as stack:
                with writing(self._lock_file.parent, doing="take the site's lock"):
                    stack.enter_context(file_lock(self._lock_file))
                yield
            return
        with _database_errors():
            connection = self._engine.connect()
        try:
            with _database_errors():
                connection.execute(sa.text(f"SET lock_timeout = '{_LOCK_WAIT_S}s'"))
                connection.execute(sa.text("SELECT pg_advisory_lock(:key)"), {"key": _LOCK_KEY})
            yield
        finally:
            with _database_errors():
                connection.execute(sa.text("SELECT pg_advisory_unlock(:key)"), {"key": _LOCK_KEY})
                connection.close()

    @contextmanager
    def sole(self, role: str) -> Iterator[Callable[[], None]]:
        """Be the only process of this kind on the site; StoreBusyError at once where there is another.

        Yields what makes sure of that again: a server that was restarted has forgotten the lock. It raises StoreBusyError where
        another process was faster, StateAwayError where the server does not answer.
        """
        if self.is_sqlite:
            with ExitStack() as stack:
                with writing(self._lock_file.parent, doing=f"take the lock of the {role}"):
                    stack.enter_context(file_lock(self._lock_file.with_name(f".{role}.lock"), wait_s=0.0, role=role))
                yield lambda: None  # the kernel keeps it as long as the process lives
            return
        lock = ServerLock(self._engine, _LOCK_KEY + 1 + sum(role.encode()), role=role)

        def renew() -> None:
            with _database_errors():
                lock.renew()

        renew()
        try:
            yield renew
        finally:
            with _database_errors():
                lock.release()

    def record_ingest(self, source: str, report: dict[str, Any]) -> None:
        """Remember that a source was ingested, and what came of it."""
        finished = datetime.now(UTC).isoformat(timespec="seconds")
        with self.transaction() as connection:
            connection.execute(sa.insert(ingests).values(finished=finished, source=source, report=json.dumps(report)))

    def past_ingests(self, limit: int = 20) -> list[dict[str, Any]]:
        """The last ingests, newest first."""
        query = sa.select(ingests).order_by(ingests.c.id.desc()).limit(limit)
        with self.transaction() as connection:
            return [
                {"finished": row.finished, "source": row.source, **json.loads(row.report)} for row in connection.execute(query)
            ]

    def forget(self, digest: str) -> None:
        """Remember not to take in a user again, by a keyed digest of the name; a new one begins a new generation."""
        with self.transaction() as connection:
            if _take_tombstones(connection, [digest]):
                migration = Migration(connection, METADATA, self._files)
                identity = identity_of(migration.facts())
                migration.keep((identity.following() if identity else new_identity()).as_facts())

    def take_tombstones(self, digests: Iterable[str]) -> int:
        """Remember those who were forgotten elsewhere on this site; how many were not known."""
        with self.transaction() as connection:
            return _take_tombstones(connection, digests)

    def forgotten_digests(self) -> frozenset[str]:
        """The digests of the users that must not be taken in again."""
        with self.transaction() as connection:
            return frozenset(connection.execute(sa.select(forgotten.c.digest)).scalars())

    def identity(self) -> Identity | None:
        """Who the site is, as the state knows it."""
        return identity_of(_facts(self))

    def keep_identity(self, identity: Identity) -> None:
        """Change who the site is; a state that was being filled is finished."""
        with self.transaction() as connection:
            connection.execute(sa.delete(meta).where(meta.c.key == _UNFINISHED))
            Migration(connection, METADATA, self._files).keep(identity.as_facts())

    def fact(self, key: str) -> str:
        """What the store notes about itself under a key; empty where it notes nothing."""
        with self.transaction() as connection:
            return str(connection.execute(sa.select(meta.c.value).where(meta.c.key == key)).scalar() or "")

    def set_fact(self, key: str, value: str) -> None:
        """Note something about the store itself."""
        with self.transaction() as connection:
            connection.execute(sa.delete(meta).where(meta.c.key == key))
            connection.execute(sa.insert(meta).values(key=key, value=value))

    def empty_log(self) -> None:
        """Write the write-ahead log of SQLite into the database: it still holds the old pages of what was deleted."""
        if self.is_sqlite:
            with self._engine.connect() as connection:
                connection.execute(sa.text("PRAGMA wal_checkpoint(TRUNCATE)"))

    def dump(self) -> dict[str, list[dict[str, Any]]]:
        """Every table as plain rows, for a backup that either database can take in."""
        with self.transaction() as connection:
            return {table.name: [dict(row._mapping) for row in connection.execute(_in_order(table))] for table in ALL_TABLES}

    def is_empty(self) -> bool:
        """Whether nothing has been recorded yet."""
        with self.transaction() as connection:
            return not any(connection.execute(sa.select(table).limit(1)).first() for table in (ingests, forgotten))

    def load(self, tables: dict[str, list[dict[str, Any]]]) -> None:
        """Replace every table by the rows of a dump, which may be of an earlier format; one of a newer format is refused."""
        version = next((int(row["value"]) for row in tables.get(meta.name, []) if row["key"] == "format"), 1)
        _refuse_newer(version)
        with self.writer_lock(), self.transaction() as connection:
            for table in ALL_TABLES:
                connection.execute(sa.delete(table))
                if rows := tables.get(table.name, []):
                    connection.execute(sa.insert(table), rows)
            migrate(Migration(connection, METADATA, self._files), version=version)

    def close(self) -> None:
        """Close the connections; one that another thread is still reading through, when that thread gives it back."""
        close_connections(self._engine)


def close_connections(engine: sa.Engine) -> None:
    """Close the connections of an engine, now or when they are given back: to `dispose` alone those in use would be lost."""
    sa.event.listen(engine, "checkin", lambda _connection, record: record.close())
    engine.dispose()


def _in_order(table: sa.Table) -> sa.Select[Any]:
    """The rows of a table, oldest first, without the running number, which each database counts for itself."""
    return sa.select(*(column for column in table.c if column.name != "id")).order_by(*table.primary_key.columns)


_LOCK_KEY = 0x73746F726D  # "storm"
_LOCK_WAIT_S = 600


def open_state(
    folder: Path,
    *,
    url: str = "",
    lock_folder: Path,
    owner: str = "",
    mountinfo: str | None = None,
    files: SiteFiles | None = None,
    create: bool = True,
) -> StateStore:
    """Open the state store, and bring one of an earlier version up to date.

    SQLite on a network file system corrupts: it is refused before anything is written. `owner` stands for the site: a database
    that belongs to another one is refused. Where there is no store one is created; without `create` that is refused: the site's
    tables have lost the state that belongs to them. Created next to tables (`files`) it counts as unfinished until its identity
    is kept.
    """
    if not create and not url and not (folder / "state.db").exists():
        raise _lost(folder)
    engine = _postgres(url) if url else _sqlite(folder, mountinfo)
    store = StateStore(engine, lock_folder / ".lock", files)
    try:
        _make_ready(store, owner, create=create)
    except BaseException:
        store.close()
        raise
    return store


def _make_ready(store: StateStore, owner: str, *, create: bool) -> None:
    facts = _facts(store)
    if "format" not in facts:
        if not create:
            raise _lost()
        try:
            with store.writer_lock():
                _create_tables(store, owner)
        except StoreError:
            if "format" not in _facts(store):  # unless another process made them at this very moment
                raise
        facts = _facts(store)
    if facts.get("owner", owner) != owner and owner:
        raise StoreError(
            "The state store belongs to another site.", hint="Give each site its own: another store.state_dir or database."
        )
    if _UNFINISHED in facts and not create:
        raise _lost()
    _refuse_newer(int(facts["format"]))
    if int(facts["format"]) < STATE_FORMAT:
        with store.writer_lock():
            _migrate(store)


def _facts(store: StateStore) -> dict[str, str]:
    """What the store says of itself; nothing where its tables are not there yet."""
    with store.transaction() as connection:
        if not sa.inspect(connection).has_table(meta.name):
            return {}
        return {row.key: row.value for row in connection.execute(sa.select(meta))}


def _create_tables(store: StateStore, owner: str) -> None:
    """Tables and first facts in one transaction, unless another process was faster."""
    identity = read_identity(store._files.tables) if store._files else None
    facts = {"format": str(STATE_FORMAT), "owner": owner, **(identity.following() if identity else new_identity()).as_facts()}
    if store._files and holds_tables(store._files.tables):
        facts[_UNFINISHED] = "being filled"
    with store.transaction() as connection:
        METADATA.create_all(connection)
        if connection.execute(sa.select(meta)).first() is None:
            Migration(connection, METADATA, store._files).keep(facts)


def _migrate(store: StateStore) -> None:
    """Bring a store of an earlier version up to date in one transaction; another process may have done so meanwhile."""
    with store.transaction() as connection:
        if store.is_sqlite:  # Python's driver begins a transaction only before a row is changed, not before a table is
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        migration = Migration(connection, METADATA, store._files)
        migrate(migration, version=int(migration.facts()["format"]))


def _refuse_newer(version: int) -> None:
    if version > STATE_FORMAT:
        raise StoreVersionError(
            f"The state store was written by a newer version (format {version}, this Stormpetrel knows {STATE_FORMAT}).",
            hint="Run: pip install --upgrade stormpetrel",
        )


def _take_tombstones(connection: sa.Connection, digests: Iterable[str]) -> int:
    known = set(connection.execute(sa.select(forgotten.c.digest)).scalars())
    new = sorted(set(digests) - known)
    if new:
        connection.execute(sa.insert(forgotten), [{"digest": digest} for digest in new])
    return len(new)


def _lost(folder: Path | None = None) -> StateLostError:
    where = f"{folder / 'state.db'} is missing" if folder else "The state store is empty or was never finished"
    return StateLostError(
        f"{where}, but the site's tables are there: who was forgotten, tokens and the registry of models were in it.",
        hint="Put back the state that belongs to them, or rebuild what can be rebuilt: stormpetrel doctor --repair",
    )


def refuse_network(folder: Path, mountinfo: str | None = None) -> None:
    """Say what to do where SQLite would lie on a network file system."""
    kind = filesystem_type(folder, mountinfo)
    if is_network(kind):
        raise NetworkFilesystemError(
            f"{folder} lies on a network file system ({kind}), where SQLite loses data; nothing was written.",
            hint="In site.toml set store.state_dir to a folder on a local disk, or store.state_url to a PostgreSQL.",
        )


def _sqlite(folder: Path, mountinfo: str | None) -> sa.Engine:
    refuse_network(folder, mountinfo)
    with writing(folder, doing="create the state store"):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        _make_private(folder / STATE_FILE)
    engine = sa.create_engine(sa.URL.create("sqlite", database=str(folder / STATE_FILE)))

    @sa.event.listens_for(engine, "connect")
    def _configure(connection: Any, _record: object) -> None:
        try:
            connection.execute("PRAGMA busy_timeout=30000")
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA secure_delete=ON")  # what is forgotten is overwritten, not only unlinked
        except BaseException:
            connection.close()  # a damaged file, a full disk: SQLAlchemy before 2.1 would drop it as it is
            raise

    return engine


def _make_private(path: Path) -> None:
    """Let nobody else read the names in a database: SQLite gives its log (-wal) and its index (-shm) the mode of the file."""
    if path.is_symlink():
        raise StoreError(
            f"{path} is a link; the state store must be a file.", hint="In site.toml set store.state_dir to the folder it is in."
        )
    with suppress(FileExistsError):
        create_private(path)
    for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
        tighten(path.with_name(name))


def _postgres(url: str) -> sa.Engine:
    try:
        import psycopg  # noqa: F401
    except ImportError:
        raise MissingExtraError("A PostgreSQL state store", "postgres") from None
    scheme, separator, rest = url.partition("://")
    try:
        if not separator or scheme not in ("postgresql", "postgres"):
            raise ValueError(url)
        return sa.create_engine(f"postgresql+psycopg://{rest}", pool_pre_ping=True)
    except (ValueError, sa.exc.ArgumentError):
        raise StoreError(
            "store.state_url is not a PostgreSQL address.", hint="Expected postgresql://user@host/database."
        ) from None


@contextmanager
def _database_errors() -> Iterator[None]:
    """Translate what the database says; passwords in its address never reach the message."""
    try:
        yield
    except sa.exc.DBAPIError as error:
        reason = str(error.orig).strip().splitlines()[0] if error.orig else "no answer"
        if "lock timeout" in reason:
            raise StoreBusyError(
                f"Another process has been writing to this site for over {_LOCK_WAIT_S} s.",
                hint="Wait for it to end, and try again.",
            ) from error
        number = errno_in(reason) if isinstance(error.orig, sqlite3.Error) else None
        if number is not None:
            raise OSError(number, os.strerror(number)) from error  # a file problem: `writing` has the sentence
        is_away = isinstance(error, sa.exc.OperationalError) and not isinstance(error.orig, sqlite3.Error)
        raise (StateAwayError if is_away else StoreError)(
            f"The state store did not answer: {reason}.", hint="Check store.state_url and that the server runs."
        ) from error


class ServerLock:
    """An advisory lock of a PostgreSQL server; it is gone with the connection that holds it, so whoever keeps it renews it."""

    def __init__(self, engine: sa.Engine, key: int, *, role: str) -> None:
        self._engine, self._key, self._role = engine, key, role
        self._connection: sa.Connection | None = None

    def acquire(self) -> None:
        """Take the lock at once; StoreBusyError where another process has it."""
        # Without a transaction: one that stays open for weeks keeps the server from cleaning up.
        connection = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        try:
            free = connection.execute(sa.text("SELECT pg_try_advisory_lock(:key)"), {"key": self._key}).scalar()
            if not free:
                raise StoreBusyError(f"Another {self._role} runs on this site, perhaps on another host.", hint="One is enough.")
        except BaseException:
            connection.close()
            raise
        self._connection = connection

    def renew(self) -> None:
        """Take the lock again where its connection is lost, as after a restart of the server; as `acquire` fails."""
        if self._connection is not None:
            try:
                self._connection.execute(sa.text("SELECT 1"))
                return
            except sa.exc.DBAPIError:
                self.release()
        self.acquire()

    def release(self) -> None:
        """Give the lock back."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sa.exc.SQLAlchemyError):  # at once: of a closed connection the server hears when it gets to it
                connection.execute(sa.text("SELECT pg_advisory_unlock(:key)"), {"key": self._key})
            connection.invalidate()  # not back into the pool: the lock would live on in an idle connection
            connection.close()
