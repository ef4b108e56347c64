"""Capacity: load by week, growth, and when the queue will hurt; the dashboard shows the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import Response

from stormpetrel.answers.capacity import CapacityAnswer, capacity
from stormpetrel.answers.schemas.capacity import Capacity, CapacityQuestion
from stormpetrel.faces.api.asking import Reader, answered, errors

if TYPE_CHECKING:
    from stormpetrel.answers.live_site import LiveSite
    from stormpetrel.events.capacity import CapacityPlan


def capacity_router(live: LiveSite) -> APIRouter:
    """The endpoint about capacity."""
    api = APIRouter(tags=["site"])

    @api.get(
        "/capacity", operation_id="capacity", summary="When the queue will hurt", response_model=Capacity, responses=errors()
    )
    def get_capacity(viewer: Reader, asked: Annotated[CapacityQuestion, Query()]) -> Response:
        """What is asked of the cluster week by week, how that grows, and when the queue will hurt."""
        return answered(Capacity.model_validate(_told(capacity(live, viewer, cores=asked.cores))))

    return api


def _told(answer: CapacityAnswer) -> dict[str, Any]:
    plan = answer.plan
    hurts_from, earliest, latest = plan.hurts_from
    low, high = (None, None) if plan.trend is None else plan.trend.growth_range
    return {
        "as_of": answer.as_of,
        "headline": answer.headline,
        "reasons": answer.reasons,
        "outlook": plan.outlook,
        "unit": plan.record.unit,
        "capacity": plan.capacity,
        "capacity_source": plan.capacity_source,
        "utilisation": plan.utilisation,
        "growth": None if plan.trend is None else plan.trend.growth,
        "growth_low": low,
        "growth_high": high,
        "hurts_from": hurts_from,
        "hurts_earliest": earliest,
        "hurts_latest": latest,
        "reached_share": None if plan.reach is None else plan.reach.share,
        "knee": plan.knee.utilisation,
        "knee_learnt": plan.knee.learnt,
        "weeks": plan.record.weeks.to_dicts(),
        "forecast": _forecast(plan),
        "waits": _waits(plan),
        "groups": answer.groups.to_dicts(),
    }


def _forecast(plan: CapacityPlan) -> list[dict[str, Any]]:
    forecast = plan.forecast
    if forecast is None:
        return []
    columns = zip(forecast.expected.tolist(), forecast.low.tolist(), forecast.high.tolist(), strict=True)
    names = ("expected", "low", "high")
    return [{"week": plan.week_after(number), **dict(zip(names, row, strict=True))} for number, row in enumerate(columns, 1)]


def _waits(plan: CapacityPlan) -> list[dict[str, Any]]:
    waits = plan.waits
    names = ("from_utilisation", "hours", "median_s", "p90_s")
    columns = (waits.low.round(4).tolist(), waits.hours.tolist(), waits.median_s.tolist(), waits.p90_s.tolist())
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
