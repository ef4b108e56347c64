"""Models: which trainings there are, which is in use, and putting another one in use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Path
from starlette.responses import Response

from stormpetrel.answers.history.model_quality import go_back, promote, training_in_full, trainings
from stormpetrel.answers.schemas.registry import Training, TrainingInFull, Trainings
from stormpetrel.faces.api.endpoint import Manager, Reader, errors, json_response, refuse_other_methods

if TYPE_CHECKING:
    from stormpetrel.answers.live_site import LiveSite

TrainingName = Annotated[
    str, Path(pattern=r"^[a-z]{1,32}-[0-9]{1,9}$", description="the name of a training", examples=["jobs-7"])
]


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
