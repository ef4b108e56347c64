"""Figures of capacity: the load of each week with its trend, its forecast and what there is; waits against utilisation.

Capacity -> load_figure, wait_figure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import plotly.graph_objects as go

from stormpetrel.answers.schemas.cluster import Capacity
from stormpetrel.events.capacity.text import wait_text
from stormpetrel.events.capacity.weeks import WEEK, WEEK_HOURS
from stormpetrel.figures.palette import BLACK, BLUE, GREY, ORANGE, SKY, VERMILION, layout

if TYPE_CHECKING:
    import plotly.graph_objects as go

_BAND: Final = "rgba(86,180,233,0.35)"
_WHOLE: Final = 0.995
_LEAST_S: Final = 60.0
_TICKS: Final = {
    "1 min": 60.0, "10 min": 600.0, "1 h": 3600.0, "6 h": 21_600.0, "1 day": 86_400.0, "1 week": 604_800.0,
}  # fmt: skip
_LEGEND: Final = {"orientation": "h", "x": 0, "xanchor": "left", "y": 1.0, "yanchor": "bottom", "font": {"size": 11}}


def load_figure(answer: Capacity) -> go.Figure:
    """Bars of the load of each week, the line through them and half a year on, the capacity, and where the queue hurts."""
    unit = answer.unit
    figure = go.Figure(layout=layout("Load by week", "week (its Monday)", f"{unit} handed in"))
    for name, colour, whole in (("load", BLUE, True), ("load, scaled: part of the week was not seen", SKY, False)):
        weeks = [week for week in answer.weeks if week.load is not None and (week.seen >= _WHOLE) is whole]
        if weeks:
            figure.add_bar(
                x=[week.week for week in weeks], y=[week.load for week in weeks], name=name,
                marker={"color": colour}, customdata=[100 * week.seen for week in weeks],
                hovertemplate=f"week of %{{x|%d %b %Y}}: %{{y:,.0f}} {unit}, %{{customdata:.0f}} % seen<extra></extra>",
            )  # fmt: skip
    _draw_forecast(figure, answer)
    _draw_limits(figure, answer)
    figure.update_layout(legend=_LEGEND, hovermode="closest", bargap=0.25, margin={"t": 30, "b": 45, "l": 60, "r": 12})
    return figure.update_yaxes(rangemode="tozero", tickformat="~s")


def wait_figure(answer: Capacity) -> go.Figure:
    """How long people waited, by how much was in use when they came; marked from where on it hurts.

    Waits reach from nothing to days: the axis is logarithmic, and less than a minute stands at a minute.
    """
    waits = answer.waits
    figure = go.Figure(layout=layout("Wait against utilisation", "in use when the wait began (%)", "wait"))
    middle = [round(50 * (wait.from_utilisation + wait.to_utilisation), 1) for wait in waits]
    lines: list[tuple[str, list[float], dict[str, Any]]] = [
        ("median", [wait.median_s for wait in waits], {"color": BLUE, "size": 9}),
        ("one in ten waits longer", [wait.p90_s for wait in waits], {"color": ORANGE, "symbol": "diamond", "size": 8}),
    ]
    for name, seconds, marker in lines:
        labels = [
            f"{100 * wait.from_utilisation:.0f} to {100 * wait.to_utilisation:.0f} % in use, {wait.hours:,.0f} hours: "
            f"{wait_text(wait_s)}"
            for wait, wait_s in zip(waits, seconds, strict=True)
        ]
        figure.add_scatter(
            x=middle, y=np.maximum(seconds, _LEAST_S).tolist(), name=name, mode="lines+markers", customdata=labels,
            marker={**marker, "line": {"color": BLACK, "width": 1}}, line={"color": marker["color"], "width": 1.5},
            hovertemplate=f"%{{customdata}} ({name})<extra></extra>",
        )  # fmt: skip
    figure.add_vline(
        x=100 * answer.knee, line={"color": VERMILION, "width": 2, "dash": "dash"}, annotation_position="top left",
        annotation_text="waits grow" if answer.knee_learnt else "rule of thumb",
    )  # fmt: skip
    figure.update_layout(legend=_LEGEND, hovermode="closest", margin={"t": 30, "b": 45, "l": 60, "r": 12})
    top = np.log10(1.5 * max([_TICKS["1 h"], *(wait.p90_s for wait in waits)]))
    axis = {"type": "log", "tickvals": list(_TICKS.values()), "ticktext": list(_TICKS), "range": [np.log10(0.8 * _LEAST_S), top]}
    return figure.update_xaxes(range=[0, 101]).update_yaxes(axis)


def _draw_forecast(figure: go.Figure, answer: Capacity) -> None:
    if not answer.forecast:
        return
    ahead = [week.week for week in answer.forecast]
    low, high = [week.low for week in answer.forecast], [week.high for week in answer.forecast]
    figure.add_scatter(
        x=ahead + ahead[::-1], y=high + low[::-1], fill="toself", fillcolor=_BAND, mode="lines", line={"width": 0},
        name="80 % of the weeks to come", hoverinfo="skip",
    )  # fmt: skip
    line = [(week.week, week.trend) for week in answer.weeks if week.trend is not None]
    line += [(week.week, week.expected) for week in answer.forecast]
    figure.add_scatter(
        x=[day for day, _ in line], y=[height for _, height in line], mode="lines", name="trend",
        line={"color": BLACK, "width": 2},
        hovertemplate=f"trend, week of %{{x|%d %b %Y}}: %{{y:,.0f}} {answer.unit}<extra></extra>",
    )  # fmt: skip


def _draw_limits(figure: go.Figure, answer: Capacity) -> None:
    """Level lines as traces, so that the legend names them, over all weeks that are drawn."""
    if answer.capacity is None or not answer.weeks:
        return
    most = answer.capacity * WEEK_HOURS
    days = [answer.weeks[0].week, (answer.forecast or answer.weeks)[-1].week + WEEK]
    hurts = f"the queue hurts ({100 * answer.knee:.0f} % of it)"
    lines: list[tuple[str, float, dict[str, Any]]] = [
        ("capacity", most, {"color": GREY, "width": 2}),
        (hurts, answer.knee * most, {"color": VERMILION, "width": 2, "dash": "dash"}),
    ]
    for name, height, line in lines:
        figure.add_scatter(
            x=days, y=[height, height], mode="lines", name=name, line=line, hovertemplate=f"{name}: %{{y:,.0f}}<extra></extra>"
        )
    if answer.hurts_from is not None:
        figure.add_scatter(
            x=[answer.hurts_from], y=[answer.knee * most], mode="markers", showlegend=False, name="the queue hurts",
            marker={"color": VERMILION, "size": 11, "symbol": "x"},
            hovertemplate="from the week of %{x|%d %b %Y} on<extra></extra>",
        )  # fmt: skip
