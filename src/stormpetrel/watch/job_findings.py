"""The watcher of job records: reads what the rules need out of the site's table, and asks them.

Site -> JobFindings.step(now) -> findings. The live loop and the replay of the past ask the same object.

How late the ends of jobs are told: by accounting that lags, or because this machine's clock is ahead of the scheduler's.

ends of jobs that each look brought -> RecordLateness.late. A job that was not over at one look and is at the next should have
ended between the two, or within the seconds that accounting takes. Where look after look brings only ends from before the look
before it, the two clocks differ; rules that go by our clock would take those ends for seen.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

import polars as pl
from pydantic import TypeAdapter

from stormpetrel.alarms.job_rules import FAMILY, CountedJobs, JobRules
from stormpetrel.records.findings import Evidence, Finding, FindingKind, Subject, SubjectKind, Unit
from stormpetrel.store.site import Site
from stormpetrel.watch.cluster_name import ClusterName
from stormpetrel.watch.recent_jobs import RecentJobs, read_known_jobs

FIRST_LOOK: Final = timedelta(days=1)  # how far back a first watch looks for what may still be going on
_SET_BACK: Final = timedelta(minutes=1)
SETTLED: Final = timedelta(seconds=15)  # accounting tells of an end some seconds after it
LATE_FROM: Final = timedelta(seconds=5)  # every end is at least so much older than the look before
_POLLS: Final = 3  # in a row, that bring ends
_FEWEST_ENDS: Final = 5
_OLDEST: Final = timedelta(hours=12)  # what is older is an import of the past, no lateness


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
        self._rules = _rules_of(state) if state else JobRules(start)
        self._recent = RecentJobs(site)
        self._cluster = ClusterName(site)
        self._lateness = RecordLateness()

    @property
    def every_s(self) -> float:
        """Seconds from one step to the next."""
        return self._site.settings.watch.poll_s

    @property
    def state(self) -> str:
        """What is needed to go on from here."""
        return _STATE.dump_json(_State(self._rules.seen_to, tuple(self._rules.counted()))).decode()

    def go_back(self, state: str) -> None:
        """Go on from an earlier state: what was found since was not kept."""
        self._rules = _rules_of(state)

    def step(self, now: datetime) -> list[Finding]:
        """Return what can be known at `now` and could not at the step before."""
        return self._rules.step(read_known_jobs(self._site, self._rules.needed_since, now), now)

    def live_step(self, known_to: datetime, now: datetime) -> list[Finding]:
        """Return what the records up to `known_to` tell, known at `now`; of the table only what has changed is read."""
        self._recent.read(self._rules.needed_since)
        was_late = self._lateness.late
        self._lateness.note(self._recent.just_ended, known_to)
        until = known_to - SETTLED - self._lateness.late
        if self._lateness.late and not was_late:  # what ended meanwhile lies in what counted as seen
            return [self._clock_finding(known_to, now), *self._examined_again(until, now)]
        if until < self._rules.seen_to - _SET_BACK:
            return self._examined_again(until, now)
        if until <= self._rules.seen_to:
            return []
        if not self._recent.has_failure(self._rules.seen_to, until):
            self._rules.skip_to(until)
            return []
        findings = self._rules.step(self._recent.between(self._rules.needed_since, until), until)
        return [replace(finding, known_at=max(now, finding.decided_at)) for finding in findings]

    def _clock_finding(self, known_to: datetime, now: datetime) -> Finding:
        """That the records come late by our clock, from the look at which it is certain."""
        late_s = self._lateness.late.total_seconds()
        cluster = self._cluster.name()
        return Finding(
            family=FAMILY,
            rule=f"{FindingKind.CLOCK_AHEAD}/1",
            kind=FindingKind.CLOCK_AHEAD,
            cluster=cluster,
            subjects=(Subject(SubjectKind.SOURCE, f"accounting of {cluster}"),),
            since=known_to,
            decided_at=known_to,
            until=known_to,
            known_at=max(now, known_to),
            score=late_s,
            threshold=LATE_FROM.total_seconds(),
            evidence=(Evidence("late_s", late_s, Unit.SECONDS),),
        )

    def _examined_again(self, until: datetime, now: datetime) -> list[Finding]:
        """The clock was set back: it may have run ahead of the scheduler's, so that records of that time were never looked at."""
        self._rules = JobRules(until - FIRST_LOOK, self._rules.counted())
        findings = [finding for finding in self.step(until) if finding.figure("lost")]  # others were found before
        return [replace(finding, known_at=max(now, finding.decided_at)) for finding in findings]


def _rules_of(state: str) -> JobRules:
    known = _STATE.validate_json(state)
    return JobRules(known.seen_to, known.counted)


class RecordLateness:
    """Learns from each look how late ends are told; `late` is zero while they come in time."""

    def __init__(self) -> None:
        self.late = timedelta(0)
        self._polled_to: datetime | None = None
        self._polls: deque[tuple[timedelta, timedelta, int]] = deque(maxlen=_POLLS)  # least, most, ends

    def note(self, ends: pl.Series, known_to: datetime) -> None:
        """Take the ends that the look up to `known_to` brought."""
        before, self._polled_to = self._polled_to, known_to
        if before is None or known_to <= before:
            self._polls.clear()
            self.late = timedelta(0)
            return
        recent = ends.filter(ends > before - _OLDEST)
        newest, oldest = recent.max(), recent.min()
        if not isinstance(newest, datetime) or not isinstance(oldest, datetime):
            return
        self._polls.append((before - newest, before - oldest, recent.len()))
        is_late = len(self._polls) == _POLLS and all(least > LATE_FROM for least, _, _ in self._polls)
        if is_late and sum(count for _, _, count in self._polls) >= _FEWEST_ENDS:
            self.late = max(self.late, *(most for _, most, _ in self._polls))
        elif not is_late:
            self.late = timedelta(0)
