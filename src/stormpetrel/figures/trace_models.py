"""Figures of the trace models: what a network makes of a trace, how far off it is, and where windows lie on its map.

Plain arrays and frames of scores -> Plotly figures.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from stormpetrel.figures.palette import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    LINE_COLOURS,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
    YELLOW,
    layout,
)
from stormpetrel.figures.waste import label
from stormpetrel.records.traces import KNOWN_TYPES, MODES, job_types_in_order

if TYPE_CHECKING:
    import polars as pl
    from plotly.graph_objects import Figure

Numbers = npt.NDArray[np.float32] | npt.NDArray[np.float64]

UNKNOWN_LABEL: Final = "type unknown"
MOST_POINTS: Final = 20_000  # on one map: more would make a page slow and add nothing to see
_COLOURS: Final = dict(zip(KNOWN_TYPES, (BLUE, VERMILION, GREEN, PURPLE, ORANGE, GREY, YELLOW, BLACK), strict=True))
_SYMBOLS: Final = ("circle", "x", "diamond", "square", "triangle-up", "cross", "star", "pentagon")
_MODE_COLOURS: Final = dict(zip(MODES, (BLUE, GREEN, VERMILION, GREY), strict=True))
_DASHES: Final = ("dash", "dot", "dashdot")
_TEMPLATE: Final = "plotly_white"


def job_type_style(job_types: Iterable[str]) -> dict[str, dict[str, str]]:
    """Colour, symbol and words of each job type; the known ones always have the same, whatever else there is."""
    styles: dict[str, dict[str, str]] = {}
    others = 0
    for place, job_type in enumerate([*_COLOURS, *sorted(set(job_types) - set(_COLOURS))]):
        colour = _COLOURS.get(job_type)
        if colour is None:
            colour, others = (SKY, *LINE_COLOURS)[others % (1 + len(LINE_COLOURS))], others + 1
        text = label(job_type) if job_type else UNKNOWN_LABEL
        styles[job_type] = {"color": colour, "symbol": _SYMBOLS[place % len(_SYMBOLS)], "name": text}
    return styles


def map_axes(explained: Sequence[float]) -> tuple[str, str]:
    """The names of the two axes of a map, with the share of the variance that each explains."""
    first, second = (f"PC {number} ({share:.1%} of the variance)" for number, share in enumerate(explained[:2], 1))
    return first, second


def trace_map(points: pl.DataFrame, *, title: str = "Map of windows", axes: tuple[str, str] = ("PC 1", "PC 2")) -> Figure:
    """Where windows lie on a model's map, coloured by job type (Fig. 4a): columns `x`, `y`, `job_type`.

    Whatever else the frame has (score, node, cpu, window_start, job_id) is told when a point is pointed at, and `customdata`
    holds `row`, the number of the point in the frame, for a page that wants to know which one was picked.
    """
    figure = go.Figure(layout=layout(title, axes[0], axes[1]))
    known = points.with_row_index("row").drop_nulls(["x", "y"])
    shown = known if known.height <= MOST_POINTS else known.gather_every(-(-known.height // MOST_POINTS))
    styles = job_type_style(shown["job_type"].to_list())
    for job_type in job_types_in_order(shown["job_type"].to_list()):
        rows = shown.filter(job_type=job_type)
        style = styles[job_type]
        figure.add_scattergl(
            x=rows["x"].to_list(), y=rows["y"].to_list(), mode="markers", name=style["name"], text=_hover_texts(rows),
            customdata=rows["row"].to_list(), hovertemplate="%{text}<extra>%{fullData.name}</extra>",
            marker={"color": style["color"], "symbol": style["symbol"], "size": 6, "opacity": 0.7},
        )  # fmt: skip
    return figure.update_layout(legend_title_text="job type", showlegend=True)


def iowait_diagnosis(
    points: pl.DataFrame,
    *,
    title: str = "Windows that lie near Bad IO",
    near: float | None = None,
    high: float | None = None,
) -> Figure:
    """Maximum iowait against the distance to the centroid of Bad IO (Fig. 4b): `bad_io_distance`, `max_iowait`, `job_type`.

    `near` and `high` draw the limits of the region that means trouble.
    """
    figure = go.Figure(layout=layout(title, "distance to the centre of Bad IO", "largest share of iowait in the window"))
    known = points.with_row_index("row").drop_nulls(["bad_io_distance", "max_iowait"])
    styles = job_type_style(known["job_type"].to_list())
    for job_type in job_types_in_order(known["job_type"].to_list()):
        rows = known.filter(job_type=job_type)
        style = styles[job_type]
        figure.add_scattergl(
            x=rows["bad_io_distance"].to_list(), y=rows["max_iowait"].to_list(), mode="markers", name=style["name"],
            text=_hover_texts(rows), customdata=rows["row"].to_list(), hovertemplate="%{text}<extra>%{fullData.name}</extra>",
            marker={"color": style["color"], "symbol": style["symbol"], "size": 6, "opacity": 0.7},
        )  # fmt: skip
    if near is not None:
        figure.add_vline(x=near, line={"color": BLACK, "dash": "dash"}, annotation_text="near", annotation_position="top left")
    if high is not None:
        figure.add_hline(y=high, line={"color": BLACK, "dash": "dot"}, annotation_text="high", annotation_position="top right")
    figure.update_xaxes(rangemode="tozero")
    return figure.update_yaxes(range=[-0.02, 1.02]).update_layout(showlegend=True)


def trace_reconstruction(time: Sequence[Any], original: Numbers, reconstructed: Numbers, title: str) -> Figure:
    """A window of one thread and what a model makes of it: one row per mode, `(steps, 4)` each."""
    figure = make_subplots(rows=len(MODES), cols=1, shared_xaxes=True, vertical_spacing=0.04, row_titles=list(MODES))
    for place, mode in enumerate(MODES):
        lines = (
            ("original", original, {"color": _MODE_COLOURS[mode]}),
            ("reconstruction", reconstructed, {"color": BLACK, "dash": "dot"}),
        )
        for name, values, line in lines:
            figure.add_scatter(
                x=list(time), y=values[:, place].tolist(), mode="lines", line={**line, "width": 2}, name=name, legendgroup=name,
                showlegend=place == 0, hovertemplate=f"{mode} %{{y:.3f}}<extra>{name}</extra>", row=place + 1, col=1,
            )  # fmt: skip
    figure.update_yaxes(range=[-0.04, 1.04], tickvals=[0, 1])
    figure.update_xaxes(title_text="time", row=len(MODES), col=1)
    return figure.update_layout(template=_TEMPLATE, title=escape(title, quote=False))


def reconstructions(
    originals: Mapping[str, Numbers], by_model: Mapping[str, Mapping[str, Numbers]], *, step_s: float = 1.0, mode: str = "user"
) -> Figure:
    """One mode of several threads as it was and as several models see it (Fig. 2).

    `originals[thread]` and `by_model[model][thread]` are `(steps,)`; a thread is one row.
    """
    figure = make_subplots(rows=max(1, len(originals)), cols=1, shared_xaxes=True, vertical_spacing=0.03)
    for row, (thread, values) in enumerate(originals.items(), 1):
        time = (np.arange(values.size) * step_s).tolist()
        figure.add_scatter(
            x=time, y=values.tolist(), mode="lines", line={"color": BLACK, "width": 2}, name="original", legendgroup="original",
            showlegend=row == 1, row=row, col=1,
        )  # fmt: skip
        for place, (model, reconstructed) in enumerate(by_model.items()):
            style = {"color": (VERMILION, BLUE, GREEN, PURPLE)[place % 4], "dash": _DASHES[place % 3], "width": 1.5}
            figure.add_scatter(
                x=time, y=reconstructed[thread].tolist(), mode="lines", line=style, name=model, legendgroup=model,
                showlegend=row == 1, row=row, col=1,
            )  # fmt: skip
        figure.update_yaxes(title_text=label(thread), range=[-0.04, 1.04], tickvals=[0, 1], row=row, col=1)
    figure.update_xaxes(title_text="time (s)", row=max(1, len(originals)), col=1)
    return figure.update_layout(template=_TEMPLATE, title=f"Original and reconstructed traces: {mode}")


def error_by_job_type(errors: Mapping[str, Mapping[str, Sequence[float]]], *, threshold: float | None = None) -> Figure:
    """Reconstruction error of test windows per job type, on a log axis (Fig. 3): `errors[model][job type]` are scores."""
    figure = go.Figure(layout=layout("Reconstruction error per job type", "job type", "reconstruction error (mean squared)"))
    for place, (model, by_type) in enumerate(errors.items()):
        types = job_types_in_order(by_type)
        names = [label(job_type) if job_type else UNKNOWN_LABEL for job_type in types]
        figure.add_box(
            x=[name for name, job_type in zip(names, types, strict=True) for _ in by_type[job_type]],
            y=[max(float(score), 1e-9) for job_type in types for score in by_type[job_type]],  # a log axis has no zero
            name=model, marker={"color": LINE_COLOURS[place % len(LINE_COLOURS)], "size": 3}, boxpoints="outliers",
            line_width=1.5,
        )  # fmt: skip
    if threshold is not None:
        figure.add_hline(y=threshold, line={"color": BLACK, "dash": "dash"}, annotation_text="threshold")
    figure.update_yaxes(type="log", dtick=1, exponentformat="power")
    return figure.update_layout(boxmode="group", showlegend=len(errors) > 1)


def node_heat_map(nodes: Sequence[str], times: Sequence[Any], scores: Numbers, threshold: float | None = None) -> Figure:
    """Nodes over time, coloured by score `(nodes, times)`; a gap is a window that nobody scored."""
    return _heat_map(nodes, times, scores, threshold, "Score of each node", "node")


def _heat_map(
    names: Sequence[str], times: Sequence[Any], scores: Numbers, threshold: float | None, title: str, of: str
) -> Figure:
    """On a log scale that ends at ten times the threshold: calm windows differ by orders of magnitude, and nobody cares."""
    figure = go.Figure(layout=layout(title, "beginning of the window (UTC)", of))
    values = np.asarray(scores, dtype=np.float64).reshape(len(names), len(times))
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log10(np.maximum(values, 1e-9))
    seen = logs[np.isfinite(logs)]
    level = np.log10(max(threshold, 1e-9)) if threshold is not None else (float(seen.max()) if seen.size else 0.0)
    low, high = level - 2.0, level + 1.0
    ticks = [low, level - 1.0, level, high]
    written = [f"{10**tick:.2g}" + (" (threshold)" if threshold is not None and tick == level else "") for tick in ticks]
    figure.add_heatmap(
        x=list(times), y=list(range(len(names))), z=_gaps_as_none(logs), zmin=low, zmax=high, colorscale="Cividis",
        xgap=1, ygap=1, hoverongaps=False, customdata=_gaps_as_none(values),
        text=[[label(name)] * len(times) for name in names],
        hovertemplate="%{text}, %{x}: score %{customdata:.4g}<extra></extra>",
        colorbar={"title": {"text": "score"}, "tickvals": ticks, "ticktext": written},
    )  # fmt: skip
    # Labels stand at positions, so that a node called 1007 is a name and not a number.
    figure.update_yaxes(
        tickvals=list(range(len(names))), ticktext=[label(name) for name in names], autorange="reversed", automargin=True
    )
    return figure


def _gaps_as_none(values: Numbers) -> list[list[float | None]]:
    return [[float(value) if np.isfinite(value) else None for value in row] for row in values]


def _hover_texts(rows: pl.DataFrame) -> list[str]:
    """What is said of each point: where, when, whose, and how far off."""
    columns = {
        "node": "node {}",
        "cpu": "cpu {}",
        "job_id": "job {}",
        "window_start": "{}",
        "score": "score {:.4g}",
        "max_iowait": "iowait up to {:.2f}",
    }
    names = [name for name in columns if name in rows.columns]
    return [
        "<br>".join(
            escape(columns[name].format(value)[:80], quote=False)
            for name, value in zip(names, row, strict=True)
            if value is not None
        )
        for row in rows.select(names).iter_rows()
    ]
