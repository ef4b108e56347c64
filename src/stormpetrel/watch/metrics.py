"""Figures of the loop for Prometheus: what `/metrics` shows.

Step, quality frame -> WatchMetrics -> text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import polars as pl
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from stormpetrel.jobs.moments import Moment
from stormpetrel.lifecycle.trace_models import Scored
from stormpetrel.records.incidents import Incident, Severity
from stormpetrel.store.source_health import SourceBook, troubles
from stormpetrel.watch.event_findings import GridStep
from stormpetrel.watch.loop import Step
from stormpetrel.watch.notify.outbox import OutboxStep
from stormpetrel.watch.trace_sampling import Coverage

QUALITY_FIGURES: Final = ("n", "pr_auc", "failed_share", "brier", "ece", "precision", "recall")
_MS: Final = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)


class WatchMetrics:
    """Counters and gauges of one watcher."""

    def __init__(self, book: SourceBook | None = None) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_SourceFigures(book or SourceBook()))
        within: dict[str, Any] = {"registry": self._registry}
        self.predictions = Counter(
            "stormpetrel_predictions", "Predictions made", ["moment", "flagged", "model_version"], **within
        )
        self.late = Counter("stormpetrel_predictions_late", "Predictions that could be read too late", ["moment"], **within)
        self.delay = Histogram(
            "stormpetrel_prediction_delay_seconds",
            "From a job's moment until its prediction can be read",
            ["moment"],
            buckets=_DELAYS,
            **within,
        )
        self.records = Counter("stormpetrel_records", "Job records taken in", ["kind"], **within)
        self.steps = Histogram("stormpetrel_watch_step_seconds", "Duration of a turn of the loop", buckets=_MS, **within)
        self.problems = Counter("stormpetrel_source_problems", "Looks at the scheduler in vain", **within)
        self.open_jobs = Gauge("stormpetrel_open_jobs", "Jobs that wait or run", **within)
        self.lag = Gauge("stormpetrel_horizon_lag_seconds", "How far what has been judged lies behind the site's clock", **within)
        self.ready = Gauge("stormpetrel_watch_ready", "1 while jobs are judged", **within)
        self.models = Gauge("stormpetrel_model_version", "Version of each model in use", ["model"], **within)
        self.quality = Gauge(
            "stormpetrel_quality", "Running quality of settled predictions", ["moment", "model_version", "figure"], **within
        )
        self.grid_score = Gauge("stormpetrel_grid_score", "How abnormal the newest bucket of events is", **within)
        self.grid_threshold = Gauge("stormpetrel_grid_threshold", "Score from which there is an alarm", **within)
        self.grid_alarm = Gauge("stormpetrel_grid_alarm", "1 while the newest bucket is an alarm", **within)
        self.cluster_bucket = Gauge("stormpetrel_grid_bucket_timestamp_seconds", "When the newest bucket begins", **within)
        self.grid_alarms = Counter("stormpetrel_grid_alarm_buckets", "Buckets that were alarms", **within)
        self.grid_problems = Counter("stormpetrel_grid_problems", "Looks at the grid's events in vain", **within)
        self.windows = Counter("stormpetrel_windows_scored", "CPU windows that were scored", **within)
        self.flagged_windows = Counter("stormpetrel_windows_flagged", "CPU windows above the threshold", **within)
        self.sliding_threads = Gauge("stormpetrel_traces_sliding_threads", "Threads that are scored every second", **within)
        self.rotation = Gauge(
            "stormpetrel_traces_rotation_windows", "Each node is judged in one of so many windows; 1: in all", **within
        )
        self.trace_lag = Gauge(
            "stormpetrel_traces_lag_seconds", "From the end of the newest scored window to its scores", **within
        )
        self.trace_load = Gauge(
            "stormpetrel_traces_load", "Time that reading and scoring a window take, as a share of its length", **within
        )
        self.node_windows = Counter(
            "stormpetrel_traces_node_windows", "Windows of nodes, judged and skipped for lack of time", ["result"], **within
        )
        self.heartbeat = Gauge("stormpetrel_watch_heartbeat_timestamp_seconds", "When the loop last made a turn", **within)
        self.messages_waiting = Gauge("stormpetrel_messages_waiting", "Messages that are not delivered yet", **within)
        self.messages_wait = Gauge(
            "stormpetrel_messages_oldest_waiting_seconds", "For how long the oldest of them waits", **within
        )
        self.messages_given_up = Gauge("stormpetrel_messages_given_up", "Messages that a receiver refused", **within)
        self.heartbeat.set_to_current_time()
        self.trainings = Counter("stormpetrel_trainings", "Trainings started by the watch", ["result"], **within)
        self.open_incidents = Gauge("stormpetrel_open_incidents", "Incidents that are not over", ["severity"], **within)
        self.incident_open = Gauge(
            "stormpetrel_incident_open", "1 while an incident is not over", ["incident", "severity", "kind", "blame"], **within
        )
        self._begin_at_zero()

    def _begin_at_zero(self) -> None:
        """Show what is counted by label before it first happens: a query over nothing and one over zero differ."""
        for moment in Moment:
            self.late.labels(moment.value)
        for result in ("finished", "failed"):
            self.trainings.labels(result)
        for severity in Severity:
            self.open_incidents.labels(severity.value)

    def ask(self, *, ready: Callable[[], bool], lag_s: Callable[[], float]) -> None:
        """Show what these say at the moment of each scrape: a loop that hangs cannot set anything."""
        self.ready.set_function(lambda: float(ready()))
        self.lag.set_function(lag_s)

    def note_step(self, step: Step, pace: float) -> None:
        """Count what a turn of the loop came to."""
        self.steps.observe(step.seconds)
        self.records.labels("new").inc(step.read.new)
        self.records.labels("changed").inc(step.read.changed)
        self.records.labels("quarantined").inc(step.read.quarantined)
        if step.read.problem:
            self.problems.inc()
        self.open_jobs.set(step.open_jobs)
        for name, version in step.models.items():
            self.models.labels(name).set(version)
        self._note_predictions(step.predictions, pace)

    def note_grid(self, step: GridStep) -> None:
        """Show what the newest bucket of events came to."""
        self.grid_problems.inc(step.problem is not None)
        self.grid_alarms.inc(int(step.rows["alarm"].sum()))
        newest = step.newest
        if newest is None:
            return
        self.grid_alarm.set(bool(newest["alarm"]))
        self.grid_threshold.set(newest["threshold"])
        self.cluster_bucket.set(newest["bucket_start"].timestamp())
        self.grid_score.set(float("nan") if newest["score"] is None else newest["score"])

    def note_traces(self, scored: Scored) -> None:
        """Count what a look at CPU traces came to."""
        self.windows.inc(scored.scored)
        self.flagged_windows.inc(scored.flagged)

    def note_coverage(self, coverage: Coverage) -> None:
        """Show how late CPU traces are judged, and how many of them."""
        self.rotation.set(coverage.every)
        self.trace_lag.set(max(0.0, coverage.lag_s))
        self.trace_load.set(coverage.load)
        self.node_windows.labels("judged").inc(coverage.judged)
        self.node_windows.labels("skipped").inc(coverage.skipped + coverage.passed_over * (coverage.judged + coverage.skipped))

    def note_sliding(self, threads: int) -> None:
        """Show how many threads are scored at every step."""
        self.sliding_threads.set(threads)

    def note_incidents(self, open_ones: Sequence[Incident]) -> None:
        """Show the incidents that are not over, by number and kind: no label names a user, a job or a node."""
        listed = [incident for incident in open_ones if not incident.is_quiet]
        for severity in Severity:
            self.open_incidents.labels(severity.value).set(sum(incident.severity is severity for incident in listed))
        self.incident_open.clear()
        for incident in listed:
            kind = incident.kinds[0].value if incident.kinds else ""
            self.incident_open.labels(str(incident.id), incident.severity.value, kind, incident.blame.value).set(1)

    def beat(self) -> None:
        """The loop has made a turn."""
        self.heartbeat.set_to_current_time()

    def note_outbox(self, step: OutboxStep, now: datetime) -> None:
        """Show what waits to be delivered."""
        self.messages_waiting.set(step.waiting)
        self.messages_given_up.set(step.given_up)
        waited = now - step.oldest_waiting if step.oldest_waiting else timedelta(0)
        self.messages_wait.set(max(0.0, waited.total_seconds()))

    def _note_predictions(self, predictions: pl.DataFrame, pace: float) -> None:
        groups = predictions.group_by("moment", "flagged", "model_version").len()
        for moment, flagged, version, count in groups.iter_rows():
            self.predictions.labels(moment, str(flagged).lower(), str(version)).inc(count)
        for moment, count in predictions.filter("late").group_by("moment").len().iter_rows():
            self.late.labels(moment).inc(count)
        delays = predictions.select("moment", s=(pl.col("predicted_at") - pl.col("moment_time")).dt.total_microseconds() / 1e6)
        for moment, seconds in delays.iter_rows():
            self.delay.labels(moment).observe(max(0.0, seconds) / pace)

    def note_quality(self, quality: pl.DataFrame) -> None:
        """Show the running quality, in place of what was shown before."""
        self.quality.clear()
        figures = [name for name in QUALITY_FIGURES if name in quality.columns]
        for row in quality.iter_rows(named=True):
            version = "all" if row.get("model_version") is None else str(row["model_version"])
            for figure in figures:
                if row[figure] is not None:
                    self.quality.labels(row["moment"], version, figure).set(row[figure])

    def text(self) -> bytes:
        """What Prometheus reads."""
        return generate_latest(self._registry)


class _SourceFigures(Collector):
    """How each live source is, computed at the scrape."""

    def __init__(self, book: SourceBook) -> None:
        self._book = book

    def describe(self) -> Iterator[Metric]:
        """The names, without asking."""
        return self.collect()

    def collect(self) -> Iterator[Metric]:
        now, sources = datetime.now(UTC), self._book.sources()
        unwell = {trouble.source for trouble in troubles(sources, now)}
        good = GaugeMetricFamily(
            "stormpetrel_source_last_good_look_timestamp_seconds", "When a source was last read well", labels=["source"]
        )
        lag = GaugeMetricFamily("stormpetrel_source_lag_seconds", "Time since a source was last read well", labels=["source"])
        up = GaugeMetricFamily("stormpetrel_source_up", "1 while a source is read as often as it should be", labels=["source"])
        for source in sources:
            if source.last_good is not None:
                good.add_metric([source.name], source.last_good.timestamp())
                lag.add_metric([source.name], source.lag_s(now) or 0.0)
            up.add_metric([source.name], float(source.last_good is not None and source.name not in unwell))
        yield from (good, lag, up)


_DELAYS: Final = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 3600.0)
