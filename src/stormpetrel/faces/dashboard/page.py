"""What a page of the dashboard is: one file, its data function apart from its layout, its figures from `figures/`.

A page lays itself out for a viewer and a link, and registers its callbacks; the shell around it does the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from dash import Dash
    from dash.development.base_component import Component

    from stormpetrel.answers.live_site import LiveSite
    from stormpetrel.answers.viewer import Viewer

HEADINGS: Final = ("Jobs", "Nodes", "Cluster", "Plan")
PageLayout = Callable[["LiveSite", "Viewer", Mapping[str, str]], "Component"]


@dataclass(frozen=True, slots=True)
class DashboardPage:
    """One page: where it is, what it is called, how it is laid out at a visit, and what answers its controls.

    `layout` is called at each visit with the parameters of the link. `register` adds callbacks; each asks for its viewer itself.
    With `follows_link` the page is not laid out again when only the parameters change: it listens to `shell-link` itself.
    """

    path: str  # "/trends"
    title: str  # "Trends"
    order: int  # place in the navigation, among those of its heading
    layout: PageLayout
    register: Callable[[Dash, LiveSite], None]
    follows_link: bool = False
    heading: str = ""  # under which it stands in the navigation: one of HEADINGS, or none
    earlier_paths: tuple[str, ...] = ()  # paths it had in older versions, which redirect to `path`


def in_browser(app: Dash, function: str, *dependencies: Any, prevent_initial_call: bool = True) -> None:
    """Let a function of `assets/` (such as `jobs.search`) answer; pages carry no scripts of their own."""
    from dash import ClientsideFunction

    namespace, _, name = function.partition(".")
    app.clientside_callback(  # type: ignore[no-untyped-call]
        ClientsideFunction(namespace, name), *dependencies, prevent_initial_call=prevent_initial_call
    )


def path_in_browser(app: Dash, link: str) -> str:
    """A link of ours (`/jobs?view=risk`) as the browser needs it: below the path under which a proxy shows the pages."""
    return str(app.get_relative_path(link))  # type: ignore[no-untyped-call]


def path_of_ours(app: Dash, pathname: str) -> str:
    """A path in the browser as ours: `/node/login1/8050/jobs` -> `/jobs`."""
    return "/" + str(app.strip_relative_path(pathname) or "")
