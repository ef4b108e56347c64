"""The rehearsal beside the live stream: faults put into a copy of what the watch reads, as it comes, in a state of its own.

Site -> Shadow.step(now), again and again -> Trial …; two copies of the stream are judged, one with faults and one without: what
only the first finds is about a fault. One fault at a time of jobs, events and CPU traces each.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np

from stormpetrel.records.event_series import HOUR_S
from stormpetrel.records.events import bucket_ceil
from stormpetrel.records.findings import Finding
from stormpetrel.rehearse.site.coverage import Trial
from stormpetrel.rehearse.site.event_faults import EVENT_FAULTS, outage_hours
from stormpetrel.rehearse.site.injection import Injection, key_of, paged_at, seen_at
from stormpetrel.rehearse.site.job_faults import JOB_FAULTS, choose_job_fault, is_enough
from stormpetrel.rehearse.site.rehearsal import RehearsalPlan
from stormpetrel.rehearse.site.stream_copy import StreamCopy, has_events, has_live_windows, recent_nodes
from stormpetrel.rehearse.site.trace_faults import LASTS, TRACE_FAULTS
from stormpetrel.store.site import Site

PAUSE: Final = timedelta(hours=2)  # of a family, from the last chance of one fault to the next fault
_WEEK: Final = timedelta(weeks=1)
_LANES: Final = {"jobs": tuple(JOB_FAULTS), "events": EVENT_FAULTS, "traces": TRACE_FAULTS}


@dataclass(frozen=True, slots=True)
class ShadowPace:
    """How often a shadow looks, and how many times at most."""

    poll_s: float  # real seconds
    steps: int | None = None


def run_shadow(
    site: Site,
    plan: RehearsalPlan,
    pace: ShadowPace,
    note: Callable[[Shadow, Sequence[Trial], datetime], None],
    *,
    stop: threading.Event,
) -> None:
    """Rehearse beside the live stream until `stop` is set; `note` hears of each step and of what was judged in it.

    What the copies hold is gone afterwards.
    """
    with TemporaryDirectory(prefix="stormpetrel-shadow-") as folder:
        shadow = Shadow(site, Path(folder) / "shadow", plan, site.now())
        try:
            steps = 0
            while not stop.is_set() and steps != pace.steps:
                now = site.now()
                note(shadow, shadow.step(now), now)
                steps += 1
                if steps != pace.steps:
                    stop.wait(pace.poll_s)
        finally:
            shadow.close()


class Shadow:
    """Rehearses beside the live stream of one site from a moment on; `folder` is its own, and new."""

    def __init__(self, site: Site, folder: Path, plan: RehearsalPlan, now: datetime) -> None:
        plan.check()
        self._site, self._plan, self._began = site, plan, now
        self._rng = np.random.default_rng([plan.seed, 2207])
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._faulty = StreamCopy(site, folder / "with-faults", now)
        self._calm = StreamCopy(site, folder / "without", now)
        self._findings: list[Finding] = []
        self._known: set[tuple[str, str, tuple[str, ...], datetime]] = set()
        there = {"jobs": True, "events": has_events(site), "traces": has_live_windows(site)}
        self._next = {lane: now for lane, kinds in _LANES.items() if there[lane] and self._wanted(kinds)}
        self.missing = tuple(
            f"There is no live stream of {name} here: what only it shows would not be seen."
            for lane, name in (("events", "events beside the job records"), ("traces", "CPU windows"))
            if not there[lane]
        )
        self.trials: list[Trial] = []

    def step(self, now: datetime) -> list[Trial]:
        """Take in what has become known, begin and judge faults; return those that were judged now."""
        for lane in [lane for lane, at in self._next.items() if at <= now and not self._active(lane)]:
            self._begin(lane, now)
        self._findings += self._faulty.step(now)
        self._known |= {key_of(finding) for finding in self._calm.step(now)}
        judged = [self._judge(fault) for fault in self._faulty.faults if fault.last_chance < now]
        self._faulty.faults = [fault for fault in self._faulty.faults if fault.last_chance >= now]
        trials = [trial for trial in judged if trial is not None]
        self.trials += trials
        oldest = min([fault.since for fault in self._faulty.faults], default=now)
        self._findings = [finding for finding in self._findings if finding.known_at >= oldest]
        return trials

    def false_pages_per_week(self, now: datetime) -> float | None:
        """What the copy without faults has sent, a week; None in the first hours."""
        weeks = (now - self._began) / _WEEK
        sent = [moment for incident in self._calm.incidents(self._began) for moment in incident.paged_at]
        return sum(moment >= self._began for moment in sent) / weeks if weeks > 1 / 28 else None

    def close(self) -> None:
        """Give back what the copies hold open."""
        self._faulty.close()
        self._calm.close()

    def _wanted(self, kinds: Sequence[str]) -> list[str]:
        return [kind for kind in kinds if not self._plan.kinds or kind in self._plan.kinds]

    def _active(self, lane: str) -> bool:
        return any(fault.kind in _LANES[lane] for fault in self._faulty.faults)

    def _begin(self, lane: str, now: datetime) -> None:
        """Begin a fault of a family, of a kind and severity that were drawn; where there is nobody to hit, later."""
        kind = str(self._rng.choice(self._wanted(_LANES[lane])))
        severity = str(self._rng.choice(self._plan.severities))
        fault = self._chosen(lane, kind, severity, now)
        if fault is None:
            self._next[lane] = now + PAUSE
            return
        self._faulty.faults.append(fault)
        self._next[lane] = fault.last_chance + PAUSE

    def _chosen(self, lane: str, kind: str, severity: str, now: datetime) -> Injection | None:
        if lane == "jobs":
            return choose_job_fault(self._faulty.recent_jobs(now), kind, severity, now, self._rng)
        seed = int(self._rng.integers(2**31))
        if lane == "events":
            first = bucket_ceil(now, HOUR_S)
            until = first + timedelta(hours=outage_hours(kind, severity, self._rng))
            return Injection(kind, severity, first, until, frozenset({"events"}), seed=seed)
        window = timedelta(seconds=self._site.settings.traces.window_s)
        nodes = recent_nodes(self._site, now - 4 * window)
        if not nodes:
            return None
        names = frozenset({str(self._rng.choice(nodes))})
        return Injection(kind, severity, now, now + LASTS * window, frozenset({"traces"}), subjects=names, nodes=names, seed=seed)

    def _judge(self, fault: Injection) -> Trial | None:
        """When a fault was seen and sent; None where it has hit too little to be one."""
        enough = is_enough(fault) if fault.kind in JOB_FAULTS else fault.hit > 0
        if not enough:
            return None
        seen = seen_at(fault, self._findings, self._known)
        calm = {moment for incident in self._calm.incidents(fault.since) for moment in incident.paged_at}
        paged = paged_at(fault, seen, self._faulty.incidents(fault.since - timedelta(days=1)), calm)
        seen_s, paged_s = (None if moment is None else (moment - fault.since).total_seconds() for moment in (seen, paged))
        return Trial(replace(fault, jobs=frozenset()), seen_s, paged_s)
