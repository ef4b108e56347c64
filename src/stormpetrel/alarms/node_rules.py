"""Rules about nodes: one that loses at once what it gets, and one that went down under its jobs.

known jobs -> lost_at_once, node_failures -> Triggers, one row per lost job that decides something.

Whether a node is to blame is a comparison of two explanations of its last jobs. Sick node: it loses nearly everything. Healthy
node: a job is lost as often as its like (same user, same application) are elsewhere, and sometimes a whole batch of a user is
broken, so that ten of its jobs lost are hardly more than one. A batch whose jobs survive elsewhere in that time is not broken.

Yet a script is broken from one submission on until it is mended, and what is handed in one after the other goes to the node that
is free. So one user alone names a node only by survivors that were handed in between the lost jobs; what else speaks for it needs
the jobs of a second user.

A watch asks every few seconds and knows the jobs of nine days: only nodes that may be named are examined.
"""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from typing import Final

import polars as pl

from stormpetrel.alarms.known_jobs import AT_ONCE, LONG_AGO, by_node, touching, trials, with_counts
from stormpetrel.alarms.triggers import Triggers, conform, no_members, no_triggers
from stormpetrel.records.states import JobState

FEWEST_LOST: Final = 3  # jobs lost at once before a node is named
THRESHOLD: Final = 13.0  # natural logarithm of how much better the sick node explains what was seen
# What one user adds to it at most whose survivors elsewhere were handed in before or after the lost jobs.
_MOST_OF_ONE_USER: Final = 8.0
_BETWEEN: Final = timedelta(minutes=30)  # a survivor is between two lost jobs if both were handed in within this time of it
LAST_JOBS: Final = 64  # of a node that are looked at
WINDOW: Final = timedelta(hours=24)  # and how old they may be
_LOST_FOR_ONE: Final = 8  # losses that outweigh a survivor
_SICK: Final = 0.95  # chance to be lost on a sick node
# What else a batch may be like: the chance of its jobs to be lost on any node, and how likely such a batch is beforehand.
_BAD_BATCHES: Final = ((0.3, 0.07), (0.65, 0.07), (0.95, 0.07))
_RAREST: Final = 0.01  # nobody's jobs are taken to be lost more rarely than this
_PRIOR_JOBS: Final = 5.0  # jobs that the cluster's usual share counts for beside those of the user and application
_TOGETHER: Final = timedelta(minutes=10)  # jobs of one node that goes down end together
_GOES_ON: Final = timedelta(hours=3)  # further than an episode that goes on, and the jobs that a node takes along, reach back
_LIKE: Final = ("cluster", "user", "application")
_NODE: Final = ("cluster", "node")


def lost_at_once(jobs: pl.DataFrame, after: datetime, now: datetime) -> Triggers:
    """Return the losses in (after, now] at which a node is taken to be sick.

    `usual` is the share of jobs lost at once on all other nodes in the last week, null where there were none; `since` is the
    start of its first lost job.
    """
    suspects = _suspects(jobs, after, now)
    if not suspects.height:
        return Triggers(no_triggers(), no_members())
    tried = trials(jobs, now)
    placed = _placed(tried.filter(_concerns(tried, suspects, after)))
    on_nodes = placed.join(suspects, on=_NODE, how="semi", maintain_order="left")
    members = on_nodes.select("cluster", "user", "ref", "at", "start_time", name="node", part=pl.lit(""), bad="lost")
    decisive = on_nodes.filter("counts", pl.col("at") > after).select("cluster", "node", "at", "place", event="ref")
    recent = _last_jobs(decisive, on_nodes)
    enough = recent.group_by("event", "node").agg(pl.col("counts").sum()).filter(pl.col("counts") >= FEWEST_LOST)
    recent = recent.join(enough.select("event", "node"), on=["event", "node"], how="semi")
    if not recent.height:
        return Triggers(no_triggers(), members)
    sick = _explained(_with_like(recent, tried, on_nodes)).filter(pl.col("score") >= THRESHOLD)
    return Triggers(conform(sick.rename({"node": "name", "measured": "usual"})), members)


