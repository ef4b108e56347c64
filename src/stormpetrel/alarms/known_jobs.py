"""Job records as the rules see them: what each tells, and from which moment on it is known.

job frame -> known_jobs -> one row per job with `application`, `failed`, `ref`; -> trials -> one row per job that started, with
the moment at which it was clear whether the job was lost at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final

import polars as pl

from stormpetrel.jobs.history.keys import family
from stormpetrel.jobs.outcomes import failed, outcome
from stormpetrel.records.jobs import ref_text
from stormpetrel.records.nodes import expand_nodes
from stormpetrel.records.states import DEFAULT_FAILURE_STATES, JobState

NEEDED: Final = (
    "cluster", "job_id", "array_task", "submit_time", "restart", "user", "job_name", "script_path", "work_dir", "extra",
    "state", "start_time", "end_time", "elapsed_s", "time_limit_s", "node_list",
)  # fmt: skip
AT_ONCE: Final = timedelta(minutes=2)  # a job that fails sooner after its start than this is lost at once
LONG_AGO: Final = timedelta(days=7)  # how far back the rules look for what is usual
_MOST_LISTS: Final = 20_000  # node lists whose names are remembered
_NOBODY: Final[frozenset[str]] = frozenset()
_WIDEST_JOB: Final = 64  # nodes; a wider job says little about any one of them


def known_jobs(
    jobs: pl.DataFrame, failure_states: Iterable[str] = DEFAULT_FAILURE_STATES, dropped_states: Iterable[str] = ()
) -> pl.DataFrame:
    """Return what the rules need of each job (columns `NEEDED`): cluster, user, application, times, outcome, failed, ref."""
    named = jobs.select(NEEDED).with_columns(
        pl.col("cluster", "user").fill_null(""),
        family().fill_null("").alias("application"),
        failed(failure_states, dropped_states),
        outcome(),
    )
    return named.select(
        "cluster",
        "user",
        "application",
        "state",
        "submit_time",
        "start_time",
        "end_time",
        "node_list",
        "failed",
        "outcome",
        ref_text(),
    )


def as_known_at(jobs: pl.DataFrame, now: datetime) -> pl.DataFrame:
    """Return the known jobs as they were at `now`: one that ends later runs, and one that starts later is not there."""
    later = (pl.col("end_time") > now).fill_null(False)
    return jobs.filter((pl.coalesce("start_time", "end_time") <= now).fill_null(False)).with_columns(
        pl.when(~later).then(pl.col("end_time")).alias("end_time"),
        pl.when(later).then(pl.lit(JobState.RUNNING.value)).otherwise(pl.col("state")).alias("state"),
        pl.when(~later).then(pl.col("failed")).alias("failed"),
        pl.when(~later).then(pl.col("outcome")).alias("outcome"),
    )


def ended(jobs: pl.DataFrame, now: datetime) -> pl.DataFrame:
    """Return the jobs whose outcome counts and is known at `now`, in the order of their ends; `at` is the end."""
    rows = jobs.filter(pl.col("failed").is_not_null(), pl.col("end_time") <= now)
    return rows.with_columns(pl.col("end_time").alias("at")).sort("at", "ref")


def trials(jobs: pl.DataFrame, now: datetime) -> pl.DataFrame:
    """Return the started jobs of which it is clear at `now` whether they were lost at once, in the order in which it became so.

    A job is lost if it failed within `AT_ONCE` of its start: that is clear at its end. It has survived if it completed, or was
    still there after that time: clear then, whatever becomes of it later. One that ended otherwise (cancelled, out of
    memory, its node gone) in that time says nothing, and is left out. `at` is when it was clear, `lost` what was.
    """
    soon = pl.col("start_time") + AT_ONCE
    ended_at_once = (pl.col("end_time") < soon).fill_null(False)
    rows = jobs.filter(pl.col("start_time").is_not_null(), pl.col("node_list").is_not_null()).select(
        "cluster", "user", "application", "submit_time", "start_time", "node_list", "ref",
        at=pl.when(ended_at_once).then(pl.col("end_time")).otherwise(soon),
        lost=ended_at_once & (pl.col("state") == JobState.FAILED),
        tells=~ended_at_once | pl.col("state").is_in([JobState.FAILED, JobState.COMPLETED]),
    )  # fmt: skip
    return (
        rows.filter(pl.col("tells") & (pl.col("at") <= now) & (pl.col("at") >= pl.col("start_time")))
        .drop("tells")
        .sort("at", "ref")
    )


def by_node(rows: pl.DataFrame) -> pl.DataFrame:
    """Return one row per job and node, with the number of nodes of the job (`width`); each distinct list is expanded once."""
    lists = rows["node_list"].drop_nulls().unique(maintain_order=True)
    expanded = pl.DataFrame(
        {"node_list": lists, "node": [_nodes_of(text) for text in lists]},
        schema={"node_list": pl.String, "node": pl.List(pl.String)},
    ).with_columns(width=pl.col("node").list.len())
    usable = expanded.filter(pl.col("width").is_between(1, _WIDEST_JOB))
    return rows.join(usable, on="node_list", how="inner", maintain_order="left").explode("node")


def touching(rows: pl.DataFrame, nodes: pl.DataFrame) -> pl.Series:
    """Return which of the rows have a node list with one of these nodes (`cluster`, `node`) in it."""
    named: dict[str, set[str]] = {}
    for cluster, node in nodes.select("cluster", "node").iter_rows():
        named.setdefault(cluster, set()).add(node)
    lists = rows.select("cluster", "node_list").unique().drop_nulls("node_list")
    hits = [not named.get(cluster, _NOBODY).isdisjoint(_nodes_of(text)) for cluster, text in lists.iter_rows()]
    marked = lists.filter(pl.Series(hits, dtype=pl.Boolean)).with_columns(touches=pl.lit(True))
    keyed = rows.select("cluster", "node_list").join(marked, on=["cluster", "node_list"], how="left", maintain_order="left")
    return keyed["touches"].fill_null(False)


@lru_cache(maxsize=_MOST_LISTS)
def _nodes_of(node_list: str) -> tuple[str, ...]:
    return tuple(sorted(set(expand_nodes(node_list))))


def with_counts(
    groups: pl.DataFrame, rows: pl.DataFrame, keys: tuple[str, ...], first: pl.Expr, last: pl.Expr, name: str
) -> pl.DataFrame:
    """Return the groups with how many of the rows with the same keys were tried and lost, after `first` and not after `last`."""
    sums = rows.sort("at").select(
        *keys, "at", tried=pl.int_range(1, pl.len() + 1).over(keys), lost=pl.col("lost").cast(pl.Int64).cum_sum().over(keys)
    )
    for moment, suffix in ((last, "to"), (first, "from")):
        groups = (
            groups.with_columns(cut=moment)
            .sort("cut")
            .join_asof(sums, left_on="cut", right_on="at", by=list(keys), strategy="backward", check_sortedness=False)
            .rename({"tried": f"tried_{suffix}", "lost": f"lost_{suffix}"})
            .drop("cut", "at", strict=False)
        )
    return groups.with_columns(
        (pl.col(f"{what}_to").fill_null(0) - pl.col(f"{what}_from").fill_null(0)).alias(f"{name}_{what}")
        for what in ("tried", "lost")
    ).drop("tried_to", "tried_from", "lost_to", "lost_from")
