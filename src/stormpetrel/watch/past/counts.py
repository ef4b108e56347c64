"""Counts of events of a site's past, each as it was known when its bucket was over.

Site -> past_counts -> PastCounts. A site that has job records only has its events counted out of them, as the watch would have
done; nothing is written.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Final

import numpy as np
import polars as pl

from stormpetrel.ingest.events import counts_jobs
from stormpetrel.ingest.job_event_counts import SILENCE, JobTableEvents
from stormpetrel.lifecycle.frozen_spans import learning_labels
from stormpetrel.records.event_counting import covered
from stormpetrel.records.event_series import EventSeries
from stormpetrel.records.events import COUNT_SCHEMA, COVERED, WHOLE
from stormpetrel.records.outages import OutageKind
from stormpetrel.store.events.series import chosen_kinds, series_from
from stormpetrel.store.site import Site

_WHOLE: Final = ("source", "bucket_start", "kind", "count")


@dataclass(frozen=True, slots=True, eq=False)
class PastCounts:
    """The counts of a site up to a time."""

    site: Site
    whole: pl.DataFrame  # source, bucket_start, kind, count of all places together, marks included
    of_jobs: pl.DataFrame  # COUNT_SCHEMA with places: what was counted out of job records here
    counted_from: datetime | None  # from when on `of_jobs` stands in place of what is stored of `job_source`
    job_source: str

    @property
    def bucket(self) -> timedelta:
        """How long a bucket is."""
        return timedelta(minutes=self.site.settings.events.bucket_minutes)

    def places(self, since: datetime, until: datetime) -> pl.DataFrame:
        """Return the counts by place of the buckets that begin in [since, until), as a frame of COUNT_SCHEMA."""
        stored = self.site.event_counts.read(since=since, until=until, places=True, bucket_s=_seconds(self.bucket)).collect()
        here = self.of_jobs.filter(pl.col("bucket_start") >= since, pl.col("bucket_start") < until)
        return pl.concat([_without(stored, self.job_source, self.counted_from), here])

    def seen(self, since: datetime, until: datetime) -> int:
        """Return how many buckets that were over in (since, until] were seen whole by somebody."""
        marks = self.whole.filter(pl.col("kind") == COVERED)["bucket_start"].unique()
        return int(((marks + self.bucket > since) & (marks + self.bucket <= until)).sum())

    def partial(self) -> int:
        """Return how many buckets have counts and were seen whole by nobody."""
        is_mark = pl.col("kind") == COVERED
        marks = self.whole.filter(is_mark).select("bucket_start")
        return self.whole.filter(~is_mark).join(marks, on="bucket_start", how="anti")["bucket_start"].n_unique()

    def walked(self, now: datetime) -> EventSeries:
        """Return all kinds, seen as one walks through the past: a bucket is whole if anybody has marked it.

        That a source had a gap there is known only when it speaks again. Maintenance is announced; of outages nothing is known.
        """
        rows = self.whole.with_columns(
            source=pl.when(pl.col("kind") == COVERED).then(pl.lit("")).otherwise("source").cast(pl.String)
        )
        kinds = sorted(set(rows["kind"].unique()) - {COVERED})
        announced = [one for one in self.site.outages.list() if one.kind is OutageKind.MAINTENANCE]
        return series_from(self.site, rows, announced, now=now, kinds=kinds)

    def known_at(self, moment: datetime) -> EventSeries:
        """Return what a training at a moment sees: settled buckets, outages that had ended, verdicts that had been given."""
        settled = moment - timedelta(minutes=self.site.settings.events.settle_minutes) - self.bucket
        rows = self.whole.filter(pl.col("bucket_start") <= settled)
        outages = [
            one
            for one in learning_labels(self.site, known_at=moment)
            if one.kind is OutageKind.MAINTENANCE or (one.end is not None and one.end <= moment)
        ]
        return series_from(self.site, rows, outages, now=moment)

    def totals(self, series: EventSeries) -> EventSeries:
        """Return a series of one column: all events of the kinds that would have been chosen by each bucket."""
        total = np.where(series.is_gap, np.nan, 0.0)
        is_counted = np.nan_to_num(series.counts) > 0  # (buckets, kinds)
        ever = [np.flatnonzero(column) for column in is_counted.T]
        first = [int(places[0]) if places.size else len(series) for places in ever]  # when each kind was first told of
        edges = [0, *sorted({at for at in first if 0 < at < len(series)}), len(series)]
        for begin, end in pairwise(edges):
            known = [kind for kind, at in zip(series.kinds, first, strict=True) if at <= begin]
            chosen = set(chosen_kinds(self.site.settings, known))
            columns = [place for place, kind in enumerate(series.kinds) if kind in chosen]
            total[begin:end] += series.counts[begin:end][:, columns].sum(axis=1)
        return EventSeries(series.start_s, series.bucket_s, ("events",), total[:, None], series.label, zone=series.zone)


def counted_span(site: Site) -> tuple[datetime, datetime] | None:
    """Return the beginning of the first bucket in the tables that was seen whole and the end of the last; None where none was."""
    bucket = timedelta(minutes=site.settings.events.bucket_minutes)
    seen = site.event_counts.seen().filter(pl.col("bucket_s") == _seconds(bucket))
    first, last = seen["first"].min(), seen["last"].max()
    if not isinstance(first, datetime) or not isinstance(last, datetime):
        return None
    return first.astimezone(UTC), last.astimezone(UTC) + bucket


def past_counts(site: Site, *, count_jobs: bool = True) -> PastCounts:
    """Return the counts of a site: what its sources have told, and where its watch counts job records, these anew."""
    source, counted_from, of_jobs = _of_jobs(site) if count_jobs else ("", None, pl.DataFrame(schema=COUNT_SCHEMA))
    bucket_s = site.settings.events.bucket_minutes * 60
    stored = site.event_counts.read(bucket_s=bucket_s).select(_WHOLE).collect()
    whole = pl.concat([_without(stored, source, counted_from), of_jobs.filter(pl.col("place") == WHOLE).select(_WHOLE)])
    over = site.now() - timedelta(seconds=bucket_s - 1)
    return PastCounts(site, whole.filter(pl.col("bucket_start") <= over), of_jobs, counted_from, source)


def _of_jobs(site: Site) -> tuple[str, datetime | None, pl.DataFrame]:
    """The name of the job table as a source, from when on it was counted, and its counts."""
    nothing = pl.DataFrame(schema=COUNT_SCHEMA)
    if not counts_jobs(site):
        return "", None, nothing
    table = JobTableEvents(site, whole=True)
    span = next(iter(table.spans(lambda _name: None, site.now())), None)
    if span is None:
        return table.source, None, nothing
    bucket_s = site.settings.events.bucket_minutes * 60
    # A silence of two days is taken for missing records, but nobody knows before the two days are over.
    silences = [
        covered(table.source, begin, min(begin + SILENCE, end), bucket_s).select(list(COUNT_SCHEMA))
        for begin, end, _ in span.missing
    ]
    return table.source, span.start, pl.concat([span.counts.select(list(COUNT_SCHEMA)), *silences])


def _without(stored: pl.DataFrame, source: str, since: datetime | None) -> pl.DataFrame:
    """What is stored, without what was counted anew."""
    if since is None:
        return stored
    return stored.filter((pl.col("source") != source) | (pl.col("bucket_start") < since))


def _seconds(length: timedelta) -> int:
    return round(length.total_seconds())
