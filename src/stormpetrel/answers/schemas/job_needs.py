"""How good forecasts of what jobs need and how long they wait would have been (`jobs evaluate --needs`, `--wait`)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from stormpetrel.answers.schemas.base import Answer, Question


class NeedsQuestion(Question):
    """Which resource is judged, and from where on."""

    resource: Literal["memory", "time", "cpus"]
    protocol: Literal["time", "rolling"] = Field(default="time", description="the last fifth of the log, or from 60 % on")
    seed: int = 0


class WaitQuestion(Question):
    """From where on waits are judged."""

    protocol: Literal["time", "rolling"] = Field(default="time", description="the last fifth of the log, or from 60 % on")
    seed: int = 0


class AllocationFigures(Answer):
    """What amounts wasted and how often they were too little; null where nothing can be compared."""

    under_share: float | None = Field(description="share of jobs given less than they used")
    waste_ratio: float | None = Field(
        description="wasted over used amounts, failed attempts counted whole and repeated with double"
    )
    n: int


class ModelAllocation(AllocationFigures):
    """The same of the model, with the share of jobs that used no more than each quantile."""

    coverage: dict[str, float]


class NeedsFigures(Answer):
    """The model beside the baselines on one resource."""

    model: ModelAllocation
    baselines: dict[str, AllocationFigures]


class NeedsEvaluation(Answer):
    """How good allocations of a log's jobs would have been."""

    needs: dict[str, NeedsFigures]
    seconds: float
    notes: list[str]


class WaitFigures(Answer):
    """How good a p50 and a p90 of the wait were: pinball loss in seconds, and the share of jobs that waited no longer."""

    pinball_50: float
    pinball_90: float
    coverage_50: float
    coverage_90: float
    n: int


class ModelAndBaselines(Answer):
    """The model of waits beside its baselines."""

    model: WaitFigures
    baselines: dict[str, WaitFigures]


class WaitEvaluation(Answer):
    """How good forecasts of the wait of a log's jobs would have been."""

    wait: ModelAndBaselines
    seconds: float
