"""The thread of the watch that acts: every few seconds each policy decides; what is armed is done, the rest goes into the ledger.

Site -> Acting.step -> acts. A policy decides by what the watch itself has committed: predictions, and incidents.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final

import polars as pl

from stormpetrel.alarms.acts import with_acts
from stormpetrel.alarms.silences import Silences
from stormpetrel.errors import StormpetrelError
from stormpetrel.records.actions.acts import Act, ActState, Arming, Mode
from stormpetrel.records.actions.policies import OF_RISK, Action, Policy
from stormpetrel.records.incidents import Incident
from stormpetrel.records.jobs import KEY, JobRef
from stormpetrel.records.states import JobState
from stormpetrel.records.times import month_of
from stormpetrel.store.actions import Caps
from stormpetrel.store.site import Site
from stormpetrel.watch.actions.catch import Catch
from stormpetrel.watch.actions.decide import FRESH, decide_by_incident, decide_by_risk
from stormpetrel.watch.actions.ledger import DRAINED_FOR, NEEDED, is_drain_due, settle_drain, settle_jobs, with_costs
from stormpetrel.watch.logs import Log

_OF_JOBS: Final = (*KEY, "user", "account", "partition", "node_list", "state", "source")
_OF_PREDICTIONS: Final = (*KEY, "moment", "moment_time", "risk", "threshold", "model_version")
_SETTLE_EVERY_S: Final = 60.0
_MOST_SETTLED: Final = 10_000  # acts that are looked at in one go
_LONGEST_WAIT: Final = timedelta(days=40)  # a job may wait for long before it starts
_IDLE_S: Final = 60.0  # where there is no policy


class KnownNow:
    """What policies decide by: jobs with a fresh prediction, running jobs, open incidents."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self._judged: tuple[tuple[int, int], pl.DataFrame] | None = None

    def judged_jobs(self, now: datetime) -> pl.DataFrame:
        """Jobs with predictions of the last minutes by a model of this site; read again where one of the tables has changed."""
        version = (self.site.predictions.table.version(), self.site.jobs.table.version())
        if self._judged is None or self._judged[0] != version:
            of_site = pl.col("model_version") >= 0  # on general experience alone nobody's job is touched
            fresh = of_site & (pl.col("moment_time") > now - FRESH * self.site.pace())
            recent = self.site.predictions.read(since=now - _LONGEST_WAIT).filter(fresh).select(_OF_PREDICTIONS).collect()
            keys = recent.select(KEY).unique().with_columns(month=month_of(pl.col("submit_time")))
            jobs = self.site.jobs.rows_of(keys).select(_OF_JOBS)
            self._judged = (version, recent.join(jobs, on=list(KEY), how="inner", nulls_equal=True))
        return self._judged[1]

    def running_jobs(self) -> pl.DataFrame:
        """The jobs that run."""
        rows = self.site.jobs.table.scan().filter(pl.col("state") == JobState.RUNNING.value)
        return rows.select(_OF_JOBS).collect()

    def incidents(self) -> list[Incident]:
        """The open incidents of the site, with what people did to them."""
        lasting = self.site.incidents.list(is_open=True)
        acts = self.site.incidents.acts(incident.id for incident in lasting)
        return [with_acts(incident, acts[incident.id]) for incident in lasting]


def decide(policy: Policy, known: KnownNow, silences: Silences, now: datetime, mode: Mode) -> list[Act]:
    """Return what a policy decides at this moment; what was decided before is decided again, under the same keys."""
    if policy.kind in OF_RISK:
        return decide_by_risk(policy, known.judged_jobs(now), now=now, mode=mode, pace=known.site.pace())
    incidents = known.incidents()
    running = known.running_jobs() if incidents and policy.kind == Action.REQUEUE else pl.DataFrame()
    return decide_by_incident(policy, incidents, running, silences, now=now, mode=mode)


