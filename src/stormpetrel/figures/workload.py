"""Figures of workloads, real against synthetic: distributions, the order of arrivals, the rhythm of the week, the scorecard.

name -> Workload (the real one first) -> one Plotly figure each; name -> scorecard's JSON -> scorecard_figure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from stormpetrel.figures.palette import BLACK, GREY, LINE_COLOURS, layout
from stormpetrel.figures.waste import label
from stormpetrel.figures.workload_curves import Numbers, Picture, Workloads, columns_of, picture_of, rising
from stormpetrel.synth.score.fidelity import autocorrelation, hour_of_week

if TYPE_CHECKING:
    import plotly.graph_objects as go

LAGS: Final = 50
GRID_COLUMNS: Final = 3
_ROW_PX: Final = 300
_HOURS: Final = 168
_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_DASHES: Final = ("solid", "dash", "dot", "dashdot")
_COLOURS: Final = tuple(colour for colour in LINE_COLOURS if colour != BLACK)  # black is the real one
_LEGEND: Final = {"orientation": "h", "x": 0, "xanchor": "left", "y": 1.0, "yanchor": "bottom", "font": {"size": 11}}
_MARGIN: Final = {"t": 30, "b": 45, "l": 60, "r": 12}
SHARE: Final = "share of jobs up to this"


def cdf_figure(column: str, workloads: Workloads) -> go.Figure:
    """The distribution of one column in each workload: steps for numbers, bars for categories, ranks for names."""
    picture = picture_of(column, workloads)
    figure = go.Figure(layout=layout(label(picture.words), label(picture.words), _y_label(picture)))
    for place, trace in _traces(picture, tuple(workloads)):
        figure.add_trace(trace.update(legendgroup=str(place)))
    figure.update_xaxes(_x_axis(picture)).update_yaxes(_y_axis(picture))
    return figure.update_layout(legend=_LEGEND, margin=_MARGIN, barmode="group")


def cdf_grid(workloads: Workloads, columns: Sequence[str] | None = None) -> go.Figure:
    """The distribution of every column, each in a field of its own; the legend switches a workload off in all of them."""
    shown = tuple(columns) if columns is not None else columns_of(workloads)
    pictures = [picture_of(column, workloads) for column in shown]
    rows = max(1, -(-len(pictures) // GRID_COLUMNS))
    figure = make_subplots(
        rows=rows, cols=GRID_COLUMNS, subplot_titles=[label(drawn.words) for drawn in pictures],
        vertical_spacing=min(0.12, 0.4 / rows), horizontal_spacing=0.07,
    )  # fmt: skip
    named: set[int] = set()
    for field, picture in enumerate(pictures):
        where: dict[str, Any] = {"row": field // GRID_COLUMNS + 1, "col": field % GRID_COLUMNS + 1}
        for place, trace in _traces(picture, tuple(workloads)):
            figure.add_trace(trace.update(legendgroup=str(place), showlegend=place not in named), **where)
            named.add(place)
        figure.update_xaxes(_x_axis(picture), **where).update_yaxes(_y_axis(picture), **where)
    figure.update_annotations(font_size=13)
    figure.update_layout(layout("Distribution of every column", "", ""), barmode="group", height=rows * _ROW_PX + 80)
    return figure.update_layout(legend={**_LEGEND, "y": 1.0 + 0.1 / rows}, xaxis_title=None, yaxis_title=None)


def acf_figure(workloads: Workloads, *, lags: int = LAGS) -> go.Figure:
    """How much an interval tells about those that follow: the autocorrelation of log(1 + interval) by distance in jobs.

    A generator that draws row by row lies on zero.
    """
    figure = go.Figure(layout=layout("Memory of the intervals", "jobs later (lag)", "autocorrelation of log(1 + interval)"))
    distances = np.arange(1, lags + 1)
    for place, (name, workload) in enumerate(workloads.items()):
        coefficients = np.asarray(autocorrelation(workload.interval_s(), lags), dtype=np.float64)  # (lags,)
        figure.add_scatter(
            x=distances[: coefficients.size], y=_or_none(coefficients), name=label(name), mode="lines", line=_line(place),
            hovertemplate="%{x} jobs later: %{y:.3f}",
        )  # fmt: skip
    figure.add_hline(y=0.0, line={"color": GREY, "width": 1, "dash": "dot"})
    return figure.update_layout(legend=_LEGEND, margin=_MARGIN)


def hour_of_week_figure(workloads: Workloads) -> go.Figure:
    """When in the week jobs are submitted: the share of them in each of its 168 hours, in UTC."""
    figure = go.Figure(layout=layout("Rhythm of the week", "hour of the week (UTC)", "share of jobs (%)"))
    hours = np.arange(_HOURS)
    labels = [f"{_DAYS[hour // 24]} {hour % 24:02d}:00" for hour in hours.tolist()]
    for place, (name, workload) in enumerate(workloads.items()):
        shares = 100 * np.asarray(hour_of_week(workload), dtype=np.float64)  # (168,)
        figure.add_scatter(
            x=hours, y=_or_none(shares), name=label(name), mode="lines", line={**_line(place), "shape": "hv"}, customdata=labels,
            hovertemplate="%{customdata}: %{y:.2f} %",
        )  # fmt: skip
    if not all(log.has_clock for log in workloads.values()):
        text = "A log of intervals has no clock: its hours are counted from its first job, as if that was a Monday at midnight."
        figure.update_layout(title_subtitle_text=text)
    figure.update_xaxes(tickvals=[24 * day for day in range(7)], ticktext=_DAYS, range=[0, _HOURS])
    return figure.update_layout(legend=_LEGEND, margin=_MARGIN).update_yaxes(rangemode="tozero")


def hourly_counts_figure(workloads: Workloads) -> go.Figure:
    """How uneven the load is: the share of hours in which at least so many jobs were submitted. Bursts are on the right."""
    figure = go.Figure(layout=layout("Jobs per hour", "jobs in an hour (at least)", "share of hours"))
    for place, (name, workload) in enumerate(workloads.items()):
        counts = jobs_per_hour(workload.submit_s())
        curve = rising(counts)
        at_least = 1.0 - np.concatenate([[0.0], curve.y[:-1]])  # the share of hours that reach each count
        busy = curve.x >= 1
        figure.add_scatter(
            x=curve.x[busy], y=at_least[busy], name=label(name), mode="lines", line={**_line(place), "shape": "vh"},
            hovertemplate="%{x:,.0f} jobs or more: %{y:.3%} of hours",
        )  # fmt: skip
    figure.update_xaxes(type="log").update_yaxes(type="log", tickformat="~%")
    return figure.update_layout(legend=_LEGEND, margin=_MARGIN)


def scorecard_figure(cards: Mapping[str, Mapping[str, Any]], floor: Mapping[str, Any] | None = None) -> go.Figure:
    """How far each synthetic log is from the real one, figure by figure: 0 is as good as it gets, the floor is two real halves.

    `cards` and `floor` are scorecards as `synth evaluate --json` prints them.
    """
    figure = go.Figure(layout=layout("Distance from the real log", "distance (0 is ideal)", ""))
    for place, (name, card) in enumerate(cards.items()):
        values = distances(card)
        figure.add_bar(
            y=list(values), x=list(values.values()), name=label(name), orientation="h", marker_color=_colour(place + 1),
            hovertemplate="%{y}: %{x:.3f}",
        )  # fmt: skip
    if floor:
        values = distances(floor)
        figure.add_scatter(
            y=list(values), x=list(values.values()), name="floor: two halves of the real log", mode="markers",
            marker={"symbol": "line-ns-open", "size": 16, "color": BLACK, "line": {"width": 2}}, hovertemplate="%{y}: %{x:.3f}",
        )  # fmt: skip
    figure.update_yaxes(autorange="reversed", automargin=True).update_xaxes(range=[0, 1.02])
    return figure.update_layout(legend=_LEGEND, margin=_MARGIN, barmode="group")


def distances(card: Mapping[str, Any]) -> dict[str, float | None]:
    """The figures of a scorecard as distances: 0 is ideal, 1 (where it is cut off) is as bad as it gets; None where unknown."""
    columns = card.get("columns", {})
    named = {f"KS of {label(title)}": _number(columns.get(name, {}).get("ks")) for name, title in _KS.items() if name in columns}
    distances_by_name = {
        **named,
        "lag-1 autocorrelation": _gap(card.get("lag1")),
        "autocorrelation, lags 1–50": _number(card.get("acf_mae")),
        "dispersion of hourly counts": _gap(card.get("dispersion"), relative=True),
        "hour-of-week profile": _number(card.get("hour_profile_tv")),
        "same user as before": _gap(card.get("same_user_share")),
        "told apart by rows (C2ST)": _area(card.get("c2st_row")),
        "told apart by sequences (C2ST)": _area(card.get("c2st_sequence")),
    }
    return {title: None if value is None else min(1.0, value) for title, value in distances_by_name.items()}


_KS: Final = {"interval_s": "interval", "runtime_s": "run time", "cores": "cores"}


def jobs_per_hour(submit_s: Numbers) -> Numbers:
    """(hours,) how many jobs were submitted in each hour from the first submission to the last, empty hours too."""
    if not submit_s.size:
        return np.zeros(0)
    hours, counts = np.unique((submit_s // 3600).astype(np.int64), return_counts=True)
    span = int(hours[-1] - hours[0]) + 1
    empty = span - hours.size
    return np.concatenate([np.zeros(min(empty, 10_000_000)), counts.astype(np.float64)])


def _traces(picture: Picture, names: Sequence[str]) -> list[tuple[int, Any]]:
    """The traces of a picture, each with the place of its workload, which decides its colour."""
    traces: list[tuple[int, Any]] = []
    for place, name in enumerate(names):
        curve = picture.curves.get(name)
        if curve is None:
            continue
        if picture.kind == "shares":
            trace = go.Bar(
                x=curve.x, y=curve.y, name=label(name), marker_color=_colour(place), customdata=_categories(picture),
                hovertemplate="%{customdata}: %{y:.1%}",
            )  # fmt: skip
        else:
            trace = go.Scatter(
                x=curve.x, y=curve.y, name=label(name), mode="lines", line={**_line(place), "shape": "hv"},
                hovertemplate="%{x:,.4~g}: %{y:.1%}",
            )  # fmt: skip
        traces.append((place, trace))
    return traces


def _x_axis(picture: Picture) -> dict[str, Any]:
    if picture.kind == "shares":
        names = _categories(picture)
        return {"tickvals": list(range(len(names))), "ticktext": names, "automargin": True, "tickangle": -30}
    return {"type": "log", "dtick": 1} if picture.log_axis else {}


def _y_axis(picture: Picture) -> dict[str, Any]:
    return {"rangemode": "tozero", "tickformat": ".0%"} | ({} if picture.kind == "shares" else {"range": [0, 1.02]})


def _y_label(picture: Picture) -> str:
    return "share of jobs" if picture.kind == "shares" else SHARE


def _categories(picture: Picture) -> list[str]:
    return [label(name) for name in picture.categories]


def _colour(place: int) -> str:
    return BLACK if place == 0 else _COLOURS[(place - 1) % len(_COLOURS)]


def _line(place: int) -> dict[str, Any]:
    """The real one is black and solid; two lines of one colour, should there be so many, differ in their dashes."""
    dash = "solid" if place == 0 else _DASHES[((place - 1) // len(_COLOURS)) % len(_DASHES)]
    return {"color": _colour(place), "dash": dash, "width": 2.5 if place == 0 else 1.7}


def _or_none(values: Numbers) -> list[float | None]:
    return [None if value != value else value for value in values.tolist()]


def _number(value: Any) -> float | None:
    """A figure, or the mean of one that was measured over seeds."""
    number = value.get("mean") if isinstance(value, Mapping) else value
    return None if number is None else float(number)


def _gap(pair: Any, *, relative: bool = False) -> float | None:
    """How far the synthetic of two figures is from the real one."""
    if not isinstance(pair, Mapping):
        return None
    real, synthetic = _number(pair.get("real")), _number(pair.get("synthetic"))
    if real is None or synthetic is None or (relative and not real):
        return None
    return abs(synthetic - real) / (real if relative else 1.0)


def _area(value: Any) -> float | None:
    """An area under the ROC as a distance: .5 is 0, and 1 is 1; below .5 is as telling as above."""
    area = _number(value)
    return None if area is None else 2 * abs(area - 0.5)
