"""What every endpoint shares: the scope that it needs, its error responses, and its JSON.

scope -> a dependency that returns the viewer, or refuses; statuses -> their entries in the OpenAPI document; model -> Response.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, HTTPException
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.responses import Response

from stormpetrel.answers.schemas.base import ErrorAnswer
from stormpetrel.answers.viewer import ACT, INGEST, MANAGE, PREDICT, READ, WRITE, Viewer, current_viewer

PREFIX: Final = "/api/v1"
SCOPE: Final = "x-stormpetrel-scope"  # where the OpenAPI document says which scope an endpoint needs


_MEANING: Final = {
    400: "The request cannot be read at all.",
    401: "Not authenticated: send `Authorization: Bearer TOKEN`.",
    403: "You may not do this: the token lacks the scope, or it is about another user.",
    404: "It does not exist, or it is not yours; the answer is the same for both.",
    409: "It cannot be done now: there is no model, or none to go back to.",
    413: "The request is too large: send it in parts.",
    422: "Something in the request is invalid; the message says what.",
    429: "Too many requests: try again after the seconds in `Retry-After`.",
    503: "Busy: try again after the seconds in `Retry-After`.",
}
_METHODS: Final = ("GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE")
_ALWAYS: Final = (400, 401, 403, 422, 429, 503)


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the error responses of an endpoint for its entry in the OpenAPI document, those of every endpoint included."""
    return {status: {"model": ErrorAnswer, "description": _MEANING[status]} for status in sorted({*_ALWAYS, *statuses})}


def json_response(answer: BaseModel, *, status: int = 200) -> Response:
    """Return a model as a JSON response; a number that is not finite (a hostile log may hold one) becomes null."""
    return Response(answer.model_dump_json(), status, media_type="application/json")


def scoped_viewer(scope: str) -> Callable[[], Coroutine[Any, Any, Viewer]]:
    """Return a dependency that gives the viewer of a request, and refuses one without the scope."""

    async def viewer() -> Viewer:
        current = current_viewer()
        current.require(scope)
        return current

    viewer.__doc__ = scope  # for `scope_of`
    return viewer


def scope_of(route: APIRoute) -> str | None:
    """Return the scope that an endpoint needs; None: none."""
    dependencies = [dependency.call for dependency in route.dependant.dependencies]
    return next(
        (call.__doc__ for call in dependencies if getattr(call, "__qualname__", "").startswith(scoped_viewer.__name__)), None
    )


Reader = Annotated[Viewer, Depends(scoped_viewer(READ))]
Predicting = Annotated[Viewer, Depends(scoped_viewer(PREDICT))]
Writer = Annotated[Viewer, Depends(scoped_viewer(WRITE))]
Ingesting = Annotated[Viewer, Depends(scoped_viewer(INGEST))]
Acting = Annotated[Viewer, Depends(scoped_viewer(ACT))]
Manager = Annotated[Viewer, Depends(scoped_viewer(MANAGE))]


def refuse_other_methods(api: APIRouter, path: str, *, allow: tuple[str, ...]) -> None:
    """Respond to other methods of a path with a 405 that names all there are; the framework would name those of one route."""
    others = [method for method in _METHODS if method not in allow]

    @api.api_route(path, methods=others, include_in_schema=False)
    async def other_method(viewer: Reader) -> Response:
        """Refuse."""
        del viewer
        raise HTTPException(405, "Method Not Allowed", {"Allow": ", ".join(allow)})
