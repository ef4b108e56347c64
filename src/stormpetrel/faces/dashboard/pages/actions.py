"""The page of actions: the switch that stops everything, each policy with its ledger, and what was decided and done.

link: mode -> ActionsStatus, ActList -> cards and tables. The switch is a button; a link changes nothing. A user sees the acts
on own jobs.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from dash import Dash, Input, Output, State, ctx, dcc, html, no_update

from stormpetrel.answers.actions.acts import turn_switch
from stormpetrel.answers.actions.questions import actions_status, list_acts
from stormpetrel.answers.schemas.actions import LONGEST_WHY, ActionsStatus, ActLine, ActQuestion, PolicyLine, SwitchAct
from stormpetrel.answers.viewer import MANAGE, current_viewer
from stormpetrel.errors import StormpetrelError
from stormpetrel.faces.dashboard.blocks import card, controls, notice, page_head, stat, stats
from stormpetrel.faces.dashboard.choices import PageLink, choice, chosen
from stormpetrel.faces.dashboard.filling import Filling, as_of, fill, register_filling
from stormpetrel.faces.dashboard.page import DashboardPage
from stormpetrel.faces.dashboard.pages.incident_cards import format_time
from stormpetrel.faces.dashboard.tables import TableColumn, sortable_table, text_table

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from stormpetrel.answers.live_site import LiveSite
    from stormpetrel.answers.viewer import Viewer

_LEAD: Final = "Automatic actions on jobs and nodes: the policies, what they would have saved and lost, and what was done."
_MODES: Final = {"all": "All", "live": "Armed policies", "person": "People", "dry": "Dry runs"}
_MOST: Final = 500
_CANCEL_BY: Final = {"nobody": "nobody", "admins": "administrators", "owners": "owners and administrators"}
_NO_POLICY: Final = ("There is no policy: nothing is automatic.", "Policies are set in site.toml: [[actions.policies]].")


def layout(live: LiveSite, viewer: Viewer, query: Mapping[str, str]) -> Component:
    """The page of a link."""
    link = PageLink.of(live, "/actions", query)
    shown = choice("Acts", _MODES, chosen(query, "mode", _MODES, "all"), link, "mode")
    return html.Div([page_head("Actions", _LEAD), *_form(viewer), controls(shown), *fill(_filling(live), viewer, query)])


def register(app: Dash, live: LiveSite) -> None:
    """Add what the page answers to."""
    filling = _filling(live)
    register_filling(app, filling)

    @app.callback(
        Output("actions-body", "children", allow_duplicate=True),
        Output("actions-stamp", "data", allow_duplicate=True),
        Output("actions-message", "children"),
        Input("actions-off", "n_clicks"),
        Input("actions-on", "n_clicks"),
        State("actions-why", "value"),
        prevent_initial_call=True,
    )
    def turn(off: int | None, on: int | None, why: Any) -> Any:
        """Turn the switch, and show the page as it stands then."""
        if not (off or on) or ctx.triggered_id not in ("actions-off", "actions-on"):
            return no_update, no_update, no_update
        viewer, is_on = current_viewer(), ctx.triggered_id == "actions-on"
        try:
            text = why[:LONGEST_WHY] if isinstance(why, str) else ""
            turn_switch(live.site, viewer, SwitchAct(on=is_on, why=text))
            return filling.body(viewer, {}), filling.stamp(viewer), "Acting is on." if is_on else "Acting is off."
        except StormpetrelError as error:
            return no_update, no_update, str(error)


PAGE: Final = DashboardPage("/actions", "Actions", 9, layout, register, heading="Cluster")


def _filling(live: LiveSite) -> Filling:
    def stamp(viewer: Viewer) -> str | None:
        """What changes with the newest acts, the ledgers and the switch."""
        acts = list_acts(live.site, viewer, ActQuestion(limit=50))
        status = actions_status(live.site, viewer).model_dump_json() if viewer.is_admin else ""
        return f"{hash((acts.model_dump_json(), status))}"

    def body(viewer: Viewer, query: Mapping[str, str]) -> list[Component]:
        parts = _policies(live, actions_status(live.site, viewer)) if viewer.is_admin else []
        return [*parts, *_acts(live, viewer, chosen(query, "mode", _MODES, "all"))]

    return Filling("actions", stamp, body, "The actions are")


def _form(viewer: Viewer) -> list[Component]:
    """The switch; outside of what is drawn anew, so that it is never out of reach."""
    if not viewer.is_admin or MANAGE not in viewer.scopes:
        return []
    why = dcc.Input(id="actions-why", type="text", value="", maxLength=LONGEST_WHY, className="input", autoComplete="off")
    label = html.Label("Why, for other administrators", htmlFor="actions-why", className="field-label")
    stop = html.Button("Stop all actions", id="actions-off", type="button", className="button button-danger")
    go_on = html.Button("Allow actions again", id="actions-on", type="button", className="button")
    message = html.P(id="actions-message", className="small soft", role="status")
    buttons = html.Div([stop, go_on], className="incident-acts")
    return [card("The switch", html.Div([label, why], className="field"), buttons, message)]


def _policies(live: LiveSite, status: ActionsStatus) -> list[Component]:
    zone = live.settings.site.time_zone
    parts: list[Component] = []
    if not status.switch.on:
        since = f" since {format_time(status.switch.at, zone)}" if status.switch.at else ""
        by = f" by {status.switch.by}" if status.switch.by else ""
        what = f"Actions are switched off{since}{by}: nothing is done."
        parts.append(notice(what, status.switch.why, kind="warning"))
    figures = stats(
        stat("Switch", "on" if status.switch.on else "off", tone="" if status.switch.on else "bad"),
        stat("Acts in the last hour", f"{status.in_last_hour:,}", f"of {status.per_hour:,} for all policies together"),
        stat("Armed policies", f"{sum(policy.armed for policy in status.policies):,}", f"of {len(status.policies):,}"),
        stat("Who may cancel jobs here", _CANCEL_BY[status.cancel_by], "set by actions.cancel_by"),
    )
    return [*parts, figures, *(_ledger(status.policies) if status.policies else [notice(*_NO_POLICY)])]


def _ledger(policies: list[PolicyLine]) -> list[Component]:
    columns = (
        TableColumn("name", "Policy"),
        TableColumn("action", "Does"),
        TableColumn("state", "State"),
        TableColumn("when", "When"),
        TableColumn("allow_list", "On whom"),
        TableColumn("cap", "In the last hour"),
        TableColumn("cases", "Dry cases", hint="decided and not done; settled: what became of the job is known"),
        TableColumn("right", "Right", hint="the job failed, or the node went on losing jobs"),
        TableColumn("wrong", "Wrong", hint="the job completed, or the node went on well"),
        TableColumn("saved", "Core-h saved", hint="core-hours that failed jobs would not have held"),
        TableColumn("lost", "Core-h lost", hint="core-hours of jobs that would not have completed, or of a healthy node"),
        TableColumn("redo", "Core-h again", hint="core-hours that would have been run twice"),
    )
    missing = [html.P(policy.to_arm, className="small soft") for policy in policies if policy.to_arm]
    table = text_table(columns, map(_policy_row, policies), caption="Policies and their dry runs")
    return [card("Policies and the ledger of their dry runs", table, *missing)]


def _policy_row(policy: PolicyLine) -> dict[str, Any]:
    dry = policy.dry
    return {
        "name": policy.name,
        "action": policy.action,
        "state": ("armed, without a dry run" if policy.without_dry_run else "armed") if policy.armed else "runs dry",
        "when": policy.when,
        "allow_list": policy.allow_list or "nobody",
        "cap": f"{policy.in_last_hour} of {policy.per_hour}",
        "cases": f"{dry.cases:,}, settled {dry.settled:,}",
        "right": f"{dry.right:,}",
        "wrong": f"{dry.wrong:,}",
        "saved": f"{dry.saved_core_hours:,.1f}",
        "lost": f"{dry.lost_core_hours:,.1f}",
        "redo": f"{dry.redo_core_hours:,.1f}",
    }


def _acts(live: LiveSite, viewer: Viewer, mode: str) -> list[Component]:
    only: Any = None if mode == "all" else mode
    acts = list_acts(live.site, viewer, ActQuestion(mode=only, limit=_MOST)).acts
    if not acts:
        return [notice("No decisions and no actions so far.", ""), as_of(live, live.now())]
    columns = (
        TableColumn("decided", "Decided", width=165),
        TableColumn("action", "Act", width=100),
        TableColumn("subject", "Job or node", "link", 130),
        TableColumn("by", "By", width=170),
        TableColumn("state", "State", width=120),
        TableColumn("outcome", "Would have been", width=170),
        TableColumn("why", "Answer", width=200, grow=420, wraps=True),
    )
    rows = [_act_row(live, act) for act in acts]
    whose = "" if viewer.is_admin else "These are the actions on your own jobs."
    table = sortable_table("actions-table", columns, rows, label="Acts", most_px=640, row_px=56)
    return [card("Decisions and actions", table), as_of(live, live.now(), whose)]


def _act_row(live: LiveSite, act: ActLine) -> dict[str, Any]:
    answers = [f"{PurePath(step.command[0]).name}: {step.answer or 'done'}" for step in act.steps if step.ended]
    link = f"{PageLink.of(live, '/jobs').path}?{urlencode({'view': 'all', 'job': act.ref})}" if act.ref else None
    return {
        "decided": format_time(act.decided, live.settings.site.time_zone),
        "action": act.action,
        "subject": act.job or act.node or "",
        "subject_link": link,
        "by": act.by,
        "state": act.state.replace("_", " "),
        "outcome": act.outcome or "",
        "why": act.why or "; ".join(answers),
    }
