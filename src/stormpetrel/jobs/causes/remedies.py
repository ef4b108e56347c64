"""What helped others: a failure and the next try of the same work, and how often each kind of change led to success.

job frame -> retries -> one row per pair; a failed job + pairs -> remedies -> Remedy, best first. A pair counts once its second
job has ended by `now`; the same work is the same application of the same user, and the same task of an array.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Any, Final

import polars as pl

from stormpetrel.jobs.history.keys import APPLICATION_COLUMNS, families
from stormpetrel.jobs.outcomes import COMPLETED, OUTCOME_LABELS, outcome
from stormpetrel.records.units import format_memory

LOOK_BACK: Final = timedelta(days=180)
_WITHIN: Final = timedelta(days=14)
_MORE: Final = 1.05  # times the request before: what is less is the same request
FEWEST_TRIES: Final = 3  # of a change, below which it says nothing
_MOST: Final = 3
UNCHANGED: Final = "unchanged"
# Column -> what more of it, and less of it, is called; the first that applies names the change.
_CHANGES: Final = {
    "req_mem_bytes": ("more memory", "less memory"),
    "time_limit_s": ("more time", "less time"),
    "req_nodes": ("more nodes", "fewer nodes"),
    "req_cpus": ("more CPUs", "fewer CPUs"),
}
_READ: Final = (
    "cluster", "user", "array_task", "submit_time", "start_time", "end_time", "elapsed_s", "state", "partition",
    *APPLICATION_COLUMNS, *_CHANGES,
)  # fmt: skip
_SAME_WORK: Final = ("cluster", "user", "family", "array_task")
PAIR_COLUMNS: Final = ("cluster", "user", "family", "outcome", "change", "factor", "to", "succeeded", "ended")


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change that people made after such a failure: how many tried it, after how many the next try completed.

    `factor` is the median of the new request over the old one. `unchanged` is the share that completed without any change, None
    where too few tried that.
    """

    change: str
    tries: int
    succeeded: int
    factor: float | None
    whose: str  # "your", "this application's" or "everybody's"
    unchanged: float | None
    sentence: str


def retries(jobs: pl.DataFrame | pl.LazyFrame, *, now: datetime) -> pl.DataFrame:
    """Return every failure with the next try of the same work: what was changed, and whether that completed."""
    recent = jobs.lazy().filter(pl.col("end_time") <= now, pl.col("end_time") >= now - LOOK_BACK, pl.col("user").is_not_null())
    known = recent.select(_READ).collect()
    rows = known.with_columns(outcome(), families(known)).filter(pl.col("outcome").is_not_null(), pl.col("family").is_not_null())
    rows = rows.sort(*_SAME_WORK, "submit_time", nulls_last=True)
    is_pair, of_pair, of_change = _of_pairs()
    # In one query, carried out as it is written: for the few jobs of a kind each one more, and a plan, cost more than the work.
    pairs = rows.lazy().with_columns(_next_tries()).filter(is_pair).with_columns(of_pair).with_columns(of_change)
    return pairs.select(PAIR_COLUMNS).collect(optimizations=pl.QueryOptFlags.none())


@cache
def _next_tries() -> list[pl.Expr]:
    """The next try, of rows that are sorted, and whether it is of the same work (a window per column would take much longer)."""
    names = ("submit_time", "outcome", "end_time", "partition", *_CHANGES)
    following = [pl.col(name).shift(-1).alias(f"next_{name}") for name in names]
    is_same = pl.all_horizontal(pl.col(name).eq_missing(pl.col(name).shift(-1)) for name in _SAME_WORK)
    return [*following, is_same.alias("is_same")]


@cache
def _of_pairs() -> tuple[pl.Expr, list[pl.Expr], list[pl.Expr]]:
    """Whether a row and its next try are a failure and what came of it; what is told of the pair, and of the change."""
    is_pair = (
        pl.col("is_same")
        & pl.col("outcome").is_in(list(OUTCOME_LABELS))
        & (pl.col("outcome") != "CANCELLED")
        & pl.col("next_outcome").is_in([COMPLETED, *OUTCOME_LABELS])
        & pl.col("next_submit_time").is_between(pl.col("end_time"), pl.col("end_time") + _WITHIN)
    )
    of_pair = [_changed(), (pl.col("next_outcome") == COMPLETED).alias("succeeded"), pl.col("next_end_time").alias("ended")]
    of_change = [
        _of_change(lambda column: pl.col(f"next_{column}") / pl.col(column)).alias("factor"),
        _of_change(lambda column: pl.col(f"next_{column}").cast(pl.Float64)).alias("to"),
    ]
    return is_pair, of_pair, of_change


