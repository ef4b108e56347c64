"""CPU windows as they end: a Prometheus -> the windows of all nodes of one moment after the other, each with its cursor.

Site -> LiveWindows.moments(now) -> LiveMoment. Nothing is committed here: whoever takes a moment commits its cursor with it, and
whoever begins anew (after a kill, or a problem) goes on behind the last that was committed.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl

from stormpetrel.errors import NoSamplesError
from stormpetrel.ingest.traces import STEPS_AFTER, TraceReport, cluster_of, cut_inside, node_metrics, starts_inside, steps_before
from stormpetrel.records.cursor import Cursor
from stormpetrel.records.traces import NodeSteps
from stormpetrel.records.window_frames import CPU_WINDOW_SCHEMA, JOB_START_SCHEMA, NODE_METRIC_SCHEMA, WINDOW_KEY, frame_of
from stormpetrel.records.windows import START_S
from stormpetrel.sources.prometheus.cpu_shares import CPU_COUNTERS
from stormpetrel.sources.prometheus.cpu_traces import CURSOR, PrometheusTraces
from stormpetrel.sources.prometheus.live import EveryNode, LiveTraces, Moment, NodeChoice
from stormpetrel.store.site import Site


@dataclass(frozen=True, slots=True, eq=False)
class LiveMoment:
    """The windows that ended at one moment, as a frame of CPU_WINDOW_SCHEMA, sorted by node and CPU; and what was left out."""

    start: datetime
    end: datetime
    windows: pl.DataFrame
    cursor: Cursor | None  # None where it was read again: the cursor stays
    report: TraceReport
    metrics: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=NODE_METRIC_SCHEMA))  # of the nodes
    nodes: int = 0  # of which the server had samples
    left_out: int = 0  # of them that were not read: there was no time for all
    starts: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=JOB_START_SCHEMA))  # first windows of jobs


class LiveWindows:
    """Follows the CPU counters of a site's Prometheus; what was read and not yet cut is lost with it, and read again.

    `choice` says which nodes are read in which window, where there is no time for all of them.
    """

    def __init__(self, site: Site, source: PrometheusTraces | None = None, *, choice: NodeChoice | None = None) -> None:
        self._site, self._chosen_source, self._choice = site, source, choice or EveryNode()
        self._live: LiveTraces | None = None
        self._started = pl.DataFrame(schema={name: JOB_START_SCHEMA[name] for name in WINDOW_KEY})  # job starts returned

    def moments(self, now: datetime) -> Iterator[LiveMoment]:
        """The windows that have ended and can be judged at `now`, oldest first; one without a single sample is passed over.

        NoSamplesError where moments have passed and nothing was seen in any of them: they are asked for again the next time.
        The connection is given back at the end; what was read stays.
        """
        with self._connection() as source:
            live = self._live = self._live or self._from_cursor(source, now)
            live.use(source)
            try:
                yield from self._cut_all(live, source, now)
            except BaseException:  # it may stand in the middle of a piece
                self._live = None
                raise

    def _connection(self) -> PrometheusTraces:
        settings = self._site.settings
        return self._chosen_source or PrometheusTraces(settings.prometheus, window_s=settings.traces.window_s)

    def _cut_all(self, live: LiveTraces, source: PrometheusTraces, now: datetime) -> Iterator[LiveMoment]:
        passed, has_windows = 0, False
        for moment in live.moments(now.timestamp()):
            passed += 1
            cut = self._cut(moment, source)
            if cut is not None:
                has_windows = True
                yield replace(cut, metrics=node_metrics(self._site, source, moment.start_s))
        if passed and not has_windows:
            raise NoSamplesError(
                f"{source.name} has no samples of {CPU_COUNTERS} in the last {passed} windows.",
                hint="Check that the nodes are scraped, and prometheus.select; after a start, wait for a whole window.",
            )

    def again(self, start: datetime, nodes: Collection[str]) -> LiveMoment | None:
        """The windows of some nodes that began at `start` and are over, read once more; None where there is no sample."""
        with self._connection() as source:
            past = self._traces(source, start.timestamp(), only=nodes)
            cut = self._cut(past.settled(), source)
        return None if cut is None else replace(cut, cursor=None)

    def nodes_in(self, start: datetime, end: datetime) -> list[str]:
        """The nodes of which the server has counters in a span of time."""
        with self._connection() as source:
            return list(source.nodes(start.timestamp(), end.timestamp()))

    def new_steps(self) -> Iterator[NodeSteps]:
        """What has become known of each node since this was asked last, step by step: it does not wait for a window."""
        return iter(()) if self._live is None else self._live.new_steps()

    def job_starts(self) -> pl.DataFrame:
        """The first windows of jobs that have ended within the window that fills and were not returned before.

        A frame of JOB_START_SCHEMA. They do not wait for the window: a job is judged two minutes after its start.
        """
        if self._live is None:
            return pl.DataFrame(schema=JOB_START_SCHEMA)
        source, before = self._live.reading, steps_before(self._live.reading)
        frames = [starts_inside(self._site, trace, source, before, trace.steps) for trace in self._live.so_far()]
        return self._new_starts(pl.concat([pl.DataFrame(schema=JOB_START_SCHEMA), *frames]))

    def _new_starts(self, starts: pl.DataFrame) -> pl.DataFrame:
        """Those that were not returned before; what is older than two windows is forgotten."""
        new = starts.join(self._started, on=list(WINDOW_KEY), how="anti")
        if new.height:
            length = timedelta(seconds=2 * max(START_S, self._site.settings.traces.window_s))
            known = pl.concat([self._started, new.select(WINDOW_KEY)])
            self._started = known.filter(pl.col("window_start") > pl.col("window_start").max() - length)
        return new

    @property
    def filling_end(self) -> datetime | None:
        """The end of the window that fills; None where nothing was read yet."""
        return datetime.fromtimestamp(self._live.end_s, UTC) if self._live is not None else None

    def next_read(self, now: datetime) -> datetime | None:
        """When there is something to be read again; None where nothing was read yet."""
        if self._live is None:
            return None
        return datetime.fromtimestamp(self._live.next_read(now.timestamp()), UTC)

    def _from_cursor(self, source: PrometheusTraces, now: datetime) -> LiveTraces:
        position, window_s = self._site.cpu_windows.cursor(CURSOR), source.window_s
        if position is None:
            return self._traces(source, math.ceil(source.since(now) / window_s) * window_s, is_first=True, choice=self._choice)
        first = self._choice.after(math.floor(position / 1e6 / window_s) - 1)
        return self._traces(source, first * window_s, choice=self._choice)

    def _traces(
        self,
        source: PrometheusTraces,
        start_s: float,
        *,
        is_first: bool = False,
        only: Collection[str] | None = None,
        choice: NodeChoice | None = None,
    ) -> LiveTraces:
        return LiveTraces(
            source,
            start_s,
            settle_s=self._site.settings.prometheus.settle_s,
            before=steps_before(source),
            after=STEPS_AFTER,
            is_first=is_first,
            only=only,
            choice=choice,
        )

    def _cut(self, moment: Moment, source: PrometheusTraces) -> LiveMoment | None:
        report = TraceReport()
        cluster, frames, seen, before = cluster_of(self._site), list[pl.DataFrame](), False, steps_before(source)
        starts = [pl.DataFrame(schema=JOB_START_SCHEMA)]
        for trace in moment.traces:
            windows, short, inner = cut_inside(trace, source.steps, before)
            starts.append(starts_inside(self._site, trace, source, before, trace.steps - STEPS_AFTER))
            report.count(windows, short)  # not who they are of: that is told by the table, and takes as long as to cut them
            seen = seen or not np.isnan(inner.rates[..., 0]).all()
            frames += [frame_of(part, cluster=cluster) for part in (windows, *short)]
        report.notes = list(source.notes)
        if not seen and not (moment.left_out and not moment.traces):  # nobody's turn: that is no silence
            return None
        start, end = (datetime.fromtimestamp(at_s, UTC) for at_s in (moment.start_s, moment.end_s))
        together = pl.concat([pl.DataFrame(schema=CPU_WINDOW_SCHEMA), *frames])
        ordered = together.sort("trace", "window_start", "node", "cpu", maintain_order=True)
        first = self._new_starts(pl.concat(starts))
        return LiveMoment(start, end, ordered, moment.cursor, report, nodes=moment.nodes, left_out=moment.left_out, starts=first)
