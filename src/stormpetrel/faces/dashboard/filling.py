"""A page that fills itself: what takes longer than a request is requested again until it is there, and followed from then on.

Filling -> fill, in the layout; register_filling keeps it current. Who is reading is not disturbed: newer figures are offered, and
take the place of the old ones by themselves only where nobody has touched the page for a while.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl
from zoneinfo import ZoneInfo

from dash import Dash, Input, Output, State, ctx, dcc, html, no_update

from stormpetrel.answers.viewer import current_viewer
from stormpetrel.errors import StormpetrelError
from stormpetrel.faces.dashboard.blocks import notice
from stormpetrel.faces.dashboard.page import in_browser

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from stormpetrel.answers.live_site import LiveSite
    from stormpetrel.answers.viewer import Viewer

SOON_MS: Final = 1_000
LATER_MS: Final = 15_000
PARTIAL: Final = "partial "  # what a stamp begins with while some of the body is still being worked out
_LONGEST_QUERY: Final = 4_000


@dataclass(frozen=True, slots=True)
class Filling:
    """What a page shows below its head.

    Parameters
    ----------
    page
        What the ids of its components begin with.
    stamp
        What the body would be made of now; None while that is still being worked out, `PARTIAL` and more while a part of it
        is. Cheap.
    body
        The body, for a viewer and the parameters of the link.
    waits_for
        Such as "The trends are", for the time until they are there.
    is_read
        Whether people read, sort and zoom in it: then newer figures wait until they are requested.
    """

    page: str
    stamp: Callable[[Viewer], str | None]
    body: Callable[[Viewer, Mapping[str, str]], Any]
    waits_for: str
    is_read: bool = True


def fill(filling: Filling, viewer: Viewer, query: Mapping[str, str]) -> list[Component]:
    """The part of a layout that fills itself."""
    children, stamp = _filled(filling, viewer, query)
    page = filling.page
    return [
        html.Button("Show newer figures", id=f"{page}-newer", type="button", className="button newer", hidden=True),
        html.Div(children, id=f"{page}-body"),
        dcc.Store(id=f"{page}-stamp", data=stamp),
        dcc.Store(id=f"{page}-idle"),
        dcc.Interval(id=f"{page}-tick", interval=_interval(stamp)),
    ]


def register_filling(app: Dash, filling: Filling) -> None:
    """Let a page ask again: soon while it waits for something, now and then to follow what changes."""
    page = filling.page
    in_browser(app, "pages.tick", Output(f"{page}-idle", "data"), Input(f"{page}-tick", "n_intervals"))

    @app.callback(
        Output(f"{page}-body", "children"),
        Output(f"{page}-stamp", "data"),
        Output(f"{page}-tick", "interval"),
        Output(f"{page}-newer", "hidden"),
        Input(f"{page}-idle", "data"),
        Input(f"{page}-newer", "n_clicks"),
        State("shell-link", "search"),
        State(f"{page}-stamp", "data"),
        prevent_initial_call=True,
    )
    def again(tick: dict[str, Any] | None, _: int | None, search: str | None, before: str | None) -> Any:
        viewer = current_viewer()
        requested = ctx.triggered_id == f"{page}-newer"
        if before is not None and not requested:
            now = _stamp(filling, viewer)
            if now == before:
                return no_update, no_update, no_update, no_update
            if filling.is_read and not (tick and tick.get("idle")):
                return no_update, no_update, no_update, False
        children, stamp = _filled(filling, viewer, dict(parse_qsl((search or "").lstrip("?")[:_LONGEST_QUERY])))
        return children, stamp, _interval(stamp), True


def as_of(live: LiveSite, moment: datetime, *sentences: str) -> Component:
    """A line on how old what is shown is, and what else is to be said of all of it."""
    local = moment.astimezone(ZoneInfo(live.settings.site.time_zone))
    return html.P(" ".join([f"As of {local:%d %b %Y, %H:%M:%S}.", *filter(None, sentences)]), className="soft small as-of")


def _filled(filling: Filling, viewer: Viewer, query: Mapping[str, str]) -> tuple[Any, str | None]:
    """The body and its stamp, or what stands in place of it."""
    try:
        stamp = filling.stamp(viewer)
        if stamp is None:
            return notice(f"{filling.waits_for} being computed.", "This page loads in a few seconds."), None
        return filling.body(viewer, query), stamp
    except StormpetrelError as error:
        return notice(error.what, error.hint, kind="error"), None


def _stamp(filling: Filling, viewer: Viewer) -> str | None:
    try:
        return filling.stamp(viewer)
    except StormpetrelError:
        return None


def _interval(stamp: str | None) -> int:
    return SOON_MS if stamp is None or stamp.startswith(PARTIAL) else LATER_MS
