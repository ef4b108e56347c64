"""The rules of nodes, batches and waves, over the few jobs that a fresh failure may say something about.

known jobs -> lost_at_once, node_failures, batches_failing, applications_failing, wave -> the Triggers of the rules themselves.
A watch looks every few seconds and knows the jobs of nine days: the rules over all of them would take a second each time. What is
left out here cannot change what a rule returns; a rule that cannot fire is not asked.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

import polars as pl

from stormpetrel.alarms import batch_rules, node_rules
from stormpetrel.alarms.known_jobs import AT_ONCE, by_node, ended, touching, trials
from stormpetrel.alarms.triggers import Triggers, no_members, no_triggers
from stormpetrel.records.states import JobState

_NODE: Final = ["cluster", "node"]
_NOWHERE: Final = ""  # a node list that names no node
_GONE_BEFORE: Final = timedelta(hours=3)  # further than an episode that goes on and the jobs that a node takes along reach back
# A node that is named has lost nearly all of its last jobs: one survivor may be among the first that the rule looks back at.
_LAST_ON_NODE: Final = node_rules.FEWEST_LOST + 1
# Of the last jobs of a batch that fails as one so many may have done well, where the rule looks at most of them.
_KEPT_OF_BATCH: Final = round((1 - batch_rules.ALL_BUT) * batch_rules.LAST_JOBS)


def lost_at_once(jobs: pl.DataFrame, after: datetime, now: datetime) -> Triggers:
    """Return what `node_rules.lost_at_once` does, from the nodes that may be named.

    What is usual on the cluster is counted over all jobs; on which nodes they were matters only for a few.
    """
    suspects = _suspects(jobs, after, now)
    if not suspects.height:
        return _nothing()
    # A lost job of several nodes speaks against the one that has lost more: the losses of its other nodes are needed as well.
    lost = _lost(jobs, after - 2 * node_rules.WINDOW - 2 * AT_ONCE)
    neighbours = by_node(lost.filter(touching(lost, suspects))).select(_NODE).unique()
    needed = lost.filter(touching(lost, neighbours))["ref"].implode()
    is_placed = touching(jobs, suspects) | jobs.select(pl.col("ref").is_in(needed)).to_series()
    somewhere = pl.when(pl.col("node_list").is_not_null()).then(pl.lit(_NOWHERE))
    narrowed = jobs.with_columns(node_list=pl.when(is_placed).then("node_list").otherwise(somewhere))
    triggers = node_rules.lost_at_once(narrowed, after, now)
    names = suspects.rename({"node": "name"})  # of the other nodes not every job was there to be seen
    return Triggers(triggers.rows.join(names, on=["cluster", "name"], how="semi", maintain_order="left"), triggers.members)


def _suspects(jobs: pl.DataFrame, after: datetime, now: datetime) -> pl.DataFrame:
    """The nodes (`cluster`, `node`) that may be named for a loss after a moment: nearly all of their last jobs were lost."""
    fresh = by_node(_lost(jobs, after)).select(_NODE).unique()
    if not fresh.height:
        return fresh
    day = jobs.filter(_not_ended_by(after - node_rules.WINDOW - 2 * AT_ONCE))
    rows = by_node(trials(day.filter(touching(day, fresh)), now)).sort(*_NODE, "at", "ref")
    lost = pl.col("lost").cast(pl.Int64).cum_sum()
    last = (lost - lost.shift(_LAST_ON_NODE, fill_value=0)).over(_NODE)
    losing = rows.with_columns(last=last).filter("lost", pl.col("at") > after, pl.col("last") >= node_rules.FEWEST_LOST)
    return losing.select(_NODE).unique(maintain_order=True)


def _lost(jobs: pl.DataFrame, after: datetime) -> pl.DataFrame:
    soon = pl.col("start_time") + AT_ONCE
    return jobs.filter(pl.col("end_time") > after, pl.col("end_time") < soon, pl.col("state") == JobState.FAILED)


def node_failures(jobs: pl.DataFrame, after: datetime, now: datetime) -> Triggers:
    """Return what `node_rules.node_failures` does, from the jobs that were lost of late."""
    gone = jobs.filter(_not_ended_by(after - _GONE_BEFORE), pl.col("state").is_in([JobState.NODE_FAIL, JobState.BOOT_FAIL]))
    return node_rules.node_failures(gone, after, now) if gone.filter(pl.col("end_time") > after).height else _nothing()


def batches_failing(jobs: pl.DataFrame, after: datetime, now: datetime) -> Triggers:
    """Return what `batch_rules.batches_failing` does, from the users and applications whose last jobs nearly all failed."""
    rows = _of_failing(jobs, ["cluster", "user", "application"], after, now)
    return batch_rules.batches_failing(rows, after, now) if rows.height else _nothing()


def applications_failing(jobs: pl.DataFrame, after: datetime, now: datetime) -> Triggers:
    """Return what `batch_rules.applications_failing` does, from the applications whose last jobs nearly all failed."""
    rows = _of_failing(jobs, ["cluster", "application"], after, now)
    return batch_rules.applications_failing(rows, after, now) if rows.height else _nothing()


def _of_failing(jobs: pl.DataFrame, keys: list[str], after: datetime, now: datetime) -> pl.DataFrame:
    """The jobs of the groups whose last ones, up to a failure after a moment, nearly all failed."""
    recent = jobs.filter(_not_ended_by(after - batch_rules.WINDOW))
    fresh = recent.filter("failed", pl.col("end_time") > after).select(keys).unique()
    in_order = ended(recent.join(fresh, on=keys, how="semi"), now)
    failed = pl.col("failed").cast(pl.Int64).cum_sum()
    last = (failed - failed.shift(batch_rules.FEWEST_JOBS, fill_value=0)).over(keys)
    fewest = batch_rules.FEWEST_JOBS - _KEPT_OF_BATCH
    failing = in_order.with_columns(last=last).filter("failed", pl.col("at") > after, pl.col("last") >= fewest)
    return (
        jobs.join(failing.select(keys).unique(), on=keys, how="semi", maintain_order="left") if failing.height else jobs.clear()
    )


def wave(jobs: pl.DataFrame, outcome: str, after: datetime, now: datetime) -> Triggers:
    """Return what `batch_rules.wave` does, from the jobs with this outcome and the first of each cluster that ended."""
    hits = pl.col("outcome").eq_missing(pl.lit(outcome))
    if not jobs.filter(hits, pl.col("end_time") > after).height:
        return _nothing()
    ends = jobs.select(pl.when(pl.col("failed").is_not_null()).then("end_time").alias("end_time"), "cluster")
    is_first = ends.select(pl.col("end_time") == pl.col("end_time").min().over("cluster")).to_series().fill_null(False)
    return batch_rules.wave(jobs.filter(hits | is_first), outcome, after, now)


def _not_ended_by(moment: datetime) -> pl.Expr:
    return (pl.col("end_time") > moment).fill_null(True)


def _nothing() -> Triggers:
    return Triggers(no_triggers(), no_members())
