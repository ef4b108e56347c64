"""The watcher of job records: reads what the rules need out of the site's table, and asks them.

Site -> JobFindings.step(now) -> findings. The live loop and the replay of the past ask the same object.
"""

from __future__ import annotations

from datetime import datetime

import polars as pl

from stormpetrel.alarms.job_rules import JobRules
from stormpetrel.alarms.known_jobs import NEEDED, known_jobs
from stormpetrel.records.findings import Finding
from stormpetrel.store.site import Site


class JobFindings:
    """Watches the job records of one site from a moment on."""

    def __init__(self, site: Site, start: datetime) -> None:
        self._site = site
        self._rules = JobRules(start)

    def step(self, now: datetime) -> list[Finding]:
        """Return what can be known at `now` and could not at the step before."""
        return self._rules.step(self._jobs(self._rules.needed_since, now), now)

    def _jobs(self, since: datetime, now: datetime) -> pl.DataFrame:
        """The jobs that ended after `since` or were running then, and had started, or were over, by `now`."""
        moment = pl.coalesce("end_time", "start_time")
        rows = self._site.jobs.table.scan().filter(moment > since, pl.coalesce("start_time", "end_time") <= now)
        settings = self._site.settings.jobs
        return known_jobs(rows.select(NEEDED).collect(), settings.failure_states, settings.dropped_states)
