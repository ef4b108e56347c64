"""One watcher per family behind one protocol, each in a thread of its own: one that hangs or fails holds up nobody.

Watcher.step(now) -> Findings -> IncidentKeeper -> incidents, again and again, at the watcher's own rhythm.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

from stormpetrel.errors import SourceError, StormpetrelError
from stormpetrel.records.findings import Finding, SubjectKind
from stormpetrel.records.incidents import Incident, Severity
from stormpetrel.store.site import Site
from stormpetrel.watch.incident_keeper import IncidentKeeper
from stormpetrel.watch.logs import Log
from stormpetrel.watch.loop import retry_pause_s

_PLACES: Final = frozenset({SubjectKind.NODE, SubjectKind.SUBMIT_HOST, SubjectKind.CLUSTER, SubjectKind.SOURCE})  # not people
_PAUSE_OF_STEPS_S: Final = 0.5  # where some steps are all that is wanted: nobody waits for what is due tomorrow
_PATIENCE_S: Final = 30.0  # for a look that is under way when the watch ends
_LONGEST_WAIT_S: Final = 5.0  # for a turn of the loop: less than the patience with a source that is being read meanwhile


class Watcher(Protocol):
    """Sees one family of a site. It goes on from `state`, which is committed together with what its findings led to."""

    @property
    def name(self) -> str:
        """Whose findings these are: jobs, events, traces, system."""

    @property
    def every_s(self) -> float:
        """Seconds from one step to the next."""

    @property
    def state(self) -> str:
        """What it needs to go on from here, as JSON."""

    def step(self, now: datetime) -> list[Finding]:
        """Return what can be known at `now` and could not at the step before; StormpetrelError where its sources are away."""


@dataclass(frozen=True, slots=True)
class WatcherHealth:
    """How a watcher is: when it last made a step without a problem, and what was wrong with the last one."""

    name: str
    stepped: datetime | None = None
    problem: str = ""
    failures: int = 0


class SteppingWatcher:
    """Makes the steps of one watcher, and hands on what it finds; a step that fails is told and tried again later."""

    def __init__(self, watcher: Watcher, site: Site, keeper: IncidentKeeper, log: Log, *, poll_s: float = math.inf) -> None:
        self._poll_s = poll_s  # whoever wants to look more often
        self.watcher, self._site, self._keeper, self._log = watcher, site, keeper, log
        self.name = watcher.name
        self.health = WatcherHealth(watcher.name)
        self._reported = ""  # what was last told to be wrong

    def step(self) -> float:
        """Make one step; return the seconds until the next."""
        try:
            now = self._site.now()
            self.take(self.watcher.step(now), now)
            self._tell("")
            self.health = WatcherHealth(self.watcher.name, now)
        except (StormpetrelError, OSError) as error:
            failures = self.health.failures + 1
            if not isinstance(error, SourceError):  # told as that source's
                self._tell(str(error))
            self.health = WatcherHealth(self.watcher.name, self.health.stepped, str(error), failures)
        return retry_pause_s(self.health.failures, min(self._poll_s, self.watcher.every_s))

    def take(self, findings: list[Finding], now: datetime) -> None:
        """Commit what was found; a step that found nothing is committed now and then."""
        if not findings and not self._keeper.is_due(self.watcher.name, now):
            return
        changed = self._keeper.take(self.watcher.name, findings, self.watcher.state, now)
        report_incidents(self._log, changed, now)

    def _tell(self, problem: str) -> None:
        before, self._reported = self._reported, problem
        if problem and problem != before:
            self._log.warning("watcher problem", watcher=self.watcher.name, what=problem)
        elif before and not problem:
            self._log.info("watcher problem over", watcher=self.watcher.name, what=before)


def report_incidents(log: Log, changed: Iterable[Incident], now: datetime) -> None:
    """Log what is new, back, or over; that an incident goes on is no news."""
    for incident in changed:
        facts = {
            "incident": incident.id,
            "severity": incident.severity.value,
            "kinds": [kind.value for kind in incident.kinds],
            "subjects": [subject.name for subject in incident.subjects if subject.kind in _PLACES][:5],
            "late": incident.late,
        }
        if incident.resolved_at is not None:
            log.info("incident over", **facts)
        elif incident.opened_at == now or incident.raised_at == now:
            (log.warning if incident.severity == Severity.PAGE else log.info)("incident", **facts)


class LoopFirst:
    """Lets the loop of jobs go first: long work beside it waits between two pieces while a turn is under way.

    Both would share the processors and the interpreter; a turn needs little of them, and somebody waits for it. A turn that hangs
    in a source holds nobody up for long: each piece waits `longest_s` at most.
    """

    def __init__(self, longest_s: float = _LONGEST_WAIT_S) -> None:
        self._longest_s = longest_s
        self._over = threading.Event()
        self._over.set()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Have a turn under way until the block ends."""
        self._over.clear()
        try:
            yield
        finally:
            self._over.set()

    def give_way(self) -> None:
        """Wait until no turn is under way; to be called between two pieces of work, holding no lock."""
        self._over.wait(self._longest_s)


class Stepping(Protocol):
    """Something that makes one step after the other."""

    @property
    def name(self) -> str:
        """What its thread is called."""

    def step(self) -> float:
        """Make one step; return the seconds until the next."""


class WatcherThreads:
    """What goes on beside the loop of jobs, each stepping in a thread of its own; `after` is called after each step."""

    def __init__(self, stepping: Iterable[Stepping], log: Log, *, after: Callable[[], None] = lambda: None) -> None:
        self._stepping, self._after = tuple(stepping), after
        self._log = log
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self, *, steps: int | None = None) -> None:
        """Begin; with `steps` each makes so many and ends."""
        for stepping in self._stepping:
            thread = threading.Thread(target=self._run, args=(stepping, steps), name=stepping.name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def step_once(self) -> None:
        """Let each make one step, one after the other, here: for whoever holds the clock."""
        for stepping in self._stepping:
            stepping.step()

    def _run(self, stepping: Stepping, steps: int | None) -> None:
        done = 0
        while not self._stop.is_set():
            pause_s = self._guarded(stepping.step)
            self._after()
            done += 1
            if done == steps:
                return
            self._stop.wait(pause_s if steps is None else min(pause_s, _PAUSE_OF_STEPS_S))

    def _guarded(self, step: Callable[[], float]) -> float:
        """A mistake of ours in one family must not end the others: it is told, and the family rests for a while."""
        try:
            return step()
        except Exception as error:
            self._log.warning("watcher failed", watcher=threading.current_thread().name, what=f"{type(error).__name__}: {error}")
            return retry_pause_s(6, 1.0)

    def join(self) -> None:
        """Wait until each has made its steps."""
        for thread in self._threads:
            thread.join()

    def end(self) -> None:
        """Ask all to stop, and wait a while for looks that are under way."""
        self._stop.set()
        for thread in self._threads:
            thread.join(_PATIENCE_S)
