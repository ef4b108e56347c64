"""Figures of nodes: the map of all nodes, the threads of a window next to each other, and what makes figures clickable.

arrays -> thread_modes; a figure of trace_models -> as_svg (points with their keys), framed_cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from math import ceil, sqrt
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go

from stormpetrel.figures.palette import BLACK, layout
from stormpetrel.figures.waste import label

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from stormpetrel.answers.schemas.health import NowNode


def thread_modes(names: Sequence[str], times: Sequence[Any], shares: npt.NDArray[np.float32], mode: str) -> Figure:
    """One mode of several threads over time as colour: `shares` (threads, steps) from 0 to 1; names differ."""
    figure = go.Figure(layout=layout("", "time", ""))
    figure.add_heatmap(
        x=list(times), y=[label(name) for name in names], z=shares, zmin=0, zmax=1, colorscale="Cividis", ygap=1,
        hovertemplate=f"%{{y}}, %{{x}}: {mode} %{{z:.2f}}<extra></extra>",
        colorbar={"title": {"text": mode}, "thickness": 12, "outlinewidth": 0, "tickformat": ".0%"},
    )  # fmt: skip
    return figure.update_yaxes(type="category", autorange="reversed", automargin=True)


def as_svg(figure: Figure, keys: Sequence[str]) -> dict[str, Any]:
    """A map of points as vector graphics, each point with its key in place of its row; as JSON, for a page.

    Some thousands are no trouble for a browser, a remote desktop often has no WebGL, and the theme can colour them.
    """
    drawn: dict[str, Any] = figure.to_plotly_json()
    for trace in drawn["data"]:
        trace["type"] = trace["type"].removesuffix("gl")
        trace["customdata"] = [keys[row] for row in trace["customdata"]]
    return drawn


def framed_cells(figure: Figure, rows: Sequence[int], columns: Sequence[int]) -> Figure:
    """A frame around the cells of a heat map that are chosen: rows and columns that lie side by side, by their numbers."""
    if not rows or not columns:
        return figure
    times = figure.data[0].x
    first, last = (columns[0] - 0.5, columns[-1] + 0.5)
    if not isinstance(times[0], str):  # on an axis of time, cells stand around their times
        half = (times[1] - times[0]) / 2 if len(times) > 1 else timedelta(0)
        first, last = times[columns[0]] - half, times[columns[-1]] + half
    return figure.add_shape(
        type="rect", x0=first, x1=last, y0=rows[0] - 0.5, y1=rows[-1] + 0.5, line={"color": BLACK, "width": 2}, layer="above"
    )


ROW_PX: Final = 26
_WIDEST: Final = 3.0  # as many times more columns than rows
_MOST_COLUMNS: Final = 8  # of small sites
_MOST_NAMED: Final = 40  # nodes whose names fit into their cells
_MOST_APART: Final = 1_000  # nodes between whose cells there is room for a line
_INCIDENT: Final = 1.0  # a node that an open incident is about is as bad as can be
_SCALE: Final = [[0.0, "#cfe3ef"], [0.15, "#f5e3b3"], [0.5, "#e69f00"], [1.0, "#d55e00"]]


def node_map(nodes: Sequence[NowNode]) -> Figure:
    """The share of failed jobs or of odd windows of each node, whichever is higher; 1 where an open incident is about it."""
    columns = columns_of(len(nodes))
    rows = ceil(len(nodes) / columns)
    empty = rows * columns - len(nodes)
    values = [*(badness(node) for node in nodes), *[None] * empty]
    texts = [*(_hover_text(node) for node in nodes), *[""] * empty]
    gap = 1 if len(nodes) <= _MOST_APART else 0
    figure = go.Figure(layout=layout("", "", ""))
    figure.add_heatmap(
        z=[values[row * columns : (row + 1) * columns] for row in range(rows)],
        hovertext=[texts[row * columns : (row + 1) * columns] for row in range(rows)],
        text=[[label(node.node) for node in nodes[row * columns : (row + 1) * columns]] for row in range(rows)],
        texttemplate="%{text}" if len(nodes) <= _MOST_NAMED else None,
        zmin=0, zmax=1, colorscale=_SCALE, xgap=gap, ygap=gap, hoverongaps=False,
        hovertemplate="%{hovertext}<extra></extra>",
        colorbar={"thickness": 12, "outlinewidth": 0, "tickformat": ".0%"},
    )  # fmt: skip
    figure.update_xaxes(visible=False, fixedrange=True).update_yaxes(visible=False, autorange="reversed", fixedrange=True)
    return figure.update_layout(margin={"l": 4, "r": 4, "t": 8, "b": 4})


def columns_of(count: int) -> int:
    """How many cells stand side by side."""
    return max(1, min(count, _MOST_COLUMNS), ceil(sqrt(_WIDEST * count)))


def badness(node: NowNode) -> float | None:
    """From 0 to 1; None where nothing is known of a node."""
    if node.incidents:
        return _INCIDENT
    shares = [
        part / whole for part, whole in ((node.failed, node.jobs), (node.flagged, node.windows)) if part is not None and whole
    ]
    return max(shares, default=None)


def _hover_text(node: NowNode) -> str:
    parts = [f"<b>{label(node.node)}</b>"]
    if node.incidents:
        parts.append(f"open: incident {', '.join(str(number) for number in node.incidents[:5])}")
    if node.jobs is not None:
        parts.append(f"{node.failed:,} of {node.jobs:,} jobs failed in seven days")
    if node.windows is not None:
        parts.append(f"{node.flagged:,} of {node.windows:,} windows odd")
    return "<br>".join(parts)
