"""The watcher of CPU traces: reads every whole window from Prometheus, scores it, and says which nodes are unusual.

Site -> TraceFindings.step(now) -> findings. Windows and scores lie in their tables with cursors of their own; where no model was
trained, the shipped encoder scores.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from importlib.util import find_spec
from typing import Final

import polars as pl

from stormpetrel.alarms.trace_rules import FAMILY, LOOK_BACK, odd_nodes
from stormpetrel.errors import NoSamplesError
from stormpetrel.ingest.traces import ingest_live
from stormpetrel.lifecycle.trace_models import FAMILY as MODELS
from stormpetrel.lifecycle.trace_models import Scored, TraceModel, load_trace_model, score_new_windows
from stormpetrel.records.findings import Finding
from stormpetrel.records.traces import LIVE
from stormpetrel.sources.prometheus import CURSOR
from stormpetrel.store.site import Site
from stormpetrel.store.source_health import SourceBook
from stormpetrel.watch.cluster_name import ClusterName

SOURCE: Final = "prometheus (traces)"
_NO_COUNTERS: Final = timedelta(minutes=10)  # until a server without CPU counters is asked again
_NEEDED: Final = ("node", "window_start", "window_s", "flagged", "score")


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
    ) -> None:
        self._site, self._book, self._note = site, book or SourceBook(), note
        self._told_to = datetime.fromisoformat(json.loads(state)["told_to"]) if state else None
        self._cluster = ClusterName(site)
        self._not_before: datetime | None = None
        self._read_to_s = 0.0  # the end of the newest window that was asked for
        self._model: TraceModel | None = None
        self._training: str | None = None

    @property
    def every_s(self) -> float:
        """Seconds from one step to the next: a fraction of a window, so that a score follows its end closely."""
        return max(1.0, self._site.settings.traces.window_s / 20) / self._site.pace()

    @property
    def state(self) -> str:
        """Up to when every window was told."""
        return json.dumps({"told_to": self._told_to.isoformat()}) if self._told_to else ""

    def step(self, now: datetime) -> list[Finding]:
        """Return the nodes that the windows show which have come since the step before."""
        settings = self._site.settings
        settled_s = now.timestamp() - max(settings.prometheus.settle_s, 2 * settings.prometheus.step_s)
        due_s = settled_s - settled_s % settings.traces.window_s
        if due_s <= self._read_to_s or not self._read(now):
            return []
        self._read_to_s = due_s
        model = self._current_model()
        self._note(score_new_windows(self._site, model))
        after = self._told_to or now - LOOK_BACK
        rows = self._site.trace_scores.read(since=after - LOOK_BACK, model=model.name, version=model.version)
        live = rows.filter(pl.col("trace") == LIVE).select(_NEEDED).collect()
        if not live.height:
            return []
        newest: datetime = live.select(
            (pl.col("window_start") + pl.duration(microseconds=(pl.col("window_s").cast(pl.Float64) * 1e6).cast(pl.Int64))).max()
        ).item()
        named = live.with_columns(cluster=pl.lit(self._cluster.name()))
        findings = odd_nodes(named, after, max(now, newest), model=f"{model.name}/{model.version}")
        self._told_to = max(after, newest)
        return findings

    def _read(self, now: datetime) -> bool:
        """Take in the windows that are whole; whether there is anything to score."""
        if self._not_before is not None and now < self._not_before:
            return False
        every_s = self._site.settings.traces.window_s / self._site.pace()
        try:
            with self._book.look(SOURCE, watcher=FAMILY, every_s=every_s) as seen:
                seen(ingest_live(self._site, remember=False).read)
        except NoSamplesError:
            if self._site.cpu_windows.cursor(CURSOR) is not None or not self._site.settings.prometheus.background:
                raise
            # A server that is read for the background of events, and knows no CPU counters: that is no problem of it.
            self._book.drop(SOURCE)
            self._not_before = now + _NO_COUNTERS * self._site.pace()
            return False
        return True

    def _current_model(self) -> TraceModel:
        """The model in use; one that was promoted meanwhile is taken up."""
        training = self._site.models.current_training(MODELS)
        name = training.name if training else ""
        if self._model is None or name != self._training:
            self._model, self._training = load_trace_model(self._site), name
        return self._model


def watches_traces(site: Site) -> bool:
    """Whether there is a Prometheus whose CPU counters can be read, and something that scores them."""
    settings = site.settings
    return bool(settings.prometheus.url) and settings.traces.watch and find_spec("onnxruntime") is not None
