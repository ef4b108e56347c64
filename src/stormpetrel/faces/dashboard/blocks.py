"""Blocks that pages are made of: headings, cards, numbers, figures with their downloads, and what to say where there is nothing.

Every text that comes in is shown as text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from dash import dcc, html

if TYPE_CHECKING:
    import plotly.graph_objects as go
    from dash.development.base_component import Component

_CONFIG: Final[Any] = {
    "displaylogo": False,
    "responsive": True,
    "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d"],
    "toImageButtonOptions": {"format": "png", "scale": 2},
}


def attributes(**named: str) -> dict[str, Any]:
    """Attributes whose names have hyphens: `aria_label` is written `aria-label`, `data_job` is `data-job`."""
    return {name.replace("_", "-"): value for name, value in named.items()}


def page_head(title: str, lead: str = "", *extras: Component) -> Component:
    """The title of a page (its only first heading), a line on what it shows, and what stands next to it."""
    parts: list[Any] = [html.H1(title)]
    if lead:
        parts.append(html.P(lead, className="lead"))
    return html.Div([html.Div(parts, className="page-words"), *extras], className="page-head")


def card(title: str, *children: Any, id: str | None = None, className: str = "") -> Component:  # noqa: A002, N803 (Dash's names)
    """A part of a page with a heading of its own."""
    options: dict[str, Any] = {"id": id} if id else {}
    return html.Section([html.H2(title, className="card-title"), *children], className=f"card {className}".strip(), **options)


def controls(*fields: Component) -> Component:
    """A row of labelled controls."""
    return html.Div(list(fields), className="controls")


def field(label: str, control: Any, *, hint: str = "") -> Component:
    """A control with its label; the control needs an id."""
    parts: list[Any] = [html.Label(label, htmlFor=control.id, id=f"{control.id}-label", className="field-label"), control]
    if hint:
        parts.append(html.Small(hint, className="field-hint"))
    return html.Div(parts, className="field")


def stat(label: str, value: str, hint: str = "", *, tone: str = "", id: str | None = None) -> Component:  # noqa: A002
    """A number with its name; `tone` is "", "bad" or "good"."""
    options: dict[str, Any] = {"id": id} if id else {}
    parts = [html.Dt(label, className="stat-label"), html.Dd(value, className=f"stat-value {tone}".strip(), **options)]
    if hint:
        parts.append(html.Dd(hint, className="stat-hint"))
    return html.Div(parts, className="stat")


def stats(*several: Component) -> Component:
    """A row of numbers."""
    return html.Dl(list(several), className="stats")


def notice(what: str, hint: str = "", *, kind: str = "empty") -> Component:
    """What to say where there is nothing to show ("empty"), something to know ("warning") or something broke ("error")."""
    parts: list[Any] = [html.P(what, className="notice-what")]
    if hint:
        parts.append(html.P(hint, className="notice-hint"))
    return html.Div(parts, className=f"notice notice-{kind}", role="alert" if kind == "error" else "status")


def plot(id: str, figure: go.Figure | None, description: str, *, height: int = 380, name: str = "") -> Component:  # noqa: A002
    """A figure with its downloads (PNG, SVG, CSV of what is drawn); `description` says in a sentence what it shows."""
    graph = dcc.Graph(
        id=id, figure=on_page(figure, height=height), config=_CONFIG, className="graph", style={"height": f"{height}px"}
    )
    buttons = [_download(kind, name or id, description) for kind in ("PNG", "SVG", "CSV")]
    return html.Figure(
        [
            html.Div(graph, role="group", **attributes(aria_label=description)),
            html.Figcaption(buttons, className="downloads"),
        ],
        className="plot",
    )


def _download(kind: str, name: str, description: str) -> Component:
    named = attributes(data_download=kind.lower(), data_name=name, aria_label=f"Download as {kind}: {description}")
    return html.Button(kind, type="button", className="plain-button", **named)


def on_page(figure: go.Figure | None, *, height: int | None = None) -> Any:
    """A figure as pages show it: no background of its own; text and grid take the colours of the theme (by CSS).

    Whatever a callback writes into a `plot` goes through here.
    """
    if figure is None:
        return {"data": [], "layout": {"xaxis": {"visible": False}, "yaxis": {"visible": False}}}
    figure.update_layout(
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif", "size": 13},
        title_font_size=15,
        legend_bgcolor="rgba(0,0,0,0)",
        **({"height": height} if height else {}),
    )
    return figure.update_xaxes(title_font_size=13).update_yaxes(title_font_size=13)
