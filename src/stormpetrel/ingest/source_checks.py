"""Checks of the servers that a site reads: Slurm as the live reader asks it, Prometheus, and how far they have been read."""

from __future__ import annotations

import getpass
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from stormpetrel.config import SlurmSection
from stormpetrel.errors import SourceError, SourceUnavailableError
from stormpetrel.records.checks import Finding, Level
from stormpetrel.records.trace_coverage import MORE_TIME
from stormpetrel.sources.contract import JobSource
from stormpetrel.sources.prometheus.cpu_shares import CPU_COUNTERS, NEEDED_MODES
from stormpetrel.sources.prometheus.cpu_traces import PrometheusTraces
from stormpetrel.sources.slurm.live import LiveSlurm, find_squeue, run_sacct
from stormpetrel.store.site import Site
from stormpetrel.store.source_health import format_span
from stormpetrel.store.watch_status import read_watch

_PATIENCE_S: Final = 5.0
_SLURM_PATIENCE_S: Final = 15.0  # an hour of accounting, from a database that is busy
_RECENT: Final = timedelta(hours=1)
_WEEK: Final = timedelta(days=7)


@dataclass
class _Seen:
    """What a scheduler has shown."""

    records: int = 0
    users: set[str] = field(default_factory=set)

    def take(self, source: JobSource) -> None:
        for chunk in source.chunks():
            self.records += chunk.read
            if chunk.records.height:
                jobs, _ = chunk.translate(chunk.records, chunk.steps)
                self.users |= set(jobs["user"].drop_nulls().unique())


def check_slurm(site: Site) -> Iterator[Finding]:
    """Whether Slurm answers what the live reader asks: the last hour of accounting, the queue; and shows the jobs of others."""
    slurm = site.settings.slurm
    name = "slurmrestd" if slurm.rest_url else "sacct"
    if not slurm.rest_url and not shutil.which(slurm.sacct):
        what = f"'{slurm.sacct}' is not on this machine: --live will not work."
        yield Finding("warning", name, what, "Set slurm.sacct or slurm.rest_url.")
        return
    patient = slurm.model_copy(update={"timeout_s": min(slurm.timeout_s, _SLURM_PATIENCE_S), "pause_s": 0.0})
    try:
        live = LiveSlurm(patient, site.settings.site)
        seen, now = _Seen(), site.now()
        since = int((now - _RECENT).timestamp())
        for source in live.sources(lambda _cluster: since, now=now, overlap_hours=0.0):
            seen.take(source)
    except SourceError as error:
        yield Finding("problem", name, error.what, error.hint)
        return
    yield _accounting(site, patient, name, seen)
    yield from _queue(patient)


def _accounting(site: Site, slurm: SlurmSection, name: str, seen: _Seen) -> Finding:
    where = slurm.rest_url or str(shutil.which(slurm.sacct))
    message = f"{where} answers: {seen.records:,} records of {_users(len(seen.users))} in the last hour"
    if slurm.rest_url:
        return Finding("ok", name, message)
    try:
        users = _users_of_week(slurm, site.now()) | seen.users
    except SourceUnavailableError:  # a week may be too much to ask for in a few seconds
        return Finding("ok", name, message)
    if users == {getpass.getuser()} and os.geteuid() != 0:
        return Finding(
            "problem",
            name,
            f"sacct shows only the jobs of {getpass.getuser()}: PrivateData hides the others.",
            "Ask for the right to see all jobs: sacctmgr modify user NAME set AdminLevel=Operator.",
        )
    return Finding("ok", name, f"{message}, of {_users(len(users))} in the last week")


def _users_of_week(slurm: SlurmSection, now: datetime) -> set[str]:
    arguments = ["--allusers", "--noheader", "--parsable2", "--allocations", "--format=User"]
    times = [f"--starttime={now - _WEEK:%Y-%m-%dT%H:%M:%S}", f"--endtime={now:%Y-%m-%dT%H:%M:%S}"]
    return set(_lines([str(shutil.which(slurm.sacct)), *arguments, *times], slurm.timeout_s))


def _queue(slurm: SlurmSection) -> Iterator[Finding]:
    """Whether the controller tells what waits, where it is asked: accounting does not show a job that is held.

    Not as JSON: with a controller that is down, squeue --json of Slurm 22.05 lists no jobs and exits with 0.
    """
    squeue = find_squeue(slurm)
    if squeue is None:
        if not slurm.rest_url:
            missing = f"'{slurm.squeue}' is not on this machine" if slurm.squeue else "there is none next to sacct"
            what = f"{missing}: a job that is cancelled while it is held stays in the table as waiting"
            yield Finding("warning" if slurm.squeue else "ok", "squeue", what, "Check slurm.squeue." if slurm.squeue else "")
        return
    try:
        jobs = _lines([squeue, "--all", "--array", "--noheader", "--format=%i"], slurm.timeout_s)
    except SourceError as error:
        yield Finding("problem", "squeue", error.what, error.hint)
    else:
        yield Finding("ok", "squeue", f"{squeue} answers: {'1 job' if len(jobs) == 1 else f'{len(jobs):,} jobs'} in the queue")


