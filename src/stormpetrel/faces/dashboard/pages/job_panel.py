"""The panel next to the table: everything about the job that the link names, kept current, and what is said about advice.

jobs-open (a job's reference) -> job_details -> sections.

Why a job was judged as it was: the waterfall of the latest forecast, the same in words, and what moves forecasts in general.

JobInFull -> why -> component; LiveSite -> general_importance -> component.
"""

from __future__ import annotations

from html import escape
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

import polars as pl
from dash import MATCH, Dash, Input, Output, State, ctx, dcc, html, no_update

from stormpetrel.answers.actions.acts import cancel_job, may_cancel
from stormpetrel.answers.jobs.details import job_details
from stormpetrel.answers.schemas.actions import ActLine, CancelAct
from stormpetrel.answers.schemas.job import JobInFull
from stormpetrel.answers.schemas.own import OpinionAct
from stormpetrel.answers.site.own import keep_opinion
from stormpetrel.answers.viewer import Viewer, current_viewer
from stormpetrel.errors import StormpetrelError
from stormpetrel.faces.dashboard.blocks import attributes, plot
from stormpetrel.faces.dashboard.pages import job_sections as sections
from stormpetrel.faces.dashboard.pages.job_sections import percent, section
from stormpetrel.faces.dashboard.pages.job_table import MOMENT_LABELS
from stormpetrel.figures.quality import importance_figure
from stormpetrel.figures.waterfall import waterfall_figure
from stormpetrel.jobs.prediction_text import reason_text
from stormpetrel.jobs.reasons import feature_text
from stormpetrel.records.jobs import JobRef

if TYPE_CHECKING:
    import plotly.graph_objects as go
    from dash.development.base_component import Component

    from stormpetrel.answers.live_site import LiveSite
    from stormpetrel.answers.schemas.job import StoredPrediction

_RETRY_MS: Final = 1500
_MAX_RETRIES: Final = 40
_LABEL_LETTERS: Final = 46
_AXIS_LETTERS: Final = 32
_TOP: Final = 12


def register_panel(app: Dash, live: LiveSite) -> None:
    """Add what the panel answers to."""

    @app.callback(
        Output("job-panel", "children"),
        Output("panel-stamp", "data"),
        Input("jobs-open", "data"),
        Input("shell-version", "data"),
        State("panel-stamp", "data"),
        prevent_initial_call=True,
    )
    def show(ref: str | None, _: int, stamp: list[Any] | None) -> Any:
        if not ref:
            return None, None
        viewer = current_viewer()
        if live.refreshed_at is None:  # the next change of the version draws it
            return sections.still_reading(), None
        try:
            now = stamp_of(live, viewer, JobRef.parse(ref))
            return (no_update, no_update) if now == stamp else (panel(live, viewer, JobRef.parse(ref)), now)
        except StormpetrelError as error:
            return sections.missing(error.what, error.hint), None

    @app.callback(
        Output("panel-importance", "children"),
        Output("panel-again", "disabled"),
        Input("panel-again", "n_intervals"),
        State("panel-prediction", "data"),
    )
    def importance(_: int | None, prediction: dict[str, Any] | None) -> Any:
        current_viewer()
        return (no_update, True) if not prediction else general_importance(live, prediction["moment"], prediction["version"])

    @app.callback(
        Output({"opinion": MATCH, "part": "said"}, "children"),
        Input({"opinion": MATCH, "part": "yes"}, "n_clicks"),
        Input({"opinion": MATCH, "part": "no"}, "n_clicks"),
        State("panel-prediction", "data"),
        prevent_initial_call=True,
    )
    def opine(yes: int | None, no: int | None, prediction: dict[str, Any] | None) -> Any:
        if not (yes or no) or not prediction or not isinstance(ctx.triggered_id, dict):
            return no_update
        number, useful = int(ctx.triggered_id["opinion"]), ctx.triggered_id["part"] == "yes"
        try:
            return take_opinion(live, current_viewer(), prediction, number, useful=useful)
        except StormpetrelError as error:
            return str(error)

    _register_cancelling(app, live)


def _register_cancelling(app: Dash, live: LiveSite) -> None:
    @app.callback(
        Output("panel-cancel-message", "children"),
        Input("panel-cancel", "n_clicks"),
        State("panel-cancel-confirm", "value"),
        State("panel-prediction", "data"),
        prevent_initial_call=True,
    )
    def cancel(clicks: int | None, confirmed: Any, prediction: dict[str, Any] | None) -> Any:
        viewer = current_viewer()
        if not clicks or not prediction:
            return no_update
        try:
            act = CancelAct.model_construct(confirm=str(confirmed or "")[:40])
            return fate_of(cancel_job(live.site, viewer, JobRef.parse(str(prediction["ref"])), act))
        except StormpetrelError as error:
            return str(error)


def fate_of(act: ActLine) -> str:
    """What became of a job that somebody wanted to cancel."""
    if act.state == "done":
        return "The scheduler was told to cancel it, and agreed."
    return f"It was not cancelled ({act.state.replace('_', ' ')}): {act.why}"


def panel(live: LiveSite, viewer: Viewer, ref: JobRef) -> list[Component]:
    """Everything about one job."""
    details = job_details(live, viewer, ref)
    zone = ZoneInfo(live.settings.site.time_zone)
    last = details.predictions[-1] if details.predictions else None
    parts = [
        sections.head(details),
        sections.waiting(details),
        sections.cause(details),
        sections.verdict(details, zone),
        sections.advice(details, live.site.opinions.of(viewer.user, ref)),
        sections.outlook(details),
        why(details),
        sections.retry(details),
        sections.profile(details),
        sections.history(details, zone),
        sections.record(details),
        sections.cancelling(details) if may_cancel(live.site, viewer) else None,
        dcc.Store(id="panel-prediction", data=_prediction_data(details, last)),
        None if last is None else _retry_part(),  # without a forecast nothing is explained: nobody would take the answer
    ]
    return [part for part in parts if part is not None]


def _retry_part() -> Component:
    return dcc.Interval(id="panel-again", interval=_RETRY_MS, max_intervals=_MAX_RETRIES)


def _prediction_data(details: JobInFull, last: Any) -> dict[str, Any] | None:
    advice = [piece.sentence for piece in sections.all_advice(details)]
    about = {"ref": details.ref, "advice": advice}
    return {**about, "moment": last.moment if last else None, "version": last.model_version if last else None}


def stamp_of(live: LiveSite, viewer: Viewer, ref: JobRef) -> list[Any]:
    """What has to change for the panel to be drawn anew: the job itself, or how many jobs its user has."""
    row = live.overview.find(viewer, ref).row(0, named=True)
    of_user = (pl.col("user") == pl.lit(row["user"], dtype=pl.String)).sum()
    own = live.overview.sums(viewer, {"jobs": of_user}, of=row["user"])["jobs"]
    predicted_at = row["predicted_at"].isoformat() if row["predicted_at"] else None
    return [str(ref), row["state"], row["waiting_words"], row["moment"], predicted_at, own]


def take_opinion(live: LiveSite, viewer: Viewer, prediction: dict[str, Any], number: int, *, useful: bool) -> str:
    """Keep whether a piece of advice was useful, and thank for it."""
    # Not validated: a browser may send anything, and what keeps it says in a sentence what is wrong.
    act = OpinionAct.model_construct(job=str(prediction["ref"]), advice=str(prediction["advice"][number]), useful=useful)
    keep_opinion(live, viewer, act)
    return "Thank you, noted." if useful else "Thank you, noted as not useful."


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
