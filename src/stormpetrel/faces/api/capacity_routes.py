"""Capacity: load by week, growth, and when the queue will hurt; the dashboard shows the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from stormpetrel.answers.grid.capacity import capacity
from stormpetrel.answers.schemas.capacity import Capacity, CapacityQuestion
from stormpetrel.faces.api.endpoint import Reader, errors, json_response

if TYPE_CHECKING:
    from stormpetrel.answers.live_site import LiveSite


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
