"""The page of cases to judge: the ten whose answer teaches most, also from below the threshold, with two buttons each.

CaseList -> one card per case. An answer is posted by a button; a link changes nothing. Administrators only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from dash import ALL, Dash, Input, Output, State, ctx, dcc, html, no_update

from stormpetrel.answers.alarms.cases import answer_case, ask_cases
from stormpetrel.answers.schemas.verdicts import LONGEST_CASE, CaseLine, NewCaseAnswer
from stormpetrel.answers.viewer import MANAGE, current_viewer
from stormpetrel.errors import StormpetrelError, UsageError
from stormpetrel.faces.dashboard.blocks import card, notice, page_head
from stormpetrel.faces.dashboard.filling import Filling, as_of, fill, register_filling
from stormpetrel.faces.dashboard.page import DashboardPage
from stormpetrel.faces.dashboard.pages.incident_cards import format_time, linked
from stormpetrel.faces.dashboard.tables import status_chip

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from stormpetrel.answers.live_site import LiveSite
    from stormpetrel.answers.viewer import Viewer

_LEAD: Final = "The cases whose answer helps the models most: where they are undecided, and many cases are similar."
_ANSWERS: Final = {"confirm": "Real trouble", "dismiss": "No trouble"}
_FAMILIES: Final = {"jobs": "job records", "traces": "CPU windows", "events": "events", "system": "the system"}


def layout(live: LiveSite, viewer: Viewer, query: Mapping[str, str]) -> Component:
    """The page of a link."""
    message = html.P(id="cases-message", className="small soft", role="status")
    last = dcc.Store(id="cases-last")
    undo = html.Button("Withdraw the last answer", id="cases-undo", type="button", className="button", disabled=True)
    head = page_head("Cases to judge", _LEAD)
    return html.Div(
        [head, html.Div([message, undo], className="cases-undo"), last, *fill(_filling(live), viewer, query)],
        className="cases-page",
    )


def register(app: Dash, live: LiveSite) -> None:
    """Add what the page answers to."""
    filling = _filling(live)
    register_filling(app, filling)

    @app.callback(
        Output("cases-body", "children", allow_duplicate=True),
        Output("cases-stamp", "data", allow_duplicate=True),
        Output("cases-message", "children"),
        Output("cases-undo", "disabled"),
        Output("cases-last", "data"),
        Input({"type": "case-answer", "case": ALL, "answer": ALL}, "n_clicks"),
        Input("cases-undo", "n_clicks"),
        State("cases-last", "data"),
        prevent_initial_call=True,
    )
    def answer(clicks: list[int | None], undo: int | None, last: str | None) -> Any:
        """Keep an answer, or take the last one back, and show what is asked then."""
        pressed = ctx.triggered_id
        if not any(clicks) and not undo:
            return no_update, no_update, no_update, no_update, no_update
        viewer = current_viewer()
        taken_back = pressed == "cases-undo"
        try:
            case = _case(last if taken_back else pressed.get("case"))
            verdict = "withdraw" if taken_back else str(pressed.get("answer"))
            receipt = answer_case(live.site, viewer, NewCaseAnswer.model_validate({"case": case, "answer": verdict}))
            message = f"{case}: {receipt.words}"
            return filling.body(viewer, {}), filling.stamp(viewer), message, taken_back, None if taken_back else case
        except StormpetrelError as error:
            return no_update, no_update, str(error), no_update, no_update


PAGE: Final = DashboardPage("/cases", "Cases", 2, layout, register, heading="Cluster")


def _case(value: object) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST_CASE:
        raise UsageError("This is not a known case.", hint="Load the page again.")
    return value


def _filling(live: LiveSite) -> Filling:
    def stamp(viewer: Viewer) -> str | None:
        """What changes with verdicts and answers; new cases are shown at the next visit."""
        viewer.require_admin()
        return f"{live.site.incidents.verdicts_version()} {len(live.site.case_answers.recent())}"

    def body(viewer: Viewer, query: Mapping[str, str]) -> list[Component]:
        answer = ask_cases(live.site, viewer)
        if not answer.cases:
            return [
                notice("There is nothing to ask.", "Incidents, forecasts, unusual windows and scored events make cases."),
                as_of(live, live.now()),
            ]
        may_answer = MANAGE in viewer.scopes
        cards = [_card(live, line, may_answer=may_answer) for line in answer.cases]
        counts = f"{len(cards)} of {answer.candidates:,} candidates; {answer.answered:,} answered so far."
        return [html.Div(cards, className="cards"), as_of(live, live.now(), counts)]

    return Filling("cases", stamp, body, "The cases are")


def _card(live: LiveSite, line: CaseLine, *, may_answer: bool) -> Component:
    zone = live.settings.site.time_zone
    buttons = [
        html.Button(title, id={"type": "case-answer", "case": line.case, "answer": answer}, type="button", className="button")
        for answer, title in _ANSWERS.items()
    ]
    where = "raised" if line.raised else "below the threshold"
    worth = f"undecided {line.uncertainty:.2f} × density {line.density:.2f} = {line.worth:.2f}"
    figures = f"From {_FAMILIES.get(line.family, line.family)}, {where}. Chance {line.chance:.0%}; {worth}."
    return card(
        f"{line.about[0].upper()}{line.about[1:]}",
        html.P(
            [status_chip("?", line.kind.replace("_", " "), ""), html.Span(f" {format_time(line.at, zone)}", className="soft")]
        ),
        html.P(linked(live, line.words, line.link)),
        html.P(figures, className="soft small"),
        *([html.Div(buttons, className="incident-acts")] if may_answer else []),
    )
