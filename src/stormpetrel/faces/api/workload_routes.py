"""The workload: which generator is in use and how good it is, and new jobs out of it as a file; for administrators."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from fastapi import APIRouter
from starlette.background import BackgroundTask
from starlette.responses import FileResponse, Response

from stormpetrel.answers.schemas.workload import WorkloadAnswer, WorkloadRequest
from stormpetrel.answers.workload.sample import FORMATS, file_name, write_sample
from stormpetrel.answers.workload.workload import workload_answer
from stormpetrel.faces.api.endpoint import Manager, Reader, errors, json_response

if TYPE_CHECKING:
    from stormpetrel.answers.live_site import LiveSite

HOW_MANY: Final = "X-Stormpetrel-Jobs"
_FILE: Final = {"schema": {"type": "string", "format": "binary"}}
_SAMPLE: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": f"The jobs as a file; `{HOW_MANY}` says how many.",
        "content": {kind.partition(";")[0]: _FILE for _, kind in FORMATS.values()},
    }
}


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
        folder = Path(tempfile.mkdtemp(prefix="stormpetrel-workload-"))  # mode 0700
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
