"""The site, its cluster and its nodes: trends, waste, profiles, quality, health; event counts, outages, capacity; node scores.

The dashboard shows the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from stormpetrel import __version__
from stormpetrel.answers.cluster.capacity import capacity
from stormpetrel.answers.cluster.cluster import cluster_counts, cluster_now, cluster_outages
from stormpetrel.answers.history.model_quality import model_quality
from stormpetrel.answers.history.profiles import profiles
from stormpetrel.answers.history.trends import trends
from stormpetrel.answers.history.waste import cancel_policy, waste
from stormpetrel.answers.nodes.findings import node_findings
from stormpetrel.answers.nodes.nodes import nodes
from stormpetrel.answers.nodes.window_traces import window_traces
from stormpetrel.answers.overview.now import now_page
from stormpetrel.answers.schemas.capacity import Capacity, CapacityQuestion
from stormpetrel.answers.schemas.cluster import ClusterCounts, ClusterNow, ClusterOutages, CountsQuestion, SpanQuestion
from stormpetrel.answers.schemas.health import Health, Version
from stormpetrel.answers.schemas.job_studies import Profiles
from stormpetrel.answers.schemas.nodes import WINDOW_EXAMPLE, WINDOW_PATTERN, NodeFindings, Nodes, NodesQuestion, WindowTraces
from stormpetrel.answers.schemas.now import NowAnswer
from stormpetrel.answers.schemas.quality import QualityAnswer, QualityQuestion
from stormpetrel.answers.schemas.trends import Trends, TrendsQuestion
from stormpetrel.answers.schemas.waste import CancelPolicy, PolicyQuestion, Waste, WasteQuestion
from stormpetrel.answers.site.health import health
from stormpetrel.faces.api.endpoint import Reader, errors, json_response

if TYPE_CHECKING:
    from stormpetrel.answers.live_site import LiveSite

_ERRORS = errors(409)
WindowKey = Annotated[
    str, Path(pattern=WINDOW_PATTERN, description="the `key` of a window, as in `worst` of the nodes", examples=[WINDOW_EXAMPLE])
]


def site_router(live: LiveSite) -> APIRouter:
    """The endpoints about the site as a whole."""
    api = APIRouter(tags=["site"])

    @api.get("/trends", operation_id="trends", summary="Failure rates over time", response_model=Trends, responses=_ERRORS)
    def get_trends(viewer: Reader, question: Annotated[TrendsQuestion, Query()]) -> Response:
        """How often the jobs of each user, account, application, node, profile or partition fail, and whose rate has changed."""
        return json_response(trends(live, viewer, question))

    @api.get("/waste", operation_id="waste", summary="Core-hours lost to failed jobs", response_model=Waste, responses=_ERRORS)
    def get_waste(viewer: Reader, question: Annotated[WasteQuestion, Query()]) -> Response:
        """The waste ledger in core-seconds: its groups add up to its total exactly."""
        return json_response(waste(live, viewer, question))

    @api.get(
        "/cancel-policy",
        operation_id="cancel_policy",
        summary="What cancelling early would have saved",
        response_model=CancelPolicy,
        responses=_ERRORS,
    )
    def get_cancel_policy(viewer: Reader, question: Annotated[PolicyQuestion, Query()]) -> Response:
        """Cancelling two minutes in if the risk is above a threshold, replayed on what was really forecast then."""
        return json_response(cancel_policy(live, viewer, question))

    @api.get("/profiles", operation_id="profiles", summary="Kinds of jobs", response_model=Profiles, responses=_ERRORS)
    def get_profiles(viewer: Reader) -> Response:
        """The kinds of jobs that the site runs by what they ask for, and how the jobs that you may see divide among them."""
        return json_response(profiles(live, viewer))

    @api.get(
        "/quality", operation_id="quality", summary="How good the forecasts are", response_model=QualityAnswer, responses=_ERRORS
    )
    def get_quality(viewer: Reader, question: Annotated[QualityQuestion, Query()]) -> Response:
        """Running quality by moment and model version, out of live predictions whose jobs have ended."""
        return json_response(model_quality(live, viewer, question))

    @api.get("/now", operation_id="now", summary="Whether to act", response_model=NowAnswer, responses=errors())
    def get_now(viewer: Reader) -> Response:
        """Open incidents, jobs at risk, nodes, the newest hour of events, the lag of each source; the first page shows it."""
        return json_response(now_page(live, viewer))

    @api.get("/health", operation_id="health", summary="Health of the site", response_model=Health, responses=errors())
    def get_health(viewer: Reader) -> Response:
        """The watch and its lag, the model in use, and for administrators sources, disk, quarantine and the doctor's findings."""
        return json_response(health(live, viewer))

    @api.get("/version", operation_id="version", summary="Version of the server", response_model=Version, responses=errors())
    async def get_version(viewer: Reader) -> Response:
        """The versions of Stormpetrel and of this API."""
        del viewer
        return json_response(Version(version=__version__, api="v1"))

    return api


def cluster_router(live: LiveSite) -> APIRouter:
    """The endpoints about the cluster."""
    api = APIRouter(prefix="/grid", tags=["grid"])

    @api.get("", operation_id="grid", summary="State of the cluster", response_model=ClusterNow, responses=errors())
    def get_cluster(viewer: Reader) -> Response:
        """Whether the cluster is in normal operation now, since when not, and what is wrong."""
        return json_response(cluster_now(live, viewer))

    @api.get("/counts", operation_id="grid_counts", summary="Events over time", response_model=ClusterCounts, responses=errors())
    def get_counts(viewer: Reader, question: Annotated[CountsQuestion, Query()]) -> Response:
        """How many events of each kind there were in each bucket of time, what was expected, and what the model says."""
        return json_response(cluster_counts(live, viewer, question))

    @api.get(
        "/outages", operation_id="grid_outages", summary="Outages and alarms", response_model=ClusterOutages, responses=errors()
    )
    def get_outages(viewer: Reader, question: Annotated[SpanQuestion, Query()]) -> Response:
        """Outages and maintenance that people and calendars reported, whether an alarm was raised, and every alarm."""
        return json_response(cluster_outages(live, viewer, question))

    return api


def capacity_router(live: LiveSite) -> APIRouter:
    """The endpoint about capacity."""
    api = APIRouter(tags=["site"])

    @api.get("/capacity", operation_id="capacity", summary="When waits become long", response_model=Capacity, responses=errors())
    def get_capacity(viewer: Reader, question: Annotated[CapacityQuestion, Query()]) -> Response:
        """The requested load week by week, its growth, and when waits will become long."""
        return json_response(capacity(live, viewer, question))

    return api


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
        summary="What is unusual on the nodes",
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
