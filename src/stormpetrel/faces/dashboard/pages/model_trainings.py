"""The trainings of the model page: which there are, why each is in use or not, and for administrators another one to put in use.

trainings -> table; a button asks in a dialog; promote or go_back do it, and stand in the audit trail.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

from dash import ALL, Dash, Input, Output, State, dcc, html, no_update

from stormpetrel.answers.history.model_quality import go_back, promote, trainings
from stormpetrel.answers.viewer import MANAGE, current_viewer
from stormpetrel.errors import StormpetrelError
from stormpetrel.faces.dashboard.blocks import card, notice
from stormpetrel.faces.dashboard.page import in_browser
from stormpetrel.faces.dashboard.tables import TableColumn, status_chip, text_table

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from stormpetrel.answers.live_site import LiveSite
    from stormpetrel.answers.schemas.registry import Training
    from stormpetrel.answers.viewer import Viewer

BACK: Final = "back"  # in place of a training's name: the one that was in use before


def training_card(live: LiveSite, viewer: Viewer) -> Component:
    """Every training, newest first."""
    try:
        lines = trainings(live, viewer).trainings
    except StormpetrelError as error:
        return card("Trainings", notice(error.what, error.hint, kind="error"))
    if not lines:
        return card("Trainings", notice("No model has been trained yet.", "Train one: stormpetrel jobs train"))
    may_manage = viewer.is_admin and MANAGE in viewer.scopes
    columns = [
        TableColumn("name", "Training"),
        TableColumn("state", "In use"),
        TableColumn("created", "Made"),
        TableColumn("until", "Learnt from jobs up to"),
        TableColumn("jobs", "Jobs", "number"),
        TableColumn("compute", "Took"),
        TableColumn("why", "Why"),
    ]
    if may_manage:
        columns.append(TableColumn("action", "Change"))
    zone = ZoneInfo(live.settings.site.time_zone)
    rows = [_row(line, zone, may_manage=may_manage) for line in lines]
    return card(
        "Trainings",
        html.P(
            "A new one is put in use only if it is better on the same recent jobs, which neither has seen. "
            "The watch picks up a change automatically.",
            className="soft small",
        ),
        text_table(columns, rows, caption="Trainings of the models of jobs"),
        *(_way_back(lines) if may_manage else []),
    )


def dialog() -> Component:
    """What asks before anything is changed."""
    named: Any = {"aria-labelledby": "model-question"}
    return html.Div(
        [
            html.Dialog(
                [
                    html.H2("", id="model-question"),
                    html.P("The watch picks it up within seconds. You can change it back here at any time.", className="soft"),
                    html.Div(
                        [
                            html.Button("Leave it", id="model-leave", type="button", className="button"),
                            html.Button("Put in use", id="model-confirm", type="button", className="button button-main"),
                        ],
                        className="dialog-buttons",
                    ),
                ],
                id="model-dialog",
                className="dialog",
                **named,
            ),
            dcc.Store(id="model-asked"),
        ]
    )


def register_trainings(app: Dash, live: LiveSite) -> None:
    """Add what the buttons do."""
    in_browser(
        app,
        "pages.ask",
        Output("model-asked", "data"),
        Output("model-question", "children"),
        Input({"model-ask": ALL}, "n_clicks"),
    )
    in_browser(app, "pages.closeDialog", Input("model-leave", "n_clicks"), Input("model-confirm", "n_clicks"))

    @app.callback(
        Output("model-trainings", "children"),
        Output("model-message", "children"),
        Input("model-confirm", "n_clicks"),
        State("model-asked", "data"),
        prevent_initial_call=True,
    )
    def change(clicks: int | None, name: str | None) -> Any:
        if not clicks or not name:
            return no_update, no_update
        viewer = current_viewer()
        try:
            training = go_back(live, viewer) if name == BACK else promote(live, viewer, name)
        except StormpetrelError as error:
            return no_update, notice(error.what, error.hint, kind="error")
        done = notice(f"{training.name} is in use now.", "The watch and this server pick it up automatically.")
        return training_card(live, viewer), done


def _row(line: Training, zone: ZoneInfo, *, may_manage: bool) -> dict[str, Any]:
    row: dict[str, Any] = {
        "name": line.name,
        "state": _state(line),
        "created": _minute(line.created, zone),
        "until": _minute(line.trained_until, zone),
        "jobs": line.jobs,
        "compute": line.compute or "not noted",
        "why": f"{line.why or 'not noted'}{f' In shadow {line.shadow}.' if line.shadow else ''}",
    }
    if may_manage:
        row["action"] = "" if line.current else _button(line.name, "Put in use", f"Put {line.name} in use")
    return row


def _state(line: Training) -> Component:
    if line.current:
        return status_chip("●", "in use", "chip-complete")
    return status_chip("◌", "shadow", "chip-wait") if line.shadow else html.Span("no", className="soft")


def _way_back(lines: list[Training]) -> list[Component]:
    before = next((line.previous for line in lines if line.current), None)
    if before is None or before not in {line.name for line in lines}:
        return []
    return [html.P(_button(BACK, f"Go back to {before}, in use before", f"Go back to {before}"), className="way-back")]


def _button(name: str, text: str, question: str) -> Component:
    asks: Any = {"data-question": f"{question}?", "id": {"model-ask": name}, "type": "button"}
    return html.Button(text, className="button button-small", **asks)


def _minute(moment: datetime, zone: ZoneInfo) -> str:
    return f"{moment.astimezone(zone):%Y-%m-%d %H:%M}"
