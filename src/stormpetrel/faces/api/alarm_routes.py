"""Incidents: which there are, one in full, what people do to them, what is muted. Looking changes nothing: acts are posted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from stormpetrel.answers.alarms import acts
from stormpetrel.answers.alarms.cases import answer_case, ask_cases
from stormpetrel.answers.alarms.incidents import list_incidents, show_incident
from stormpetrel.answers.alarms.rehearsal import show_rehearsal
from stormpetrel.answers.alarms.replay import replay_alarms
from stormpetrel.answers.schemas.alarms import IncidentList, IncidentQuestion, ReplayQuestion
from stormpetrel.answers.schemas.incident import ActReceipt, IncidentAnswer, MuteReceipt, Mutes, NewAct, NewMute
from stormpetrel.answers.schemas.rehearsal import RehearsalAnswer
from stormpetrel.answers.schemas.verdicts import CaseList, CaseQuestion, CaseReceipt, NewCaseAnswer
from stormpetrel.faces.api.endpoint import Manager, Reader, errors, json_response, refuse_other_methods

if TYPE_CHECKING:
    from stormpetrel.answers.live_site import LiveSite

_LARGEST = 2**31 - 1
IncidentNumber = Annotated[int, Path(ge=1, le=_LARGEST, description="the number of an incident", examples=[53])]
MuteId = Annotated[int, Path(ge=1, le=_LARGEST, description="the `id` of a mute", examples=[2])]


def alarm_router(live: LiveSite) -> APIRouter:
    """The endpoints about incidents."""
    api = APIRouter(prefix="/alarms", tags=["alarms"])

    @api.get("", operation_id="alarms", summary="Incidents", response_model=IncidentList, responses=errors())
    def list_all(viewer: Reader, question: Annotated[IncidentQuestion, Query()]) -> Response:
        """Incidents, the newest first: those that are not over, or all; users see those of their own jobs."""
        return json_response(list_incidents(live.site, viewer, question))

    _add_mutes(api, live)
    _add_cases(api, live)

    @api.get(
        "/replay", operation_id="replay_alarms", summary="Replay of the past", response_model=IncidentList, responses=errors()
    )
    def replay(viewer: Reader, question: Annotated[ReplayQuestion, Query()]) -> Response:
        """What a watch would have raised in a part of the past, and when; nothing is kept.

        It takes seconds to minutes (`models=false` is faster), and one runs at a time. Users see incidents of their own jobs.
        """
        return json_response(replay_alarms(live.site, viewer, question))

    refuse_other_methods(api, "/replay", allow=("GET",))

    @api.get(
        "/rehearsal",
        operation_id="rehearsal",
        summary="The last rehearsal",
        response_model=RehearsalAnswer,
        responses=errors(404),
    )
    def rehearsal(
        viewer: Reader, stream: Annotated[bool, Query(alias="live", description="the one beside the live stream")] = False
    ) -> Response:
        """Which faults the watch would see here, how late, and which it would not, as it was rehearsed last.

        404 until somebody has run `stormpetrel rehearse`; administrators only. Nothing is rehearsed by asking.
        """
        return json_response(show_rehearsal(live.site, viewer, live=stream))

    refuse_other_methods(api, "/rehearsal", allow=("GET",))

    @api.get("/{number}", operation_id="alarm", summary="One incident", response_model=IncidentAnswer, responses=errors(404))
    def show(viewer: Reader, number: IncidentNumber) -> Response:
        """One incident in full: evidence with links, time line, what people did, lost jobs, similar past incidents."""
        return json_response(show_incident(live.site, viewer, number))

    @api.post(
        "/{number}/acts",
        operation_id="act_on_alarm",
        summary="Acknowledge, confirm, dismiss, withdraw, note",
        status_code=201,
        response_model=ActReceipt,
        responses=errors(404, 413),
    )
    def act_on(viewer: Manager, number: IncidentNumber, act: NewAct) -> Response:
        """Keep what you did to an incident; administrators only, and it stands in the audit trail."""
        return json_response(acts.act_on_incident(live.site, viewer, number, act.kind, act.note), status=201)

    return api


def _add_cases(api: APIRouter, live: LiveSite) -> None:
    """The endpoints about cases to judge; before those with a number, since `cases` stands in the same place."""

    @api.get("/cases", operation_id="cases", summary="Cases to judge", response_model=CaseList, responses=errors())
    def ask(viewer: Reader, question: Annotated[CaseQuestion, Query()]) -> Response:
        """The cases whose answer teaches most, also from below the threshold; administrators only."""
        return json_response(ask_cases(live.site, viewer, question))

    @api.post(
        "/cases",
        operation_id="answer_case",
        summary="Answer a case",
        status_code=201,
        response_model=CaseReceipt,
        responses=errors(404, 413),
    )
    def answer(viewer: Manager, wanted: NewCaseAnswer) -> Response:
        """Keep what you say of a case: it is real trouble, it is none, or taken back; administrators only, and audited."""
        return json_response(answer_case(live.site, viewer, wanted), status=201)

    refuse_other_methods(api, "/cases", allow=("GET", "POST"))


def _add_mutes(api: APIRouter, live: LiveSite) -> None:
    """The endpoints about mutes; before those with a number, since `mutes` stands in the same place."""

    @api.get("/mutes", operation_id="mutes", summary="What is muted", response_model=Mutes, responses=errors())
    def list_muted(viewer: Reader) -> Response:
        """What nothing is sent about now, until when, by whom and why; administrators only."""
        return json_response(acts.list_mutes(live.site, viewer))

    @api.post(
        "/mutes",
        operation_id="mute",
        summary="Mute a subject",
        status_code=201,
        response_model=MuteReceipt,
        responses=errors(413),
    )
    def mute(viewer: Manager, wanted: NewMute) -> Response:
        """Send nothing about a node, a user or another subject for a time; it is listed all the same. Administrators only."""
        return json_response(acts.mute_subject(live.site, viewer, wanted), status=201)

    refuse_other_methods(api, "/mutes", allow=("GET", "POST"))

    @api.delete("/mutes/{mute}", operation_id="unmute", summary="End a mute", status_code=204, responses=errors(404))
    def unmute(viewer: Manager, mute: MuteId) -> Response:
        """End a mute at once; administrators only."""
        acts.unmute(live.site, viewer, mute)
        return Response(status_code=204)
