"""Incidents into their table, beside the loop: what changed within the last minute, each as a row.

Site -> IncidentRecorder.step -> rows of `incidents`; now and then the state store lets go of what is long over. Killed anywhere,
the next watch writes what was under way once more: a row is replaced by its number.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from stormpetrel.alarms.acts import with_acts
from stormpetrel.alarms.titles import title
from stormpetrel.errors import StoreBusyError
from stormpetrel.records.incidents import Incident
from stormpetrel.store.incidents.history import IncidentRecord
from stormpetrel.store.site import Site
from stormpetrel.store.upkeep.upkeep import tidy_incidents

_EVERY_S: Final = 60.0
_TIDY_EVERY_S: Final = 3600.0
_AT_ONCE: Final = 200  # rows of one commit


class IncidentRecorder:
    """Writes the incidents of one site into their table; a step of the watch, in a thread of its own."""

    name = "incidents"

    def __init__(self, site: Site, *, every_s: float = _EVERY_S) -> None:
        self._site, self._every_s = site, every_s
        self._tidied = time.monotonic()

    def step(self) -> float:
        """Write what has changed; return the seconds until the next time."""
        with suppress(StoreBusyError):  # a long ingest: they wait
            self._record()
        return self._every_s

    def _record(self) -> None:
        record_incidents(self._site)
        if time.monotonic() - self._tidied >= _TIDY_EVERY_S:
            self._tidied = time.monotonic()
            tidy_incidents(self._site)


def record_incidents(site: Site) -> int:
    """Bring the table of incidents up to what the state store says; how many rows were written."""
    written = 0
    while site.incidents.has_unrecorded():
        with site.state.writer_lock():  # what is read here is what is written: nobody is forgotten in between
            token, changed = site.incidents.take_unrecorded(_AT_ONCE)
            site.incident_history.write(_records(site, changed))
            if changed:
                site.incidents.note_recorded(token)
        written += len(changed)
    return written


def _records(site: Site, incidents: Sequence[Incident]) -> list[IncidentRecord]:
    acts = site.incidents.acts(incident.id for incident in incidents)
    zone = site.settings.site.time_zone
    records = []
    for incident in incidents:
        shown = with_acts(incident, acts[incident.id])
        records.append(IncidentRecord(incident, tuple(acts[incident.id]), shown, title(shown, zone)))
    return records
