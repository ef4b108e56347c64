"""The page of the grid: whether it is in normal operation, since when not, why and where; events of each kind over time.

link: span, from, to, at, kind -> grid_answer -> headline, score and alarms, counts against their forecast, tables; one bucket and
its places are drawn in a request of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, time, timedelta
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

import numpy as np
from dash import Dash, Input, Output, dcc, html, no_update

from stormpetrel.answers.grid import GridAnswer, GridQuestion, GridState, grid_answer
from stormpetrel.answers.grid_board import GRID_BOARDS, stamp_of
from stormpetrel.answers.viewer import READ, current_viewer
from stormpetrel.errors import StormpetrelError
from stormpetrel.faces.dashboard.blocks import card, controls, field, notice, page_head
from stormpetrel.faces.dashboard.choices import PageLink, choice, chosen
from stormpetrel.faces.dashboard.filling import Filling, as_of, fill, register_filling
from stormpetrel.faces.dashboard.page import DashboardPage, in_browser
from stormpetrel.faces.dashboard.pages import grid_cards as cards
from stormpetrel.faces.dashboard.pages.grid_bucket import bucket_part
from stormpetrel.records.times import EARLIEST, LATEST

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from stormpetrel.answers.live_site import LiveSite
    from stormpetrel.answers.viewer import Viewer

SPANS: Final = {"day": "24 hours", "week": "Week", "month": "Month", "all": "All"}
_CLICKED: Final = ("grid-score", "grid-counts")
_LEAD: Final = "What happens to all jobs together, and whether that is normal operation."


def layout(live: LiveSite, viewer: Viewer, query: Mapping[str, str]) -> Component:
    """The page of a link."""
    link = PageLink.of(live, "/grid", query)
    own = bool(query.get("from") or query.get("to"))
    without: dict[str, str | None] = {"from": None, "to": None, "at": None}
    span = "" if own else chosen(query, "span", SPANS, "week")
    return html.Div(
        [
            page_head("Grid", _LEAD),
            controls(
                choice("The last", SPANS, span, link, "span", **without),
                _date_field("grid-from", "From", query.get("from")),
                _date_field("grid-to", "To", query.get("to")),
            ),
            *fill(_filling(live), viewer, query),
        ],
        className="grid-page",
    )


def register(app: Dash, live: LiveSite) -> None:
    """Add what the page answers to."""
    register_filling(app, _filling(live))
    for name in ("grid-from", "grid-to"):
        in_browser(app, "pages.choose", Input(name, "value"))
    for name in _CLICKED:
        in_browser(app, "gridPage.point", Input(name, "clickData"))

    @app.callback(Output("grid-kinds", "children"), Input("grid-asked-for", "data"))
    def later(query: dict[str, str] | None) -> Any:
        """The counts of all kinds, in a request of their own: all at once would take too long."""
        viewer = current_viewer()
        try:
            made = GRID_BOARDS.latest(live).value
            answer = grid_answer(live, made, viewer, question(live, query or {})[0])
            key = ("grid counts", viewer.is_admin, answer.asked)
            return made.answer(key, lambda: cards.counts(live, answer))
        except StormpetrelError as error:
            return notice(error.what, error.hint, kind="error")

    @app.callback(Output("grid-bucket", "children"), Input("grid-pick", "data"))
    def draw(asked: dict[str, Any] | None) -> Any:
        """One bucket: the rest stays as it is while one after the other is looked at."""
        viewer = current_viewer()
        if not asked or not asked.get("at"):
            return no_update
        try:
            moment = moment_of(str(asked["at"]), live.settings.site.time_zone)
            if moment is None:
                return notice("That is no time.", "Choose one from the figures above.")
            return bucket_part(live, viewer, moment, str(asked.get("kind") or ""))
        except StormpetrelError as error:
            return notice(error.what, error.hint)


PAGE: Final = DashboardPage("/grid", "Grid", 4, layout, register)


def question(live: LiveSite, query: Mapping[str, str]) -> tuple[GridQuestion, list[str]]:
    """What a link asks for, and what in it makes no sense, in words; that is left out."""
    zone, problems = live.settings.site.time_zone, []
    edges: dict[str, datetime | None] = {"from": None, "to": None}
    for name in edges:
        text = query.get(name, "")
        edges[name] = moment_of(text, zone, end_of_day=name == "to")
        if text and edges[name] is None:
            problems.append(f"“{text[:40]}” is no date; write it as 2026-03-02 or 2026-03-02T14:00.")
    since, until = edges["from"], edges["to"]
    if since is not None and until is not None and since >= until:
        problems.append("The time asked for ends before it begins.")
        since = until = None
    return GridQuestion(chosen(query, "span", SPANS, "week"), since, until), problems


def moment_of(text: str, zone: str, *, end_of_day: bool = False) -> datetime | None:
    """A time that a link names, by the clock on the wall; None where it is none.

    A date alone is its beginning, or its end. An hour that the clock shows twice in autumn is its first pass.
    """
    found = None
    with suppress(ValueError):
        found = datetime.fromisoformat(text.strip()[:40])
    if found is None:
        return None
    if end_of_day and found.time() == time() and len(text.strip()) <= len("2026-03-02"):
        with suppress(OverflowError):
            found += timedelta(days=1)
    with suppress(OverflowError, ValueError, OSError):
        utc = (found if found.tzinfo else found.replace(tzinfo=ZoneInfo(zone))).astimezone(UTC)
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
        className="input grid-date",
    )
    return field(label, written)


def _filling(live: LiveSite) -> Filling:
    def stamp(viewer: Viewer) -> str | None:
        viewer.require(READ)
        looked = GRID_BOARDS.look(live)
        if looked is None:
            return None
        head = grid_answer(live, looked.value, viewer, GridQuestion()).head
        return f"{stamp_of(looked.value)} {head.state} {head.words}"

    def body(viewer: Viewer, query: Mapping[str, str]) -> list[Component]:
        made = GRID_BOARDS.latest(live).value
        asked, problems = question(live, query)
        answer = grid_answer(live, made, viewer, asked)
        key = ("grid page", viewer.is_admin, asked, answer.head)
        parts = [*(notice(words, kind="warning") for words in problems), *made.answer(key, lambda: _body(live, answer))]
        if answer.first == answer.last:
            return parts
        pick = {"at": query.get("at") or _first_pick(live, answer), "kind": query.get("kind", "")}
        return [*parts, dcc.Store(id="grid-pick", data=pick), dcc.Store(id="grid-asked-for", data=dict(query))]

    return Filling("grid", stamp, body, "The counts are")


def _body(live: LiveSite, answer: GridAnswer) -> list[Component]:
    if answer.head.state is GridState.EMPTY:
        return [notice(answer.head.words, answer.head.hint)]
    if answer.first == answer.last:
        return [cards.head(answer), notice("There are no counts of this time.", "Choose another, or a longer one.")]
    link = PageLink.of(live, "/grid", _query_of(live, answer.asked))
    judged = not np.isnan(answer.board.score[answer.first : answer.last]).all()
    return [
        cards.head(answer),
        cards.figures(live, answer),
        *([cards.score(live, answer)] if judged or answer.outages else []),
        *cards.background(live, answer),
        card(
            "Events of each kind",
            html.Div(id="grid-kinds", className="grid-later", style={"minHeight": f"{cards.kinds_px(answer)}px"}),
        ),
        html.Div(id="grid-bucket", className="grid-bucket"),
        html.Div([cards.alarm_table(live, answer, link), cards.outage_table(live, answer, link)], className="grid-tables"),
        *cards.gap_table(live, answer),
        as_of(live, answer.as_of, *_small_print(answer)),
    ]


def _small_print(answer: GridAnswer) -> tuple[str, ...]:
    judged = f"Judged by {answer.board.model}, version {answer.board.model_version}." if answer.board.model else ""
    return judged, "" if answer.in_full else "Groups, nodes and the reasons of gaps are shown to administrators."


def _first_pick(live: LiveSite, answer: GridAnswer) -> str:
    """The worst bucket of the newest alarm; else the latest bucket that was seen."""
    if answer.alarms and answer.first <= answer.alarms[0].worst < answer.last:
        return cards.at_of(live, answer.board.series.moment(answer.alarms[0].worst))
    seen = np.flatnonzero(~answer.board.series.is_gap[answer.first : answer.last])
    place = answer.first + int(seen[-1]) if seen.size else answer.last - 1
    return cards.at_of(live, answer.board.series.moment(place))


def _query_of(live: LiveSite, asked: GridQuestion) -> dict[str, str]:
    if asked.since is None and asked.until is None:
        return {"span": asked.span}
    edges = {"from": asked.since, "to": asked.until}
    return {name: cards.at_of(live, moment) for name, moment in edges.items() if moment is not None}
