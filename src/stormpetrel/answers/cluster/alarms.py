"""Alarms of the cluster: consecutive buckets of alarm, their findings as sentences, and the labels people gave them.

rows of event_scores + labels -> alarms_of -> ClusterAlarm, oldest first. Page, API, report and command line show the same.

Score the buckets that the model in use has not seen, and tell its alarms.

Site + Viewer -> score_events -> EventScoring.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from math import inf, isfinite
from typing import TYPE_CHECKING, Final, NamedTuple

import polars as pl

from stormpetrel.answers.schemas.cluster import ClusterAlarm
from stormpetrel.answers.schemas.events import EventScoring, ScoredAlarm
from stormpetrel.answers.viewer import MANAGE
from stormpetrel.events.alarm_budget import APART_HOURS
from stormpetrel.events.finding import Finding, FindingKind, amount_text, findings_of_json, shown_name, since_text
from stormpetrel.events.nodes_and_hosts import HARD
from stormpetrel.lifecycle.event_models import load_event_model
from stormpetrel.lifecycle.event_scoring import score_new_buckets
from stormpetrel.records.events import PLACES
from stormpetrel.records.outages import Outage, OutageKind

if TYPE_CHECKING:
    from stormpetrel.answers.viewer import Viewer
    from stormpetrel.store.site import Site

FOR_ADMINISTRATORS: Final = frozenset({"group", "node"})  # places that say who works on what, and where
EVERYBODYS: Final = tuple(place for place in PLACES if place not in FOR_ADMINISTRATORS)
_BLACK_HOLE: Final = "A node fails the jobs that it starts within seconds"


def places_seen(*, in_full: bool) -> tuple[str, ...]:
    """The sorts of places whose counts a viewer may see."""
    return tuple(PLACES) if in_full else EVERYBODYS


def kept_findings(kept: str) -> list[Finding]:
    """What the store has kept about a bucket; nothing where it cannot be read."""
    try:
        return findings_of_json(kept)
    except (ValueError, TypeError, KeyError):  # written by another version: the figures still tell
        return []


def finding_texts(findings: Iterable[Finding], *, now: datetime, zone: str, in_full: bool) -> list[str]:
    """A sentence for each finding, as of a moment by the clock of a zone; two nodes without their names are one sentence."""
    return list(dict.fromkeys(finding.words if in_full else _without_names(finding, now, zone) for finding in findings))


def _without_names(finding: Finding, now: datetime, zone: str) -> str:
    """The same sentence without a group or a node."""
    if finding.place not in FOR_ADMINISTRATORS:
        return finding.words
    since = f" {since_text(finding.since, now, zone)}" if finding.since is not None else ""
    if finding.kind is FindingKind.BLACK_HOLE:
        return f"{_BLACK_HOLE}{since}"
    return f"{shown_name(finding.event_kind)} {amount_text(finding.count, finding.expected)}{since}"


_APART: Final = timedelta(hours=APART_HOURS)
_NEEDED: Final = ("bucket_start", "bucket_s", "score", "threshold", "why")


def alarms_of(rows: pl.DataFrame, outages: Sequence[Outage], *, zone: str, in_full: bool) -> list[ClusterAlarm]:
    """The alarms among rows of EVENT_SCORE_SCHEMA; those less than six hours apart are one. Names are shown `in_full` only."""
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
    return [outage for outage in outages if outage.start < end and (outage.end is None or outage.end > start)]


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


def _alarm(buckets: Sequence[_Bucket], outages: Sequence[Outage], zone: str, *, in_full: bool) -> ClusterAlarm:
    start, end, worst = buckets[0].start, buckets[-1].end, max(buckets, key=lambda bucket: bucket.rank)
    findings = _findings([kept_findings(bucket.why) for bucket in buckets], kept_findings(worst.why))
    labels = overlapping(outages, start, end)
    return ClusterAlarm(
        start=start,
        end=end,
        worst=worst.start,
        score=worst.score if isfinite(worst.rank) else None,
        threshold=worst.threshold if worst.threshold is not None and isfinite(worst.threshold) else None,
        findings=finding_texts(findings, now=end - timedelta(seconds=1), zone=zone, in_full=in_full),
        outages=[label.title for label in labels if label.kind is not OutageKind.NORMAL],
        labels=[f"{label.kind.value}: {label.title}" for label in labels],
    )


def _findings(of_buckets: Sequence[Sequence[Finding]], worst: Sequence[Finding]) -> list[Finding]:
    """Nodes and hosts that a rule has found at any time come first, then what the most abnormal bucket says."""
    largest: dict[tuple[str, str], Finding] = {}
    for finding in (finding for findings in of_buckets for finding in findings if finding.kind in HARD):
        before = largest.get((finding.kind, finding.value))
        if before is None or finding.count >= before.count:
            largest[finding.kind, finding.value] = finding
    return [*largest.values(), *(finding for finding in worst if finding.kind not in HARD)]


def score_events(
    site: Site,
    viewer: Viewer,
    *,
    last: int | None = None,
    progress: Callable[[float, str], None] = lambda _share, _step: None,
) -> EventScoring:
    """Append the scores of new buckets; ModelError where there is no model yet. `last` is how many alarms are wanted."""
    viewer.require(MANAGE)
    used = load_event_model(site)
    done = score_new_buckets(site, used, progress=progress)
    rows = site.event_scores.read(model=used.name, version=used.version).sort("bucket_start").collect()
    alarms = alarms_of(rows, site.outages.list(), zone=site.settings.site.time_zone, in_full=True)
    newest = rows.row(-1, named=True) if rows.height else {}
    return EventScoring(
        model=used.name,
        version=used.version,
        threshold=newest.get("threshold", used.threshold),
        scored=done.scored,
        alarms=done.alarms,
        buckets=rows.height,
        newest=newest.get("bucket_start"),
        newest_score=newest.get("score"),
        newest_alarm=bool(newest.get("alarm")),
        episodes=[_scored(alarm) for alarm in (alarms if last is None else alarms[-last:])],
        episodes_in_all=len(alarms),
    )


def _scored(alarm: ClusterAlarm) -> ScoredAlarm:
    return ScoredAlarm(
        start=alarm.start,
        end=alarm.end,
        score=alarm.score,
        findings=alarm.findings,
        labels=alarm.labels,
        threshold=alarm.threshold,
    )
