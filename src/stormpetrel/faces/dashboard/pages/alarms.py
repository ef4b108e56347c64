"""The page of alarms: the list of incidents, every message about them, and one incident with evidence and a verdict.

link: state, or incident -> IncidentList, DeliveryList or IncidentAnswer -> table or cards. A verdict is
posted by a button; a link changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from dash import Dash, Input, Output, State, ctx, dcc, html, no_update

from stormpetrel.answers.alarms.acts import act_on_incident
from stormpetrel.answers.alarms.deliveries import deliveries
from stormpetrel.answers.alarms.incidents import list_incidents, show_incident
from stormpetrel.answers.schemas.alarms import MOST_INCIDENTS, IncidentLine, IncidentList, IncidentQuestion
from stormpetrel.answers.schemas.deliveries import DeliveryQuestion
from stormpetrel.answers.schemas.incident import LONGEST_NOTE
from stormpetrel.answers.viewer import MANAGE, current_viewer
from stormpetrel.errors import NotThereError, StormpetrelError, UsageError
from stormpetrel.faces.dashboard.blocks import card, controls, notice, page_head
from stormpetrel.faces.dashboard.choices import PageLink, choice, chosen
from stormpetrel.faces.dashboard.filling import Filling, as_of, fill, register_filling
from stormpetrel.faces.dashboard.page import DashboardPage
from stormpetrel.faces.dashboard.pages.incident_cards import delivery_row, format_time, incident_cards, state_text
from stormpetrel.faces.dashboard.tables import TableColumn, sortable_table, text_table

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from stormpetrel.answers.live_site import LiveSite
    from stormpetrel.answers.viewer import Viewer

STATES: Final = {"open": "Open", "all": "All", "quiet": "Like dismissed ones"}
_MESSAGES: Final = {"messages": "Messages"}  # for administrators
_MOST_MESSAGES: Final = 1000
_LEAD: Final = "What is wrong with the cluster, one line for each cause."
_MOST_DIGITS: Final = 9
_ROW_PX: Final = 72  # three lines of a title
_ACTS: Final = {
    "acknowledge": "Acknowledge", "confirm": "Confirm", "dismiss": "Dismiss", "withdraw": "Withdraw the verdict",
    "note": "Keep the note",
}  # fmt: skip
_HINTS: Final = {
    "acknowledge": "I am working on it",
    "confirm": "It is one",
    "dismiss": "False alarm: it is resolved, and similar ones are not raised again",
    "withdraw": "Withdraw the verdict, with its effects",
    "note": "Only add this note",
}
_DONE: Final = {
    "acknowledge": "Acknowledged.", "confirm": "Confirmed.", "dismiss": "Dismissed.", "withdraw": "The verdict is withdrawn.",
    "note": "The note is kept.",
}  # fmt: skip


_NOTHING: Final = {  # what is shown where there is nothing to list, and where to look
    "open": ("There is no open incident.", "Resolved ones: All."),
    "all": ("There is no incident.", "The watch raises them: stormpetrel watch"),
    "quiet": ("No incident is like a dismissed one.", "Incidents similar to dismissed ones are not raised again."),
}


def layout(live: LiveSite, viewer: Viewer, query: Mapping[str, str]) -> Component:
    """The page of a link."""
    parts = fill(_filling(live), viewer, query)
    if "incident" not in query:
        link = PageLink.of(live, "/alarms", query)
        shown = choice("Show", _states(viewer), chosen(query, "state", _states(viewer), "open"), link, "state")
        return html.Div([page_head("Alarms", _LEAD), controls(shown), *parts], className="alarms-page")
    number = incident_number(query)
    back = html.A("All incidents", href=PageLink.of(live, "/alarms").path, className="button", **_INSIDE)
    head = page_head("Incident" if number is None else f"Incident {number}", "", back)
    return html.Div([head, *(_form(viewer, number) if number is not None else []), *parts], className="alarms-page incident-page")


def register(app: Dash, live: LiveSite) -> None:
    """Add what the page answers to."""
    filling = _filling(live)
    register_filling(app, filling)

    @app.callback(
        Output("alarms-body", "children", allow_duplicate=True),
        Output("alarms-stamp", "data", allow_duplicate=True),
        Output("alarms-note", "value"),
        Output("alarms-message", "children"),
        *(Input(f"alarms-{kind}-act", "n_clicks") for kind in _ACTS),
        State("alarms-note", "value"),
        State("alarms-number", "data"),
        prevent_initial_call=True,
    )
    def act(*values: Any) -> Any:
        """Keep a verdict or a note, and show the incident as it stands then."""
        *clicks, note, number = values
        kind = str(ctx.triggered_id or "").removeprefix("alarms-").removesuffix("-act")
        if not any(clicks) or kind not in _ACTS:
            return no_update, no_update, no_update, no_update
        viewer, query = current_viewer(), {"incident": str(number)}
        try:
            act_on_incident(live.site, viewer, _known_number(query), kind, _note(note))
            return filling.body(viewer, query), filling.stamp(viewer), "", _DONE[kind]
        except StormpetrelError as error:
            return no_update, no_update, no_update, str(error)


PAGE: Final = DashboardPage("/alarms", "Alarms", 1, layout, register)
_INSIDE: Final[Any] = {"data-inside": "true"}


def incident_number(query: Mapping[str, str]) -> int | None:
    """The incident that a link names; None where it names none."""
    text = query.get("incident", "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS else None


def incident_rows(live: LiveSite, lines: list[IncidentLine]) -> list[dict[str, Any]]:
    """Incidents as rows of a table."""
    zone, path = live.settings.site.time_zone, PageLink.of(live, "/alarms").path
    return [
        {
            "number": line.id,
            "number_link": f"{path}?{urlencode({'incident': line.id})}",
            "raised": format_time(line.raised_at, zone),
            "severity": line.severity,
            "state": line.state,
            "title": line.title,
            "title_link": f"{path}?{urlencode({'incident': line.id})}",
            "suspected": line.blame,
            "verdict": line.verdict or "",
            "sent": _sent(line),
        }
        for line in lines
    ]


def _sent(line: IncidentLine) -> str:
    if line.like is not None:
        return f"not sent: like {line.like}"
    return "sent" if line.page else "late" if line.late else "listed only"


def _filling(live: LiveSite) -> Filling:
    def stamp(viewer: Viewer) -> str | None:
        """What changes with the newest incidents, and with what people do about any."""
        lines = list_incidents(live.site, viewer, IncidentQuestion(state="all", limit=100)).incidents
        acts = live.site.incidents.acts(line.id for line in lines)
        kept = [len(acts[line.id]) for line in lines]
        return f"{hash((*(line.model_dump_json() for line in lines), *kept, live.site.messages.counts()))}"

    def body(viewer: Viewer, query: Mapping[str, str]) -> list[Component]:
        if "incident" not in query:
            state = chosen(query, "state", _states(viewer), "open")
            return _messages(live, viewer) if state in _MESSAGES else _list(live, viewer, state)
        return incident_cards(live, show_incident(live.site, viewer, _known_number(query)))

    return Filling("alarms", stamp, body, "The incidents are")


def _list(live: LiveSite, viewer: Viewer, state: str) -> list[Component]:
    question = IncidentQuestion.model_validate({"state": state, "limit": MOST_INCIDENTS})
    answer = list_incidents(live.site, viewer, question)
    since = _since_verdicts(answer)
    if not answer.incidents:
        message, hint = _NOTHING[state]
        return [*since, notice(message, hint), as_of(live, live.now())]
    columns = (
        TableColumn("number", "No.", "link", 72),
        TableColumn("title", "What", "link", 256, grow=640, wraps=True),
        TableColumn("raised", "Raised", width=165),
        TableColumn("severity", "Severity", width=118),
        TableColumn("state", "State", width=130),
        TableColumn("suspected", "Suspected", width=130),
        TableColumn("verdict", "Verdict", width=105),
        TableColumn("sent", "Sent", width=110, hint="Whether a message was sent at once"),
    )
    trouble = [line for line in answer.incidents if not line.change]
    changes = [line for line in answer.incidents if line.change]
    table = sortable_table("alarms-table", columns, incident_rows(live, trouble), label="Incidents", most_px=720, row_px=_ROW_PX)
    rate = f"{answer.rate_text.capitalize()}." if answer.rate_text else ""
    whose = "" if viewer.is_admin else "These are the incidents of your own jobs."
    shown = [card(state_text(trouble), table)] if trouble else []
    return [*since, *shown, *_changes(live, changes), as_of(live, live.now(), rate, whose)]


def _changes(live: LiveSite, lines: list[IncidentLine]) -> list[Component]:
    """Incidents that something new at the site explains, apart from the others, with what has changed."""
    if not lines:
        return []
    columns = (TableColumn("number", "No.", "link"), TableColumn("title", "What"), TableColumn("change", "What has changed"))
    rows = [{**row, "change": line.change} for row, line in zip(incident_rows(live, lines), lines, strict=True)]
    hint = "Something new at the site explains these: they are listed separately."
    table = text_table(columns, rows, caption="Incidents that a change explains")
    return [card("Changes, not anomalies", html.P(hint, className="soft small"), table, id="alarms-changes")]


def _since_verdicts(answer: IncidentList) -> list[Component]:
    """What verdicts have changed; nothing where they have not."""
    effects = answer.verdicts
    if not effects.words:
        return []
    items = [html.Li(effect.words) for effect in effects.verdicts]
    quiet = f" Open and like dismissed ones: {answer.quiet:,}." if answer.quiet else ""
    total = html.P(f"{effects.words[0].upper()}{effects.words[1:]}.{quiet}", id="alarms-verdicts")
    return [card("What your verdicts have changed", total, html.Ul(items, className="plain-list small soft"))]


def _states(viewer: Viewer) -> dict[str, str]:
    return STATES | _MESSAGES if viewer.is_admin else STATES


def _messages(live: LiveSite, viewer: Viewer) -> list[Component]:
    """Every message and its fate, the newest first."""
    answer = deliveries(live.site, viewer, DeliveryQuestion(limit=_MOST_MESSAGES))
    if not answer.deliveries:
        hint = "Try its routes: stormpetrel notify test" if answer.routes else "It has no [[notify.routes]] in site.toml."
        return [notice("No message was written on this site.", hint), as_of(live, live.now())]
    zone, path = live.settings.site.time_zone, PageLink.of(live, "/alarms").path
    columns = (
        TableColumn("incident", "Incident", "link", 110),
        TableColumn("route", "Route", width=140),
        TableColumn("kind", "Message", width=120),
        TableColumn("state", "Fate", width=120),
        TableColumn("created", "Written", width=165),
        TableColumn("delivered", "Delivered", width=165),
        TableColumn("tries", "Tries", "number", 90),
        TableColumn("problem", "Problem", width=200, grow=400, wraps=True),
    )
    rows = [
        delivery_row(line, zone)
        | {
            "incident": line.incident or "test",
            "incident_link": f"{path}?{urlencode({'incident': line.incident})}" if line.incident else "",
        }
        for line in answer.deliveries
    ]
    table = sortable_table("alarms-messages", columns, rows, label="Messages", most_px=720)
    summary = f"Waiting: {answer.waiting:,}. Given up: {answer.given_up:,}."
    return [card("Messages", table), as_of(live, live.now(), summary)]


def _form(viewer: Viewer, number: int) -> list[Component]:
    """What an administrator can do; outside of what is drawn anew, so that a note that is being written stays."""
    if not viewer.is_admin or MANAGE not in viewer.scopes:
        return []
    note = dcc.Textarea(id="alarms-note", maxLength=LONGEST_NOTE, className="input", rows=2, value="")
    buttons = [
        html.Button(title, id=f"alarms-{kind}-act", type="button", className="button", title=_HINTS[kind])
        for kind, title in _ACTS.items()
    ]
    label = html.Label("Why, or what was done", htmlFor="alarms-note", className="field-label")
    return [
        card(
            "Your verdict",
            html.Div([label, note], className="field"),
            html.Div(buttons, className="incident-acts"),
            html.P(id="alarms-message", className="small soft", role="status"),
            dcc.Store(id="alarms-number", data=number),
            className="incident-form",
        )
    ]


def _known_number(query: Mapping[str, str]) -> int:
    number = incident_number(query)
    if number is None:
        raise NotThereError("There is no such incident.", hint="Choose one from the list: All incidents.")
    return number


def _note(value: Any) -> str:
    note = value.strip() if isinstance(value, str) else ""
    if len(note) > LONGEST_NOTE:
        raise UsageError(f"The note is longer than {LONGEST_NOTE:,} letters.", hint="Shorten it.")
    return note
