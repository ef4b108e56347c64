"""Prometheus, or a server that speaks like it -> traces of the CPUs of every node, a chunk of time after the other.

node_cpu_seconds_total (ours, or node_exporter's) -> Trace. Each chunk has a cursor that is committed with its windows: stopped
anywhere, the next run goes on where the last committed chunk ended, reading a little again (`overlap_s`) for late samples.

Other metrics of nodes out of Prometheus: memory, pressure, disks, network; each as a share in [0, 1] over one window.

PrometheusServer, matchers, a span of time -> read_node_metrics -> {node: {metric: share}}. One query answers for all nodes and
all metrics. The names are those of node_exporter, which our exporter has, too; where a node shows no pressure of its own, the
highest of its jobs' counts. A metric that a node does not have is not in the answer.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import numpy as np

from stormpetrel.config import PrometheusSection
from stormpetrel.errors import SettingsError, SourceFormatError, SourceUnavailableError
from stormpetrel.records.cursor import Cursor
from stormpetrel.records.trace_coverage import in_shard
from stormpetrel.records.traces import LIVE, Trace, TraceJob
from stormpetrel.sources.prometheus.cpu_shares import (
    CPU_COUNTERS,
    JOB_METRICS,
    LONGEST_GAP_STEPS,
    SAMPLE_TIME,
    Grid,
    best_target,
    missing_modes,
    node_name,
    node_rates,
    sample_interval,
    thread_jobs,
)
from stormpetrel.sources.prometheus.query import PrometheusServer, Series, any_of

if TYPE_CHECKING:
    from stormpetrel.sources.prometheus.matrix import SampleBlock

CURSOR: Final = "prometheus"
_FIRST_RUN_S: Final = 3600.0
_LOOK_BACK_S: Final = 240.0
_MOST_SAMPLES: Final = 800_000  # per query: a node of 128 threads for ten minutes at 1 s
_MARGIN_S: Final = 2.0  # a node's clock may be this far from the server's
_ONE_CPU: Final = 'mode="idle",cpu="0"'
_PORT: Final = "(:[0-9]+)?"
_COMPANIONS: Final = f'__name__=~"{"|".join(JOB_METRICS)}"'
NodeShares = dict[str, dict[str, float]]
_METRIC: Final = "stormpetrel_metric"
_PRESSURE: Final = 'rate({{__name__=~"(node|cgroup)_pressure_{what}_waiting_seconds_total"{and_matchers}}}[{span}])'
_NETWORK: Final = (
    "rate(node_network_{way}_bytes_total{{{matchers}}}[{span}])"
    " / on ({label}, device) group_left max by ({label}, device) (node_network_speed_bytes{{{matchers}}} > 0)"
)
_EXPRESSIONS: Final = {
    "memory_used": "1 - avg_over_time(node_memory_MemAvailable_bytes{{{matchers}}}[{span}])"
    " / avg_over_time(node_memory_MemTotal_bytes{{{matchers}}}[{span}])",
    "memory_pressure": _PRESSURE.replace("{what}", "memory"),
    "io_pressure": _PRESSURE.replace("{what}", "io"),
    "cpu_pressure": _PRESSURE.replace("{what}", "cpu"),
    "disk_busy": "rate(node_disk_io_time_seconds_total{{{matchers}}}[{span}])",
    "network_busy": f"({_NETWORK.replace('{way}', 'receive')}) or ({_NETWORK.replace('{way}', 'transmit')})",
}


@dataclass(frozen=True, slots=True)
class Span:
    """A chunk of whole windows, and the cursor that says it has been read."""

    start_s: float
    end_s: float
    cursor: Cursor

    @property
    def until(self) -> str:
        """Its end, as people write it."""
        return f"{format_moment(self.end_s)} UTC"

    def __str__(self) -> str:
        return f"{format_moment(self.start_s)} to {self.until}"


class PrometheusTraces:
    """The CPU traces that a server holds; `notes` and `seen` say what a person should know about how they were read."""

    def __init__(self, settings: PrometheusSection, *, window_s: float = 100.0, server: PrometheusServer | None = None) -> None:
        self._settings = settings
        self._server = server or PrometheusServer(settings)
        self.step_s = settings.step_s
        self.steps = round(window_s / settings.step_s)
        if self.steps < 2:
            raise SettingsError(
                f"A window of {window_s:g} s holds fewer than two steps of {settings.step_s:g} s.",
                hint="Set traces.window_s and prometheus.step_s.",
            )
        self.window_s = self.steps * settings.step_s
        self.name = self._server.name
        self.notes: list[str] = []
        self.seen: Counter[str] = Counter()
        self._wrong: dict[str, str] = {}  # nodes that could not be used in the last chunk, and why

    def __enter__(self) -> PrometheusTraces:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.__exit__()

    def spans(self, cursor: int | None, now: datetime) -> Iterator[Span]:
        """What has not been read yet, oldest first, in whole windows that lie far enough in the past."""
        settle_s = max(self._settings.settle_s, 2 * self.step_s)  # the sample behind the last edge must be there
        last = math.floor((now.timestamp() - settle_s) / self.window_s)
        if cursor is not None:
            first = math.floor((cursor / 1e6 - self._settings.overlap_s) / self.window_s)
        else:
            first = math.ceil(self.since(now) / self.window_s)
        at_once = max(1, math.floor(self._settings.chunk_minutes * 60 / self.window_s))
        for begin in range(first, last, at_once):
            start_s, end_s = begin * self.window_s, min(begin + at_once, last) * self.window_s
            position = max(round(end_s * 1e6), cursor or 0)  # it never moves back
            yield Span(start_s, end_s, Cursor(CURSOR, position))

    @property
    def resume(self) -> datetime | None:
        """Where the next run would go on if this one failed."""
        return self._server.resume

    @resume.setter
    def resume(self, moment: datetime) -> None:
        self._server.resume = moment

    def resume_at(self, cursor: int | None, span: Span) -> None:
        """Where the next run would go on if this one failed: for the words of an error."""
        self._server.resume = datetime.fromtimestamp(span.start_s if cursor is None else cursor / 1e6, UTC)

    def nodes(self, start_s: float, end_s: float) -> dict[str, dict[str, int]]:
        """The nodes of the shard with samples in a span of time: the values of its label, and how many samples there are."""
        selector = f"{CPU_COUNTERS}{{{self._matchers()}}}"
        counted = f"count_over_time({selector}[{round((end_s - start_s) * 1000)}ms])"
        counts = self._server.instant(f"sum by ({self._settings.node_label}) ({counted})", end_s)
        nodes: dict[str, dict[str, int]] = {}
        for series in counts:
            label = series.labels.get(self._settings.node_label, "")
            name = node_name(label)
            if name is None:
                self._note(f"series without a usable label {self._settings.node_label!r} were left out: {label[:40]!r}")
            else:
                nodes.setdefault(name, {})[label] = int(series.values[0])
        if counts and not nodes:
            raise SourceFormatError(
                f"No series of {CPU_COUNTERS} at {self.name} has the label {self._settings.node_label!r}.",
                hint="Set prometheus.node_label to the label that names the node.",
            )
        return {node: nodes[node] for node in sorted(nodes) if in_shard(node, self._settings.shard)}

    def counters(self, labels: Sequence[str], start_s: float, end_s: float) -> SampleBlock:
        """The CPU counters of the nodes with these labels in a span of time, as they were stored."""
        chosen = f"{self._settings.node_label}=~{any_of(list(labels))}"
        return self._server.block(f"{CPU_COUNTERS}{{{self._matchers(chosen)}}}", start_s, end_s)

    def companion_counters(self, nodes: Sequence[str], start_s: float, end_s: float) -> SampleBlock:
        """What is told next to the counters of nodes: which job has which thread, and the nodes' own clocks."""
        chosen = f"{self._settings.node_label}=~{any_of(list(nodes), ending=_PORT)}"
        return self._server.block(f"{{{self._matchers(_COMPANIONS, chosen)}}}", start_s, end_s)

    def node_metrics(self, start_s: float, end_s: float) -> NodeShares:
        """The other metrics of nodes over a span of time, each as a share; empty, with a note, where the server refuses."""
        try:
            shares = read_node_metrics(self._server, self._matchers(), self._settings.node_label, start_s, end_s)
            return {node: of_node for node, of_node in shares.items() if in_shard(node, self._settings.shard)}
        except (SettingsError, SourceFormatError, SourceUnavailableError) as error:
            self._note(f"memory, pressure, disks and network of nodes were not read: {error.what}")
            return {}

    def node_of(self, labels: Mapping[str, str]) -> str | None:
        """The node that a series is about; None where its label is no name."""
        return node_name(labels.get(self._settings.node_label, ""))

    def leave_out(self, node: str, why: str) -> None:
        """Remember that a node cannot be used, and why."""
        self._wrong[node] = why
        self._note(f"{why}: left out")

    def scrape_intervals(self, now_s: float) -> dict[str, float]:
        """How far apart the samples of each node have been in the last minutes, in seconds, judged by one of its CPUs."""
        by_node = self._by_node(
            self._server.samples(f"{CPU_COUNTERS}{{{self._matchers(_ONE_CPU)}}}", now_s - _LOOK_BACK_S, now_s)
        )
        return {node: sample_interval(series) or _LOOK_BACK_S / 2 for node, series in by_node.items()}

    def modes(self, now_s: float) -> list[str]:
        """The modes of a CPU that the server has counters of."""
        modes = self._server.instant(f"count by (mode) ({CPU_COUNTERS}{{{self._matchers()}}})", now_s)
        return sorted(mode.labels.get("mode", "")[:40] for mode in modes)

    def trace(self, start_s: float, end_s: float, *, name: str = LIVE) -> Trace:
        """Everything between two moments as one trace; SourceUnavailableError where there is nothing."""
        steps = max(1, round((end_s - start_s) / self.step_s))
        parts = list(self.traces(Grid(start_s, self.step_s, steps), name=name))
        if not parts:
            raise SourceUnavailableError(
                f"{self.name} has no samples of {CPU_COUNTERS} from {format_moment(start_s)} to {format_moment(end_s)} UTC.",
                hint="Check that the nodes are scraped, and prometheus.select.",
            )
        return _side_by_side(parts).checked()

    def traces(self, grid: Grid, *, name: str = LIVE) -> Iterator[Trace]:
        """The same as a trace for each few nodes; nothing where the server has no samples."""
        start_s, end_s = grid.start_s, float(grid.edges_s[-1])
        margin_s = LONGEST_GAP_STEPS * self.step_s + _MARGIN_S
        nodes = self.nodes(start_s - margin_s, end_s + margin_s)
        self._wrong.clear()
        for batch in node_batches(((node, sum(labels.values())) for node, labels in nodes.items()), _MOST_SAMPLES):
            trace = self._batch(batch, nodes, grid, margin_s, name)
            if trace is not None:
                yield trace
        self._refuse_if_none_is_usable(nodes)

    def _batch(
        self, batch: Sequence[str], nodes: dict[str, dict[str, int]], grid: Grid, margin_s: float, name: str
    ) -> Trace | None:
        span = grid.start_s - margin_s, float(grid.edges_s[-1]) + margin_s
        label = self._settings.node_label
        labels = any_of([value for node in batch for value in nodes[node]])
        counters = self._by_node(self._server.samples(f"{CPU_COUNTERS}{{{self._matchers(f'{label}=~{labels}')}}}", *span))
        hosts = any_of(list(batch), ending=_PORT)
        others = self._by_node(self._server.samples(f"{{{self._matchers(_COMPANIONS, f'{label}=~{hosts}')}}}", *span))
        number_of: dict[str, int] = {}
        threads: list[tuple[str, int]] = []
        rates, job = [], []
        for node in batch:
            companions = others.get(node, [])
            cpus, of_node = self._node(node, counters.get(node, []), companions, grid)
            threads += [(node, cpu) for cpu in cpus]
            rates.append(of_node)
            job.append(thread_jobs(companions, cpus, grid, self.window_s, number_of))
        if not threads:
            return None
        return Trace(
            name=name,
            step_s=self.step_s,
            time_s=grid.edges_s[1:],
            nodes=tuple(node for node, _ in threads),
            cpus=tuple(cpu for _, cpu in threads),
            rates=np.concatenate(rates, axis=1),
            job=np.concatenate(job, axis=1),
            jobs=tuple(TraceJob(job_id) for job_id in number_of),
        )

    def _node(
        self, node: str, counters: list[Series], companions: list[Series], grid: Grid
    ) -> tuple[tuple[int, ...], np.ndarray[tuple[int, ...], np.dtype[np.float32]]]:
        """The CPUs of a node and their shares; none of a node that lacks a mode, or is looked at too rarely."""
        nothing = np.empty((grid.steps, 0, 4), dtype=np.float32)
        if not counters:
            return (), nothing
        clocks = [each for each in companions if each.labels.get("__name__") == SAMPLE_TIME]
        series, clock = best_target(counters, clocks)
        missing = missing_modes(series)
        if missing:
            self._wrong[node] = f"{node} exports no {CPU_COUNTERS} with mode {' or '.join(missing)}"
            return (), nothing
        interval = sample_interval(series)
        if interval is not None and interval > LONGEST_GAP_STEPS * self.step_s:
            self._wrong[node] = f"{node} is scraped every {interval:.3g} s, and prometheus.step_s is {self.step_s:g}"
            return (), nothing
        return node_rates(series, clock, grid, self.seen)

    def _refuse_if_none_is_usable(self, nodes: dict[str, dict[str, int]]) -> None:
        for note in self._wrong.values():
            self._note(f"{note}: left out")
        if nodes and len(self._wrong) == len(nodes):
            first = next(iter(self._wrong.values()))
            more = f" The same holds for all {len(nodes)} nodes." if len(nodes) > 1 else ""
            hint = "Set prometheus.step_s to the scrape interval" if "scraped" in first else "Let its exporter show them"
            raise SourceFormatError(f"{first}.{more}", hint=f"{hint}, or choose other nodes by prometheus.select.")

    def _by_node(self, series: list[Series]) -> dict[str, list[Series]]:
        nodes: dict[str, list[Series]] = {}
        for each in series:
            name = node_name(each.labels.get(self._settings.node_label, ""))
            if name is not None and each.time_s.size:
                nodes.setdefault(name, []).append(each)
        return nodes

    def _matchers(self, *more: str) -> str:
        chosen = self._settings.select.strip().strip("{}").strip().rstrip(",")
        return ",".join(filter(None, (chosen, *more)))

    def since(self, now: datetime) -> float:
        """Where a first run begins, in Unix time: an hour ago where the settings do not say."""
        if not self._settings.since:
            return now.timestamp() - _FIRST_RUN_S
        try:
            moment = datetime.fromisoformat(self._settings.since)
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            raise SettingsError(
                f"prometheus.since {self._settings.since!r} is not a day or time.",
                hint="Write it as 2026-01-31 or 2026-01-31T12:00.",
            ) from None

    def _note(self, note: str) -> None:
        if note not in self.notes and len(self.notes) < 20:
            self.notes.append(note)


