"""Alarms of the grid: buckets of alarm that belong together, what was wrong in them, and what people say of them.

rows of event_scores + labels -> alarms_of -> GridAlarm, oldest first. Page, API, report and command line show the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import polars as pl

from stormpetrel.answers.grid_words import finding_words, kept_findings
from stormpetrel.answers.schemas.grid import GridAlarm
from stormpetrel.events.alarm_budget import APART_HOURS
from stormpetrel.events.nodes_and_hosts import HARD
from stormpetrel.records.outages import Outage, OutageKind

if TYPE_CHECKING:
    from stormpetrel.events.finding import Finding


def alarms_of(rows: pl.DataFrame, outages: Sequence[Outage], *, zone: str, in_full: bool) -> list[GridAlarm]:
    """The alarms among rows of EVENT_SCORE_SCHEMA; those less than six hours apart are one. Names are told `in_full` only."""
    finite = pl.when(pl.col("score", "threshold").is_finite()).then(pl.col("score", "threshold"))
    alarms = rows.filter(pl.col("alarm")).sort("bucket_start").with_columns(finite)
    apart = timedelta(hours=APART_HOURS) + pl.duration(seconds=pl.col("bucket_s"))
    number = (pl.col("bucket_start").diff() >= apart).fill_null(False).cum_sum()
    parts = alarms.with_columns(number.alias("number")).partition_by("number", maintain_order=True)
    return [_alarm(part, outages, zone, in_full=in_full) for part in parts]


def overlapping(outages: Sequence[Outage], start: datetime, end: datetime) -> list[Outage]:
    """The outages that lie within a time, if only in part; one without an end lasts."""
    return [one for one in outages if one.start < end and (one.end is None or one.end > start)]


def _alarm(part: pl.DataFrame, outages: Sequence[Outage], zone: str, *, in_full: bool) -> GridAlarm:
    start = part["bucket_start"][0]
    end = part["bucket_start"][-1] + timedelta(seconds=int(part["bucket_s"][-1]))
    worst = part.row(int(part["score"].fill_null(float("-inf")).arg_max() or 0), named=True)
    worst_end = worst["bucket_start"] + timedelta(seconds=int(worst["bucket_s"]))
    findings = _findings([kept_findings(why) for why in part["why"]], kept_findings(worst["why"]))
    labels = overlapping(outages, start, end)
    return GridAlarm(
        start=start,
        end=end,
        worst=worst["bucket_start"],
        score=worst["score"],
        threshold=worst["threshold"],
        findings=finding_words(findings, now=worst_end - timedelta(seconds=1), zone=zone, in_full=in_full),
        outages=[one.title for one in labels if one.kind is not OutageKind.NORMAL],
        labels=[f"{one.kind.value}: {one.title}" for one in labels],
    )


def _findings(of_buckets: Sequence[Sequence[Finding]], worst: Sequence[Finding]) -> list[Finding]:
    """Nodes and hosts that a rule has found at any time come first, then what the most abnormal bucket says."""
    largest: dict[tuple[str, str], Finding] = {}
    for finding in (finding for findings in of_buckets for finding in findings if finding.kind in HARD):
        before = largest.get((finding.kind, finding.value))
        if before is None or finding.count >= before.count:
            largest[finding.kind, finding.value] = finding
    return [*largest.values(), *(finding for finding in worst if finding.kind not in HARD)]
