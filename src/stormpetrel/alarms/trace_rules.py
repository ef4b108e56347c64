"""Findings from scored CPU windows: a node of which many more windows are flagged than usual, and keep being so.

scored windows -> odd_nodes(windows, after, now) -> findings; or scored windows -> node_moments -> odd_moments -> findings.

A threshold that promises one flagged window in a thousand may flag far more on a site that it has not seen, on all nodes
alike; so a node is compared with what was usual on the others in the day before, and flags must last: windows of one job resemble
each other.

Findings from CPU windows that lie in a known region of the embedding: a trouble that somebody has named before.

scored windows with `region` -> region_moments -> known_troubles(moments, after, now) -> findings, one per node and region.

At most one calm window in a thousand lies in a region (`traces/regions.py`), but windows of one job resemble each other, so that
a calm job may have many: a node counts when two of its windows lie in the same region at three moments in a row.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import polars as pl

from stormpetrel.records.findings import Evidence, Finding, FindingKind, Subject, SubjectKind, Unit

FAMILY: Final = "traces"
THRESHOLD: Final = 12.0  # natural logarithm of how much better "unusual" explains the flags than "as usual"
LOOK_BACK: Final = timedelta(days=1)  # in which what is usual is counted
FEWEST_MOMENTS: Final = 3  # windows one after the other in which a node has flags
_LAST_MOMENTS: Final = 10
_AT_ONCE: Final = timedelta(minutes=15)  # nodes that wait for data within this time wait for the same
_RAREST: Final = 0.005  # no site's usual share of flagged windows is taken to be lower
WAITS: Final = 0.5  # share of a step that a thread waits for data, from which on its window is one that waits
MOSTLY_WAITS: Final = 0.5  # of a node's flagged windows, from which on its storage is what is unusual
_THREADS_AS_ONE: Final = 8.0  # threads of a node rise and fall together: so many count as one observation
FEWEST_WINDOWS: Final = 2  # of a node in one region at one moment; one where the node has no more
_KEY: Final = ("cluster", "node", "region")


@dataclass(frozen=True, slots=True)
class OddWindow:
    """A window of a node that is odd: how many of its threads do what, since when; none where a metric of the node is odd."""

    name: str
    since: datetime
    until: datetime
    score: float  # -log10 of the share of calm node windows that are as odd
    threads: int
    of_threads: int
    what: str


def node_moments(windows: pl.DataFrame) -> pl.DataFrame:
    """Return how many windows of each node ended at each moment, how many of them were flagged, and the highest score.

    `windows` are scored windows: cluster, node, window_start, window_s, flagged, score, max_iowait and job_id where they are
    known, and stands_for where a row counts for more than itself. Sorted by cluster, node and `at`, the end of the windows;
    `since` is when the first of them began, `waiting` how many of the flagged windows wait for data, and `waiting_jobs` whose.
    """
    waits = pl.col("max_iowait").fill_null(0.0) >= WAITS if "max_iowait" in windows.columns else pl.lit(False)
    counted = pl.col("stands_for").fill_null(1).cast(pl.Int64) if "stands_for" in windows.columns else pl.lit(1, dtype=pl.Int64)
    job = pl.col("job_id") if "job_id" in windows.columns else pl.lit(None, dtype=pl.String)
    ends = pl.col("window_start") + pl.duration(microseconds=(pl.col("window_s").cast(pl.Float64) * 1e6).cast(pl.Int64))
    return (
        windows.with_columns(at=ends, _counted=counted, _waits=pl.col("flagged") & waits, _job=job)
        .group_by("cluster", "node", "at")
        .agg(
            since=pl.col("window_start").min(),
            flagged=pl.col("_counted").filter(pl.col("flagged")).sum(),
            waiting=pl.col("_counted").filter("_waits").sum(),
            waiting_jobs=pl.col("_job").filter("_waits").drop_nulls().unique().sort(),
            windows=pl.col("_counted").sum(),
            score=pl.col("score").max(),
        )
        .sort("cluster", "node", "at")
    )


def odd_nodes(windows: pl.DataFrame, after: datetime, now: datetime, *, model: str) -> list[Finding]:
    """Return the nodes that became unusual in (after, now], out of scored windows of the last day."""
    return odd_moments(node_moments(windows), after, now, model=model)


def odd_moments(
    moments: pl.DataFrame, after: datetime, now: datetime, *, model: str, late: Collection[tuple[str, datetime]] = ()
) -> list[Finding]:
    """The same out of what `node_moments` made of these windows; `late` are nodes and moments up to `after` that came since."""
    moments = moments.filter(pl.col("at") <= now)
    whole = moments.group_by("cluster").agg(all_flagged=pl.col("flagged").sum(), all_windows=pl.col("windows").sum())
    own = moments.group_by("cluster", "node").agg(own_flagged=pl.col("flagged").sum(), own_windows=pl.col("windows").sum())
    usual = own.join(whole, on="cluster").with_columns(
        usual=((pl.col("all_flagged") - pl.col("own_flagged") + 1) / (pl.col("all_windows") - pl.col("own_windows") + 2)).clip(
            _RAREST, 0.5
        )
    )
    rates = {(row["cluster"], row["node"]): row["usual"] for row in usual.iter_rows(named=True)}
    findings = []
    # Of the moments that were told before, only the last few are looked at again; a node without a new flag has nothing to tell.
    came_late = pl.struct("node", "at").is_in([{"node": node, "at": at} for node, at in late]) if late else pl.lit(False)
    moments = moments.with_columns(_new=(pl.col("at") > after) | came_late)
    new = pl.col("_new")
    from_new = (pl.int_range(pl.len()) >= new.arg_max().cast(pl.Int64) - _LAST_MOMENTS).over("cluster", "node")
    recent = moments.filter((new & (pl.col("flagged") > 0)).any().over("cluster", "node")).filter(from_new)
    for (cluster, node), rows in recent.group_by("cluster", "node", maintain_order=True):
        fired = [row for row in _fired(rows, rates[cluster, node]) if row["_new"]]
        if fired:
            findings.append(_finding(str(cluster), str(node), fired, _Around.of(moments, str(cluster), fired, rates), now, model))
    return findings


@dataclass(frozen=True, slots=True)
class _Around:
    """What a node is compared with: the usual share of flags, and how many nodes wait for data, of how many, at that time.

    `of_one_job` is on how many of those that wait the job runs that waits on most of them.
    """

    usual: float
    waiting_nodes: int
    of_one_job: int
    nodes: int

    @classmethod
    def of(
        cls, moments: pl.DataFrame, cluster: str, fired: list[dict[str, Any]], rates: Mapping[tuple[str, str], float]
    ) -> _Around:
        around = moments.filter(
            pl.col("cluster") == cluster, pl.col("at").is_between(fired[-1]["at"] - _AT_ONCE, fired[-1]["at"])
        )
        by_node = around.group_by("node").agg(pl.col("waiting", "flagged").sum(), jobs=pl.col("waiting_jobs").explode().unique())
        waits = (pl.col("flagged") > 0) & (pl.col("waiting") >= MOSTLY_WAITS * pl.col("flagged"))
        waiting = by_node.filter(waits)
        jobs = waiting.select("node", pl.col("jobs")).explode("jobs").drop_nulls()
        of_one_job = int(jobs["jobs"].value_counts()["count"].max() or 0) if jobs.height else 0  # type: ignore[arg-type]
        return cls(rates[cluster, fired[0]["node"]], waiting.height, of_one_job, by_node.height)


def odd_node(node: OddWindow, cluster: str, now: datetime, *, share: float, model: str) -> Finding:
    """The finding of a node that was found odd in two windows one after the other."""
    counts = {"flagged": node.threads, "windows": node.of_threads} if node.of_threads else {}
    threads = [Evidence(name, count, Unit.COUNT) for name, count in counts.items()]
    return Finding(
        family=FAMILY,
        rule=f"{model}/detector",
        kind=FindingKind.WINDOWS_ODD,
        cluster=cluster,
        subjects=(Subject(SubjectKind.NODE, node.name),),
        since=node.since,
        decided_at=node.until,
        until=node.until,
        known_at=max(now, node.until),
        score=node.score,
        threshold=-math.log10(share),
        evidence=(*threads, Evidence("usual", share, Unit.SHARE)),
        label=node.what,
    )


def _fired(rows: pl.DataFrame, usual: float) -> Iterator[dict[str, Any]]:
    """The moments of one node at which its last windows are unusual, each with the span that says so."""
    last: list[dict[str, Any]] = []
    for row in rows.iter_rows(named=True):
        last = [*last, row][-_LAST_MOMENTS:]
        run = _run(last)
        if len(run) < FEWEST_MOMENTS:
            continue
        flagged, count = sum(moment["flagged"] for moment in run), sum(moment["windows"] for moment in run)
        score = _gain(flagged / _THREADS_AS_ONE, count / _THREADS_AS_ONE, usual)
        if score >= THRESHOLD:
            yield {**row, "since": run[0]["since"], "gain": score}


def _run(moments: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The last moments in a row that have flags."""
    run: list[dict[str, Any]] = []
    for moment in reversed(moments):
        if not moment["flagged"]:
            break
        run.insert(0, moment)
    return run


