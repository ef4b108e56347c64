"""The shell around every page: navigation, theme, freshness, and the callback that lays out the page a link names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

from dash import Dash, Input, Output, State, dcc, html, no_update

from stormpetrel.answers.viewer import current_viewer
from stormpetrel.errors import StormpetrelError
from stormpetrel.faces.dashboard.blocks import attributes, notice
from stormpetrel.faces.dashboard.freshness import freshness
from stormpetrel.faces.dashboard.page import HEADINGS, in_browser, path_in_browser
from stormpetrel.faces.dashboard.pages import PAGES
from stormpetrel.faces.dashboard.saved_views import register_saved_views, views_menu

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from stormpetrel.answers.live_site import LiveSite

BEAT_MS: Final = 2500  # how often an open page asks whether anything has changed
_LONGEST_QUERY: Final = 4000


def shell_layout(app: Dash, live: LiveSite) -> Component:
    """What stays while pages come and go."""
    return html.Div(
        [
            dcc.Location(id="shell-link", refresh=False),
            dcc.Store(id="shell-route"),
            dcc.Store(id="shell-pages", data=_pages_for_browser(app)),
            dcc.Store(id="shell-version", data=live.version),  # changes whenever the site's data do
            dcc.Interval(id="shell-beat", interval=BEAT_MS),
            html.A("Skip to the page", href="#main", className="skip-link"),
            _header(app, live),
            html.Div(
                "The server does not answer. This page updates again as soon as it does.", className="offline", role="status"
            ),
            *_read_only(live),
            html.Div(id="shell-problem", className="problem", role="alert"),
            html.Main(html.Div(id="shell-page"), id="main", tabIndex="-1", className="main"),
        ],
        className="shell",
    )


def register_shell(app: Dash, live: LiveSite) -> None:
    """Add what the shell answers to."""
    in_browser(
        app,
        "shell.route",
        Output("shell-route", "data"),
        Input("shell-link", "pathname"),
        Input("shell-link", "search"),
        State("shell-route", "data"),
        State("shell-pages", "data"),
        prevent_initial_call=False,
    )

    @app.callback(Output("shell-page", "children"), Input("shell-route", "data"), prevent_initial_call=True)
    def lay_out(route: dict[str, str] | None) -> Any:
        return page_of(route["page"], route["query"], live) if route else no_update

    @app.callback(
        Output("shell-version", "data"),
        Output("shell-freshness", "children"),
        Output("shell-freshness", "data-state"),
        Output("shell-freshness", "title"),
        Input("shell-beat", "n_intervals"),
        State("shell-version", "data"),
        State("shell-freshness", "data-state"),
    )
    def beat(_: int | None, version: int | None, state: str | None) -> Any:
        now = freshness(live, current_viewer())
        label = html.Span(now.words if now.state != "trouble" else "Trouble", className="freshness-words")
        changed = live.version if live.version != version else no_update  # whatever is written, pages are updated
        return changed, label, no_update if state == now.state else now.state, f"{now.words}. {now.hint}".strip()

    register_saved_views(app, live)


def page_of(path: str | None, query: str, live: LiveSite) -> Component:
    """The page of a link for whoever asks, or what to do where there is none."""
    page = next((page for page in PAGES if page.path == path), None)
    if page is None:
        return notice("There is no such page.", "Choose one from the navigation above.")
    try:
        return page.layout(live, current_viewer(), dict(parse_qsl(query.lstrip("?")[:_LONGEST_QUERY])))
    except StormpetrelError as error:
        return notice(error.what, error.hint, kind="error")


def _header(app: Dash, live: LiveSite) -> Component:
    name = live.settings.site.name
    return html.Header(
        [
            dcc.Link(
                [
                    html.Img(src=app.get_asset_url("mark.svg"), alt=""),
                    html.Span("Stormpetrel"),
                    html.Span(name, className="site-name") if name else None,
                ],
                href=path_in_browser(app, "/"),
                className="brand",
            ),
            html.Nav(
                [*_links(app, ""), *(_heading(app, heading) for heading in HEADINGS)],
                id="shell-navigation",
                className="navigation",
                **attributes(aria_label="Pages"),
            ),
            html.Div(
                [
                    html.Span(id="shell-freshness", className="freshness", **attributes(data_state="")),
                    views_menu(),
                    _tool("Copy link", "link", "copy-link"),
                    _tool("Theme", "theme", "toggle-theme", title="Light or dark"),
                    _tool("Pages", "menu", "toggle-menu", className="menu-toggle", is_open=False),
                ],
                className="tools",
            ),
        ],
        className="header",
        id="shell-header",
    )


def _read_only(live: LiveSite) -> list[Component]:
    """Shown on every page of a server that can only read its site."""
    if not live.site.read_only:
        return []
    return [html.Div("Read-only: this server shows the site and stores nothing.", className="read-only", role="status")]


def _tool(label: str, icon: str, action: str, *, title: str = "", className: str = "", is_open: bool | None = None) -> Component:  # noqa: N803 (Dash's name)
    inside = [html.Span(className=f"tool-icon icon-{icon}"), html.Span(label, className="tool-words")]
    return html.Button(
        inside, type="button", className=f"tool {className}".strip(), title=label, **attributes(data_action=action)
    )


def _links(app: Dash, heading: str) -> list[Component]:
    """The pages under a heading; "": those without a heading."""
    pages = sorted((page for page in PAGES if page.heading == heading), key=lambda page: page.order)
    return [dcc.Link(page.title, href=path_in_browser(app, page.path), className="nav-link") for page in pages]


def _heading(app: Dash, heading: str) -> Component:
    """A menu of pages, opened by pointer or Enter; where there is only one, that page itself."""
    links = _links(app, heading)
    if len(links) == 1:
        return links[0]
    return html.Details(
        [html.Summary(heading, className="nav-heading"), html.Div(links, className="menu-sheet nav-sheet")],
        className="menu nav-menu",
    )


def _pages_for_browser(app: Dash) -> dict[str, dict[str, Any]]:
    """Path as the browser shows it -> the page's title, its path here, and whether it follows its link itself.

    A path of an older version (a saved view may hold one) has `moved`: the path of today, to which the browser goes.
    """
    pages: dict[str, dict[str, Any]] = {}
    for page in PAGES:
        path = path_in_browser(app, page.path)
        pages[path] = {"title": page.title, "page": page.path, "follows": page.follows_link}
        pages |= {path_in_browser(app, earlier): {"moved": path} for earlier in page.earlier_paths}
    return pages
