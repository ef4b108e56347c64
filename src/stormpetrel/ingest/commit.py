"""Job rows into the job table, so that the result depends on what was read, not on how often or in which order.

JobFrame -> commit_jobs -> (kept, known, changed).

Which record is right, when several tell of the same job: one answer, in whatever order they came.

(stored rows, new rows, when each was last seen) -> resolve -> rows to store.

Precedence of two records of one job: a finished job over an unfinished one, then the one seen later, then the one further down
its file, then failure over success, then the larger fingerprint. Field by field, the value of the highest record that *has* the
field wins: a log without MaxRSS does not erase the MaxRSS of another. Because that is a maximum, the order of arrival does not
matter (ADR 1).
"""

from __future__ import annotations

from datetime import datetime

import polars as pl

from stormpetrel.records.cursor import Cursor
from stormpetrel.records.doubts import QUALITY, RULES, has_any, quality_of
from stormpetrel.records.jobs import CLOSED_BY_ABSENCE, FIELD_BIT, FROM_STEPS, KEY, STORED_SCHEMA, VALUES
from stormpetrel.records.states import FINISHED, JobState
from stormpetrel.records.times import month_of
from stormpetrel.store.jobs import SIGHTINGS, JobStore, last_sightings, sightings_of
from stormpetrel.store.tables import Committed

_VISIBLE = [name for name in (*VALUES, QUALITY) if name != "source"]


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
    unreported = [pl.when(pl.col(name).is_null()).then(fields & FIELD_BIT[name]).otherwise(0) for name in FROM_STEPS]
    return jobs.with_columns(
        fields=(pl.lit(fields, dtype=pl.Int64) - pl.sum_horizontal(unreported)).cast(pl.Int64),
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


def rank_of(state: pl.Expr, source: pl.Expr) -> pl.Expr:
    """0 for a job that goes on, 1 for one that completed, 2 for one that ended otherwise.

    That a job is on no list any more is no word of its end: it gives way to the next sighting, and to any real end.
    """
    finished = state.is_in([state.value for state in FINISHED]) & source.ne_missing(pl.lit(CLOSED_BY_ABSENCE))
    return pl.when(~finished).then(0).when(state == JobState.COMPLETED.value).then(1).otherwise(2).cast(pl.Int8)


def resolve(stored: pl.DataFrame, incoming: pl.DataFrame, seen: pl.DataFrame) -> pl.DataFrame:
    """One row per key, out of stored rows and new ones of the same keys.

    Parameters
    ----------
    stored, incoming
        Rows in the stored schema.
    seen
        `fingerprint`, `as_of` and `line`: when and where each record was seen, for all records concerned.

    Returns
    -------
    Rows in the stored schema with `change` next to them: `new`, `changed` (a column that a person sees), `same` (only the
    bookkeeping) or `untouched`.
    """
    keys = incoming.select(KEY).unique(maintain_order=True).with_row_index("_g")
    observed = pl.concat(
        [_layers(stored).with_columns(_stored=pl.lit(True)), _layers(incoming).with_columns(_stored=pl.lit(False))]
    ).join(keys, on=list(KEY), how="inner", nulls_equal=True)
    newest = last_sightings(seen.lazy()).collect()
    ordered = (
        observed.join(newest, on="fingerprint", how="left")
        .with_columns(_width=pl.col("fields").bitwise_count_ones())
        .sort(
            "_g",
            pl.col("rank") > 0,
            "as_of",
            "line",
            "rank",
            "fingerprint",
            "_width",
            descending=[False, True, True, True, True, True, True],
            nulls_last=True,
        )
        .unique(["_g", "fingerprint"], keep="first", maintain_order=True)
    )
    best = ordered.unique("_g", keep="first", maintain_order=True)
    if ordered["fields"].n_unique() > 1:
        best = _field_by_field(ordered, best)
    else:
        best = best.with_columns(older=pl.lit(None, dtype=STORED_SCHEMA["older"]))
    return _with_change(best, stored.join(keys, on=list(KEY), how="inner", nulls_equal=True))


def _layers(rows: pl.DataFrame) -> pl.DataFrame:
    """Each row once for the record it was made from and once for each older record that still owns some of its columns."""
    tops = rows.with_columns(rank=rank_of(pl.col("state"), pl.col("source")))
    older = rows.filter(pl.col("older").is_not_null())
    if not older.height:
        return tops
    exploded = older.drop("fingerprint", "fields").explode("older").unnest("older")
    parts = exploded.with_columns(older=pl.lit(None, dtype=STORED_SCHEMA["older"])).select(tops.columns)
    # The top record owns every column it provided; `fields` of a row says just that.
    return pl.concat([tops, parts])


def _field_by_field(ordered: pl.DataFrame, best: pl.DataFrame) -> pl.DataFrame:
    provides = {name: (pl.col("fields") & FIELD_BIT[name]) != 0 for name in VALUES}
    # A rule of data quality goes with the column that it speaks of, whichever record that comes from.
    rules = [has_any([rule.name]).filter(provides[rule.about]).first().fill_null(False).alias(rule.name) for rule in RULES]
    values = ordered.group_by("_g", maintain_order=True).agg(
        *(pl.col(name).filter(is_provided).first() for name, is_provided in provides.items()), *rules
    )
    values = values.with_columns(quality_of(values)).drop(rule.name for rule in RULES)
    first_provider = [
        pl.when(is_provided & (is_provided.cast(pl.Int32).cum_sum().over("_g") == 1)).then(FIELD_BIT[name]).otherwise(0)
        for name, is_provided in provides.items()
    ]
    owned = ordered.select("_g", "fingerprint", "rank", fields=pl.sum_horizontal(first_provider).cast(pl.Int64)).join(
        best.select("_g", _top="fingerprint"), on="_g"
    )
    older = (
        owned.filter((pl.col("fingerprint") != pl.col("_top")) & (pl.col("fields") != 0))
        .group_by("_g", maintain_order=True)
        .agg(older=pl.struct("fingerprint", "rank", "fields"))
    )
    return (
        best.drop(*VALUES, QUALITY, "older")
        .join(values, on="_g", maintain_order="left")
        .join(older, on="_g", how="left", maintain_order="left")
    )


def _with_change(best: pl.DataFrame, stored: pl.DataFrame) -> pl.DataFrame:
    before = stored.select("_g", *[pl.col(name).alias(f"_was_{name}") for name in (*_VISIBLE, "fingerprint", "fields", "older")])
    compared = best.join(before.with_columns(_had=pl.lit(True)), on="_g", how="left", maintain_order="left")
    visible = pl.all_horizontal([pl.col(name).eq_missing(pl.col(f"_was_{name}")) for name in _VISIBLE])
    books = pl.all_horizontal([pl.col(name).eq_missing(pl.col(f"_was_{name}")) for name in ("fingerprint", "fields", "older")])
    change = (
        pl.when(pl.col("_had").is_null())
        .then(pl.lit("new"))
        .when(~visible)
        .then(pl.lit("changed"))
        .when(~books)
        .then(pl.lit("same"))
        .otherwise(pl.lit("untouched"))
    )
    return compared.with_columns(change=change).select(*STORED_SCHEMA, "change")
