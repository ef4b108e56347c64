"""CPU windows as they end: a Prometheus -> the windows of all nodes of one moment after the other, each with its cursor.

Site -> LiveWindows.moments(now) -> LiveMoment. Nothing is committed here: whoever takes a moment commits its cursor with it, and
whoever begins anew (after a kill, or a problem) goes on behind the last that was committed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import polars as pl

from stormpetrel.errors import NoSamplesError
from stormpetrel.ingest.traces import BESIDE_STEPS, TraceReport, cut_inside
from stormpetrel.records.cursor import Cursor
from stormpetrel.records.window_frames import frame_of
from stormpetrel.sources.prometheus import CURSOR, PrometheusTraces
from stormpetrel.sources.prometheus_live import LiveTraces, Moment
from stormpetrel.sources.prometheus_traces import CPU_COUNTERS
from stormpetrel.store.site import Site


@dataclass(frozen=True, slots=True, eq=False)
class LiveMoment:
    """The windows that ended at one moment, as a frame of CPU_WINDOW_SCHEMA, sorted by node and CPU; and what was left out."""

    start: datetime
    end: datetime
    windows: pl.DataFrame
    cursor: Cursor
    report: TraceReport
    late: bool


class LiveWindows:
    """Follows the CPU counters of a site's Prometheus; what was read and not yet cut is lost with it, and read again."""

    def __init__(self, site: Site, source: PrometheusTraces | None = None) -> None:
        self._site, self._given = site, source
        self._live: LiveTraces | None = None

    def moments(self, now: datetime) -> Iterator[LiveMoment]:
        """The windows that have ended and can be judged at `now`, oldest first; one without a single sample is passed over.

        NoSamplesError where moments have passed and nothing was seen in any of them: they are asked for again the next time.
        The connection is given back at the end; what was read stays.
        """
        settings = self._site.settings
        with self._given or PrometheusTraces(settings.prometheus, window_s=settings.traces.window_s) as source:
            live = self._live = self._live or self._from_cursor(source, now)
            live.use(source)
            try:
                yield from self._cut_all(live, source, now)
            except BaseException:  # it may stand in the middle of a piece
                self._live = None
                raise

    def _cut_all(self, live: LiveTraces, source: PrometheusTraces, now: datetime) -> Iterator[LiveMoment]:
        passed, found = 0, False
        for moment in live.moments(now.timestamp()):
            passed += 1
            cut = self._cut(moment, source)
            if cut is not None:
                found = True
                yield cut
        if passed and not found:
            raise NoSamplesError(
                f"{source.name} has no samples of {CPU_COUNTERS} in the last {passed} windows.",
                hint="Check that the nodes are scraped, and prometheus.select; after a start, wait for a whole window.",
            )

    def next_read(self, now: datetime) -> datetime | None:
        """When there is something to be read again; None where nothing was read yet."""
        if self._live is None:
            return None
        return datetime.fromtimestamp(self._live.next_read(now.timestamp()), UTC)

    def _from_cursor(self, source: PrometheusTraces, now: datetime) -> LiveTraces:
        position, window_s = self._site.cpu_windows.cursor(CURSOR), source.window_s
        first = math.ceil(source.since(now) / window_s) if position is None else math.floor(position / 1e6 / window_s)
        return LiveTraces(
            source,
            first * window_s,
            settle_s=self._site.settings.prometheus.settle_s,
            before=source.steps + BESIDE_STEPS,
            beside=BESIDE_STEPS,
            is_first=position is None,
        )

    def _cut(self, moment: Moment, source: PrometheusTraces) -> LiveMoment | None:
        report = TraceReport()
        cluster, frames, seen = self._site.settings.site.cluster or "cluster", [], False
        for trace in moment.traces:
            windows, short, inner = cut_inside(trace, source.steps)
            report.count(windows, short)  # not who they are of: that is told by the table, and takes as long as to cut them
            seen = seen or not np.isnan(inner.rates[..., 0]).all()
            frames += [frame_of(part, cluster=cluster) for part in (windows, *short)]
        report.notes = list(source.notes)
        if not seen:
            return None
        start, end = (datetime.fromtimestamp(at_s, UTC) for at_s in (moment.start_s, moment.end_s))
        together = pl.concat(frames).sort("trace", "window_start", "node", "cpu", maintain_order=True)
        return LiveMoment(start, end, together, moment.cursor, report, moment.late)
