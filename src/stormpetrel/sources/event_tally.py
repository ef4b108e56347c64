"""Events by the million -> counts: kinds and places are numbers while they are counted, and names afterwards.

arrays of times, kinds and places -> CountTally -> COUNT_SCHEMA without marks: the same counts as `count_events` gives, for
sources that have their events as arrays and not as a frame of names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stormpetrel.records.events import OTHER_VALUES, WHOLE, as_counts, no_counts
from stormpetrel.records.times import UTC_TIME

MOST_KINDS: Final = 1 << 10
MOST_NAMES: Final = 1 << 21
_KIND_BITS: Final = 10  # of a packed key: bucket, kind, name
_NAME_BITS: Final = 21
_MOST_PARTS: Final = 64

Ids = NDArray[np.int32] | NDArray[np.uint32] | NDArray[np.int64]
NamedIds = tuple[Ids, pl.Series]  # of each event a number, and the names that the numbers stand for


class CountTally:
    """Adds up events: per bucket and kind, of all places together and by place."""

    def __init__(self, bucket_s: int) -> None:
        self._bucket_s = bucket_s
        self._parts: list[pl.DataFrame] = []

    def add(
        self,
        time_us: NDArray[np.int64],
        kinds: NDArray[np.int64],
        kind_names: pl.Series,
        places: Mapping[str, tuple[Ids, pl.Series]],
    ) -> None:
        """Count events: time, kind (a number below MOST_KINDS into `kind_names`), and of each place a number into its names.

        A number below zero is a place that nobody tells; an empty name is none.
        """
        if not time_us.size:
            return
        buckets = time_us // (self._bucket_s * 1_000_000)
        first = int(buckets.min())
        cell = ((buckets - first) << _KIND_BITS | kinds) << _NAME_BITS  # (events,)
        self._keep(cell, first, kind_names, WHOLE, None)
        for place, (ids, names) in places.items():
            is_known = ids >= 0
            if is_known.all():
                self._keep(cell | ids, first, kind_names, place, names)
            elif is_known.any():
                self._keep(cell[is_known] | ids[is_known], first, kind_names, place, names)
        if len(self._parts) > _MOST_PARTS:
            self._parts = [self._summed()]

    def take(self, source: str, *, most_places: int) -> pl.DataFrame:
        """Everything so far as COUNT_SCHEMA without marks; the tally is empty again.

        Of each bucket, kind and place the `most_places` values with most events are kept; the others are one, OTHER_VALUES.
        """
        if not self._parts:
            return no_counts()
        counts, self._parts = _most(self._summed(), most_places), []
        start = (pl.col("bucket") * (self._bucket_s * 1_000_000)).cast(UTC_TIME).alias("bucket_start")
        return as_counts(counts.with_columns(start).drop("bucket"), source, self._bucket_s)

    def _keep(self, keys: NDArray[np.int64], first: int, kind_names: pl.Series, place: str, names: pl.Series | None) -> None:
        counted = pl.Series("key", keys).to_frame().group_by("key").agg(pl.len().cast(pl.Int64).alias("count"))
        packed = counted["key"].to_numpy()
        ids, cells = packed & (MOST_NAMES - 1), packed >> _NAME_BITS
        frame = pl.DataFrame(
            {
                "bucket": (cells >> _KIND_BITS) + first,
                "kind": kind_names.gather(cells & (MOST_KINDS - 1)),
                "place": pl.repeat(place, packed.size, eager=True),
                "value": pl.repeat("", packed.size, eager=True) if names is None else names.gather(ids),
                "count": counted["count"],
            }
        )
        self._parts.append(frame if names is None else frame.filter(pl.col("value") != ""))

    def _summed(self) -> pl.DataFrame:
        return pl.concat(self._parts).group_by("bucket", "kind", "place", "value").agg(pl.col("count").sum())


def _most(counts: pl.DataFrame, most: int) -> pl.DataFrame:
    """The counts with at most so many values per bucket, kind and place; the same whatever the order of the events."""
    cell = ["bucket", "kind", "place"]
    sizes = counts.group_by(cell).agg(pl.len().alias("size")).filter(pl.col("size") > most)
    if not sizes.height:
        return counts
    crowded = counts.join(sizes, on=cell, how="semi").sort("count", "value", descending=[True, False])
    rank = pl.int_range(pl.len()).over(cell)
    fewer = crowded.with_columns(value=pl.when(rank < most).then("value").otherwise(pl.lit(OTHER_VALUES)))
    summed = fewer.group_by(*cell, "value").agg(pl.col("count").sum())
    return pl.concat([counts.join(sizes, on=cell, how="anti"), summed])
