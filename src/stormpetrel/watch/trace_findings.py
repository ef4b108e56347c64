"""The watcher of CPU traces: reads counters from Prometheus as they come, scores each window as it ends, and names unusual nodes.

Site -> TraceFindings.step(now) -> findings. A window is scored as soon as it is whole; scores, and the windows that are kept, lie
in their tables with the cursor of what was read. Where no model was trained, the shipped encoder scores.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from importlib.util import find_spec
from typing import Final

import polars as pl

from stormpetrel.alarms.trace_rules import FAMILY, LOOK_BACK, node_moments, odd_moments
from stormpetrel.errors import NoSamplesError
from stormpetrel.ingest.live_windows import LiveMoment, LiveWindows
from stormpetrel.lifecycle.live_scoring import take_moment
from stormpetrel.lifecycle.trace_models import FAMILY as MODELS
from stormpetrel.lifecycle.trace_models import Scored, TraceModel, load_trace_model, score_new_windows
from stormpetrel.records.findings import Finding
from stormpetrel.records.traces import LIVE
from stormpetrel.sources.prometheus import CURSOR, PrometheusTraces
from stormpetrel.store.site import Site
from stormpetrel.store.source_health import SourceBook
from stormpetrel.watch.cluster_name import ClusterName

SOURCE: Final = "prometheus (traces)"
_NO_COUNTERS: Final = timedelta(minutes=10)  # until a server without CPU counters is asked again
_NEEDED: Final = ("node", "window_start", "window_s", "flagged", "score", "stands_for")
_SHORTEST_S: Final = 0.2  # from one step to the next
_THREADS: Final = 1  # that score: what goes on beside has the other cores


class TraceFindings:
    """Watches the CPU traces of one site, from where `state` was left; `note` hears of what was scored."""

    name = FAMILY

    def __init__(
        self,
        site: Site,
        book: SourceBook | None = None,
        *,
        state: str = "",
        note: Callable[[Scored], None] = lambda scored: None,
        source: PrometheusTraces | None = None,
    ) -> None:
        self._site, self._book, self._note = site, book or SourceBook(), note
        self._told_to = datetime.fromisoformat(json.loads(state)["told_to"]) if state else None
        self._cluster = ClusterName(site)
        self._source = source
        self._live: LiveWindows | None = None
        self._not_before: datetime | None = None
        self._model: TraceModel | None = None
        self._training: str | None = None
        self._moments: pl.DataFrame | None = None  # of the last day, as `node_moments` makes them

    @property
    def every_s(self) -> float:
        """Seconds from one step to the next: a fraction of a window, and what is left until the end of one."""
        now = self._site.now()
        due = self._live.next_read(now) if self._live is not None else None
        tenth_s = max(1.0, self._site.settings.traces.window_s / 20)
        wait_s = tenth_s if due is None else (due - now).total_seconds()
        return max(_SHORTEST_S, wait_s / self._site.pace())

    @property
    def state(self) -> str:
        """Up to when every window was told."""
        return json.dumps({"told_to": self._told_to.isoformat()}) if self._told_to else ""

    def step(self, now: datetime) -> list[Finding]:
        """Return the nodes that the windows show which have come since the step before."""
        if self._not_before is not None and now < self._not_before:
            return []
        try:
            with self._book.look(SOURCE, watcher=FAMILY, every_s=self._site.settings.traces.window_s / self._site.pace()) as seen:
                seen(self._take_all(now))
        except NoSamplesError:
            if self._site.cpu_windows.cursor(CURSOR) is not None or not self._site.settings.prometheus.background:
                raise
            # A server that is read for the background of events, and knows no CPU counters: that is no problem of it.
            self._book.drop(SOURCE)
            self._not_before = now + _NO_COUNTERS * self._site.pace()
            return []
        return self._findings(now)

    def _take_all(self, now: datetime) -> int:
        """Score every window that has ended and is whole; how many were read."""
        if self._live is None:
            self._live = LiveWindows(self._site, self._source)
        read = 0
        for moment in self._live.moments(now):
            self._take(moment)
            read += moment.report.read
        return read

    def _take(self, moment: LiveMoment) -> None:
        model = self._current_model()
        taken = take_moment(self._site, model, moment)
        self._model = taken.model
        self._note(taken.scored)
        new = node_moments(taken.scores.select(_NEEDED).with_columns(cluster=pl.lit(self._cluster.name())))
        known = self._told_moments(moment.start)
        self._moments = pl.concat([known.filter(pl.col("at") > moment.end - 2 * LOOK_BACK), new]).unique(
            ["cluster", "node", "at"], keep="last"
        )

    def _told_moments(self, before: datetime) -> pl.DataFrame:
        """What the model in use has said before; read from the table where it is not known yet."""
        if self._moments is None:
            model = self._current_model()
            after = self._told_to or before - LOOK_BACK
            rows = self._site.trace_scores.read(since=after - LOOK_BACK, model=model.name, version=model.version)
            live = rows.filter(pl.col("trace") == LIVE).select(_NEEDED).collect()
            self._moments = node_moments(live.with_columns(cluster=pl.lit(self._cluster.name())))
        return self._moments

    def _findings(self, now: datetime) -> list[Finding]:
        """The nodes that became unusual since they were told last."""
        if self._moments is None and self._live is not None and self._site.cpu_windows.cursor(CURSOR) is None:
            return []
        moments = self._told_moments(now)
        newest = moments["at"].max()
        after = self._told_to or now - LOOK_BACK
        if not isinstance(newest, datetime) or newest <= after:
            return []
        model = self._current_model()
        recent = moments.filter(pl.col("at") > after - LOOK_BACK).sort("cluster", "node", "at")
        findings = odd_moments(recent, after, max(now, newest), model=f"{model.name}/{model.version}")
        self._told_to = newest
        return findings

    def _current_model(self) -> TraceModel:
        """The model in use; one that was promoted meanwhile is taken up, and scores the windows of the last day that are kept."""
        training = self._site.models.current_training(MODELS)
        name = training.name if training else ""
        if self._model is None or name != self._training:
            self._model, self._training = load_trace_model(self._site, threads=_THREADS), name
            self._moments = None
            self._note(score_new_windows(self._site, self._model, since=self._site.now() - LOOK_BACK))
        return self._model


def watches_traces(site: Site) -> bool:
    """Whether there is a Prometheus whose CPU counters can be read, and something that scores them."""
    settings = site.settings
    return bool(settings.prometheus.url) and settings.traces.watch and find_spec("onnxruntime") is not None
