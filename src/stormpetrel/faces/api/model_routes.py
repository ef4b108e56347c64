"""Models: which trainings there are, which is in use, putting another one in use; and new jobs out of the generator."""

from __future__ import annotations

import pathlib
import shutil
import tempfile
from typing import TYPE_CHECKING, Annotated, Any, Final

from fastapi import APIRouter, Path
from starlette.background import BackgroundTask
from starlette.responses import FileResponse, Response

from stormpetrel.answers.history.model_quality import go_back, promote, training_in_full, trainings
from stormpetrel.answers.schemas.registry import Training, TrainingInFull, Trainings
from stormpetrel.answers.schemas.workload import WorkloadAnswer, WorkloadRequest
from stormpetrel.answers.workload.sample import FORMATS, file_name, write_sample
from stormpetrel.answers.workload.workload import workload_answer
from stormpetrel.faces.api.endpoint import Manager, Reader, errors, json_response, refuse_other_methods

if TYPE_CHECKING:
    from stormpetrel.answers.live_site import LiveSite

TrainingName = Annotated[
    str, Path(pattern=r"^[a-z]{1,32}-[0-9]{1,9}$", description="the name of a training", examples=["jobs-7"])
]
HOW_MANY: Final = "X-Stormpetrel-Jobs"
_FILE: Final = {"schema": {"type": "string", "format": "binary"}}
_SAMPLE: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": f"The jobs as a file; `{HOW_MANY}` says how many.",
        "content": {kind.partition(";")[0]: _FILE for _, kind in FORMATS.values()},
    }
}


def model_router(live: LiveSite) -> APIRouter:
    """The endpoints about models."""
    api = APIRouter(prefix="/models", tags=["models"])

    @api.get("", operation_id="models", summary="Every training", response_model=Trainings, responses=errors())
    def list_trainings(viewer: Reader) -> Response:
        """Every training that is kept, newest first: which is in use, and why."""
        return json_response(trainings(live, viewer))

    @api.post(
        "/rollback",
        operation_id="roll_back",
        summary="Go back to the training before",
        response_model=Training,
        responses=errors(409),
    )
    def roll_back(viewer: Manager) -> Response:
        """Put the training in use that was in use before. A running watch takes it up without a restart."""
        return json_response(go_back(live, viewer))

    refuse_other_methods(api, "/rollback", allow=("POST",))

    @api.get("/{training}", operation_id="model", summary="One training", response_model=TrainingInFull, responses=errors(404))
    def show_training(viewer: Reader, training: TrainingName) -> Response:
        """One training with its models: their figures, and what they were trained on."""
        return json_response(training_in_full(live, viewer, training))

    @api.post(
        "/{training}/promote",
        operation_id="promote",
        summary="Put a training in use",
        response_model=Training,
        responses=errors(404, 409),
    )
    def promote_one(viewer: Manager, training: TrainingName) -> Response:
        """Put a training in use; one whose models cannot be read is refused. A running watch takes it up without a restart."""
        return json_response(promote(live, viewer, training))

    return api


def workload_router(live: LiveSite) -> APIRouter:
    """The endpoints about the workload."""
    api = APIRouter(prefix="/workload", tags=["workload"])

    @api.get(
        "", operation_id="workload", summary="The generator of the workload", response_model=WorkloadAnswer, responses=errors()
    )
    def get_workload(viewer: Reader) -> Response:
        """Which generator is in use, what it has learnt from, and how good it is. Administrators only."""
        return json_response(workload_answer(live, viewer))

    @api.post(
        "/sample",
        operation_id="sample_workload",
        summary="New jobs as a file",
        response_class=FileResponse,
        responses=_SAMPLE | errors(409),
    )
    def sample(viewer: Manager, request: WorkloadRequest) -> Response:
        """Jobs that are like those of the site and none of them, with new names for users and projects.

        Administrators only: the generator has learnt from everybody's jobs. It stands in the audit trail.
        """
        folder = pathlib.Path(tempfile.mkdtemp(prefix="stormpetrel-workload-"))  # mode 0700
        try:
            path = folder / file_name(request)
            receipt = write_sample(live, viewer, request, path)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return FileResponse(
            path,
            media_type=FORMATS[request.format][1],
            filename=path.name,
            headers={HOW_MANY: str(receipt.jobs)},
            background=BackgroundTask(shutil.rmtree, folder, ignore_errors=True),
        )

    return api