def node_batches(samples_of: Iterable[tuple[str, float]], most: float) -> Iterator[list[str]]:
    """Nodes, each with how many samples it has, in groups of at most so many samples; at least one node in each."""
    batch: list[str] = []
    samples = 0.0
    for node, size in samples_of:
        if batch and samples + size > most:
            yield batch
            batch, samples = [], 0.0
        batch.append(node)
        samples += size
    if batch:
        yield batch


def _side_by_side(parts: Sequence[Trace]) -> Trace:
    """Traces of different nodes on the same grid as one; a job on several of them is one job."""
    number_of: dict[TraceJob, int] = {}
    job = []
    for part in parts:
        numbers = np.array([number_of.setdefault(each, len(number_of)) for each in part.jobs], dtype=np.int32)
        job.append(np.where(part.job >= 0, numbers[np.maximum(part.job, 0)], part.job) if numbers.size else part.job)
    first = parts[0]
    return Trace(
        name=first.name,
        step_s=first.step_s,
        time_s=first.time_s,
        nodes=tuple(node for part in parts for node in part.nodes),
        cpus=tuple(cpu for part in parts for cpu in part.cpus),
        rates=np.concatenate([part.rates for part in parts], axis=1),
        job=np.concatenate(job, axis=1).astype(np.int32),
        jobs=tuple(number_of),
    )


