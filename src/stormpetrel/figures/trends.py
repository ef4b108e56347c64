"""Figures of trends: failure rates over time.

trend frame -> failure_trend_figure (lines with their intervals), trend_heatmap_figure (group × period).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import plotly.graph_objects as go
import polars as pl

from stormpetrel.figures.palette import LINE_COLOURS
from stormpetrel.figures.waste import label

if TYPE_CHECKING:
    import plotly.graph_objects as go

_DASHES: Final = ("solid", "dash", "dot")
_NO_GROUPS: Final = "No group has enough jobs that ended."


def failure_trend_figure(trend: pl.DataFrame) -> go.Figure:
    """One line per group: its failure rate in each period, in the band of its 95 % interval."""
    figure = go.Figure(layout=_layout(trend, "failed jobs (%)"))
    if trend.is_empty():
        return _empty(figure)
    for position, group in enumerate(_by_failures(trend)):
        rows = trend.filter(group=group).sort("period")
        days = rows["period"].to_list()
        style = {
            "color": LINE_COLOURS[position % len(LINE_COLOURS)],
            "dash": _DASHES[position // len(LINE_COLOURS) % len(_DASHES)],
        }
        figure.add_scatter(
            x=days + days[::-1], y=_percent(rows["high"]) + _percent(rows["low"])[::-1], fill="toself", mode="lines",
            line_width=0, fillcolor=_pale(style["color"]), legendgroup=group, showlegend=False, hoverinfo="skip",
        )  # fmt: skip
        figure.add_scatter(
            x=days, y=_percent(rows["rate"]), name=label(group), mode="lines+markers", line=style, legendgroup=group,
            customdata=rows.select("failed", "jobs").rows(),
            hovertemplate="%{y:.0f} %: %{customdata[0]} of %{customdata[1]} jobs",
        )  # fmt: skip
    figure.update_yaxes(range=[-2, 102])
    return figure


def trend_heatmap_figure(trend: pl.DataFrame) -> go.Figure:
    """Failure rate of each group in each period as colour; a gap is a period without jobs."""
    figure = go.Figure(layout=_layout(trend, _by(trend)))
    if trend.is_empty():
        return _empty(figure)
    order = _by_failures(trend)
    days = trend["period"].unique().sort().to_list()
    grid = pl.DataFrame({"group": order}).join(pl.DataFrame({"period": days}), how="cross")
    cells = grid.join(trend, on=["group", "period"], how="left", maintain_order="left")
    width = len(days)
    figure.add_heatmap(
        x=days, y=list(range(len(order))), z=_rows(_percent(cells["rate"]), width), zmin=0, zmax=100, colorscale="Cividis",
        xgap=1, ygap=1, colorbar={"title": {"text": "failed (%)"}},
        customdata=_rows(cells.select("failed", "jobs").rows(), width),
        hovertemplate="%{x}: %{z:.0f} %, %{customdata[0]} of %{customdata[1]} jobs<extra></extra>", hoverongaps=False,
    )  # fmt: skip
    # Labels stand at positions, so that a user called 1007 is a name and not a number.
    names = [label(group) for group in order]
    figure.update_yaxes(tickvals=list(range(len(order))), ticktext=names, autorange="reversed", automargin=True)
    return figure


def _layout(trend: pl.DataFrame, y_title: str) -> dict[str, object]:
    return {
        "title": {"text": f"Failure rate over time, by {_by(trend)}"},
        "xaxis": {"title": {"text": "first day of the period in which the jobs ended"}},
        "yaxis": {"title": {"text": y_title}},
        "template": "plotly_white",
        "margin": {"t": 70},
    }


def _by(trend: pl.DataFrame) -> str:
    return "group" if trend.is_empty() else str(trend["by"].item(0))


def _by_failures(trend: pl.DataFrame) -> list[str]:
    """The groups, those with the most failures first."""
    sums = trend.group_by("group").agg(pl.col("failed").sum())
    return sums.sort("failed", "group", descending=[True, False])["group"].to_list()


def _percent(rates: pl.Series) -> list[float | None]:
    return (100 * rates).to_list()


def _pale(colour: str) -> str:
    red, green, blue = (int(colour[start : start + 2], 16) for start in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.12)"


def _rows(values: list[Any], width: int) -> list[list[Any]]:
    return [values[start : start + width] for start in range(0, len(values), width)]


def _empty(figure: go.Figure) -> go.Figure:
    figure.add_annotation(text=_NO_GROUPS, showarrow=False, x=0.5, y=0.5, xref="paper", yref="paper", font_size=16)
    return figure.update_xaxes(visible=False).update_yaxes(visible=False)
