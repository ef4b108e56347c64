"""The watcher of job records: reads what the rules need out of the site's table, and asks them.

Site -> JobFindings.step(now) -> findings. The live loop and the replay of the past ask the same object.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

import polars as pl
from pydantic import TypeAdapter

from stormpetrel.alarms.job_rules import FAMILY, CountedJobs, JobRules
from stormpetrel.alarms.known_jobs import NEEDED, known_jobs
from stormpetrel.records.findings import Finding
from stormpetrel.store.site import Site

FIRST_LOOK: Final = timedelta(days=1)  # how far back a first watch looks for what may still be going on
_SET_BACK: Final = timedelta(minutes=1)
SETTLED: Final = timedelta(seconds=15)  # accounting tells of an end some seconds after it


@dataclass(frozen=True, slots=True)
class _State:
    seen_to: datetime
    counted: tuple[CountedJobs, ...]


_STATE: Final = TypeAdapter(_State)


class JobFindings:
    """Watches the job records of one site, from a moment on or from where `state` was left."""

    name = FAMILY

    def __init__(self, site: Site, start: datetime, *, state: str = "") -> None:
        self._site = site
        known = _STATE.validate_json(state) if state else _State(start, ())
        self._rules = JobRules(known.seen_to, known.counted)

    @property
    def every_s(self) -> float:
        """Seconds from one step to the next."""
        return self._site.settings.watch.poll_s

    @property
    def state(self) -> str:
        """What is needed to go on from here."""
        return _STATE.dump_json(_State(self._rules.seen_to, tuple(self._rules.counted()))).decode()

    def step(self, now: datetime) -> list[Finding]:
        """Return what can be known at `now` and could not at the step before."""
        return self._rules.step(self._jobs(self._rules.needed_since, now), now)

    def live_step(self, known_to: datetime, now: datetime) -> list[Finding]:
        """Return what the records up to `known_to` tell, known at `now`; without a failure among them nothing else is read."""
        until = known_to - SETTLED
        if until < self._rules.seen_to - _SET_BACK:
            return self._looked_again(until, now)
        if until <= self._rules.seen_to:
            return []
        if not self._has_failure(self._rules.seen_to, until):
            self._rules.skip_to(until)
            return []
        return [replace(finding, known_at=max(now, finding.decided_at)) for finding in self.step(until)]

    def _looked_again(self, until: datetime, now: datetime) -> list[Finding]:
        """The clock was set back: it may have run ahead of the scheduler's, so that records of that time were never looked at."""
        self._rules = JobRules(until - FIRST_LOOK, self._rules.counted())
        findings = [finding for finding in self.step(until) if finding.figure("lost")]  # others were found before
        return [replace(finding, known_at=max(now, finding.decided_at)) for finding in findings]

    def _has_failure(self, after: datetime, until: datetime) -> bool:
        states = [str(state) for state in self._site.settings.jobs.failure_states]
        rows = self._site.jobs.table.scan().filter(pl.col("end_time") > after, pl.col("end_time") <= until)
        return rows.filter(pl.col("state").is_in(states)).select("state").head(1).collect().height > 0

    def _jobs(self, since: datetime, now: datetime) -> pl.DataFrame:
        """The jobs that ended after `since` or were running then, and had started, or were over, by `now`."""
        moment = pl.coalesce("end_time", "start_time")
        rows = self._site.jobs.table.scan().filter(moment > since, pl.coalesce("start_time", "end_time") <= now)
        settings = self._site.settings.jobs
        return known_jobs(rows.select(NEEDED).collect(), settings.failure_states, settings.dropped_states)
