"""A copy of what a live watch reads, in a folder of its own, with a watch of its own: with faults in it, or without.

Site -> StreamCopy.step(now) -> findings: what is new in the site's tables is copied as it was known at `now`, faults are put into
it, and the watchers and rules of the live loop judge the copy. The site's tables, incidents and messages are only read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import polars as pl

from stormpetrel.alarms.budget import HISTORY
from stormpetrel.alarms.job_rules import LOOK_BACK
from stormpetrel.errors import StormpetrelError
from stormpetrel.ingest.events import counts_jobs, ingest_events
from stormpetrel.ingest.job_event_counts import PREFIX, JobTableEvents
from stormpetrel.lifecycle.trace_learning import in_order
from stormpetrel.lifecycle.trace_models import TraceModel, load_trace_model, seen_by
from stormpetrel.lifecycle.window_scoring import score_frame
from stormpetrel.records.event_series import HOUR_S
from stormpetrel.records.findings import Finding
from stormpetrel.records.incidents import Incident
from stormpetrel.records.jobs import KEY
from stormpetrel.records.states import JobState
from stormpetrel.records.traces import LIVE
from stormpetrel.rehearse.site.event_faults import EventFaults
from stormpetrel.rehearse.site.injection import Injection
from stormpetrel.rehearse.site.job_faults import put_into_jobs
from stormpetrel.rehearse.site.site_copy import create_copy, jobs_between
from stormpetrel.rehearse.site.trace_faults import put_into_windows
from stormpetrel.simulate.grid.outages import AFTERMATH_HOURS
from stormpetrel.store.site import Site
from stormpetrel.watch.event_findings import EventFindings, GridWatch
from stormpetrel.watch.incident_keeper import IncidentKeeper
from stormpetrel.watch.job_findings import JobFindings
from stormpetrel.watch.page_budget import DailyBudgets
from stormpetrel.watch.past.traces import TracePast

_AGAIN: Final = timedelta(hours=1)  # records of the last hour are read again at each step
_STATES: Final = [*KEY, "state", "start_time", "end_time"]
_COMPACT_EVERY: Final = 100  # steps
_WEEK: Final = timedelta(days=7)


class StreamCopy:
    """The copy of one site's stream; `faults` may grow from step to step."""

    def __init__(self, site: Site, folder: Path, now: datetime) -> None:
        self._site, self.copy = site, create_copy(site, folder)
        self.faults: list[Injection] = []
        self._steps = 0
        past = as_known(jobs_between(site, now - HISTORY - LOOK_BACK, now), now)
        self.copy.jobs.table.append(past)
        self._written = past.select(_STATES)
        self._copied_to = now
        self._keeper = IncidentKeeper(self.copy, DailyBudgets(self.copy))
        self._jobs = JobFindings(self.copy, now)
        self._grid = _CopiedGrid(site, self)
        self._events = EventFindings(self.copy, self._grid)
        self._model = _trace_model(site)
        self._traces = TracePast(self.copy, now, model=self._model)

    def step(self, now: datetime) -> list[Finding]:
        """Copy what has become known, judge it, keep what it leads to in the copy; return the findings."""
        self._copy_jobs(now)
        self._copy_windows(now)
        findings: list[Finding] = []
        watchers: tuple[JobFindings | EventFindings, ...] = (self._jobs, self._events)
        for watcher in watchers:
            several = watcher.step(now)
            self._keeper.take(watcher.name, several, watcher.state, now)
            findings += several
        odd = self._traces.step(now)
        self._keeper.take(self._traces.name, odd, "", now)
        self._copied_to = now
        self._steps += 1
        if self._steps % _COMPACT_EVERY == 0:
            self.copy.jobs.table.compact()
        return [*findings, *odd]

    def incidents(self, since: datetime) -> list[Incident]:
        """Return the incidents of the copy that were not over by `since`."""
        return self.copy.incidents.list(resolved_after=since)

    def close(self) -> None:
        """Give back what the copy holds open."""
        self.copy.close()

    def recent_jobs(self, now: datetime) -> pl.DataFrame:
        """Return the records of the last week as they are known to the copy."""
        return jobs_between(self.copy, now - _WEEK, now)

    def _copy_jobs(self, now: datetime) -> None:
        active = [fault for fault in self.faults if "jobs" in fault.families or fault.kind == "scheduler_stalled"]
        reach = min([self._copied_to - _AGAIN, *(fault.since - _AGAIN for fault in active)])
        rows = jobs_between(self._site, reach, now)
        for place, fault in enumerate(self.faults):
            if fault in active:
                rows, self.faults[place] = put_into_jobs(rows, fault)
        known = as_known(rows, now)
        changed = known.join(self._written, on=_STATES, how="anti", nulls_equal=True)
        if not changed.height:
            return
        self.copy.jobs.table.upsert(changed, on=KEY, nullable=("array_task",))
        kept = self._written.join(changed.select(KEY), on=list(KEY), how="anti", nulls_equal=True)
        recent = pl.col("end_time").is_null() | (pl.col("end_time") > now - LOOK_BACK)
        self._written = pl.concat([kept.filter(recent), changed.select(_STATES)])

    def _copy_windows(self, now: datetime) -> None:
        if self._model is None:
            return
        length = timedelta(seconds=self._site.settings.traces.window_s)
        rows = self._site.cpu_windows.read(since=self._copied_to - length, until=now - length).filter(pl.col("trace") == LIVE)
        windows = in_order(rows.filter(seen_by(self._model)).collect())
        if not windows.height:
            return
        for place, fault in enumerate(self.faults):
            inside = pl.col("node").is_in(fault.nodes) & pl.col("window_start").is_between(
                fault.since, fault.until, closed="left"
            )
            if "traces" in fault.families and (hit := windows.filter(inside)).height:
                windows = in_order(pl.concat([windows.filter(~inside), put_into_windows(hit, fault)]))
                self.faults[place] = _having_hit(fault, hit.height)
        self.copy.cpu_windows.commit(windows)
        self.copy.trace_scores.append(score_frame(self._model, windows))


