"""The page of one person: failures beside those of people alike, waste, what to change, incidents, and the weekly digest.

link: weeks, user -> PersonalSummary -> figures, applications, changes, incidents, a switch for the digest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from dash import Dash, Input, Output, State, ctx, dcc, html, no_update
from pydantic import ValidationError

from stormpetrel.answers.history.energy import amount_text, known_suffix
from stormpetrel.answers.personal.choice import choose_digest
from stormpetrel.answers.personal.summary import personal_summary
from stormpetrel.answers.schemas.personal import DigestAct, PersonalQuestion
from stormpetrel.answers.viewer import current_viewer
from stormpetrel.errors import StormpetrelError
from stormpetrel.faces.dashboard.blocks import card, controls, field, notice, page_head, stat, stats
from stormpetrel.faces.dashboard.choices import PageLink, choice, chosen
from stormpetrel.faces.dashboard.filling import Filling, as_of, fill, register_filling
from stormpetrel.faces.dashboard.page import DashboardPage
from stormpetrel.faces.dashboard.tables import TableColumn, text_table

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from stormpetrel.answers.live_site import LiveSite
    from stormpetrel.answers.schemas.personal import DigestChoice, PersonalChange, PersonalSummary
    from stormpetrel.answers.viewer import Viewer

_WEEKS: Final = {"1": "a week", "4": "4 weeks", "12": "12 weeks", "52": "a year"}
_LEAD: Final = "How your jobs went beside those of people alike, what they cost, and what to change."
_USED: Final = {"cpu": "of the cores' time", "memory": "of the memory", "time": "of the time limits"}


def layout(live: LiveSite, viewer: Viewer, query: Mapping[str, str]) -> Component:
    """The page of a link."""
    link = PageLink.of(live, "/me", query)
    weeks = chosen(query, "weeks", _WEEKS, "4")
    return html.Div(
        [
            page_head("My jobs", _LEAD),
            controls(choice("In the last", _WEEKS, weeks, link, "weeks")),
            *fill(_filling(live), viewer, query),
        ]
    )


def register(app: Dash, live: LiveSite) -> None:
    """Add what the page answers to."""
    register_filling(app, _filling(live))

    @app.callback(
        Output("me-digest", "children"),
        Input("me-digest-on", "n_clicks"),
        Input("me-digest-off", "n_clicks"),
        State("me-digest-address", "value"),
        prevent_initial_call=True,
    )
    def choose(on: int | None, off: int | None, address: str | None) -> Any:
        viewer = current_viewer()
        if not (on if ctx.triggered_id == "me-digest-on" else off):
            return no_update
        try:
            act = DigestAct(wanted=ctx.triggered_id == "me-digest-on", address=(address or "").strip()[:320] or None)
            return _digest(choose_digest(live.site, viewer, act))
        except StormpetrelError as error:
            return [notice(error.what, error.hint, kind="error")]


PAGE: Final = DashboardPage("/me", "My jobs", 5, layout, register, heading="Jobs")


def _question(query: Mapping[str, str]) -> PersonalQuestion:
    weeks = chosen(query, "weeks", _WEEKS, "4")
    try:
        return PersonalQuestion.model_validate({"weeks": weeks, "user": query.get("user") or None})
    except ValidationError:
        return PersonalQuestion.model_validate({"weeks": weeks})


def _filling(live: LiveSite) -> Filling:
    def stamp(viewer: Viewer) -> str | None:
        del viewer
        book = live.boards.books.peek(live)
        return None if book is None else str(book.version)

    def body(viewer: Viewer, query: Mapping[str, str]) -> list[Component]:
        answer = personal_summary(live, viewer, _question(query))
        is_own, words = answer.user == viewer.user, [answer.energy.words] if answer.energy and answer.kwh else []
        return [
            _figures(answer),
            html.Div([_changes(live, answer), _applications(answer)], className="cards"),
            _incidents(live, answer),
            *([card("My week by mail", html.Div(_digest(answer.digest), id="me-digest"))] if is_own else []),
            as_of(live, answer.as_of, "Others are compared with as a whole; nobody is named.", *words, *answer.notes),
        ]

    return Filling("me", stamp, body, "Your figures are")


def _figures(answer: PersonalSummary) -> Component:
    share, peers = answer.failed_share, answer.peers
    comparison = "too few others to compare with"
    tone = ""
    if peers is not None:
        comparison = f"at least {peers.fewest} others at your mix of groups and applications"
        tone = "bad" if share is not None and share > peers.failed_share + 0.05 else ""
    used = [f"{100 * value:.0f} % {_USED[name]}" for name, value in answer.used if value is not None]
    return stats(
        stat("My failures", _percent(share), f"{answer.failed_jobs:,} of {answer.jobs:,} jobs", tone=tone),
        stat("People alike", "–" if peers is None else _percent(peers.failed_share), comparison),
        stat("Core hours lost", f"{answer.lost_core_hours:,.1f}", f"of {answer.core_hours:,.1f}, held by failed jobs"),
        *_energy(answer),
        stat("Used", used[0].partition(" of")[0] if used else "–", ", ".join(used) or "not recorded"),
    )


def _energy(answer: PersonalSummary) -> list[Component]:
    if answer.energy is None or not answer.kwh:
        return []
    co2 = "" if answer.lost_co2_kg is None else f", {amount_text(answer.lost_co2_kg)} kg of CO2"
    text = f"of {amount_text(answer.kwh)}{known_suffix(answer.energy.known)}{co2}"
    return [stat("kWh lost", amount_text(answer.lost_kwh or 0.0), text)]


def _changes(live: LiveSite, answer: PersonalSummary) -> Component:
    if not answer.changes:
        return card("What to change", notice("Nothing.", "No failed job of this time says what to ask for instead."))
    return card("What to change", *(_change(live, change) for change in answer.changes))


def _change(live: LiveSite, change: PersonalChange) -> Component:
    link = PageLink.of(live, "/jobs").to(view="all", job=change.ref)
    return html.Div(
        [
            html.P([html.B(change.application), ": job ", html.A(change.job, href=link), f" was {change.state}."]),
            html.P(change.why, className="soft small") if change.why else None,
            html.P(change.sentence) if change.sentence else None,
            html.Pre(change.line, className="line") if change.line else None,
        ],
        className="me-change",
    )


def _applications(answer: PersonalSummary) -> Component:
    columns = (
        TableColumn("application", "Application"), TableColumn("jobs", "Jobs", "number"),
        TableColumn("failed", "Failed", "percent"), TableColumn("others", "Others fail", "percent"),
        TableColumn("lost", "Core hours lost", "decimal"),
    )  # fmt: skip
    rows = [
        {
            "application": application.application,
            "jobs": application.jobs,
            "failed": _percent(application.failed_jobs / application.jobs),
            "others": _percent(application.peers_failed_share),  # whole: nobody is to be recognised by a decimal
            "lost": f"{application.lost_core_hours:,.1f}",
        }
        for application in answer.applications
    ]
    if not rows:
        return card("By application", notice("No job of yours has ended in this time.", "Choose a longer time."))
    return card("By application", text_table(columns, rows, caption="My jobs by application"))


def _incidents(live: LiveSite, answer: PersonalSummary) -> Component:
    if not answer.incidents:
        return card("My incidents", notice("None.", "No incident of this time concerned your jobs."))
    link = PageLink.of(live, "/alarms")
    items = [
        html.Li([html.A(incident.title, href=link.to(view="all", incident=str(incident.id))), f" ({incident.state})"])
        for incident in answer.incidents
    ]
    return card("My incidents", html.Ul(items, className="plain-list"))


def _digest(choice: DigestChoice) -> list[Component]:
    """Whether it comes, and both buttons: the one that changes nothing is hidden."""
    if not choice.possible:
        return [notice("This site sends no digests.", "Administrators: set mail.route and mail.digest_day.")]
    due = f" The next one comes on {choice.next:%d %b %Y at %H:%M}." if choice.next else ""
    status = f"It goes to {choice.address}.{due}" if choice.wanted else "Once a week: failures, waste, what to change, incidents."
    written = dcc.Input(
        id="me-digest-address", type="text", value="", maxLength=320, placeholder="yours, if empty", className="input"
    )
    return [
        html.P(status, role="status"),
        html.Div(controls(field("Address", written)), hidden=choice.wanted),
        html.Div(html.Button("Send me my week", id="me-digest-on", type="button", className="button"), hidden=choice.wanted),
        html.Div(html.Button("Stop it", id="me-digest-off", type="button", className="button"), hidden=not choice.wanted),
    ]


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.0f} %"