class Acting:
    """Decides and acts for one site while the watch runs; a step of the watch, in a thread of its own."""

    name = "actions"

    def __init__(
        self,
        site: Site,
        log: Log,
        *,
        every_s: float,
        silences: Callable[[datetime], Silences] = lambda now: Silences(),
    ) -> None:
        self._site, self._log, self._every_s, self._silences = site, log, every_s, silences
        self._catch = Catch(site)
        self._has_resumed = False
        self._settled_at = -1e9
        self._known = KnownNow(site)
        self._reported = ""

    def step(self) -> float:
        """Make one turn; return the seconds until the next."""
        policies = self._site.settings.actions.policies
        if not policies and self._has_resumed:
            return _IDLE_S
        problem = ""
        try:
            self._turn(policies)
        except StormpetrelError as error:
            if not error.retry_helps:
                raise
            problem = str(error)
        if problem and problem != self._reported:
            self._log.warning("action problem", what=problem)
        self._reported = problem
        return self._every_s

    def _turn(self, policies: Sequence[Policy]) -> None:
        now = self._site.now()
        armings = self._site.actions.list_policies(policies, now, drop_others=not self._has_resumed)
        if not self._has_resumed:
            armed = {arming.policy: arming.digest for arming in armings.values() if arming.armed}
            for act in self._catch.resume(lambda act: armed.get(act.policy) == act.digest):
                self._tell(act)
            self._has_resumed = True
        for policy in policies:
            self._apply(policy, armings[policy.name], now)
        if time.monotonic() - self._settled_at >= _SETTLE_EVERY_S:
            self._settled_at = time.monotonic()
            settle_ledger(self._site, now)

    def _apply(self, policy: Policy, arming: Arming, now: datetime) -> None:
        mode = Mode.LIVE if arming.armed and self._site.actions.switch().is_on else Mode.DRY
        acts = decide(policy, self._known, self._silences(now), now, mode)
        if mode == Mode.DRY:
            self._site.actions.keep_dry([act for act in acts if act.state == ActState.DRY], policy.per_hour, now)
            return
        states = self._site.actions.states([act.key for act in acts])
        caps = Caps(policy.per_hour, self._site.settings.actions.per_hour)
        for act in acts:
            if act.state == ActState.INTENDED and states.get(act.key) in (None, ActState.HELD_BACK):
                done = self._catch.perform(act, caps)
                if done.state != states.get(act.key):
                    self._tell(done)
                if done.state == ActState.HELD_BACK:  # by the cap or a scheduler that is away: so would be the others
                    return

    def _tell(self, act: Act) -> None:
        facts = {"act": act.key, "action": act.action.value, "state": act.state.value, "why": act.why}
        (self._log.info if act.state in (ActState.DONE, ActState.HELD_BACK) else self._log.warning)("action", **facts)


def settle_ledger(site: Site, now: datetime) -> int:
    """Settle the dry acts whose jobs have ended, and the drains whose day is over; how many."""
    waiting = site.actions.unsettled(_MOST_SETTLED)
    of_jobs = [act for act in waiting if act.action != Action.DRAIN]
    settled = settle_jobs(of_jobs, _jobs_of(site, of_jobs), now) if of_jobs else []
    for act in waiting:
        if act.action == Action.DRAIN and is_drain_due(act, now):
            settled.append(settle_drain(act, _jobs_after(site, act), now))
    site.actions.settle(settled)
    return len(settled)


def _jobs_of(site: Site, acts: Sequence[Act]) -> pl.DataFrame:
    rows = site.jobs.rows_of_refs([JobRef.parse(act.subject) for act in acts])
    return with_costs(rows.select(NEEDED), site.settings.jobs.failure_states)


def _jobs_after(site: Site, act: Act) -> pl.DataFrame:
    """The jobs that started on the day after a drain that was not done."""
    until = act.decided + DRAINED_FOR
    rows = site.jobs.read_jobs(since=act.decided - _LONGEST_WAIT, until=until)
    started = rows.filter(pl.col("start_time") > act.decided, pl.col("start_time") <= until, pl.col("node_list").is_not_null())
    return with_costs(started.select(NEEDED).collect(), site.settings.jobs.failure_states)


def dry_run_left(policy: Policy, arming: Arming, settled: int, now: datetime) -> str:
    """What is missing before a policy can be armed, in a sentence; empty: nothing."""
    hours = (now - arming.listed).total_seconds() / 3600
    missing = []
    if hours < policy.dry_hours:
        missing.append(f"it has run dry for {hours:.1f} of {policy.dry_hours:g} hours")
    if settled < policy.dry_cases:
        missing.append(f"{settled} of {policy.dry_cases} cases are settled")
    return f"Policy '{policy.name}' cannot be armed yet: {' and '.join(missing)}." if missing else ""
