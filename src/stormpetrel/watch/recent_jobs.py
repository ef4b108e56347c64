"""The known jobs of the last days, kept in memory beside the job table: of what has changed only is read again.

Site -> RecentJobs.between(since, now) -> known jobs, as a reading of the whole table would give them. A file of the table never
changes; a look adds some and takes some away. So each file is read once, and its rows go when it does: corrected, late and
forgotten records need no care of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import polars as pl

from stormpetrel.alarms.known_jobs import NEEDED, known_jobs
from stormpetrel.store.site import Site

_MOMENT: Final = pl.coalesce("end_time", "start_time")  # a job that waits is not known yet
_CLEAR_EVERY: Final = timedelta(hours=1)  # rows that are too old are dropped


class RecentJobs:
    """The known jobs of one site that ended after a moment, or run; the moment only moves on."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._files: dict[Path, pl.DataFrame] = {}
        self._cleared: datetime | None = None
        self._has_read = False
        self.just_ended = pl.Series("end_time", [], pl.Datetime("us", "UTC"))  # ends of jobs that the last reading brought

    def has_failure(self, after: datetime, until: datetime) -> bool:
        """Whether a job ended as a failure in (after, until]."""
        fresh = pl.col("end_time").is_between(after, until, closed="right") & pl.col("failed")
        return any(rows.select(fresh.any()).item() for rows in self._files.values() if rows.height)

    def between(self, since: datetime, now: datetime) -> pl.DataFrame:
        """Return the known jobs that ended after `since` or were running then, and had started, or were over, by `now`."""
        kept = _is_between(since, now)
        parts = [rows.filter(kept) for rows in self._files.values()]
        return pl.concat(parts) if parts else read_known_jobs(self._site, since, now)

    def read(self, since: datetime) -> None:
        """Take in what the table has become; jobs that ended before `since` are not asked for any more."""
        files = self._site.jobs.table.files()
        there = set(files)
        gone = [self._files.pop(path) for path in [path for path in self._files if path not in there]]
        if self._cleared is None or since - self._cleared >= _CLEAR_EVERY:
            self._files = {path: rows.filter(since < _MOMENT).rechunk() for path, rows in self._files.items()}
            self._cleared = since
        new = [path for path in files if path not in self._files]
        for path in new:
            self._files[path] = _known(self._site, self._site.jobs.table.scan([path]).filter(since < _MOMENT))
        self.just_ended = _ends_in([self._files[path] for path in new], gone) if self._has_read else self.just_ended.clear()
        self._has_read = True


def _ends_in(new: Sequence[pl.DataFrame], gone: Sequence[pl.DataFrame]) -> pl.Series:
    """The ends of jobs in new files that were not over in the files whose place these took."""
    over = [rows.filter(pl.col("end_time").is_not_null()).select("ref", "end_time") for rows in (*new, *gone)]
    if not new:
        return pl.Series("end_time", [], pl.Datetime("us", "UTC"))
    after, before = pl.concat(over[: len(new)]), pl.concat([over[0].clear(), *over[len(new) :]])
    return after.join(before, on="ref", how="anti")["end_time"]


def read_known_jobs(site: Site, since: datetime, now: datetime) -> pl.DataFrame:
    """Return the known jobs that ended after `since` or were running then, and had started, or were over, by `now`."""
    return _known(site, site.jobs.table.scan().filter(_is_between(since, now)))


def _known(site: Site, rows: pl.LazyFrame) -> pl.DataFrame:
    settings = site.settings.jobs
    return known_jobs(rows.select(NEEDED).collect(), settings.failure_states, settings.dropped_states)


def _is_between(since: datetime, now: datetime) -> pl.Expr:
    return (since < _MOMENT) & (pl.coalesce("start_time", "end_time") <= now)