def _lines(command: list[str], timeout_s: float) -> list[str]:
    """What a command of Slurm prints, word by word; SourceUnavailableError where it fails or hangs."""
    with tempfile.TemporaryFile() as out:
        run_sacct(command, out.fileno(), timeout_s)
        out.seek(0)
        return out.read().decode("utf-8", "replace").split()


def _users(count: int) -> str:
    return "1 user" if count == 1 else f"{count} users"


def check_prometheus(site: Site) -> Iterator[Finding]:
    """Whether the server answers, has the counters of each CPU, and gets them as often as the settings say."""
    settings = site.settings.prometheus
    if not settings.url:
        yield Finding("ok", "prometheus", "prometheus.url is not set: no CPU traces")
        return
    patient = settings.model_copy(update={"timeout_s": min(settings.timeout_s, _PATIENCE_S)})
    with PrometheusTraces(patient, window_s=site.settings.traces.window_s) as server:
        now_s = datetime.now(UTC).timestamp()
        intervals, modes = server.scrape_intervals(now_s), server.modes(now_s)
        name = server.name
    if not intervals:
        yield Finding(
            "problem",
            "prometheus",
            f"{name} has had no {CPU_COUNTERS} in the last minutes.",
            "Start stormpetrel exporter (or node_exporter) on the nodes and let Prometheus scrape it; check prometheus.select.",
        )
        return
    missing = [mode for mode in NEEDED_MODES if mode not in modes]
    if missing:
        yield Finding("problem", "prometheus", f"{name} has no CPU mode {' or '.join(missing)}.", "Choose another exporter.")
    yield _scrape_interval(name, intervals, settings.step_s)


def _scrape_interval(name: str, intervals: dict[str, float], step_s: float) -> Finding:
    off = {node: every for node, every in intervals.items() if not 0.8 < every / step_s < 1.25}
    if not off:
        return Finding("ok", "prometheus", f"{name} sees the CPUs of {len(intervals):,} nodes every {step_s:g} s")
    node, every = max(off.items(), key=lambda item: item[1])
    return Finding(
        "warning",
        "prometheus",
        f"{name} sees {node} every {every:.3g} s, and prometheus.step_s is {step_s:g} ({len(off)} of {len(intervals)} nodes).",
        "Set prometheus.step_s to the scrape interval, or scrape as often as it says.",
    )


def check_live_reading(site: Site) -> Iterator[Finding]:
    """How far live sources have been read."""
    for cluster in site.settings.slurm.clusters or ["local"]:
        position = site.jobs.cursor(f"slurm:{cluster}")
        if position is not None:
            age = site.now() - datetime.fromtimestamp(position, UTC)
            level: Level = "warning" if age > timedelta(days=1) else "ok"
            hint = "Run: stormpetrel ingest jobs --live, by a timer." if level == "warning" else ""
            yield Finding(level, "live", f"read up to {age.total_seconds() / 3600:.1f} h ago ({cluster})", hint)
    position = site.cpu_windows.cursor("prometheus")
    if position is not None:
        age = site.now() - datetime.fromtimestamp(position / 1e6, UTC)
        late = age > timedelta(hours=1)
        hint = "Run: stormpetrel ingest traces --live, by a timer." if late else ""
        what = f"CPU traces were read up to {age.total_seconds() / 60:.0f} min ago"
        yield Finding("warning" if late else "ok", "live", what, hint)


def check_watch(site: Site) -> Iterator[Finding]:
    """Whether somebody watches, and how the watch's own reads go; a site that nobody has watched yet is not ill."""
    now = datetime.now(UTC)
    watch = read_watch(site.state)
    state = watch.state(now)
    if state in ("stopped", "silent"):
        what = f"the watch was last heard of {format_span(watch.silent_s(now))} ago."
        yield Finding("warning", "watch", what, "Start it: stormpetrel watch")
        return
    problems = {trouble.source: trouble for trouble in watch.troubles(now)}
    for source in watch.sources:
        trouble = problems.get(source.name)
        if trouble is None:
            yield Finding("ok", "watch", f"{source.name}: {source.last_read_text(now)[:-1]} ({source.records:,} records)")
        else:
            hint = MORE_TIME if trouble.kind == "behind" else ""
            yield Finding("warning" if hint else "problem", "watch", f"{source.name}: {trouble.what}", hint)
    own = watch.problem(now)
    if own and own not in {trouble.what for trouble in problems.values()}:
        yield Finding("warning", "watch", own)