def _gain(flagged: float, count: float, usual: float) -> float:
    """The logarithm of the likelihood of so many flags at their own share over that at the usual one; 0 where there are fewer."""
    share = flagged / count
    if share <= usual:
        return 0.0
    kept = count - flagged
    return flagged * math.log(share / usual) + (kept * math.log((1 - share) / (1 - usual)) if kept > 0 else 0.0)


def _finding(cluster: str, node: str, fired: list[dict[str, Any]], around: _Around, now: datetime, model: str) -> Finding:
    flagged, waiting = sum(row["flagged"] for row in fired), sum(row["waiting"] for row in fired)
    return Finding(
        family=FAMILY,
        rule=model,
        kind=FindingKind.WINDOWS_ODD,
        cluster=cluster,
        subjects=(Subject(SubjectKind.NODE, node),),
        since=fired[0]["since"],
        decided_at=fired[0]["at"],
        until=fired[-1]["at"],
        known_at=max(now, fired[-1]["at"]),
        score=max(row["gain"] for row in fired),
        threshold=THRESHOLD,
        evidence=(
            Evidence("flagged", flagged, Unit.COUNT),
            Evidence("windows", sum(row["windows"] for row in fired), Unit.COUNT),
            Evidence("usual", around.usual, Unit.SHARE),
            Evidence("waiting", waiting / flagged, Unit.SHARE),
            Evidence("waiting_nodes", around.waiting_nodes, Unit.COUNT),
            Evidence("watched_nodes", around.nodes, Unit.COUNT),
            Evidence("waiting_nodes_of_one_job", around.of_one_job, Unit.COUNT),
        ),
    )


