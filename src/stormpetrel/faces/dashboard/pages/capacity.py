"""The page of capacity: load by week, how it grows, and when the queue will hurt.

link: cores -> Capacity -> headline, load with forecast, waits against utilisation, groups.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from dash import Dash, Input, dcc, html

from stormpetrel.answers.cluster.capacity import capacity_answer
from stormpetrel.answers.schemas.capacity import Capacity, CapacityQuestion
from stormpetrel.answers.viewer import READ
from stormpetrel.events.capacity.capacity import MOST_CORES, CapacitySource, Outlook
from stormpetrel.events.capacity.text import wait_text
from stormpetrel.events.capacity.weeks import LoadUnit
from stormpetrel.faces.dashboard.blocks import card, controls, field, notice, page_head, plot, stat, stats
from stormpetrel.faces.dashboard.filling import Filling, as_of, fill, register_filling
from stormpetrel.faces.dashboard.page import DashboardPage, in_browser
from stormpetrel.faces.dashboard.tables import TableColumn, numbers, sortable_table, status_chip, text_table
from stormpetrel.figures.capacity import load_figure, wait_figure

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from stormpetrel.answers.live_site import LiveSite
    from stormpetrel.answers.viewer import Viewer

_LEAD: Final = "The requested load week by week, its growth, and when waits will become long."
_NOTHING: Final = "Ingest jobs: stormpetrel ingest jobs, or events: stormpetrel ingest events. Weeks count once they are over."
_TONES: Final = {
    Outlook.ALREADY: ("▲", "Hurts already", "chip-fail", "health-problem"),
    Outlook.DATED: ("◆", "Will hurt", "chip-wait", "health-warning"),
    Outlook.NOT_WITHIN: ("●", "Room left", "chip-complete", ""),
    Outlook.UNSURE: ("○", "Open", "chip-wait", "health-warning"),
    Outlook.UNKNOWN_SIZE: ("○", "Growth only", "chip-wait", "health-warning"),
    Outlook.TOO_SHORT: ("○", "Too early", "chip-wait", "health-warning"),
}  # fmt: skip


def layout(live: LiveSite, viewer: Viewer, query: Mapping[str, str]) -> Component:
    """The page of a link."""
    written = dcc.Input(
        id="capacity-cores",
        type="text",
        value=query.get("cores", "")[:20],
        placeholder="as seen",
        debounce=True,
        maxLength=20,
        inputMode="numeric",
        autoComplete="off",
        className="input",
    )
    return html.Div(
        [
            page_head("Capacity", _LEAD),
            controls(field("Cores or slots of the cluster", written)),
            *fill(_filling(live), viewer, query),
        ]
    )


def register(app: Dash, live: LiveSite) -> None:
    """Add what the page answers to."""
    register_filling(app, _filling(live))
    in_browser(app, "pages.choose", Input("capacity-cores", "value"))


PAGE: Final = DashboardPage("/capacity", "Capacity", 0, layout, register, heading="Plan")


def cores_of(text: str | None) -> tuple[float | None, str]:
    """How many cores a link names, and what is wrong with it, in words."""
    if not text:
        return None, ""
    try:
        cores = float(text.replace(",", ""))
    except ValueError:
        cores = 0.0
    if 1 <= cores <= MOST_CORES:
        return cores, ""
    return None, f"“{text[:20]}” is not a number of cores; write it as 4096."


def _filling(live: LiveSite) -> Filling:
    def stamp(viewer: Viewer) -> str | None:
        viewer.require(READ)
        board = live.boards.capacity.peek(live)
        return None if board is None else str(hash(board.value.tables))

    def body(viewer: Viewer, query: Mapping[str, str]) -> list[Component]:
        board = live.boards.capacity.latest(live)
        cores, problem = cores_of(query.get("cores"))
        answer = capacity_answer(live, board, viewer, CapacityQuestion(cores=cores))
        parts = board.answer(("capacity page", viewer.is_admin, cores), lambda: _body(live, answer))
        return [*([notice(problem, kind="warning")] if problem else []), *parts]

    return Filling("capacity", stamp, body, "The weeks are")


def _body(live: LiveSite, answer: Capacity) -> list[Component]:
    if all(week.load is None for week in answer.weeks):
        return [notice(answer.headline, _NOTHING if answer.in_full else "")]
    return [
        _head(answer),
        *([_figures(answer)] if answer.growth is not None else []),
        _load(answer),
        *([_waits(answer)] if answer.waits else []),
        *([_groups(answer)] if answer.groups else []),
        *([_reasons(answer)] if answer.reasons else []),
        as_of(live, answer.as_of, "" if answer.in_full else "The load of each group is shown to administrators."),
    ]


def _head(answer: Capacity) -> Component:
    symbol, label, tone, frame = _TONES[Outlook(answer.outlook)]
    line = html.P([status_chip(symbol, label, tone), html.Span(f" {answer.headline}")])
    return html.Div(line, className=f"health-head {frame}".strip(), id="capacity-head", role="status")


def _reasons(answer: Capacity) -> Component:
    return card("Data behind this", html.Ul([html.Li(text) for text in answer.reasons], className="cluster-findings"))


def _figures(answer: Capacity) -> Component:
    sure = f"nine times out of ten: {_signed(answer.growth_low)} to {_signed(answer.growth_high)}"
    shown = [stat("Growth a week", _signed(answer.growth), sure)]
    if answer.utilisation is not None and answer.capacity is not None:
        bad = "bad" if answer.outlook == Outlook.ALREADY.value else ""
        shown.append(stat("Asked for now", f"{100 * answer.utilisation:.0f} %", "of the capacity, on the trend", tone=bad))
        shown.append(stat("Waits grow from", f"{100 * answer.knee:.0f} %", _knee_hint(answer)))
        if answer.unit != LoadUnit.FULL_HOURS:
            things = "Slots" if answer.unit == LoadUnit.SLOT_HOURS else "Cores"
            shown.append(stat(things, f"{answer.capacity:,.0f}", _SOURCES.get(answer.capacity_source, "")))
    waited = [week for week in answer.weeks if week.wait_median_s is not None]
    if waited:
        tenth = f"one in ten longer than {wait_text(waited[-1].wait_p90_s)}"
        shown.append(stat("Wait last week", wait_text(waited[-1].wait_median_s), f"median; {tenth}"))
    return stats(*shown)


_SOURCES: Final[dict[str | None, str]] = {
    CapacitySource.GIVEN: "as given", CapacitySource.TOLD: "by the background", CapacitySource.SEEN: "the most that ran at once",
}  # fmt: skip


def _signed(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:+.1f} %".replace("-", "−")


def _knee_hint(answer: Capacity) -> str:
    return "learnt from this site's history" if answer.knee_learnt else "a rule of thumb: too little history"


def _load(answer: Capacity) -> Component:
    figure = load_figure(answer)
    figure.update_layout(title=None)
    figure.update_xaxes(title_text=None)
    summary = f"{answer.unit.capitalize()} submitted each week" + (
        ", the line through them, and half a year to come." if answer.growth is not None else "."
    )
    return card(
        "Load by week",
        html.P(f"{summary} The current week is left out.", className="soft small"),
        plot("capacity-load", figure, summary, height=420),
        numbers("The numbers of this figure", _week_table(answer)),
    )


def _week_table(answer: Capacity) -> Component:
    columns = [
        TableColumn("week", "Week"), TableColumn("load", answer.unit.capitalize(), "number"),
        TableColumn("seen", "Seen", "percent"),
    ]  # fmt: skip
    if any(week.asked is not None for week in answer.weeks):
        columns.append(TableColumn("asked", "By their limits", "number", hint="Core-hours if each job used its whole limit"))
    columns += [TableColumn(name, title, "number") for name, title in _COUNTS.items()]
    if any(week.wait_median_s is not None for week in answer.weeks):
        columns += [TableColumn("wait", "Wait, median"), TableColumn("longest", "Wait, 90 %")]
    rows = [
        {
            **dict(week),
            "week": f"{week.week:%Y-%m-%d}",
            "seen": 100 * week.seen,
            "wait": wait_text(week.wait_median_s),
            "longest": wait_text(week.wait_p90_s),
        }
        for week in reversed(answer.weeks)
    ]
    return text_table(columns, rows, caption="Load, jobs and waits by week")


_COUNTS: Final = {"jobs": "Submitted", "started": "Started", "ended": "Ended"}


def _waits(answer: Capacity) -> Component:
    figure = wait_figure(answer)
    figure.update_layout(title=None)
    summary = "Wait by the utilisation at submission."
    how = " Estimated: the queue, divided by the rate of starts that day." if answer.waits_are_estimates else ""
    return card(
        "Wait against utilisation",
        html.P(f"{summary}{how} Only where there was a day of such hours or more.", className="soft small"),
        plot("capacity-waits", figure, summary, height=360),
        numbers("The numbers of this figure", _wait_table(answer)),
    )


def _wait_table(answer: Capacity) -> Component:
    columns = (
        TableColumn("used", "In use"), TableColumn("hours", "Hours", "number"), TableColumn("median", "Wait, median"),
        TableColumn("p90", "Wait, 90 %"),
    )  # fmt: skip
    rows = [
        {
            "used": f"{100 * wait.from_utilisation:.0f} to {100 * wait.to_utilisation:.0f} %",
            "hours": wait.hours,
            "median": wait_text(wait.median_s),
            "p90": wait_text(wait.p90_s),
        }
        for wait in answer.waits
    ]
    return text_table(columns, rows, caption="Waits by utilisation")


def _groups(answer: Capacity) -> Component:
    by = answer.grouped_by or "group"
    columns = (
        TableColumn("group", by.capitalize(), "text", 190),
        TableColumn("load", f"{answer.unit.capitalize()} a week", "number", 170),
        TableColumn("share", "Share", "percent", 110),
        TableColumn("growth", "Growth a week", "percent", 150, "Empty if there are too few weeks"),
        TableColumn("growth_low", "At least", "percent", 120, "Nine times out of ten"),
        TableColumn("growth_high", "At most", "percent", 120, "Nine times out of ten"),
    )
    rows = [{name: _in_percent(name, value) for name, value in group} for group in answer.groups]
    text = "Over the weeks that the trend is fitted to. What a group adds to the growth of all is its share times its growth."
    return card(
        f"Who asks for it, by {by}",
        html.P(text, className="soft small"),
        sortable_table("capacity-groups", columns, rows, label=f"Load by {by}"),
    )


def _in_percent(name: str, value: Any) -> Any:
    return value if value is None or name in ("group", "load") else 100 * value
