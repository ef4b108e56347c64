"""Predictions: one request, many, or a job script.

PredictionRequest -> Prediction; ScriptRequest -> ScriptAnswer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Body, Query
from pydantic import Field
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from stormpetrel.answers.jobs.check import check_script
from stormpetrel.answers.jobs.judging import for_viewer, judge_requests, predictions
from stormpetrel.answers.schemas.base import Question
from stormpetrel.answers.schemas.predictions import (
    MOST_AT_ONCE,
    Prediction,
    PredictionList,
    PredictionRequest,
    ScriptAnswer,
    ScriptRequest,
)
from stormpetrel.faces.api.batching import Batcher
from stormpetrel.faces.api.endpoint import Predicting, errors, json_response

if TYPE_CHECKING:
    from stormpetrel.answers.live_site import LiveSite

_ERRORS = errors(409, 413)
_EXPLAINED_TOGETHER = 4


class PredictQuestion(Question):
    """How much is to be told."""

    explain: bool = Field(False, description="also give the reasons: what speaks for and against a failure")


def predict_router(live: LiveSite) -> APIRouter:
    """The endpoints that judge requests."""
    api = APIRouter(prefix="/predict", tags=["predict"])
    plain: Batcher[PredictionRequest, Prediction] = Batcher(lambda requests: predictions(live, requests))
    # Reasons take longer than all the rest: who wants none is not to wait for those who do.
    explained: Batcher[PredictionRequest, Prediction] = Batcher(
        lambda requests: predictions(live, requests, explain=True), most=_EXPLAINED_TOGETHER
    )

    @api.post("", operation_id="predict", summary="How likely a job is to fail", response_model=Prediction, responses=_ERRORS)
    async def predict(viewer: Predicting, request: PredictionRequest, question: Annotated[PredictQuestion, Query()]) -> Response:
        """Judge a request as if it were submitted now. Requests that come at the same time are judged together."""
        batcher = explained if question.explain else plain
        return json_response(await batcher.submit(for_viewer(request, viewer)))

    @api.post(
        "/many",
        operation_id="predict_many",
        summary=f"How likely each of up to {MOST_AT_ONCE:,} jobs is to fail",
        response_model=PredictionList,
        responses=_ERRORS,
    )
    def predict_many(viewer: Predicting, requests: Annotated[list[PredictionRequest], Body(max_length=MOST_AT_ONCE)]) -> Response:
        """Judge requests as if they were submitted now; the answers come in the order of the requests."""
        return json_response(PredictionList.model_construct(predictions=judge_requests(live, viewer, requests)))

    @api.post(
        "/script",
        operation_id="predict_script",
        summary="The check of a job script",
        response_model=ScriptAnswer,
        responses=_ERRORS,
    )
    async def predict_script(viewer: Predicting, script: ScriptRequest) -> Response:
        """Judge a job script before it is submitted, and say what to ask for instead. The script is read, never run."""
        return json_response(await run_in_threadpool(check_script, live, viewer, script))

    return api
