"""Figures of how good a forecast is, and of what it rests on.

truth and probabilities, or a table of figures -> one Plotly figure each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go
import polars as pl

from stormpetrel.figures.palette import BLUE, COMPLETED_COLOUR, FAILED_COLOUR, GREY, LINE_COLOURS, VERMILION
from stormpetrel.learn.metrics import Truth, pr_auc, precision_recall_curve, reliability, roc_auc, roc_curve, scores_at
from stormpetrel.records.arrays import Floats

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_DASHES: Final = ("solid", "dash", "dot", "dashdot")
_REFERENCE: Final = {"color": GREY, "dash": "dot", "width": 1}
_METRICS: Final = {
    "roc_auc": "ROC AUC",
    "pr_auc": "PR AUC",
    "f1": "F1",
    "precision": "precision",
    "recall": "recall",
    "ece": "ECE",
}

Forecasts = Mapping[str, tuple[Truth, Floats]]


def correlation_heatmap(names: Sequence[str], matrix: npt.NDArray[np.floating]) -> Figure:
    """Correlations between all pairs of columns, −1 to 1, the outcome first (Fig. 9); blank where a column is constant."""
    numbers = np.round(np.asarray(matrix, dtype=np.float64), 2)
    heat = go.Heatmap(
        z=numbers,
        x=list(names),
        y=list(names),
        zmin=-1,
        zmax=1,
        colorscale=[[0.0, BLUE], [0.5, "#FFFFFF"], [1.0, VERMILION]],
        texttemplate="%{z:.2f}" if len(names) <= 25 else None,
        textfont={"size": 9},
        colorbar={"title": "Pearson r"},
        hovertemplate="%{x} and %{y}: r = %{z:.2f}<extra></extra>",
        xgap=1,
        ygap=1,
    )
    figure = _laid_out(go.Figure(heat), "How features hang together with the outcome and each other")
    figure.update_yaxes(autorange="reversed", automargin=True, showgrid=False)
    return figure.update_xaxes(tickangle=-45, automargin=True, showgrid=False)


def roc_figure(forecasts: Forecasts) -> Figure:
    """ROC curves of several forecasts, each with its area in the legend (Fig. 10)."""
    figure = go.Figure(go.Scatter(x=[0, 1], y=[0, 1], mode="lines", line=_REFERENCE, name="chance (.50)", hoverinfo="skip"))
    for number, (name, (truth, probability)) in enumerate(forecasts.items()):
        x, y = _thinned(*roc_curve(truth, probability)[:2]) if truth.size else ([], [])
        figure.add_scatter(x=x, y=y, mode="lines", line=_line(number), name=f"{name} ({_area(roc_auc(truth, probability))})")
    return _unit_axes(
        figure,
        "ROC: failures found against false alarms",
        "false-positive rate (share of completed jobs)",
        "true-positive rate (share of failed jobs)",
    )


def precision_recall_figure(forecasts: Forecasts) -> Figure:
    """Precision against recall of several forecasts, each with its average precision in the legend."""
    figure = go.Figure()
    for number, (name, (truth, probability)) in enumerate(forecasts.items()):
        y, x = _thinned(*precision_recall_curve(truth, probability)[:2]) if truth.size else (np.zeros(0), np.zeros(0))
        steps = {**_line(number), "shape": "vh"}  # a straight line would promise what no threshold gives
        figure.add_scatter(
            x=[*x[:1] * 0, *x], y=[*y[:1], *y], mode="lines", line=steps, name=f"{name} ({_area(pr_auc(truth, probability))})"
        )
    shares = sorted({round(float(truth.mean()), 3) for truth, _ in forecasts.values() if truth.size})
    for share in shares:  # forecasts of different moments are judged on different jobs; one label does for their lines
        annotation = (
            {"annotation_text": "share of failed jobs", "annotation_position": "top right"} if share == shares[-1] else {}
        )
        figure.add_hline(y=share, line=_REFERENCE, **annotation)
    return _unit_axes(
        figure, "Precision and recall of failed jobs", "recall (share of failed jobs)", "precision (share of warnings)"
    )


def confidence_figure(truth: Truth, probability: Floats, *, bins: int = 50) -> Figure:
    """How sure the forecast was of what came to be, for failed and for completed jobs (Fig. 11)."""
    figure = go.Figure()
    edges = np.linspace(0.0, 1.0, bins + 1)
    parts = (
        ("Completed", 1.0 - probability[~truth], COMPLETED_COLOUR, "/"),
        ("Failed", probability[truth], FAILED_COLOUR, ""),
    )
    for name, sure, colour, shape in parts:
        share = 100 * np.histogram(sure, edges)[0] / max(1, sure.size)
        figure.add_bar(
            x=(edges[1:] + edges[:-1]) / 2,
            y=share,
            width=1 / bins,
            name=f"{name} ({sure.size:,} jobs)",
            marker={"color": colour, "pattern": {"shape": shape}},
            opacity=0.65,
            hovertemplate="confidence %{x:.2f}: %{y:.1f} %<extra></extra>",
        )
    figure.add_vline(x=0.5, line=_REFERENCE, annotation_text="threshold", annotation_position="top left")
    figure.update_layout(barmode="overlay")
    return _laid_out(
        figure,
        "How sure the forecast was of the actual outcome",
        "forecast probability of the actual outcome",
        "share of jobs of that outcome (%)",
    )


def threshold_figure(truth: Truth, probability: Floats, *, chosen: float | None = None, steps: int = 100) -> Figure:
    """Precision, recall, F1 and the share of jobs that are warned of, against the threshold."""
    thresholds = np.linspace(0.0, 1.0, steps + 1)
    scores = np.array([scores_at(truth, probability, threshold) for threshold in thresholds])  # (thresholds, 3)
    below = np.searchsorted(np.sort(probability), thresholds, side="left")
    scores[below == probability.size, 0] = np.nan  # no warning, no precision
    lines = {
        "precision": scores[:, 0],
        "recall": scores[:, 1],
        "F1": scores[:, 2],
        "share flagged": 1 - below / max(1, probability.size),
    }
    figure = go.Figure()
    for number, (name, values) in enumerate(lines.items()):
        figure.add_scatter(x=thresholds, y=values, mode="lines", line=_line(number), name=name)
    if chosen is not None:
        figure.add_vline(x=chosen, line=_REFERENCE, annotation_text=f"chosen: {chosen:.2f}", annotation_position="top right")
    return _unit_axes(figure, "What each threshold gives", "threshold (probability of failure)", "share", square=False)


def reliability_figure(forecasts: Forecasts, *, bins: int = 15) -> Figure:
    """Observed frequency against forecast probability over bins of equal mass; on the diagonal, forecasts hold literally."""
    figure = go.Figure(go.Scatter(x=[0, 1], y=[0, 1], mode="lines", line=_REFERENCE, name="ideal", hoverinfo="skip"))
    for number, (name, (truth, probability)) in enumerate(forecasts.items()):
        table = reliability(truth, probability, bins)
        figure.add_scatter(
            x=table[:, 0],
            y=table[:, 1],
            customdata=table[:, 2],
            mode="lines+markers",
            line=_line(number),
            name=name,
            hovertemplate="forecast %{x:.3f}, observed %{y:.3f}, %{customdata:,} jobs<extra></extra>",
        )
    return _unit_axes(
        figure, "Forecast and what happened", "mean forecast probability of failure", "observed share of failed jobs"
    )


def importance_figure(important: pl.DataFrame, *, top: int = 20, value: str = "mean_abs_shap") -> Figure:
    """The features that move the forecast most: columns `feature` and `mean_abs_shap` (or another named by `value`)."""
    shown = important.sort(value, descending=True).head(top).reverse()
    bars = go.Bar(
        x=shown[value].to_list(),
        y=shown["feature"].to_list(),
        orientation="h",
        marker_color=BLUE,
        hovertemplate="%{y}: %{x:.3g}<extra></extra>",
    )
    axis = {"mean_abs_shap": "mean |SHAP value| (log-odds)", "total_gain": "total gain (log-loss)"}.get(value, value)
    figure = _laid_out(go.Figure(bars), "What moves the forecast", axis, "")
    return figure.update_yaxes(automargin=True)


def quality_over_time_figure(quality: pl.DataFrame) -> Figure:
    """How good the forecast was as time went by: column `time`, and any of roc_auc, pr_auc, f1, precision, recall, ece."""
    figure = go.Figure()
    ordered = quality.sort("time")
    for number, (column, name) in enumerate(_METRICS.items()):
        if column in ordered.columns:
            figure.add_scatter(
                x=ordered["time"].to_list(), y=ordered[column].to_list(), mode="lines+markers", line=_line(number), name=name
            )
    figure = _laid_out(figure, "Quality over time", "time of submission (UTC)", "score (0 to 1)")
    return figure.update_yaxes(range=[0, 1.02])


def _laid_out(figure: Figure, title: str, x: str = "", y: str = "") -> Figure:
    figure.update_layout(
        template="plotly_white", title=title, margin={"t": 60, "r": 20}, legend={"bgcolor": "rgba(255,255,255,0.7)"}
    )
    figure.update_xaxes(title_text=x)
    return figure.update_yaxes(title_text=y)


def _unit_axes(figure: Figure, title: str, x: str, y: str, *, square: bool = True) -> Figure:
    """Both axes from 0 to 1, equally long where a diagonal means something."""
    figure = _laid_out(figure, title, x, y)
    figure.update_xaxes(range=[-0.01, 1.01], constrain="domain")
    return figure.update_yaxes(range=[-0.01, 1.01], **({"scaleanchor": "x", "constrain": "domain"} if square else {}))


def _line(number: int) -> dict[str, Any]:
    """Colour and dash of a line: distinguished without colour as well."""
    return {"color": LINE_COLOURS[number % len(LINE_COLOURS)], "dash": _DASHES[number % len(_DASHES)], "width": 2}


def _thinned(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """The curve without points that lie within a thousandth of their predecessor: a page holds no 300,000 of them."""
    coarse = np.round(np.stack([x, y]), 3)
    kept = np.append(True, np.any(np.diff(coarse, axis=1) != 0, axis=0))
    kept[-1:] = True
    return x[kept], y[kept]


def _area(area: float | None) -> str:
    return "no area" if area is None else f"{area:.3f}"
