"""Figures of the sampling study: the spectra of job types, windows on their principal components, what slower sampling costs.

SamplingStudy -> one Plotly figure each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go

from stormpetrel.figures.palette import BLUE, ORANGE, VERMILION, layout
from stormpetrel.figures.trace_models import job_type_style
from stormpetrel.traces.sampling import SamplingStudy
from stormpetrel.traces.separability import MeanStd

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


def spectra_figure(study: SamplingStudy) -> Figure:
    """Spectral density of each job type, the sum of its modes, with its lowest dominant frequency marked."""
    figure = go.Figure()
    styles = job_type_style(spectrum.job_type for spectrum in study.spectra)
    for spectrum in study.spectra:
        style, power = styles[spectrum.job_type], spectrum.power.sum(axis=0)
        name = style["name"] if spectrum.dominant_hz is None else f"{style['name']} ({_frequency(spectrum.dominant_hz)})"
        line = {"color": style["color"], "width": 1.5}
        figure.add_scatter(x=spectrum.frequency_hz, y=power, mode="lines", line=line, name=name, legendgroup=spectrum.job_type)
        if spectrum.dominant_hz is not None:
            at = int(np.abs(spectrum.frequency_hz - spectrum.dominant_hz).argmin())
            figure.add_scatter(
                x=[spectrum.dominant_hz],
                y=[power[at]],
                mode="markers",
                marker={"color": style["color"], "size": 11, "symbol": style["symbol"], "line": {"color": "#000000", "width": 1}},
                hovertemplate=f"{style['name']}: lowest dominant frequency {_frequency(spectrum.dominant_hz)}<extra></extra>",
                legendgroup=spectrum.job_type,
                showlegend=False,
            )
    figure.update_layout(**layout("Rhythm of each job type", "frequency (Hz)", "spectral density, all modes (1/Hz)"))
    figure.update_xaxes(type="log", exponentformat="none")
    return figure.update_yaxes(type="log", exponentformat="power")


def components_figure(study: SamplingStudy) -> Figure:
    """Windows at the finest sampling on their two principal components, coloured by job type (Fig. 1a)."""
    finest = study.scores[0]
    styles = job_type_style(study.labels.tolist())
    figure = go.Figure()
    for job_type in np.unique(study.labels).tolist():
        style, rows = styles[job_type], study.labels == job_type
        figure.add_scattergl(
            x=study.points[rows, 0],
            y=study.points[rows, 1],
            mode="markers",
            name=style["name"],
            marker={"color": style["color"], "symbol": style["symbol"], "size": 5, "opacity": 0.6},
        )
    axes = [f"{name} component ({share:.0%} of the variance)" for name, share in zip(_ORDER, finest.explained, strict=False)]
    return figure.update_layout(
        **layout(f"Windows of {study.window_s:g} s, a value every {finest.interval_s:g} s", axes[0], axes[1])
    )


def silhouette_figure(study: SamplingStudy) -> Figure:
    """Silhouette against sampling interval, with the standard deviation over the subsets (Fig. 1b)."""
    figure = go.Figure()
    x = [score.interval_s for score in study.scores]
    curves = (
        ("one value of each interval", [score.silhouette for score in study.scores], BLUE, "solid"),
        ("mean of each interval (counters)", [score.silhouette_of_means for score in study.scores], ORANGE, "dash"),
    )
    for name, spreads, colour, dash in curves:
        figure.add_scatter(
            x=x,
            y=[_or_none(spread) for spread in spreads],
            error_y={"type": "data", "array": [spread.std if spread.n else 0 for spread in spreads], "thickness": 1.2},
            mode="lines+markers",
            name=name,
            line={"color": colour, "dash": dash},
        )
    advised = next(score.silhouette for score in study.scores if score.interval_s == study.interval_s)
    marker = {"color": VERMILION, "size": 12, "symbol": "star"}
    figure.add_scatter(x=[study.interval_s], y=[advised.mean], mode="markers", marker=marker, name="advised", hoverinfo="skip")
    figure.update_layout(
        **layout("Separability of job types", "sampling interval (s)", "silhouette (1: far apart, 0: overlapping)")
    )
    return figure.update_xaxes(type="log", tickvals=x, ticktext=[f"{interval:g}" for interval in x])


_ORDER = ("first", "second")


def _frequency(hertz: float) -> str:
    return f"{hertz:.3g} Hz, {1 / hertz:.0f} s"


def _or_none(spread: MeanStd) -> float | None:
    return spread.mean if spread.n else None
