"""Nodes and traces: what the models say about each node, and one window with its reconstruction; the dashboard shows the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from stormpetrel.answers.nodes.findings import node_findings
from stormpetrel.answers.nodes.nodes import nodes
from stormpetrel.answers.nodes.window_traces import window_traces
from stormpetrel.answers.schemas.nodes import WINDOW_EXAMPLE, WINDOW_PATTERN, NodeFindings, Nodes, NodesQuestion, WindowTraces
from stormpetrel.faces.api.endpoint import Reader, errors, json_response

if TYPE_CHECKING:
    from stormpetrel.answers.live_site import LiveSite

WindowKey = Annotated[
    str, Path(pattern=WINDOW_PATTERN, description="the `key` of a window, as in `worst` of the nodes", examples=[WINDOW_EXAMPLE])
]


def node_router(live: LiveSite) -> APIRouter:
    """The endpoints about nodes."""
    api = APIRouter(prefix="/nodes", tags=["nodes"])

    @api.get("", operation_id="nodes", summary="Nodes by their scores", response_model=Nodes, responses=errors())
    def list_nodes(viewer: Reader, question: Annotated[NodesQuestion, Query()]) -> Response:
        """Every node with the threads that behave unlike what the model has learnt, and the windows with the highest scores."""
        return json_response(nodes(live, viewer, question))

    @api.get(
        "/findings",
        operation_id="node_findings",
        summary="What is odd on the nodes",
        response_model=NodeFindings,
        responses=errors(),
    )
    def list_findings(viewer: Reader) -> Response:
        """Odd nodes in sentences, with threads, mode, time and past windows like it; one score per node and for all together."""
        return json_response(node_findings(live, viewer))

    @api.get(
        "/windows/{window}",
        operation_id="window",
        summary="One window and its reconstruction",
        response_model=WindowTraces,
        responses=errors(404),
    )
    def show_window(viewer: Reader, window: WindowKey) -> Response:
        """What each mode of a thread did during a window, what the model makes of it, and the threads around it."""
        return json_response(window_traces(live, viewer, window))

    return api
