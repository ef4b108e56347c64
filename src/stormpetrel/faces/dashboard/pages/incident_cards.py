"""One incident as cards: what it is, why it is believed, what happened, what it cost, and what was done when it was like this.

IncidentAnswer -> incident_cards. Names and notes come out of logs and from people: they are shown as text.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

from dash import html

from stormpetrel.answers.alarms.timeline import ACT_LABELS
from stormpetrel.faces.dashboard.blocks import card, stat, stats
from stormpetrel.faces.dashboard.choices import PageLink
from stormpetrel.faces.dashboard.filling import as_of
from stormpetrel.faces.dashboard.tables import TableColumn, status_chip, text_table
from stormpetrel.records.incidents import ActKind

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from stormpetrel.answers.live_site import LiveSite
    from stormpetrel.answers.schemas.alarms import IncidentLine
    from stormpetrel.answers.schemas.deliveries import DeliveryLine
    from stormpetrel.answers.schemas.incident import (
        IncidentActLine,
        IncidentAnswer,
        IncidentFigure,
        IncidentFinding,
        SimilarIncident,
    )

_INSIDE: Final[Any] = {"data-inside": "true"}
_SEVERITIES: Final = {
    "page": ("▲", "Page", "chip-fail"), "warning": ("!", "Warning", "chip-wait"), "info": ("i", "Info", ""),
}  # fmt: skip
_STATES: Final = {
    "open": ("●", "Open", "chip-fail"), "acknowledged": ("◐", "Acknowledged", "chip-wait"),
    "resolved": ("✓", "Resolved", "chip-complete"),
}  # fmt: skip
_VERDICTS: Final = {"confirmed": ("✓", "Confirmed", ""), "dismissed": ("✕", "Dismissed", "")}


def incident_cards(live: LiveSite, answer: IncidentAnswer) -> list[Component]:
    """One incident in full."""
    zone = live.settings.site.time_zone
    blame = f"Why {answer.blame} is suspected" if answer.blame != "unclear" else "Why the cause is unclear"
    reasons = [card(blame, _figures(live, answer.reasons, blame))] if answer.reasons else []
    return [
        html.P([*incident_chips(answer), html.Span(answer.title)], className=f"incident-title severity-{answer.severity}"),
        stats(
            stat("Since", format_time(answer.since, zone)),
            stat("Last heard of", format_time(answer.until, zone)),
            stat("Raised", format_time(answer.raised_at, zone), "late" if answer.late else ""),
            stat("Suspected", answer.blame.capitalize()),
            stat("Sent", "At once" if answer.page else "No", answer.held_back_words),
        ),
        html.Div([*(_finding(live, finding, zone) for finding in answer.findings), *reasons], className="cards"),
        html.Div([_timeline(answer, zone), *_jobs(live, answer)], className="cards"),
        *_similar(live, answer.similar, zone),
        *_deliveries(answer.deliveries, zone),
        as_of(live, live.now(), f"Cluster {answer.cluster}." if answer.cluster else "", f"Times in {zone}."),
    ]


def incident_chips(line: IncidentLine) -> list[Component]:
    """Severity, state and verdict, each a word with a symbol."""
    chips = [status_chip(*_SEVERITIES[line.severity]), status_chip(*_STATES[line.state])]
    return [*chips, status_chip(*_VERDICTS[line.verdict])] if line.verdict else chips


def state_text(lines: Sequence[IncidentLine]) -> str:
    """How many incidents there are, as a heading."""
    count, waiting = len(lines), sum(line.state != "resolved" for line in lines)
    which = f", {waiting:,} of them not over" if waiting < count else ""
    return f"{count:,} {'incident' if count == 1 else 'incidents'}{which}"


def format_time(moment: datetime, zone: str) -> str:
    """A time to the minute, in the site's zone."""
    return f"{moment.astimezone(ZoneInfo(zone)):%Y-%m-%d %H:%M}"


def linked(live: LiveSite, text: str, link: str | None) -> Any:
    """Words that lead to a page of ours, or words alone."""
    return html.A(text, href=PageLink.of(live, link).path, **_INSIDE) if link else text


