"""Held HTCondor jobs: what to do about them, from the hold itself, its cluster id, its host, and on real event logs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
import pytest

from stormpetrel.jobs.advice.holds import HoldAction, hold_advice
from stormpetrel.jobs.advice.waiting import why_waiting
from stormpetrel.records.jobs import job_frame
from stormpetrel.sources.formats import ReadOptions, open_source
from tests.builders import read_all

T = datetime(2026, 11, 1, tzinfo=UTC)
MIB = 1 << 20


def row(number: int = 12, task: int = 3, *, state: str = "HELD", host: str = "n1", **values: Any) -> dict[str, Any]:
    return {
        "cluster": "pool", "job_id": number, "array_task": task, "submit_time": T, "restart": 0, "state": state, "user": "wren",
        "job_name": "fit", "start_time": T + timedelta(minutes=1),
        "end_time": T + timedelta(minutes=5) if state != "HELD" else None,
        "node_list": host, "extra": {}, **values,
    }  # fmt: skip


def held(code: int, subcode: int = 0, reason: str = "", **values: Any) -> dict[str, Any]:
    more = values.pop("extra", {})
    extra = {"HoldReason": reason, "HoldReasonCode": str(code), "HoldReasonSubCode": str(subcode), **more}
    return row(extra=extra, **values)


def past(*rows: dict[str, Any]) -> pl.DataFrame:
    return job_frame(list(rows))


def test_a_job_that_outgrew_its_memory_gets_twice_of_it_and_the_lines_to_type() -> None:
    reason = "Error from slot1_24@n1: Job has gone over cgroup memory limit of 1024 megabytes. Peak usage: 1024 megabytes."
    advice = hold_advice(held(34, 102, reason))
    assert advice is not None and advice.action is HoldAction.MORE_MEMORY
    assert advice.commands == ("condor_qedit 12.3 RequestMemory 2048", "condor_release 12.3")


def test_what_jobs_like_it_needed_goes_before_doubling() -> None:
    others = [row(11, task, state="COMPLETED", max_rss_bytes=5000 * MIB) for task in range(3)]
    advice = hold_advice(held(34, 102, req_mem_bytes=4096 * MIB), past(*others))
    assert advice is not None and advice.commands[0] == "condor_qedit 12.3 RequestMemory 6144"
    assert "3 jobs like it" in advice.evidence[0]


def test_siblings_that_needed_far_less_never_lower_what_was_too_little() -> None:
    reason = "Error from slot1_24@n1: Job has gone over cgroup memory limit of 1024 megabytes. Peak usage: 1024 megabytes."
    others = [row(12, task, state="COMPLETED", max_rss_bytes=43 * MIB) for task in range(4, 8)]
    advice = hold_advice(held(34, 0, reason), past(*others))
    assert advice is not None and advice.commands[0] == "condor_qedit 12.3 RequestMemory 2048"
    assert "43 MB at most: this one is unlike them" in advice.evidence[0]


def test_disk_is_told_from_memory() -> None:
    advice = hold_advice(held(34, 104, extra={"RequestDisk": "3000000", "DiskUsage": "3100000"}))
    assert advice is not None and advice.action is HoldAction.MORE_DISK
    assert advice.commands[0] == "condor_qedit 12.3 RequestDisk 6291456"


def test_disk_that_was_used_counts_where_the_hold_names_it() -> None:
    reason = "Error from slot1_1@n1: Job has gone over disk limit of 1024 megabytes. Peak usage: 3000 megabytes."
    advice = hold_advice(held(34, 104, reason))
    assert advice is not None and advice.commands[0] == "condor_qedit 12.3 RequestDisk 6291456"


@pytest.mark.parametrize(
    ("allowed", "twice"), [("1:00:00", 7200), ("0+01:00", 7200), ("1+00:00:00", 172_800), ("90", 480)]
)  # without a readable one, twice the time that it ran
def test_a_longer_duration_is_twice_the_one_that_was_too_short(allowed: str, twice: int) -> None:
    advice = hold_advice(held(46, 0, f"The job exceeded allowed duration of {allowed}", elapsed_s=240.0))
    assert advice is not None and advice.commands[0] == f"condor_qedit 12.3 AllowedJobDuration {twice}"


@pytest.mark.parametrize(
    ("code", "subcode", "change"),
    [
        (12, 2, "Let the job write that file, or take it off its outputs."),
        (12, 122, "Free some space or get more quota, then release it."),
        (13, 122, "Free some space or get more quota, then release it."),
        (12, 13, "Put that right, then release it."),
    ],
)
def test_what_to_repair_is_named_by_the_error(code: int, subcode: int, change: str) -> None:
    reason = f"Transfer output files failure at access point ap1. Details: writing to file /home/a/o: (errno {subcode}) E"
    advice = hold_advice(held(code, subcode, reason))
    assert advice is not None and advice.change == change and "(/home/a/o)" in advice.cause


def test_the_host_of_a_transfer_that_failed_there_is_known() -> None:
    reason = "Transfer output files failure at execution point slot1_1@n7.example.org. Details: writing to file /x: (errno 28)"
    advice = hold_advice(held(12, 28, reason))
    assert advice is not None and (advice.action, advice.host) == (HoldAction.OTHER_HOST, "n7.example.org")


def test_one_job_shows_the_reason_in_the_words_of_htcondor_without_secrets() -> None:
    waiting = why_waiting(held(3, 0, "PeriodicHold\x1b[31m of\nhttps://a:topsecret@b/"), None, past(row(11)))
    assert waiting is not None and waiting.change.endswith('(HTCondor says: "PeriodicHold?[31m of https://a:***@b/")')


def test_a_missing_file_is_to_be_repaired_and_named() -> None:
    reason = (
        "Error from n1: SHADOW at 10.0.0.1 failed to send file(s): error reading from /data/train1.svm: (errno 2) No such file"
    )
    advice = hold_advice(held(13, 2, reason))
    assert advice is not None and advice.action is HoldAction.REPAIR
    assert "there is no such file (/data/train1.svm)" in advice.cause


def test_a_host_on_which_others_fail_too_is_called_sick() -> None:
    wrong = [row(number, 0, state="FAILED", host="n1") for number in (20, 21, 22)]
    well = [row(number, 0, state="COMPLETED", host="n2") for number in range(30, 40)]
    advice = hold_advice(held(6, 22, "Error from slot1@n1: Failed to execute '/x/ok.sh': (errno=22)"), past(*wrong, *well))
    assert advice is not None and advice.action is HoldAction.OTHER_HOST
    assert advice.commands[0] == "condor_qedit 12.3 Requirements '(Machine != \"n1\")'"
    assert advice.evidence[0].startswith("3 of 3 jobs of others on n1 went wrong")


def test_a_host_is_not_blamed_for_what_all_jobs_of_the_cluster_meet_everywhere() -> None:
    wrong = [row(number, 0, state="FAILED", host="n1") for number in (20, 21, 22)]
    siblings = [held(13, 2, "Error from slot1@n2: error reading from /a: (errno 2)", task=task, host="n2") for task in (4, 5)]
    advice = hold_advice(held(13, 2, "Error from slot1@n1: error reading from /a: (errno 2)"), past(*wrong, *siblings))
    assert advice is not None and advice.action is HoldAction.REPAIR
    assert "2 of the 2 other jobs of cluster 12 met the same hold" in advice.evidence


def test_what_is_held_again_and_again_is_removed() -> None:
    advice = hold_advice(held(11, 0, extra={"NumHolds": "4"}), past(row(11)))
    assert advice is not None and advice.action is HoldAction.REMOVE
    assert advice.commands == ("condor_rm 12.3",)


@pytest.mark.parametrize("code", [1, 15, 16, 26, 46, 999])
def test_every_code_has_an_answer(code: int) -> None:
    assert hold_advice(held(code)) is not None


def test_a_job_that_is_not_held_gets_none() -> None:
    job = held(13, 2, state="COMPLETED")
    assert hold_advice(job) is None and why_waiting(job) is None


def test_hostile_text_does_not_reach_a_command() -> None:
    reason = "Error from slot1@$(reboot): Failed to execute '/x;rm -rf /': (errno=2)"
    advice = hold_advice(held(6, 2, reason))
    assert advice is not None and advice.commands == ("condor_release 12.3",)


def test_the_page_of_a_job_says_it_in_one_sentence() -> None:
    waiting = why_waiting(held(34, 102, "Error from slot1@n1: memory limit of 1024 megabytes"))
    assert waiting is not None and waiting.sentence == "Held because it outgrew its memory."
    assert waiting.change.startswith("Ask for") and "condor_qedit" in waiting.command


@pytest.mark.realdata
def test_on_real_logs_a_memory_hold_asks_for_more_and_missing_input_blames_no_host(public_logs) -> None:
    jobs, *_ = read_all(open_source(str(public_logs / "events/iceprod-condor.log.gz"), None, ReadOptions()))
    on_hold = jobs.row(by_predicate=pl.col("state") == "HELD", named=True)
    assert hold_advice(on_hold, jobs).action is HoldAction.MORE_MEMORY  # type: ignore[union-attr]
    jobs, *_ = read_all(open_source(str(public_logs / "events/aws-pool-condor.log.gz"), None, ReadOptions()))
    removed = jobs.filter(pl.col("extra").map.get("HoldReasonCode").is_not_null()).to_dicts()
    actions = {hold_advice({**job, "state": "HELD"}, jobs).action for job in removed}  # type: ignore[union-attr]
    assert len(removed) == 32 and actions == {HoldAction.REPAIR}
