"""Figures that only the page of nodes has: the threads of a moment beside each other, and what makes figures clickable there.

arrays -> thread_modes; a figure of trace_models -> as_svg (points with their keys), marked_cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from stormpetrel.figures.palette import BLACK, layout
from stormpetrel.figures.waste import label

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


def thread_modes(names: Sequence[str], times: Sequence[Any], shares: npt.NDArray[np.float32], mode: str) -> Figure:
    """One mode of several threads over time as colour: `shares` (threads, steps) from 0 to 1; names differ."""
    import plotly.graph_objects as go

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


def marked_cells(figure: Figure, rows: Sequence[int], columns: Sequence[int]) -> Figure:
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
