"""What people have and keep: their own page, the weekly digest, opinions on advice, saved views, tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from stormpetrel.answers.personal.choice import choose_digest
from stormpetrel.answers.personal.summary import personal_summary
from stormpetrel.answers.schemas.own import (
    OpinionAct,
    OpinionReceipt,
    OwnToken,
    OwnTokenReceipt,
    OwnTokens,
    RevokedOwnToken,
    View,
    ViewAct,
    Views,
)
from stormpetrel.answers.schemas.personal import DigestAct, DigestChoice, PersonalQuestion, PersonalSummary
from stormpetrel.answers.site import own
from stormpetrel.faces.api.endpoint import Reader, Writer, errors, json_response, refuse_other_methods

if TYPE_CHECKING:
    from stormpetrel.answers.live_site import LiveSite

_PRINTABLE = r"^[^\x00-\x1f\x7f]+$"
ViewName = Annotated[
    str, Path(min_length=1, max_length=128, pattern=_PRINTABLE, description="the name of a view", examples=["failures"])
]

TokenName = Annotated[
    str, Path(min_length=1, max_length=128, pattern=_PRINTABLE, description="the name of a token", examples=["notebook"])
]


def own_router(live: LiveSite) -> APIRouter:
    """The endpoints for what people keep."""
    api = APIRouter(tags=["own"])

    @api.get("/me", operation_id="me", summary="Your own page", response_model=PersonalSummary, responses=errors())
    def me(viewer: Reader, question: Annotated[PersonalQuestion, Query()]) -> Response:
        """Your failures beside those of people alike, your waste, what to change, your incidents. Nobody else is named in it."""
        return json_response(personal_summary(live, viewer, question))

    @api.put(
        "/me/digest",
        operation_id="choose_digest",
        summary="Ask for the weekly digest, or give it up",
        response_model=DigestChoice,
        responses=errors(413),
    )
    def digest(viewer: Writer, act: DigestAct) -> Response:
        """Keep whether you want your week by mail: from the next appointed time on, to one address of the site's domains."""
        return json_response(choose_digest(live.site, viewer, act))

    refuse_other_methods(api, "/me/digest", allow=("PUT",))

    @api.post(
        "/opinions",
        operation_id="give_opinion",
        summary="Was this advice useful?",
        status_code=201,
        response_model=OpinionReceipt,
        responses=errors(404, 413),
    )
    def give_opinion(viewer: Writer, act: OpinionAct) -> Response:
        """Keep whether a piece of advice on one of your jobs was useful; a later opinion on the same advice replaces it."""
        return json_response(own.keep_opinion(live, viewer, act), status=201)

    @api.get("/views", operation_id="views", summary="Your saved views", response_model=Views, responses=errors())
    def list_views(viewer: Reader) -> Response:
        """The links that you gave a name, by name."""
        return json_response(own.views(live, viewer))

    @api.put("/views/{name}", operation_id="save_view", summary="Save a view", response_model=View, responses=errors(413))
    def save_view(viewer: Writer, name: ViewName, act: ViewAct) -> Response:
        """Keep a link under a name; a view of the same name is replaced."""
        return json_response(own.save_view(live, viewer, name, act))

    @api.delete(
        "/views/{name}", operation_id="delete_view", summary="Delete a saved view", status_code=204, responses=errors(404)
    )
    def delete_view(viewer: Writer, name: ViewName) -> Response:
        """Drop one of your saved views."""
        own.delete_view(live, viewer, name)
        return Response(status_code=204)

    refuse_other_methods(api, "/views/{name}", allow=("DELETE", "PUT"))

    @api.get("/tokens", operation_id="tokens", summary="Your tokens", response_model=OwnTokens, responses=errors())
    def list_tokens(viewer: Reader) -> Response:
        """Your tokens, also those past their time: what they may do, until when."""
        return json_response(own.own_tokens(live.site, viewer))

    @api.post(
        "/tokens",
        operation_id="create_token",
        summary="Make a token of your own",
        status_code=201,
        response_model=OwnTokenReceipt,
        responses=errors(413),
    )
    def create_token(viewer: Writer, act: OwnToken) -> Response:
        """Make a token and return it, once. Only over the service's Unix socket, where the kernel says who asks; else 403."""
        return json_response(own.create_token(live.site, viewer, act), status=201)

    @api.delete(
        "/tokens/{name}",
        operation_id="revoke_token",
        summary="Revoke one of your tokens",
        response_model=RevokedOwnToken,
        responses=errors(404),
    )
    def revoke_token(viewer: Writer, name: TokenName) -> Response:
        """Make one of your tokens worthless; the server refuses it, and those logged in with it, within a second."""
        return json_response(own.revoke_own_token(live.site, viewer, name))

    refuse_other_methods(api, "/tokens", allow=("GET", "POST"))
    refuse_other_methods(api, "/tokens/{name}", allow=("DELETE",))
    return api
