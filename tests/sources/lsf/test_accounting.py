"""lsb.acct of LSF: what becomes of a JOB_FINISH record, of old and new versions, and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from stormpetrel.errors import SourceFormatError
from stormpetrel.sources.formats import sniff_format
from stormpetrel.sources.lsf.log import LsfLog
from tests.builders import read_all, unread_in
from tests.lsf_records import SUBMIT, acct_line

GIB, MIB = 1 << 30, 1 << 20


def read(folder: Path, *lines: str | bytes, **options: Any) -> tuple[list[dict[str, Any]], pl.DataFrame, int, int]:
    path = folder / "lsb.acct"
    path.write_bytes(b"".join((each.encode() if isinstance(each, str) else each) + b"\n" for each in lines))
    jobs, rejects, count, folded = read_all(LsfLog(path, **options))
    assert count == jobs.height + folded + rejects.height
    return jobs.to_dicts(), rejects, count, folded


def only(folder: Path, line: str, **options: Any) -> dict[str, Any]:
    jobs, rejects, _, _ = read(folder, line, **options)
    assert len(jobs) == 1, rejects
    return jobs[0]


def at(seconds: int) -> datetime:
    return datetime.fromtimestamp(SUBMIT + seconds, UTC)


def test_finished_job_fills_times_resources_and_names(tmp_path: Path) -> None:
    job = only(tmp_path, acct_line())
    expected = {
        "cluster": "cluster", "job_id": 386, "array_task": None, "restart": 0, "submit_time": at(0), "start_time": at(60),
        "end_time": at(660), "elapsed_s": 600.0, "state": "COMPLETED", "state_raw": "DONE", "exit_code": 0, "exit_signal": 0,
        "job_name": "fit", "user": "wren", "uid": 1501, "account": "aves", "partition": "normal", "req_cpus": 8, "cpus": 8,
        "nodes": 2, "node_list": "n1,n2", "time_limit_s": 3600.0, "cpu_limit_s": 4800.0, "user_cpu_s": 1100.5,
        "system_cpu_s": 99.5, "cpu_time_s": 1200.0, "max_rss_bytes": MIB, "req_mem_bytes": 2 * GIB, "work_dir": "/home/wren/run",
        "submit_line": "/home/wren/fit --all",
    }  # fmt: skip
    assert {name: job[name] for name in expected} == expected
    assert unread_in(job) == {}


@pytest.mark.parametrize("version", ["5.1", "7.06", "9.11", "10.1", "10.108"])
def test_every_version_tells_who_ran_what_and_when(tmp_path: Path, version: str) -> None:
    job = only(tmp_path, acct_line(version=version))
    told = {name: job[name] for name in ("user", "partition", "start_time", "end_time", "cpus", "state", "max_rss_bytes")}
    assert told == {
        "user": "wren", "partition": "normal", "start_time": at(60), "end_time": at(660), "cpus": 8, "state": "COMPLETED",
        "max_rss_bytes": MIB,
    }  # fmt: skip


@pytest.mark.parametrize("version", ["5.1", "7.06"])
def test_old_versions_tell_no_limit_and_the_memory_as_it_was_asked_for(tmp_path: Path, version: str) -> None:
    job = only(tmp_path, acct_line(version=version))
    assert (job["time_limit_s"], job["req_mem_bytes"], job["elapsed_s"]) == (None, 2 * GIB, 600.0)


@pytest.mark.parametrize(
    ("reason", "exit_status", "state", "raw"),
    [
        (5, 140 << 8, "TIMEOUT", "EXIT TERM_RUNLIMIT"),
        (12, 24, "TIMEOUT", "EXIT TERM_CPULIMIT"),
        (16, 137 << 8, "OUT_OF_MEMORY", "EXIT TERM_MEMLIMIT"),
        (20, 137 << 8, "OUT_OF_MEMORY", "EXIT TERM_SWAP"),
        (14, 130 << 8, "CANCELLED", "EXIT TERM_OWNER"),
        (15, 130 << 8, "CANCELLED", "EXIT TERM_ADMIN"),
        (1, 130 << 8, "PREEMPTED", "EXIT TERM_PREEMPT"),
        (6, 130 << 8, "DEADLINE", "EXIT TERM_DEADLINE"),
        (11, 130 << 8, "REQUEUED", "EXIT TERM_REQUEUE_ADMIN"),
        (17, 15, "NODE_FAIL", "EXIT TERM_EXTERNAL_SIGNAL"),
        (17, 143 << 8, "NODE_FAIL", "EXIT TERM_EXTERNAL_SIGNAL"),
        (17, 11, "FAILED", "EXIT TERM_EXTERNAL_SIGNAL"),
        (19, 0, "NODE_FAIL", "EXIT TERM_ZOMBIE"),
        (25, 1 << 8, "FAILED", "EXIT TERM_CWD_NOTEXIST"),
        (0, 1 << 8, "FAILED", "EXIT"),
        (99, 1 << 8, "FAILED", "EXIT TERM_99"),
    ],
)
def test_reason_makes_the_state(tmp_path: Path, reason: int, exit_status: int, state: str, raw: str) -> None:
    job = only(tmp_path, acct_line(status=32, reason=reason, exit_status=exit_status))
    assert (job["state"], job["state_raw"]) == (state, raw)


@pytest.mark.parametrize(("status", "code", "signal"), [(255 << 8, 255, 0), (9, 0, 9), (127 << 8, 127, 0), (139, 0, 11)])
def test_exit_status_is_taken_apart_as_wait_writes_it(tmp_path: Path, status: int, code: int, signal: int) -> None:
    job = only(tmp_path, acct_line(status=32, exit_status=status))
    assert (job["exit_code"], job["exit_signal"]) == (code, signal)


def test_done_with_its_post_processing_done_too_is_completed(tmp_path: Path) -> None:
    assert only(tmp_path, acct_line(status=64 + 128))["state"] == "COMPLETED"


def test_job_killed_at_its_limit_is_a_timeout_where_the_version_tells_no_reason(tmp_path: Path) -> None:
    job = only(tmp_path, acct_line(status=32, exit_status=140 << 8, limit=600, run_s=601))
    assert job["state"] == "TIMEOUT"


def test_program_that_fails_after_its_limit_has_failed(tmp_path: Path) -> None:
    assert only(tmp_path, acct_line(status=32, exit_status=1 << 8, limit=600, run_s=601))["state"] == "FAILED"


@pytest.mark.parametrize(("reason", "by"), [(14, "wren"), (8, "wren"), (15, None)])
def test_job_killed_while_it_waited_has_no_start_and_no_hosts(tmp_path: Path, reason: int, by: str | None) -> None:
    job = only(tmp_path, acct_line(status=32, reason=reason, exit_status=0, start=0, hosts=(), run_s=0, end=SUBMIT + 30))
    told = {
        name: job[name] for name in ("state", "start_time", "end_time", "elapsed_s", "cpus", "nodes", "cancelled_by", "req_cpus")
    }
    assert told == {
        "state": "CANCELLED", "start_time": None, "end_time": at(30), "elapsed_s": None, "cpus": None, "nodes": None,
        "cancelled_by": by, "req_cpus": 8,
    }  # fmt: skip


def test_array_task_has_its_index_and_the_name_without_the_list(tmp_path: Path) -> None:
    job = only(tmp_path, acct_line(index=7, name="fit[1-90]%5"))
    assert (job["job_id"], job["array_task"], job["job_name"]) == (386, 7, "fit")


def test_name_with_brackets_is_kept_where_there_is_no_array(tmp_path: Path) -> None:
    assert only(tmp_path, acct_line(name="fit[a]"))["job_name"] == "fit[a]"


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("/bin/sleep 3", "sleep"),
        ("#!/bin/bash;#BSUB -n 4; # go;./run.sh", "run.sh"),
        ('"exec" "sh" "x"', "exec"),
        ("#!/bin/sh", None),
        ("", None),
    ],
)
def test_job_without_a_name_is_called_like_its_program(tmp_path: Path, command: str, name: str | None) -> None:
    assert only(tmp_path, acct_line(name="", command=command))["job_name"] == name


def test_quotes_in_a_command_are_doubled_in_the_file(tmp_path: Path) -> None:
    job = only(tmp_path, acct_line(command='#BSUB -R "span[ptile=16]";date'))
    assert (job["submit_line"], job["state"]) == ('#BSUB -R "span[ptile=16]";date', "COMPLETED")


def test_hosts_are_listed_once_a_slot_or_with_counts(tmp_path: Path) -> None:
    job = only(tmp_path, acct_line(hosts=("n1", "n1", "n2"), allocated=("n1", "n1", "n2"), slots=3))
    assert (job["cpus"], job["nodes"], job["node_list"]) == (3, 2, "n1,n2")


def test_slots_that_were_held_count_and_not_only_tasks(tmp_path: Path) -> None:
    job = only(tmp_path, acct_line(hosts=("2*n1",), allocated=("16*n1",), slots=2))
    assert (job["cpus"], job["req_cpus"]) == (16, 2)


def test_hosts_that_were_asked_for_are_not_those_it_ran_on(tmp_path: Path) -> None:
    assert only(tmp_path, acct_line(asked_hosts=("n8", "n9")))["node_list"] == "n1,n2"


@pytest.mark.parametrize(
    ("effective", "memory"),
    [
        ("rusage[mem=1024.00]", 2 * GIB),
        ("rusage[mem=1024.00/task]", 8 * GIB),
        ("rusage[mem=1024.00/job]", GIB),
        ("rusage[tmp=5:mem=2G/host]", 4 * GIB),
        ("select[mem>8000] order[mem]", None),
        ("2*{rusage[mem=4]} + 6*{rusage[mem=8]}", None),
        ("rusage[mem=100||mem=50]", 200 * MIB),
        ("rusage[mem=0.50]", MIB),
    ],
)
def test_memory_is_reserved_on_each_host_unless_it_says_otherwise(tmp_path: Path, effective: str, memory: int | None) -> None:
    assert only(tmp_path, acct_line(effective=effective))["req_mem_bytes"] == memory


@pytest.mark.parametrize(
    ("effective", "gpus"), [("rusage[ngpus_physical=2.00/host]", 4), ("rusage[ngpus_excl_p=1]", 2), ("rusage[mem=5]", None)]
)
def test_gpus_are_counted_on_each_host(tmp_path: Path, effective: str, gpus: int | None) -> None:
    job = only(tmp_path, acct_line(effective=effective))
    assert (job["gpus"], job["req_gpus"]) == (gpus, gpus)


@pytest.mark.parametrize(
    ("effective", "nodes"), [("span[ptile=4]", 2), ("span[hosts=1]", 1), ("span[hosts=-1]", None), ("", None)]
)
def test_span_tells_how_many_hosts_were_asked_for(tmp_path: Path, effective: str, nodes: int | None) -> None:
    assert only(tmp_path, acct_line(effective=effective))["req_nodes"] == nodes


@pytest.mark.parametrize("limit", [-1, 0])
def test_job_without_a_limit_has_none(tmp_path: Path, limit: int) -> None:
    assert only(tmp_path, acct_line(limit=limit))["time_limit_s"] is None


@pytest.mark.parametrize(
    "host_use", [("n1 1306 0 12 24 0", "n2 7 0 1 2 0"), ("n1 1306 0 12 24 1 k v",), ("n1 1306 0 12 24", "n2 7 0 1 2")]
)
def test_use_by_host_stands_before_the_limit(tmp_path: Path, host_use: tuple[str, ...]) -> None:
    job = only(tmp_path, acct_line(host_use=host_use))
    assert (job["time_limit_s"], job["req_mem_bytes"], job["elapsed_s"]) == (3600.0, 2 * GIB, 600.0)


def test_fields_of_an_unknown_version_cost_only_themselves(tmp_path: Path) -> None:
    line = acct_line(version="12.0").replace(" 4194304 1024 ", " new 4194304 1024 ")
    job = only(tmp_path, line)
    assert (job["state"], job["time_limit_s"], job["elapsed_s"]) == ("COMPLETED", None, 600.0)


def test_time_for_which_a_job_was_suspended_is_no_run_time(tmp_path: Path) -> None:
    job = only(tmp_path, acct_line(run_s=300))
    assert (job["elapsed_s"], dict(job["extra"])["suspended_s"]) == (300.0, "300")


def test_use_that_was_not_measured_is_empty(tmp_path: Path) -> None:
    job = only(tmp_path, acct_line(user_s="-1.000000", system_s="-1.000000", max_rss_kb=0))
    assert (job["cpu_time_s"], job["user_cpu_s"], job["max_rss_bytes"], unread_in(job)) == (None, None, None, {})


def test_job_is_eligible_after_the_time_that_did_not_count(tmp_path: Path) -> None:
    assert only(tmp_path, acct_line(ineligible=40))["eligible_time"] == at(40)


def test_job_submitted_for_later_is_eligible_then(tmp_path: Path) -> None:
    assert only(tmp_path, acct_line(begin=SUBMIT + 50))["eligible_time"] == at(50)


def test_requeued_run_is_a_row_of_its_own_and_the_next_run_counts_up(tmp_path: Path) -> None:
    first = acct_line(status=32, reason=10, exit_status=130 << 8)
    second = acct_line(status=32, reason=11, exit_status=130 << 8, end=SUBMIT + 900, requeued=SUBMIT + 661)
    jobs, _, _, _ = read(tmp_path, first, second, acct_line(end=SUBMIT + 2000, requeued=SUBMIT + 901))
    assert [(job["state"], job["restart"]) for job in jobs] == [("REQUEUED", 0), ("REQUEUED", 1), ("COMPLETED", 2)]


def test_run_after_a_requeue_in_an_earlier_file_is_not_taken_for_the_first(tmp_path: Path) -> None:
    assert only(tmp_path, acct_line(requeued=SUBMIT + 5))["restart"] == 1


def test_default_project_is_no_account(tmp_path: Path) -> None:
    assert only(tmp_path, acct_line(project="default"))["account"] is None


def test_service_class_and_application_profile_are_kept(tmp_path: Path) -> None:
    job = only(tmp_path, acct_line(service_class="gold", application="fluent"))
    assert (job["qos"], dict(job["extra"])["application"]) == ("gold", "fluent")


@pytest.mark.parametrize(("given", "cluster"), [("", "north"), ("petrel", "petrel")])
def test_given_cluster_wins_over_the_one_a_job_was_sent_from(tmp_path: Path, given: str, cluster: str) -> None:
    assert only(tmp_path, acct_line(source_cluster="north"), cluster=given)["cluster"] == cluster


def test_reservations_and_resizes_are_counted_and_skipped(tmp_path: Path) -> None:
    others = ['"EVENT_ADRSV_FINISH" "10.1" 1700000000 1', '"JOB_RESIZE" "10.1" 1700000000 386 0']
    jobs, _, _, folded = read(tmp_path, acct_line(), *others)
    assert (len(jobs), folded) == (1, 2)


@pytest.mark.parametrize(
    ("damaged", "rule"),
    [
        (b'"JOB_FINISH" "10.1" 17\0', "nul_byte"),
        (b'"JOB_FINISH" "10.1" \xff\xfe', "invalid_utf8"),
        (b"x" * 2_000_000, "line_too_long"),
        (b"<script>alert(1)</script>", "bad_record"),
        (b'"JOB_FINISH" "10.1" 1700000000 386', "truncated_record"),
        (acct_line().encode()[:400], "truncated_record"),
        (acct_line().encode()[:450], "truncated_record"),
        (acct_line(submit="soon").encode(), "no_submit_time"),
        (acct_line(end="soon").encode(), "bad_value"),
        (acct_line(status=4).encode(), "bad_value"),
        (acct_line(status="").encode(), "bad_value"),
        (acct_line(job_id="386x").encode(), "bad_value"),  # type: ignore[arg-type]
        (acct_line().replace(' 2 "4*n1"', ' 999999999 "4*n1"', 1).encode(), "truncated_record"),
        (acct_line().replace(' 2 "4*n1"', ' -2 "4*n1"', 1).encode(), "bad_value"),
        (acct_line().replace('"wren"', '"wr"en"', 1).encode(), "bad_record"),
        (b'"JOB_EXPLODED" "10.1" 1700000000', "bad_record"),
    ],
)
def test_damaged_line_is_refused_and_its_neighbours_are_kept(tmp_path: Path, damaged: bytes, rule: str) -> None:
    jobs, rejects, _, _ = read(tmp_path, acct_line(11), damaged, acct_line(12))
    assert [job["job_id"] for job in jobs] == [11, 12]
    assert (rejects["rule"].to_list(), rejects["line"].to_list()) == ([rule], [2])


@pytest.mark.parametrize("absurd", ["9" * 30, "1e308", "NaN", "٣"])
def test_absurd_numbers_are_empty_and_noted(tmp_path: Path, absurd: str) -> None:
    job = only(tmp_path, acct_line(uid=absurd, slots=absurd, user_s=absurd, max_rss_kb=absurd, exit_status=absurd, start=absurd))
    names = {"uid", "req_cpus", "user_cpu_s", "max_rss_bytes", "exit_code", "start_time"}
    assert {job[name] for name in names} == {None}
    assert unread_in(job) == dict.fromkeys(names, absurd)


def test_hostile_names_stay_as_they_are(tmp_path: Path) -> None:
    job = only(tmp_path, acct_line(name="<img/src=x>\x1b[31m", user="../../etc"))
    assert (job["job_name"], job["user"]) == ("<img/src=x>\x1b[31m", "../../etc")


def test_long_requirement_is_read_in_linear_time(tmp_path: Path) -> None:
    hostile = "rusage[" * 10_000 + "span[" * 10_000
    assert only(tmp_path, acct_line(effective=hostile, resources="[" * 100_000, name="[" * 100_000))["state"] == "COMPLETED"


def test_chunks_are_bounded(tmp_path: Path) -> None:
    path = tmp_path / "lsb.acct"
    path.write_text("\n".join(acct_line(number) for number in range(12_000)))
    assert max(chunk.records.height for chunk in LsfLog(path).chunks()) <= 10_000


def test_form_is_known_from_the_first_lines(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(acct_line())
    assert sniff_format(str(tmp_path / "log")) == "lsf"


def test_log_of_the_master_is_refused_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(SourceFormatError, match=r"lsb\.events") as refused:
        read(tmp_path, '"JOB_NEW" "10.1" 1700000000 386 1501')
    assert "lsb.acct" in str(refused.value)


def test_another_format_is_refused_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(SourceFormatError, match=r"lsb\.acct"):
        read(tmp_path, "JobID|User|State", "1|ada|COMPLETED")


def test_empty_file_has_no_jobs(tmp_path: Path) -> None:
    assert read(tmp_path)[0] == []
