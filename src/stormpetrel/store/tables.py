"""The door to Delta Lake: open, append, replace, compact; foreign errors and versions are handled here and nowhere else.

A column may be added to the schema of a table at any time. Older files are read with nulls in it, without being rewritten, and
the first commit adds it to the table itself; a version that does not know it reads the table without it, and does not write to
it. Whatever else changes (a type, a meaning, a column that goes) needs a new FORMAT_VERSION, which older versions refuse, and a
table that is rewritten.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, Final
from urllib.parse import unquote

import polars as pl
from deltalake import ColumnProperties, CommitProperties, DeltaTable, Schema, Transaction, WriterProperties, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, DeltaProtocolError, TableNotFoundError

from stormpetrel.errors import DiskFullError, StoreBusyError, StoreError, StoreVersionError
from stormpetrel.records.cursor import Cursor
from stormpetrel.records.times import month_of
from stormpetrel.store.filesystem import writing
from stormpetrel.store.panics import without_panic_text
from stormpetrel.store.table_log import LOGS, LogSummary, fingerprint_of
from stormpetrel.store.upkeep.digests import FileDigests

WriterLock = Callable[[], AbstractContextManager[None]]  # held by whoever writes to the tables of a site

FORMAT_VERSION: Final = 1
_FORMAT_KEY: Final = "stormpetrel_format"
_LOG_AGE: Final = "delta.logRetentionDuration"
_A_DAY: Final = "interval 1 days"
_CLOCK_STEP_S: Final = 0.1  # files are stamped by a coarser clock than ours


@dataclass(frozen=True, slots=True)
class TableSpec:
    """A table of the store: its name, schema, partition, and the columns whose ranges the log may tell.

    No column that can hold a person's name is among those: Delta writes their smallest and largest values into its log, where
    they would outlive the rows.
    """

    name: str
    schema: pl.Schema
    partition_by: tuple[str, ...]
    ranges: tuple[str, ...]
    distinct: tuple[str, ...] = ()  # columns whose values hardly repeat: no dictionary is tried on them
    group_rows: int | None = None  # rows of a Parquet row group, for tables with wide rows: a scan can skip groups, not rows


@dataclass(frozen=True, slots=True)
class Committed:
    """What became of the rows of one commit."""

    kept: int = 0
    known: int = 0
    changed: int = 0


class Table:
    """One Delta Lake table, examined anew for each use so that it sees what others have committed."""

    _then: LogSummary | None = None  # while it is read as it was

    def __init__(self, folder: Path, spec: TableSpec) -> None:
        self.path = folder.resolve() / spec.name
        self.spec = spec
        self.digests = FileDigests(self.path)
        self.may_be_missing = False  # of a site that cannot be written: a table that is not there is empty

    @property
    def _address(self) -> str:
        # As an address: a plain path such as `file:x`, or one with a space, would be taken for something else.
        return self.path.as_uri()

    def exists(self) -> bool:
        """Whether the table has been created."""
        return (self.path / "_delta_log").is_dir() and any((self.path / "_delta_log").iterdir())

    def _is_missing(self) -> bool:
        return self.may_be_missing and not self.exists()

    def create(self) -> None:
        """Create the table, empty, unless it is there."""
        if self.exists():
            return
        with writing(self.path, doing="create a table"), without_panic_text():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_deltalake(
                self._address,
                pl.DataFrame(schema=self.spec.schema),
                partition_by=list(self.spec.partition_by) or None,
                description=json.dumps({_FORMAT_KEY: FORMAT_VERSION}),
                configuration={"delta.dataSkippingStatsColumns": ",".join(self.spec.ranges)},
            )
        self.digests.record(after=-1)

    def open(self) -> DeltaTable:
        """The table as it is now; refuses one that a newer Stormpetrel has written."""
        try:
            table = DeltaTable(self._address)
        except TableNotFoundError as error:
            raise StoreError(
                f"The table {self.path} is missing.", hint="Restore it: stormpetrel store restore BACKUP."
            ) from error
        except DeltaProtocolError as error:
            raise self._too_new(str(error)) from error
        except DeltaError as error:
            if "nsupported" in str(error):  # of a protocol version or feature that this Delta Lake does not know
                raise self._too_new(str(error)) from error
            raise StoreError(
                f"The table {self.path} cannot be read: {str(error).splitlines()[0]}.",
                hint="Restore the site from a backup: stormpetrel --site NEWDIR store restore BACKUP.",
            ) from error
        version = _format_of(table.metadata().description)
        if version > FORMAT_VERSION:
            raise self._too_new(f"format {version}, this Stormpetrel knows {FORMAT_VERSION}")
        return table

    def _open_to_write(self) -> DeltaTable:
        """The table as it is now, with every column of the schema; refuses one with columns that we would leave empty."""
        table = self.open()
        there = {field.name for field in table.schema().fields}
        unknown = sorted(there - set(self.spec.schema))
        if unknown:
            raise self._too_new(f"it has the column '{unknown[0]}', which this Stormpetrel does not know")
        missing = {name: dtype for name, dtype in self.spec.schema.items() if name not in there}
        if missing:
            table.alter.add_columns(_delta_fields(missing))
            table = self.open()
        return table

    def scan(self, files: Sequence[Path] | None = None) -> pl.LazyFrame:
        """The rows, lazily; of some of the table's files, if they are named."""
        files = self.files() if files is None else files
        if not files:
            return pl.LazyFrame(schema=self.spec.schema)
        partition = {name: self.spec.schema[name] for name in self.spec.partition_by}
        rows = pl.scan_parquet(
            list(files),
            glob=False,
            hive_partitioning=bool(partition),
            hive_schema=partition or None,
            try_parse_hive_dates=False,
            schema={name: dtype for name, dtype in self.spec.schema.items() if name not in partition},
            missing_columns="insert",  # of files from before a column was added
            extra_columns="ignore",  # of files from a version that has added one
        )
        return rows.select(list(self.spec.schema))

    def between(self, column: str, since: datetime | None = None, until: datetime | None = None) -> pl.LazyFrame:
        """The rows whose time lies from `since` to before `until`; of a table by months, only those between are read."""
        rows = self.scan()
        if since is not None:
            rows = rows.filter(pl.col("month") >= f"{since.astimezone(UTC):%Y-%m}", pl.col(column) >= since)
        if until is not None:
            rows = rows.filter(pl.col("month") <= f"{until.astimezone(UTC):%Y-%m}", pl.col(column) < until)
        return rows

    def append_new(self, rows: pl.DataFrame, *, key: Sequence[str], column: str) -> int:
        """Add the rows whose key is not there yet, in one commit, to a table by months of `column`; how many.

        Whoever calls holds the lock of writers: two who bring the same rows at once write them once.
        """
        distinct = rows.unique(list(key), keep="first", maintain_order=True).with_columns(month=month_of(pl.col(column)))
        if not distinct.height:
            return 0
        there = self.scan().filter(
            pl.col("month").is_in(distinct["month"].unique().to_list()),
            pl.col(column).is_between(distinct[column].min(), distinct[column].max()),
        )
        new = distinct.join(there.select(key).collect(), on=list(key), how="anti", nulls_equal=True, maintain_order="left")
        self.append(new)
        return new.height

    def files(self) -> list[Path]:
        """The data files that make up the table now.

        (Not by polars' scan_delta, nor by Delta's own list of addresses: both lose files in folders with a space in their name.)
        """
        if self._is_missing():
            return []
        return [self._inside(relative) for relative in self._log_summary().files]

    @contextmanager
    def as_of(self, version: int) -> Iterator[None]:
        """Read the table as it was at a version, within this block and through this object; StoreError where that is gone."""
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        gone = StoreError(
            f"Version {version} of the table {self.path.name} is no longer kept (now {self.version()}).",
            hint="Tables are compacted at night, and files that nobody needs are deleted; train anew instead.",
        )
        try:
            table = DeltaTable(self._address, version=version)
            actions = pl.DataFrame(table.get_add_actions(flatten=True))
        except DeltaError:
            raise gone from None
        summary = LogSummary(version, tuple(actions["path"]) if actions.height else ())
        if not all(self._inside(relative).is_file() for relative in summary.files):
            raise gone
        self._then = summary
        try:
            yield
        finally:
            self._then = None

    def _log_summary(self) -> LogSummary:
        """What the log says now; read by Delta Lake unless a log with this very content was."""
        if self._then is not None:
            return self._then
        log = self.path / "_delta_log"
        before = fingerprint_of(log)
        known = LOGS.get(before)
        if known is not None:
            return known
        table = self.open()
        actions = pl.DataFrame(table.get_add_actions(flatten=True))
        summary = LogSummary(table.version(), tuple(actions["path"]) if actions.height else ())
        if fingerprint_of(log) == before:  # nobody has committed meanwhile
            LOGS.remember(before, summary)
        return summary

    def refuse_paths_outside(self) -> None:
        """StoreError where the log names, also among what was removed, a file that does not lie in this table."""
        self.files()
        for log in sorted((self.path / "_delta_log").glob("*.json")):
            for action in map(json.loads, log.read_text(encoding="utf-8").splitlines()):
                for kind in ("add", "remove", "cdc"):
                    if kind in action:
                        self._inside(str(action[kind]["path"]))
        for checkpoint in sorted((self.path / "_delta_log").glob("*.parquet")):
            removed = pl.scan_parquet(checkpoint, glob=False).select(pl.col("remove").struct.field("path").drop_nulls()).collect()
            for path in removed["path"]:
                self._inside(path)

    def _inside(self, relative: str) -> Path:
        """The file that a log means; one that would lie elsewhere is refused."""
        plain = unquote(relative)
        if plain.startswith("/") or "://" in plain or ".." in plain.split("/"):
            raise StoreError(
                f"The log of the table {self.path} names a file outside of it: {plain[:100]!r}.",
                hint="Restore the site from a backup that you trust.",
            )
        return self.path / plain

    def version(self) -> int:
        """The version number that a model trained now would record."""
        return 0 if self._is_missing() else self._log_summary().version

    def cursor(self, name: str) -> int | None:
        """Where a live source was left, as committed together with its rows."""
        return None if self._is_missing() else self.open().transaction_version(name)

    def append(self, rows: pl.DataFrame, *, cursor: Cursor | None = None) -> None:
        """Add rows (and move a cursor) in one commit."""
        if not rows.height and cursor is None:
            return
        with self._committing("write rows", adds=True) as table:
            write_deltalake(
                table,
                self._conformed(rows),
                mode="append",
                writer_properties=self._writer_properties(),
                commit_properties=_commit_properties(cursor),
            )

    def upsert(self, rows: pl.DataFrame, *, on: Sequence[str], nullable: Sequence[str], cursor: Cursor | None = None) -> None:
        """Replace rows that have the same key, add the others (and move a cursor), in one commit."""
        partition = self.spec.partition_by[0]
        months = ", ".join(f"'{value}'" for value in rows[partition].unique().sort())
        terms = [f"t.{partition} IN ({months})", f"t.{partition} = s.{partition}"]
        terms += [f"t.{name} = s.{name}" for name in on if name not in nullable]
        terms += [f"coalesce(t.{name}, -1) = coalesce(s.{name}, -1)" for name in nullable]
        with self._committing("write rows", adds=True) as table:
            (
                table.merge(
                    self._conformed(rows),
                    predicate=" AND ".join(terms),
                    source_alias="s",
                    target_alias="t",
                    writer_properties=self._writer_properties(),
                    commit_properties=_commit_properties(cursor),
                )
                .when_matched_update_all()
                .when_not_matched_insert_all()
                .execute()
            )

    def update(self, values: Mapping[str, str], *, where: str) -> None:
        """Set columns to SQL expressions in the rows where a predicate holds, in one commit."""
        with self._committing("correct rows") as table:
            table.update(updates=dict(values), predicate=where, writer_properties=self._writer_properties())

    def overwrite(self, rows: pl.DataFrame, *, where: str | None = None) -> None:
        """Put these rows in place of all, or of those where a predicate over the partition holds."""
        with self._committing("rewrite rows", adds=True) as table:
            write_deltalake(
                table, self._conformed(rows), mode="overwrite", predicate=where, writer_properties=self._writer_properties()
            )

    def delete(self, column: str, value: str) -> int:
        """Delete the rows that have this text in a column, in one commit; how many."""
        quoted = value.replace("'", "''")
        with self._committing("delete rows") as table:
            done = table.delete(f"{column} = '{quoted}'")
        return int(done["num_deleted_rows"] or 0)

    def compact(self, *, target_bytes: int | None = None) -> dict[str, Any]:
        """Merge small files into large ones, of about `target_bytes` each (Delta's own size if None)."""
        with self._committing("compact") as table:
            return table.optimize.compact(target_size=target_bytes, writer_properties=self._writer_properties())

    def shorten_log(self) -> None:
        """Write a checkpoint, and delete the entries of the log that it stands for and that are over a day old."""
        with self._committing("shorten the log") as table:
            if table.metadata().configuration.get(_LOG_AGE) != _A_DAY:
                table.alter.set_table_properties({_LOG_AGE: _A_DAY})
            table.create_checkpoint()
            table.cleanup_metadata()
        self.digests.adopt_checkpoints()
        self.digests.prune()

    def vacuum(self, *, keep_hours: int | None = None) -> int:
        """Delete files that no version within `keep_hours` needs (Delta's own week if None); how many."""
        with self._committing("remove old files") as table:
            removed = table.vacuum(
                retention_hours=keep_hours, dry_run=False, enforce_retention_duration=keep_hours is None, full=True
            )
        self.digests.prune()
        return len(removed)

    def adopt_files(self) -> None:
        """Give a digest to every file that has none: those from before digests were kept."""
        self.digests.adopt([str(path.relative_to(self.path)) for path in self.files()])

    def file_count(self) -> int:
        """How many data files make up the table now."""
        return len(self.files())

    @contextmanager
    def _committing(self, doing: str, *, adds: bool = False) -> Iterator[DeltaTable]:
        """Around every commit: a full disk, a conflict or a panic is one sentence; what was written gets its digests.

        `adds`: rows of ours come in, so the table has to have all our columns.
        """
        began = time.time()
        try:
            with writing(self.path, doing=doing), _conflicts(self.path), without_panic_text():
                table = self._open_to_write() if adds else self.open()
                before = table.version()
                yield table
        except DiskFullError:
            self._remove_half_written(began)
            raise
        self.digests.record(after=before)

    def _remove_half_written(self, since: float) -> None:
        """Delete the files of a commit that the disk had no room for: they take what is left of it. The caller holds the lock."""
        with suppress(OSError):
            live = set(self.files())
            for path in self.path.rglob("*.parquet"):
                if "_delta_log" not in path.parts and path not in live and path.stat().st_mtime >= since - _CLOCK_STEP_S:
                    path.unlink()

    def _writer_properties(self) -> WriterProperties:
        """Statistics only where scans prune by them, dictionaries only where values repeat: half the time of the defaults."""
        columns = {
            name: ColumnProperties(dictionary_enabled=name not in self.spec.distinct, statistics_enabled="CHUNK")
            for name in self.spec.ranges
        }
        columns |= {
            name: ColumnProperties(dictionary_enabled=False, statistics_enabled="NONE")
            for name in self.spec.distinct
            if name not in columns
        }
        return WriterProperties(
            compression="ZSTD",
            compression_level=1,
            max_row_group_size=self.spec.group_rows,
            default_column_properties=ColumnProperties(statistics_enabled="NONE"),
            column_properties=columns,
        )

    def _conformed(self, rows: pl.DataFrame) -> pl.DataFrame:
        return rows.select([pl.col(name).cast(dtype) for name, dtype in self.spec.schema.items()])

    def _too_new(self, why: str) -> StoreVersionError:
        return StoreVersionError(
            f"The table {self.path} was written by a newer version ({why}); it was not touched.",
            hint="Run: pip install --upgrade stormpetrel",
        )