def region_moments(windows: pl.DataFrame) -> pl.DataFrame:
    """Return how many windows of each node lie in which region at each moment; moments without any have no row.

    `windows` are scored windows: cluster, node, window_start, window_s, region and stands_for. `at` is when they ended, `since`
    when the first of them began.
    """
    ends = pl.col("window_start") + pl.duration(microseconds=(pl.col("window_s").cast(pl.Float64) * 1e6).cast(pl.Int64))
    counted = windows.with_columns(at=ends, _counted=pl.col("stands_for").fill_null(1).cast(pl.Int64))
    moments = counted.group_by("cluster", "node", "at").agg(windows=pl.col("_counted").sum())
    inside = (
        counted.drop_nulls("region")
        .group_by(*_KEY, "at")
        .agg(since=pl.col("window_start").min(), inside=pl.col("_counted").sum())
        .join(moments, on=["cluster", "node", "at"])
    )
    return inside.select(*_KEY, "at", "since", "inside", "windows").sort(*_KEY, "at")


def known_troubles(moments: pl.DataFrame, after: datetime, now: datetime, *, model: str) -> list[Finding]:
    """Return the nodes whose windows lie in a known region for long enough, decided in (after, now]."""
    enough = pl.col("inside") >= pl.min_horizontal(pl.lit(FEWEST_WINDOWS), "windows")
    seen = moments.filter(enough, pl.col("at") <= now).sort(*_KEY, "at")
    findings = []
    for (cluster, node, region), rows in seen.group_by(*_KEY, maintain_order=True):
        fired = [run for run in _runs(rows.to_dicts()) if run[-1]["at"] > after]
        if fired:
            findings.append(_region_finding(str(cluster), str(node), str(region), fired, after, now, model))
    return findings


def _runs(rows: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """At each moment that is the third in a row, or a later one, all moments of that row so far."""
    runs: list[list[dict[str, Any]]] = []
    run: list[dict[str, Any]] = []
    for row in rows:
        length: timedelta = row["at"] - row["since"]
        run = [*run, row] if run and row["since"] - run[-1]["at"] < length else [row]
        if len(run) >= FEWEST_MOMENTS:
            runs.append(run)
    return runs


def _region_finding(
    cluster: str, node: str, region: str, fired: list[list[dict[str, Any]]], after: datetime, now: datetime, model: str
) -> Finding:
    first, last = fired[0], fired[-1]
    new = [row for row in last if row["at"] > after]
    return Finding(
        family=FAMILY,
        rule=f"known_region/1 {model}",
        kind=FindingKind.WINDOWS_KNOWN,
        cluster=cluster,
        subjects=(Subject(SubjectKind.NODE, node),),
        since=first[0]["since"],
        decided_at=first[-1]["at"],
        until=last[-1]["at"],
        known_at=max(now, last[-1]["at"]),
        score=float(len(last)),
        threshold=float(FEWEST_MOMENTS),
        evidence=(
            Evidence("inside", sum(row["inside"] for row in new), Unit.COUNT),
            Evidence("windows", sum(row["windows"] for row in new), Unit.COUNT),
        ),
        label=region,
    )
