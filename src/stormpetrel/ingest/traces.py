"""Ingest of CPU traces: campaign files or a Prometheus -> windows -> the table of windows, and what came of it.

Only whole windows are kept: one with a gap beyond what is bridged is counted, not filled, and is taken in later if late samples
come within the overlap. Each commit holds windows and, from a server, the cursor that stands for them: killed anywhere and run
again, the table is the same.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from stormpetrel.engine import Progress
from stormpetrel.errors import NoSamplesError, SourceFormatError
from stormpetrel.ingest.report import IngestCounts
from stormpetrel.records.cursor import Cursor
from stormpetrel.records.traces import LIVE, Split, Trace
from stormpetrel.records.window_frames import JOB_START_SCHEMA, NODE_METRIC_SCHEMA, frame_of, job_start_frame
from stormpetrel.records.windows import (
    BRIDGE_STEPS,
    Windows,
    bridge,
    cut_windows,
    job_start_windows,
    short_job_windows,
    start_steps,
    without_short_jobs,
)
from stormpetrel.sources.prometheus.cpu_shares import CPU_COUNTERS, Grid
from stormpetrel.sources.prometheus.cpu_traces import CURSOR, PrometheusTraces, Span, format_moment
from stormpetrel.sources.trace_files import campaign_files, read_trace
from stormpetrel.store.site import Site

COMMIT_WINDOWS: Final = 20_000  # of 1.2 kB each
_MOST_GAPS: Final = 20  # that a report lists
# After a chunk this many steps are read as well, so that a gap at its edge is bridged as one in its middle is.
STEPS_AFTER: Final = BRIDGE_STEPS + 1


@dataclass(frozen=True, slots=True)
class Gap:
    """A time in which nothing was seen of a node."""

    node: str
    start: datetime
    end: datetime


@dataclass(slots=True)
class TraceReport(IngestCounts):
    """The counts of one ingest; read = kept + known + changed + all that was left out."""

    left_out: Counter[str] = field(default_factory=Counter)
    bridged: int = 0
    short_jobs: int = 0  # windows of jobs that are too short for the others, among those read
    job_starts: int = 0  # first windows of jobs that were not there yet, beside those read
    nodes: set[str] = field(default_factory=set)
    threads: set[tuple[str, int]] = field(default_factory=set)
    gaps: list[Gap] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)

    def as_dict(self) -> dict[str, Any]:
        """The report as `--json` prints it."""
        return {
            **self.counted(),
            "left_out": dict(self.left_out),
            "bridged": self.bridged,
            "nodes": len(self.nodes),
            "threads": len(self.threads),
            **self.span(),
            "seconds": round(self.seconds, 3),
            "short_jobs": self.short_jobs,
            "job_starts": self.job_starts,
            "gaps": [{"node": gap.node, "from": gap.start.isoformat(), "to": gap.end.isoformat()} for gap in self.longest_gaps()],
            "seen": {what: count for what, count in self.seen.items() if count},
            "notes": self.notes,
        }

    def longest_gaps(self) -> list[Gap]:
        """The longest gaps, at most twenty, longest first."""
        return sorted(self.gaps, key=lambda gap: gap.start - gap.end)[:_MOST_GAPS]

    def add(self, windows: Windows, trace: Trace, short: Sequence[Windows] = ()) -> None:
        """Count the windows that a trace was cut into, those of short jobs among them, and stretch the span by them."""
        self.count(windows, short)
        self.nodes.update(trace.nodes)
        self.threads.update(zip(trace.nodes, trace.cpus, strict=True))
        self.gaps += gaps_of(trace)
        if len(windows):
            self.stretch(_moment(windows.start_s.min()), _moment(windows.start_s.max() + windows.window_s))

    def count(self, windows: Windows, short: Sequence[Windows]) -> None:
        """Count windows alone."""
        for part in (windows, *short):
            self.read += len(part) + sum(part.left_out.values())
            self.left_out.update(part.left_out)
            self.bridged += part.bridged
        self.short_jobs += sum(map(len, short))


def ingest_campaigns(site: Site, paths: Sequence[Path], *, progress: Progress | None = None) -> TraceReport:
    """Cut the campaigns in some files and folders into windows of `traces.window_s` and take them in."""
    started = time.perf_counter()
    report = TraceReport()
    files = list(dict.fromkeys(path.resolve() for path in campaign_files(paths)))
    file_of: dict[str, Path] = {}
    for number, path in enumerate(files):
        if progress:
            progress(number / len(files), f"reading {path.name}")
        trace = read_trace(path)
        if file_of.setdefault(trace.name, path) != path:
            raise SourceFormatError(
                f"{file_of[trace.name]} and {path} both call their campaign {trace.name!r}.", hint="Leave one of them out."
            )
        steps = max(2, round(site.settings.traces.window_s / trace.step_s))
        short = short_job_windows(trace, steps=steps)
        windows = without_short_jobs(cut_windows(trace, steps=steps), short)
        report.add(windows, trace, short)
        for frame in _frames(site, [windows, *short], trace.split):
            _commit(site, frame, report)
        length, count = start_steps(steps, trace.step_s)
        starts = job_start_windows(trace, steps=length, count=count)
        report.job_starts += site.job_starts.append(job_start_frame(starts, cluster=cluster_of(site), split=trace.split))
    report.seconds = time.perf_counter() - started
    site.state.record_ingest(", ".join(str(path) for path in paths)[:500], report.as_dict())
    return report


def ingest_live(
    site: Site, *, source: PrometheusTraces | None = None, progress: Progress | None = None, remember: bool = True
) -> TraceReport:
    """Read on from where the last run stopped, up to what has settled; a server that fails leaves what was committed."""
    started = time.perf_counter()
    report = TraceReport()
    with source or PrometheusTraces(site.settings.prometheus, window_s=site.settings.traces.window_s) as reading:
        spans = list(reading.spans(site.cpu_windows.cursor(CURSOR), site.now()))
        has_new = False
        for number, span in enumerate(spans):
            if progress:
                progress(number / len(spans), f"reading {span}")
            reading.resume_at(site.cpu_windows.cursor(CURSOR), span)
            has_new = _take_span(site, reading, span, report) or has_new
        if spans and not has_new:
            raise NoSamplesError(
                f"{reading.name} has no samples of {CPU_COUNTERS} from {format_moment(spans[0].start_s)} to {spans[-1].until}.",
                hint="Check that the nodes are scraped, and prometheus.select; after a start, wait for a whole window.",
            )
    report.notes, report.seen = list(reading.notes), Counter(reading.seen)
    report.seconds = time.perf_counter() - started
    if remember and spans:
        site.state.record_ingest(reading.name, report.as_dict())
    return report


def _take_span(site: Site, reading: PrometheusTraces, span: Span, report: TraceReport) -> bool:
    """One chunk of time: a commit for each few nodes, the last of them with the cursor; whether there was anything.

    A chunk without a single sample does not move the cursor: what a server gets late, after an outage, is still found.
    """
    steps = round((span.end_s - span.start_s) / reading.step_s)
    before = steps_before(reading)
    wide = Grid(span.start_s - before * reading.step_s, reading.step_s, before + steps + STEPS_AFTER)
    waiting: pl.DataFrame | None = None
    anything = False
    for trace in reading.traces(wide):
        windows, short, inner = cut_inside(trace, reading.steps, before)
        of_jobs = starts_inside(site, trace, reading, before, trace.steps - STEPS_AFTER)
        report.job_starts += site.job_starts.append(of_jobs)
        report.add(windows, inner, short)
        anything = anything or not np.isnan(inner.rates).all()
        for frame in _frames(site, [windows, *short], None):
            if waiting is not None:
                _commit(site, waiting, report)
            waiting = frame
    if anything:
        windows_in = range(round((span.end_s - span.start_s) / reading.window_s))
        starts = [span.start_s + number * reading.window_s for number in windows_in]
        site.node_metrics.append(pl.concat([node_metrics(site, reading, start_s) for start_s in starts]))
    if waiting is not None:
        _commit(site, waiting, report, cursor=span.cursor if anything else None)
    return anything


def node_metrics(site: Site, reading: PrometheusTraces, start_s: float) -> pl.DataFrame:
    """The other metrics of the nodes in the window that begins at `start_s`, as a frame of NODE_METRIC_SCHEMA."""
    shares = reading.node_metrics(start_s, start_s + reading.window_s)
    key = {"cluster": cluster_of(site), "trace": LIVE, "window_s": reading.window_s}
    rows = [{**key, "node": node, "window_start": _moment(start_s), **of_node} for node, of_node in sorted(shares.items())]
    return pl.DataFrame(rows, schema=NODE_METRIC_SCHEMA)


def steps_before(reading: PrometheusTraces) -> int:
    """The steps that are read before a chunk.

    A window: a job that ends in the first one may have begun in it; or all that its first windows cover, where that is more.
    """
    length, count = start_steps(reading.steps, reading.step_s)
    return max(reading.steps, length * count) + STEPS_AFTER


def cluster_of(site: Site) -> str:
    """The name of the cluster that windows of this site bear."""
    return site.settings.site.cluster or "cluster"


def starts_inside(site: Site, trace: Trace, reading: PrometheusTraces, origin: int, until: int) -> pl.DataFrame:
    """The first windows of jobs that end behind the step `origin` of a trace and at `until` at the latest."""
    length, count = start_steps(reading.steps, reading.step_s)
    windows = job_start_windows(trace, steps=length, count=count, origin=origin, until=until)
    return job_start_frame(windows, cluster=cluster_of(site)) if len(windows) else pl.DataFrame(schema=JOB_START_SCHEMA)


def cut_inside(trace: Trace, steps: int, before: int) -> tuple[Windows, list[Windows], Trace]:
    """The windows of a chunk, those of its short jobs, and the chunk, without the steps that were read next to it."""
    filled, was_missing = bridge(trace.rates, BRIDGE_STEPS)
    inside = slice(before, trace.steps - STEPS_AFTER)
    inner = replace(trace, time_s=trace.time_s[inside], rates=trace.rates[inside], job=trace.job[inside])
    windows = cut_windows(replace(inner, rates=filled[inside]), steps=steps, bridge_steps=0)
    pieces = (inner.steps // steps, steps, trace.threads)
    whole = ~np.isnan(filled[inside][..., 0]).reshape(pieces).any(axis=1)
    bridged = was_missing[inside].reshape(pieces).any(axis=1) & whole
    short = short_job_windows(trace, steps=steps, origin=inside.start, until=inside.stop)
    return without_short_jobs(replace(windows, bridged=int(bridged.sum())), short), short, inner


def _frames(site: Site, parts: Sequence[Windows], split: Split | None) -> Iterator[pl.DataFrame]:
    """Windows as frames of the size of a commit; at least one."""
    whole = pl.concat([frame_of(part, cluster=cluster_of(site), split=split) for part in parts])
    for begin in range(0, max(1, whole.height), COMMIT_WINDOWS):
        yield whole.slice(begin, COMMIT_WINDOWS)


def _commit(site: Site, frame: pl.DataFrame, report: TraceReport, *, cursor: Cursor | None = None) -> None:
    done = site.cpu_windows.commit(frame, cursor=cursor)
    report.kept += done.kept
    report.known += done.known
    report.changed += done.changed


def gaps_of(trace: Trace) -> list[Gap]:
    """The times in which no thread of a node was seen."""
    unseen = np.isnan(trace.rates[..., 0])  # (steps, threads)
    names = np.array(trace.nodes)
    nodes = []
    for node in dict.fromkeys(trace.nodes):
        silent = np.atleast_1d(unseen[:, names == node].all(axis=1))
        for first, end in _runs(silent):
            begin_s = float(trace.time_s[first]) - trace.step_s
            nodes.append(Gap(node, _moment(begin_s), _moment(begin_s + (end - first) * trace.step_s)))
    return nodes


def _runs(flags: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Where stretches of true begin and end."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], flags.astype(np.int8), [0]])))
    return [(int(first), int(end)) for first, end in edges.reshape(-1, 2)]


def _moment(unix_s: float) -> datetime:
    return datetime.fromtimestamp(float(unix_s), UTC)
