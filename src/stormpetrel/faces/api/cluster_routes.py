"""The cluster as a whole: its state, counts of events, outages and alarms, capacity; the dashboard shows the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from stormpetrel.answers.cluster.capacity import capacity
from stormpetrel.answers.cluster.cluster import cluster_counts, cluster_now, cluster_outages
from stormpetrel.answers.schemas.capacity import Capacity, CapacityQuestion
from stormpetrel.answers.schemas.cluster import ClusterCounts, ClusterNow, ClusterOutages, CountsQuestion, SpanQuestion
from stormpetrel.faces.api.endpoint import Reader, errors, json_response

if TYPE_CHECKING:
    from stormpetrel.answers.live_site import LiveSite


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

    @api.get(
        "/capacity", operation_id="capacity", summary="When the queue will hurt", response_model=Capacity, responses=errors()
    )
    def get_capacity(viewer: Reader, question: Annotated[CapacityQuestion, Query()]) -> Response:
        """What is asked of the cluster week by week, how that grows, and when the queue will hurt."""
        return json_response(capacity(live, viewer, question))

    return api
