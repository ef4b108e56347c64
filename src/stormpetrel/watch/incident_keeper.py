"""The one place where findings of all watchers become incidents, and are committed.

Watcher -> IncidentKeeper.take(watcher, findings, state) -> changed incidents. What a watcher needs to go on, and the incidents
that its findings led to, are committed together: killed anywhere, the watch finds both as they were, and takes no finding twice.

Which machines a site knows: the nodes that ran its jobs, and the nodes and submit hosts of its events, of the last month.

Site + a name, as a list of downtimes has it -> KnownMachines.named -> the names that the site's records have for it.

Incidents into their table, beside the loop: what changed within the last minute, each as a row.

Site -> IncidentRecorder.step -> rows of `incidents`; now and then the state store lets go of what is long over. Killed anywhere,
the next watch writes what was under way once more: a row is replaced by its number.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final, Protocol

import polars as pl

from stormpetrel.alarms.acts import Silences, with_acts
from stormpetrel.alarms.budget import PageBudget
from stormpetrel.alarms.grouping import RETURNS_WITHIN, IncidentBook
from stormpetrel.alarms.titles import title
from stormpetrel.alarms.verdict_memory import VerdictMemory
from stormpetrel.errors import StoreBusyError
from stormpetrel.records.findings import Finding
from stormpetrel.records.incidents import Incident
from stormpetrel.records.nodes import expand_nodes
from stormpetrel.records.outages import MaintenanceWindow, OutageKind
from stormpetrel.store.incidents.history import IncidentRecord
from stormpetrel.store.site import Site
from stormpetrel.store.upkeep.forgetting import forgettings
from stormpetrel.store.upkeep.upkeep import tidy_incidents

_LOOK_AGAIN: Final = timedelta(minutes=1)  # at incidents that may be over, and at how far a watcher is that finds nothing
_LONGEST_QUIET: Final = timedelta(days=4) + RETURNS_WITHIN  # nothing that is longer over can come back
_RECENT: Final = timedelta(days=30)
_KEEP_S: Final = 3600.0
_PLACES: Final = ("node", "submit_host")
_EVERY_S: Final = 60.0
_TIDY_EVERY_S: Final = 3600.0
_AT_ONCE: Final = 200  # rows of one commit


class Budgets(Protocol):
    """Knows how many incidents may be sent."""

    def current(self, now: datetime) -> PageBudget | None:
        """Return the budget that holds at a moment; None: only what a rule calls a page is sent."""

    def go_back(self) -> None:
        """Take note that what was decided last was not committed."""


class IncidentKeeper:
    """Keeps the incidents of one site, and sends as many as its budgets allow; asked by the threads of all watchers."""

    def __init__(self, site: Site, budgets: Budgets | None = None) -> None:
        self._site, self._budgets, self._machines = site, budgets, KnownMachines(site)
        self._lock = threading.Lock()
        self._book: IncidentBook | None = None
        self._forgettings = 0
        self._committed_at: dict[str, datetime] = {}  # by watcher
        self._memory, self._verdicts = VerdictMemory(), (0, 0)
        self._reserved: tuple[MaintenanceWindow, ...] = ()

    def note_reserved(self, windows: tuple[MaintenanceWindow, ...]) -> None:
        """Take the maintenance that the scheduler has reserved, in place of what it said before."""
        self._reserved = windows

    def silences(self, now: datetime) -> Silences:
        """Return what is muted or under maintenance at a moment: what the site's state says, and what is reserved."""
        return silences_of(self._site, now, self._reserved, self._machines)

    def state_of(self, watcher: str) -> str:
        """Return what a watcher needs to go on where it was; empty where it has never committed anything."""
        return self._site.incidents.watcher_state(watcher)

    def take(self, watcher: str, findings: Sequence[Finding], state: str, now: datetime) -> list[Incident]:
        """Commit what a watcher found, with its state; return the incidents that are new, changed, or over."""
        with self._lock:
            try:
                book = self._current_book(now)
                book.silences = self.silences(now)
                book.budget = self._budgets.current(now) if self._budgets else None
                book.memory = self._current_memory()
                changed = book.take(findings, now)
                self._site.incidents.commit(changed, watcher=watcher, watcher_state=state, now=now)
            except BaseException:
                self._book = None  # it may be ahead of what was committed
                if self._budgets:
                    self._budgets.go_back()
                raise
            self._committed_at[watcher] = now
            return changed

    def is_due(self, watcher: str, now: datetime) -> bool:
        """Whether it is time to commit how far a watcher is, and which incidents are over, although it found nothing."""
        with self._lock:
            committed = self._committed_at.get(watcher)
            return committed is None or abs(now - committed) >= _LOOK_AGAIN

    def _current_memory(self) -> VerdictMemory:
        """What people have said so far; read again when they have said more."""
        version = self._site.incidents.verdicts_version(), forgettings(self._site.state)
        if version != self._verdicts:
            self._memory, self._verdicts = VerdictMemory(self._site.incidents.judged()), version
        return self._memory

    def _current_book(self, now: datetime) -> IncidentBook:
        """The book; opened again after a user was forgotten, since the old one still has the name."""
        forgotten = forgettings(self._site.state)
        if self._book is None or forgotten != self._forgettings:
            recent = self._site.incidents.list(resolved_after=now - _LONGEST_QUIET)
            self._book = IncidentBook(recent, first_id=self._site.incidents.next_number())
            self._forgettings = forgotten
        return self._book