class _CopiedGrid(GridWatch):
    """The event counts of a copy: those of the site's own sources with faults in them, and those of the copied job records."""

    def __init__(self, site: Site, stream: StreamCopy) -> None:
        super().__init__(stream.copy, models=site)
        self._original, self._stream = site, stream
        self._counts_jobs = counts_jobs(site)
        self._bucket_s = site.settings.events.bucket_minutes * 60
        self.is_active = self._counts_jobs or bool(self._own_sources())

    def _own_sources(self) -> list[str]:
        return [source for source in self._original.event_counts.sources() if not source.startswith(PREFIX)]

    def _read_sources(self) -> list[str]:
        if self._counts_jobs:
            ingest_events(self._site, JobTableEvents(self._site))
        for source in self._own_sources():
            self._copy_counts(source)
        return []

    def _copy_counts(self, source: str) -> None:
        """Copy the buckets that are over and were not copied, with the outages of their time."""
        end = self.settled_end(self._site.now())
        seen = self._site.event_counts.seen().filter(pl.col("source") == source)["last"]
        first = None if not seen.len() else seen[0] + timedelta(seconds=self._bucket_s)
        rows = self._original.event_counts.table.between("bucket_start", first, end).filter(pl.col("source") == source).collect()
        if not rows.height:
            return
        for place, fault in enumerate(self._stream.faults):
            if "events" in fault.families and not fault.nodes and self._bucket_s == HOUR_S:
                rows, self._stream.faults[place] = self._with_outage(rows, source, fault, end)
        span = rows["bucket_start"].min(), rows["bucket_start"].max() + timedelta(seconds=self._bucket_s)  # type: ignore[operator]
        self._site.event_counts.replace(rows, source=source, start=span[0], end=span[1], bucket_s=self._bucket_s)  # type: ignore[arg-type]

    def _with_outage(self, rows: pl.DataFrame, source: str, fault: Injection, end: datetime) -> tuple[pl.DataFrame, Injection]:
        """The rows with an outage in them; hours that are still to come are taken to be those of a week ago."""
        last = fault.until + AFTERMATH_HOURS * timedelta(hours=1)
        inside = pl.col("bucket_start").is_between(fault.since, last, closed="left")
        if not rows.filter(inside).height:
            return rows, fault
        of_source = pl.col("source") == source
        known = self._original.event_counts.table.between("bucket_start", fault.since, min(end, last)).filter(of_source).collect()
        past = self._original.event_counts.table.between("bucket_start", max(end, fault.since) - _WEEK, last - _WEEK)
        stand_in = past.filter(of_source).collect().with_columns(pl.col("bucket_start") + _WEEK)
        faults = EventFaults(pl.concat([known, stand_in]), self._bucket_s)
        done = faults.put_again(fault)
        if done is None:
            return rows, fault
        changed = faults.counts.filter(pl.col("bucket_start").is_in(rows.filter(inside)["bucket_start"].unique().implode()))
        return pl.concat([rows.filter(~inside), changed]), done


def as_known(jobs: pl.DataFrame, now: datetime) -> pl.DataFrame:
    """Return stored job records as they were known at a moment: later ones are not there, later ends and starts are open."""
    rows = jobs.filter(pl.col("submit_time") <= now)
    waits = (pl.col("start_time") > now).fill_null(False)
    runs = (pl.col("end_time") > now).fill_null(False) & ~waits
    return rows.with_columns(
        state=pl.when(waits)
        .then(pl.lit(JobState.PENDING.value))
        .when(runs)
        .then(pl.lit(JobState.RUNNING.value))
        .otherwise("state"),
        start_time=pl.when(~waits).then("start_time"),
        end_time=pl.when(~(waits | runs)).then("end_time"),
        elapsed_s=pl.when(~(waits | runs)).then("elapsed_s"),
    )


def has_events(site: Site) -> bool:
    """Whether a site has events of its own, beside those counted out of its job records."""
    return any(not source.startswith(PREFIX) for source in site.event_counts.sources())


def has_live_windows(site: Site) -> bool:
    """Whether a site keeps CPU windows of a live stream."""
    return bool(site.cpu_windows.read(traces=[LIVE]).select("node").head(1).collect().height)


def recent_nodes(site: Site, since: datetime) -> Sequence[str]:
    """Return the nodes that have live windows since a moment."""
    rows = site.cpu_windows.read(since=since, traces=[LIVE]).select(pl.col("node").unique().sort())
    return [str(name) for name in rows.collect()["node"]]


def _having_hit(fault: Injection, number: int) -> Injection:
    return replace(fault, hit=fault.hit + number)


def _trace_model(site: Site) -> TraceModel | None:
    if not has_live_windows(site):
        return None
    try:
        return load_trace_model(site, threads=1)
    except StormpetrelError:
        return None
