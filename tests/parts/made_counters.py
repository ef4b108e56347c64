"""Counters of nodes that are not there, as a Prometheus would have stored them, and a server that answers out of them.

`MadeServer` stands in for `PrometheusServer`: it has the same two questions, and can be late, or away.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime

import numpy as np

from stormpetrel.errors import SourceUnavailableError
from stormpetrel.sources.prometheus.matrix import SampleBlock
from stormpetrel.sources.prometheus.query import Series

MODES = ("user", "nice", "system", "iowait", "irq", "softirq", "steal", "idle")
BUSY = {"user": 0.5, "nice": 0.1, "system": 0.1, "irq": 0.05, "softirq": 0.05, "iowait": 0.1, "steal": 0.02, "idle": 0.08}
SHARES = (0.6, 0.2, 0.1, 0.1)  # the same as user, system, iowait, other
T0 = 1_700_000_000.0


def cpu_series(
    times_s: Sequence[float],
    *,
    cpu: int = 0,
    shares: Mapping[str, float] = BUSY,
    instance: str = "n1:9643",
    true_s: Sequence[float] | None = None,
    uptime_s: float = 5_000.0,
    **labels: str,
) -> list[Series]:
    """The counters of one CPU that spends its time as `shares` says, read at `true_s` and stored under `times_s`."""
    stored = np.asarray(times_s, dtype=np.float64)
    read = stored if true_s is None else np.asarray(true_s, dtype=np.float64)
    base = {"__name__": "node_cpu_seconds_total", "cpu": str(cpu), "instance": instance, "job": "node", **labels}
    return [Series({**base, "mode": mode}, stored, share * (uptime_s + read - T0)) for mode, share in shares.items()]


def gauge(name: str, times_s: Sequence[float], values: Sequence[float] | float = 1.0, **labels: str) -> Series:
    """A series that is no counter."""
    times = np.asarray(times_s, dtype=np.float64)
    all_labels = {"instance": "n1:9643", "job": "node", **labels, "__name__": name}
    return Series(all_labels, times, np.broadcast_to(np.asarray(values, dtype=np.float64), times.shape).copy())


class MadeServer:
    """Answers the questions of PrometheusTraces out of series in memory."""

    name = "Prometheus at http://made"

    def __init__(self, series: Sequence[Series]) -> None:
        self.series = list(series)
        self.resume: datetime | None = None
        self.fails_at: int | None = None  # which question from now on is not answered
        self.asked: list[str] = []

    def __enter__(self) -> MadeServer:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def instant(self, expression: str, at_s: float) -> list[Series]:
        """Samples per instance."""
        self._ask(expression)
        found = re.search(r"\[(\d+)ms\]", expression)
        assert found
        span_s = int(found[1]) / 1000
        counts: dict[str, float] = {}
        for one in self._within("node_cpu_seconds_total", at_s - span_s, at_s):
            counts[one.labels["instance"]] = counts.get(one.labels["instance"], 0) + one.time_s.size
        return [Series({"instance": name}, np.array([at_s]), np.array([count])) for name, count in counts.items()]

    def samples(self, selector: str, start_s: float, end_s: float) -> list[Series]:
        """Raw samples of the metrics and instances that a selector names."""
        self._ask(selector)
        names = re.search(r'__name__=~"([^"]+)"', selector)
        instances = re.search(r'instance=~"((?:[^"\\]|\\.)+)"', selector)
        assert instances
        wanted = re.compile(re.sub(r"\\(.)", r"\1", instances[1]))  # out of its quotes
        metric = names[1] if names else selector.partition("{")[0]
        return [one for one in self._within(metric, start_s, end_s) if wanted.fullmatch(one.labels["instance"])]

    def block(self, selector: str, start_s: float, end_s: float) -> SampleBlock:
        """The same as one block."""
        series = self.samples(selector, start_s, end_s)
        return SampleBlock.of_series(
            [one.labels for one in series], [one.time_s for one in series], [one.values for one in series]
        )

    def _within(self, metric: str, start_s: float, end_s: float) -> list[Series]:
        found = []
        for one in self.series:
            inside = (one.time_s >= start_s) & (one.time_s <= end_s)
            if re.fullmatch(metric, one.labels["__name__"]) and inside.any():
                found.append(Series(one.labels, one.time_s[inside], one.values[inside]))
        return found

    def _ask(self, what: str) -> None:
        self.asked.append(what)
        if self.fails_at is not None and len(self.asked) > self.fails_at:
            stays = f" The cursor stays at {self.resume:%Y-%m-%dT%H:%M:%SZ}; the next run resumes there." if self.resume else ""
            raise SourceUnavailableError(f"{self.name} did not answer.{stays}")
