"""What happened to an incident, in the order of time, and what people did to it.

Incident with what people did + their acts -> timeline -> IncidentMoments, the oldest first; an act -> act_line. Who did
something and what he wrote is for administrators (`names`): notes name users.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from stormpetrel.answers.schemas.incident import IncidentActLine, IncidentMoment
from stormpetrel.records.incidents import ActKind

if TYPE_CHECKING:
    from stormpetrel.records.incidents import Incident, IncidentAct

ACT_LABELS: Final = {
    ActKind.ACKNOWLEDGE: "acknowledged",
    ActKind.CONFIRM: "confirmed: it is one",
    ActKind.DISMISS: "dismissed: it is none",
    ActKind.WITHDRAW: "verdict withdrawn",
    ActKind.NOTE: "note",
}


def timeline(incident: Incident, acts: Sequence[IncidentAct], *, names: bool) -> list[IncidentMoment]:
    """Return what happened to an incident and what people did about it, the oldest first."""
    moments = [*_of_incident(incident, acts), *(_of_act(act, names=names) for act in acts)]
    return sorted(moments, key=lambda moment: moment.time)  # of the same time in the order of above


def _of_incident(incident: Incident, acts: Sequence[IncidentAct]) -> Iterator[IncidentMoment]:
    yield IncidentMoment(time=incident.since, what="began", words="the first record of it")
    late = ", late" if incident.late else ""
    yield IncidentMoment(time=incident.raised_at, what="raised", words=f"raised{late}")
    if incident.known_at > incident.raised_at:
        yield IncidentMoment(time=incident.known_at, what="identified", words="known to be what it is")
    for moment in incident.reopened_at:
        yield IncidentMoment(time=moment, what="reopened", words="came back: open again")
    for moment in incident.paged_at:
        yield IncidentMoment(time=moment, what="sent", words="sent at once")
    dismissed = {act.at for act in acts if act.kind == ActKind.DISMISS}
    if incident.resolved_at is not None and incident.resolved_at not in dismissed:
        yield IncidentMoment(time=incident.resolved_at, what="resolved", words="over: nothing was heard of it for long enough")


def act_line(act: IncidentAct, *, names: bool) -> IncidentActLine:
    """Return what a person did."""
    return IncidentActLine(time=act.at, kind=act.kind.value, user=act.user if names else "", note=act.note if names else "")


def _of_act(act: IncidentAct, *, names: bool) -> IncidentMoment:
    text = ACT_LABELS[act.kind]
    if names:
        text = f"{text} by {act.user or 'somebody'}{f': {act.note}' if act.note else ''}"
    return IncidentMoment(time=act.at, what=act.kind.value, words=text)