class TableStore:
    """A table of a site, and the lock of whoever writes to it; a subclass names the table, and says what is read and written."""

    spec: ClassVar[TableSpec]

    def __init__(self, tables: Path, writer_lock: WriterLock) -> None:
        self.table = Table(tables, self.spec)
        self._writer_lock = writer_lock

    def create(self) -> None:
        """Create the table unless it is there."""
        self.table.create()


def _format_of(description: str | None) -> int:
    try:
        return int(json.loads(description or "{}").get(_FORMAT_KEY, 0))
    except (ValueError, AttributeError, TypeError):
        return 0


def _delta_fields(columns: Mapping[str, pl.DataType]) -> list[Any]:
    """Columns as Delta Lake declares them, all of which may be null."""
    return list(Schema.from_arrow(pl.Schema(columns)).fields)


def _commit_properties(cursor: Cursor | None) -> CommitProperties | None:
    if cursor is None:
        return None
    return CommitProperties(app_transactions=[Transaction(cursor.name, cursor.position)])


class _conflicts:  # noqa: N801 - reads as a word of the `with` line
    """Two writers met in spite of the lock (another host without PostgreSQL): nothing was written by the second."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, CommitFailedError):
            raise StoreBusyError(
                f"Another process changed {self.path} at the same moment; nothing was written.",
                hint="Run the same command again. If several hosts write, set store.state_url to a PostgreSQL.",
            ) from error
