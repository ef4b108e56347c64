"""The panel next to the table: everything about the job that the link names, kept current, and what is said about advice.

jobs-open (a job's reference) -> job_details -> sections.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

import polars as pl
from dash import MATCH, Dash, Input, Output, State, ctx, dcc, no_update

from stormpetrel.answers.actions.acts import cancel_job, may_cancel
from stormpetrel.answers.jobs.details import job_details
from stormpetrel.answers.schemas.actions import ActLine, CancelAct
from stormpetrel.answers.schemas.job import JobInFull
from stormpetrel.answers.schemas.own import OpinionAct
from stormpetrel.answers.site.own import keep_opinion
from stormpetrel.answers.viewer import Viewer, current_viewer
from stormpetrel.errors import StormpetrelError
from stormpetrel.faces.dashboard.pages import job_sections as sections
from stormpetrel.faces.dashboard.pages.job_reasons import general_importance, why
from stormpetrel.records.jobs import JobRef

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from stormpetrel.answers.live_site import LiveSite

_RETRY_MS: Final = 1500
_MAX_RETRIES: Final = 40


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
    own = (
        live.overview.rows(viewer)
        .filter(pl.col("user") == pl.lit(row["user"], dtype=pl.String))
        .select(pl.len())
        .collect()
        .item()
    )
    predicted_at = row["predicted_at"].isoformat() if row["predicted_at"] else None
    return [str(ref), row["state"], row["waiting_words"], row["moment"], predicted_at, own]


def take_opinion(live: LiveSite, viewer: Viewer, prediction: dict[str, Any], number: int, *, useful: bool) -> str:
    """Keep whether a piece of advice was useful, and thank for it."""
    # Not validated: a browser may send anything, and what keeps it says in a sentence what is wrong.
    act = OpinionAct.model_construct(job=str(prediction["ref"]), advice=str(prediction["advice"][number]), useful=useful)
    keep_opinion(live, viewer, act)
    return "Thank you, noted." if useful else "Thank you, noted as not useful."
