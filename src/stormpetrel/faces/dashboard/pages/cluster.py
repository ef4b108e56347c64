"""The page Cluster: whether the cluster is in normal operation, since when not, why and where; events of each kind over time.

link: span, from, to, at, kind -> ClusterNow, ClusterPeriod -> headline, score and alarms, counts against their forecast, tables.
One bucket and its places are drawn in a request of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, time, timedelta
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

import numpy as np
from dash import Dash, Input, Output, dcc, html, no_update

from stormpetrel.answers.cluster.board import ClusterArrays, stamp_of
from stormpetrel.answers.cluster.cluster import ClusterState, cluster_now, cluster_period
from stormpetrel.answers.schemas.cluster import BucketQuestion, ClusterNow, ClusterPeriod, ClusterQuestion
from stormpetrel.answers.viewer import READ, current_viewer
from stormpetrel.errors import StormpetrelError
from stormpetrel.faces.dashboard.blocks import card, controls, field, notice, page_head
from stormpetrel.faces.dashboard.choices import PageLink, choice, chosen
from stormpetrel.faces.dashboard.filling import Filling, as_of, fill, register_filling
from stormpetrel.faces.dashboard.page import DashboardPage, in_browser
from stormpetrel.faces.dashboard.pages import cluster_cards as cards
from stormpetrel.faces.dashboard.pages.cluster_bucket import bucket_part
from stormpetrel.records.times import EARLIEST, LATEST

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from stormpetrel.answers.live_site import LiveSite
    from stormpetrel.answers.viewer import Viewer

SPANS: Final = {"day": "24 hours", "week": "Week", "month": "Month", "all": "All"}
_CLICKED: Final = ("cluster-score", "cluster-counts")
_LEAD: Final = "What happens to all jobs together, and whether that is normal operation."


def layout(live: LiveSite, viewer: Viewer, query: Mapping[str, str]) -> Component:
    """The page of a link."""
    link = PageLink.of(live, "/cluster", query)
    own = bool(query.get("from") or query.get("to"))
    without: dict[str, str | None] = {"from": None, "to": None, "at": None}
    span = "" if own else chosen(query, "span", SPANS, "week")
    return html.Div(
        [
            page_head("Cluster", _LEAD),
            controls(
                choice("The last", SPANS, span, link, "span", **without),
                _date_field("cluster-from", "From", query.get("from")),
                _date_field("cluster-to", "To", query.get("to")),
            ),
            *fill(_filling(live), viewer, query),
        ],
        className="cluster-page",
    )


def register(app: Dash, live: LiveSite) -> None:
    """Add what the page answers to."""
    register_filling(app, _filling(live))
    for name in ("cluster-from", "cluster-to"):
        in_browser(app, "pages.choose", Input(name, "value"))
    for name in _CLICKED:
        in_browser(app, "clusterPage.point", Input(name, "clickData"))

    @app.callback(Output("cluster-kinds", "children"), Input("cluster-request", "data"))
    def later(query: dict[str, str] | None) -> Any:
        """The counts of all kinds, in a request of their own: all at once would take too long."""
        viewer = current_viewer()
        try:
            board = live.boards.cluster.latest(live).value
            period_question = question(live, query or {})[0]
            period = cluster_period(live, viewer, period_question, board=board)
            arrays = board.value.arrays.between(period.start, period.end)
            key = ("cluster counts", viewer.is_admin, period_question)
            return board.answer(key, lambda: cards.counts(live, period, arrays))
        except StormpetrelError as error:
            return notice(error.what, error.hint, kind="error")

    @app.callback(Output("cluster-bucket", "children"), Input("cluster-pick", "data"))
    def draw(pick: dict[str, Any] | None) -> Any:
        """One bucket: the rest stays as it is while one after the other is examined."""
        viewer = current_viewer()
        if not pick or not pick.get("at"):
            return no_update
        try:
            moment = moment_of(str(pick["at"]), live.settings.site.time_zone)
            if moment is None:
                return notice("This is not a time.", "Choose one from the figures above.")
            return bucket_part(live, viewer, BucketQuestion(at=moment, kind=str(pick.get("kind") or "")))
        except StormpetrelError as error:
            return notice(error.what, error.hint)


PAGE: Final = DashboardPage("/cluster", "Cluster", 0, layout, register, heading="Cluster", earlier_paths=("/grid",))


def question(live: LiveSite, query: Mapping[str, str]) -> tuple[ClusterQuestion, list[str]]:
    """What a link asks for, and what in it makes no sense, in words; that is left out."""
    zone, problems = live.settings.site.time_zone, []
    edges: dict[str, datetime | None] = {"from": None, "to": None}
    for name in edges:
        text = query.get(name, "")
        edges[name] = moment_of(text, zone, end_of_day=name == "to")
        if text and edges[name] is None:
            problems.append(f"“{text[:40]}” is not a date; write it as 2026-03-02 or 2026-03-02T14:00.")
    since, until = edges["from"], edges["to"]
    if since is not None and until is not None and since >= until:
        problems.append("“From” is after “To”; swap them.")
        since = until = None
    span: Any = chosen(query, "span", SPANS, "week")
    return ClusterQuestion(span=span, since=since, until=until), problems


def moment_of(text: str, zone: str, *, end_of_day: bool = False) -> datetime | None:
    """A time that a link names, by the clock on the wall; None where it is none.

    A date alone is its beginning, or its end. An hour that the clock shows twice in autumn is its first pass.
    """
    try:
        local = datetime.fromisoformat(text.strip()[:40])
    except ValueError:
        return None
    if end_of_day and local.time() == time() and len(text.strip()) <= len("2026-03-02"):
        with suppress(OverflowError):
            local += timedelta(days=1)
    with suppress(OverflowError, ValueError, OSError):
        utc = (local if local.tzinfo else local.replace(tzinfo=ZoneInfo(zone))).astimezone(UTC)
        return utc if EARLIEST <= utc <= LATEST else None
    return None


def _date_field(id: str, label: str, value: str | None) -> Component:  # noqa: A002 (Dash's name)
    written = dcc.Input(
        id=id,
        type="text",
        value=value or "",
        placeholder="YYYY-MM-DD",
        debounce=True,
        maxLength=25,
        autoComplete="off",
        className="input cluster-date",
    )
    return field(label, written)


def _filling(live: LiveSite) -> Filling:
    def stamp(viewer: Viewer) -> str | None:
        viewer.require(READ)
        board = live.boards.cluster.peek(live)
        if board is None:
            return None
        now = cluster_now(live, viewer, board=board.value)
        return f"{stamp_of(board.value)} {now.state} {now.headline}"

    def body(viewer: Viewer, query: Mapping[str, str]) -> list[Component]:
        board = live.boards.cluster.latest(live).value
        period_question, problems = question(live, query)
        now, period = cluster_now(live, viewer, board=board), cluster_period(live, viewer, period_question, board=board)
        arrays = board.value.arrays.between(period.start, period.end)
        key = ("cluster page", viewer.is_admin, period_question, now.state, now.headline)
        link = PageLink.of(live, "/cluster", _query_of(live, period_question))
        parts = [notice(text, kind="warning") for text in problems]
        parts += board.answer(key, lambda: _body(live, now, period, arrays, link))
        if not period.buckets:
            return parts
        pick = {"at": query.get("at") or _first_pick(live, period, arrays), "kind": query.get("kind", "")}
        return [*parts, dcc.Store(id="cluster-pick", data=pick), dcc.Store(id="cluster-request", data=dict(query))]

    return Filling("cluster", stamp, body, "The counts are")


def _body(live: LiveSite, now: ClusterNow, period: ClusterPeriod, arrays: ClusterArrays, link: PageLink) -> list[Component]:
    if now.state == ClusterState.EMPTY.value:
        return [notice(now.headline, now.hint)]
    if not period.buckets:
        return [cards.head(now), notice("There are no counts of this time.", "Choose another, or a longer one.")]
    return [
        cards.head(now),
        cards.figures(live, period),
        *([cards.score(live, period, arrays)] if period.judged_buckets or period.outages else []),
        *cards.background(live, period, arrays),
        card(
            "Events of each kind",
            html.Div(id="cluster-kinds", className="cluster-later", style={"minHeight": f"{cards.kinds_px(period)}px"}),
        ),
        html.Div(id="cluster-bucket", className="cluster-bucket"),
        html.Div([cards.alarm_table(live, period, link), cards.outage_table(live, period, link)], className="cluster-tables"),
        *cards.gap_table(live, period),
        as_of(live, now.as_of, *_small_print(now, period)),
    ]


def _small_print(now: ClusterNow, period: ClusterPeriod) -> tuple[str, ...]:
    judged = f"Judged by {now.model}, version {now.model_version}." if now.model else ""
    return judged, "" if period.in_full else "Groups, nodes and the reasons of gaps are shown to administrators."


def _first_pick(live: LiveSite, period: ClusterPeriod, arrays: ClusterArrays) -> str:
    """The worst bucket of the newest alarm; else the latest bucket that was seen."""
    assert period.start is not None and period.end is not None
    worst = period.alarms[0].worst if period.alarms else None
    if worst is not None and period.start <= worst < period.end:
        return cards.at_of(live, worst)
    seen = np.flatnonzero(~arrays.series.is_gap)
    return cards.at_of(live, arrays.series.moment(int(seen[-1]) if seen.size else -1))


def _query_of(live: LiveSite, period_question: ClusterQuestion) -> dict[str, str]:
    if period_question.since is None and period_question.until is None:
        return {"span": period_question.span}
    edges = {"from": period_question.since, "to": period_question.until}
    return {name: cards.at_of(live, moment) for name, moment in edges.items() if moment is not None}
