"""The score of each bucket of time against the threshold above which there is an alarm, with outages and alarms as bars above.

Arrays over buckets + TimeSpans -> score_figure. A bucket without a score is a hole in the line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go

from stormpetrel.figures.palette import BLACK, BLUE, ORANGE, VERMILION
from stormpetrel.figures.thinning import extremes
from stormpetrel.figures.time_axis import (
    LEGEND,
    MOST_POINTS,
    NEAR_PX,
    Flags,
    Numbers,
    Stamps,
    Times,
    edges_of,
    numbers_of,
    stamps_of,
)
from stormpetrel.figures.time_spans import TimeSpan, kinds_of, lane_axis, lanes, shaded

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

MOST_TIMES: Final = 5.0  # of the threshold: the top of the axis of scores; what is higher stands at its edge


def score_figure(
    times: Times,
    score: Numbers,
    threshold: Numbers,
    alarm: Flags,
    *,
    spans: Sequence[TimeSpan] = (),
    most_points: int = MOST_POINTS,
) -> Figure:
    """The score of each bucket against the threshold (all (buckets,)), alarms marked, and the spans as bars above."""
    stamps = stamps_of(times)
    top = _score_top(score, threshold)
    kinds = kinds_of(spans)
    split = 1 - min(0.6, 0.085 * len(kinds))
    data = [*lanes(spans, yaxis="y2"), *_score_lines(stamps, score, threshold, top, most_points)]
    data += _alarms(stamps, score, alarm, top)  # the lanes are the legend of the spans
    return go.Figure(
        data,
        {
            "template": "plotly_white",
            "xaxis": {"type": "date", "anchor": "y", "range": edges_of(times)},
            "yaxis": {"domain": [0, split - 0.03 if kinds else 1], "range": _score_range(score, top), "title": {"text": "score"}},
            **({"yaxis2": {**lane_axis(kinds), "domain": [split, 1], "anchor": "x"}} if kinds else {}),
            "shapes": shaded(spans),
            "barmode": "overlay",
            "hovermode": "closest",
            "hoverdistance": NEAR_PX,
            "margin": {"t": 30, "b": 45, "l": 60, "r": 12},
            "legend": LEGEND,
        },
    )


def _score_lines(stamps: Stamps, score: Numbers, threshold: Numbers, top: float, most: int) -> list[dict[str, Any]]:
    places = extremes(score, most)
    shown = np.minimum(score[places], top)
    steps = _steps(threshold)
    return [
        {
            "type": "scatter", "x": stamps[places], "y": numbers_of(shown), "mode": "lines", "name": "score",
            "line": {"color": BLUE, "width": 1.4}, "connectgaps": False, "customdata": numbers_of(score[places]),
            "hovertemplate": "%{x}<br>score %{customdata:.3g}<extra></extra>",
        },
        {
            "type": "scatter", "x": stamps[steps], "y": numbers_of(threshold[steps]), "mode": "lines",
            "name": "threshold", "line": {"color": BLACK, "width": 1.2, "dash": "dash", "shape": "hv"},
            "hovertemplate": "threshold %{y:.3g}<extra></extra>",
        },
    ]  # fmt: skip


def _alarms(stamps: Stamps, score: Numbers, alarm: Flags, top: float) -> list[dict[str, Any]]:
    places = np.flatnonzero(alarm)
    if not places.size:
        return []
    higher = (score > top)[places]
    return [
        {
            "type": "scatter", "x": stamps[places], "y": numbers_of(np.minimum(score, top)[places]),
            "mode": "markers", "name": "alarm", "customdata": numbers_of(score[places]),
            "marker": {
                "color": ORANGE, "size": 8, "line": {"color": VERMILION, "width": 1.5},
                "symbol": ["triangle-up" if is_higher else "circle" for is_higher in higher],
            },
            "hovertemplate": "%{x}<br>alarm, score %{customdata:.3g}<extra></extra>",
        }
    ]  # fmt: skip


def _steps(values: Numbers) -> npt.NDArray[np.int64]:
    """Where a line of steps changes: the first, the last, and those around each change."""
    if values.size < 3:
        return np.arange(values.size)
    changes = np.flatnonzero(~((values[1:] == values[:-1]) | (np.isnan(values[1:]) & np.isnan(values[:-1]))))
    return np.unique(np.concatenate([[0], changes, changes + 1, [values.size - 1]]))


def _score_top(score: Numbers, threshold: Numbers) -> float:
    """The top of the axis: a severe outage may score a hundred times the threshold, and would flatten all the rest."""
    finite = score[np.isfinite(score)]
    highest = float(finite.max()) if finite.size else 1.0
    limits = threshold[np.isfinite(threshold) & (threshold > 0)]
    return min(highest, MOST_TIMES * float(limits.max())) if limits.size else highest


def _score_range(score: Numbers, top: float) -> list[float]:
    finite = score[np.isfinite(score)]
    lowest = min(0.0, float(finite.min())) if finite.size else 0.0
    return [lowest, top + 0.08 * max(1e-9, top - lowest)]
