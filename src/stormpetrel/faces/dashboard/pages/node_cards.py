"""The parts of the page of nodes: the heat map, the table of nodes, the map of embeddings, the diagnosis, the windows.

Nodes and NodeDrawing -> cards. A click on any of the figures chooses; every table leads to the same by keyboard.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl
from dash import html

from stormpetrel.answers.nodes.nodes import Heat, NodeDrawing
from stormpetrel.answers.schemas.nodes import NodeRow, Nodes, NodesQuestion, ScoredWindow, ThreadTrace
from stormpetrel.faces.dashboard.blocks import attributes, card, plot
from stormpetrel.faces.dashboard.choices import PageLink
from stormpetrel.faces.dashboard.tables import TableColumn, sortable_table
from stormpetrel.figures.nodes import as_svg, framed_cells
from stormpetrel.figures.trace_models import UNKNOWN_LABEL, iowait_diagnosis, node_heat_map, trace_map

if TYPE_CHECKING:
    from dash.development.base_component import Component
    from plotly.graph_objects import Figure

    from stormpetrel.answers.live_site import LiveSite

PLAIN: Final = {"t": 10, "r": 10, "b": 10, "l": 10}
_ROW_PX: Final = 26
_MAP_PX: Final = 440
_LEGEND: Final[dict[str, Any]] = {"orientation": "h", "y": -0.18, "title": {"text": ""}, "itemsizing": "constant"}


def what_is_chosen(live: LiveSite, question: NodesQuestion, link: PageLink) -> list[Component]:
    """What the heat map or a link has chosen, and the ways back."""
    parts: list[Any] = []
    if question.node is not None:
        parts.append(_way_back(f"Node {question.node}", "all nodes", link.to(node=None), "clear-node"))
    if question.since is not None and question.until is not None:
        text = f"Windows that begin {stretch(live, question.since, question.until)}"
        parts.append(_way_back(text, "the whole time", link.to(at=None), "clear-at"))
    return [html.Div(parts, className="nodes-chosen", role="status")] if parts else []


def heat(live: LiveSite, answer: Nodes, heat: Heat, question: NodesQuestion) -> Component:
    """Nodes over time, by the highest score of any of their threads."""
    zone = ZoneInfo(live.settings.site.time_zone)
    figure = node_heat_map(heat.nodes, _column_names(heat, zone), heat.worst, answer.threshold)
    starts = [round(start.timestamp()) for start in heat.starts]
    figure.update_layout(
        title=None, margin={**PLAIN, "b": 90}, meta={"nodes": list(heat.nodes), "starts": starts, "bin_s": heat.bin_s}
    )
    below = {"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom", "len": 0.9, "thickness": 10, "outlinewidth": 0}
    ticks = [tick.replace(" (threshold)", " ▲") for tick in figure.data[0].colorbar.ticktext]
    figure.update_traces(colorbar={**below, "title": {"text": None}, "ticktext": ticks, "tickangle": 0})
    figure.update_xaxes(title_text=None).update_yaxes(title_text=None, zeroline=False, showgrid=False)
    if heat.skips:
        figure.update_xaxes(type="category", nticks=3, tickangle=0)
    framed_cells(figure, *_chosen_cells(heat, question))
    is_cut = len(heat.nodes) < heat.of_nodes
    shown = f"{len(heat.nodes)} of {heat.of_nodes:,} nodes, those with the most flagged windows. " if is_cut else ""
    gap = "times without scores are left out" if heat.skips else "a gap is time without scores"
    threshold = "" if answer.threshold is None else " ▲ is the threshold."
    summary = f"{shown}The highest score of any thread, per {_length(heat.bin_s)}; {gap}.{threshold}"
    hint = f"Times are {live.settings.site.time_zone}. A click on a cell shows its node and time below."
    return card(
        "Nodes over time",
        html.P(f"{summary} {hint}", className="soft small"),
        plot("nodes-heat", figure, summary, height=max(250, 120 + _ROW_PX * len(heat.nodes))),
    )


def node_table(live: LiveSite, drawing: NodeDrawing, link: PageLink) -> Component:
    """The same as a table: a node's name shows its windows."""
    columns = (
        TableColumn("node", "Node", "link", 120),
        TableColumn("flagged", "Flagged", "number", 105, "Windows that scored above the threshold"),
        TableColumn("worst", "Worst", "number", 95, "Highest score of any thread"),
        TableColumn("threads", "Threads", "number", 105),
        TableColumn("job", "Job", "link", 130, "Of the window with the highest score"),
    )
    rows = [
        {
            **row.model_dump(include={"node", "threads", "flagged", "worst"}),
            "node_link": link.to(node=row.node, at=None),
            **job_cell(live, row),
        }
        for row in drawing.nodes[:500]
    ]
    table = with_digits(sortable_table("nodes-table", columns, rows, label="Nodes by flagged windows", most_px=420), "worst")
    return card("Every node", html.P("The worst first. A name shows its windows alone.", className="soft small"), table)


