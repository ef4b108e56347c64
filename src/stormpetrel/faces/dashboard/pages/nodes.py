"""The page of nodes and traces: which nodes behave unlike what the model has learnt, and what each of their threads does.

link: span, campaign, type, node, at, pick, mode -> Nodes and NodeDrawing -> heat map and table of nodes, map of embeddings,
diagnosis, the windows with the highest scores; one window and its neighbours are drawn in a request of their own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from dash import Dash, Input, Output, dcc, html, no_update

from stormpetrel.answers.background import scope_of
from stormpetrel.answers.nodes.board import NodeBoard, stamp_of
from stormpetrel.answers.nodes.findings import node_findings, sliding_score
from stormpetrel.answers.nodes.nodes import NodeDrawing, node_answer, node_drawing, node_names
from stormpetrel.answers.schemas.nodes import MOST_LETTERS, MOST_WINDOWS, NodeNames, Nodes, NodesQuestion
from stormpetrel.answers.viewer import READ, current_viewer
from stormpetrel.errors import MissingExtraError, StormpetrelError
from stormpetrel.faces.dashboard.blocks import card, controls, notice, page_head, stat, stats
from stormpetrel.faces.dashboard.choices import PageLink, choice, chosen, search_field
from stormpetrel.faces.dashboard.filling import Filling, as_of, fill, register_filling
from stormpetrel.faces.dashboard.page import DashboardPage, in_browser
from stormpetrel.faces.dashboard.pages import node_cards as cards
from stormpetrel.faces.dashboard.pages import node_findings as finding_cards
from stormpetrel.faces.dashboard.pages.node_trace import MODE_LABELS, trace_part
from stormpetrel.traces.shipped import NOT_TRAINED_HERE

if TYPE_CHECKING:
    from dash.development.base_component import Component

    from stormpetrel.answers.background import Snapshot
    from stormpetrel.answers.live_site import LiveSite
    from stormpetrel.answers.viewer import Viewer

SPANS: Final = {"hour": "Hour", "day": "Day", "week": "Week", "all": "All"}
_LISTED: Final = 500  # names to choose from
_SECONDS_MS: Final = 20_000  # until the newest seconds are asked for again
_CLICKS: Final = {
    "nodes-heat": "nodes.focus", "nodes-map": "nodes.point", "nodes-diagnosis": "nodes.point", "nodes-threads": "nodes.thread",
    "nodes-threads-made": "nodes.thread",
}  # fmt: skip
_PARTS: Final = {"nodes-embeddings": cards.embeddings, "nodes-near": cards.diagnosis}
_AT: Final = re.compile(r"(\d{1,11})\.\.(\d{1,11})")
_LACKS: Final = {
    "windows": (
        "No CPU traces have been ingested yet.",
        "Ingest them: stormpetrel ingest traces FILE, or with --live from Prometheus. Then: stormpetrel traces score",
    ),
    "scores": ("There are windows of CPU traces, but none has been scored yet.", "Score them: stormpetrel traces score"),
}


def layout(live: LiveSite, viewer: Viewer, query: Mapping[str, str]) -> Component:
    """The page of a link."""
    link = PageLink.of(live, "/nodes", query)
    names = _names(live, viewer)
    return html.Div(
        [
            page_head("Nodes and traces", _lead(viewer)),
            controls(
                choice("The last", SPANS, chosen(query, "span", SPANS, "day"), link, "span", at=None, pick=None),
                search_field("nodes-node", "Node", names.node, query.get("node"), placeholder="All nodes"),
                search_field("nodes-type", "Job type", names.job_type, query.get("type"), placeholder="All types"),
                search_field("nodes-campaign", "Campaign", names.campaign, query.get("campaign"), placeholder="All"),
            ),
            *fill(_filling(live), viewer, query),
        ],
        className="nodes-page",
    )


def register(app: Dash, live: LiveSite) -> None:
    """Add what the page answers to."""
    register_filling(app, _filling(live))
    for name in ("nodes-node", "nodes-type", "nodes-campaign"):
        in_browser(app, "pages.choose", Input(name, "value"))
    for name, function in _CLICKS.items():
        in_browser(app, function, Input(name, "clickData"))
    for part, draw_part in _PARTS.items():
        _draw_later(app, live, part, draw_part)

    _fill_unusual(app, live)

    @app.callback(Output("nodes-trace", "children"), Input("nodes-pick", "data"))
    def draw(choice: dict[str, Any] | None) -> Any:
        """One window, in a request of its own: the rest stays as it is while one after the other is examined."""
        viewer = current_viewer()
        if not choice or not choice.get("pick"):
            return no_update
        try:
            return trace_part(live, viewer, str(choice["pick"]), str(choice.get("mode") or ""))
        except StormpetrelError as error:
            return notice(error.what, error.hint)


PAGE: Final = DashboardPage("/nodes", "Nodes", 0, layout, register, heading="Nodes")


def question(query: Mapping[str, str]) -> NodesQuestion:
    """What a link asks for; what makes no sense in it is left out."""
    at = _AT.fullmatch(query.get("at", ""))
    since, until = (datetime.fromtimestamp(int(at[number]), UTC) for number in (1, 2)) if at else (None, None)
    campaign, job_type, node = (query.get(name, "")[:MOST_LETTERS] or None for name in ("campaign", "type", "node"))
    return NodesQuestion(
        span=chosen(query, "span", SPANS, "day"),  # type: ignore[arg-type]
        campaign=campaign,
        job_type=job_type,
        node=node,
        since=since,
        until=until,
        limit=MOST_WINDOWS,
    )


def _filling(live: LiveSite) -> Filling:
    def stamp(viewer: Viewer) -> str | None:
        viewer.require(READ)
        board = live.boards.nodes.peek(live)
        return None if board is None else stamp_of(board.value)

    def body(viewer: Viewer, query: Mapping[str, str]) -> list[Component]:
        board, of_link = live.boards.nodes.latest(live).value, question(query)
        answer = node_answer(board, viewer, of_link)
        parts = board.answer(("nodes page", scope_of(viewer), of_link), lambda: _body(live, board, viewer, of_link))
        if not answer.windows:
            return parts
        worst = answer.worst[0].key if answer.worst else ""
        pick = {"pick": query.get("pick") or worst, "mode": chosen(query, "mode", MODE_LABELS, "user")}
        return [*parts, dcc.Store(id="nodes-pick", data=pick), dcc.Store(id="nodes-asked-for", data=dict(query))]

    return Filling("nodes", stamp, body, "The scores are")


def _body(live: LiveSite, board: Snapshot[NodeBoard], viewer: Viewer, of_link: NodesQuestion) -> list[Component]:
    answer = node_answer(board, viewer, of_link)
    if answer.latest is None:
        return [notice(*_nothing_at_all(answer))]
    link = PageLink.of(live, "/nodes", _query_of(of_link))
    choice_made = cards.what_is_chosen(live, of_link, link)
    if not answer.windows:
        return [*choice_made, notice("No scored window fits.", "Choose less, or a longer time.")]
    drawing = node_drawing(board, viewer, of_link)
    return [
        *_whose_model(answer),
        _figures(live, answer),
        *choice_made,
        *([_unusual()] if viewer.is_admin else []),
        html.Div([cards.heat(live, answer, drawing.heat, of_link), cards.node_table(live, drawing, link)], className="cards"),
        html.Div(
            [
                card("Map of embeddings", html.Div(id="nodes-embeddings", className="nodes-later")),
                card("How near to Bad IO", html.Div(id="nodes-near", className="nodes-later")),
            ],
            className="cards",
        ),
        html.Div(id="nodes-trace", className="nodes-trace"),
        cards.window_table(live, answer, link),
        as_of(live, answer.as_of, *_small_print(answer)),
    ]


def _unusual() -> Component:
    """The card of what is unusual now; both of its parts are filled in requests of their own."""
    return card(
        "What is unusual now",
        html.Div(id="nodes-seconds", className="nodes-unusual"),
        html.Div(id="nodes-findings", className="nodes-unusual"),
        dcc.Interval(id="nodes-seconds-tick", interval=_SECONDS_MS),
    )


def _fill_unusual(app: Dash, live: LiveSite) -> None:
    """Answer for the card of what is unusual."""

    @app.callback(Output("nodes-findings", "children"), Input("nodes-asked-for", "data"))
    def find(query: dict[str, str] | None) -> Any:
        """What is odd, in a request of its own: a large site takes seconds to judge."""
        del query
        try:
            return finding_cards.findings(live, node_findings(live, current_viewer()))
        except StormpetrelError as error:
            return notice(error.what, error.hint)

    @app.callback(Output("nodes-seconds", "children"), Input("nodes-seconds-tick", "n_intervals"))
    def find_now(tick: int | None) -> Any:
        """Who is above the threshold in the newest seconds."""
        del tick
        try:
            return finding_cards.every_second(live, sliding_score(live, current_viewer()))
        except StormpetrelError as error:
            return notice(error.what, error.hint)


def _draw_later(app: Dash, live: LiveSite, part: str, draw: Callable[[LiveSite, Nodes, NodeDrawing], list[Component]]) -> None:
    """A part in a request of its own: all at once would take too long."""

    @app.callback(Output(part, "children"), Input("nodes-asked-for", "data"))
    def later(query: dict[str, str] | None) -> Any:
        viewer = current_viewer()
        try:
            board, of_link = live.boards.nodes.latest(live).value, question(query or {})
            answer, drawing = node_answer(board, viewer, of_link), node_drawing(board, viewer, of_link)
            return board.answer((part, scope_of(viewer), of_link), lambda: draw(live, answer, drawing))
        except StormpetrelError as error:
            return notice(error.what, error.hint, kind="error")


def _figures(live: LiveSite, answer: Nodes) -> Component:
    share = 100 * answer.flagged / answer.windows
    worst = answer.worst[0].score if answer.worst else None  # None: every thread changed hands
    against = f"{worst / answer.threshold:,.1f} times the threshold" if worst is not None and answer.threshold else ""
    first, last = answer.first or answer.as_of, answer.last or answer.as_of
    seen_nodes = len(answer.nodes)
    return stats(
        stat("Windows", f"{answer.windows:,}", cards.stretch(live, first, last)),
        stat("Flagged", *_flagged(answer, share), tone="bad" if answer.flagged else ""),
        stat("Highest score", "–" if worst is None else f"{worst:.2g}", against, tone="bad" if answer.flagged else ""),
        stat("Threads", f"{answer.threads:,}", f"on {seen_nodes:,} {'node' if seen_nodes == 1 else 'nodes'}"),
    )


def _flagged(answer: Nodes, share: float) -> tuple[str, str]:
    if answer.threshold is None and not answer.flagged:
        return "–", "no threshold yet: a ranking only"
    return f"{answer.flagged:,}", f"{share:.1f} % of them"


def _whose_model(answer: Nodes) -> list[Component]:
    """That the scores are those of a model that does not know this site, where they are."""
    if not answer.shipped:
        return []
    what = "These scores come from the shipped encoder, which was trained on simulated jobs, not on this site."
    hint = "" if answer.own_only else "Train one on what is normal here: stormpetrel traces train"
    return [notice(what, hint, kind="warning")]


def _small_print(answer: Nodes) -> tuple[str, ...]:
    model = NOT_TRAINED_HERE if answer.shipped else answer.model
    return (
        f"Scored by {model}, version {answer.model_version}.",
        answer.promise,
        f"{answer.left_out:,} older windows are not shown here." if answer.left_out else "",
        "These are windows of your own jobs; administrators see all." if answer.own_only else "",
    )


def _nothing_at_all(answer: Nodes) -> tuple[str, str]:
    """What is missing for there to be anything, and the command that makes it."""
    if answer.lack is None:
        return "None of your jobs has been seen on a watched node yet.", "Windows appear here while your jobs run."
    if answer.own_only:
        return "No CPU traces have been judged yet.", "They appear here as soon as an administrator has set this up."
    if answer.lack == "scores" and find_spec("onnxruntime") is None:
        missing = MissingExtraError(f"{_LACKS[answer.lack][0]} The next step", "scoring")
        return missing.what, f"{missing.hint}. {_LACKS[answer.lack][1]}"
    return _LACKS[answer.lack]


def _query_of(of_link: NodesQuestion) -> dict[str, str]:
    since, until = of_link.since, of_link.until
    at = "" if since is None or until is None else f"{since.timestamp():.0f}..{until.timestamp():.0f}"
    query = {"span": of_link.span, "campaign": of_link.campaign, "type": of_link.job_type, "node": of_link.node, "at": at}
    return {name: value for name, value in query.items() if value}


def _names(live: LiveSite, viewer: Viewer) -> NodeNames:
    """What can be chosen, as far as it is known by now."""
    try:
        board = live.boards.nodes.peek(live)
    except StormpetrelError:
        board = None
    names = NodeNames(node=[], campaign=[], job_type=[]) if board is None else node_names(board.value, viewer)
    return NodeNames(**{name: [name_shown for name_shown in several if name_shown][:_LISTED] for name, several in names})


def _lead(viewer: Viewer) -> str:
    whose = "threads of the nodes" if viewer.is_admin else "threads of your jobs"
    return f"What the {whose} spend their time on, and where that is unlike the model's training data."
