"""Which record is right, when several tell of the same job: one answer, in whatever order they came.

(stored rows, new rows, when each was last seen) -> resolve -> rows to store.

Precedence of two records of one job: a finished job over an unfinished one, then the one seen later, then the one further down
its file, then failure over success, then the larger fingerprint. Field by field, the value of the highest record that *has* the
field wins: a log without MaxRSS does not erase the MaxRSS of another. Because that is a maximum, the order of arrival does not
matter (ADR 1).
"""

from __future__ import annotations

import polars as pl

from stormpetrel.records.doubts import QUALITY, RULES, has_any, quality_of
from stormpetrel.records.jobs import CLOSED_BY_ABSENCE, FIELD_BIT, KEY, STORED_SCHEMA, VALUES
from stormpetrel.records.states import FINISHED, JobState
from stormpetrel.store.jobs import last_sightings

_VISIBLE = [name for name in (*VALUES, QUALITY) if name != "source"]


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
