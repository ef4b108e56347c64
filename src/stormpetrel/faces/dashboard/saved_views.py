"""Saved views: the menu in which a viewer keeps names for links."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dash import ALL, Dash, Input, Output, State, ctx, dcc, html, no_update

from stormpetrel.answers.schemas.own import ViewAct
from stormpetrel.answers.site.own import delete_view, save_view, views
from stormpetrel.answers.viewer import Viewer, current_viewer
from stormpetrel.errors import StormpetrelError
from stormpetrel.faces.dashboard.blocks import attributes
from stormpetrel.faces.dashboard.page import path_in_browser, path_of_ours

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from stormpetrel.answers.live_site import LiveSite


def views_menu() -> Component:
    """The menu; its list is filled when the page is opened, and after each change."""
    return html.Details(
        [
            html.Summary(
                [html.Span(className="tool-icon icon-star"), html.Span("Views", className="tool-words")],
                className="tool",
                title="Saved views",
            ),
            html.Div(
                [
                    html.H2("Saved views", className="menu-title"),
                    html.Ul(id="views-list", className="views-list"),
                    html.Label("Save what you see now as", htmlFor="views-name", className="field-label"),
                    html.Div(
                        [
                            dcc.Input(id="views-name", type="text", maxLength=128, className="input", autoComplete="off"),
                            html.Button("Save", id="views-save", type="button", className="button button-main"),
                        ],
                        className="views-form",
                    ),
                    html.P(id="views-message", className="small soft", role="status"),
                ],
                className="menu-sheet",
            ),
        ],
        className="menu",
        id="views-menu",
    )


def register_saved_views(app: Dash, live: LiveSite) -> None:
    """Add what the menu answers to."""

    @app.callback(
        Output("views-list", "children"),
        Output("views-name", "value"),
        Output("views-message", "children"),
        Input("views-save", "n_clicks"),
        Input("views-name", "n_submit"),
        Input({"drop-view": ALL}, "n_clicks"),
        State("views-name", "value"),
        State("shell-link", "pathname"),
        State("shell-link", "search"),
    )
    def change(_: Any, __: Any, dropped: list[int | None], name: str | None, pathname: str, search: str) -> Any:
        viewer = current_viewer()
        done = ""
        try:
            if isinstance(ctx.triggered_id, dict):
                if not any(dropped):  # the list was just drawn
                    return no_update, no_update, no_update
                delete_view(live, viewer, str(ctx.triggered_id["drop-view"]))
                done = "Deleted."
            elif ctx.triggered_id in ("views-save", "views-name"):
                # Not validated: a browser may send anything, and what keeps it says in a sentence what is wrong.
                act = ViewAct.model_construct(link=path_of_ours(app, pathname) + (search or ""))
                done = f"Saved as “{save_view(live, viewer, name or '', act).name}”."
            return _list(app, live, viewer), "", done
        except StormpetrelError as error:
            return no_update, no_update, str(error)


def _list(app: Dash, live: LiveSite, viewer: Viewer) -> list[Component]:
    own_views = views(live, viewer).views
    if not own_views:
        return [html.Li("None yet.", className="soft")]
    return [
        html.Li(
            [
                dcc.Link(view.name, href=path_in_browser(app, view.link)),
                html.Button(
                    html.Span(className="tool-icon icon-close"),
                    id={"drop-view": view.name},
                    type="button",
                    className="tool",
                    title=f"Delete the view {view.name}",
                    **attributes(aria_label=f"Delete the view {view.name}"),
                ),
            ]
        )
        for view in own_views
    ]
