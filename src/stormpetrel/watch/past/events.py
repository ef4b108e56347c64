"""Events in the replay: the rules of the watch, and the model that could have been trained by then.

PastCounts -> EventPast.step(now) -> findings of the buckets that were over by `now`. A model is trained at the times at which the
watch would have trained one, on what was known then, and speaks of the buckets after that.

Counts of events of a site's past, each as it was known when its bucket was over.

Site -> past_counts -> PastCounts. A site that has job records only has its events counted out of them, as the watch would have
done; nothing is written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Final

import numpy as np
import polars as pl

from stormpetrel.alarms.event_rules import FAMILY, REACH
from stormpetrel.errors import ModelError
from stormpetrel.ingest.events import counts_jobs
from stormpetrel.ingest.job_event_counts import SILENCE, JobTableEvents
from stormpetrel.lifecycle.event_models import LEAST_WEEKS, EventModelInUse, fit_event_model
from stormpetrel.lifecycle.event_scoring import OddBucket, odd_buckets
from stormpetrel.lifecycle.frozen_spans import learning_labels
from stormpetrel.lifecycle.nightly import EVERY
from stormpetrel.records.event_series import EventSeries
from stormpetrel.records.events import COUNT_SCHEMA, COVERED, WHOLE, covered
from stormpetrel.records.findings import Finding, FindingKind
from stormpetrel.records.outages import OutageKind
from stormpetrel.store.events.series import chosen_kinds, series_from
from stormpetrel.store.site import Site
from stormpetrel.watch.cluster_name import ClusterName
from stormpetrel.watch.event_findings import FailedJobs, findings_of_bucket, place_findings, waves_by_bucket

_LOOK_EVERY: Final = timedelta(hours=1)  # whether a training is due, as in the watch
_AFTER_FAILURE: Final = timedelta(days=1)  # the watch tries every hour: with the same outcome, mostly
_WHOLE: Final = ("source", "bucket_start", "kind", "count")


class EventPast:
    """Walks through the counted events of one site from `start` on; without `models` by rules alone."""

    name = FAMILY

    def __init__(
        self,
        counts: PastCounts,
        start: datetime,
        *,
        models: bool = True,
        progress: Callable[[str], None] = lambda words: None,
    ) -> None:
        self._counts = counts
        self._series = counts.walked(counts.site.now())
        self._totals = counts.totals(self._series)
        self._settle = timedelta(minutes=counts.site.settings.events.settle_minutes)
        self._cluster = ClusterName(counts.site)
        self._waves: set[tuple[FindingKind, datetime]] | None = None
        ends_s = self._series.start_s + self._series.bucket_s
        self._ends_s = ends_s  # (buckets,)
        self._next = int(np.searchsorted(ends_s, start.timestamp(), side="right"))  # the first bucket that was not told
        self._trainings = _Trainings(counts, self._series.start_s[~self._series.is_gap], progress) if models else None
        if self._trainings:
            self._trainings.look(start)

    @property
    def settle(self) -> timedelta:
        """How long after its end a bucket is known."""
        return self._settle

    @property
    def trained(self) -> int:
        """How many models were trained on the way."""
        return self._trainings.count if self._trainings else 0

    def step(self, now: datetime) -> list[Finding]:
        """Return what the buckets tell that were over by `now` and not before; each is known at its end, as far as this says."""
        first, last = self._next, int(np.searchsorted(self._ends_s, now.timestamp(), side="right"))
        if last <= first:
            return []
        self._next = last
        since, length = self._series.moment(first), self._counts.bucket
        reach = int(np.searchsorted(self._series.start_s, (since - REACH).timestamp()))
        counts = self._counts.places(since - REACH, self._series.moment(last - 1) + length)
        seen = self._totals.take(reach, last)
        rules = place_findings(counts, seen)
        waves = waves_by_bucket(counts, seen, since, self._waves)
        self._waves = {(wave.kind, start) for start, several in waves.items() for wave in several} | {
            (kind, start) for kind, start in self._waves or () if start >= since - REACH
        }
        odd = self._odd(first, last, counts)
        whole = {self._series.moment(int(at)) for at in first + np.flatnonzero(~self._series.is_gap[first:last])}
        starts = sorted({*rules, *waves, *odd} & whole)
        jobs = FailedJobs(self._counts.site, starts, length)
        findings: list[Finding] = []
        for start in starts:
            bucket = jobs.bucket(self._cluster.name(), start)
            findings += findings_of_bucket(bucket, rules.get(start, ()), waves.get(start, ()), odd.get(start), bucket.end)
        return findings

    def _odd(self, first: int, last: int, counts: pl.DataFrame) -> dict[datetime, OddBucket]:
        """What the models of their time say of the buckets [first, last)."""
        if self._trainings is None:
            return {}
        odd: dict[datetime, OddBucket] = {}
        begin, used = first, self._trainings.model
        for at in range(first, last):
            # A bucket is scored, and then a training may begin that has seen it.
            self._trainings.look(self._series.moment(at) + self._counts.bucket + self._settle)
            if self._trainings.model is not used or at == last - 1:
                odd |= self._scored(used, begin, at + 1, counts)
                begin, used = at + 1, self._trainings.model
        return odd

    def _scored(self, used: EventModelInUse | None, first: int, last: int, counts: pl.DataFrame) -> dict[datetime, OddBucket]:
        if used is None:
            return {}
        return {odd.start: odd for odd in odd_buckets(used, self._series.take(0, last), first, counts)}


class _Trainings:
    """The event model that could have been trained by a moment: when there is enough, and then as often as in the watch."""

    def __init__(
        self, counts: PastCounts, seen_s: np.ndarray[tuple[int], np.dtype[np.int64]], progress: Callable[[str], None]
    ) -> None:
        self._counts, self._progress = counts, progress
        self._outage_ends = sorted(outage.end for outage in counts.site.outages.list() if outage.end is not None)
        delay = counts.bucket + timedelta(minutes=counts.site.settings.events.settle_minutes)
        enough = round(LEAST_WEEKS * 7 * 86_400 / counts.bucket.total_seconds())  # buckets
        self._enough_at_s = int(seen_s[enough - 1]) + delay.total_seconds() if seen_s.size >= enough else np.inf
        self._next_look: datetime | None = None
        self._trained_at: datetime | None = None
        self._labels = 0
        self.model: EventModelInUse | None = None
        self.count = 0

    def look(self, now: datetime) -> None:
        """Train a model if one is due."""
        if now.timestamp() < self._enough_at_s or (self._next_look and now < self._next_look):
            return
        self._next_look = now + _LOOK_EVERY
        labels = sum(end <= now for end in self._outage_ends)
        if self._trained_at and now - self._trained_at < EVERY and labels == self._labels:
            return
        self._progress(f"{now:%Y-%m-%d}, training")
        try:
            used = fit_event_model(self._counts.site.settings.events, self._counts.known_at(now))
        except ModelError:
            self._next_look = now + _AFTER_FAILURE
            return
        self.count += 1
        self.model = replace(used, version=self.count)
        self._trained_at, self._labels = now, labels


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
        announced = [outage for outage in self.site.outages.list() if outage.kind is OutageKind.MAINTENANCE]
        return series_from(self.site, rows, announced, now=now, kinds=kinds)

    def known_at(self, moment: datetime) -> EventSeries:
        """Return what a training at a moment sees: settled buckets, outages that had ended, verdicts that had been given."""
        settled = moment - timedelta(minutes=self.site.settings.events.settle_minutes) - self.bucket
        rows = self.whole.filter(pl.col("bucket_start") <= settled)
        outages = [
            outage
            for outage in learning_labels(self.site, known_at=moment)
            if outage.kind is OutageKind.MAINTENANCE or (outage.end is not None and outage.end <= moment)
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
    spans = list(table.spans(lambda _name: None, site.now()))
    if not spans:
        return table.source, None, nothing
    bucket_s = site.settings.events.bucket_minutes * 60
    # A silence of two days is taken for missing records, but nobody knows before the two days are over.
    silences = [
        covered(table.source, begin, min(begin + SILENCE, end), bucket_s).select(list(COUNT_SCHEMA))
        for span in spans
        for begin, end, _ in span.missing
    ]
    counts = [span.counts.select(list(COUNT_SCHEMA)) for span in spans]
    return table.source, spans[0].start, pl.concat([*counts, *silences])


def _without(stored: pl.DataFrame, source: str, since: datetime | None) -> pl.DataFrame:
    """What is stored, without what was counted anew."""
    if since is None:
        return stored
    return stored.filter((pl.col("source") != source) | (pl.col("bucket_start") < since))


def _seconds(length: timedelta) -> int:
    return round(length.total_seconds())
