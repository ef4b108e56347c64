"""Events in the replay: the rules of the watch, and the model that could have been trained by then.

PastCounts -> EventPast.step(now) -> findings of the buckets that were over by `now`. A model is trained at the times at which the
watch would have trained one, on what was known then, and speaks of the buckets after that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

import numpy as np
import polars as pl

from stormpetrel.alarms.event_rules import FAMILY
from stormpetrel.alarms.event_waves import REACH
from stormpetrel.errors import ModelError
from stormpetrel.lifecycle.event_models import LEAST_WEEKS, EventModelInUse, fit_event_model
from stormpetrel.lifecycle.event_scoring import OddBucket, odd_buckets
from stormpetrel.lifecycle.nightly import EVERY
from stormpetrel.records.findings import Finding, FindingKind
from stormpetrel.watch.cluster_name import ClusterName
from stormpetrel.watch.event_findings import FailedJobs, findings_of_bucket, place_findings, waves_by_bucket
from stormpetrel.watch.past.counts import PastCounts

_LOOK_EVERY: Final = timedelta(hours=1)  # whether a training is due, as in the watch
_AFTER_FAILURE: Final = timedelta(days=1)  # the watch tries every hour: with the same outcome, mostly


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
            one for one in self._waves or () if one[1] >= since - REACH
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
        self._outage_ends = sorted(one.end for one in counts.site.outages.list() if one.end is not None)
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
            used = fit_event_model(self._counts.site, self._counts.known_at(now))
        except ModelError:
            self._next_look = now + _AFTER_FAILURE
            return
        self.count += 1
        self.model = replace(used, version=self.count)
        self._trained_at, self._labels = now, labels