def _suspects(jobs: pl.DataFrame, after: datetime, now: datetime) -> pl.DataFrame:
    """The nodes (`cluster`, `node`) that may be named for a loss after a moment: nearly all of their last jobs were lost.

    At such a loss at most one survivor is among the first jobs that are looked back at (`_last_jobs`).
    """
    late = jobs.filter((pl.col("end_time") > after - WINDOW - 2 * AT_ONCE).fill_null(True))
    soon = pl.col("start_time") + AT_ONCE
    lost = late.filter(pl.col("end_time") > after, pl.col("end_time") < soon, pl.col("state") == JobState.FAILED)
    fresh = by_node(lost).select(_NODE).unique()
    if not fresh.height:
        return fresh
    rows = by_node(trials(late.filter(touching(late, fresh)), now)).sort(*_NODE, "at", "ref")
    so_far = pl.col("lost").cast(pl.Int64).cum_sum()
    last = (so_far - so_far.shift(FEWEST_LOST + 1, fill_value=0)).over(_NODE)
    losing = rows.with_columns(last=last).filter("lost", pl.col("at") > after, pl.col("last") >= FEWEST_LOST)
    return losing.select(_NODE).unique(maintain_order=True)


def _concerns(tried: pl.DataFrame, suspects: pl.DataFrame, after: datetime) -> pl.Series:
    """Which jobs have to be placed on their nodes: those of suspects, and what the other nodes of their lost jobs lost."""
    lost = tried.filter("lost", pl.col("at") > after - 2 * WINDOW)
    neighbours = by_node(lost.filter(touching(lost, suspects))).select(_NODE).unique()
    compared = lost.filter(touching(lost, neighbours))["ref"].implode()
    return touching(tried, suspects) | tried.select(pl.col("ref").is_in(compared)).to_series()


def _placed(tried: pl.DataFrame) -> pl.DataFrame:
    """One row per job and node, numbered per node (`place`); `counts` where the job is a loss that speaks against this node.

    A lost job of several nodes speaks against the one that has lost more than its others in the window before, and against none
    where that does not tell them apart: a sick node must not be the end of its neighbours.
    """
    rows = by_node(tried).sort("cluster", "node", "at", "ref")
    lost = rows.filter("lost").select("cluster", "node", "at", "ref", "width")
    if not lost.height:
        return rows.with_columns(place=pl.int_range(pl.len()).over("cluster", "node"), counts=pl.lit(False))
    counted = lost.with_columns(so_far=pl.int_range(1, pl.len() + 1).over("cluster", "node"))
    before = counted.select("cluster", "node", earlier="so_far", at="at").sort("at")
    window = (
        counted.with_columns(cut=pl.col("at") - WINDOW)
        .sort("cut")
        .join_asof(
            before,
            left_on="cut",
            right_on="at",
            by=["cluster", "node"],
            strategy="backward",
            coalesce=False,
            check_sortedness=False,
        )
    )
    recent = window.with_columns(recent=pl.col("so_far") - pl.col("earlier").fill_null(0))
    most = pl.col("recent").max().over("ref")
    alone = (pl.col("recent") == most).sum().over("ref") == 1
    heaviest = recent.filter((pl.col("recent") == most) & alone).select("node", "ref", counts=pl.lit(True))
    numbered = rows.join(heaviest, on=["node", "ref"], how="left", maintain_order="left").with_columns(
        pl.col("counts").fill_null(False)
    )
    return numbered.with_columns(place=pl.int_range(pl.len()).over("cluster", "node"))