def format_moment(moment_s: float) -> str:
    """A Unix time as people write it, in UTC."""
    return f"{datetime.fromtimestamp(moment_s, UTC):%Y-%m-%d %H:%M:%S}"


def read_node_metrics(server: PrometheusServer, matchers: str, label: str, start_s: float, end_s: float) -> NodeShares:
    """The shares of each node from one time to another; the highest, where a node has several disks, links or jobs.

    Parameters
    ----------
    matchers
        Which series, as in the braces of a selector; may be empty.
    label
        The label that names the node.
    """
    shares: NodeShares = {}
    for series in server.instant(metric_query(matchers, label, end_s - start_s), end_s):
        node, metric = node_name(series.labels.get(label, "")), series.labels.get(_METRIC, "")
        value = float(series.values[0]) if series.values.size else np.nan
        if node is None or metric not in _EXPRESSIONS or not np.isfinite(value):
            continue
        of_node = shares.setdefault(node, {})
        of_node[metric] = max(of_node.get(metric, 0.0), min(max(value, 0.0), 1.0))
    return shares


def metric_query(matchers: str, label: str, span_s: float) -> str:
    """One expression for all metrics, which a label tells apart."""
    words = {
        "matchers": matchers,
        "and_matchers": f",{matchers}" if matchers else "",
        "label": label,
        "span": f"{round(span_s * 1000)}ms",
    }
    parts = [
        f'label_replace(max by ({label}) ({expression.format(**words)}), "{_METRIC}", "{metric}", "", "")'
        for metric, expression in _EXPRESSIONS.items()
    ]
    return " or ".join(parts)
