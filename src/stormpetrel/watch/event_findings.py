"""The watcher of events: when a bucket is over, read it, score it, and say what is wrong with it.

Site -> EventFindings.step(now) -> findings. Rules over places speak from the first week of counts on, without a model; the model
adds what is unusual as a whole. Its training has a clock of its own (`watch/training.py`). The replay of the past
(`watch/past/events.py`) makes findings of buckets with the same functions.

The grid's part of the watch: when a bucket is over, read its events, score it, and say what is wrong.

Site -> GridWatch.step -> GridStep, once per bucket. A source that is away is no reason to stop judging jobs: it is told, the gap
is recorded, and the next turn asks again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import numpy as np
import polars as pl

from stormpetrel.alarms.event_rules import (
    FAMILY,
    REACH,
    WAVES,
    Bucket,
    Wave,
    event_waves,
    finding_of_score,
    finding_of_wave,
    findings_of_rules,
)
from stormpetrel.errors import StormpetrelError
from stormpetrel.events.finding import Finding as Reason
from stormpetrel.events.finding import findings_of_json
from stormpetrel.ingest.events import has_event_sources, ingest_live_events
from stormpetrel.ingest.job_event_counts import PREFIX
from stormpetrel.lifecycle.event_models import EventModelInUse, load_event_model
from stormpetrel.lifecycle.event_scoring import OddBucket, rule_findings, score_new_buckets, stored_odd_buckets
from stormpetrel.records.event_series import EventSeries
from stormpetrel.records.events import EVENT_SCORE_SCHEMA
from stormpetrel.records.findings import Finding, FindingKind
from stormpetrel.records.jobs import KEY, ref_text
from stormpetrel.records.model_families import ModelFamily
from stormpetrel.store.events.series import series_of
from stormpetrel.store.site import Site
from stormpetrel.store.source_health import EVENTS, Seen, SourceBook
from stormpetrel.watch.cluster_name import ClusterName

_FIRST_LOOK: Final = timedelta(days=1)  # how far back a first watch looks for what may still be going on
_WAITS: Final = timedelta(days=7)  # so long a bucket that was not seen whole can still be told, as late
_MOST_JOBS: Final = 1000
_AGAIN_AFTER: Final = timedelta(minutes=5)  # after a failure


class EventFindings:
    """Watches the events of one site, from where `state` was left; `note` hears of each look at the sources."""

    name = FAMILY

    def __init__(self, site: Site, grid: GridWatch, *, state: str = "", note: Callable[[GridStep], None] = lambda step: None):
        self._site, self._grid, self._note = site, grid, note
        self._cluster = ClusterName(site)
        known = json.loads(state) if state else {}
        self._reported_to = datetime.fromisoformat(known["told_to"]) if known else None
        self._untold: list[tuple[int, int]] = [(int(first), int(last)) for first, last in known.get("untold", [])]

    @property
    def every_s(self) -> float:
        """Seconds from one step to the next; most have nothing to do."""
        return self._site.settings.watch.poll_s

    @property
    def state(self) -> str:
        """Up to which bucket everything was told, and the spans before it (Unix seconds) that were not seen whole."""
        return json.dumps({"told_to": self._reported_to.isoformat(), "untold": self._untold}) if self._reported_to else ""

    def step(self, now: datetime) -> list[Finding]:
        """Return what the buckets tell that are over and were not told; of those that had a gap when they were over as well."""
        looked = self._grid.step()
        if looked is None:
            return []
        self._note(looked)
        since, settled = self._reported_to or now - _FIRST_LOOK, self._grid.settled_end(now)
        length = timedelta(minutes=self._site.settings.events.bucket_minutes)
        series = series_of(self._site, since=since - _WAITS - REACH, until=settled)
        due = self._due(series, since)
        findings = self._findings(series, due, length, now) if due else []
        newest = self._newest_seen(since)
        if newest is not None:
            self._reported_to = max(since, min(newest + length, settled))
            self._untold = _unseen(series, self._reported_to)
        return findings

    def _due(self, series: EventSeries, since: datetime) -> set[datetime]:
        """The buckets that were seen whole and not told."""
        waits = series.start_s >= since.timestamp()
        for first, last in self._untold:
            waits |= (series.start_s >= first) & (series.start_s < last)
        return {series.moment(int(at)) for at in np.flatnonzero(waits & ~series.is_gap)}

    def _findings(self, series: EventSeries, due: Collection[datetime], length: timedelta, now: datetime) -> list[Finding]:
        since = min(due)
        counts = self._site.event_counts.read(since=since - REACH, places=True, bucket_s=series.bucket_s).collect()
        series = series.take(int(np.searchsorted(series.start_s, (since - REACH).timestamp())), len(series))
        rules = place_findings(counts, series)
        waves = waves_by_bucket(counts, series, since)
        odd = self._odd(since)
        starts = sorted({*rules, *waves, *odd} & set(due))
        jobs = FailedJobs(self._site, starts, length)
        findings: list[Finding] = []
        for start in starts:
            bucket = jobs.bucket(self._cluster.name(), start)
            findings += findings_of_bucket(bucket, rules.get(start, ()), waves.get(start, ()), odd.get(start), now)
        return findings

    def _odd(self, since: datetime) -> dict[datetime, OddBucket]:
        """What the model in use says, by bucket, of those that are above its threshold."""
        used = self._grid.model
        return {} if used is None else {odd.start: odd for odd in stored_odd_buckets(self._site, used, since=since)}

    def _newest_seen(self, since: datetime) -> datetime | None:
        newest: datetime | None = self._site.event_counts.read(since=since).select(pl.col("bucket_start").max()).collect().item()
        return newest


def place_findings(counts: pl.DataFrame, series: EventSeries) -> dict[datetime, list[Reason]]:
    """Return what the rules over places find, by bucket.

    Nodes of which job records tell are left to the rules over job records: those know whose jobs were lost, and where else.
    """
    of_records = pl.col("source").str.starts_with(PREFIX) & (pl.col("place") == "node")
    return rule_findings(counts.filter(~of_records), series)


def findings_of_bucket(
    bucket: Bucket, reasons: Iterable[Reason], waves: Iterable[Wave], odd: OddBucket | None, now: datetime
) -> list[Finding]:
    """Return what the rules, the waves and the model say of one bucket, known at `now`."""
    findings = findings_of_rules(bucket, reasons, now)
    findings += [finding_of_wave(bucket, wave, now) for wave in waves]
    if odd is not None:
        unusual = finding_of_score(bucket, odd.why, score=odd.score, threshold=odd.threshold, model=odd.model, known_at=now)
        findings += [unusual] if unusual else []
    return findings


def waves_by_bucket(
    counts: pl.DataFrame,
    series: EventSeries,
    since: datetime,
    before: Collection[tuple[FindingKind, datetime]] | None = None,
) -> dict[datetime, list[Wave]]:
    """Return the waves of holds and shadow exceptions by the bucket, from `since` on; `series` says which were seen whole."""
    seen = [series.moment(int(at)) for at in np.flatnonzero(~series.is_gap)]
    rows = counts.filter(pl.col("kind").is_in([*WAVES]))
    waves: dict[datetime, list[Wave]] = {}
    for wave in event_waves(rows, seen, timedelta(seconds=series.bucket_s), since, before=before):
        waves.setdefault(wave.start, []).append(wave)
    return waves


class FailedJobs:
    """The failed jobs of some buckets, as far as there are records of them: the same jobs are the same cause."""

    def __init__(self, site: Site, starts: Collection[datetime], length: timedelta) -> None:
        self._length = length
        self._rows = _failed_jobs(site, min(starts), max(starts) + length) if starts else pl.DataFrame()

    def bucket(self, cluster: str, start: datetime) -> Bucket:
        """Return a bucket with the jobs that failed in it."""
        ended = pl.col("end_time").is_between(start, start + self._length, closed="right")
        rows = self._rows.filter(ended).head(_MOST_JOBS)
        users = tuple(sorted(set(rows["user"].drop_nulls().to_list()) - {""}))
        return Bucket(cluster, start, self._length, tuple(rows.select(ref_text())["ref"].to_list()), users)


def _failed_jobs(site: Site, since: datetime, until: datetime) -> pl.DataFrame:
    ended = pl.col("end_time").is_between(since, until, closed="right")
    failed = pl.col("state").is_in([str(state) for state in site.settings.jobs.failure_states])
    return site.jobs.table.scan().filter(ended, failed).select(*KEY, "user", "end_time").sort("end_time", *KEY).collect()


def _unseen(series: EventSeries, until: datetime) -> list[tuple[int, int]]:
    """The spans (Unix seconds) of the last days before `until` that were not seen whole, from the first that was on."""
    whole = np.flatnonzero(~series.is_gap)
    if not whole.size:
        return []
    until_s, bucket_s = int(until.timestamp()), series.bucket_s
    first_s = int(series.start_s[whole[0]])
    oldest_s = first_s + max(0, -(-(until_s - round(_WAITS.total_seconds()) - first_s) // bucket_s)) * bucket_s
    seen = set(series.start_s[whole].tolist())
    spans: list[tuple[int, int]] = []
    for start_s in range(oldest_s, until_s, bucket_s):
        if start_s in seen:
            continue
        if spans and spans[-1][1] == start_s:
            spans[-1] = (spans[-1][0], start_s + bucket_s)
        else:
            spans.append((start_s, start_s + bucket_s))
    return spans


@dataclass(frozen=True, slots=True)
class GridStep:
    """What one poll of the grid came to: the buckets scored now, and what went wrong."""

    rows: pl.DataFrame  # EVENT_SCORE_SCHEMA
    problem: str | None = None

    @property
    def newest(self) -> dict[str, Any] | None:
        """The newest bucket that was scored."""
        return self.rows.sort("bucket_start").row(-1, named=True) if self.rows.height else None

    def words(self) -> list[str]:
        """What the newest bucket says, if it is an alarm."""
        newest = self.newest
        return [reason.words for reason in findings_of_json(newest["why"])] if newest and newest["alarm"] else []


class GridWatch:
    """Watches the grid of one site; a site without event sources costs nothing.

    `give_way` is called before sources are read and after each piece of a long one, such as a full job table at the first watch.
    """

    def __init__(
        self,
        site: Site,
        book: SourceBook | None = None,
        *,
        models: Site | None = None,
        give_way: Callable[[], None] = lambda: None,
    ) -> None:
        self._site, self._give_way = site, give_way
        self._models = models or site  # whose models judge: a copy of a site has none of its own
        self._book = book or SourceBook()
        self.is_active = has_event_sources(site)
        self._done: datetime | None = None  # the bucket up to which everything was looked at
        self._not_before: datetime | None = None
        self._used: EventModelInUse | None = None

    @property
    def model(self) -> EventModelInUse | None:
        """The model that scored last; None before the first."""
        return self._used

    def step(self) -> GridStep | None:
        """Poll the grid if a bucket has ended and settled since the last poll; None where there is nothing to do."""
        now = self._site.now()
        due = self.settled_end(now)
        if not self.is_active or due == self._done or (self._not_before and now < self._not_before):
            return None
        try:
            problems = self._read_sources()
            rows = self._score()
        except StormpetrelError as error:
            self._not_before = now + _AGAIN_AFTER * self._site.pace()
            return GridStep(pl.DataFrame(schema=EVENT_SCORE_SCHEMA), str(error))
        if problems:
            self._not_before = now + _AGAIN_AFTER * self._site.pace()
        else:
            self._done, self._not_before = due, None
        return GridStep(rows, problems[0] if problems else None)

    def _read_sources(self) -> list[str]:
        """Take in what the sources tell since the last poll; what is wrong with them."""
        self._give_way()
        reports = ingest_live_events(self._site, progress=lambda _share, _text: self._give_way(), poll_source=self._poll_source)
        return [why for report in reports for why in report.problems]

    def _poll_source(self, name: str) -> AbstractContextManager[Seen]:
        """A poll of one source, once per bucket; in real seconds, also where the site's clock runs faster."""
        every_s = self._site.settings.events.bucket_minutes * 60 / self._site.pace()
        return self._book.poll(name, watcher=EVENTS, every_s=every_s)

    def settled_end(self, now: datetime) -> datetime:
        """The end of the newest bucket that is over and settled."""
        settings = self._site.settings.events
        settled = now - timedelta(minutes=settings.settle_minutes)
        bucket_s = settings.bucket_minutes * 60
        return settled - timedelta(seconds=settled.timestamp() % bucket_s)

    def _score(self) -> pl.DataFrame:
        training = self._models.models.current_training(ModelFamily.EVENTS)
        if training is None:
            self._used = None
            return pl.DataFrame(schema=EVENT_SCORE_SCHEMA)
        versions = {(model.name, model.version) for model in training.models}
        if self._used is None or (self._used.name, self._used.version) not in versions:
            self._used = load_event_model(self._models)
        return score_new_buckets(self._site, self._used).rows
