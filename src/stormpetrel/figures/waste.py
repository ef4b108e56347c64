"""Figures of waste: what failed jobs cost, by week and by group, and what cancelling early would have saved.

ledger frame -> waste_by_week_figure, waste_by_group_figure; CancelCurve or CancelPolicy -> cancel_policy_figure.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final

import plotly.graph_objects as go
import polars as pl

from stormpetrel.figures.answer_rows import frame_of
from stormpetrel.figures.palette import BLACK, BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION, layout
from stormpetrel.jobs.outcomes import OUTCOME_LABELS
from stormpetrel.jobs.waste import BREAKDOWNS, UNKNOWN

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from stormpetrel.answers.schemas.history import CancelPolicy
    from stormpetrel.jobs.cancel_policy import CancelCurve

_OUTCOME_COLOURS: Final = {
    "FAILED": VERMILION,
    "TIMEOUT": ORANGE,
    "OUT_OF_MEMORY": PURPLE,
    "NODE_FAIL": BLUE,
    "CANCELLED": SKY,
}
_HOUR_S: Final = 3600
_LONGEST_LABEL: Final = 32


def waste_by_week_figure(ledger: pl.DataFrame) -> go.Figure:
    """Core-hours lost each week, stacked by outcome where the ledger has it, and their share of all core-hours held.

    `ledger` is made by week, or by week and outcome.
    """
    dated = ledger.filter(pl.col("week") != UNKNOWN).with_columns(
        monday=(pl.col("week") + "-1").str.to_date("%G-W%V-%u"), lost_h=pl.col("lost_core_seconds") / _HOUR_S
    )
    figure = go.Figure(layout=_layout("Core-hours lost to failed jobs, by week", "week (its Monday)", "core-hours lost"))
    if dated.is_empty():
        return _empty(figure, "No job has ended yet.")
    for name, colour, rows in _stacks(dated):
        figure.add_bar(
            x=rows["monday"].to_list(), y=rows["lost_h"].to_list(), name=name, marker_color=colour,
            customdata=rows.select("week", "failed_jobs").rows(),
            hovertemplate="%{customdata[0]}: %{y:,.0f} core-hours in %{customdata[1]:,} jobs",
        )  # fmt: skip
    weeks = dated.group_by("monday").agg(pl.col("core_seconds", "lost_core_seconds").sum()).sort("monday")
    share = weeks.select(100 * pl.col("lost_core_seconds") / pl.max_horizontal("core_seconds", 1)).to_series()
    figure.add_scatter(
        x=weeks["monday"].to_list(), y=share.to_list(), name="share of all core-hours", yaxis="y2", mode="lines+markers",
        line={"color": BLACK, "width": 1.5, "dash": "dot"}, hovertemplate="%{y:.1f} % of all core-hours",
    )  # fmt: skip
    figure.update_layout(barmode="stack", yaxis2=_second_axis("lost share of all core-hours (%)"))
    return figure


def waste_by_group_figure(ledger: pl.DataFrame, *, top: int = 15) -> go.Figure:
    """The groups that lost the most core-hours, as horizontal bars, the largest on top."""
    keys = [name for name in ledger.columns if name in BREAKDOWNS]
    losing = ledger.filter(pl.col("lost_core_seconds") > 0).sort("lost_core_seconds", descending=True, maintain_order=True)
    shown = losing.head(top)
    by = " and ".join(keys)
    figure = go.Figure(layout=_layout(f"Core-hours lost to failed jobs, by {by}", "core-hours lost", by))
    if shown.is_empty():
        return _empty(figure, "No core-hours were lost.")
    part = f"{shown.height} of {losing.height} groups, {100 * shown['share'].sum():.0f} % of the loss"
    figure.update_layout(title_subtitle_text=part, showlegend=False)
    ranks = list(range(shown.height))
    figure.add_bar(
        x=(shown["lost_core_seconds"] / _HOUR_S).to_list(), y=ranks, orientation="h", marker_color=VERMILION,
        text=[f"{100 * share:.1f} %" for share in shown["share"]], textposition="auto", name="lost",
        customdata=shown.select("failed_jobs", "jobs").rows(),
        hovertemplate="%{x:,.0f} core-hours, %{customdata[0]:,} of %{customdata[1]:,} jobs failed<extra></extra>",
    )  # fmt: skip
    # Labels stand at ranks: two names that are equal once cut short stay two bars, and a number is no axis value.
    labels = [label(" · ".join(row)) for row in shown.select(keys).iter_rows()]
    figure.update_yaxes(autorange="reversed", tickvals=ranks, ticktext=labels, automargin=True)
    return figure


def cancel_policy_figure(curve: CancelCurve | CancelPolicy) -> go.Figure:
    """Core-hours saved and destroyed against the threshold, the share of good jobs killed, and the best threshold."""
    minutes = f"{curve.cancel_at_s / 60:g} minutes"
    title = f"Cancelling {minutes} in, where the risk is above τ"
    figure = go.Figure(layout=_layout(title, "threshold τ (risk of failure)", "core-hours"))
    if curve.jobs == 0:
        return _empty(figure, f"No job was still running after {minutes}.")
    points = frame_of(curve.points)
    tau = points["tau"].to_list()
    lost, price = points["wrong_core_seconds"] + points["redo_core_seconds"], curve.wrong_kill_price
    lines = (
        ("saved from failed jobs", points["saved_core_seconds"], GREEN, "solid"),
        ("destroyed of good jobs", lost, VERMILION, "dash"),
        ("net" if price is None else f"net (wrong kill × {price:g})", points["net_core_seconds"], BLUE, "solid"),
    )
    for name, values, colour, dash in lines:
        figure.add_scatter(
            x=tau, y=(values / _HOUR_S).to_list(), name=name, mode="lines", line={"color": colour, "dash": dash, "shape": "hv"},
            hovertemplate="%{y:,.0f} core-hours",
        )  # fmt: skip
    figure.add_scatter(
        x=tau, y=(100 * points["wrong_share"]).to_list(), name="good jobs killed (%)", yaxis="y2", mode="lines",
        line={"color": BLACK, "dash": "dot", "width": 1.5, "shape": "hv"}, hovertemplate="%{y:.1f} % of good jobs",
    )  # fmt: skip
    figure.update_layout(yaxis2=_second_axis("good jobs killed (%)"), title_subtitle_text=_best_text(curve))
    figure.update_xaxes(range=[0, 1])
    figure.add_vline(x=curve.best.tau, line={"color": PURPLE, "width": 2, "dash": "dashdot"})
    return figure


def label(text: str) -> str:
    """A name for a figure: short, and with its markup shown rather than obeyed (names are hostile text)."""
    cut = text if len(text) <= _LONGEST_LABEL else text[: _LONGEST_LABEL - 1] + "…"
    return escape(cut, quote=False)


def _stacks(dated: pl.DataFrame) -> list[tuple[str, str, pl.DataFrame]]:
    """(name, colour, rows) of each layer of the weekly bars, the most common losses at the bottom."""
    if "outcome" not in dated.columns:
        return [("lost", VERMILION, dated.sort("monday"))]
    lost = dated.filter(pl.col("lost_core_seconds") > 0)
    order = lost.group_by("outcome").agg(pl.col("lost_core_seconds").sum()).sort("lost_core_seconds", descending=True)["outcome"]
    return [
        (OUTCOME_LABELS.get(state, state.lower()), _OUTCOME_COLOURS.get(state, GREEN), lost.filter(outcome=state).sort("monday"))
        for state in order
    ]


def _best_text(curve: CancelCurve | CancelPolicy) -> str:
    best = curve.best
    if best.cancelled == 0:
        return "best: cancel nothing, no threshold saves more than it destroys"
    return (
        f"best τ = {best.tau:.3f}: {best.cancelled:,} of {curve.jobs:,} jobs cancelled, {best.wrong_kills:,} of them wrongly; "
        f"net {best.net_core_seconds / _HOUR_S:,.0f} core-hours"
    )


def _layout(title: str, x_title: str, y_title: str) -> dict[str, object]:
    return {
        **layout(title, x_title, y_title),
        "hovermode": "closest",
        "legend": {"orientation": "h", "y": -0.2},
        "margin": {"t": 90},
    }


def _second_axis(title: str) -> dict[str, object]:
    return {
        "title": {"text": title},
        "overlaying": "y",
        "side": "right",
        "range": [0, 101],
        "showgrid": False,
        "tickmode": "linear",  # else its ticks are put next to those of the first axis, at odd numbers
        "dtick": 20,
    }


def _empty(figure: go.Figure, sentence: str) -> go.Figure:
    figure.add_annotation(text=sentence, showarrow=False, x=0.5, y=0.5, xref="paper", yref="paper", font_size=16)
    return figure.update_xaxes(visible=False).update_yaxes(visible=False)
