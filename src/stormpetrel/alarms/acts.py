"""What people did to an incident, and what it is then: acknowledged, confirmed, dismissed.

Incident + acts -> with_acts -> Incident.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from stormpetrel.records.incidents import (
    VERDICTS,
    ActKind,
    Incident,
    IncidentAct,
    IncidentState,
    Verdict,
    standing_verdict,
)


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
