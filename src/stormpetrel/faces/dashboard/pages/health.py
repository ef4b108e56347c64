"""The page of health: the watch and its lag, sources, store, models, versions, and what the doctor finds.

health -> one line per thing with a light (icon and word), words and what to do; tables; what was refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

from dash import Dash, html

from stormpetrel.answers.schemas.health import Health, HealthLine, Level
from stormpetrel.answers.site.health import LEVELS, health
from stormpetrel.faces.dashboard.blocks import card, page_head
from stormpetrel.faces.dashboard.filling import Filling, as_of, fill, register_filling
from stormpetrel.faces.dashboard.page import DashboardPage
from stormpetrel.faces.dashboard.tables import TableColumn, status_chip, text_table
from stormpetrel.records.units import format_size

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from stormpetrel.answers.live_site import LiveSite
    from stormpetrel.answers.viewer import Viewer

_LIGHTS: Final[Mapping[Level, tuple[str, str, str]]] = {
    "ok": ("✓", "OK", "chip-complete"),
    "warning": ("!", "Warning", "chip-wait"),
    "problem": ("✕", "Problem", "chip-fail"),
}
_PARTS: Final = {
    "Watching": "Are all sources followed?",
    "Sources": "Where jobs come from",
    "Store": "Where they are kept",
    "Doctor": "Findings of the doctor",
}


def layout(live: LiveSite, viewer: Viewer, query: Mapping[str, str]) -> Component:
    """The page of a link."""
    lead = "The health of the site itself, and what to do if something is wrong."
    return html.Div([page_head("Health", lead), *fill(_filling(live), viewer, query)])


def register(app: Dash, live: LiveSite) -> None:
    """Add what the page answers to."""
    register_filling(app, _filling(live))


PAGE: Final = DashboardPage("/health", "Health", 1, layout, register, heading="Cluster")


def _filling(live: LiveSite) -> Filling:
    def stamp(viewer: Viewer) -> str | None:
        """The time: every look is worth showing; the doctor's first one is waited for."""
        return live.now().isoformat() if not viewer.is_admin or live.boards.inspections.peek(live) is not None else None

    def body(viewer: Viewer, query: Mapping[str, str]) -> list[Component]:
        del query
        return _body(live, health(live, viewer))

    return Filling("health", stamp, body, "The findings of the doctor are", is_read=False)


def _body(live: LiveSite, answer: Health) -> list[Component]:
    parts = [name for name in _PARTS if any(line.part == name for line in answer.lines)]
    cards = [_part(name, [line for line in answer.lines if line.part == name]) for name in parts]
    checked = ""
    if answer.checked is not None:
        local = answer.checked.astimezone(ZoneInfo(live.settings.site.time_zone))
        checked = f"The doctor, the tables and the quarantine were looked at at {local:%H:%M:%S}."
    short = "Administrators see more: sources, disk, quarantine and the doctor's findings." if answer.is_short else ""
    return [
        _headline(answer),
        html.Div(cards, className="health-cards"),
        *_quarantine(answer),
        html.Div([*_tables(answer), _versions(answer)], className="cards"),
        as_of(live, answer.as_of, checked, short),
    ]


def _headline(answer: Health) -> Component:
    bad = [line for line in answer.lines if line.level != "ok"]
    problems = sum(line.level == "problem" for line in bad)
    if not bad:
        text = "Everything is as it should be."
    else:
        counted = [_counted(problems, "problem"), _counted(len(bad) - problems, "warning")]
        text = f"{' and '.join(filter(None, counted))}."
    return html.P([_light(answer.worst), html.Span(text)], className=f"health-head health-{answer.worst}", role="status")


def _part(name: str, lines: list[HealthLine]) -> Component:
    ordered = sorted(lines, key=lambda line: LEVELS.index(line.level))
    return card(_PARTS[name], html.Ul([_line(line) for line in ordered], className="health-lines"))


def _line(line: HealthLine) -> Component:
    parts: list[Any] = [html.H3(line.name), html.P(line.words)]
    if line.advice:
        parts.append(html.P(line.advice, className="health-advice"))
    return html.Li([_light(line.level), html.Div(parts)], className="health-line")


def _light(level: Level) -> Component:
    return status_chip(*_LIGHTS[level])


def _tables(answer: Health) -> list[Component]:
    if answer.tables is None:
        return []
    columns = (
        TableColumn("table", "Table"), TableColumn("rows", "Rows", "number"), TableColumn("files", "Files", "number"),
        TableColumn("size", "Size", "number"), TableColumn("version", "Version", "number"),
    )  # fmt: skip
    rows = [{**table.model_dump(), "size": format_size(table.bytes)} for table in answer.tables]
    return [card("Tables", text_table(columns, rows, caption="Tables of the site"))]


def _quarantine(answer: Health) -> list[Component]:
    if not answer.quarantine:
        return []
    columns = (TableColumn("rule", "Rule"), TableColumn("records", "Records", "number"), TableColumn("examples", "Examples"))
    rows = [
        {
            "rule": refused.rule,
            "records": refused.records,
            "examples": html.Ul([html.Li(html.Code(text)) for text in refused.examples], className="plain-list"),
        }
        for refused in answer.quarantine
    ]
    return [card("Refused records", text_table(columns, rows, caption="Refused records by rule, with examples"))]


def _versions(answer: Health) -> Component:
    columns = (TableColumn("name", "What"), TableColumn("version", "Version"))
    rows = [{"name": name, "version": version} for name, version in answer.versions.items()]
    return card("Versions", text_table(columns, rows, caption="Versions of what runs here"))


def _counted(number: int, noun: str) -> str:
    return "" if not number else f"{number} {noun}{'' if number == 1 else 's'}"
