"""What was counted of events, bucket by bucket, and what is asked of whom to count them; a gap is a gap and a zero is a zero.

Site + Viewer + EventTableQuestion -> event_table -> EventTable. It names groups, nodes and hosts: for administrators.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

import polars as pl

from stormpetrel.answers.schemas.events import (
    EventGapSpan,
    EventPlaceSum,
    EventRow,
    EventSource,
    EventTable,
    EventTableQuestion,
)
from stormpetrel.answers.viewer import READ
from stormpetrel.errors import MissingExtraError, UsageError
from stormpetrel.ingest.events import counts_jobs
from stormpetrel.ingest.job_event_counts import JobTableEvents
from stormpetrel.records.events import COVERED
from stormpetrel.sources.elastic.counts import ElasticEvents
from stormpetrel.store.events.gaps import NO_REASON
from stormpetrel.store.events.series import series_of

if TYPE_CHECKING:
    from stormpetrel.answers.viewer import Viewer
    from stormpetrel.records.event_series import EventSeries
    from stormpetrel.store.events.gaps import EventGap
    from stormpetrel.store.site import Site

_LAST: Final = 24  # buckets that are shown where nothing is said
_JOBS: Final = (
    "every job of the job table: its submission, its start and its end, and how it ended (failed, failed within "
    "{fast:g} s of its start, timed out, cancelled, preempted or requeued, node failed); a job on many nodes counts once"
)
_LOG: Final = "every event of the HTCondor event log {path}, read on from where the last run stopped; event 028 by its trigger"
_FILE: Final = "what the file told when it was read; read it again to correct it"


def event_table(site: Site, viewer: Viewer, question: EventTableQuestion) -> EventTable:
    """The counts of a time with the kinds that occur in it, oldest bucket first."""
    viewer.require(READ)
    viewer.require_admin()
    since, until = question.since, question.until
    if since and until and since >= until:
        raise UsageError("--since is not before --until.", hint="Name the earlier moment with --since.")
    series = series_of(site, since=since, until=until)
    silent: Sequence[str] = ()
    gaps: Sequence[EventGap] = ()
    start, end = since or site.now() - timedelta(days=1), until or site.now()
    if len(series):
        wanted = question.last or (_LAST if since is None and until is None else len(series))
        start = series.moment(max(0, len(series) - wanted))
        end = series.moment(len(series) - 1) + timedelta(seconds=series.bucket_s)
        kinds = _kinds(site, series, start, end)
        silent = [kind for kind in series.kinds if kind not in kinds]
        # What was not seen behind the last bucket belongs to the table unless somebody requested an earlier end.
        gaps = site.event_counts.gaps(bucket_s=series.bucket_s, since=start, until=until or max(end, site.now()))
        series = series_of(site, since=start, until=end, kinds=kinds)
    totals = series.counts[~series.is_gap].sum(axis=0)
    return EventTable(
        bucket_s=series.bucket_s,
        zone=series.zone,
        kinds=list(series.kinds),
        silent=list(silent),
        rows=_rows(series, gaps),
        totals={kind: int(count) for kind, count in zip(series.kinds, totals, strict=True)},
        gaps=[EventGapSpan(start=gap.start, end=gap.end, why=gap.why) for gap in gaps],
        by=question.by,
        places=[] if question.by is None else _places(site, series, question.by, start, end),
        queries=_sources(site, start, end),
        message="" if len(series) else _why_nothing(site),
    )


def _kinds(site: Site, series: EventSeries, start: datetime, end: datetime) -> tuple[str, ...]:
    """The kinds that occur: those that models see first; all of these where none occurs."""
    rows = site.event_counts.read(since=start, until=end, bucket_s=series.bucket_s).filter(pl.col("kind") != COVERED)
    occur = set(rows.select(pl.col("kind").unique()).collect().to_series())
    return (*(kind for kind in series.kinds if kind in occur), *sorted(occur - set(series.kinds))) or series.kinds


def _rows(series: EventSeries, gaps: Sequence[EventGap]) -> list[EventRow]:
    rows = []
    for place, (counts, is_gap) in enumerate(zip(series.counts, series.is_gap, strict=True)):
        begin = series.moment(place)
        why = next((gap.why for gap in gaps if gap.start <= begin < gap.end), NO_REASON) if is_gap else None
        by_kind = None if is_gap else {kind: int(count) for kind, count in zip(series.kinds, counts, strict=True)}
        rows.append(EventRow(time=begin, gap=why, counts=by_kind))
    return rows


def _places(site: Site, series: EventSeries, by: str, start: datetime, end: datetime) -> list[EventPlaceSum]:
    """The sums over all buckets by the values of a place, most events first."""
    rows = site.event_counts.read(since=start, until=end, places=True, bucket_s=series.bucket_s)
    sums = rows.filter(pl.col("place") == by).group_by("value", "kind").agg(pl.col("count").sum()).collect()
    by_value: dict[str, dict[str, int]] = {}
    for value, kind, count in sums.iter_rows():
        by_value.setdefault(value, {})[kind] = count
    ranked = sorted(by_value.items(), key=lambda item: (-sum(item[1].values()), item[0]))
    return [EventPlaceSum(value=value, counts={kind: counts.get(kind, 0) for kind in series.kinds}) for value, counts in ranked]


def _why_nothing(site: Site) -> str:
    """What to say where there is no bucket to show."""
    seen = site.event_counts.seen()
    first, last = seen["first"].min(), seen["last"].max()
    if isinstance(first, datetime) and isinstance(last, datetime):
        return f"No bucket of this time was seen whole. Counts reach from {first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} UTC."
    if site.event_counts.sources():
        return "Events were read, and no bucket of time was seen whole: the log begins and ends within one. Read more of it."
    return "Nothing has been counted yet. Take in events: stormpetrel ingest events --live"


def _sources(site: Site, start: datetime, end: datetime) -> list[EventSource]:
    """For each source: its name, what is counted in words, and the request where there is one; nothing is sent."""
    settings = site.settings
    sources: list[EventSource] = []
    if settings.elastic.url:
        sources.append(_elastic(site, start, end))
    if settings.htcondor.event_log:
        sources.append(EventSource(source="condor", words=_LOG.format(path=settings.htcondor.event_log)))
    if counts_jobs(site):
        text = _JOBS.format(fast=settings.events.fast_failure_s)
        sources.append(EventSource(source=JobTableEvents(site).source, words=text))
    known = {source.source for source in sources}
    others = [name for name in site.event_counts.sources() if name not in known and name.partition(":")[0] not in known]
    return sources + [EventSource(source=name, words=_FILE) for name in others]


def _elastic(site: Site, start: datetime, end: datetime) -> EventSource:
    elastic = site.settings.elastic
    name, text = f"elastic:{elastic.index}", f"the documents of {elastic.index} at {elastic.url}, by the server"
    try:
        query = ElasticEvents(elastic, site.settings.events).query_shown(start, end)
    except MissingExtraError as error:
        return EventSource(source=name, words=f"{text}; {error}")
    return EventSource(source=name, words=text, query=query)
