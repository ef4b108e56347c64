"""What people did to an incident, and what it is then: acknowledged, confirmed, dismissed.

Incident + acts -> with_acts -> Incident.

When nothing is sent about a subject: it is muted, or its cluster or node is under maintenance.

mutes + maintenance windows -> Silences.reason(incident, at) -> why it is held back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from stormpetrel.records.incidents import (
    LEADING,
    VERDICTS,
    ActKind,
    Incident,
    IncidentAct,
    IncidentState,
    Mute,
    Verdict,
    standing_verdict,
)
from stormpetrel.records.outages import MaintenanceWindow

MUTED = "muted"
MAINTENANCE = "maintenance"
LATE = "late"


def with_acts(incident: Incident, acts: Sequence[IncidentAct]) -> Incident:
    """Return the incident with what people did to it, the oldest act first.

    The last verdict holds, unless it was withdrawn. Whoever gives one has taken note as well; what comes back after it was
    acknowledged is open again. A dismissed incident is over, also when more of the same is found: a person has said that it is
    none. What is unlike it is an incident of its own (`alarms/verdict_memory.py`).
    """
    judged = standing_verdict(acts)
    verdict = None if judged is None else VERDICTS[judged.kind]
    if judged is not None and verdict == Verdict.DISMISSED:
        over = incident.resolved_at or judged.at
        return replace(incident, verdict=verdict, state=IncidentState.RESOLVED, resolved_at=over)
    noticed = any(act.kind != ActKind.NOTE and act.at >= incident.opened_at for act in acts)
    if incident.state == IncidentState.OPEN and noticed:
        return replace(incident, verdict=verdict, state=IncidentState.ACKNOWLEDGED)
    return replace(incident, verdict=verdict)


@dataclass(frozen=True, slots=True)
class Silences:
    """The mutes and maintenance windows of a site."""

    mutes: tuple[Mute, ...] = ()
    windows: tuple[MaintenanceWindow, ...] = ()

    def reason(self, incident: Incident, at: datetime) -> str:
        """Return why nothing is sent about an incident at a moment: `muted`, `maintenance`, or empty.

        It is muted, or under maintenance, if all that it is about is: a second node that falls ill is told although the first one
        is muted.
        """
        leading = min(incident.kinds, key=LEADING.index)
        about = tuple(dict.fromkeys(finding.subject for finding in incident.findings if finding.kind == leading))
        muted = {mute.subject for mute in self.mutes if mute.cluster == incident.cluster and mute.since <= at < mute.until}
        if all(subject in muted for subject in about):
            return MUTED
        windows = [window for window in self.windows if window.is_open(incident.cluster, at)]
        return MAINTENANCE if all(any(window.covers(subject) for window in windows) for subject in about) else ""
