"""Figures of labels and profiles: how jobs end, how many kinds of jobs there are, and what each kind is like.

label_distribution, JobProfiles.elbow_, and the profile tables -> Plotly figures.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import plotly.graph_objects as go
import polars as pl
from plotly.subplots import make_subplots

from stormpetrel.figures.palette import BLUE, COMPLETED_COLOUR, FAILED_COLOUR, GREEN, GREY, ORANGE, SKY, VERMILION, layout
from stormpetrel.jobs.preparation import LABELS, NEVER_STARTED_LABEL

if TYPE_CHECKING:
    import plotly.graph_objects as go

_COLOURS: Final = {
    **dict(zip(LABELS, (COMPLETED_COLOUR, FAILED_COLOUR, GREY), strict=True)),
    NEVER_STARTED_LABEL: SKY,
    "Unknown": GREY,
}
_OTHERS: Final = (BLUE, ORANGE, GREEN)
_RESOURCES: Final = {
    "cpu": "CPUs per job",
    "mem_gb": "memory per job (GiB)",
    "run_time_s": "run time (s)",
    "wait_time_s": "wait time (s)",
}


def label_distribution_figure(distribution: pl.DataFrame) -> go.Figure:
    """Share of the jobs that ended in each state, coloured by the label the state is counted under."""
    figure = go.Figure(layout=layout("How jobs ended", "state", "jobs (%)"))
    for label in (*LABELS, NEVER_STARTED_LABEL):
        rows = distribution.filter(pl.col("label") == label)
        if rows.height:
            text = [f"{100 * share:.1f} %<br>{count:,}" for share, count in rows.select("share", "count").iter_rows()]
            figure.add_bar(
                x=rows["state"].to_list(), y=(100 * rows["share"]).to_list(), name=label, marker_color=_COLOURS[label],
                text=text, textposition="outside", cliponaxis=False, hovertemplate="%{x}: %{text}<extra></extra>",
            )  # fmt: skip
    figure.update_xaxes(categoryorder="array", categoryarray=distribution["state"].to_list())
    figure.update_layout(legend_title_text="counted as")
    return figure


def elbow_figure(elbow: pl.DataFrame, k: int) -> go.Figure:
    """Distortion of K-means over the number of profiles, with the elbow marked."""
    figure = go.Figure(layout=layout(f"Elbow at {k} profiles", "number of profiles K", "distortion (standardised)"))
    figure.add_scatter(
        x=elbow["k"].to_list(), y=elbow["distortion"].to_list(), mode="lines+markers", line_color=BLUE, showlegend=False,
        hovertemplate="K = %{x}: %{y:,.0f}<extra></extra>",
    )  # fmt: skip
    figure.add_vline(x=k, line_dash="dash", line_color=VERMILION, annotation_text=f"K = {k}")
    figure.update_xaxes(dtick=1)
    figure.update_yaxes(rangemode="tozero")
    return figure


def profile_resources_figure(resources: pl.DataFrame) -> go.Figure:
    """Mean of CPUs, memory, run time and wait time per profile, each on a log axis with one standard deviation above it."""
    known = [name for name in _RESOURCES if resources[f"{name}_mean"].null_count() < resources.height]
    columns = min(2, max(1, len(known)))
    figure = make_subplots(rows=max(1, -(-len(known) // columns)), cols=columns)
    names = [f"profile {profile}" for profile in resources["profile"]]
    for position, name in enumerate(known):
        place = {"row": position // columns + 1, "col": position % columns + 1}
        # Downwards a standard deviation often reaches below zero, where a log axis has no place for it.
        spread = {"type": "data", "array": resources[f"{name}_std"].fill_null(0.0).to_list(), "arrayminus": [0.0] * len(names)}
        figure.add_scatter(
            x=names, y=resources[f"{name}_mean"].to_list(), error_y=spread, mode="markers", marker={"color": BLUE, "size": 10},
            showlegend=False, hovertemplate=f"%{{x}}: %{{y:,.4g}}<extra>mean {_RESOURCES[name]}</extra>", **place,
        )  # fmt: skip
        figure.update_yaxes(type="log", dtick=1, title_text=_RESOURCES[name], **place)
    figure.update_layout(title_text="Profiles: mean and one standard deviation", template="plotly_white")
    return figure


def profile_composition_figure(table: pl.DataFrame, title: str, *, unit: str = "jobs") -> go.Figure:
    """What each profile is made of: the columns of a profile table, as shares stacked to a hundred."""
    columns = [name for name in table.columns if name != "profile"]
    total = table.select(pl.sum_horizontal(columns)).to_series()
    names = [f"profile {profile}<br>{count:,} {unit}" for profile, count in zip(table["profile"], total, strict=True)]
    figure = go.Figure(layout={**layout(title, "profile", f"{unit} (%)"), "barmode": "stack"})
    for position, column in enumerate(columns):
        if table[column].sum() == 0:
            continue
        share = (100 * table[column] / total).fill_nan(0.0)
        figure.add_bar(
            x=names, y=share.to_list(), name=column, marker_color=_COLOURS.get(column, _OTHERS[position % len(_OTHERS)]),
            customdata=table[column].to_list(), hovertemplate=f"{column}: %{{customdata:,}} {unit} (%{{y:.1f}} %)<extra></extra>",
            text=[f"{value:.0f} %" if value >= 4 else "" for value in share], textposition="inside",
        )  # fmt: skip
    figure.update_yaxes(range=[0, 100])
    figure.update_layout(showlegend=True)
    return figure
