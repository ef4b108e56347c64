"""The grid as a whole: how it is, its counts of events, its outages and alarms; the dashboard shows the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from stormpetrel.answers.grid.grid import grid, grid_counts, grid_outages
from stormpetrel.answers.schemas.grid import CountsQuestion, GridCounts, GridNow, GridOutages, SpanQuestion
from stormpetrel.faces.api.endpoint import Reader, errors, json_response

if TYPE_CHECKING:
    from stormpetrel.answers.live_site import LiveSite


def grid_router(live: LiveSite) -> APIRouter:
    """The endpoints about the grid."""
    api = APIRouter(prefix="/grid", tags=["grid"])

    @api.get("", operation_id="grid", summary="How the grid is", response_model=GridNow, responses=errors())
    def get_grid(viewer: Reader) -> Response:
        """Whether the grid is in normal operation now, since when not, and what is wrong."""
        return json_response(grid(live, viewer))

    @api.get("/counts", operation_id="grid_counts", summary="Events over time", response_model=GridCounts, responses=errors())
    def get_counts(viewer: Reader, question: Annotated[CountsQuestion, Query()]) -> Response:
        """How many events of each kind there were in each bucket of time, what was expected, and what the model says."""
        return json_response(grid_counts(live, viewer, question))

    @api.get(
        "/outages", operation_id="grid_outages", summary="Outages and alarms", response_model=GridOutages, responses=errors()
    )
    def get_outages(viewer: Reader, question: Annotated[SpanQuestion, Query()]) -> Response:
        """Outages and maintenance that people and calendars told of, whether an alarm was raised, and every alarm."""
        return json_response(grid_outages(live, viewer, question))

    return api
