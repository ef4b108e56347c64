"""Spans of time behind and above a figure: outages, maintenance, alarms, and time of which there is no data.

TimeSpan -> shaded (behind every row), lanes (bars that tell their words), legend_of. Times are those of the clock on the wall: an
axis of Plotly knows no zones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from stormpetrel.figures.palette import GREEN, GREY, ORANGE, PURPLE, VERMILION
from stormpetrel.figures.waste import label
from stormpetrel.records.outages import OutageKind

OUTAGE, MAINTENANCE, NORMAL = (kind.value for kind in OutageKind)
ALARM: Final = "alarm"
GAP: Final = "gap"
MOST_SHADED: Final = 400  # spans drawn: the longest; a browser draws more of them slowly, and nobody sees them

NAMES: Final = {ALARM: "Alarm", OUTAGE: "Outage", MAINTENANCE: "Maintenance", NORMAL: "Found normal", GAP: "No data"}
COLOURS: Final = {ALARM: ORANGE, OUTAGE: VERMILION, MAINTENANCE: PURPLE, NORMAL: GREEN, GAP: GREY}
_SHADED: Final = {OUTAGE: 0.2, MAINTENANCE: 0.2, GAP: 0.16}  # opacity; alarms and what was found normal have their lane only
_PATTERNS: Final = {MAINTENANCE: "\\", GAP: "/", NORMAL: "."}  # never told by colour alone


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
