"""No state without its cause, and no cause without its state."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stormpetrel.records.states import JobState
from stormpetrel.simulate.arrivals import NEVER
from stormpetrel.simulate.cluster import ended_jobs
from stormpetrel.simulate.outcomes import KILL_WAIT_S, Reactions, outcome
from stormpetrel.simulate.population import make_population
from stormpetrel.simulate.scheduler import EndedJob
from tests.simulate.made import SMALL, submission


@pytest.fixture(scope="module")
def ran() -> list[EndedJob]:
    """Jobs that ran, on nodes that were neither sick nor down."""
    return [job for job in ended_jobs(replace(SMALL, node_failures_per_year=0.0)) if job.start_s >= 0]


def jobs_in(jobs: list[EndedJob], state: JobState) -> list[EndedJob]:
    found = [job for job in jobs if job.outcome.state == state]
    assert found, f"no job was {state}"
    return found


def test_completed_jobs_had_all_they_needed(ran):
    for job in jobs_in(ran, JobState.COMPLETED):
        asked = job.submission
        assert asked.need_s <= asked.limit_s and asked.need_mib <= asked.mem_mib
        assert job.end_s - job.start_s == asked.need_s


def test_a_job_times_out_if_and_only_if_nothing_ended_it_before_its_limit(ran):
    for job in ran:
        asked = job.submission
        over_memory = asked.need_mib > asked.mem_mib
        oom_s = max(1, asked.need_s * asked.mem_mib // asked.need_mib) if over_memory else NEVER
        too_long = min(asked.need_s, asked.crash_s, asked.cancel_s, oom_s) > asked.limit_s
        assert (job.outcome.state == JobState.TIMEOUT) == too_long
    for job in jobs_in(ran, JobState.TIMEOUT):
        assert 0 <= job.end_s - job.start_s - job.submission.limit_s < KILL_WAIT_S


def test_out_of_memory_means_that_more_was_needed_than_asked_for(ran):
    assert all(job.submission.need_mib > job.submission.mem_mib for job in jobs_in(ran, JobState.OUT_OF_MEMORY))


def test_failed_jobs_crashed_when_their_application_did_and_say_how(ran):
    for job in jobs_in(ran, JobState.FAILED):
        assert job.end_s - job.start_s == job.submission.crash_s
        assert job.outcome.code or job.outcome.signal


def test_a_cancelled_job_was_cancelled_by_its_user(ran):
    assert all(job.end_s - job.start_s == job.submission.cancel_s for job in jobs_in(ran, JobState.CANCELLED))


def test_most_crashes_come_early(ran):
    crashed = jobs_in(ran, JobState.FAILED)
    early = sum(job.outcome.run_s < 300 for job in crashed)
    assert early > len(crashed) / 2


@pytest.mark.parametrize(
    ("given", "state", "run_s"),
    [
        ({}, JobState.COMPLETED, 600),
        ({"limit_s": 600}, JobState.COMPLETED, 600),
        ({"limit_s": 599}, JobState.TIMEOUT, None),
        ({"need_mib": 1024}, JobState.COMPLETED, 600),
        ({"need_mib": 2048}, JobState.OUT_OF_MEMORY, 300),
        ({"crash_s": 20}, JobState.FAILED, 20),
        ({"cancel_s": 30}, JobState.CANCELLED, 30),
        ({"cancel_s": 30, "crash_s": 20}, JobState.FAILED, 20),
        ({"need_mib": 2048, "limit_s": 200}, JobState.TIMEOUT, None),
    ],
)
def test_what_happens_first_decides(given, state, run_s):
    end = outcome(submission(**given), 0, sick=False)
    assert end.state == state
    assert run_s is None or end.run_s == run_s


def test_a_sick_node_wins_over_everything():
    end = outcome(submission(need_s=5000, need_mib=9999), 0, sick=True)
    assert end.state == JobState.FAILED and end.run_s < 30


def test_nobody_resubmits_what_went_well():
    reactions = Reactions(make_population(SMALL, 1), SMALL)
    assert all(reactions.reaction(submission(attempt=0), JobState.COMPLETED, 0) is None for _ in range(50))


def test_who_resubmits_asks_for_more_of_what_was_missing_or_for_the_same():
    reactions = Reactions(make_population(SMALL, 1), SMALL)
    again = [reactions.reaction(submission(attempt=0), JobState.TIMEOUT, 1000) for _ in range(200)]
    made = [job for job in again if job]
    assert {job.limit_s for job in made} == {3600, 7200}
    assert all(job.submit_s > 1000 and job.attempt == 1 and job.mem_mib == 1024 for job in made)


def test_nobody_tries_for_ever():
    reactions = Reactions(make_population(SMALL, 1), SMALL)
    assert all(reactions.reaction(submission(attempt=4), JobState.FAILED, 0) is None for _ in range(50))
