"""Counts by kind and place, laid out for many small questions: how many at each value, between two buckets.

COUNT_SCHEMA frame -> Placed -> sums. An alarm asks for a dozen such sums, and the first scoring of a year has hundreds of alarms.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from stormpetrel.records.events import COVERED, WHOLE


@dataclass(frozen=True, slots=True, eq=False)
class _Column:
    """The rows of one kind at one sort of place, in the order of time."""

    start_s: npt.NDArray[np.int64]  # (rows,)
    value: npt.NDArray[np.int64]  # (rows,) which of `values`
    count: npt.NDArray[np.float64]  # (rows,)
    values: tuple[str, ...]

    def sums(self, since_s: int, until_s: int) -> npt.NDArray[np.float64]:
        """(values,) how many there were from one moment to before another."""
        first, last = np.searchsorted(self.start_s, (since_s, until_s))
        found = np.bincount(self.value[first:last], weights=self.count[first:last], minlength=len(self.values))
        return found.astype(np.float64)


class Placed:
    """The counts of some time, by kind and place."""

    def __init__(self, counts: pl.DataFrame) -> None:
        rows = counts.filter(pl.col("kind") != COVERED).sort("bucket_start")
        self._columns = {
            (str(kind), str(place)): _column(part)
            for (kind, place), part in rows.partition_by("kind", "place", as_dict=True).items()
        }

    def sums(self, kind: str, place: str, since_s: int, until_s: int) -> tuple[tuple[str, ...], npt.NDArray[np.float64]]:
        """The values at a sort of place, and (values,) how many events of a kind each had from one moment to before another."""
        column = self._columns.get((kind, place))
        return ((), np.empty(0)) if column is None else (column.values, column.sums(since_s, until_s))

    def kinds(self) -> list[str]:
        """The kinds that were counted over all places."""
        return sorted(kind for kind, place in self._columns if place == WHOLE)


def _column(part: pl.DataFrame) -> _Column:
    values = part["value"].unique().sort()
    numbers = part["value"].replace_strict(values, pl.Series(range(len(values))), return_dtype=pl.Int64)
    return _Column(
        part["bucket_start"].dt.epoch("s").to_numpy(),
        numbers.to_numpy(),
        part["count"].cast(pl.Float64).to_numpy(),
        tuple(values.to_list()),
    )
