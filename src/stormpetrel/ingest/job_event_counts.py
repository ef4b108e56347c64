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
from stormpetrel.records.events import WHOLE, EventKind, Missing, bucket_ceil, bucket_floor, count_events, covered, set_aside
from stormpetrel.records.job_events import job_events
from stormpetrel.sources.contract import CountedSpan
from stormpetrel.store.site import Site

PREFIX: Final = "jobs:"
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
        """One span: from the first job, or from `events.overlap_hours` before the cursor, to what is over and settled."""
        since = None if self._whole else self._again_from(cursor(self.source))
        if since is not None and self._has_other_jobs(since):
            since = None
        frame, aside = set_aside(self._events(since), now=now)
        start, end = self._start(since, frame), self._end(frame, now)
        if start is None or end is None or end <= start:
            return
        inside = frame.filter(pl.col("time") >= start, pl.col("time") < end)
        counts = count_events(inside, source=self.source, bucket_s=self._bucket_s, most_places=self._settings.most_places)
        silences = _silences(counts, start, end, self._bucket_s)
        marks = covered(self.source, start, end, self._bucket_s, counts)
        for begin, until, _ in silences:
            marks = marks.filter(~((pl.col("bucket_start") >= begin) & (pl.col("bucket_start") < until)))
        position = Cursor(self.source, int(end.timestamp() * 1e6))
        yield CountedSpan(start, end, pl.concat([counts, marks]), position, quarantined=aside, missing=silences, done=1.0)

    def _events(self, since: datetime | None) -> pl.DataFrame:
        jobs = self._site.jobs.read_jobs()
        if since is not None:
            jobs = jobs.filter(pl.any_horizontal(pl.col(name) >= since for name in _TIMES))
        return job_events(jobs.select(_READ).collect(), fast_failure_s=self._settings.fast_failure_s)

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

    def _start(self, since: datetime | None, events: pl.DataFrame) -> datetime | None:
        """The first bucket to tell of; the one that the first job came in was not seen from its beginning."""
        marks = self._site.event_counts.coverage(bucket_s=self._bucket_s, source=self.source).start_s
        known = datetime.fromtimestamp(int(marks[0]), UTC) if marks.size else None
        if since is not None and known is not None:
            return max(since, known)
        first = events["time"].min()
        if not isinstance(first, datetime):
            return None
        start = bucket_ceil(first, self._bucket_s)
        return start + _TORN if known is not None and known < start else start

    def _end(self, events: pl.DataFrame, now: datetime) -> datetime | None:
        """Up to where the table is complete: what Slurm was asked about, else the last event."""
        settle = timedelta(minutes=self._settings.settle_minutes)
        last = events["time"].max()
        reached = [last] if isinstance(last, datetime) else []
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
