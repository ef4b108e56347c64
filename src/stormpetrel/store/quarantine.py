"""What could not be read: records in quarantine, each with its rule, reason and text; and unread values, counted per column.

A table `quarantine`; UnreadCounts of an ingest -> UnreadFields.add -> a fact of the state store -> shares, for the doctor,
without any text of a record.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import polars as pl

from stormpetrel.records.unread import UnreadCounts
from stormpetrel.store.state import StateStore
from stormpetrel.store.tables import Table, TableSpec

QUARANTINE = TableSpec(
    "quarantine",
    pl.Schema(
        {
            "id": pl.String,  # digest of source, line, rule and raw: the same record is kept once however often it is read
            "source": pl.String,
            "line": pl.Int64,
            "rule": pl.String,
            "reason": pl.String,
            "raw": pl.String,
        }
    ),
    (),
    ("line",),
)
_KEY: Final = "unread_fields"
# Beyond so many values of a column both counts are halved: what was mended is believed after some thousand good records.
_REMEMBERED: Final = 20_000


class Quarantine:
    """Reads and writes the quarantine table of a site."""

    def __init__(self, tables: Path, *, keep_raw: bool) -> None:
        self.table = Table(tables, QUARANTINE)
        self._keep_raw = keep_raw  # a raw line may name users: not kept where users are pseudonymised

    def create(self) -> None:
        """Create the table unless it is there."""
        self.table.create()

    def add(self, rejects: pl.DataFrame, source: str) -> None:
        """Keep refused records, once each. The caller holds the writer lock."""
        if not rejects.height:
            return
        ids = [
            hashlib.blake2b("\0".join((source, str(line), rule, raw or "")).encode(), digest_size=16).hexdigest()
            for line, rule, raw in rejects.select("line", "rule", "raw").iter_rows()
        ]
        rows = rejects.with_columns(pl.Series("id", ids), source=pl.lit(source)).unique("id", keep="first", maintain_order=True)
        if not self._keep_raw:
            rows = rows.with_columns(raw=pl.lit(None, dtype=pl.String), reason=pl.col("reason").str.replace(r": .*$", ""))
        known = self.table.scan().select("id").collect()
        self.table.append(rows.join(known, on="id", how="anti", maintain_order="left"))

    def read(self) -> pl.LazyFrame:
        """The refused records."""
        return self.table.scan()


@dataclass(frozen=True, slots=True)
class UnreadField:
    """A column of a format, how many of its last values could not be read, and out of how many."""

    format: str
    column: str
    unread: int
    filled: int

    @property
    def share(self) -> float:
        """The share of the values that could not be read."""
        return self.unread / self.filled if self.filled else 0.0


class UnreadFields:
    """Counts, by format and job column, what could be read and what not."""

    def __init__(self, state: StateStore) -> None:
        self._state = state

    def shares(self) -> list[UnreadField]:
        """Every column that could not always be read, the worst first."""
        shares = [
            UnreadField(name, column, unread, filled)
            for name, columns in self._all().items()
            for column, (unread, filled) in columns.items()
        ]
        return sorted(shares, key=lambda field: (-field.share, field.format, field.column))

    def add(self, format_name: str, counts: UnreadCounts) -> None:
        """Add what one ingest found; nothing is written where it has nothing to say. The caller holds the writer lock.

        A column that could always be read is not entered; one that could not be is counted from then on.
        """
        if not counts.filled:
            return
        known = self._all()
        columns = known.setdefault(format_name, {})
        concerned = (columns.keys() | counts.counts.keys()) & counts.filled.keys()
        if not concerned:
            return
        for column in concerned:
            unread, filled = columns.get(column, (0, 0))
            columns[column] = _bounded(unread + counts.counts.get(column, 0), filled + counts.filled[column])
        self._state.set_fact(_KEY, json.dumps(known))

    def _all(self) -> dict[str, dict[str, tuple[int, int]]]:
        text = self._state.fact(_KEY)
        if not text:
            return {}
        return {name: {column: (pair[0], pair[1]) for column, pair in pairs.items()} for name, pairs in json.loads(text).items()}


def _bounded(unread: int, filled: int) -> tuple[int, int]:
    while filled > _REMEMBERED:
        unread, filled = -(-unread // 2), filled // 2
    return unread, filled