def embeddings(live: LiveSite, answer: Nodes, drawing: NodeDrawing) -> list[Component]:
    """Where the windows lie on the model's map, by kind of job."""
    summary = f"{how_many(answer, drawing.points)} Windows that are close together are similar to the model."
    figure = trace_map(_drawn(live, drawing.points))
    return [
        html.P(f"{summary} Click on a point to see its trace.", className="soft small"),
        _clickable("nodes-map", figure, drawing.points["key"].to_list(), summary),
    ]


def diagnosis(live: LiveSite, answer: Nodes, drawing: NodeDrawing) -> list[Component]:
    """How close windows are to known trouble, against the iowait that goes with it."""
    known = drawing.points.filter(pl.col("bad_io_distance").is_not_null())
    if known.is_empty():
        text = "The model knows no Bad IO yet: a campaign with such jobs tells it where they lie on the map."
        return [html.P(text, className="soft")]
    figure = iowait_diagnosis(_drawn(live, known), near=answer.near)
    figure.update_yaxes(title_text="largest iowait in the window", tickformat=".0%")
    summary = "Each window's distance to the centre of Bad IO, and its largest iowait: near and high means trouble."
    return [html.P(summary, className="soft small"), _clickable("nodes-diagnosis", figure, known["key"].to_list(), summary)]


def window_table(live: LiveSite, answer: Nodes, link: PageLink) -> Component:
    """The windows with the highest scores; each leads to its trace."""
    columns = (
        TableColumn("when", "Begins", "link", 205),
        TableColumn("node", "Node", width=120),
        TableColumn("cpu", "CPU", "number", 80),
        TableColumn("kind", "Job type", width=130),
        TableColumn("job", "Job", "link", 130),
        TableColumn("score", "Score", "number", 100, "Reconstruction error; higher is more abnormal"),
        TableColumn("iowait", "Largest iowait", "percent", 140),
        TableColumn("flagged", "Flagged", width=110),
        *((TableColumn("region", "Known trouble", width=150),) if any(window.region for window in answer.worst) else ()),
    )
    zone = ZoneInfo(live.settings.site.time_zone)
    rows = [
        {
            "when": f"{window.window_start.astimezone(zone):%d %b %Y, %H:%M:%S}",
            "when_link": link.to(pick=window.key),
            "node": window.node,
            "cpu": window.cpu,
            "score": window.score,
            "kind": window.kind or UNKNOWN_LABEL,
            "iowait": None if window.max_iowait is None else 100 * window.max_iowait,
            "flagged": "▲ flagged" if window.flagged else "",
            "region": window.region or "",
            **job_cell(live, window),
        }
        for window in answer.worst
    ]
    all_of_them = answer.windows <= len(rows)
    text = "All of them" if all_of_them else f"{len(rows):,} of {answer.windows:,}"
    return card(
        "Windows with the highest scores",
        html.P(f"{text}. Choose one (Enter, or a click on its time) to see its trace above.", className="soft small"),
        with_digits(sortable_table("nodes-windows", columns, rows, label="Windows with the highest scores"), "score"),
    )


def job_cell(live: LiveSite, row: NodeRow | ScoredWindow | ThreadTrace) -> dict[str, Any]:
    """The job of a window: its id, with its place in the table of jobs where that is known."""
    link = PageLink.of(live, "/jobs").to(view="all", job=row.ref) if row.ref else None
    return {"job": row.job_id or "", "job_link": link}


