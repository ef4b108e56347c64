"""An old month of the overview: its rows lie in a file of the site's folder `snapshots`, a column is read when it is needed.

pieces of a month + what it was made of -> store_month -> StoredMonth; find_month -> the one that an earlier process has left.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any, Final

import numpy as np
import polars as pl

from stormpetrel.answers.jobs.past_jobs import longest_limits
from stormpetrel.answers.overview.column_index import LAST, Keys, Mask, Rows, number_keys, text_keys
from stormpetrel.answers.overview.comparable import NOT_ENDED, Floats, Numbers, application_family, sizes_of, when_ended
from stormpetrel.answers.overview.month import MONTH_SCHEMA, OVERVIEW_SCHEMA
from stormpetrel.jobs.history.keys import APPLICATION_COLUMNS
from stormpetrel.lifecycle.kept_frames import code_digest, read_frames, write_frames
from stormpetrel.private_files import writing_private
from stormpetrel.records.cluster import Cluster
from stormpetrel.store.site import Site

_GROUP: Final = 16_384  # rows that are read together
_MOST_KEPT: Final = 256  # answers about single users, and sums, that are kept of a month
_TEXTS: Final = tuple(name for name, dtype in OVERVIEW_SCHEMA.items() if dtype == pl.String())
_EVENTS: Final = ("submit_time", "start_time", "end_time")


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a month without reading its rows; times are microseconds.

    `texts` has the smallest and the largest text of each column in small letters, and the bytes of the longest. `users` counts
    the jobs of each user.
    """

    jobs: int
    last_end: int
    last_event: int
    has_open: bool
    has_waiting: bool
    texts: Mapping[str, tuple[list[bytes], int]]
    users: Mapping[str, int]
    longest: pl.DataFrame