def _finding(live: LiveSite, finding: IncidentFinding, zone: str) -> Component:
    subjects = [
        html.Li([html.Span(f"{subject.kind.replace('_', ' ')} ", className="soft"), linked(live, subject.name, subject.link)])
        for subject in finding.subjects
    ]
    heading = finding.kind.replace("_", " ").capitalize()
    judged = ""
    if finding.score is not None and finding.threshold is not None:
        judged = f" Score {finding.score:.3g}, threshold {finding.threshold:.3g}."
    return card(
        heading,
        html.Ul(subjects, className="incident-subjects"),
        _figures(live, finding.evidence, f"Figures of: {heading}"),
        html.P(
            f"Seen by {finding.family} from {format_time(finding.since, zone)} to {format_time(finding.until, zone)}, "
            f"by {finding.rule}.{judged}",
            className="soft small incident-print",
        ),
    )


def _figures(live: LiveSite, figures: Sequence[IncidentFigure], caption: str) -> Component:
    rows = [{"label": figure.label, "text": html.Span(linked(live, figure.text, figure.link))} for figure in figures]
    return text_table((TableColumn("label", "What"), TableColumn("text", "How much")), rows, caption=caption)


def _timeline(answer: IncidentAnswer, zone: str) -> Component:
    moments = [
        html.Li([html.Time(format_time(entry.time, zone), dateTime=entry.time.isoformat()), html.Span(entry.words)])
        for entry in answer.timeline
    ]
    return card("What happened", html.Ol(moments, className="incident-moments"))


def _jobs(live: LiveSite, answer: IncidentAnswer) -> list[Component]:
    if not answer.jobs:
        return []
    shown = len(answer.jobs)
    more = f", the newest {shown} of {answer.jobs_total:,}" if answer.jobs_total > shown else ""
    items = [html.Li(linked(live, job.job, job.link)) for job in answer.jobs]
    return [card(f"Lost jobs{more}", html.Ul(items, className="incident-jobs"))]


def _similar(live: LiveSite, similar: Sequence[SimilarIncident], zone: str) -> list[Component]:
    if not similar:
        return []
    items = []
    for incident in similar:
        verdict = [status_chip(*_VERDICTS[incident.verdict])] if incident.verdict else []
        same = html.P(f"The same: {', '.join(incident.same)}", className="soft small") if incident.same else None
        notes = [html.Li(_act_text(act, zone)) for act in incident.acts]
        done = html.Ul(notes, className="plain-list") if notes else html.P("No notes then.", className="soft small")
        head = [linked(live, f"Incident {incident.id}", f"/alarms?incident={incident.id}"), *verdict, html.Span(incident.title)]
        items.append(html.Li([html.P(head, className="incident-like"), same, done]))
    return [card("Like it before", html.Ul(items, className="incident-similar"))]


def _act_text(act: IncidentActLine, zone: str) -> str:
    who, note = f" by {act.user}" if act.user else "", f": {act.note}" if act.note else ""
    return f"{format_time(act.time, zone)}: {ACT_LABELS[ActKind(act.kind)]}{who}{note}"


def _deliveries(deliveries: Sequence[DeliveryLine], zone: str) -> list[Component]:
    if not deliveries:
        return []
    columns = (
        TableColumn("route", "Route"), TableColumn("kind", "Message"), TableColumn("state", "Fate"),
        TableColumn("created", "Written"), TableColumn("delivered", "Delivered"), TableColumn("tries", "Tries", "number"),
        TableColumn("problem", "Problem"),
    )  # fmt: skip
    rows = [delivery_row(delivery, zone) for delivery in deliveries]
    return [card("Messages", text_table(columns, rows, caption="Messages about this incident"))]


def delivery_row(line: DeliveryLine, zone: str) -> dict[str, Any]:
    """A message and what became of it, as a row of a table."""
    return {
        "route": line.route,
        "kind": line.kind,
        "state": line.state.replace("_", " "),
        "created": format_time(line.created, zone),
        "delivered": format_time(line.delivered, zone) if line.delivered else "",
        "tries": line.tries,
        "problem": line.problem,
    }
