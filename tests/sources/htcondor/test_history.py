"""condor_history -json: ClassAds as job rows, and damaged ones among good ones."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest

from stormpetrel.errors import SourceFormatError
from stormpetrel.sources.htcondor.history import CondorHistory, removed_state
from tests.builders import condor_history_document, make_jobs, read_all, unread_in

QDATE = 1_700_000_000


def ad(cluster: object = 7, **attributes: object) -> dict[str, object]:
    """The ClassAd of a job that completed; None leaves an attribute out."""
    whole = {
        "ClusterId": cluster, "ProcId": 0, "GlobalJobId": f"ap1.example.org#{cluster}.0#{QDATE}", "Owner": "wren", "QDate": QDATE,
        "JobStartDate": QDATE + 60, "JobCurrentStartDate": QDATE + 60, "CompletionDate": QDATE + 660,
        "EnteredCurrentStatus": QDATE + 661, "JobStatus": 4, "ExitCode": 0, "ExitBySignal": False, "RequestCpus": 4,
        "RequestMemory": 2048, "RemoteWallClockTime": 600.0, "RemoteUserCpu": 1000.0, "RemoteSysCpu": 20.0, "Iwd": "/home/wren",
        "Cmd": "/home/wren/fit.sh", "LastRemoteHost": "slot1_2@n7.example.org", **attributes,
    }  # fmt: skip
    return {name: value for name, value in whole.items() if value is not None}


def write(path: Path, *records: object) -> Path:
    path = path / "history.json"
    texts = [record if isinstance(record, str) else json.dumps(record, indent=2) for record in records]
    path.write_text("[\n" + "\n,\n".join(texts) + "\n]\n")
    return path


def read(path: Path, *records: object, **options: object) -> tuple[list[dict[str, object]], pl.DataFrame]:
    jobs, rejects, count, folded = read_all(CondorHistory(write(path, *records), **options))  # type: ignore[arg-type]
    assert count == jobs.height + folded + rejects.height
    return jobs.to_dicts(), rejects


def only(path: Path, record: object, **options: object) -> dict[str, object]:
    jobs, rejects = read(path, record, **options)
    assert len(jobs) == 1, rejects
    return jobs[0]


def at(seconds: int) -> datetime:
    return datetime.fromtimestamp(QDATE + seconds, UTC)


def test_completed_job_fills_its_columns(tmp_path: Path) -> None:
    job = only(tmp_path, ad(Arguments="--deep 3", JobBatchName="fits", CpusProvisioned=8, MemoryProvisioned=4096, RequestGPUs=1))
    expected = {
        "cluster": "ap1.example.org", "job_id": 7, "array_task": 0, "submit_time": at(0), "start_time": at(60),
        "end_time": at(660), "user": "wren", "job_name": "fits", "state": "COMPLETED",
        "state_raw": "4", "exit_code": 0, "exit_signal": 0,
        "elapsed_s": 600.0, "req_cpus": 4, "cpus": 8, "cpu_limit_s": 4800.0, "req_mem_bytes": 2 << 30, "mem_bytes": 4 << 30,
        "req_gpus": 1, "user_cpu_s": 1000.0, "system_cpu_s": 20.0, "cpu_time_s": 1020.0, "node_list": "n7.example.org",
        "work_dir": "/home/wren", "script_path": "/home/wren/fit.sh", "submit_line": "/home/wren/fit.sh --deep 3", "restart": 0,
    }  # fmt: skip
    assert {name: job[name] for name in expected} == expected


def test_names_of_attributes_have_no_case(tmp_path: Path) -> None:
    assert only(tmp_path, {name.lower(): value for name, value in ad().items()})["user"] == "wren"


def test_given_cluster_wins_over_the_schedd(tmp_path: Path) -> None:
    assert only(tmp_path, ad(), cluster="petrel")["cluster"] == "petrel"


@pytest.mark.parametrize(
    ("attributes", "state", "code", "signal"),
    [
        ({"ExitCode": 3}, "FAILED", 3, 0),
        ({"ExitCode": None, "ExitBySignal": True, "ExitSignal": 11}, "FAILED", 0, 11),
        ({"JobStatus": 1, "ExitCode": None, "CompletionDate": 0}, "PENDING", None, None),
        ({"JobStatus": 2, "ExitCode": None, "CompletionDate": 0}, "RUNNING", None, None),
        ({"JobStatus": 5, "ExitCode": None, "CompletionDate": 0}, "HELD", None, None),
    ],
)
def test_status_and_exit_make_the_state(
    tmp_path: Path, attributes: dict[str, object], state: str, code: int | None, signal: int | None
) -> None:
    job = only(tmp_path, ad(**attributes))
    assert (job["state"], job["exit_code"], job["exit_signal"]) == (state, code, signal)
    assert (job["end_time"] is None) == (state in ("PENDING", "RUNNING", "HELD"))


def test_removed_job_ended_when_it_was_removed(tmp_path: Path) -> None:
    job = only(tmp_path, ad(JobStatus=3, CompletionDate=0, ExitCode=None, RemoveReason="via condor_rm (by user finch)"))
    assert (job["state"], job["end_time"], job["cancelled_by"]) == ("CANCELLED", at(661), "finch")


@pytest.mark.parametrize(
    ("reason", "state"),
    [
        ("via condor_rm (by user wren)", "CANCELLED"),
        ("Job exceeded its memory limit", "OUT_OF_MEMORY"),
        ("The job attribute PeriodicRemove expression 'MemoryUsage > 2*RequestMemory' evaluated to TRUE", "OUT_OF_MEMORY"),
        ("The system macro SYSTEM_PERIODIC_REMOVE expression 'RemoteWallClockTime > 86400' evaluated to TRUE", "TIMEOUT"),
        ("Job exceeded allowed run time", "TIMEOUT"),
        ("job ran too long", "TIMEOUT"),
        ("PeriodicRemove expression 'MemoryUsage > 9 || RemoteWallClockTime > 9' evaluated to TRUE", "CANCELLED"),
        ("PeriodicRemove expression 'NumJobStarts > 3' evaluated to TRUE", "CANCELLED"),
        ("memory of a bird", "CANCELLED"),
        (None, "CANCELLED"),
    ],
)
def test_remove_reason_tells_why(reason: str | None, state: str) -> None:
    assert removed_state(reason).value == state


@pytest.mark.parametrize(
    ("code", "subcode", "state"), [(34, 102, "OUT_OF_MEMORY"), (34, 104, "CANCELLED"), (46, 0, "TIMEOUT"), (1, 0, "CANCELLED")]
)
def test_job_removed_from_a_hold_ended_by_what_it_was_held_for(tmp_path: Path, code: int, subcode: int, state: str) -> None:
    held = {"LastJobStatus": 5, "LastHoldReasonCode": code, "LastHoldReasonSubCode": subcode}
    assert only(tmp_path, ad(JobStatus=3, RemoveReason="via condor_rm (by user wren)", **held))["state"] == state


def test_hold_that_was_released_tells_nothing_of_the_removal(tmp_path: Path) -> None:
    assert only(tmp_path, ad(JobStatus=3, LastJobStatus=2, LastHoldReasonCode=34))["state"] == "CANCELLED"


@pytest.mark.parametrize(
    ("attributes", "size"),
    [
        ({"MemoryUsage": "/Expr(((ResidentSetSize + 1023) / 1024))/", "ResidentSetSize": 3500}, 3500 << 10),
        ({"ResidentSetSize": 3500, "ResidentSetSize_RAW": 3416}, 3416 << 10),
        ({"MemoryUsage": 12}, 12 << 20),
        ({"MemoryUsage": "/Expr(undefined)/"}, None),
    ],
)
def test_resident_memory_is_taken_from_what_is_a_number(tmp_path: Path, attributes: dict[str, object], size: int | None) -> None:
    assert only(tmp_path, ad(**attributes))["max_rss_bytes"] == size


@pytest.mark.parametrize(
    ("attributes", "limit"),
    [({"AllowedJobDuration": 3600}, 3600.0), ({"MaxWallTime": 60}, 3600.0), ({"MaxWallTimeMins": 90}, 5400.0), ({}, None)],
)
def test_time_limit_is_in_seconds(tmp_path: Path, attributes: dict[str, object], limit: float | None) -> None:
    assert only(tmp_path, ad(**attributes))["time_limit_s"] == limit


def test_account_is_the_accounting_group_without_its_user(tmp_path: Path) -> None:
    assert only(tmp_path, ad(AccountingGroup="group_physics.wren"))["account"] == "group_physics"


def test_host_of_a_glidein_is_the_node(tmp_path: Path) -> None:
    assert only(tmp_path, ad(LastRemoteHost="slot1_1@glidein_12_34@n9.example.org"))["node_list"] == "n9.example.org"


def test_reasons_and_disk_are_kept_and_the_environment_is_not(tmp_path: Path) -> None:
    extra = str(
        only(tmp_path, ad(RequestDisk=10240, HoldReason="why <b>", NumShadowStarts=2, Environment="TOKEN=secret"))["extra"]
    )
    assert "10240" in extra and "why <b>" in extra and "NumShadowStarts" in extra and "secret" not in extra


@pytest.mark.parametrize(
    ("damaged", "rule"),
    [
        ('{"ClusterId": 8, "ProcId": 0, "Owner": ', "invalid_json"),
        ("12", "not_a_record"),
        ('"text"', "not_a_record"),
        ('{"Owner": "wren"}', "not_a_record"),
        (json.dumps(ad("eight")), "bad_value"),
        (json.dumps(ad([8])), "bad_value"),
        (json.dumps(ad(True)), "bad_value"),
        (json.dumps(ad(8, ProcId={"a": 1})), "bad_value"),
        (json.dumps(ad(8, QDate="yesterday")), "bad_value"),
        (json.dumps(ad(10**30)), "bad_value"),
        (json.dumps(ad(8, QDate=None)), "no_submit_time"),
        (json.dumps(ad(8, QDate=10**17)), "no_submit_time"),
        (json.dumps(ad(8, JobStatus=99)), "no_state"),
        (json.dumps(ad(8, JobStatus=[4])), "no_state"),
    ],
)
def test_damaged_record_is_refused_and_its_neighbours_are_kept(tmp_path: Path, damaged: str, rule: str) -> None:
    jobs, rejects = read(tmp_path, ad(1), damaged, ad(2))
    assert [job["job_id"] for job in jobs] == [1, 2]
    assert rejects["rule"].to_list() == [rule]


def test_record_cut_at_the_end_of_the_file_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, ad(1), ad(2))
    path.write_text(path.read_text()[:-40])
    jobs, rejects, _, _ = read_all(CondorHistory(path))
    assert (jobs["job_id"].to_list(), rejects["rule"].to_list()) == ([1], ["truncated_record"])


def test_wrong_types_beside_the_identity_become_null_and_are_noted(tmp_path: Path) -> None:
    odd = {
        "RequestMemory": "lots",
        "RemoteWallClockTime": [1],
        "Owner": 5,
        "LastRemoteHost": {},
        "ExitCode": 2**40,
        "RequestCpus": 1e300,
        "RequestGPUs": -4,
    }
    job = only(tmp_path, ad(**odd))
    assert unread_in(job) == {
        "req_mem_bytes": "lots",
        "elapsed_s": "[1]",
        "user": "5",
        "node_list": "{}",
        "exit_code": str(2**40),
        "req_cpus": "1e+300",
        "req_gpus": "-4",
    }
    assert [job[name] for name in ("req_mem_bytes", "elapsed_s", "user", "node_list", "exit_code", "req_cpus")] == [None] * 6


def test_numbers_that_json_should_not_have_become_null(tmp_path: Path) -> None:
    text = json.dumps(ad(RemoteWallClockTime="@")).replace('"@"', "NaN")
    assert only(tmp_path, text)["elapsed_s"] is None


def test_half_a_surrogate_pair_in_a_name_can_be_stored(tmp_path: Path) -> None:
    assert only(tmp_path, ad(Owner="wr\ud800en"))["user"] == "wr?en"


def test_hostile_names_stay_as_they_are(tmp_path: Path) -> None:
    assert only(tmp_path, ad(JobBatchName="<script>\x1b[31m"))["job_name"] == "<script>\x1b[31m"


def test_deep_nesting_is_refused(tmp_path: Path) -> None:
    jobs, rejects = read(tmp_path, ad(1), '{"ClusterId": ' + "[" * 5000 + "]" * 5000 + "}", ad(2))
    assert [job["job_id"] for job in jobs] == [1, 2] and rejects.height == 1


def test_json_lines_read_like_a_list(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text("".join(json.dumps(ad(number)) + "\n" for number in range(1, 6)))
    assert read_all(CondorHistory(path))[0]["job_id"].to_list() == [1, 2, 3, 4, 5]


def test_nul_bytes_and_bad_utf8_spoil_only_their_own_record(tmp_path: Path) -> None:
    document = condor_history_document(make_jobs(5))
    document.records[1] = document.records[1].replace(b"user1", b"us\0er1")
    document.records[3] = document.records[3].replace(b"user3", b"us\xff\xfer3")
    jobs, rejects, _, _ = read_all(CondorHistory(document.write(tmp_path / "history.json")))
    assert jobs["job_id"].to_list() == [1000, 1002, 1004] and rejects.height == 2


def test_nothing_found_is_no_error(tmp_path: Path) -> None:
    assert read(tmp_path)[0] == []


def test_long_form_is_refused_with_a_hint(tmp_path: Path) -> None:
    path = tmp_path / "history.txt"
    path.write_text('ClusterId = 8\nCmd = "/bin/true"\n')
    with pytest.raises(SourceFormatError, match="condor_history -json"):
        read_all(CondorHistory(path))
