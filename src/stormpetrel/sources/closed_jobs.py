"""Jobs that are on no list any more, as records: what we concluded, not what a scheduler said.

keys and states -> ClosedJobs -> one chunk with `state` and `end_time` of each; everything else stays as it was known.
"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from stormpetrel.records.jobs import CLOSED_BY_ABSENCE, KEY, conform
from stormpetrel.records.quality import no_rejects
from stormpetrel.sources.contract import Chunk, LiveSource, Translation


class ClosedJobs(LiveSource):
    """Rows (KEY, `state`, `end_time`) of jobs that are closed because nobody lists them any more."""

    format = CLOSED_BY_ABSENCE

    def __init__(self, rows: pl.DataFrame) -> None:
        super().__init__("jobs on no list any more", None)
        self._rows = rows
        self._columns = frozenset({"state", "state_raw", "end_time"})

    def chunks(self) -> Iterator[Chunk]:
        """The rows as one chunk."""
        rows = conform(self._rows.select(*KEY, "state", "end_time", state_raw="state"))
        numbers = pl.int_range(rows.height, eager=True)
        records = rows.with_columns(record=numbers.cast(pl.UInt32), line=numbers)
        yield Chunk(records=records, translate=_already_rows, read=rows.height)


def _already_rows(records: pl.DataFrame, _steps: pl.DataFrame | None) -> Translation:
    return records, no_rejects()
