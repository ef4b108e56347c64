"""When nothing is sent about a subject: it is muted, or its cluster or node is under maintenance.

mutes + maintenance windows -> Silences.reason(incident, at) -> why it is held back.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from stormpetrel.records.findings import Subject, SubjectKind
from stormpetrel.records.incidents import LEADING, Incident, Mute

MUTED = "muted"
MAINTENANCE = "maintenance"
LATE = "late"


@dataclass(frozen=True, slots=True)
class MaintenanceWindow:
    """Work on a cluster from `start` on, until `end` or for an unknown time; on these nodes, or on all."""

    start: datetime
    end: datetime | None
    nodes: frozenset[str] = frozenset()
    cluster: str = ""  # empty: any

    def covers(self, cluster: str, subjects: tuple[Subject, ...], at: datetime) -> bool:
        """Whether all of these subjects of a cluster are under maintenance at a moment."""
        if at < self.start or (self.end is not None and at >= self.end) or self.cluster not in ("", cluster):
            return False
        return not self.nodes or all(subject.kind == SubjectKind.NODE and subject.name in self.nodes for subject in subjects)


@dataclass(frozen=True, slots=True)
class Silences:
    """The mutes and maintenance windows of a site."""

    mutes: tuple[Mute, ...] = ()
    windows: tuple[MaintenanceWindow, ...] = ()

    def reason(self, incident: Incident, at: datetime) -> str:
        """Return why nothing is sent about an incident at a moment: `muted`, `maintenance`, or empty.

        It is muted if all that it is about is: a second node that falls ill is told although the first one is muted.
        """
        leading = min(incident.kinds, key=LEADING.index)
        about = tuple(dict.fromkeys(finding.subject for finding in incident.findings if finding.kind == leading))
        muted = {mute.subject for mute in self.mutes if mute.cluster == incident.cluster and mute.since <= at < mute.until}
        if all(subject in muted for subject in about):
            return MUTED
        return MAINTENANCE if any(window.covers(incident.cluster, about, at) for window in self.windows) else ""
