"""The page of trends: how often the jobs of each user, account, application, node, profile or partition fail over time.

link: by, every, group -> TrendFrames -> lines with their intervals, what changed, every group as a table, a heat map.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import polars as pl
from dash import Dash, Input, html

from stormpetrel.answers.background import scope_of
from stormpetrel.answers.history.changes import site_changes
from stormpetrel.answers.history.trends import MIN_JOBS, PERIODS, TrendFrames, group_names, trend_frames
from stormpetrel.answers.schemas.trends import TrendsQuestion
from stormpetrel.faces.dashboard.blocks import card, controls, notice, page_head, plot, stat, stats
from stormpetrel.faces.dashboard.choices import PageLink, choice, chosen, search_field
from stormpetrel.faces.dashboard.filling import Filling, as_of, fill, register_filling
from stormpetrel.faces.dashboard.page import DashboardPage, in_browser
from stormpetrel.faces.dashboard.tables import TableColumn, numbers, sortable_table, status_chip, text_table
from stormpetrel.figures.trends import failure_trend_figure, trend_heatmap_figure

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from stormpetrel.answers.live_site import LiveSite
    from stormpetrel.answers.viewer import Viewer

GROUPS: Final = {
    "user": "User", "account": "Account", "application": "Application", "node": "Node", "profile": "Profile",
    "partition": "Partition",
}  # fmt: skip
EVERY: Final = {"1d": "Day", "1w": "Week", "1mo": "Month"}
_PLURAL: Final = {"user": "users", "account": "accounts", "application": "applications", "node": "nodes", "profile": "profiles",
                  "partition": "partitions"}  # fmt: skip
_LAST: Final = {"1d": 42, "1w": 26, "1mo": 24}  # periods that fit on a screen
_LINES: Final = {"1d": 3, "1w": 5, "1mo": 5}  # whose bands can still be distinguished
_HEAT: Final = 20
_MOST_GROUPS: Final = 500  # in the list to choose from, and in the table
_MOST_MOVERS: Final = 8
_LONGEST_GROUP: Final = 256  # letters of a name in a link: no group has more
_JOBS_FILTER: Final = {  # column and kind of filter in the table of jobs
    "user": "user=equals", "account": "account=equals", "partition": "partition=equals", "application": "job_name=contains",
}  # fmt: skip


def layout(live: LiveSite, viewer: Viewer, query: Mapping[str, str]) -> Component:
    """The page of a link."""
    question = _question(query)
    by, every, group = question.by, question.every, question.group
    link = PageLink.of(live, "/trends", query)
    return html.Div(
        [
            page_head("Trends", _lead(viewer)),
            controls(
                choice("Failures by", GROUPS, by, link, "by", group=None),
                choice("Per", EVERY, every, link, "every"),
                search_field(
                    "trends-group",
                    f"Only one {GROUPS[by].lower()}",
                    _names(live, viewer, by),
                    group,
                    placeholder=f"All {_PLURAL[by]}",
                ),
            ),
            *fill(_filling(live), viewer, query),
        ]
    )


def register(app: Dash, live: LiveSite) -> None:
    """Add what the page answers to."""
    register_filling(app, _filling(live))
    in_browser(app, "pages.choose", Input("trends-group", "value"))


PAGE: Final = DashboardPage("/trends", "Trends", 1, layout, register, heading="Jobs")


def _question(query: Mapping[str, str]) -> TrendsQuestion:
    by, every, group = chosen(query, "by", GROUPS, "user"), chosen(query, "every", EVERY, "1w"), query.get("group", "")
    return TrendsQuestion.model_validate(
        {"by": by, "every": every, "group": group[:_LONGEST_GROUP] or None, "top": _HEAT, "last": _LAST[every]}
    )


def _filling(live: LiveSite) -> Filling:
    def stamp(viewer: Viewer) -> str | None:
        del viewer
        book = live.boards.books.peek(live)
        return None if book is None else str(book.version)

    def body(viewer: Viewer, query: Mapping[str, str]) -> list[Component]:
        book, question = live.boards.books.latest(live), _question(query)
        answer = trend_frames(book, viewer, question)
        parts = book.answer(("trends page", scope_of(viewer), question), lambda: _body(live, answer))
        return [*parts, *_new_here(live, viewer)] if question.group is None else parts

    return Filling("trends", stamp, body, "The trends are")


def _new_here(live: LiveSite, viewer: Viewer) -> list[Component]:
    """What is new at the site, which is no anomaly; nothing where nothing is."""
    changes = site_changes(live.site, viewer)
    if not changes:
        return []
    hint = "Of the last week, against the four weeks before. New items have no past to compare with."
    items = html.Ul([html.Li(text) for text in changes], className="plain-list")
    return [card("New at this site", items, html.P(hint, className="soft small"), id="trends-new")]


def _names(live: LiveSite, viewer: Viewer, by: str) -> list[str]:
    """What can be chosen, as far as it is known by now."""
    book = live.boards.books.peek(live)
    return [] if book is None else group_names(book, viewer, by=by, most=_MOST_GROUPS)


def _body(live: LiveSite, answer: TrendFrames) -> list[Component]:
    whose = "These are your own jobs; administrators see all." if answer.own_only else ""
    if not answer.jobs:
        hint = "They appear here as soon as one has ended." if answer.own_only else "Ingest jobs: stormpetrel watch"
        return [notice("No job has ended yet.", hint)]
    if answer.trend.is_empty():
        return [_figures(answer), notice(*_nothing(answer)), as_of(live, answer.as_of, whose)]
    cards = [_lines(live, answer)]
    if answer.question.group is None:
        cards.append(_movers(live, answer))
    return [
        _figures(answer),
        html.Div(cards, className="wide-and-narrow" if len(cards) > 1 else ""),
        *([_heat(answer)] if answer.question.group is None and answer.trend["group"].n_unique() > 1 else []),
        _table(live, answer),
        as_of(live, answer.as_of, whose),
    ]


def _figures(answer: TrendFrames) -> Component:
    """Numbers of all jobs, or of the group that was chosen."""
    rates = answer.overall if answer.question.group is None or answer.trend.is_empty() else answer.trend
    last, period = rates.row(-1, named=True), PERIODS[answer.question.every]
    jobs, failed = int(rates["jobs"].sum()), int(rates["failed"].sum())
    earlier = rates.head(-1)
    before = int(earlier["failed"].sum()) / int(earlier["jobs"].sum()) if earlier.height else None
    change = "" if before is None else f"{_points(last['rate'] - before)} against {100 * before:.1f} % before"
    return stats(
        stat("Ended jobs", f"{jobs:,}", f"since {rates['period'].item(0):%d %b %Y}{_apart(answer)}"),
        stat("Failed", f"{100 * failed / jobs:.1f} %", f"{failed:,} jobs"),
        stat(f"Failed in the latest {period}", f"{100 * last['rate']:.1f} %", change, tone=_tone(last["rate"], before)),
        stat("Changed", f"{answer.movers.height:,}", f"of {answer.groups.height:,} {_PLURAL[answer.question.by]}"),
    )


def _apart(answer: TrendFrames) -> str:
    """What is in no rate: it did not fail, and it did not succeed."""
    return f"; {answer.never_started:,} more never started" if answer.never_started else ""


def _lines(live: LiveSite, answer: TrendFrames) -> Component:
    top = answer.groups["group"].head(_LINES[answer.question.every])
    shown = answer.trend if answer.question.group else answer.trend.filter(pl.col("group").is_in(top.implode()))
    several = answer.groups.height > 1
    figure = failure_trend_figure(pl.concat([shown, answer.overall]) if several else shown)
    figure.update_layout(title=None, margin={"t": 10, "r": 10, "b": 10, "l": 10}, legend={"orientation": "h", "y": -0.18})
    figure.update_xaxes(title_text=None)
    if answer.question.group:
        title = f"{GROUPS[answer.question.by]} {answer.question.group}"
    else:
        title = f"The {_PLURAL[answer.question.by]} with the most failures" if several else "All jobs"
    summary = f"Share of failed jobs per {PERIODS[answer.question.every]}, each line in the band of its 95 % interval."
    text = answer.words.get(answer.question.group or "", "")
    return card(
        title,
        *([html.P(f"These are {text}.")] if text else []),
        *(_jobs_of(live, answer.question.by, answer.question.group) if answer.question.group else []),
        html.P(summary, className="soft small"),
        plot("trends-lines", figure, summary, height=400, name=f"trends-{answer.question.by}"),
        numbers("The numbers of this figure", _numbers(shown, answer)),
    )


def _numbers(shown: pl.DataFrame, answer: TrendFrames) -> Component:
    columns = (
        TableColumn("group", GROUPS[answer.question.by]),
        TableColumn("period", f"{EVERY[answer.question.every]} from"),
        TableColumn("jobs", "Jobs", "number"),
        TableColumn("failed", "Failed", "number"),
        TableColumn("rate", "Rate", "percent"),
        TableColumn("low", "Lowest", "percent"),
        TableColumn("high", "Highest", "percent"),
    )
    rows = shown.sort("group", "period").with_columns(pl.col("rate", "low", "high") * 100, pl.col("period").cast(pl.String))
    return text_table(columns, rows.iter_rows(named=True), caption="Failure rates with their 95 % intervals")


def _movers(live: LiveSite, answer: TrendFrames) -> Component:
    period = PERIODS[answer.question.every]
    title = f"What changed in the latest {period}"
    if answer.movers.is_empty():
        return card(title, html.P(f"No rate of the latest {period} differs clearly from before.", className="soft"))
    items = [_mover(live, answer, row) for row in answer.movers.head(_MOST_MOVERS).iter_rows(named=True)]
    rest = answer.movers.height - len(items)
    more = [html.P(f"{rest:,} more are in the table below.", className="soft small")] if rest > 0 else []
    hint = "Tested against each one's own past (Fisher's exact test, at most one in twenty by chance). A hint, not a proof."
    return card(title, html.Ul(items, className="movers"), *more, html.P(hint, className="soft small"))


def _mover(live: LiveSite, answer: TrendFrames, row: dict[str, Any]) -> Component:
    worse = row["rate"] > row["earlier_rate"]
    chip = status_chip("▲" if worse else "▼", "worse" if worse else "better", "chip-fail" if worse else "chip-complete")
    inside: Any = {"data-inside": "true"}
    address = PageLink.of(live, "/trends").to(by=answer.question.by, every=answer.question.every, group=row["group"])
    here = html.A(row["group"], href=address, **inside)
    change = (
        f": {row['failed']:,} of {row['jobs']:,} jobs failed, {_percent(row['rate'])}; {_percent(row['earlier_rate'])} before"
    )
    return html.Li([chip, html.Span([here, change])])


def _heat(answer: TrendFrames) -> Component:
    groups = answer.trend["group"].n_unique()
    figure = trend_heatmap_figure(answer.trend)
    figure.update_layout(title=None, margin={"t": 10, "r": 10, "b": 10, "l": 10})
    figure.update_traces(colorbar={"thickness": 12, "title": {"text": "%"}, "outlinewidth": 0})
    figure.update_xaxes(title_text=None, showgrid=False, zeroline=False)
    figure.update_yaxes(title_text=None, showgrid=False, zeroline=False)
    period = PERIODS[answer.question.every]
    summary = f"Share of failed jobs of {groups} {_PLURAL[answer.question.by]} per {period} as colour; a gap is no job."
    return card(
        "All of them at a glance",
        html.P(summary, className="soft small"),
        plot("trends-heat", figure, summary, height=90 + 26 * groups, name=f"trends-heat-{answer.question.by}"),
    )


def _table(live: LiveSite, answer: TrendFrames) -> Component:
    period = PERIODS[answer.question.every]
    columns = (
        TableColumn("group", GROUPS[answer.question.by], "link", 190),
        TableColumn("last_rate", f"Latest {period}", "percent", 140, f"Share that failed in the latest {period}"),
        TableColumn("earlier_rate", "Before", "percent", 110, "Share that failed before"),
        TableColumn("last_jobs", "Jobs", "number", 110, f"Jobs that ended in the latest {period}"),
        TableColumn("jobs", "Jobs in all", "number", 120),
        TableColumn("failed", "Failed in all", "number", 130),
        TableColumn("sentence", "What changed", width=420, hint="Where the rate differs clearly from before"),
    )
    changes = answer.movers.select("group", "sentence")
    earlier_jobs, earlier_failed = (pl.col(name) - pl.col(f"last_{name}").fill_null(0) for name in ("jobs", "failed"))
    table = (
        answer.groups.head(_MOST_GROUPS)
        .join(changes, on="group", how="left", maintain_order="left")
        .with_columns(
            last_rate=100 * pl.col("last_rate"),
            earlier_rate=pl.when(earlier_jobs > 0).then(100 * earlier_failed / earlier_jobs),
            sentence=pl.col("sentence").str.replace(r"^[^:]*: ", "").fill_null(""),
        )
    )
    rows = [{**row, "group_link": _jobs_link(live, answer.question.by, row["group"])} for row in table.iter_rows(named=True)]
    where = "A name leads to its jobs. " if answer.question.by in _JOBS_FILTER else ""
    few = f"{where}Those with fewer than {MIN_JOBS} jobs are left out."
    label = f"Failure rates of {_PLURAL[answer.question.by]}"
    return card(
        f"Every {GROUPS[answer.question.by].lower()}",
        html.P(few, className="soft small"),
        sortable_table("trends-table", columns, rows, label=label),
        *([_label_list(answer.words)] if answer.words else []),
    )


def _label_list(labels: dict[str, str]) -> Component:
    return html.Ul([html.Li([html.B(f"Profile {name}: "), meaning]) for name, meaning in labels.items()], className="plain-list")


def _jobs_of(live: LiveSite, by: str, group: str) -> list[Component]:
    link = _jobs_link(live, by, group)
    inside: Any = {"data-inside": "true"}
    return [html.P(html.A("Its jobs in the table", href=link, **inside))] if link else []


def _jobs_link(live: LiveSite, by: str, group: str) -> str | None:
    """The table of jobs, filtered to a group; None where it has no such column."""
    if by not in _JOBS_FILTER:
        return None
    column, _, kind = _JOBS_FILTER[by].partition("=")
    return PageLink.of(live, "/jobs").to(**{"view": "all", column: f"{kind}:{group}"})


def _nothing(answer: TrendFrames) -> tuple[str, str]:
    if answer.question.group:
        return (
            f"No job of {answer.question.by} {answer.question.group} has ended in this time.",
            "Choose another, or clear the choice.",
        )
    return (
        f"No {GROUPS[answer.question.by].lower()} has at least {MIN_JOBS} jobs that ended.",
        "Choose another group, or come back later.",
    )


def _lead(viewer: Viewer) -> str:
    return (
        "How often jobs fail over time, and whose rate has changed." if viewer.is_admin else "How often your jobs fail over time."
    )


def _tone(rate: float, before: float | None) -> str:
    return "" if before is None or abs(rate - before) < 0.02 else "bad" if rate > before else "good"


def _points(change: float) -> str:
    return f"{'+' if change >= 0 else '−'}{abs(100 * change):.1f} points"


def _percent(rate: float) -> str:
    return "under 1\u00a0%" if 0 < rate < 0.01 else f"{100 * rate:.0f}\u00a0%"