def with_digits(table: Any, *columns: str) -> Component:
    """A sortable table whose columns of these names show three digits that count, however small the numbers are."""
    for definition in table.children.columnDefs:
        if definition["field"] in columns:
            definition["valueFormatter"] = {"function": "params.value == null ? '' : d3.format('.3~g')(params.value)"}
    shown: Component = table
    return shown


def how_many(answer: Nodes, points: pl.DataFrame) -> str:
    """How many of the windows are drawn, and which."""
    shown = points.height
    if shown == answer.windows:
        return f"{shown:,} windows."
    flagged = int(points["flagged"].sum())
    which = f"all {flagged:,} flagged ones" if flagged == answer.flagged else f"the {flagged:,} with the highest scores"
    rest = ", the others at random" if shown > flagged else ""
    return f"{shown:,} of {answer.windows:,} windows shown: {which if flagged else 'chosen at random'}{rest if flagged else ''}."


def stretch(live: LiveSite, first: datetime, last: datetime) -> str:
    """A stretch of time in the zone of the site."""
    zone = ZoneInfo(live.settings.site.time_zone)
    begin, end = first.astimezone(zone), last.astimezone(zone)
    return f"{begin:%d %b %H:%M} to {end:%H:%M}" if begin.date() == end.date() else f"{begin:%d %b %H:%M} to {end:%d %b %H:%M}"


def local(moment: datetime, zone: ZoneInfo) -> datetime:
    """A moment as clocks of the site show it: an axis of Plotly knows no zones."""
    return moment.astimezone(zone).replace(tzinfo=None)


def _drawn(live: LiveSite, points: pl.DataFrame) -> pl.DataFrame:
    """What a figure draws and tells: kinds in the place of types, times of the site's zone."""
    begins = pl.col("window_start").dt.convert_time_zone(live.settings.site.time_zone).dt.strftime("%d %b %H:%M:%S")
    places = pl.col("x", "y", "max_iowait", "bad_io_distance").cast(pl.Float64).round(4)  # seventeen digits are half of a page
    return points.select(places, "node", "cpu", "job_id", "score", job_type="kind", window_start=begins)


def _clickable(id: str, figure: Figure, keys: list[str], summary: str) -> Component:  # noqa: A002 (Dash's name)
    """A map whose points tell their keys when they are clicked on."""
    figure.update_layout(title=None, margin=PLAIN, legend=_LEGEND, hovermode="closest")
    drawn: Any = plot(id, figure, summary, height=_MAP_PX)
    graph = drawn.children[0].children
    graph.figure = as_svg(graph.figure, keys)
    shown: Component = drawn
    return shown


def _way_back(text: str, everything: str, address: str, name: str) -> Component:
    back = html.A(f"Show {everything}", href=address, id=f"nodes-{name}", **attributes(data_inside="true"))
    return html.P([html.B(text), " ", back])


def _column_names(heat: Heat, zone: ZoneInfo) -> list[Any]:
    """Times in the middle of the columns, since Plotly puts a cell around its time; words where times are left out."""
    if heat.skips:
        return [f"{start.astimezone(zone):%d %b %Y<br>%H:%M:%S}" for start in heat.starts]
    half = timedelta(seconds=heat.bin_s / 2)
    return [local(start, zone) + half for start in heat.starts]


def _chosen_cells(heat: Heat, question: NodesQuestion) -> tuple[list[int], list[int]]:
    """Rows and columns of the heat map that a link has chosen; none where it has chosen nothing."""
    if question.node is None and question.since is None:
        return [], []
    rows = [row for row, node in enumerate(heat.nodes) if question.node in (None, node)]
    since, until = question.since or heat.starts[0], question.until or heat.starts[-1] + timedelta(seconds=1)
    return rows, [column for column, start in enumerate(heat.starts) if since <= start < until]


def _length(seconds: int) -> str:
    for unit, unit_name in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
        if seconds >= unit and np.isclose(seconds % unit, 0):
            return unit_name if seconds == unit else f"{seconds // unit} {unit_name}s"
    return f"{seconds} s"
