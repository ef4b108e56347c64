"""The background of the cluster's events over time: queued jobs, slots, utilisation, health of the storage.

(buckets, names) values + TimeSpans -> background_figure, a row per name on the time axis of the counts. A bucket without a sample
is a hole in its line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import plotly.graph_objects as go

from stormpetrel.figures.palette import GREEN
from stormpetrel.figures.time_axis import (
    LEGEND,
    MOST_POINTS,
    NEAR_PX,
    Numbers,
    Stamps,
    Times,
    TimeSpan,
    edges_of,
    extremes,
    legend_of,
    numbers_of,
    shaded,
    stamps_of,
)
from stormpetrel.figures.waste import label

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_ROW_PX: Final = 70
_BETWEEN_PX: Final = 22
_MARGIN_PX: Final = 75
_ROOM: Final = 0.06  # above and below a line
_THOUSANDS: Final = 1_000  # from here on an axis says 20k; below, half is .5 and not 500m


def background_height(names: int) -> int:
    """How high the figure of so many values is, in pixels."""
    return _MARGIN_PX + names * (_ROW_PX + _BETWEEN_PX)


def background_figure(
    times: Times, names: Sequence[str], values: Numbers, *, spans: Sequence[TimeSpan] = (), most_points: int = MOST_POINTS
) -> Figure:
    """One row per name, each on an axis of its own; alarms, outages and maintenance are shaded behind them."""
    stamps = stamps_of(times)
    rows = range(len(names))
    return go.Figure(
        [_line(stamps, values[:, row], names[row], row, most_points) for row in rows] + legend_of(spans),
        {
            "template": "plotly_white",
            "xaxis": {"type": "date", "anchor": _axis(len(names) - 1), "range": edges_of(times)},
            **{f"yaxis{row + 1 if row else ''}": _scale(values[:, row], row, len(names)) for row in rows},
            "shapes": shaded(spans),
            "annotations": [_row_name(row, names[row]) for row in rows],
            "hovermode": "closest",
            "hoverdistance": NEAR_PX,
            "height": background_height(len(names)),
            "margin": {"t": 30, "b": 45, "l": 45, "r": 12},
            "legend": LEGEND,
        },
    )


def _line(stamps: Stamps, values: Numbers, name: str, row: int, most: int) -> dict[str, Any]:
    places = extremes(values, most)
    known = ~np.isnan(values)
    has_neighbour = np.concatenate([[False], known[:-1]]) | np.concatenate([known[1:], [False]])
    return {
        "type": "scatter", "yaxis": _axis(row), "x": stamps[places], "y": numbers_of(values[places]), "connectgaps": False,
        "mode": "lines+markers" if (known & ~has_neighbour).any() else "lines", "line": {"color": GREEN, "width": 1.4},
        "marker": {"size": 3}, "name": label(name), "showlegend": False, "meta": name,
        "hovertemplate": f"%{{x}}<br>{label(name)}: %{{y:,.4~r}}<extra></extra>",
    }  # fmt: skip


def _scale(values: Numbers, row: int, rows: int) -> dict[str, Any]:
    """From zero, or from below it where a value is."""
    known = values[np.isfinite(values)]
    low, high = (min(0.0, float(known.min())), max(0.0, float(known.max()))) if known.size else (0.0, 1.0)
    room = _ROOM * ((high - low) or 1.0)
    whole = rows * (_ROW_PX + _BETWEEN_PX)
    top = 1 - (row * (_ROW_PX + _BETWEEN_PX) + _BETWEEN_PX) / whole
    return {
        "domain": [max(0.0, top - _ROW_PX / whole), top], "range": [low - room * (low < 0), high + room], "nticks": 3,
        "tickformat": "~s" if high - low >= _THOUSANDS else "~g", "zeroline": True, "anchor": "x",
    }  # fmt: skip


def _row_name(row: int, name: str) -> dict[str, Any]:
    return {
        "text": f"<b>{label(name)}</b>", "showarrow": False, "xref": "paper", "x": 0, "xanchor": "left",
        "yref": f"{_axis(row)} domain", "y": 1, "yanchor": "bottom", "font": {"size": 12},
    }  # fmt: skip


def _axis(row: int) -> str:
    return f"y{row + 1}" if row > 0 else "y"
