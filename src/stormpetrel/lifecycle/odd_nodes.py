"""What the detector says of a site's newest windows: nodes that do what calm ones hardly ever do, each in a sentence.

Site, TraceModel -> newest_findings -> NodeFinding; as windows end: LiveDetector.step(model, windows) -> NodeFinding. The newest
windows are judged beside as many before them as a past has. LiveMetrics.step(model, node scores) -> UnusualNode: memory,
pressure, disks or network of a node are not as they were in training.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl

from stormpetrel.lifecycle.trace_learning import frame_windows
from stormpetrel.lifecycle.trace_models import TraceModel, seen_by
from stormpetrel.records.window_frames import METRIC_NAMES
from stormpetrel.store.site import Site
from stormpetrel.traces.detector.detector import TraceDetector
from stormpetrel.traces.detector.layout import LOOK_BACK
from stormpetrel.traces.detector.reasons import NodeFinding, odd_nodes
from stormpetrel.traces.detector.recent import RecentNodes

_MOST_WINDOWS: Final = 100_000  # that are looked at: the newest
FEWEST_CALM: Final = 200  # calm node windows that a detector must have learnt from before anybody is called
_MOMENTS: Final = 2 * LOOK_BACK  # of the newest windows; the first half is the past of the others


def newest_findings(site: Site, model: TraceModel) -> list[NodeFinding] | None:
    """The odd nodes of the newest windows that a site keeps, each once and the oddest first, in the site's time.

    None where there is no detector or no window.
    """
    newest = site.cpu_windows.read().select(pl.col("window_start").max()).collect().item()
    if model.detector is None or not isinstance(newest, datetime):
        return None
    span = timedelta(seconds=_MOMENTS * site.settings.traces.window_s)
    rows = site.cpu_windows.read(since=newest - span).filter(seen_by(model)).collect()
    moments = rows.group_by("window_start").len().sort("window_start", descending=True)
    within = moments.filter((pl.col("len").cum_sum() <= _MOST_WINDOWS) | (pl.int_range(pl.len()) == 0))
    if not within.height:
        return None
    kept = rows.filter(pl.col("window_start").is_in(within["window_start"].implode()))
    seen = model.detector.observe(frame_windows(kept, int(model.detector.data_["steps"])))
    zone = ZoneInfo(site.settings.site.time_zone)
    findings = odd_nodes(model.detector, seen, share=site.settings.traces.alarm_share, zone=zone)
    of_node: dict[str, NodeFinding] = {}
    for finding in findings:  # oddest first
        of_node.setdefault(finding.node, finding)
    return list(of_node.values())


@dataclass(frozen=True, slots=True, eq=False)
class JudgedMoment:
    """What a detector says of one moment: the odd nodes, how odd calm ones were, and the calm windows."""

    detector: TraceDetector
    findings: list[NodeFinding]
    odd: frozenset[str]
    recent: RecentNodes
    calm: pl.DataFrame


class LiveDetector:
    """Judges the windows of one moment after the other; a node is told of when it is odd twice in a row.

    A detector that has learnt from fewer than 200 calm node windows calls nobody: it cannot know what is rare.
    Odd windows do not become part of a node's past, so that what lasts stays odd; after an hour of it the node has no past.
    """

    def __init__(self, alarm_share: float) -> None:
        self._share = alarm_share
        self._past: list[pl.DataFrame] = []
        self._judge: TraceDetector | None = None
        self._recent = RecentNodes.none()  # how odd calm nodes were in the last hours, by that detector
        self._odd_before: frozenset[str] = frozenset()

    def step(self, model: TraceModel, windows: pl.DataFrame) -> list[NodeFinding]:
        """The nodes that are odd at this moment and were at the one before; `windows` are of CPU_WINDOW_SCHEMA."""
        return self.take(self.judge(model, windows))

    def judge(self, model: TraceModel, windows: pl.DataFrame) -> JudgedMoment | None:
        """What is odd at this moment; nothing is remembered before it is taken. None: there is nothing to judge, or nobody."""
        if model.detector is None or not windows.height or model.detector.calm_nodes < FEWEST_CALM:
            return None
        steps = int(model.detector.data_["steps"])
        fitting = windows.filter(pl.col("user").list.len() == steps)
        if not fitting.height:
            return None
        start = fitting["window_start"].max()
        assert isinstance(start, datetime)
        # What another version of the detector found odd before is not comparable.
        recent = self._recent if model.detector is self._judge else RecentNodes.none()
        seen = model.detector.observe(frame_windows(pl.concat([*self._past, fitting]), steps))
        expected, since_s = model.detector.expect(seen, recent), start.timestamp() - 1e-3
        findings = odd_nodes(model.detector, seen, share=self._share, since_s=since_s, expected=expected)
        odd = frozenset(finding.node for finding in findings)
        new = seen.layout.node_start_s >= since_s
        calm = ~np.isin([seen.windows.nodes[number] for number in seen.layout.node_of], sorted(odd))
        recent = recent.and_then(model.detector.recent(seen, expected).take(new & calm)).newest()
        return JudgedMoment(model.detector, findings, odd, recent, fitting.filter(~pl.col("node").is_in(sorted(odd))))

    def take(self, judged: JudgedMoment | None) -> list[NodeFinding]:
        """Remember a moment, and return the nodes that were odd at the one before as well."""
        if judged is None:
            return []
        lasting = [finding for finding in judged.findings if finding.node in self._odd_before]
        self._judge, self._recent, self._odd_before = judged.detector, judged.recent, judged.odd
        self._keep(judged.calm)
        return lasting

    def _keep(self, calm: pl.DataFrame) -> None:
        """Remember a moment, as many as a past has, and as there is room for."""
        self._past = [*self._past, calm][-LOOK_BACK:]
        while len(self._past) > 1 and sum(part.height for part in self._past) > _MOST_WINDOWS:
            self._past = self._past[1:]


@dataclass(frozen=True, slots=True)
class UnusualNode:
    """A node with a metric besides its CPUs that is far from what is usual, at a moment that is rare as a whole."""

    node: str
    start: datetime
    score: float  # -log10 of the share of calm moments that are as unusual
    what: str


class LiveMetrics:
    """Looks at the scores of nodes as a whole, one moment after the other; a node is named when it is unusual twice in a row.

    Its threads are left to the detector: here a metric of the node must be far from what is usual.
    """

    def __init__(self, alarm_share: float) -> None:
        self._least = -float(np.log10(alarm_share))
        self._before: frozenset[str] = frozenset()

    def step(self, model: TraceModel, nodes: pl.DataFrame) -> list[UnusualNode]:
        """The nodes that are unusual at this moment and were at the one before; `nodes` are of NODE_SCORE_SCHEMA."""
        if model.hierarchy is None or model.hierarchy.calibrations["node"].windows < FEWEST_CALM:
            return []
        rows = nodes.filter(pl.col("unusual").is_not_null(), pl.col("score") >= self._least)
        lasting = rows.filter(pl.col("node").is_in(sorted(self._before)))
        self._before = frozenset(rows["node"])
        return [
            UnusualNode(
                node=row["node"],
                start=row["window_start"],
                score=row["score"],
                what=f"{METRIC_NAMES[row['unusual']]} {row['now']:.0%}, usually {row['usual']:.0%}",
            )
            for row in lasting.sort("score", descending=True).iter_rows(named=True)
        ]
