"""Jobs: a page of them, one in full, its predictions and their reasons, the search by id; and predictions of new requests.

JobsQuestion -> JobPage; PredictionRequest -> Prediction; ScriptRequest -> ScriptAnswer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Body, Path, Query, Request
from pydantic import Field
from starlette.responses import PlainTextResponse, Response
from stormpetrel_client.render import short_lines

from stormpetrel.answers.actions.acts import cancel_job
from stormpetrel.answers.jobs.check import check_script, check_submission
from stormpetrel.answers.jobs.details import find_jobs, job_details
from stormpetrel.answers.jobs.judging import for_viewer, judge_requests, predictions
from stormpetrel.answers.overview.job_table import job_rows, table_query
from stormpetrel.answers.schemas.actions import ActLine, CancelAct
from stormpetrel.answers.schemas.base import Question
from stormpetrel.answers.schemas.ingest import DocumentsTaken, JobDocument
from stormpetrel.answers.schemas.job import Explanation, JobAdvice, JobInFull
from stormpetrel.answers.schemas.jobs import REF_EXAMPLE, REF_PATTERN, FindQuestion, JobList, JobPage, JobsQuestion
from stormpetrel.answers.schemas.predictions import (
    MOST_AT_ONCE,
    Prediction,
    PredictionList,
    PredictionRequest,
    ScriptAnswer,
    ScriptRequest,
    SubmitRequest,
)
from stormpetrel.answers.site.ingest import take_job_documents
from stormpetrel.faces.api.batching import Batcher
from stormpetrel.faces.api.endpoint import Acting, Ingesting, Predicting, Reader, errors, json_response
from stormpetrel.faces.api.turns import Turns
from stormpetrel.records.jobs import JobRef

if TYPE_CHECKING:
    from stormpetrel.answers.live_site import LiveSite

RefPath = Annotated[
    str, Path(pattern=REF_PATTERN, description="the `ref` of a job, as in the list of jobs", examples=[REF_EXAMPLE])
]
_ERRORS = errors(409, 413)
_EXPLAINED_TOGETHER = 4


def job_router(live: LiveSite) -> APIRouter:
    """The endpoints about jobs."""
    api = APIRouter(tags=["jobs"])

    @api.get("/jobs", operation_id="jobs", summary="A page of jobs", response_model=JobPage, responses=errors())
    def list_jobs(viewer: Reader, request: Request, question: Annotated[JobsQuestion, Query()]) -> Response:
        """The jobs that you may see, each with its latest prediction, sorted and filtered.

        To walk through all of them while new ones come, sort by `submit_time`: then nothing moves to another page.
        """
        page = live.overview.page(viewer, table_query(question))
        is_last = question.page * question.limit >= page.total
        answer = JobPage.model_construct(
            items=job_rows(page.rows),
            total=page.total,
            page=question.page,
            next=None if is_last else _next(request, question.page + 1),
        )
        return json_response(answer)

    @api.get("/jobs/{ref}", operation_id="job", summary="One job in full", response_model=JobInFull, responses=errors(404))
    def show_job(viewer: Reader, ref: RefPath) -> Response:
        """Its record, its predictions and their reasons, advice, its profile, its user's history, and other tries of the work."""
        return json_response(job_details(live, viewer, JobRef.parse(ref)))

    @api.get(
        "/jobs/{ref}/explanation",
        operation_id="explanation",
        summary="Predictions for a job, and why",
        response_model=Explanation,
        responses=errors(404),
    )
    def explain_job(viewer: Reader, ref: RefPath) -> Response:
        """The predictions at submission, at the start and two minutes in, with their reasons, as they were stored then."""
        details = job_details(live, viewer, JobRef.parse(ref))
        return json_response(Explanation(ref=details.ref, predictions=details.predictions, notes=details.notes))

    @api.get(
        "/jobs/{ref}/advice", operation_id="advice", summary="What to change", response_model=JobAdvice, responses=errors(404)
    )
    def advise_job(viewer: Reader, ref: RefPath) -> Response:
        """What to ask for instead, or next time, with the past jobs that speak for it."""
        details = job_details(live, viewer, JobRef.parse(ref))
        return json_response(JobAdvice(ref=details.ref, next=details.next, advice=details.advice, notes=details.notes))

    @api.post(
        "/jobs/{ref}/cancel",
        operation_id="cancel_job",
        summary="Cancel a job",
        response_model=ActLine,
        responses=errors(404, 413),
    )
    def cancel(viewer: Acting, ref: RefPath, act: CancelAct) -> Response:
        """Cancel your own job, or any as an administrator, where the site allows it (`actions.cancel_by`); it is kept who did it.

        The receipt says what the scheduler answered: look at `state`.
        """
        return json_response(cancel_job(live.site, viewer, JobRef.parse(ref), act))

    @api.get("/find", operation_id="find", summary="Jobs by their id", response_model=JobList, responses=errors())
    def find(viewer: Reader, question: Annotated[FindQuestion, Query()]) -> Response:
        """Jobs of exactly this id, the latest first: ids wrap and repeat. Another text: what the search of the list finds."""
        return json_response(JobList.model_construct(items=job_rows(find_jobs(live, viewer, question.id))))

    @api.post(
        "/jobcomp",
        operation_id="take_jobcomp",
        summary="Job records from Slurm itself",
        status_code=201,
        response_model=DocumentsTaken,
        responses=errors(404, 413),
    )
    def take_jobcomp(viewer: Ingesting, documents: Annotated[JobDocument | list[JobDocument], Body()]) -> Response:
        """Take in what Slurm's plug-in jobcomp/elasticsearch sends (`slurm.jobcomp`); on disk before this is answered."""
        several = documents if isinstance(documents, list) else [documents]
        return json_response(take_job_documents(live.site, viewer, several), status=201)

    return api


def _nobody_waits() -> Response:
    """What is sent to a client that has hung up; the number is nginx's."""
    return Response(status_code=499)


def _next(request: Request, page: int) -> str:
    """The query of the next page; relative, so that it holds behind any proxy."""
    kept = [(name, value) for name, value in request.query_params.multi_items() if name != "page"]
    return f"?{urlencode([*kept, ('page', page)])}"


class PredictQuestion(Question):
    """How much detail the prediction has."""

    explain: bool = Field(False, description="also return the reasons")


def predict_router(live: LiveSite) -> APIRouter:
    """The endpoints that judge requests."""
    api = APIRouter(prefix="/predict", tags=["predict"])
    turns = Turns()
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
    async def predict_script(viewer: Predicting, script: ScriptRequest, request: Request) -> Response:
        """Judge a job script before it is submitted, and say what to ask for instead. The script is read, never run."""
        answer = await turns.take(request, check_script, live, viewer, script)
        return _nobody_waits() if answer is None else json_response(answer)

    @api.post(
        "/submit",
        operation_id="predict_submit",
        summary="Two lines for somebody who is submitting",
        response_model=None,
        responses={**_ERRORS, 200: {"content": {"text/plain": {}}}},
    )
    async def predict_submit(viewer: Predicting, submitted: SubmitRequest, request: Request) -> Response:
        """Judge a job as sbatch submits it: `silent`, `show` or `refuse` on the first line, then what to print."""
        checked = await turns.take(request, check_submission, live, viewer, submitted)
        if checked is None:
            return _nobody_waits()
        verdict, answer = checked
        lines = [] if verdict == "silent" else short_lines(answer.model_dump(mode="json"))
        return PlainTextResponse("".join(f"{line}\n" for line in (verdict, *lines)))

    return api