def silences_of(
    site: Site, now: datetime, reserved: Sequence[MaintenanceWindow] = (), known: KnownMachines | None = None
) -> Silences:
    """Return what is muted or under maintenance on a site at a moment; `reserved` is maintenance that its scheduler tells of."""
    windows = maintenance_of(site, since=now, until=now + timedelta(microseconds=1), known=known)
    return Silences(tuple(site.incidents.mutes(after=now)), (*windows, *reserved))


def maintenance_of(
    site: Site, *, since: datetime, until: datetime, known: KnownMachines | None = None
) -> tuple[MaintenanceWindow, ...]:
    """Return the maintenance of a site that overlaps a span of time, as people, calendars and files tell it.

    A downtime of one machine that the site knows is of that machine; any other is of the whole cluster.
    """
    spans = [span for span in site.outages.list(since=since, until=until) if span.kind == OutageKind.MAINTENANCE]
    machines = known or KnownMachines(site)
    return tuple(
        MaintenanceWindow(span.start, span.end, machines.named(span.resource) if span.resource else frozenset()) for span in spans
    )


class KnownMachines:
    """Reads the names when it is first asked, and again after an hour: only where a downtime names a resource."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._names: frozenset[str] = frozenset()
        self._read_s: float | None = None

    def named(self, resource: str) -> frozenset[str]:
        """Return the machines of this name, with or without a domain; none where the site knows none."""
        if self._read_s is None or time.monotonic() - self._read_s >= _KEEP_S:
            self._names, self._read_s = self._read(), time.monotonic()
        return frozenset(name for name in self._names if _is_same(name, resource))

    def _read(self) -> frozenset[str]:
        since = self._site.now() - _RECENT
        lists = self._site.jobs.table.between("submit_time", since).select(pl.col("node_list").drop_nulls().unique()).collect()
        nodes = {name for text in lists["node_list"] for name in expand_nodes(text)}
        places = self._site.event_counts.read(since=since, places=True).filter(pl.col("place").is_in(_PLACES))
        return frozenset(nodes | set(places.select(pl.col("value").unique()).collect()["value"]))


def _is_same(name: str, resource: str) -> bool:
    """Whether two names are of one machine: the same, or one is the other without its domain."""
    name, resource = name.casefold(), resource.casefold()
    if "." in name and "." in resource:
        return name == resource
    return name.partition(".")[0] == resource.partition(".")[0]


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