def _last_jobs(decisive: pl.DataFrame, on_nodes: pl.DataFrame) -> pl.DataFrame:
    """The last jobs of a node at each of its losses, the loss included: `event`, `moment`, and what each of them was.

    They reach back to where losing began: one survivor may be among them, and one more for every eight losses since.
    """
    back = pl.DataFrame({"back": range(LAST_JOBS)}, schema={"back": pl.Int64})
    wanted = decisive.rename({"at": "moment"}).join(back, how="cross").with_columns(place=pl.col("place") - pl.col("back"))
    rows = wanted.join(on_nodes, on=["cluster", "node", "place"], how="inner")
    # What was lost together with another node's job neither speaks for this node nor against it.
    rows = rows.filter(pl.col("at") > pl.col("moment") - WINDOW, pl.col("counts") | ~pl.col("lost")).sort("event", "node", "back")
    lost = pl.col("counts").cast(pl.Int64).cum_sum()
    kept = (~pl.col("counts")).cast(pl.Int64).cum_sum()
    run = (kept <= 1 + lost // _LOST_FOR_ONE).cast(pl.Int8).cum_min().cast(pl.Boolean)
    rows = rows.with_columns(run=run.over("event", "node")).filter("run")
    began = pl.col("back").filter("counts").max().over("event", "node")
    return rows.filter(pl.col("back") <= began).drop("run")


def _with_like(recent: pl.DataFrame, tried: pl.DataFrame, on_nodes: pl.DataFrame) -> pl.DataFrame:
    """Per loss, node and batch: jobs lost here, and how the like of them fared elsewhere, since then and in the week before."""
    groups = (
        recent.group_by("event", "cluster", "node", "moment", "user", "application")
        .agg(
            lost_here=pl.col("counts").sum(),
            kept_here=(~pl.col("lost")).sum(),
            since=pl.col("start_time").filter("counts").min(),
        )
        .with_columns(began=pl.col("since").fill_null(pl.col("moment")))
    )
    week = pl.col("began") - LONG_AGO
    for name, first, last in (("fresh", pl.col("began"), pl.col("moment")), ("usual", week, pl.col("began"))):
        groups = with_counts(groups, tried, _LIKE, first, last, f"{name}_all")
        groups = with_counts(groups, on_nodes, (*_LIKE, "node"), first, last, f"{name}_here")
        groups = groups.with_columns(
            (pl.col(f"{name}_all_{what}") - pl.col(f"{name}_here_{what}")).clip(0).alias(f"{name}_{what}")
            for what in ("tried", "lost")
        )
    groups = _with_between(groups, recent, tried, on_nodes)
    groups = with_counts(groups, tried, ("cluster",), week, pl.col("moment"), "site_all")
    groups = with_counts(groups, on_nodes, ("cluster", "node"), week, pl.col("moment"), "site_here")
    elsewhere = {what: (pl.col(f"site_all_{what}") - pl.col(f"site_here_{what}")).clip(0) for what in ("tried", "lost")}
    return groups.with_columns(
        others=(elsewhere["lost"] + 1) / (elsewhere["tried"] + 2),  # what is to be expected of few
        measured=pl.when(elsewhere["tried"] > 0).then(elsewhere["lost"] / elsewhere["tried"]),
    )


def _with_between(groups: pl.DataFrame, recent: pl.DataFrame, tried: pl.DataFrame, on_nodes: pl.DataFrame) -> pl.DataFrame:
    """Add how many jobs of each batch that were handed in between those lost here survived elsewhere since then (`between`)."""
    keys = ["event", "node", "user", "application"]
    lost = recent.filter("counts").select(*keys, "submit_time").unique().sort("submit_time")
    spans = groups.filter(pl.col("lost_here") > 0).select("cluster", *keys, "began", "moment")
    like = tried.filter(~pl.col("lost")).join(spans, on=_LIKE, how="semi").select(*_LIKE, "at", "submit_time", "ref")
    kept = spans.join(like, on=_LIKE).filter(pl.col("at") > pl.col("began"), pl.col("at") <= pl.col("moment"))
    kept = kept.join(on_nodes.select("node", "ref"), on=["node", "ref"], how="anti").sort("submit_time")
    for strategy in ("backward", "forward"):
        kept = kept.join_asof(
            lost, on="submit_time", by=keys, strategy=strategy, tolerance=_BETWEEN, coalesce=False, suffix="_lost",
            check_sortedness=False,
        )  # fmt: skip
        kept = kept.filter(pl.col("submit_time_lost").is_not_null()).drop("submit_time_lost")
    counts = kept.group_by(keys).agg(between=pl.len().cast(pl.Int64))
    return groups.join(counts, on=keys, how="left").with_columns(pl.col("between").fill_null(0))


def _explained(groups: pl.DataFrame) -> pl.DataFrame:
    """Per loss and node: by how much (natural logarithm) a sick node explains better what was seen than a healthy one does.

    Of the batches of one user only the most telling speaks against the node: what breaks one of them may break the others.
    """
    usual = (pl.col("usual_lost") + _PRIOR_JOBS * pl.col("others")) / (pl.col("usual_tried") + _PRIOR_JOBS)
    good = 1.0 - sum(weight for _, weight in _BAD_BATCHES)
    batches = [(usual.clip(_RAREST, _SICK), pl.lit(good)), *((pl.lit(rate), pl.lit(weight)) for rate, weight in _BAD_BATCHES)]
    sick = pl.col("lost_here") * math.log(_SICK) + pl.col("kept_here") * math.log(1 - _SICK)
    gains = []
    for kept in (pl.col("fresh_tried") - pl.col("fresh_lost"), pl.col("between")):
        elsewhere = [weight.log() + pl.col("fresh_lost") * rate.log() + kept * (1 - rate).log() for rate, weight in batches]
        everywhere = [
            seen + pl.col("lost_here") * rate.log() + pl.col("kept_here") * (1 - rate).log()
            for seen, (rate, _) in zip(elsewhere, batches, strict=True)
        ]
        gains.append(sick - _log_sum(everywhere) + _log_sum(elsewhere))
    gained = groups.with_columns(gain=pl.max_horizontal(pl.min_horizontal(gains[0], _MOST_OF_ONE_USER), gains[1]))
    # In one order, whatever order the records came in: the same jobs have the same score to the last digit.
    gained = gained.sort("moment", "event", "node", "user", "application")
    users = gained.group_by("event", "cluster", "node", "moment", "user", maintain_order=True).agg(
        gain=pl.col("gain").clip(0).max() + pl.col("gain").clip(None, 0).sum(),
        since=pl.col("since").min(),
        measured=pl.col("measured").first(),
    )
    return users.group_by("event", "cluster", "node", at="moment", maintain_order=True).agg(
        score=pl.col("gain").sum(), since=pl.col("since").min(), measured=pl.col("measured").first()
    )


def _log_sum(terms: list[pl.Expr]) -> pl.Expr:
    """The logarithm of a sum of exponentials, without overflow."""
    most = pl.max_horizontal(terms)
    return most + pl.sum_horizontal([(term - most).exp() for term in terms]).log()


def node_failures(jobs: pl.DataFrame, after: datetime, now: datetime) -> Triggers:
    """Return the jobs that ended in (after, now] because a node went down, each with the node that it probably was.

    Of a job of several nodes that is the one that took most jobs along in the ten minutes up to then; where that does not tell,
    the job names no node.
    """
    at = pl.col("end_time")
    gone = jobs.filter(pl.col("state").is_in([JobState.NODE_FAIL, JobState.BOOT_FAIL]), at > after - _GOES_ON, at <= now)
    if not gone.filter(at > after).height:
        return Triggers(no_triggers(), no_members())
    lost = gone.select("cluster", "user", "node_list", "ref", "start_time", at="end_time").sort("at", "ref")
    rows = by_node(lost).sort("cluster", "node", "at", "ref")
    recent = rows.join(rows.select("cluster", "node", other="at"), on=["cluster", "node"]).filter(
        pl.col("other") <= pl.col("at"), pl.col("other") > pl.col("at") - _TOGETHER
    )
    taken = recent.group_by("ref", "node").agg(jobs=pl.len())
    most = taken.filter(pl.col("jobs") == pl.col("jobs").max().over("ref"), pl.len().over("ref") > 0)
    heaviest = most.filter(pl.len().over("ref") == 1).select("ref", "node")
    named = rows.join(heaviest, on=["ref", "node"], how="semi").with_columns(name="node")
    members = named.select("cluster", "user", "ref", "at", "start_time", "name", part=pl.lit(""), bad=pl.lit(True))
    # Since when it is down is not known: its jobs tell until when it was not.
    down = named.filter(pl.col("at") > after).with_columns(since="at", score=pl.lit(1.0), usual=pl.lit(None))
    return Triggers(conform(down), members)
