"""Figures of the cluster: counts of events against what was expected, outages over time, and where events happened.

Arrays over buckets of time + TimeSpans -> Plotly figures. A bucket without data is a hole in every line and a hatched span, a
zero is a zero. Times are those of the clock on the wall.

The score of each bucket of time against the threshold above which there is an alarm, with outages and alarms as bars above.

Arrays over buckets + TimeSpans -> score_figure. A bucket without a score is a hole in the line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go

from stormpetrel.figures.palette import BLACK, BLUE, GREY, ORANGE, SKY, VERMILION
from stormpetrel.figures.time_axis import (
    LEGEND,
    MOST_POINTS,
    NEAR_PX,
    Numbers,
    Stamps,
    Times,
    TimeSpan,
    edges_of,
    envelope,
    extremes,
    hatched,
    kinds_of,
    lane_axis,
    lanes,
    legend_of,
    numbers_of,
    shaded,
    stamps_of,
)
from stormpetrel.figures.waste import label
from stormpetrel.records.arrays import Flags

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

Edges = tuple[Numbers | None, Numbers | None]  # of a band
_ROW_PX: Final = 62
_BETWEEN_PX: Final = 20
_MARGIN_PX: Final = 75
_BAND: Final = "rgba(86,180,233,0.35)"
_NO_FORECAST: Final = "no forecast"
MOST_TIMES: Final = 5.0  # of the threshold: the top of the axis of scores; what is higher stands at its edge


def counts_height(kinds: int) -> int:
    """How high the figure of so many kinds is, in pixels."""
    return _MARGIN_PX + kinds * (_ROW_PX + _BETWEEN_PX)


def counts_figure(
    times: Times,
    kinds: Sequence[str],
    counts: Numbers,
    *,
    low: Numbers | None = None,
    high: Numbers | None = None,
    alarm: Flags | None = None,
    spans: Sequence[TimeSpan] = (),
    most_points: int = MOST_POINTS,
) -> Figure:
    """One row per kind: its count in each bucket, in the band in which 99 % of calm counts lie.

    `counts`, `low` and `high` are (buckets, kinds), NaN where there is no data or no forecast; `alarm` is (buckets,): there,
    counts outside of the band are marked.
    """
    stamps = stamps_of(times)
    data: list[dict[str, Any]] = []
    axes: dict[str, Any] = {}
    for row, kind in enumerate(kinds):
        count = counts[:, row]
        edges: Edges = (None, None) if low is None or high is None else (low[:, row], high[:, row])
        axis = f"y{row + 1}" if row else "y"
        top = _top(count, edges[1])
        data += hatched(spans, top, yaxis=axis)
        data += _band(stamps, *edges, kind, axis, most_points // 2)
        data.append(_line(stamps, count, kind, axis, most_points, edges))
        data += _lone_points(stamps, count, kind, axis)
        data += _outside(stamps, count, *edges, alarm, kind, axis)
        axes[f"yaxis{row + 1 if row else ''}"] = {
            "domain": _domain(row, len(kinds)), "range": [0, top], "nticks": 3, "tickformat": "~s", "zeroline": True,
            "rangemode": "tozero", "anchor": "x",
        }  # fmt: skip
    data += _count_legend(low is not None) + legend_of(spans)
    bottom = f"y{len(kinds)}" if len(kinds) > 1 else "y"
    return go.Figure(
        data,
        {
            "template": "plotly_white",
            "xaxis": {"type": "date", "anchor": bottom, "range": edges_of(times)},
            **axes,
            "shapes": shaded(spans),
            "annotations": [_row_name(row, kind) for row, kind in enumerate(kinds)],
            "barmode": "overlay",
            "hovermode": "closest",
            "hoverdistance": NEAR_PX,
            "height": counts_height(len(kinds)),
            "margin": {"t": 30, "b": 45, "l": 45, "r": 12},
            "legend": LEGEND,
        },
    )


def outage_timeline(spans: Sequence[TimeSpan]) -> Figure:
    """Outages, maintenance, alarms and gaps as bars on one time line."""
    return go.Figure(
        lanes(spans),
        {
            "template": "plotly_white",
            "title": {"text": "Outages, maintenance and alarms"},
            "xaxis": {"type": "date", "title": {"text": "time"}},
            "yaxis": lane_axis(kinds_of(spans)),
            "barmode": "overlay",
            "hovermode": "closest",
        },
    )


def where_figure(names: Sequence[str], counts: Sequence[float], usual: Sequence[float], *, now: str, before: str) -> Figure:
    """Counts at each place next to what is usual there, the first on top; `now` and `before` say what the bars are."""
    places = list(range(len(names)))
    figure = go.Figure(
        [
            {
                "type": "bar", "orientation": "h", "y": places, "x": list(values), "name": legend, "marker": {"color": colour},
                "customdata": [label(name) for name in names],
                "hovertemplate": f"%{{customdata}}: %{{x:,.0f}} {legend}<extra></extra>",
            }
            for legend, values, colour in ((before, usual, GREY), (now, counts, BLUE))
        ],
        {
            "template": "plotly_white",
            "barmode": "group",
            "bargap": 0.25,
            "margin": {"t": 10, "b": 35, "l": 10, "r": 12},
            "legend": {"orientation": "h", "y": 1.0, "yanchor": "bottom", "traceorder": "reversed"},
            "xaxis": {"rangemode": "tozero", "tickformat": "~s", "nticks": 5},
        },
    )  # fmt: skip
    # Labels stand at positions, so that a node called 1007 is a name and not a number.
    return figure.update_yaxes(
        tickvals=places, ticktext=[label(name) for name in names], autorange="reversed", automargin=True, showgrid=False
    )


def _line(stamps: Stamps, count: Numbers, kind: str, axis: str, most: int, edges: Edges) -> dict[str, Any]:
    places = extremes(count, most)
    line: dict[str, Any] = {
        "type": "scatter", "yaxis": axis, "x": stamps[places], "y": numbers_of(count[places]),
        "mode": "lines", "line": {"color": BLUE, "width": 1.4}, "name": label(kind), "showlegend": False, "connectgaps": False,
        "meta": kind,
    }  # fmt: skip
    if edges[0] is None or edges[1] is None or places.size < count.size:  # on a long axis the words would be half of the page
        return line | {"hovertemplate": f"%{{x}}<br>{label(kind)}: %{{y:,.0f}}<extra></extra>"}
    bands = np.array([_band_text(*pair) for pair in zip(edges[0].tolist(), edges[1].tolist(), strict=True)])
    return line | {
        "customdata": bands,
        "hovertemplate": f"%{{x}}<br>{label(kind)}: %{{y:,.0f}}<br>%{{customdata}}<extra></extra>",
    }


def _band_text(low: float, high: float) -> str:
    return _NO_FORECAST if low != low or high != high else f"expected {low:,.0f} to {high:,.0f}"


def _band(stamps: Stamps, low: Numbers | None, high: Numbers | None, kind: str, axis: str, most: int) -> list[dict[str, Any]]:
    """The band as closed shapes, one for each stretch that was forecast: colour between two lines would run across a gap."""
    if low is None or high is None or np.isnan(low).all():
        return []
    places, lows, highs = envelope(low, high, most)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], ~np.isnan(lows + highs), [0]])))
    x: list[str | None] = []
    y: list[float | None] = []
    for first, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        there = stamps[places[first:end]].tolist()
        x += [*there, *there[::-1], None]
        y += [*numbers_of(highs[first:end]), *numbers_of(lows[first:end][::-1]), None]
    return [
        {
            "type": "scatter", "yaxis": axis, "x": np.array(x, dtype=np.object_), "y": np.array(y, dtype=np.object_),
            "mode": "lines", "line": {"width": 0}, "fill": "toself", "fillcolor": _BAND, "name": f"{label(kind)}, band",
            "hoverinfo": "skip", "showlegend": False,
        }
    ]  # fmt: skip


def _lone_points(stamps: Stamps, count: Numbers, kind: str, axis: str) -> list[dict[str, Any]]:
    """Buckets between two gaps: a line would not show them."""
    known = ~np.isnan(count)
    has_neighbour = np.concatenate([[False], known[:-1]]) | np.concatenate([known[1:], [False]])
    alone = np.flatnonzero(known & ~has_neighbour)
    marker = {"color": BLUE, "size": 4}
    return [_markers(stamps, count, alone, f"{label(kind)}, alone", axis, marker)] if alone.size else []


def _outside(
    stamps: Stamps, count: Numbers, low: Numbers | None, high: Numbers | None, alarm: Flags | None, kind: str, axis: str
) -> list[dict[str, Any]]:
    """The counts of an alarm that lie outside of the band."""
    if low is None or high is None or alarm is None:
        return []
    places = np.flatnonzero(alarm & ((count > high) | (count < low)))
    if not places.size:
        return []
    symbols = ["triangle-up" if above else "triangle-down" for above in (count > high)[places]]
    marker = {"color": VERMILION, "size": 7, "symbol": symbols}
    return [_markers(stamps, count, places, f"{label(kind)}, alarm", axis, marker)]


def _markers(
    stamps: Stamps, values: Numbers, places: npt.NDArray[np.int64], name: str, axis: str, marker: dict[str, Any]
) -> dict[str, Any]:
    return {
        "type": "scatter", "yaxis": axis, "x": stamps[places], "y": numbers_of(values[places]),
        "mode": "markers", "marker": marker, "name": name, "showlegend": False, "hoverinfo": "skip",
    }  # fmt: skip


def _count_legend(with_band: bool) -> list[dict[str, Any]]:
    line: dict[str, Any] = {"type": "scatter", "x": [None], "y": [None], "mode": "lines", "hoverinfo": "skip"}
    band = {**line, "name": "99 % of calm counts", "line": {"color": SKY, "width": 8}}
    return [{**line, "name": "count", "line": {"color": BLUE, "width": 2}}, *([band] if with_band else [])]


def _row_name(row: int, kind: str) -> dict[str, Any]:
    axis = f"y{row + 1}" if row else "y"
    return {
        "text": f"<b>{label(kind)}</b>", "showarrow": False, "xref": "paper", "x": 0, "xanchor": "left",
        "yref": f"{axis} domain", "y": 1, "yanchor": "bottom", "font": {"size": 12},
    }  # fmt: skip


def _domain(row: int, rows: int) -> list[float]:
    whole = rows * (_ROW_PX + _BETWEEN_PX)
    top = 1 - (row * (_ROW_PX + _BETWEEN_PX) + _BETWEEN_PX) / whole
    return [max(0.0, top - _ROW_PX / whole), top]


def _top(count: Numbers, high: Numbers | None) -> float:
    """The top of a row; a row of nothing but zeros has room as well."""
    several = [values[np.isfinite(values)] for values in (count, high) if values is not None]
    return 1.06 * max([1.0, *(float(values.max()) for values in several if values.size)])


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
