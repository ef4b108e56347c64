"""CPU traces in the replay: the scores that live windows were given, and the rule over nodes.

Site -> TracePast.step(now) -> findings of the windows that had ended by `now`. Nothing is scored again; where a model is named,
its detector judges the windows that were kept as well, one moment after the other.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

import polars as pl

from stormpetrel.alarms.trace_rules import FAMILY, FEWEST_MOMENTS, LOOK_BACK, known_troubles, odd_nodes, region_moments
from stormpetrel.lifecycle.odd_nodes import LiveDetector
from stormpetrel.lifecycle.trace_models import TraceModel, seen_by
from stormpetrel.records.findings import Finding
from stormpetrel.records.traces import LIVE
from stormpetrel.records.window_frames import WINDOW_KEY
from stormpetrel.store.site import Site
from stormpetrel.watch.cluster_name import ClusterName
from stormpetrel.watch.trace_findings import detector_findings, odd_window

_AT_ONCE: Final = timedelta(days=1)
_END: Final = pl.col("window_start") + pl.duration(microseconds=(pl.col("window_s").cast(pl.Float64) * 1e6).cast(pl.Int64))


class TracePast:
    """Walks through the scored live windows of one site from `start` on."""

    name = FAMILY

    def __init__(self, site: Site, start: datetime, *, model: TraceModel | None = None) -> None:
        self._site, self._reported_to, self._model = site, start, model
        self._detector = LiveDetector(site.settings.traces.alarm_share)
        self._cluster = ClusterName(site)
        settings = site.settings.prometheus
        self.settle = timedelta(seconds=max(settings.settle_s, 2 * settings.step_s))

    def step(self, now: datetime) -> list[Finding]:
        """Return what the windows tell that ended by `now` and not before, window by window."""
        findings: list[Finding] = []
        while self._reported_to < now:
            until = min(now, self._reported_to + _AT_ONCE)
            findings += self._day(self._reported_to, until)
            findings += self._detected(self._reported_to, until)
            self._reported_to = until
        return findings

    def _day(self, after: datetime, until: datetime) -> list[Finding]:
        windows = node_windows(self._site, after - LOOK_BACK, until).with_columns(cluster=pl.lit(self._cluster.name()))
        findings: list[Finding] = []
        before = after
        inside = region_moments(windows)
        odd = _suspicious(windows, after)
        known = [moment.astimezone(UTC) for moment in inside["at"].unique() if moment > after]
        for moment in sorted({*odd, *known}):
            ends = windows["at"].filter(windows["at"] < moment)
            newest = ends.max()
            before = max(after, newest.astimezone(UTC)) if isinstance(newest, datetime) else after
            recent = windows.filter(pl.col("window_start") >= before - LOOK_BACK, pl.col("at") <= moment)
            (model,) = recent.filter(pl.col("at") == moment)["model"].unique().sort().head(1).to_list()
            if moment in odd:
                findings += odd_nodes(recent.drop("at", "model", "region"), before, moment, model=model)
            lately = inside.filter(pl.col("since") >= before - LOOK_BACK, pl.col("at") <= moment)
            findings += known_troubles(lately, before, moment, model=model)
        return findings

    def _detected(self, after: datetime, until: datetime) -> list[Finding]:
        """What the detector finds in the kept windows that ended in (after, until]."""
        if self._model is None or self._model.detector is None:
            return []
        length = timedelta(seconds=self._site.settings.traces.window_s)
        rows = self._site.cpu_windows.read(since=after - length, until=until).filter(pl.col("trace") == LIVE)
        share, findings = self._site.settings.traces.alarm_share, list[Finding]()
        moments = (
            rows.filter(seen_by(self._model)).sort("window_start").collect().partition_by("window_start", maintain_order=True)
        )
        for moment in moments:
            end = moment["window_start"][0].astimezone(UTC) + length
            if after < end <= until:
                odd = [odd_window(finding, end) for finding in self._detector.step(self._model, moment.sort("node", "cpu"))]
                findings += detector_findings(odd, self._cluster.name(), end, self._model, share)
        return findings


def node_windows(site: Site, since: datetime, until: datetime) -> pl.DataFrame:
    """Return the scored live windows from `since` on that ended by `until`, each by the first model that scored it."""
    rows = site.trace_scores.read(since=since, until=until).filter(pl.col("trace") == LIVE, until >= _END)
    version = pl.format("{}/{}", "model", "model_version")
    columns = ("node", "window_start", "window_s", "job_id", "flagged", "score", "max_iowait", "stands_for", "region")
    chosen = [*WINDOW_KEY, *columns, "model_version"]
    frame = rows.select(*dict.fromkeys(chosen), at=_END, model=version).collect()
    first = frame.sort("model_version").unique(list(WINDOW_KEY), keep="first", maintain_order=True)
    return first.select(*columns, "at", "model")


def scored_span(site: Site) -> tuple[datetime, datetime] | None:
    """Return the beginning of the first scored live window and the end of the last; None where there is none."""
    rows = site.trace_scores.read().filter(pl.col("trace") == LIVE)
    first, last = rows.select(first=pl.col("window_start").min(), last=_END.max()).collect().row(0)
    return None if first is None else (first.astimezone(UTC), last.astimezone(UTC))


def _suspicious(windows: pl.DataFrame, after: datetime) -> list[datetime]:
    """The ends of windows after a time at which some node has flags for so long that the rule can speak."""
    moments = windows.group_by("node", "at").agg(flags=pl.col("flagged").any()).sort("node", "at")
    run = pl.col("flags").cast(pl.Int8).rolling_sum(FEWEST_MOMENTS, min_samples=FEWEST_MOMENTS).over("node")
    long = moments.with_columns(run=run).filter(pl.col("run") == FEWEST_MOMENTS, pl.col("at") > after)
    return [moment.astimezone(UTC) for moment in long["at"].unique().sort()]
