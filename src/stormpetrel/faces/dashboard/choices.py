"""Choices at the top of a page. Each is a link: the page is laid out anew for it, and what is chosen can be shared.

Page + the link's parameters -> PageLink -> choice (a row of links), search_field (one of many).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from dash import dcc, html

from stormpetrel.faces.dashboard.blocks import field

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from stormpetrel.answers.live_site import LiveSite

_LONGEST = 200


@dataclass(frozen=True, slots=True)
class PageLink:
    """The address of a page, from which those with other parameters are made."""

    path: str  # with the prefix under which a proxy shows the pages
    query: Mapping[str, str]

    @classmethod
    def of(cls, live: LiveSite, page: str, query: Mapping[str, str] | None = None) -> PageLink:
        """The link of a page of this site, such as "/trends"."""
        return cls(f"{live.settings.serve.prefix.rstrip('/')}{page}", dict(query or {}))

    def to(self, **changes: str | None) -> str:
        """The address with some parameters changed, or left out where they are None."""
        query = {name: value for name, value in {**self.query, **changes}.items() if value}
        return f"{self.path}?{urlencode(query)}" if query else self.path


def choice(label: str, options: Mapping[str, str], value: str, link: PageLink, name: str, **others: str | None) -> Component:
    """A few alternatives next to each other, the chosen one marked; `others` change together with it."""
    items = []
    for key, text in options.items():
        current: Any = {"aria-current": "true"} if key == value else {}
        inside: Any = {"data-inside": "true", "id": f"choose-{name}-{key}"}
        items.append(html.Li(html.A(text, href=link.to(**{name: key}, **others), className="chip-link", **inside, **current)))
    named: Any = {"aria-label": label}
    return html.Div(
        [html.Span(label, className="field-label"), html.Nav(html.Ul(items, className="chips"), **named)], className="field"
    )


def search_field(id: str, label: str, names: Iterable[str], value: str | None, *, placeholder: str) -> Component:  # noqa: A002
    """One of many names, proposed while it is typed; its id is page-parameter. Empty means all."""
    options = html.Datalist([html.Option(value=name) for name in names], id=f"{id}-names")
    written = dcc.Input(
        id=id,
        type="text",
        value=value or "",
        placeholder=placeholder,
        list=f"{id}-names",
        debounce=True,
        maxLength=_LONGEST,
        autoComplete="off",
        className="input",
    )
    return html.Div([field(label, written), options], className="choose-one")


def chosen(query: Mapping[str, str], name: str, options: Iterable[str], default: str) -> str:
    """What a link chose among some options; the default where it names none of them."""
    value = query.get(name, default)
    return value if value in set(options) else default
