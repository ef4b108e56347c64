"""Alarms of the grid: buckets of alarm that belong together, what was wrong in them, and what people say of them.

rows of event_scores + labels -> alarms_of -> GridAlarm, oldest first. Page, API, report and command line show the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from math import inf, isfinite
from typing import TYPE_CHECKING, Final, NamedTuple

import polars as pl

from stormpetrel.answers.grid.words import finding_words, kept_findings
from stormpetrel.answers.schemas.grid import GridAlarm
from stormpetrel.events.alarm_budget import APART_HOURS
from stormpetrel.events.nodes_and_hosts import HARD
from stormpetrel.records.outages import Outage, OutageKind

if TYPE_CHECKING:
    from stormpetrel.events.finding import Finding

_APART: Final = timedelta(hours=APART_HOURS)
_NEEDED: Final = ("bucket_start", "bucket_s", "score", "threshold", "why")


def alarms_of(rows: pl.DataFrame, outages: Sequence[Outage], *, zone: str, in_full: bool) -> list[GridAlarm]:
    """The alarms among rows of EVENT_SCORE_SCHEMA; those less than six hours apart are one. Names are told `in_full` only."""
    alarms: list[list[_Bucket]] = []
    for row in rows.filter(pl.col("alarm")).sort("bucket_start").select(_NEEDED).iter_rows():
        bucket = _Bucket(*row)
        if alarms and bucket.start - alarms[-1][-1].end < _APART:
            alarms[-1].append(bucket)
        else:
            alarms.append([bucket])
    return [_alarm(buckets, outages, zone, in_full=in_full) for buckets in alarms]


def overlapping(outages: Sequence[Outage], start: datetime, end: datetime) -> list[Outage]:
    """The outages that lie within a time, if only in part; one without an end lasts."""
    return [one for one in outages if one.start < end and (one.end is None or one.end > start)]


class _Bucket(NamedTuple):
    """A bucket of alarm, in the order of _NEEDED."""

    start: datetime
    bucket_s: int
    score: float | None
    threshold: float | None
    why: str  # findings as JSON

    @property
    def end(self) -> datetime:
        return self.start + timedelta(seconds=self.bucket_s)

    @property
    def rank(self) -> float:
        """The score; the lowest where there is none."""
        return self.score if self.score is not None and isfinite(self.score) else -inf


def _alarm(buckets: Sequence[_Bucket], outages: Sequence[Outage], zone: str, *, in_full: bool) -> GridAlarm:
    start, end, worst = buckets[0].start, buckets[-1].end, max(buckets, key=lambda bucket: bucket.rank)
    findings = _findings([kept_findings(bucket.why) for bucket in buckets], kept_findings(worst.why))
    labels = overlapping(outages, start, end)
    return GridAlarm(
        start=start,
        end=end,
        worst=worst.start,
        score=worst.score if isfinite(worst.rank) else None,
        threshold=worst.threshold if worst.threshold is not None and isfinite(worst.threshold) else None,
        findings=finding_words(findings, now=end - timedelta(seconds=1), zone=zone, in_full=in_full),
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
