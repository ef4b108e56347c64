"""What counts as a failure, and what became of a job."""

from __future__ import annotations

import pytest

from stormpetrel.jobs.outcomes import COMPLETED, NEVER_STARTED, OUTCOMES, failed, never_started_text, outcome, reached_limit
from stormpetrel.records.states import DEFAULT_FAILURE_STATES, OVER_BEFORE_START, JobState
from tests.jobs.logs import made_jobs


def failures(states, **options):
    ran = made_jobs(*({"submit": 0, "start": 10, "end": 70, "elapsed_s": 60.0, "state": state} for state in states))
    return ran.select(failed(**options)).to_series().to_list()


def test_default_failures_are_failures_and_a_cancelled_job_is_none():
    assert failures([str(state) for state in DEFAULT_FAILURE_STATES]) == [True] * len(DEFAULT_FAILURE_STATES)
    assert failures(["COMPLETED", "CANCELLED"]) == [False, False]


@pytest.mark.parametrize(
    "state", ["RUNNING", "PENDING", "SUSPENDED", "HELD", "UNKNOWN", "REQUEUED", "PREEMPTED", "REVOKED", None]
)
def test_a_job_that_has_not_ended_or_was_sent_back_does_not_count(state):
    assert failures([state]) == [None]


def test_a_state_counts_as_it_is_told_and_dropping_wins():
    assert failures(["PREEMPTED", "FAILED"], failure_states=("PREEMPTED",)) == [True, False]
    assert failures(["CANCELLED", "FAILED"], failure_states=("CANCELLED",), dropped_states=("CANCELLED",)) == [None, False]
    assert failures(["CANCELLED", "COMPLETED"], dropped_states=(JobState.CANCELLED,)) == [None, False]


def test_every_outcome_is_a_word_that_forecasts_know():
    jobs = made_jobs(*({"submit": 0, "start": 0, "state": str(state)} for state in JobState))
    words = set(jobs.select(outcome()).to_series())
    assert words == {*OUTCOMES, COMPLETED, None}


@pytest.mark.parametrize("state", sorted(OVER_BEFORE_START))
def test_a_job_that_was_over_before_it_ran_neither_failed_nor_succeeded(state):
    waited = made_jobs({"submit": 0, "end": 70, "elapsed_s": 0.0, "state": str(state)})
    both = ("CANCELLED", "DEADLINE", "REVOKED", "VANISHED", "FAILED")
    assert waited.select(failed()).item() is None
    assert waited.select(failed(failure_states=both)).item() is None
    assert waited.select(outcome()).item() == NEVER_STARTED
    assert NEVER_STARTED not in OUTCOMES
    assert "before it started" in never_started_text(waited.row(0, named=True))


def test_a_failed_job_that_used_up_its_limit_is_a_time_out():
    used_up = {"submit": 0, "time_limit_s": 600.0, "elapsed_s": 600.0}
    jobs = made_jobs(
        {**used_up, "state": "FAILED"},
        {**used_up, "state": "COMPLETED"},
        {**used_up, "state": "CANCELLED"},
        {**used_up, "state": "FAILED", "elapsed_s": 300.0},
        {**used_up, "state": "FAILED", "time_limit_s": None},
        {**used_up, "state": "FAILED", "elapsed_s": None},
    )
    assert jobs.select(outcome()).to_series().to_list() == ["TIMEOUT", "COMPLETED", "CANCELLED", "FAILED", "FAILED", "FAILED"]
    assert jobs.select(reached_limit().alias("it")).to_series().to_list() == [True, True, True, False, None, None]


def test_a_limit_of_zero_is_not_a_limit_that_was_reached():
    jobs = made_jobs({"submit": 0, "state": "FAILED", "time_limit_s": 0.0, "elapsed_s": 0.0})
    assert jobs.select(outcome()).item() == "FAILED"
