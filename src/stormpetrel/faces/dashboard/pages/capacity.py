"""The page of capacity: load by week, how it grows, and when the queue will hurt.

link: cores -> capacity_answer -> headline, load with forecast, waits against utilisation, groups.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import polars as pl
from dash import Dash, Input, dcc, html

from stormpetrel.answers.capacity import CAPACITY_BOARDS, CapacityAnswer, capacity_answer
from stormpetrel.answers.viewer import READ
from stormpetrel.events.capacity import MOST_CORES, CapacitySource, Outlook
from stormpetrel.events.capacity_words import wait_words
from stormpetrel.events.load_weeks import LoadUnit
from stormpetrel.faces.dashboard.blocks import card, controls, field, notice, page_head, plot, stat, stats
from stormpetrel.faces.dashboard.filling import Filling, as_of, fill, register_filling
from stormpetrel.faces.dashboard.page import DashboardPage, in_browser
from stormpetrel.faces.dashboard.tables import TableColumn, marked, numbers, sortable_table, text_table
from stormpetrel.figures.capacity import load_figure, wait_figure

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from stormpetrel.answers.live_site import LiveSite
    from stormpetrel.answers.viewer import Viewer

_LEAD: Final = "What is asked of the cluster week by week, how that grows, and when the queue will hurt."
_NOTHING: Final = "Take jobs in: stormpetrel ingest jobs, or events: stormpetrel ingest events. Weeks count once they are over."
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
            controls(field("Cores or slots that there are", written)),
            *fill(_filling(live), viewer, query),
        ]
    )


def register(app: Dash, live: LiveSite) -> None:
    """Add what the page answers to."""
    register_filling(app, _filling(live))
    in_browser(app, "pages.choose", Input("capacity-cores", "value"))


PAGE: Final = DashboardPage("/capacity", "Capacity", 4, layout, register)


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
    return None, f"“{text[:20]}” is no number of cores; write it as 4096."


def _filling(live: LiveSite) -> Filling:
    def stamp(viewer: Viewer) -> str | None:
        viewer.require(READ)
        looked = CAPACITY_BOARDS.look(live)
        return None if looked is None else str(hash(looked.value.tables))

    def body(viewer: Viewer, query: Mapping[str, str]) -> list[Component]:
        made = CAPACITY_BOARDS.latest(live)
        cores, problem = cores_of(query.get("cores"))
        answer = capacity_answer(live, made, viewer, cores=cores)
        parts = made.answer(("capacity page", viewer.is_admin, cores), lambda: _body(live, answer))
        return [*([notice(problem, kind="warning")] if problem else []), *parts]

    return Filling("capacity", stamp, body, "The weeks are")


def _body(live: LiveSite, answer: CapacityAnswer) -> list[Component]:
    record = answer.plan.record
    if not record.known_weeks:
        return [notice(answer.headline, _NOTHING if answer.in_full else "")]
    return [
        _head(answer),
        *([_figures(answer)] if answer.plan.trend is not None else []),
        _load(answer),
        *([_waits(answer)] if answer.plan.waits.low.size else []),
        *([_groups(answer)] if answer.groups.height else []),
        *([_reasons(answer)] if answer.reasons else []),
        as_of(live, answer.as_of, "" if answer.in_full else "What groups ask for is shown to administrators."),
    ]


def _head(answer: CapacityAnswer) -> Component:
    symbol, word, tone, frame = _TONES[answer.plan.outlook]
    words = html.P([marked(symbol, word, tone), html.Span(f" {answer.headline}")])
    return html.Div(words, className=f"health-head {frame}".strip(), id="capacity-head", role="status")


def _reasons(answer: CapacityAnswer) -> Component:
    return card("What this rests on", html.Ul([html.Li(words) for words in answer.reasons], className="grid-findings"))


def _figures(answer: CapacityAnswer) -> Component:
    plan = answer.plan
    assert plan.trend is not None
    low, high = plan.trend.growth_range
    sure = f"nine times out of ten: {_signed(low)} to {_signed(high)}"
    shown = [stat("Growth a week", _signed(plan.trend.growth), sure)]
    if plan.utilisation is not None and plan.capacity is not None:
        bad = "bad" if plan.outlook is Outlook.ALREADY else ""
        shown.append(stat("Asked for now", f"{100 * plan.utilisation:.0f} %", "of the capacity, on the trend", tone=bad))
        shown.append(stat("Waits grow from", f"{100 * plan.knee.utilisation:.0f} %", _knee_hint(answer)))
        if plan.record.unit is not LoadUnit.FULL_HOURS:
            things = "Slots" if plan.record.unit is LoadUnit.SLOT_HOURS else "Cores"
            shown.append(stat(things, f"{plan.capacity:,.0f}", _SOURCES[plan.capacity_source]))
    last = plan.record.weeks.drop_nulls("wait_median_s").tail(1)
    if last.height:
        tenth = f"one in ten longer than {wait_words(last['wait_p90_s'].item())}"
        shown.append(stat("Wait last week", wait_words(last["wait_median_s"].item()), f"median; {tenth}"))
    return stats(*shown)


_SOURCES: Final = {
    CapacitySource.GIVEN: "as given", CapacitySource.TOLD: "by the background", CapacitySource.SEEN: "the most that ran at once",
    None: "",
}  # fmt: skip


def _signed(share: float) -> str:
    return f"{100 * share:+.1f} %".replace("-", "−")


def _knee_hint(answer: CapacityAnswer) -> str:
    return "learnt from this site's past" if answer.plan.knee.learnt else "a rule of thumb: the past does not tell"


def _load(answer: CapacityAnswer) -> Component:
    plan = answer.plan
    figure = load_figure(plan)
    figure.update_layout(title=None)
    figure.update_xaxes(title_text=None)
    summary = f"{plan.record.unit.value.capitalize()} handed in each week" + (
        ", the line through them, and half a year to come." if plan.trend is not None else "."
    )
    return card(
        "Load by week",
        html.P(f"{summary} The week that is not over is left out.", className="soft small"),
        plot("capacity-load", figure, summary, height=420),
        numbers("The numbers of this figure", _week_table(answer)),
    )


def _week_table(answer: CapacityAnswer) -> Component:
    weeks, unit = answer.plan.record.weeks, answer.plan.record.unit
    columns = [
        TableColumn("week", "Week"), TableColumn("load", unit.value.capitalize(), "number"),
        TableColumn("seen", "Seen", "percent"),
    ]  # fmt: skip
    if weeks["asked"].is_not_null().any():
        columns.append(TableColumn("asked", "By their limits", "number", hint="Core-hours if each job used its whole limit"))
    columns += [TableColumn(name, title, "number") for name, title in _COUNTS.items()]
    if weeks["wait_median_s"].is_not_null().any():
        columns += [TableColumn("wait", "Wait, median"), TableColumn("longest", "Wait, 90 %")]
    rows = [
        {
            **row,
            "week": f"{row['week']:%Y-%m-%d}",
            "seen": 100 * row["seen"],
            "wait": wait_words(row["wait_median_s"]),
            "longest": wait_words(row["wait_p90_s"]),
        }
        for row in weeks.sort("week", descending=True).iter_rows(named=True)
    ]
    return text_table(columns, rows, caption="Load, jobs and waits by week")


_COUNTS: Final = {"jobs": "Submitted", "started": "Started", "ended": "Ended"}


def _waits(answer: CapacityAnswer) -> Component:
    plan = answer.plan
    figure = wait_figure(plan)
    figure.update_layout(title=None)
    summary = "How long people waited who came while so much was in use."
    how = " Estimated: the queue, divided by the pace at which jobs started that day." if plan.record.waits_are_estimates else ""
    return card(
        "Wait against utilisation",
        html.P(f"{summary}{how} Only where there was a day of such hours or more.", className="soft small"),
        plot("capacity-waits", figure, summary, height=360),
        numbers("The numbers of this figure", _wait_table(answer)),
    )


def _wait_table(answer: CapacityAnswer) -> Component:
    waits = answer.plan.waits
    columns = (
        TableColumn("used", "In use"), TableColumn("hours", "Hours", "number"), TableColumn("median", "Wait, median"),
        TableColumn("p90", "Wait, 90 %"),
    )  # fmt: skip
    rows = [
        {
            "used": f"{100 * low:.0f} to {100 * (low + waits.width):.0f} %",
            "hours": hours,
            "median": wait_words(median),
            "p90": wait_words(p90),
        }
        for low, hours, median, p90 in zip(waits.low, waits.hours, waits.median_s, waits.p90_s, strict=True)
    ]
    return text_table(columns, rows, caption="Waits by utilisation")


def _groups(answer: CapacityAnswer) -> Component:
    unit, by = answer.plan.record.unit, answer.plan.record.grouped_by or "group"
    columns = (
        TableColumn("group", by.capitalize(), "text", 190),
        TableColumn("load", f"{unit.value.capitalize()} a week", "number", 170),
        TableColumn("share", "Share", "percent", 110),
        TableColumn("growth", "Growth a week", "percent", 150, "Empty where it was there in too few weeks"),
        TableColumn("growth_low", "At least", "percent", 120, "Nine times out of ten"),
        TableColumn("growth_high", "At most", "percent", 120, "Nine times out of ten"),
    )
    rows = answer.groups.with_columns(pl.col("share", "growth", "growth_low", "growth_high") * 100).to_dicts()
    words = "Over the weeks that the trend is fitted to. What a group adds to the growth of all is its share times its growth."
    return card(
        f"Who asks for it, by {by}",
        html.P(words, className="soft small"),
        sortable_table("capacity-groups", columns, rows, label=f"Load by {by}"),
    )
