"""Job rows into the job table, so that the result depends on what was read, not on how often or in which order.

JobFrame -> commit_jobs -> (kept, known, changed).
"""

from __future__ import annotations

from datetime import datetime

import polars as pl

from stormpetrel.ingest.resolve import rank_of, resolve
from stormpetrel.records.cursor import Cursor
from stormpetrel.records.jobs import FIELD_BIT, FROM_STEPS, KEY, STORED_SCHEMA
from stormpetrel.records.times import month_of
from stormpetrel.store.jobs import SIGHTINGS, JobStore, sightings_of
from stormpetrel.store.tables import Committed


def commit_jobs(
    store: JobStore,
    jobs: pl.DataFrame,
    *,
    fields: int,
    as_of: datetime,
    seen_again: pl.DataFrame | None = None,
    cursor: Cursor | None = None,
    looking: bool = False,
) -> Committed:
    """Take in job rows (with `fingerprint` and `line` next to the schema's columns), all of them or none.

    `seen_again` are records of the same source that the table holds already. With `looking` nothing is written where no row
    changes.
    """
    rows = _stored(jobs, fields)
    distinct = rows.unique("fingerprint", keep="first", maintain_order=True)
    repeated = rows.height - distinct.height
    if looking and not distinct.height:
        return _in_vain(store, cursor, repeated)
    frames = [frame for frame in (jobs, seen_again) if frame is not None]
    seen = pl.concat([SIGHTINGS.schema.to_frame(), *(sightings_of(frame, as_of) for frame in frames)])
    with store.locked():
        stored_keys = store.keys_near(distinct)
        if _all_new(distinct, stored_keys):
            store.write(distinct, seen, all_new=True, cursor=cursor)
            return Committed(kept=distinct.height, known=repeated)
        result = _resolved(store, distinct, stored_keys, seen)
        written = result.filter(pl.col("change") != "untouched").drop("change")
        if looking and not written.height:
            return _in_vain(store, cursor, rows.height)
        store.write(written, seen, all_new=bool((result["change"] == "new").all()), cursor=cursor)
    counted = count_changes(distinct, result)
    return Committed(kept=counted.kept, known=counted.known + repeated, changed=counted.changed)


def _stored(jobs: pl.DataFrame, fields: int) -> pl.DataFrame:
    """The rows in the stored schema.

    What only steps tell is told by a record that has it: one without steps, or with a damaged one, erases nothing.
    """
    untold = [pl.when(pl.col(name).is_null()).then(fields & FIELD_BIT[name]).otherwise(0) for name in FROM_STEPS]
    return jobs.with_columns(
        fields=(pl.lit(fields, dtype=pl.Int64) - pl.sum_horizontal(untold)).cast(pl.Int64),
        older=pl.lit(None, dtype=STORED_SCHEMA["older"]),
        month=month_of(pl.col("submit_time")),
    ).select(*STORED_SCHEMA)


def _in_vain(store: JobStore, cursor: Cursor | None, known: int) -> Committed:
    if cursor is not None:
        store.read_in_vain(cursor)
    return Committed(known=known)


def _all_new(rows: pl.DataFrame, stored_keys: pl.DataFrame) -> bool:
    """Whether no two of the rows, and none of the rows and the stored ones, are of the same job."""
    if rows.select(KEY).n_unique() < rows.height:
        return False
    if not stored_keys.height:
        return True
    return not rows.select(KEY).join(stored_keys, on=list(KEY), how="semi", nulls_equal=True).height


def _resolved(store: JobStore, rows: pl.DataFrame, stored_keys: pl.DataFrame, seen_now: pl.DataFrame) -> pl.DataFrame:
    """One row per key out of the stored rows and the new ones, with `change` next to it."""
    stored = store.rows_of(stored_keys.join(rows.select(KEY), on=list(KEY), how="semi", nulls_equal=True))
    fingerprints = pl.concat([stored["fingerprint"], rows["fingerprint"], _older_fingerprints(stored)]).unique()
    return resolve(stored, rows, pl.concat([store.sightings_of_records(fingerprints), seen_now]))


def count_changes(rows: pl.DataFrame, result: pl.DataFrame) -> Committed:
    """Kept, known and changed records, such that they add up to the rows.

    Of several records of one new job in a chunk the first counts as kept; each later one that beats what was there before it
    counts as changed, and the others as known: the same as if they had come in chunks of their own.
    """
    per_key = rows.with_row_index("_n").join(
        result.select(*KEY, "change"), on=list(KEY), how="left", nulls_equal=True, maintain_order="left"
    )
    first = pl.col("_n") == pl.col("_n").min().over(KEY)
    rank = rank_of(pl.col("state"), pl.col("source"))
    improved = rank > rank.cum_max().shift(1).over(KEY)
    outcome = (
        pl.when(pl.col("change").is_in(["same", "untouched"]))
        .then(pl.lit("known"))
        .when(first & (pl.col("change") == "new"))
        .then(pl.lit("kept"))
        .when(first)
        .then(pl.lit("changed"))
        .when(improved)
        .then(pl.lit("changed"))
        .otherwise(pl.lit("known"))
    )
    counts = dict(per_key.select(outcome.alias("outcome")).to_series().value_counts().iter_rows())
    return Committed(kept=counts.get("kept", 0), known=counts.get("known", 0), changed=counts.get("changed", 0))


def _older_fingerprints(stored: pl.DataFrame) -> pl.Series:
    layers = stored["older"].drop_nulls().explode()
    return layers.struct.field("fingerprint") if len(layers) else pl.Series(dtype=pl.Int64)
