"""The tombstones: a small table that says, by keyed digests, who must not be taken in again.

The state store is where they are looked up; this copy lies among the tables, where it outlives a lost state. Neither compaction
nor retention touches it.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime
from typing import Final

import polars as pl

from stormpetrel.records.times import UTC_TIME
from stormpetrel.store.tables import TableSpec, TableStore

FORGOTTEN: Final = TableSpec("forgotten", pl.Schema({"digest": pl.String(), "since": UTC_TIME}), (), ("since",))


class ForgottenStore(TableStore):
    """Reads and writes the tombstones of a site."""

    spec = FORGOTTEN

    def digests(self) -> frozenset[str]:
        """Everybody who must not be taken in again."""
        return frozenset(self.table.scan().select("digest").collect()["digest"])

    def add(self, digests: Collection[str]) -> int:
        """Add those that are not there yet, in one commit; how many. Nobody waits where there is nothing to add."""
        if not set(digests) - self.digests():
            return 0
        with self._writer_lock():
            new = sorted(set(digests) - self.digests())
            since = pl.lit(datetime.now(UTC)).cast(UTC_TIME)
            self.table.append(pl.DataFrame({"digest": new}, schema={"digest": pl.String}).with_columns(since=since))
        return len(new)
