"""Windows out of a study of campaigns that its figures are drawn of: on the map of a model, and as each architecture sees them.

TraceStudy -> mapped_windows -> MappedWindows; -> reconstructed_windows -> ReconstructedWindows. Both are for figures alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from stormpetrel.records.traces import MIXED, Rates, job_types_in_order
from stormpetrel.records.window_frames import frame_of
from stormpetrel.records.windows import Windows, join_windows
from stormpetrel.traces.architecture import Architecture, Scorer
from stormpetrel.traces.diagnosis import Trouble, known_bad_io, place
from stormpetrel.traces.separability import PcaMap

if TYPE_CHECKING:
    from stormpetrel.traces.study import TraceStudy


@dataclass(frozen=True, slots=True, eq=False)
class MappedWindows:
    """Test windows on the map of one model: columns of trace scores, what the axes explain, and where Bad IO lies."""

    points: pl.DataFrame
    explained: tuple[float, ...]  # shares of the variance
    bad_io: Trouble | None
    architecture: Architecture


@dataclass(frozen=True, slots=True, eq=False)
class ReconstructedWindows:
    """One window of each job type as it was, and as the first model of each architecture sees it."""

    job_types: tuple[str, ...]  # empty: nobody said the type
    step_s: float
    original: Rates  # (job types, steps, 4)
    by_architecture: Mapping[Architecture, Rates]  # (job types, steps, 4) each


def mapped_windows(study: TraceStudy) -> MappedWindows:
    """The test windows as the first model of the first architecture sees them; the map is fitted on training windows only."""
    architecture, scorer = _first(study)
    chart = PcaMap.fit(scorer.embed(study.split.train.of_normal()))
    bad_io = known_bad_io(scorer, join_windows([study.split.train, study.split.validation]))
    placed = place(scorer, chart, bad_io, study.split.test)
    distance = pl.lit(None, dtype=pl.Float64) if placed.bad_io_distance is None else pl.Series(placed.bad_io_distance)
    points = frame_of(study.split.test, cluster="").select(
        "trace", "node", "cpu", "window_start", "job_id", "job_type",
        x=pl.Series(placed.x), y=pl.Series(placed.y), score=pl.Series(placed.score), max_iowait=pl.Series(placed.max_iowait),
        bad_io_distance=distance,
    )  # fmt: skip
    return MappedWindows(points.filter(pl.col("job_type") != MIXED), tuple(chart.explained), bad_io, architecture)


def reconstructed_windows(study: TraceStudy) -> ReconstructedWindows:
    """Of each job type the test window whose error is the median of its type."""
    rows = _typical(study)
    beside, places = _with_neighbours(study.split.test, list(rows.values()))
    drawn = {kind: models[0].reconstruct(beside)[places] for kind, models in study.scorers.items() if models and rows}
    return ReconstructedWindows(tuple(rows), beside.step_s, beside.rates[places], drawn)


def _first(study: TraceStudy) -> tuple[Architecture, Scorer]:
    architecture = next(kind for kind in Architecture if study.scorers.get(kind))
    return architecture, study.scorers[architecture][0]


def _typical(study: TraceStudy) -> dict[str, int]:
    """The row of one test window per job type: the one whose error is the median of its type."""
    _, scorer = _first(study)
    scores, types = scorer.score(study.split.test), study.split.test.job_types()
    rows = {}
    for job_type in job_types_in_order(set(types.tolist()) - {MIXED}):
        those = np.flatnonzero(types == job_type)
        rows[job_type] = int(those[np.argsort(scores[those], kind="stable")[len(those) // 2]])
    return rows


def _with_neighbours(windows: Windows, rows: list[int]) -> tuple[Windows, list[int]]:
    """The moments on the nodes that some windows belong to, whole, and where among them those windows are."""
    graphs = windows.node_graphs()
    kept = np.flatnonzero(np.isin(graphs, graphs[rows]))
    return windows.take(kept), np.searchsorted(kept, rows).tolist()
