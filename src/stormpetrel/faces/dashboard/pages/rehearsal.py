"""The page of the rehearsal: what this site would see of faults, how late, how many false pages, and what it would not see.

last_rehearsal -> holes in sentences, a table by kind of fault, the same of the rehearsal beside the live stream.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

from dash import Dash, html

from stormpetrel.answers.alarms.rehearsal import delay_text, last_rehearsal
from stormpetrel.answers.schemas.rehearsal import RehearsalAnswer, RehearsedFault
from stormpetrel.faces.dashboard.blocks import card, notice, page_head, stat, stats
from stormpetrel.faces.dashboard.page import DashboardPage
from stormpetrel.faces.dashboard.tables import TableColumn, status_chip, text_table

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from stormpetrel.answers.live_site import LiveSite
    from stormpetrel.answers.viewer import Viewer

_LEAD: Final = "Faults injected into a copy of this site's history: which ones the watch would detect, and how late."
_COMMAND: Final = "An administrator runs it on the server: stormpetrel rehearse; it only reads the site."
_COLUMNS: Final = (
    TableColumn("fault", "Fault"), TableColumn("severity", "Severity"), TableColumn("n", "Faults", "number"),
    TableColumn("recall", "Seen", "percent"), TableColumn("delay", "After"), TableColumn("paged", "Sent at once", "percent"),
    TableColumn("paged_delay", "After"),
)  # fmt: skip


def layout(live: LiveSite, viewer: Viewer, query: Mapping[str, str]) -> Component:
    """The page of a link."""
    del query
    if not viewer.is_admin:
        return html.Div([page_head("Rehearsal", _LEAD), notice("The rehearsal is shown to administrators.")])
    past, stream = last_rehearsal(live.site, viewer), last_rehearsal(live.site, viewer, live=True)
    parts: list[Component] = [] if past or stream else [notice("There is no rehearsal yet.", _COMMAND)]
    zone = live.settings.site.time_zone
    if past is not None:
        parts += _report(past, "In a copy of the past", zone)
    if stream is not None:
        parts += _report(stream, "In a copy of the live stream", zone)
    return html.Div([page_head("Rehearsal", _LEAD), *parts])


def register(app: Dash, live: LiveSite) -> None:
    """Add nothing: the page changes when somebody rehearses."""
    del app, live


PAGE: Final = DashboardPage("/rehearsal", "Rehearsal", 2, layout, register, heading="Cluster")


def _report(answer: RehearsalAnswer, title: str, zone: str) -> list[Component]:
    cells = [cell for by_severity in answer.faults.values() for cell in by_severity.values()]
    tried = sum(cell.n for cell in cells)
    seen = sum(round(cell.recall * cell.n) for cell in cells)
    false = answer.false_pages_per_week
    figures = [
        stat("Faults seen", f"{100 * seen / tried:.0f} %" if tried else "–", f"{seen} of {tried}"),
        stat("Holes", str(len(answer.holes)), "what would not be seen here", tone="bad" if answer.holes else "good"),
        stat(
            "False pages a week",
            "–" if false is None else f"{false:.1f}",
            f"without any fault; the budget is {answer.promised_pages_per_week:g}",
        ),
    ]
    rows = [_row(answer, kind, severity, cell) for kind, cells_of in answer.faults.items() for severity, cell in cells_of.items()]
    table = text_table(_COLUMNS, rows, caption="Faults by kind and severity: how many were seen and sent, and how late")
    return [
        html.H2(title),
        stats(*figures),
        card("What would not be seen", _holes(answer)),
        card("Fault by fault", html.P(_meaning(answer), className="soft small"), *([table] if rows else [])),
        html.P(_provenance(answer, zone), className="soft small"),
    ]


def _holes(answer: RehearsalAnswer) -> Component:
    if not answer.holes:
        return html.P([status_chip("✓", "no hole", "chip-complete"), " Each was detected in at least half of the trials."])
    return html.Ul([html.Li(hole) for hole in answer.holes], className="cluster-findings")


def _row(answer: RehearsalAnswer, kind: str, severity: str, cell: RehearsedFault) -> dict[str, Any]:
    return {
        "fault": answer.labels.get(kind, kind.replace("_", " ")),
        "severity": severity,
        "n": cell.n,
        "recall": 100 * cell.recall,
        "delay": delay_text(cell.delay_s),
        "paged": None if cell.paged is None else 100 * cell.paged,
        "paged_delay": delay_text(cell.paged_delay_s),
    }


def _meaning(answer: RehearsalAnswer) -> str:
    notes = " ".join(answer.notes)
    return (
        "Seen: listed as a finding about the fault that is not there without it. Sent at once: within the site's budget, while a "
        f"fault comes every few days. Delays are medians. {notes}"
    ).strip()


def _provenance(answer: RehearsalAnswer, zone: str) -> str:
    if answer.since is None or answer.until is None or answer.done_at is None:
        return ""
    since, until, done = (moment.astimezone(ZoneInfo(zone)) for moment in (answer.since, answer.until, answer.done_at))
    how = "faults in a copy of the live stream" if answer.live else f"{answer.walks} walks through the history"
    return (
        f"{how} from {since:%Y-%m-%d %H:%M} to {until:%Y-%m-%d %H:%M}, seed {answer.seed}, done {done:%Y-%m-%d %H:%M} ({zone})."
    )
