"""The one place where findings of all watchers become incidents, and are committed.

Watcher -> IncidentKeeper.take(watcher, findings, state) -> changed incidents. What a watcher needs to go on, and the incidents
that its findings led to, are committed together: killed anywhere, the watch finds both as they were, and takes no finding twice.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, Protocol

from stormpetrel.alarms.budget import PageBudget
from stormpetrel.alarms.grouping import RETURNS_WITHIN, IncidentBook
from stormpetrel.alarms.silences import Silences
from stormpetrel.alarms.verdict_memory import VerdictMemory
from stormpetrel.records.findings import Finding
from stormpetrel.records.incidents import Incident
from stormpetrel.records.outages import MaintenanceWindow, OutageKind
from stormpetrel.store.site import Site
from stormpetrel.store.upkeep.forgetting import forgettings
from stormpetrel.watch.known_machines import KnownMachines

_LOOK_AGAIN: Final = timedelta(minutes=1)  # at incidents that may be over, where nobody finds anything
_LONGEST_QUIET: Final = timedelta(days=4) + RETURNS_WITHIN  # nothing that is longer over can come back


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
        self._memory, self._verdicts = VerdictMemory(), (0, 0)
        self._examined_at: datetime | None = None
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
            self._examined_at = now
            return changed

    def is_due(self, now: datetime) -> bool:
        """Whether it is time to see which incidents are over, although nothing was found."""
        with self._lock:
            return self._examined_at is None or abs(now - self._examined_at) >= _LOOK_AGAIN

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
