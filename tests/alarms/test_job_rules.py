from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from random import Random

import polars as pl
import pytest

from stormpetrel.alarms.grouping import IncidentBook
from stormpetrel.alarms.job_rules import JobRules
from stormpetrel.alarms.known_jobs import known_jobs
from stormpetrel.records.findings import FindingKind, Subject, SubjectKind
from stormpetrel.records.incidents import Severity
from stormpetrel.simulate.cluster import ClusterSpec, Fault, simulate
from tests.parts.alarm_jobs import at, everyday, job, known

START = datetime(2024, 1, 1, tzinfo=UTC)
DAY_S = 86_400
DAYS = 21
SICK = Fault(6, 14 * DAY_S, 17 * DAY_S)
SICK_NODE = "n007"


@cache
def jobs_of(seed, *, sick):
    spec = ClusterSpec(nodes=16, days=DAYS, load=0.6, seed=seed, start=START, faults=(SICK,) if sick else ())
    return pl.concat(simulate(spec))


def walk(jobs, every, *, first=START, days=DAYS + 1):
    """Findings and incidents of a watch that looks every so often."""
    known, rules, book, findings, now = known_jobs(jobs), JobRules(first), IncidentBook(), [], first
    while now < START + timedelta(days=days):
        now = min(now + every, START + timedelta(days=days))
        recent = known.filter(pl.coalesce("end_time", "start_time") > rules.needed_since)
        new = rules.step(recent, now)
        book.take(new, now)
        findings += new
    return findings, list(book)


def naming_nodes(incidents):
    return [incident for incident in incidents if FindingKind.NODE_EATS_JOBS in incident.kinds]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_sick_node_of_a_simulated_site_is_one_incident_that_names_it_and_nobody_else(seed):
    _, incidents = walk(jobs_of(seed, sick=True), timedelta(days=1))
    (incident,) = naming_nodes(incidents)
    assert incident.subjects[0] == Subject(SubjectKind.NODE, SICK_NODE)
    assert [subject for subject in incident.subjects if subject.kind == SubjectKind.NODE] == [incident.subjects[0]]
    assert incident.severity == Severity.PAGE and incident.blame == "node"
    sick_from = START + timedelta(seconds=SICK.start_s)
    assert sick_from - timedelta(hours=6) <= incident.since and incident.until <= START + timedelta(seconds=SICK.until_s)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_calm_weeks_of_a_simulated_site_name_no_host(seed):
    _, incidents = walk(jobs_of(seed, sick=False), timedelta(days=7))
    assert naming_nodes(incidents) == []
    assert not any(incident.severity == Severity.PAGE for incident in incidents)


def as_told(incident):
    """An incident without what depends on how often somebody looks."""
    parts = tuple(replace(part, known_at=START, evidence=(), jobs=(), users=(), score=0.0) for part in incident.findings)
    return (incident.id, incident.since, incident.until, incident.severity, incident.resolved_at, set(parts), incident.kinds)


def test_steps_of_another_length_find_the_same_incidents_at_most_a_step_later():
    jobs = jobs_of(2, sick=True)
    from_here = {"first": START + timedelta(days=14), "days": 16}
    _, minutes = walk(jobs, timedelta(minutes=53), **from_here)
    _, hours = walk(jobs, timedelta(minutes=119), **from_here)
    _, day = walk(jobs, timedelta(days=2), **from_here)
    assert naming_nodes(minutes)
    assert [as_told(one) for one in minutes] == [as_told(one) for one in hours] == [as_told(one) for one in day]
    counted = [
        [
            part.figure(name)
            for one in book
            for part in one.findings
            for name in ("lost", "tried", "neighbours", "neighbours_failed")
        ]
        for book in (minutes, hours, day)
    ]
    assert counted[0] == counted[1] == counted[2]
    for book, step in ((minutes, timedelta(minutes=53)), (hours, timedelta(minutes=119)), (day, timedelta(days=2))):
        assert all(timedelta(0) <= one.raised_at - one.findings[0].decided_at < step for one in book)


def altered_after(jobs, now, seed):
    """The records with everything that was not known at a moment changed at random, and records added and taken away."""
    rng = Random(seed)
    known = jobs.filter(pl.col("end_time") <= now)
    open_then = jobs.filter((pl.col("end_time") > now) & (pl.col("start_time") <= now).fill_null(False))
    later = jobs.filter((pl.col("end_time") > now) & ~(pl.col("start_time") <= now).fill_null(False))
    states = [rng.choice(["FAILED", "COMPLETED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY"]) for _ in range(open_then.height)]
    ends = [now + timedelta(seconds=rng.randint(1, 10**6)) for _ in range(open_then.height)]
    changed = open_then.with_columns(
        pl.Series("state", states, dtype=pl.String), pl.Series("end_time", ends, dtype=jobs.schema["end_time"])
    )
    some = later.sample(fraction=rng.random(), seed=seed).with_columns(state=pl.lit("FAILED"), node_list=pl.lit("n001"))
    return pl.concat([some, changed, known]).sample(fraction=1.0, shuffle=True, seed=seed)


@pytest.mark.parametrize("case", range(6))
def test_a_finding_does_not_change_when_later_records_are_altered(case):
    jobs = jobs_of(case % 3, sick=True)
    now = START + timedelta(seconds=Random(case).randint(14 * DAY_S, 17 * DAY_S))
    first = now - timedelta(days=5)
    honest = JobRules(first).step(known_jobs(jobs), now)
    assert honest and all(finding.decided_at <= finding.until <= now == finding.known_at for finding in honest)
    assert JobRules(first).step(known_jobs(altered_after(jobs, now, case)), now) == honest


def test_nothing_is_told_twice():
    jobs, now = known_jobs(jobs_of(0, sick=True)), START + timedelta(days=16)
    rules = JobRules(now - timedelta(days=3))
    assert rules.step(jobs, now)
    assert rules.step(jobs, now) == []


@pytest.mark.parametrize("every", [timedelta(minutes=2), timedelta(hours=1)])
def test_a_job_of_another_user_beside_many_lost_ones_is_counted_once_however_often_somebody_looks(every):
    batch = [job("ann", "n1", at(6, hour=8, minute=2 * k), run_s=60, state="FAILED", name="fit") for k in range(14)]
    beside = [
        job("bob", "n1", at(6, hour=8, minute=5 * k), run_s=60, state="FAILED" if k == 3 else "COMPLETED") for k in range(5)
    ]
    rules, book, now = JobRules(at(6)), IncidentBook(), at(6, hour=8)
    while now < at(6, hour=9):
        now += every
        book.take(rules.step(known(everyday(), batch, beside), now), now)
    (incident,) = book
    assert [incident.findings[0].figure(name) for name in ("lost", "neighbours", "neighbours_failed")] == [14, 5, 1]


def test_a_site_without_jobs_has_no_findings():
    empty = known_jobs(jobs_of(0, sick=False).clear())
    assert JobRules(START).step(empty, START + timedelta(days=1)) == []
