"""Figures of capacity: the load of each week with its trend, its forecast and what there is; waits against utilisation.

CapacityPlan -> load_figure, wait_figure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from stormpetrel.events.capacity import CapacityPlan, Outlook
from stormpetrel.events.capacity_words import wait_words
from stormpetrel.events.load_weeks import WEEK
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


def load_figure(plan: CapacityPlan) -> go.Figure:
    """Bars of the load of each week, the line through them and half a year on, the capacity, and where the queue hurts."""
    import plotly.graph_objects as go

    unit = plan.record.unit.value
    figure = go.Figure(layout=layout("Load by week", "week (its Monday)", f"{unit} handed in"))
    weeks = plan.record.weeks
    days, loads = weeks["week"].to_list(), weeks["load"].to_list()
    seen = weeks["seen"].to_list()
    for name, colour, whole in (("load", BLUE, True), ("load, scaled: part of the week was not seen", SKY, False)):
        places = [place for place, load in enumerate(loads) if load is not None and (seen[place] >= _WHOLE) is whole]
        if places:
            figure.add_bar(
                x=[days[place] for place in places], y=[loads[place] for place in places], name=name,
                marker={"color": colour}, customdata=[100 * seen[place] for place in places],
                hovertemplate=f"week of %{{x|%d %b %Y}}: %{{y:,.0f}} {unit}, %{{customdata:.0f}} % seen<extra></extra>",
            )  # fmt: skip
    _draw_forecast(figure, plan)
    _draw_limits(figure, plan)
    figure.update_layout(legend=_LEGEND, hovermode="closest", bargap=0.25, margin={"t": 30, "b": 45, "l": 60, "r": 12})
    return figure.update_yaxes(rangemode="tozero", tickformat="~s")


def wait_figure(plan: CapacityPlan) -> go.Figure:
    """How long people waited, by how much was in use when they came; marked from where on it hurts.

    Waits reach from nothing to days: the axis is logarithmic, and less than a minute stands at a minute.
    """
    import plotly.graph_objects as go

    waits = plan.waits
    figure = go.Figure(layout=layout("Wait against utilisation", "in use when the wait began (%)", "wait"))
    middle = (100 * (waits.low + waits.width / 2)).round(1).tolist()
    spans = [f"{100 * low:.0f} to {100 * (low + waits.width):.0f} % in use" for low in waits.low.tolist()]
    lines: list[tuple[str, Any, dict[str, Any]]] = [
        ("median", waits.median_s, {"color": BLUE, "size": 9}),
        ("one in ten waits longer", waits.p90_s, {"color": ORANGE, "symbol": "diamond", "size": 8}),
    ]
    for name, seconds, marker in lines:
        told = [f"{span}, {hours:,.0f} hours: {wait_words(wait)}" for span, hours, wait in _rows(spans, waits.hours, seconds)]
        figure.add_scatter(
            x=middle, y=np.maximum(seconds, _LEAST_S).tolist(), name=name, mode="lines+markers", customdata=told,
            marker={**marker, "line": {"color": BLACK, "width": 1}}, line={"color": marker["color"], "width": 1.5},
            hovertemplate=f"%{{customdata}} ({name})<extra></extra>",
        )  # fmt: skip
    figure.add_vline(
        x=100 * plan.knee.utilisation, line={"color": VERMILION, "width": 2, "dash": "dash"}, annotation_position="top left",
        annotation_text="waits grow" if plan.knee.learnt else "rule of thumb",
    )  # fmt: skip
    figure.update_layout(legend=_LEGEND, hovermode="closest", margin={"t": 30, "b": 45, "l": 60, "r": 12})
    top = np.log10(1.5 * max([_TICKS["1 h"], *waits.p90_s.tolist()]))
    axis = {"type": "log", "tickvals": list(_TICKS.values()), "ticktext": list(_TICKS), "range": [np.log10(0.8 * _LEAST_S), top]}
    return figure.update_xaxes(range=[0, 101]).update_yaxes(axis)


def _draw_forecast(figure: go.Figure, plan: CapacityPlan) -> None:
    trend, forecast, end = plan.trend, plan.forecast, plan.record.end
    if trend is None or forecast is None or end is None:
        return
    ahead = [end + number * WEEK for number in range(forecast.expected.size)]
    low, high = forecast.low.tolist(), forecast.high.tolist()
    figure.add_scatter(
        x=ahead + ahead[::-1], y=high + low[::-1], fill="toself", fillcolor=_BAND, mode="lines", line={"width": 0},
        name="80 % of the weeks to come", hoverinfo="skip",
    )  # fmt: skip
    places = np.arange(trend.first, forecast.expected.size + 1, dtype=np.float64)
    figure.add_scatter(
        x=[end + (int(place) - 1) * WEEK for place in places], y=trend.at(places).tolist(), mode="lines", name="trend",
        line={"color": BLACK, "width": 2},
        hovertemplate=f"trend, week of %{{x|%d %b %Y}}: %{{y:,.0f}} {plan.record.unit.value}<extra></extra>",
    )  # fmt: skip


def _draw_limits(figure: go.Figure, plan: CapacityPlan) -> None:
    """Level lines as traces, so that the legend names them, over all weeks that are drawn."""
    most, end = plan.weekly_capacity, plan.record.end
    if most is None or end is None:
        return
    days = [plan.record.weeks["week"].item(0), end + (plan.forecast.expected.size if plan.forecast else 0) * WEEK]
    hurts = f"the queue hurts ({100 * plan.knee.utilisation:.0f} % of it)"
    lines: list[tuple[str, float, dict[str, Any]]] = [
        ("capacity", most, {"color": GREY, "width": 2}),
        (hurts, plan.knee.utilisation * most, {"color": VERMILION, "width": 2, "dash": "dash"}),
    ]
    for name, height, line in lines:
        figure.add_scatter(
            x=days, y=[height, height], mode="lines", name=name, line=line, hovertemplate=f"{name}: %{{y:,.0f}}<extra></extra>"
        )
    median = plan.hurts_from[0]
    if plan.outlook is Outlook.DATED and median is not None:
        figure.add_scatter(
            x=[median], y=[plan.knee.utilisation * most], mode="markers", showlegend=False, name="the queue hurts",
            marker={"color": VERMILION, "size": 11, "symbol": "x"},
            hovertemplate="from the week of %{x|%d %b %Y} on<extra></extra>",
        )  # fmt: skip


def _rows(spans: list[str], hours: Any, seconds: Any) -> list[tuple[str, float, float]]:
    return list(zip(spans, hours.tolist(), seconds.tolist(), strict=True))
