"""What people did to an incident, and what it is then: acknowledged, confirmed, dismissed.

Incident + acts -> with_acts -> Incident.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from stormpetrel.records.incidents import ActKind, Incident, IncidentAct, IncidentState, Verdict

_VERDICTS: Final = {ActKind.CONFIRM: Verdict.CONFIRMED, ActKind.DISMISS: Verdict.DISMISSED}


def with_acts(incident: Incident, acts: Sequence[IncidentAct]) -> Incident:
    """Return the incident with what people did to it, the oldest act first.

    The last verdict holds. Whoever gives one has taken note as well; what comes back after it was acknowledged is open again. A
    dismissed incident is over, also when more of the same is found: a person has said that it is none.
    """
    verdicts = [act for act in acts if act.kind in _VERDICTS]
    verdict = _VERDICTS[verdicts[-1].kind] if verdicts else None
    if verdict == Verdict.DISMISSED:
        over = incident.resolved_at or verdicts[-1].at
        return replace(incident, verdict=verdict, state=IncidentState.RESOLVED, resolved_at=over)
    noticed = any(act.kind != ActKind.NOTE and act.at >= incident.opened_at for act in acts)
    if incident.state == IncidentState.OPEN and noticed:
        return replace(incident, verdict=verdict, state=IncidentState.ACKNOWLEDGED)
    return replace(incident, verdict=verdict)
