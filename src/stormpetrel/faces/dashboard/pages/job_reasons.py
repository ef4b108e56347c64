"""Why a job was judged as it was: the waterfall of the latest forecast, the same in words, and what moves forecasts in general.

JobInFull -> why -> component; LiveSite -> general_importance -> component.
"""

from __future__ import annotations

from html import escape
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Final

import polars as pl
from dash import html

from stormpetrel.errors import StormpetrelError
from stormpetrel.faces.dashboard.blocks import attributes, plot
from stormpetrel.faces.dashboard.pages.job_sections import section
from stormpetrel.faces.dashboard.pages.job_table import MOMENT_LABELS
from stormpetrel.faces.dashboard.pages.job_text import percent
from stormpetrel.figures.quality import importance_figure
from stormpetrel.figures.waterfall import waterfall_figure
from stormpetrel.jobs.prediction_text import reason_text
from stormpetrel.jobs.reasons import feature_text

if TYPE_CHECKING:
    import plotly.graph_objects as go
    from dash.development.base_component import Component

    from stormpetrel.answers.live_site import LiveSite
    from stormpetrel.answers.schemas.job import JobInFull, StoredPrediction

_LABEL_LETTERS: Final = 46
_AXIS_LETTERS: Final = 32
_TOP: Final = 12


def why(details: JobInFull) -> Component:
    """The reasons of the latest forecast as a waterfall and in words, and a place for what moves forecasts in general."""
    if not details.predictions:
        return section("Why", html.P("Nothing was predicted, so there is nothing to explain."), id="panel-why")
    prediction = details.predictions[-1]
    figure = _waterfall(prediction)
    when = MOMENT_LABELS.get(prediction.moment, prediction.moment)
    average, risk = percent(prediction.base_risk), percent(prediction.risk)
    text = f"What moved the risk of failing ({when}) from the {average} of the average job to {risk}, in points."
    items = [html.Li([_arrow(reason.contribution), reason_text(reason)]) for reason in prediction.reasons]
    general = [html.Summary("What moves forecasts in general"), html.Div(id="panel-importance")]
    return section(
        "Why",
        html.P(text, className="soft small"),
        plot("panel-waterfall", figure, text, height=figure.layout.height, name=f"job-{details.overview.job}-reasons"),
        html.Details([html.Summary("The same in words"), html.Ol(items, className="reasons")], className="inner-fold"),
        html.Details(general, className="inner-fold", id="panel-general"),
        id="panel-why",
    )


def _waterfall(prediction: StoredPrediction) -> go.Figure:
    """The waterfall for a narrow place: the words stand above their bars instead of next to them."""
    reasons = [(reason.words, reason.contribution) for reason in prediction.reasons]
    figure = waterfall_figure(reasons, prediction.base or 0.0, prediction.risk, top=len(reasons))
    ticks = list(figure.layout.yaxis.ticktext or ())
    ticks[1 : 1 + len(reasons)] = [reason.words for reason in prediction.reasons]  # here they have lines of their own
    labels = [
        {
            "text": "<br>".join(wrap(escape(text, quote=False), _LABEL_LETTERS)[:2]), "x": 0, "xref": "paper", "xanchor": "left",
            "y": place, "yref": "y", "yanchor": "bottom", "showarrow": False, "align": "left", "font": {"size": 12},
        }
        for place, text in enumerate(ticks)
    ]  # fmt: skip
    figure.update_traces(width=0.24, offset=0.02, connector_visible=False)
    figure.update_layout(title=None, margin={"t": 30, "r": 12, "b": 44, "l": 4}, height=80 + 60 * len(ticks), annotations=labels)
    figure.update_yaxes(showticklabels=False, showgrid=False, automargin=False, range=[len(ticks) - 0.6, -0.4], autorange=False)
    low, high = figure.layout.xaxis.range
    room = 0.06 * (high - low)
    figure.update_xaxes(range=[low - room, high + room], showgrid=False, zeroline=False)
    return figure


def _arrow(contribution: float) -> Component:
    symbol, tone = ("▲ ", "up") if contribution > 0 else ("▼ ", "down")
    return html.Span(symbol, className=f"reason-{tone}", **attributes(aria_hidden="true"))


def general_importance(live: LiveSite, moment: str | None, version: int | None) -> tuple[Any, bool]:
    """What moves forecasts of this model most, and whether that is all there is to wait for."""
    try:
        settled = live.boards.settled.peek(live)
    except StormpetrelError as error:
        return html.P(str(error), className="small soft"), True
    if settled is None:
        return html.P("Being computed …", className="small soft"), False
    table = settled.value.importance.filter(pl.col("moment") == moment, pl.col("model_version") == version).head(_TOP)
    if table.is_empty():
        return html.P("No job that this model judged has ended yet.", className="small soft"), True
    named = table.with_columns(feature=pl.col("feature").map_elements(_phrase, return_dtype=pl.String))
    figure = importance_figure(named, top=_TOP)
    figure.update_layout(title=None, margin={"t": 10, "r": 10, "b": 40, "l": 10}, yaxis_tickfont_size=11)
    text = f"Mean size of a feature's contribution over {table['said'].item(0):,} predictions of this model."
    drawn = plot("panel-importance-plot", figure, text, height=90 + 34 * table.height, name="importance")
    return [html.P(text, className="small soft"), drawn], True


def _phrase(feature: str) -> str:
    """A feature without a value, on short lines."""
    return "<br>".join(wrap(feature_text(feature, float("nan")).rpartition(": ")[0], _AXIS_LETTERS))
