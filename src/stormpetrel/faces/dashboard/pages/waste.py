"""The page of waste: what failed jobs held, by whom and by what, to the core-second, and what cancelling early would have saved.

link: by, weeks, tau -> Waste, CancelPolicy -> weeks, groups, a ledger that adds up, the cancel policy with its slider.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import polars as pl
from dash import Dash, Input, Output, Patch, dcc, html, no_update

from stormpetrel.answers.background import scope_of
from stormpetrel.answers.history.energy import amount_text, known_suffix
from stormpetrel.answers.history.waste import HOUR_S, policy_answer, policy_point, policy_text, waste_answer, waste_weeks
from stormpetrel.answers.schemas.history import (
    CancelPolicy,
    PolicyPoint,
    PolicyQuestion,
    Waste,
    WasteGroup,
    WasteQuestion,
    WasteTotal,
)
from stormpetrel.answers.viewer import current_viewer
from stormpetrel.errors import StormpetrelError
from stormpetrel.faces.dashboard.blocks import card, controls, field, notice, page_head, plot, stat, stats
from stormpetrel.faces.dashboard.choices import PageLink, choice, chosen
from stormpetrel.faces.dashboard.filling import Filling, as_of, fill, register_filling
from stormpetrel.faces.dashboard.page import DashboardPage, in_browser
from stormpetrel.faces.dashboard.tables import TableColumn, numbers, sortable_table, status_chip, text_table
from stormpetrel.figures.answer_rows import frame_of
from stormpetrel.figures.waste import cancel_policy_figure, waste_by_group_figure, waste_by_week_figure

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from stormpetrel.answers.live_site import LiveSite
    from stormpetrel.answers.viewer import Viewer

GROUPS: Final = {
    "user": "User", "account": "Account", "application": "Application", "outcome": "Outcome", "partition": "Partition",
    "profile": "Profile", "week": "Week",
}  # fmt: skip
_ALL: Final = "all"
WEEKS: Final = {"4": "4 weeks", "12": "12 weeks", "52": "a year", _ALL: "all"}
_TOP: Final = 12
_JOBS_COLUMNS: Final = ("user", "account", "partition")  # by which the table of jobs can be filtered
_POLICY_SUMMARY: Final = "Core hours saved and destroyed for each threshold, and the share of good jobs killed."
_PLAIN: Final = {"t": 10, "r": 10, "b": 10, "l": 10}


def layout(live: LiveSite, viewer: Viewer, query: Mapping[str, str]) -> Component:
    """The page of a link."""
    question = _question(query)
    weeks = _ALL if question.weeks is None else str(question.weeks)
    link = PageLink.of(live, "/waste", query)
    return html.Div(
        [
            page_head("Waste", _lead(viewer)),
            controls(choice("Lost by", GROUPS, question.by, link, "by"), choice("In the last", WEEKS, weeks, link, "weeks")),
            *fill(_filling(live), viewer, query),
        ]
    )


def register(app: Dash, live: LiveSite) -> None:
    """Add what the page answers to."""
    register_filling(app, _filling(live))
    in_browser(app, "pages.keep", Input("waste-tau", "value"))

    @app.callback(
        Output("waste-words", "children"),
        Output("waste-policy", "figure"),
        Input("waste-tau", "value"),
        prevent_initial_call=True,
    )
    def move(percent: str | float | None) -> Any:
        tau = _tau(percent)
        settled = live.boards.settled.peek(live)
        if tau is None or settled is None:
            return no_update, no_update
        try:
            text = policy_text(policy_point(settled, current_viewer(), tau), tau)
        except StormpetrelError as error:
            return str(error), no_update
        figure = Patch()
        figure["layout"]["shapes"][1]["x0"] = figure["layout"]["shapes"][1]["x1"] = tau
        return text, figure


PAGE: Final = DashboardPage("/waste", "Waste", 2, layout, register, heading="Jobs")


def _question(query: Mapping[str, str]) -> WasteQuestion:
    by, weeks = chosen(query, "by", GROUPS, "user"), chosen(query, "weeks", WEEKS, "12")
    return WasteQuestion.model_validate({"by": by, "weeks": None if weeks == _ALL else weeks})


def _filling(live: LiveSite) -> Filling:
    def stamp(viewer: Viewer) -> str | None:
        del viewer
        book, settled = live.boards.books.peek(live), live.boards.settled.peek(live)
        return None if book is None or settled is None else f"{book.version} {settled.version}"

    def body(viewer: Viewer, query: Mapping[str, str]) -> list[Component]:
        question, book, settled = _question(query), live.boards.books.latest(live), live.boards.settled.latest(live)
        answer = waste_answer(book, viewer, question)
        ledger = book.answer(
            ("waste page", scope_of(viewer), question), lambda: _ledger(live, answer, waste_weeks(book, viewer, question))
        )
        policy = policy_answer(settled, viewer, PolicyQuestion())

        def point_at(tau: float) -> PolicyPoint:
            return policy_point(settled, viewer, tau)

        drawn = _policy(policy, point_at, _tau(query.get("tau")), live.settings.watch.quality_days)
        return [*ledger, drawn, _uncounted(live, answer)]

    return Filling("waste", stamp, body, "The ledger is")


def _ledger(live: LiveSite, answer: Waste, weeks: pl.DataFrame) -> list[Component]:
    if not answer.total.jobs:
        return [
            notice(
                "No job has ended in this time that could be counted.", "Choose a longer time, or ingest jobs: stormpetrel watch"
            )
        ]
    return [_figures(answer), html.Div([_weeks(weeks), _groups(answer)], className="cards"), _table(live, answer)]


def _figures(answer: Waste) -> Component:
    total = answer.total
    share = 100 * total.lost_core_seconds / total.core_seconds if total.core_seconds else 0.0
    bad = "bad" if total.lost_core_seconds else ""
    return stats(
        stat("Core hours lost", f"{total.lost_core_seconds / HOUR_S:,.0f}", "held by jobs that failed", tone=bad),
        stat("Of all core hours", f"{share:.1f} %", f"{total.core_seconds / HOUR_S:,.0f} were held"),
        *_energy(answer),
        stat("Failed jobs", f"{total.failed_jobs:,}", f"of {total.jobs:,} that ended"),
    )


def _energy(answer: Waste) -> list[Component]:
    total, energy = answer.total, answer.energy
    if energy is None or not total.kwh:
        return []
    co2 = "" if total.lost_co2_kg is None else f", {amount_text(total.lost_co2_kg)} kg of CO2"
    text = f"of {amount_text(total.kwh)}{known_suffix(energy.known)}{co2}"
    return [stat("kWh lost", amount_text(total.lost_kwh or 0.0), text)]


def _weeks(weeks: pl.DataFrame) -> Component:
    figure = waste_by_week_figure(weeks)
    figure.update_layout(title=None, margin=_PLAIN, legend={"orientation": "h", "y": -0.2})
    figure.update_xaxes(title_text=None)
    summary = "Core hours that failed jobs held each week, by outcome, and their share of all core hours."
    columns = (
        TableColumn("week", "Week"), TableColumn("outcome", "Outcome"), TableColumn("failed_jobs", "Failed jobs", "number"),
        TableColumn("lost", "Core hours lost", "number"),
    )  # fmt: skip
    lost = weeks.filter(pl.col("lost_core_seconds") > 0).with_columns(lost=pl.col("lost_core_seconds") / HOUR_S)
    rows = lost.sort("week", "lost", descending=True).iter_rows(named=True)
    return card(
        "Week by week",
        html.P(summary, className="soft small"),
        plot("waste-weeks", figure, summary, height=380),
        numbers("The numbers of this figure", text_table(columns, rows, caption="Core hours lost by week and outcome")),
    )


def _groups(answer: Waste) -> Component:
    figure = waste_by_group_figure(frame_of(answer.groups).rename({"group": answer.by}), top=_TOP)
    figure.update_layout(title=None, margin=_PLAIN)
    figure.update_yaxes(title_text=None)
    grouping = GROUPS[answer.by].lower()
    first = answer.groups[0]
    if not first.lost_core_seconds:
        return card(f"By {grouping}", notice("No core hours were lost.", "No failed job had used cores."))
    most = f"{_hours(first.lost_core_seconds)}, {100 * first.share:.0f} % of the loss"
    summary = f"{grouping.capitalize()} {first.group} lost the most: {most}."
    return card(f"By {grouping}", html.P(summary, className="soft small"), plot("waste-groups", figure, summary, height=380))


def _table(live: LiveSite, answer: Waste) -> Component:
    by, linked = answer.by, answer.by in _JOBS_COLUMNS
    columns = (
        TableColumn(by, GROUPS[by], "link" if linked else "text", 140),
        TableColumn("lost_hours", "Core hours lost", "number", 155),
        TableColumn("share", "Of the loss", "percent", 125, "Part of everything that was lost"),
        TableColumn("lost_share", "Of its own", "percent", 118, "Part of what the group itself held"),
        TableColumn("core_hours", "Core hours held", "number", 165),
        *_energy_columns(answer),
        TableColumn("failed_jobs", "Failed jobs", "number", 125),
        TableColumn("jobs", "Jobs", "number", 95),
    )
    link, rows = PageLink.of(live, "/jobs"), [{by: line.group, **_in_hours(line, line.share)} for line in answer.groups]
    for row in rows if linked else ():
        row[f"{by}_link"] = link.to(**{"view": "all", by: f"equals:{row[by]}"})
    total = _in_hours(answer.total, 1.0 if answer.total.lost_core_seconds else 0.0)
    items = [html.Li([html.B(f"Profile {name}: "), meaning]) for name, meaning in answer.words.items()]
    return card(
        "The ledger",
        html.P([status_chip("✓", "adds up", "chip-complete"), f" {_reconciled(answer)}"], className="small ledger-sum"),
        *([html.P(answer.energy.words, className="soft small")] if answer.energy else []),
        sortable_table("waste-table", columns, rows, label=f"Waste by {by}", total={by: "All", **total}),
        *([html.Ul(items, className="plain-list")] if items else []),
    )


def _energy_columns(answer: Waste) -> list[TableColumn]:
    """Energy; CO2 where the site says what a kWh is, and what was measured where that is not all or nothing."""
    energy = answer.energy
    if energy is None:
        return []
    title = "kWh (estimated)" if energy.known == "estimated" else "kWh lost"
    columns = [TableColumn("lost_kwh", title, "decimal", 165 if energy.known == "estimated" else 118, energy.words)]
    if energy.grams_co2_per_kwh is not None:
        columns.append(TableColumn("lost_co2_kg", "kg CO2", "decimal", 112, "CO2 of the kWh that were lost"))
    if energy.known == "partly estimated":
        hint = "Part of the group's energy that was measured; the rest is estimated"
        columns.append(TableColumn("measured", "Measured", "percent", 120, hint))
    return columns


def _in_hours(line: WasteGroup | WasteTotal, share: float) -> dict[str, Any]:
    """What jobs held and lost in hours, and parts in per cent."""
    held, lost = line.core_seconds, line.lost_core_seconds
    return {
        **line.model_dump(exclude={"group"}),
        "lost_hours": lost / HOUR_S,
        "core_hours": held / HOUR_S,
        "lost_share": 100 * lost / held if held > 0 else None,
        "share": 100 * share,
        "lost_kwh": _digits(line.lost_kwh),
        "lost_co2_kg": _digits(line.lost_co2_kg),
        "measured": None if line.measured_share is None else 100 * line.measured_share,
    }


def _digits(amount: float | None) -> float | None:
    """As many digits as `amount_text` shows."""
    return None if amount is None else float(amount_text(amount).replace(",", ""))


def _reconciled(answer: Waste) -> str:
    total = answer.total
    return (
        f"The groups sum to {total.jobs:,} jobs and {total.lost_core_seconds:,} core seconds lost, "
        "which is what the job table sums to by itself."
    )


def _policy(policy: CancelPolicy, point_at: Callable[[float], PolicyPoint], tau: float | None, days: float) -> Component:
    title = "What if jobs were cancelled two minutes in?"
    if not policy.jobs:
        hint = "They come with the watch, two minutes after a job's start: stormpetrel watch"
        return card(title, notice("No forecast two minutes into a job has been settled yet.", hint))
    tau = round(policy.best.tau, 2) if tau is None else tau
    figure = cancel_policy_figure(policy)
    figure.update_layout(title=None, margin=_PLAIN, legend={"orientation": "h", "y": -0.2})
    figure.add_vline(x=tau, line={"color": "#000000", "width": 2})  # the second shape: the slider moves it
    text = (
        f"Replayed on the predictions for {policy.jobs:,} jobs that ran for over two minutes and have ended in the last "
        f"{days:g} days; {policy.failed_jobs:,} of them failed. A job is cancelled where its risk is above the threshold."
    )
    best = f"Best in hindsight (not known in advance): {policy_text(policy.best, policy.best.tau)}"
    slider = dcc.Input(id="waste-tau", type="range", min=0, max=100, step=1, value=round(100 * tau), className="range")
    return card(
        title,
        html.P(text, className="soft small"),
        html.Div(
            [
                field("Threshold: cancel above this risk (%)", slider),
                html.P(policy_text(point_at(tau), tau), id="waste-words", className="policy-words", role="status"),
            ],
            className="policy-control",
        ),
        plot("waste-policy", figure, _POLICY_SUMMARY, height=400),
        html.P(best, className="soft small"),
        numbers("Some thresholds in numbers", _policy_table(point_at)),
        className="policy",
    )


def _policy_table(point_at: Callable[[float], PolicyPoint]) -> Component:
    columns = (
        TableColumn("tau", "Threshold", "percent"), TableColumn("cancelled", "Cancelled", "number"),
        TableColumn("wrong_kills", "Would have completed", "number"), TableColumn("saved", "Core hours saved", "number"),
        TableColumn("lost", "Core hours lost", "number"),
    )  # fmt: skip
    rows = [_policy_row(point_at(percent / 100), percent) for percent in range(10, 100, 10)]
    return text_table(columns, rows, caption="What cancelling would have done, by threshold")


def _policy_row(point: PolicyPoint, percent: int) -> dict[str, Any]:
    lost = (point.wrong_core_seconds + point.redo_core_seconds) / HOUR_S
    saved = point.saved_core_seconds / HOUR_S
    return {"tau": percent, "cancelled": point.cancelled, "wrong_kills": point.wrong_kills, "saved": saved, "lost": lost}


def _uncounted(live: LiveSite, answer: Waste) -> Component:
    left_out = ", ".join(f"{count:,} {reason}" for reason, count in answer.uncounted.items())
    return as_of(
        live,
        answer.as_of,
        f"Jobs that are not in the ledger: {left_out}." if left_out else "",
        "These are your own jobs; administrators see all." if answer.own_only else "",
    )


def _tau(percent: str | float | None) -> float | None:
    """A threshold out of a link or a slider; None where it is none."""
    try:
        value = float(percent) / 100 if percent is not None else None
    except ValueError:
        return None
    return value if value is not None and 0.0 <= value <= 1.0 else None


def _hours(core_seconds: int) -> str:
    hours = core_seconds / HOUR_S
    return f"{hours:,.0f} core hours" if hours >= 10 or hours == 0 else f"{hours:,.1f} core hours"


def _lead(viewer: Viewer) -> str:
    whose = "failed jobs" if viewer.is_admin else "your failed jobs"
    return f"What {whose} held before they failed, and what would have been saved by acting on the forecast."
