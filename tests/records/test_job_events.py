"""Job records -> events: each state has its kind, a job counts once per thing that happened to it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from stormpetrel.records.events import EVENT_SCHEMA, JOB_RECORD_KINDS
from stormpetrel.records.job_events import first_node, job_events
from stormpetrel.records.jobs import job_frame
from stormpetrel.records.states import FINISHED, JobState

START = datetime(2025, 3, 4, 8, tzinfo=UTC)


def job(**values: object) -> dict[str, object]:
    return {
        "cluster": "alpha", "job_id": 1, "submit_time": START, "restart": 0, "start_time": START + timedelta(minutes=5),
        "end_time": START + timedelta(hours=1), "state": "COMPLETED", "account": "physics", "node_list": "n[07-09]", **values,
    }  # fmt: skip


def events(*jobs: dict[str, object]) -> pl.DataFrame:
    return job_events(job_frame(list(jobs)), fast_failure_s=60)


def test_completed_job_was_submitted_started_and_terminated() -> None:
    found = events(job())
    assert found.schema == EVENT_SCHEMA
    assert found.rows() == [
        (START, "Submit", "alpha", None, "physics", None),
        (START + timedelta(minutes=5), "Execute", "alpha", None, "physics", "n07"),
        (START + timedelta(hours=1), "JobTerminated", "alpha", None, "physics", "n07"),
    ]


@pytest.mark.parametrize(
    ("state", "kinds"),
    [
        ("FAILED", ["JobTerminated", "JobFailed"]),
        ("OUT_OF_MEMORY", ["JobTerminated", "JobFailed"]),
        ("TIMEOUT", ["JobTimedOut"]),
        ("DEADLINE", ["JobTimedOut"]),
        ("CANCELLED", ["JobAborted"]),
        ("PREEMPTED", ["JobEvicted"]),
        ("REQUEUED", ["JobEvicted"]),
        ("NODE_FAIL", ["NodeFailed"]),
        ("BOOT_FAIL", ["NodeFailed"]),
        ("RUNNING", []),
    ],
)
def test_state_says_what_the_end_was(state: str, kinds: list[str]) -> None:
    assert events(job(state=state))["kind"].to_list()[2:] == kinds


def test_every_finished_state_has_an_end_that_is_a_kind_of_job_records() -> None:
    for state in JobState:
        ends = events(job(state=state.value))["kind"].to_list()[2:]
        assert bool(ends) == (state in FINISHED) and set(ends) <= set(JOB_RECORD_KINDS)


@pytest.mark.parametrize(("ran_s", "is_fast"), [(0, True), (60, True), (61, False), (-5, False)])
def test_failure_soon_after_the_start_is_fast(ran_s: int, is_fast: bool) -> None:
    start = START + timedelta(minutes=5)
    found = events(job(state="FAILED", start_time=start, end_time=start + timedelta(seconds=ran_s)))
    assert ("JobFailedFast" in found["kind"]) == is_fast


def test_requeued_job_was_submitted_once() -> None:
    again = job(restart=1, start_time=START + timedelta(hours=2), end_time=START + timedelta(hours=3))
    kinds = events(job(state="REQUEUED"), again)["kind"].to_list()
    assert kinds.count("Submit") == 1 and kinds.count("Execute") == 2


def test_job_that_never_started_and_waits_is_only_submitted() -> None:
    assert events(job(state="PENDING", start_time=None, end_time=None, node_list=None))["kind"].to_list() == ["Submit"]


def test_group_of_a_log_without_accounts_is_the_unix_group() -> None:
    assert events(job(account="", group="g7"))["group"].unique().to_list() == ["g7"]


def test_no_jobs_are_no_events() -> None:
    assert events().height == 0


def test_first_node_is_that_of_the_written_list() -> None:
    lists = ["cpn-f15-[06,08,11-12],gpu3", "gpu3,cpn-1", "r[1-2]n[3-4]", "n7", "None assigned", "", None, "n[1-"]
    assert first_node(pl.Series(lists)).to_list() == ["cpn-f15-06", "gpu3", "r1n3", "n7", None, None, None, "n[1-"]
