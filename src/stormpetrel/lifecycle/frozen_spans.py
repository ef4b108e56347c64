"""What verdicts do to learning: a confirmed incident's span never becomes normal, a dismissed one's is known to be calm.

Site -> frozen_spans, cleared_spans -> JudgedSpan (subjects × time). Every function that learns what is normal asks here: rows of
windows and their scores by `never_normal` and `known_calm`, counts of events by `learning_labels` and `learning_series`, and
whether anything is trained at all by `halting_incident`. A verdict that is withdrawn is gone from all of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import polars as pl

from stormpetrel.lifecycle.case_answers import HOUR, NodeHour, cleared_hours
from stormpetrel.records.event_series import EventSeries
from stormpetrel.records.findings import Finding, SubjectKind
from stormpetrel.records.incidents import Incident, JudgedIncident, Verdict
from stormpetrel.records.model_families import ModelFamily
from stormpetrel.records.outages import Outage, OutageKind
from stormpetrel.store.events.series import series_of
from stormpetrel.store.site import Site

BY_VERDICT: Final = "verdict"  # the source of labels that come from verdicts
_OF_A_JOB: Final = (SubjectKind.USER, SubjectKind.APPLICATION, SubjectKind.JOB)  # their windows are those of the lost jobs


@dataclass(frozen=True, slots=True)
class JudgedSpan:
    """Subjects and a time that a verdict is about; `until` is None while a confirmed incident lasts. Times are UTC."""

    incident: int
    family: str
    since: datetime
    until: datetime | None
    nodes: frozenset[str]  # of these, or of all nodes where `everywhere`
    jobs: frozenset[str]  # ids of jobs, as windows have them
    everywhere: bool  # the whole cluster
    decided_at: datetime  # when somebody said so

    def windows(self, length: timedelta) -> pl.Expr:
        """Which rows of windows of a length, or of their scores, lie in it; a window that reaches into it counts."""
        inside = pl.col("window_start") > self.since - length
        if self.until is not None:
            inside &= pl.col("window_start") <= self.until
        whose = pl.lit(self.everywhere) | pl.col("node").is_in(sorted(self.nodes)) | pl.col("job_id").is_in(sorted(self.jobs))
        return (inside & whose).fill_null(False)


def frozen_spans(site: Site) -> list[JudgedSpan]:
    """Return the spans of confirmed incidents, the oldest incident first: nothing of them is ever learnt as normal."""
    return _spans(site, Verdict.CONFIRMED)


def cleared_spans(site: Site) -> list[JudgedSpan]:
    """Return the spans of dismissed incidents, the oldest incident first: somebody has looked, and it was calm."""
    return _spans(site, Verdict.DISMISSED)


def never_normal(site: Site) -> pl.Expr:
    """Which rows of windows or scores lie in the span of a confirmed incident, whatever their job type is called."""
    return _any(site, frozen_spans(site))


def known_calm(site: Site) -> pl.Expr:
    """Which rows of windows or scores somebody found calm, in a dismissed incident or when asked, and none confirmed."""
    spans = [span for span in cleared_spans(site) if span.family == ModelFamily.TRACES]
    return (_any(site, spans) | _in_hours(cleared_hours(site))) & ~never_normal(site)


def learning_labels(site: Site, *, known_at: datetime | None = None) -> list[Outage]:
    """Return the labelled outages of a site, and those that verdicts on incidents of events add, as known at a moment.

    A confirmed one is an outage, a dismissed one an all-clear, as if somebody had labelled it by hand; a label by hand that meets
    a dismissed one holds.
    """
    labels = site.outages.list()
    for kind, spans in ((OutageKind.NORMAL, cleared_spans(site)), (OutageKind.OUTAGE, frozen_spans(site))):
        labels += [
            Outage(span.since, span.until, kind, f"incident {span.incident}", source=BY_VERDICT, uid=str(span.incident))
            for span in spans
            if span.family == ModelFamily.EVENTS and (known_at is None or span.decided_at <= known_at)
        ]
    return labels


def learning_series(site: Site, *, kinds: tuple[str, ...] | None = None, until: datetime | None = None) -> EventSeries:
    """Return the site's events as models learn and judge them: `series_of`, with what verdicts say among its labels."""
    return series_of(site, kinds=kinds, until=until, outages=learning_labels(site))


def halting_incident(site: Site) -> int | None:
    """Return the confirmed incident that is still open and halts all training; None where `alarms.halt_training` is off."""
    if not site.settings.alarms.halt_training:
        return None
    confirmed = (judgement.incident for judgement in site.incidents.judged() if judgement.verdict == Verdict.CONFIRMED)
    return next((incident.id for incident in confirmed if incident.resolved_at is None), None)


def _spans(site: Site, verdict: Verdict) -> list[JudgedSpan]:
    judged = (judgement for judgement in site.incidents.judged() if judgement.verdict == verdict)
    return [_span(judgement, finding) for judgement in judged for finding in judgement.incident.findings]


def _span(judged: JudgedIncident, finding: Finding) -> JudgedSpan:
    lost = finding.jobs if any(subject.kind in _OF_A_JOB for subject in finding.subjects[:1]) else ()
    return JudgedSpan(
        incident=judged.incident.id,
        family=finding.family,
        since=finding.since,
        until=_until(judged, judged.incident, finding),
        nodes=frozenset(subject.name for subject in finding.subjects if subject.kind == SubjectKind.NODE),
        jobs=frozenset(ref.partition("-")[0] for ref in lost),
        everywhere=finding.subject.kind == SubjectKind.CLUSTER,
        decided_at=judged.act.at,
    )


def _until(judged: JudgedIncident, incident: Incident, finding: Finding) -> datetime | None:
    """The end of a span: of a confirmed incident that is not over there is none yet."""
    return None if judged.verdict == Verdict.CONFIRMED and incident.resolved_at is None else finding.until


def _in_hours(hours: Iterable[NodeHour]) -> pl.Expr:
    """Whether a row begins in one of these hours of nodes."""
    inside = pl.lit(False)
    for hour in hours:
        during = pl.col("window_start").is_between(hour.since, hour.since + HOUR, closed="left")
        inside = inside | ((pl.col("node") == hour.node) & during).fill_null(False)
    return inside


def _any(site: Site, spans: Iterable[JudgedSpan]) -> pl.Expr:
    """Whether a row lies in one of the spans."""
    inside, length = pl.lit(False), timedelta(seconds=site.settings.traces.window_s)
    for span in spans:
        inside = inside | span.windows(length)
    return inside
