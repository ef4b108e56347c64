"""What the store already knows: fingerprints of the records behind its rows, and when each was last seen."""

from __future__ import annotations

from datetime import datetime

import numpy as np
import polars as pl

from stormpetrel.records.times import UTC_TIME


class KnownRecords:
    """An index over the fingerprints of the job table, sorted once and searched for each chunk."""

    def __init__(self, jobs: pl.LazyFrame, sightings: pl.LazyFrame) -> None:
        rows = jobs.select("fingerprint", "state", "state_raw", "submit_time").collect()
        seen = last_sightings(sightings).collect()
        rows = rows.cast({"state": pl.Categorical, "state_raw": pl.Categorical}) if rows.height else rows
        joined = rows.join(seen, on="fingerprint", how="left").sort("fingerprint")
        self._fingerprints = joined["fingerprint"].to_numpy()
        self._rows = joined.drop("fingerprint")

    def __len__(self) -> int:
        return len(self._fingerprints)

    def look_up(self, fingerprints: pl.Series) -> pl.DataFrame:
        """For each fingerprint: `known`, and of a known one its state, raw state, submit time and when it was last seen."""
        if not len(self):
            schema = pl.Schema(
                [
                    ("known", pl.Boolean()),
                    ("state", pl.String()),
                    ("state_raw", pl.String()),
                    ("submit_time", UTC_TIME),
                    ("as_of", UTC_TIME),
                    ("line", pl.Int64()),
                ]
            )
            empty = pl.DataFrame(schema=schema).clear(len(fingerprints))
            return empty.with_columns(known=pl.lit(False))
        wanted = fingerprints.to_numpy()
        order = np.argsort(wanted)  # searching in order keeps to the cache: three times as fast
        inside = np.empty(len(wanted), dtype=np.int64)
        inside[order] = np.minimum(np.searchsorted(self._fingerprints, wanted[order]), len(self) - 1)
        known = self._fingerprints[inside] == wanted
        rows = self._rows[inside].cast({"state": pl.String, "state_raw": pl.String})
        return rows.with_columns(known=pl.Series(known))


def fingerprints(records: pl.DataFrame, steps: pl.DataFrame | None, seed: int) -> pl.Series:
    """A 64-bit hash of each record with its steps, keyed by the site's own seed so that no user can aim for a collision.

    Stable within one version of polars: after an upgrade a file that was known is read in full once more, and found equal.
    """
    hashes = records.drop("record", "line").hash_rows(seed=seed)
    if steps is not None and steps.height:
        of_steps = pl.DataFrame({"record": steps["record"], "h": steps.drop("record", "line").hash_rows(seed=seed)})
        # A sum does not mind the order of the steps; wrapping around is fine for a hash.
        sums = of_steps.group_by("record").agg(pl.col("h").sum(), n=pl.len().cast(pl.UInt64))
        both = records.select("record").with_columns(own=hashes).join(sums, on="record", how="left", maintain_order="left")
        hashes = both.select(pl.struct("own", "h", "n").hash(seed=seed)).to_series()
    return hashes.reinterpret(signed=True).rename("fingerprint")


def sightings_of(records: pl.DataFrame, as_of: datetime) -> pl.DataFrame:
    """The fact that these records (`fingerprint`, `line`) were seen at a time, and where; of two in one file, the later line."""
    seen = records.select("fingerprint", "line").unique("fingerprint", keep="last", maintain_order=True)
    return seen.select("fingerprint", pl.lit(as_of, dtype=UTC_TIME).alias("as_of"), "line")


def last_sightings(sightings: pl.LazyFrame) -> pl.LazyFrame:
    """When and where each record was seen last."""
    return sightings.sort("as_of", "line").unique("fingerprint", keep="last", maintain_order=True)
