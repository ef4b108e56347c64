"""The page of waste: what failed jobs held, by whom and by what, to the core-second, and what cancelling early would have saved.

link: by, weeks, tau -> waste_answer, policy_answer -> weeks, groups, a ledger that adds up, the cancel policy with its slider.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import polars as pl
from dash import Dash, Input, Output, Patch, dcc, html, no_update

from stormpetrel.answers.background import scope_of
from stormpetrel.answers.day_book import BOOKS
from stormpetrel.answers.settled import SETTLED
from stormpetrel.answers.viewer import current_viewer
from stormpetrel.answers.waste import HOUR_S, PolicyAnswer, WasteAnswer, policy_answer, policy_words, waste_answer
from stormpetrel.errors import StormpetrelError
from stormpetrel.faces.dashboard.blocks import card, controls, field, notice, page_head, plot, stat, stats
from stormpetrel.faces.dashboard.choices import PageLink, choice, chosen
from stormpetrel.faces.dashboard.filling import Filling, as_of, fill, register_filling
from stormpetrel.faces.dashboard.page import DashboardPage, in_browser
from stormpetrel.faces.dashboard.tables import TableColumn, marked, numbers, sortable_table, text_table
from stormpetrel.figures.waste import cancel_policy_figure, waste_by_group_figure, waste_by_week_figure

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from stormpetrel.answers.live_site import LiveSite
    from stormpetrel.answers.viewer import Viewer
    from stormpetrel.jobs.cancel_policy import CancelPoint

GROUPS: Final = {
    "user": "User", "account": "Account", "application": "Application", "outcome": "Outcome", "partition": "Partition",
    "profile": "Profile", "week": "Week",
}  # fmt: skip
WEEKS: Final = {"4": "4 weeks", "12": "12 weeks", "52": "a year", "all": "all"}
_TOP: Final = 12
_JOBS_COLUMNS: Final = ("user", "account", "partition")  # by which the table of jobs can be filtered
_POLICY_SUMMARY: Final = "Core hours saved and destroyed for each threshold, and the share of good jobs killed."
_PLAIN: Final = {"t": 10, "r": 10, "b": 10, "l": 10}


def layout(live: LiveSite, viewer: Viewer, query: Mapping[str, str]) -> Component:
    """The page of a link."""
    by, weeks = _asked(query)
    link = PageLink.of(live, "/waste", query)
    return html.Div(
        [
            page_head("Waste", _lead(viewer)),
            controls(choice("Lost by", GROUPS, by, link, "by"), choice("In the last", WEEKS, weeks, link, "weeks")),
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
        made = SETTLED.look(live)
        if tau is None or made is None:
            return no_update, no_update
        try:
            words = _policy_words(policy_answer(made, current_viewer()), tau)
        except StormpetrelError as error:
            return str(error), no_update
        figure = Patch()
        figure["layout"]["shapes"][1]["x0"] = figure["layout"]["shapes"][1]["x1"] = tau
        return words, figure


PAGE: Final = DashboardPage("/waste", "Waste", 2, layout, register)


def _asked(query: Mapping[str, str]) -> tuple[str, str]:
    return chosen(query, "by", GROUPS, "user"), chosen(query, "weeks", WEEKS, "12")


def _filling(live: LiveSite) -> Filling:
    def stamp(viewer: Viewer) -> str | None:
        del viewer
        book, said = BOOKS.look(live), SETTLED.look(live)
        return None if book is None or said is None else f"{book.version} {said.version}"

    def body(viewer: Viewer, query: Mapping[str, str]) -> list[Component]:
        by, weeks = _asked(query)
        book = BOOKS.latest(live)
        answer = waste_answer(book, viewer, by=by, weeks=None if weeks == "all" else int(weeks))
        ledger = book.answer(("waste page", scope_of(viewer), by, weeks), lambda: _ledger(live, answer))
        policy = policy_answer(SETTLED.latest(live), viewer)
        tau = _tau(query.get("tau"))
        return [*ledger, _policy(policy, tau, live.settings.watch.quality_days), _uncounted(live, answer)]

    return Filling("waste", stamp, body, "The ledger is")


def _ledger(live: LiveSite, answer: WasteAnswer) -> list[Component]:
    if not answer.total.jobs:
        return [
            notice(
                "No job has ended in this time that could be counted.", "Choose a longer time, or take jobs in: stormpetrel watch"
            )
        ]
    return [_figures(answer), html.Div([_weeks(answer), _groups(answer)], className="cards"), _table(live, answer)]


def _figures(answer: WasteAnswer) -> Component:
    total = answer.total
    share = 100 * total.lost_core_seconds / total.core_seconds if total.core_seconds else 0.0
    bad = "bad" if total.lost_core_seconds else ""
    return stats(
        stat("Core hours lost", f"{total.lost_core_seconds / HOUR_S:,.0f}", "held by jobs that failed", tone=bad),
        stat("Of all core hours", f"{share:.1f} %", f"{total.core_seconds / HOUR_S:,.0f} were held"),
        stat("Failed jobs", f"{total.failed_jobs:,}", f"of {total.jobs:,} that ended"),
    )


def _weeks(answer: WasteAnswer) -> Component:
    figure = waste_by_week_figure(answer.weeks)
    figure.update_layout(title=None, margin=_PLAIN, legend={"orientation": "h", "y": -0.2})
    figure.update_xaxes(title_text=None)
    summary = "Core hours that failed jobs held each week, by what became of them, and their share of all core hours."
    columns = (
        TableColumn("week", "Week"), TableColumn("outcome", "Outcome"), TableColumn("failed_jobs", "Failed jobs", "number"),
        TableColumn("lost", "Core hours lost", "number"),
    )  # fmt: skip
    lost = answer.weeks.filter(pl.col("lost_core_seconds") > 0).with_columns(lost=pl.col("lost_core_seconds") / HOUR_S)
    rows = lost.sort("week", "lost", descending=True).iter_rows(named=True)
    return card(
        "Week by week",
        html.P(summary, className="soft small"),
        plot("waste-weeks", figure, summary, height=380),
        numbers("The numbers of this figure", text_table(columns, rows, caption="Core hours lost by week and outcome")),
    )


def _groups(answer: WasteAnswer) -> Component:
    figure = waste_by_group_figure(answer.groups, top=_TOP)
    figure.update_layout(title=None, margin=_PLAIN)
    figure.update_yaxes(title_text=None)
    word = GROUPS[answer.by].lower()
    losing = answer.groups.filter(pl.col("lost_core_seconds") > 0)
    if losing.is_empty():
        return card(f"By {word}", notice("No core hours were lost.", "Nothing failed that had held cores."))
    first = losing.row(0, named=True)
    most = f"{_hours(first['lost_core_seconds'])}, {100 * first['share']:.0f} % of the loss"
    summary = f"{word.capitalize()} {first[answer.by]} lost the most: {most}."
    return card(f"By {word}", html.P(summary, className="soft small"), plot("waste-groups", figure, summary, height=380))


def _table(live: LiveSite, answer: WasteAnswer) -> Component:
    by, linked = answer.by, answer.by in _JOBS_COLUMNS
    columns = (
        TableColumn(by, GROUPS[by], "link" if linked else "text", 190),
        TableColumn("lost_hours", "Core hours lost", "number", 160),
        TableColumn("share", "Of the loss", "percent", 130, "Part of everything that was lost"),
        TableColumn("lost_share", "Of its own", "percent", 130, "Part of what the group itself held"),
        TableColumn("core_hours", "Core hours held", "number", 160),
        TableColumn("failed_jobs", "Failed jobs", "number", 130),
        TableColumn("jobs", "Jobs", "number", 110),
    )
    link, rows = PageLink.of(live, "/jobs"), _in_hours(answer.groups).to_dicts()
    for row in rows if linked else ():
        row[f"{by}_link"] = link.to(**{"view": "all", by: f"equals:{row[by]}"})
    total = _in_hours(pl.DataFrame([_total(answer)])).row(0, named=True)
    words = [html.Li([html.B(f"Profile {name}: "), told]) for name, told in answer.words.items()]
    return card(
        "The ledger",
        html.P([marked("✓", "adds up", "chip-complete"), f" {_reconciled(answer)}"], className="small ledger-sum"),
        sortable_table("waste-table", columns, rows, label=f"Waste by {by}", total={by: "All", **total}),
        *([html.Ul(words, className="plain-list")] if words else []),
    )


def _total(answer: WasteAnswer) -> dict[str, Any]:
    total = answer.total
    return {
        "jobs": total.jobs,
        "failed_jobs": total.failed_jobs,
        "core_seconds": total.core_seconds,
        "lost_core_seconds": total.lost_core_seconds,
        "share": 1.0 if total.lost_core_seconds else 0.0,
    }


def _in_hours(groups: pl.DataFrame) -> pl.DataFrame:
    held, lost = pl.col("core_seconds"), pl.col("lost_core_seconds")
    return groups.with_columns(
        lost_hours=lost / HOUR_S,
        core_hours=held / HOUR_S,
        lost_share=pl.when(held > 0).then(100 * lost / held),
        share=100 * pl.col("share"),
    )


def _reconciled(answer: WasteAnswer) -> str:
    total = answer.total
    return (
        f"The groups sum to {total.jobs:,} jobs and {total.lost_core_seconds:,} core seconds lost, "
        "which is what the job table sums to by itself."
    )


def _policy(answer: PolicyAnswer, tau: float | None, days: float) -> Component:
    title = "What if jobs were cancelled two minutes in?"
    if not answer.curve.jobs:
        hint = "They come with the watch, two minutes after a job's start: stormpetrel watch"
        return card(title, notice("No forecast two minutes into a job has been settled yet.", hint))
    tau = round(answer.curve.best.tau, 2) if tau is None else tau
    figure = cancel_policy_figure(answer.drawn())
    figure.update_layout(title=None, margin=_PLAIN, legend={"orientation": "h", "y": -0.2})
    figure.add_vline(x=tau, line={"color": "#000000", "width": 2})  # the second shape: the slider moves it
    curve = answer.curve
    words = (
        f"Replayed on what was said then about {curve.jobs:,} jobs that ran for over two minutes and have ended in the last "
        f"{days:g} days; {curve.failed_jobs:,} of them failed. A job is cancelled where its risk is above the threshold."
    )
    best = f"Best in hindsight, which nobody could have known: {_policy_words(answer, curve.best.tau)}"
    slider = dcc.Input(id="waste-tau", type="range", min=0, max=100, step=1, value=round(100 * tau), className="range")
    return card(
        title,
        html.P(words, className="soft small"),
        html.Div(
            [
                field("Threshold: cancel above this risk (%)", slider),
                html.P(_policy_words(answer, tau), id="waste-words", className="policy-words", role="status"),
            ],
            className="policy-control",
        ),
        plot("waste-policy", figure, _POLICY_SUMMARY, height=400),
        html.P(best, className="soft small"),
        numbers("Some thresholds in numbers", _policy_table(answer)),
        className="policy",
    )


def _policy_table(answer: PolicyAnswer) -> Component:
    columns = (
        TableColumn("tau", "Threshold", "percent"), TableColumn("cancelled", "Cancelled", "number"),
        TableColumn("wrong_kills", "Would have completed", "number"), TableColumn("saved", "Core hours saved", "number"),
        TableColumn("lost", "Core hours lost", "number"),
    )  # fmt: skip
    rows = [_policy_row(answer.at(percent / 100), percent) for percent in range(10, 100, 10)]
    return text_table(columns, rows, caption="What cancelling would have done, by threshold")


def _policy_row(point: CancelPoint, percent: int) -> dict[str, Any]:
    lost = (point.wrong_core_seconds + point.redo_core_seconds) / HOUR_S
    saved = point.saved_core_seconds / HOUR_S
    return {"tau": percent, "cancelled": point.cancelled, "wrong_kills": point.wrong_kills, "saved": saved, "lost": lost}


def _policy_words(answer: PolicyAnswer, tau: float) -> str:
    return policy_words(answer.at(tau), tau)


def _uncounted(live: LiveSite, answer: WasteAnswer) -> Component:
    left_out = ", ".join(f"{count:,} {reason}" for reason, count in answer.reconciled.uncounted.items())
    return as_of(
        live,
        answer.as_of,
        f"Jobs that are not in the ledger: {left_out}." if left_out else "",
        "These are your own jobs; administrators see everybody's." if answer.own_only else "",
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
