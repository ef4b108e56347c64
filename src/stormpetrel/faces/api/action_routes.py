"""Acting: the switch, policies with their ledgers, what was decided and done. Policies are armed on the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from stormpetrel.answers.actions.acts import turn_switch
from stormpetrel.answers.actions.questions import actions_status, list_acts
from stormpetrel.answers.schemas.actions import ActionsStatus, ActList, ActQuestion, SwitchAct, SwitchLine
from stormpetrel.faces.api.endpoint import Manager, Reader, errors, json_response

if TYPE_CHECKING:
    from stormpetrel.answers.live_site import LiveSite


def action_router(live: LiveSite) -> APIRouter:
    """The endpoints about acting."""
    api = APIRouter(prefix="/actions", tags=["actions"])

    @api.get("", operation_id="actions", summary="Policies and the switch", response_model=ActionsStatus, responses=errors())
    def status(viewer: Reader) -> Response:
        """Whether anything may be done, and of each policy whether it acts and what its ledger says; administrators only."""
        return json_response(actions_status(live.site, viewer))

    @api.get("/acts", operation_id="acts", summary="Decisions and actions", response_model=ActList, responses=errors())
    def acts(viewer: Reader, question: Annotated[ActQuestion, Query()]) -> Response:
        """Acts with their commands and answers, the newest first; users see those on their own jobs."""
        return json_response(list_acts(live.site, viewer, question))

    @api.post(
        "/switch",
        operation_id="turn_actions",
        summary="Stop all actions, or allow them again",
        response_model=SwitchLine,
        responses=errors(413),
    )
    def switch(viewer: Manager, act: SwitchAct) -> Response:
        """Turn acting off at once, for policies and people, or on again; administrators only, and it is in the audit trail."""
        return json_response(turn_switch(live.site, viewer, act))

    return api
