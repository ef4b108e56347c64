"""The quarantine: records that could not be trusted, each with its rule, its reason and its text."""

from __future__ import annotations

import hashlib
from pathlib import Path

import polars as pl

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
