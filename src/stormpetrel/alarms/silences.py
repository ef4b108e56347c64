"""When nothing is sent about a subject: it is muted, or its cluster or node is under maintenance.

mutes + maintenance windows -> Silences.reason(incident, at) -> why it is held back.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from stormpetrel.records.incidents import LEADING, Incident, Mute
from stormpetrel.records.outages import MaintenanceWindow

MUTED = "muted"
MAINTENANCE = "maintenance"
LATE = "late"


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
