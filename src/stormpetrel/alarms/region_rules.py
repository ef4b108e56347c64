"""Findings from CPU windows that lie in a known region of the embedding: a trouble that somebody has named before.

scored windows with `region` -> region_moments -> known_troubles(moments, after, now) -> findings, one per node and region.

At most one calm window in a thousand lies in a region (`traces/regions.py`), but windows of one job resemble each other, so that
a calm job may have many: a node counts when two of its windows lie in the same region at three moments in a row.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

import polars as pl

from stormpetrel.alarms.trace_rules import FAMILY, FEWEST_MOMENTS
from stormpetrel.records.findings import Evidence, Finding, FindingKind, Subject, SubjectKind, Unit

FEWEST_WINDOWS: Final = 2  # of a node in one region at one moment; one where the node has no more
_KEY: Final = ("cluster", "node", "region")


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
            findings.append(_finding(str(cluster), str(node), str(region), fired, after, now, model))
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


def _finding(
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
