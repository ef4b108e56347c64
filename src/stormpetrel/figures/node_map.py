"""Every node of a site as one cell of a heat map: NowNodes -> node_map -> Figure. One trace, however many nodes there are."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, sqrt
from typing import TYPE_CHECKING, Final

from stormpetrel.figures.palette import layout
from stormpetrel.figures.waste import label

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from stormpetrel.answers.schemas.now import NowNode

ROW_PX: Final = 26
_WIDEST: Final = 3.0  # as many times more columns than rows
_MOST_COLUMNS: Final = 8  # of small sites
_MOST_NAMED: Final = 40  # nodes whose names fit into their cells
_MOST_APART: Final = 1_000  # nodes between whose cells there is room for a line
_INCIDENT: Final = 1.0  # a node that an open incident is about is as bad as can be
_SCALE: Final = [[0.0, "#cfe3ef"], [0.15, "#f5e3b3"], [0.5, "#e69f00"], [1.0, "#d55e00"]]


def node_map(nodes: Sequence[NowNode]) -> Figure:
    """The share of failed jobs or of odd windows of each node, whichever is higher; 1 where an open incident is about it."""
    import plotly.graph_objects as go

    columns = columns_of(len(nodes))
    rows = ceil(len(nodes) / columns)
    empty = rows * columns - len(nodes)
    values = [*(badness(node) for node in nodes), *[None] * empty]
    words = [*(_words(node) for node in nodes), *[""] * empty]
    gap = 1 if len(nodes) <= _MOST_APART else 0
    figure = go.Figure(layout=layout("", "", ""))
    figure.add_heatmap(
        z=[values[row * columns : (row + 1) * columns] for row in range(rows)],
        hovertext=[words[row * columns : (row + 1) * columns] for row in range(rows)],
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


def _words(node: NowNode) -> str:
    parts = [f"<b>{label(node.node)}</b>"]
    if node.incidents:
        parts.append(f"open: incident {', '.join(str(number) for number in node.incidents[:5])}")
    if node.jobs is not None:
        parts.append(f"{node.failed:,} of {node.jobs:,} jobs failed in seven days")
    if node.windows is not None:
        parts.append(f"{node.flagged:,} of {node.windows:,} windows odd")
    return "<br>".join(parts)