def _changed() -> pl.Expr:
    """The name of the change from one try to the next."""
    change: Any = pl.when(pl.lit(False)).then(pl.lit(""))
    for column, (more, less) in _CHANGES.items():
        ratio = pl.col(f"next_{column}") / pl.col(column)
        change = change.when(ratio >= _MORE).then(pl.lit(more)).when(ratio <= 1 / _MORE).then(pl.lit(less))
    moved = pl.col("next_partition").ne_missing(pl.col("partition"))
    expression: pl.Expr = change.when(moved).then(pl.lit("another partition")).otherwise(pl.lit(UNCHANGED)).alias("change")
    return expression


def _of_change(value: Any) -> pl.Expr:
    """A value of the column that was changed; null where none was, or the partition."""
    named = {name: column for column, names in _CHANGES.items() for name in names}
    return pl.coalesce(*(pl.when(pl.col("change") == name).then(value(column)) for name, column in named.items()))


def remedies(job: Mapping[str, Any], job_family: str | None, job_outcome: str, pairs: pl.DataFrame) -> tuple[Remedy, ...]:
    """Return the changes that helped after such a failure, best first: by one's own tries where there are enough."""
    alike = pairs.filter(pl.col("outcome") == job_outcome)
    own = pl.col("user") == pl.lit(job.get("user"), dtype=pl.String)
    same = pl.col("family") == pl.lit(job_family, dtype=pl.String)
    circles = {"your": alike.filter(own & same), "this application's": alike.filter(same), "everybody's": alike}
    for whose, chosen in circles.items():
        if chosen.filter(pl.col("change") != UNCHANGED).height >= FEWEST_TRIES:
            return _counted(chosen, whose, job_outcome)
    return ()


def _counted(pairs: pl.DataFrame, whose: str, job_outcome: str) -> tuple[Remedy, ...]:
    plain = pairs.filter(pl.col("change") == UNCHANGED)["succeeded"]
    unchanged = float(plain.mean() or 0.0) if len(plain) >= FEWEST_TRIES else None  # type: ignore[arg-type]
    counts = (
        pairs.filter(pl.col("change") != UNCHANGED)
        .group_by("change")
        .agg(
            tries=pl.len(),
            succeeded=pl.col("succeeded").sum(),
            factor=pl.col("factor").filter("succeeded").median(),
            to=pl.col("to").filter("succeeded").median(),
        )
        .filter(pl.col("tries") >= FEWEST_TRIES)
        # A share of few tries leans towards one half: two of two are no better than 18 of 20.
        .sort((pl.col("succeeded") + 1) / (pl.col("tries") + 2), descending=True)
    )
    helpful = []
    for row in counts.iter_rows(named=True):
        share = row["succeeded"] / row["tries"]
        if unchanged is not None and share <= unchanged:
            continue
        helpful.append(_remedy(row, whose, unchanged, job_outcome))
    return tuple(helpful[:_MOST])


def _remedy(row: Mapping[str, Any], whose: str, unchanged: float | None, job_outcome: str) -> Remedy:
    label = OUTCOME_LABELS[job_outcome]
    people = {"your": "you", "this application's": "people with this application", "everybody's": "people"}[whose]
    size = f" (median {row['factor']:.1f} times as much" if row["factor"] is not None and row["factor"] >= _MORE else ""
    if size and row["change"] == "more memory" and row["to"] is not None:
        size += f", {format_memory(row['to'])}"
    size += ")" if size else ""
    than = f"; without a change {unchanged:.0%}" if unchanged is not None else ""
    tried = f"{people} tried {row['change']}{size} {row['tries']} times"
    sentence = f"After such a failure ({label}) {tried}: {row['succeeded']} of the next tries completed{than}."
    return Remedy(row["change"], row["tries"], row["succeeded"], row["factor"], whose, unchanged, sentence)
