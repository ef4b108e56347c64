"""A time axis: times, numbers and a legend as Plotly takes them quickly.

arrays over buckets of time -> stamps_of, numbers_of, edges_of.

Fewer points for a line, without losing what the eye sees: of each column of pixels its lowest and its highest point.

values over time -> extremes (which points to draw), envelope (the band around them). A hole in the line stays a hole.

Spans of time behind and above a figure: outages, maintenance, alarms, and time of which there is no data.

TimeSpan -> shaded (behind every row), lanes (bars that tell their words), legend_of. Times are those of the clock on the wall: an
axis of Plotly knows no zones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from stormpetrel.figures.palette import GREEN, GREY, ORANGE, PURPLE, VERMILION
from stormpetrel.figures.waste import label
from stormpetrel.records.outages import OutageKind

Numbers = npt.NDArray[np.float64]
Times = npt.NDArray[np.datetime64]
Stamps = npt.NDArray[np.str_]
MOST_POINTS: Final = 1_000  # of a line: the lowest and the highest of each column of pixels or two
NEAR_PX: Final = 60  # a click this near to a line is meant for it
LEGEND: Final[dict[str, Any]] = {
    "orientation": "h", "x": 0, "xanchor": "left", "y": 1.0, "yanchor": "bottom", "font": {"size": 11}, "traceorder": "normal",
}  # fmt: skip
Values = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]
OUTAGE, MAINTENANCE, NORMAL = (kind.value for kind in OutageKind)
ALARM: Final = "alarm"
GAP: Final = "gap"
MOST_SHADED: Final = 400  # spans drawn: the longest; a browser draws more of them slowly, and nobody sees them
NAMES: Final = {ALARM: "Alarm", OUTAGE: "Outage", MAINTENANCE: "Maintenance", NORMAL: "Found normal", GAP: "No data"}
COLOURS: Final = {ALARM: ORANGE, OUTAGE: VERMILION, MAINTENANCE: PURPLE, NORMAL: GREEN, GAP: GREY}
_SHADED: Final = {OUTAGE: 0.2, MAINTENANCE: 0.2, GAP: 0.16}  # opacity; alarms and what was found normal have their lane only
_PATTERNS: Final = {MAINTENANCE: "\\", GAP: "/", NORMAL: "."}  # never told by colour alone


def edges_of(times: Times) -> list[str] | None:
    """From the first bucket to the end of the last."""
    if not times.size:
        return None
    step = times[1] - times[0] if times.size > 1 else np.timedelta64(0, "s")
    return [str(text) for text in stamps_of(np.array([times[0], times[-1] + step]))]


def stamps_of(times: Times) -> Stamps:
    """Times as an axis takes them. An array, not a list: Plotly looks at every element of a list, and a year has many."""
    return np.array([text.replace("T", " ") for text in np.datetime_as_string(times, unit="m").tolist()], dtype=np.str_)


def numbers_of(values: Numbers) -> npt.NDArray[np.object_]:
    """Numbers as JSON says them, null where there is none; as an array of numbers they would be missing from downloads."""
    return np.array([None if value != value else value for value in np.round(values, 3).tolist()], dtype=np.object_)


def extremes(values: Values, most: int) -> Places:
    """Which points of a line to draw, in order: at most about `most`, among them every peak; NaN where the line is broken.

    >>> extremes(np.array([1.0, 9.0, 2.0, 3.0, np.nan, 3.0, 3.0, 0.0]), 4).tolist()
    [0, 1, 4, 5, 7]
    """
    if values.size <= most:
        return np.arange(values.size)
    rows = _columns(values, most // 2)  # (columns, points of each)
    first = np.arange(rows.shape[0]) * rows.shape[1]
    broken = np.isnan(rows)
    lowest = first + np.where(broken, np.inf, rows).argmin(axis=1)
    highest = first + np.where(broken, -np.inf, rows).argmax(axis=1)
    holes = (first + broken.argmax(axis=1))[broken.any(axis=1)]
    places = np.unique(np.concatenate([lowest, highest, holes]))
    return places[places < values.size]


def envelope(low: Values, high: Values, most: int) -> tuple[Places, Values, Values]:
    """A band in at most `most` columns: where each begins, its lowest and its highest edge; NaN where there is no band."""
    if low.size <= most:
        return np.arange(low.size), low, high
    lows, highs = _columns(low, most), _columns(high, most)
    nothing = np.isnan(lows).all(axis=1)
    edges = (np.where(np.isnan(lows), np.inf, lows).min(axis=1), np.where(np.isnan(highs), -np.inf, highs).max(axis=1))
    places = np.arange(lows.shape[0]) * lows.shape[1]
    return places, *(np.where(nothing, np.nan, edge) for edge in edges)


def _columns(values: Values, most: int) -> Values:
    """(columns, points): the values in rows of equal length, the last one filled up with NaN."""
    width = -(-values.size // max(1, most))
    count = -(-values.size // width)
    padded = np.full(count * width, np.nan)
    padded[: values.size] = values
    return padded.reshape(count, width)


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """A stretch of the time axis that has a meaning."""

    start: datetime  # by the clock on the wall, without a zone
    end: datetime
    kind: str  # OUTAGE, MAINTENANCE, NORMAL, ALARM or GAP
    words: str = ""  # its title or its reason, hostile text


def kinds_of(spans: Sequence[TimeSpan]) -> list[str]:
    """The kinds that there are, in the order of NAMES."""
    kinds = {span.kind for span in spans}
    return [kind for kind in NAMES if kind in kinds]


def drawn(spans: Sequence[TimeSpan], most: int = MOST_SHADED) -> list[TimeSpan]:
    """The spans that are drawn: all, or the longest where there are too many, in the order of time."""
    longest = sorted(spans, key=lambda span: span.start - span.end)[:most]
    return sorted(longest, key=lambda span: span.start)


def shaded(spans: Sequence[TimeSpan]) -> list[dict[str, Any]]:
    """Shapes that shade outages, maintenance and gaps behind all rows of a figure."""
    return [
        {
            "type": "rect", "xref": "x", "yref": "paper", "x0": _stamp(span.start), "x1": _stamp(span.end), "y0": 0, "y1": 1,
            "fillcolor": COLOURS[span.kind], "opacity": _SHADED[span.kind], "layer": "below",
            "line": {"width": 1, "color": COLOURS[span.kind]},
        }
        for span in drawn([span for span in spans if span.kind in _SHADED])
    ]  # fmt: skip


def lanes(spans: Sequence[TimeSpan], *, yaxis: str = "y", names: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """One trace of bars per kind of span, each in a lane of its own; a bar tells its words."""
    return [_lane(spans, kind, yaxis) for kind in (kinds_of(spans) if names is None else names)]


def lane_axis(kinds: Sequence[str]) -> dict[str, Any]:
    """The axis of the lanes: one line per kind, the first on top."""
    return {
        "type": "category", "categoryorder": "array", "categoryarray": [NAMES[kind] for kind in reversed(kinds)],
        "showgrid": False, "zeroline": False, "fixedrange": True, "automargin": True,
    }  # fmt: skip


def hatched(spans: Sequence[TimeSpan], height: float, *, yaxis: str = "y") -> list[dict[str, Any]]:
    """Bars as high as a row where there is no data; each tells why. Nothing where there are no gaps."""
    gaps = drawn([span for span in spans if span.kind == GAP])
    if not gaps:
        return []
    return [
        {
            "type": "bar", "yaxis": yaxis, "x": [_stamp(gap.start + (gap.end - gap.start) / 2) for gap in gaps],
            "width": [_milliseconds(gap) for gap in gaps], "y": [height] * len(gaps), "hovertext": [_hover(gap) for gap in gaps],
            "hovertemplate": "%{hovertext}<extra></extra>", "showlegend": False, "name": NAMES[GAP],
            "marker": {
                "color": "rgba(0,0,0,0)", "line": {"width": 0},
                "pattern": {"shape": "/", "fgcolor": GREY, "size": 7, "solidity": 0.25},
            },
        }
    ]  # fmt: skip


def legend_of(spans: Sequence[TimeSpan], *, only: Sequence[str] = tuple(_SHADED)) -> list[dict[str, Any]]:
    """Entries of the legend for the spans that are shaded: traces without a point."""
    return [
        {
            "type": "scatter", "x": [None], "y": [None], "mode": "markers", "name": NAMES[kind], "hoverinfo": "skip",
            "marker": {"symbol": "square", "size": 11, "color": COLOURS[kind], "opacity": 0.55},
        }
        for kind in kinds_of(spans)
        if kind in only
    ]  # fmt: skip


def _lane(spans: Sequence[TimeSpan], kind: str, yaxis: str) -> dict[str, Any]:
    own = drawn([span for span in spans if span.kind == kind])
    colour = COLOURS[kind]
    return {
        "type": "bar", "orientation": "h", "yaxis": yaxis, "name": NAMES[kind], "y": [NAMES[kind]] * len(own),
        "base": [_stamp(span.start) for span in own], "x": [_milliseconds(span) for span in own], "width": 0.7,
        "hovertext": [_hover(span) for span in own], "hovertemplate": "%{hovertext}<extra></extra>", "showlegend": False,
        # The line keeps an hour of a year visible.
        "marker": {"color": colour, "line": {"color": colour, "width": 1.5}, "pattern": {"shape": _PATTERNS.get(kind, "")}},
    }  # fmt: skip


def _hover(span: TimeSpan) -> str:
    """What a span tells: its kind, when, and its title or reason."""
    same_day = span.start.date() == span.end.date()
    when = f"{span.start:%d %b %Y %H:%M} to {span.end:{'%H:%M' if same_day else '%d %b %H:%M'}}"
    return f"{NAMES[span.kind]}, {when}" + (f"<br>{label(span.words)}" if span.words else "")


def _stamp(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S}"


def _milliseconds(span: TimeSpan) -> int:
    return round((span.end - span.start) / timedelta(milliseconds=1))