@dataclass(frozen=True, slots=True, eq=False)
class StoredMonth:
    """The rows of a month in their order, and the index of its columns: nothing that grows with its jobs stays in memory."""

    path: Path
    facts: Facts
    _kept: OrderedDict[Any, Any] = field(default_factory=OrderedDict)
    _lock: Lock = field(default_factory=Lock)

    @property
    def height(self) -> int:
        """How many jobs it has."""
        return self.facts.jobs

    def is_there(self) -> bool:
        """Whether its file still is: forgetting a user, or deleting old jobs, takes it away."""
        return self.path.exists()

    # --- rows

    def lazy(self) -> pl.LazyFrame:
        """All rows, with the columns of `MONTH_SCHEMA`."""
        return pl.scan_parquet(self.path)

    def column(self, name: str) -> pl.Series:
        """One column."""
        return pl.read_parquet(self.path, columns=[name]).to_series()

    def rows(self, rows: Rows, columns: Sequence[str]) -> pl.DataFrame:
        """Some columns of some rows, in the order that is asked for; only the parts of the file that hold them are read."""
        groups = np.unique(rows // _GROUP)
        if 2 * groups.size > self.height // _GROUP:
            return pl.read_parquet(self.path, columns=list(columns)).select(columns)[rows]
        place = np.searchsorted(groups, rows // _GROUP) * _GROUP + rows % _GROUP
        scan = self.lazy().select(columns)
        parts = [scan.slice(group * _GROUP, _GROUP) for group in groups.tolist()]
        return pl.concat(parts).collect()[place] if parts else scan.head(0).collect()

    def of_user(self, user: str | None) -> pl.LazyFrame:
        """The rows of one user."""
        return self.lazy().filter(pl.col("user") == pl.lit(user, dtype=pl.String)) if user in self.facts.users else _NOTHING

    def kept(self, key: Any, work: Callable[[], Any]) -> Any:
        """What was worked out under this key; the least recently used goes first."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        result = work()
        with self._lock:
            self._kept[key] = result
            while len(self._kept) > _MOST_KEPT:
                self._kept.popitem(last=False)
        return result

    # --- index of columns

    def matches(self, column: str, test: Callable[[pl.Series], pl.Series], *, missing: bool, folded: bool = False) -> Mask:
        """Return which rows have a word that passes a test; `folded`: in small letters."""
        words = self.column(column)
        passed = test(words.str.to_lowercase() if folded else words)
        return np.asarray(pl.select(pl.when(words.is_null()).then(missing).otherwise(passed)).to_series().to_numpy(), np.bool_)

    def holds(self, condition: pl.Expr) -> Mask:
        """Return for which rows a condition holds."""
        return np.asarray(self.lazy().select(condition.alias("holds")).collect().to_series().to_numpy(), np.bool_)

    def keys(self, column: str, rows: Rows, begin: int = 0) -> Keys:
        """One number for each of these rows, as `ColumnIndex.keys`."""
        values = self.column(column)
        values = values[rows] if rows.size < self.height else values
        if values.dtype == pl.String:
            keys = text_keys(values.str.to_lowercase(), begin)
            return np.where(values.is_null().to_numpy(), LAST, keys) if values.null_count() else keys
        return number_keys(values)

    def extent(self, column: str) -> tuple[list[bytes], int]:
        """The first and the last text in the order of their bytes, and the bytes of the longest."""
        return self.facts.texts[column]

    # --- ended jobs, as of `MonthOfEnds`

    @property
    def last_end(self) -> int:
        """When the last job ended."""
        return self.facts.last_end

    @property
    def ended(self) -> Numbers:
        """When each job ended; the smallest number where it has not, or never ran."""
        return self.lazy().select(when_ended()).collect().to_series().to_numpy()

    def own(self, user: str | None) -> tuple[Rows, Numbers]:
        """The rows of a user's jobs, and when they ended."""
        if user is None or user not in self.facts.users:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        return self.kept(("own", user), partial(self._own, user))  # type: ignore[no-any-return]

    def _own(self, user: str) -> tuple[Rows, Numbers]:
        rows = np.flatnonzero((self.column("user") == user).fill_null(False).to_numpy())
        return rows, self.rows(rows, ("never_started", "end_time")).select(when_ended()).to_series().to_numpy()

    def same(self, rows: Rows, text: str, column: str) -> Mask:
        """Which of these rows have this text in a column, or are of this application (`family`)."""
        if column != "family":
            return (self.rows(rows, (column,)).to_series() == text).fill_null(False).to_numpy()
        names = self.rows(rows, (*APPLICATION_COLUMNS[:3], "extra"))
        named = names.select(*APPLICATION_COLUMNS[:3], executable=pl.col("extra").map.get("executable"))
        family = named.unique().with_columns(same=(application_family() == text).fill_null(False))
        matches = named.join(family, on=named.columns, how="left", nulls_equal=True, maintain_order="left")
        return matches["same"].fill_null(False).to_numpy()

    def sizes_at(self, rows: Rows) -> tuple[Floats, Floats]:
        """How many CPUs and nodes these jobs asked for; NaN where nobody knows."""
        return sizes_of(self.rows(rows, ("req_cpus", "cpus", "req_nodes", "nodes")))

    def prepare(self) -> None:
        """Nothing is worked out ahead."""


_NOTHING: Final = pl.DataFrame(schema=MONTH_SCHEMA).lazy()


def store_month(
    site: Site, name: str, made_of: Mapping[str, Any], pieces: Iterable[pl.DataFrame], cluster: Cluster | None = None
) -> StoredMonth | None:
    """Write a month (`2026-11`) to its file, from its rows piece by piece; None where the site cannot be written.

    `cluster` is what the jobs of it that wait were worded with.
    """
    if site.read_only:
        return None
    try:
        site.snapshots.mkdir(mode=0o700, exist_ok=True)
        with TemporaryDirectory(prefix=".overview-", dir=site.snapshots) as folder:
            facts, parts = _write_pieces(pieces, Path(folder))
            identity = _identity(made_of, cluster if facts.has_waiting else None)
            path = _path(site, name, identity)
            with writing_private(path) as file:
                pl.scan_parquet(parts, glob=False).sink_parquet(file, compression="lz4", row_group_size=_GROUP)
    except OSError:
        return None
    with path.open("rb") as written:
        digest = hashlib.file_digest(written, "sha256").hexdigest()
    write_frames(site, _record(name), identity, {"facts": _as_frame(facts, digest), "longest": facts.longest})
    for other in site.snapshots.glob(f"overview-{name}-*.parquet"):
        if other != path:
            with suppress(OSError):
                other.unlink()
    return StoredMonth(path, facts)


def find_month(site: Site, name: str, made_of: Mapping[str, Any], cluster: Cluster | None = None) -> StoredMonth | None:
    """The month that lies in its file; None where there is none, a damaged one, or one that was made of something else."""
    for worded in (None, cluster):  # most old months have no waiting jobs, whose words depend on the cluster
        month = _find(site, name, _identity(made_of, worded))
        if month is not None and (worded == cluster or not month.facts.has_waiting):
            return month
    return None


def _find(site: Site, name: str, identity: Mapping[str, Any]) -> StoredMonth | None:
    kept = read_frames(site, _record(name), identity)
    if kept is None:
        return None
    path = _path(site, name, identity)
    values = json.loads(kept["facts"]["facts"].item())
    try:
        with path.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != values.pop("sha256"):
                return None
    except OSError:
        return None
    values["texts"] = {column: ([end.encode() for end in ends], longest) for column, (ends, longest) in values["texts"].items()}
    return StoredMonth(path, Facts(**values, longest=kept["longest"]))


def facts_of(frame: pl.DataFrame) -> Facts:
    """What a month is known by."""
    texts = {}
    for column in _TEXTS:
        small = frame[column].str.to_lowercase()
        ends = [str(end).encode() for end in (small.min(), small.max()) if end is not None]
        texts[column] = ends, int(small.str.len_bytes().max() or 0)  # type: ignore[arg-type]
    events = [value for value in frame.select(pl.col(_EVENTS).dt.epoch("us").max()).row(0) if value is not None]
    users = frame["user"].drop_nulls().value_counts()
    return Facts(
        jobs=frame.height,
        last_end=int(frame.select(when_ended()).to_series().to_numpy().max(initial=NOT_ENDED)),
        last_event=max(events, default=NOT_ENDED),
        has_open=bool(frame["end_time"].null_count()),
        has_waiting=frame["waiting"].null_count() < frame.height,
        texts=texts,
        users=dict(users.iter_rows()),
        longest=longest_limits(frame),
    )


def facts_together(parts: Sequence[Facts]) -> Facts:
    """What a month is known by, of which these are pieces, the latest first."""
    texts = {}
    for column in _TEXTS:
        ends = sorted(end for part in parts for end in part.texts[column][0])
        texts[column] = ([ends[0], ends[-1]] if ends else []), max(part.texts[column][1] for part in parts)
    users: Counter[str] = Counter()
    for part in parts:
        users.update(part.users)
    return Facts(
        jobs=sum(part.jobs for part in parts),
        last_end=max(part.last_end for part in parts),
        last_event=max(part.last_event for part in parts),
        has_open=any(part.has_open for part in parts),
        has_waiting=any(part.has_waiting for part in parts),
        texts=texts,
        users=dict(users),
        longest=longest_limits(pl.concat([part.longest for part in parts])),
    )


def _write_pieces(pieces: Iterable[pl.DataFrame], folder: Path) -> tuple[Facts, list[Path]]:
    """What a month is known by, and its pieces as files of a folder."""
    facts, parts = [], []
    for number, piece in enumerate(pieces):
        parts.append(folder / f"{number}.parquet")
        piece.write_parquet(parts[-1], compression="lz4")
        facts.append(facts_of(piece))
    return facts_together(facts), parts


def _as_frame(facts: Facts, digest: str) -> pl.DataFrame:
    values = {name: getattr(facts, name) for name in ("jobs", "last_end", "last_event", "has_open", "has_waiting", "users")}
    texts = {column: ([end.decode() for end in ends], longest) for column, (ends, longest) in facts.texts.items()}
    return pl.DataFrame({"facts": [json.dumps({**values, "texts": texts, "sha256": digest})]})


def _identity(made_of: Mapping[str, Any], cluster: Cluster | None) -> dict[str, Any]:
    """What a file was made of, and how it is read: another version of this module cannot know its facts."""
    return {**made_of, "cluster": repr(cluster), "reader": code_digest((sys.modules[__name__],))}


def _path(site: Site, name: str, identity: Mapping[str, Any]) -> Path:
    made_of = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
    return site.snapshots / f"overview-{name}-{made_of[:16]}.parquet"


def _record(name: str) -> str:
    return f"overview-{name}.npz"
