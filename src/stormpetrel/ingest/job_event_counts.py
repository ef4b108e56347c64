"""The job table as a source of events, so that a site without event logs has the same alarm.

job rows -> job_events -> counts per bucket. Of each job its submission, start and end are events; a job on many nodes counts
once.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

import polars as pl

from stormpetrel.records.cursor import Cursor, CursorOf
from stormpetrel.records.events import (
    FUTURE_SLACK,
    WHOLE,
    EventKind,
    Missing,
    bucket_ceil,
    bucket_floor,
    count_events,
    covered,
    set_aside,
)
from stormpetrel.records.job_events import event_times, job_events
from stormpetrel.records.times import EARLIEST
from stormpetrel.sources.contract import CountedSpan
from stormpetrel.store.site import Site

PREFIX: Final = "jobs:"
PIECE_JOBS: Final = 250_000  # some four events each, 150 MB in memory
# A longer silence of all events, in records of jobs alone, is taken for records that are missing: nobody was there to say so.
SILENCE: Final = timedelta(hours=48)
# Where old jobs were deleted, those that ran across that moment are missing too: what was counted of these days before stands.
_TORN: Final = timedelta(days=14)
_TIMES: Final = ("submit_time", "start_time", "end_time")
_READ: Final = (*_TIMES, "state", "restart", "cluster", "account", "group", "node_list")  # what job_events looks at


class JobTableEvents:
    """Counts what the site's job table tells: from a while before the last time on, or from all of it.

    All of it is counted if `whole` says so, or if there are now more or fewer jobs of earlier times than were counted: somebody
    has read an old file.
    """

    def __init__(self, site: Site, *, whole: bool = False) -> None:
        self.source = PREFIX + (site.settings.site.cluster or "all")
        self.notes: list[str] = []
        self._site = site
        self._settings = site.settings.events
        self._whole = whole
        self._bucket_s = site.settings.events.bucket_minutes * 60

    def spans(self, cursor: CursorOf, now: datetime) -> Iterator[CountedSpan]:
        """Spans from the first job, or from `events.overlap_hours` before the cursor, to what is over and settled.

        A span has about `PIECE_JOBS` jobs, which is what is in memory at a time. It ends behind a bucket that holds something, so
        that no silence is divided.
        """
        since = None if self._whole else self._again_from(cursor(self.source))
        if since is not None and self._has_other_jobs(since):
            since = None
        first, last, aside = self._extent(since, now)
        start, end = self._start(since, first), self._end(last, now)
        if start is None or end is None or end <= start:
            return
        begin, step = start, timedelta(seconds=self._bucket_s)
        for border in self._borders(start, end):
            events, _ = set_aside(self._events(begin, border), now=now)
            counts = count_events(events, source=self.source, bucket_s=self._bucket_s, most_places=self._settings.most_places)
            latest = counts["bucket_start"].max()
            if border < end and latest is None:
                continue
            until = latest + step if border < end and isinstance(latest, datetime) else border
            silences = _silences(counts, begin, until, self._bucket_s)
            marks = covered(self.source, begin, until, self._bucket_s, counts)
            for quiet_from, quiet_until, _ in silences:
                marks = marks.filter(~pl.col("bucket_start").is_between(quiet_from, quiet_until, closed="left"))
            position = Cursor(self.source, int(until.timestamp() * 1e6))
            done = (until - start) / (end - start)
            yield CountedSpan(
                begin, until, pl.concat([counts, marks]), position, quarantined=aside, missing=silences, done=done
            )  # fmt: skip
            begin, aside = until, {}

    def _jobs(self, since: datetime | None, until: datetime | None = None) -> pl.LazyFrame:
        """The jobs to which something happened in a span."""
        times = [pl.col(name) for name in _TIMES]
        within = [
            (time >= since if since is not None else time.is_not_null()) & (time < until if until is not None else True)
            for time in times
        ]
        return self._site.jobs.read_jobs().filter(pl.any_horizontal(within)).select(_READ)

    def _events(self, since: datetime, until: datetime) -> pl.DataFrame:
        """The events of a span."""
        events = job_events(self._jobs(since, until).collect(), fast_failure_s=self._settings.fast_failure_s)
        return events.filter(pl.col("time") >= since, pl.col("time") < until)

    def _extent(self, since: datetime | None, now: datetime) -> tuple[datetime | None, datetime | None, dict[str, int]]:
        """The first and the last event that can be counted, and how many cannot, by reason."""
        jobs, latest = self._jobs(since), now + FUTURE_SLACK
        times = jobs.select(time.alias(name) for name, time in event_times().items())
        sound = [pl.when(pl.col(name).is_between(EARLIEST, latest)).then(pl.col(name)) for name in _TIMES]
        ends = times.select(first=pl.min_horizontal(sound).min(), last=pl.max_horizontal(sound).max()).collect()
        doubtful = jobs.filter(~pl.all_horizontal(pl.col(name).is_between(EARLIEST, latest).fill_null(True) for name in _TIMES))
        _, aside = set_aside(job_events(doubtful.collect(), fast_failure_s=self._settings.fast_failure_s), now=now)
        return ends["first"].item(), ends["last"].item(), aside

    def _borders(self, start: datetime, end: datetime) -> list[datetime]:
        """Where spans may end, `end` last: buckets after which about so many jobs have been submitted since the border before."""
        jobs = self._site.jobs.read_jobs().filter(pl.col("submit_time").is_between(start, end, closed="left"))
        by_bucket = jobs.group_by(bucket=bucket_floor(pl.col("submit_time"), self._bucket_s)).len().sort("bucket").collect()
        piece = by_bucket.select("bucket", piece=pl.col("len").cum_sum() // PIECE_JOBS)
        begins = piece.group_by("piece").agg(pl.col("bucket").min())["bucket"].sort().to_list()
        return [*(border for border in begins if border > start), end]

    def _again_from(self, position: int | None) -> datetime | None:
        if position is None:
            return None
        earlier = datetime.fromtimestamp(position / 1e6, UTC) - timedelta(hours=self._settings.overlap_hours)
        return bucket_floor(earlier, self._bucket_s)

    def _has_other_jobs(self, since: datetime) -> bool:
        """Whether the jobs submitted before a time are not those that were counted."""
        seen = self._site.event_counts.seen().filter(pl.col("source") == self.source, pl.col("bucket_s") == self._bucket_s)
        if not seen.height:
            return True
        first = seen["first"][0]
        counts = self._site.event_counts.read(since=first, until=since, bucket_s=self._bucket_s)
        ours = (pl.col("source") == self.source) & (pl.col("kind") == str(EventKind.SUBMIT))
        counted = counts.filter(ours).select(pl.col("count").sum()).collect().item()
        jobs = self._site.jobs.read_jobs(until=since).filter(pl.col("restart").fill_null(0) == 0)
        earlier, later = pl.col("submit_time") < first - timedelta(seconds=self._bucket_s), pl.col("submit_time") >= first
        before, there = jobs.select(earlier.sum().alias("before"), later.sum().alias("there")).collect().row(0)
        return bool(before or there != counted)

    def _start(self, since: datetime | None, first: datetime | None) -> datetime | None:
        """The first bucket to tell of; the one that the first job came in was not seen from its beginning."""
        marks = self._site.event_counts.coverage(bucket_s=self._bucket_s, source=self.source).start_s
        known = datetime.fromtimestamp(int(marks[0]), UTC) if marks.size else None
        if since is not None and known is not None:
            return max(since, known)
        if first is None:
            return None
        start = bucket_ceil(first, self._bucket_s)
        return start + _TORN if known is not None and known < start else start

    def _end(self, last: datetime | None, now: datetime) -> datetime | None:
        """Up to where the table is complete: what Slurm was asked about, else the last event."""
        settle = timedelta(minutes=self._settings.settle_minutes)
        reached = [last] if last is not None else []
        cursors = [self._site.jobs.cursor(f"slurm:{name}") for name in self._site.settings.slurm.clusters or ["local"]]
        if all(position is not None for position in cursors):
            reached.append(datetime.fromtimestamp(min(position or 0 for position in cursors), UTC) - settle)
        return bucket_floor(min(max(reached), now - settle), self._bucket_s) if reached else None


def _silences(counts: pl.DataFrame, start: datetime, end: datetime, bucket_s: int) -> list[Missing]:
    """The long stretches without a single event."""
    busy = counts.filter(pl.col("place") == WHOLE)["bucket_start"].unique().sort().to_list()
    step = timedelta(seconds=bucket_s)
    begins = [start, *(moment + step for moment in busy)]
    ends = [*busy, end]
    return [
        (begin, until, f"no job was submitted, started or ended in {(until - begin) / timedelta(hours=1):.0f} h")
        for begin, until in zip(begins, ends, strict=True)
        if until - begin >= SILENCE
    ]
