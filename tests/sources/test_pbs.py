"""PBS accounting logs: what becomes a row, what is folded into it, and what is refused."""

from __future__ import annotations

import gzip
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from stormpetrel.errors import SourceFormatError
from stormpetrel.sources import pbs
from stormpetrel.sources.pbs import PbsAccounting
from tests.builders import make_jobs, pbs_document, read_all, unread_in

CTIME = 1_700_000_000
BODY = {
    "user": "wren", "group": "aves", "jobname": "fit", "queue": "batch", "ctime": CTIME, "qtime": CTIME, "etime": CTIME,
    "start": CTIME + 60, "exec_host": "n1/0*4+n2/0*4", "Resource_List.ncpus": 8, "Resource_List.mem": "2gb",
    "Resource_List.nodect": 2, "Resource_List.walltime": "01:00:00",
}  # fmt: skip
END = {
    "end": CTIME + 660, "Exit_status": 0, "resources_used.cput": "00:20:00", "resources_used.mem": "1024kb",
    "resources_used.walltime": "00:10:00",
}  # fmt: skip


def line(kind: str, job: str = "12.server", *, at: str = "11/14/2023 22:24:20", body: str | None = None, **fields: Any) -> str:
    """One record; E has everything, S what is known at the start, others only what is given."""
    known = {"E": {**BODY, **END}, "S": BODY}.get(kind, {})
    pairs = {**known, **{key.replace("__", "."): value for key, value in fields.items()}}
    text = body if body is not None else " ".join(f"{key}={value}" for key, value in pairs.items() if value is not None)
    return f"{at};{kind};{job};{text}"


def read(path: Path, *lines: str | bytes, **options: object) -> tuple[list[dict[str, object]], pl.DataFrame, int, int]:
    path = path / "20231114"
    path.write_bytes(b"".join((each.encode() if isinstance(each, str) else each) + b"\n" for each in lines))
    jobs, rejects, count, folded = read_all(PbsAccounting(path, **options))  # type: ignore[arg-type]
    assert count == jobs.height + folded + rejects.height
    return jobs.to_dicts(), rejects, count, folded


def only(path: Path, *lines: str, **options: object) -> dict[str, object]:
    jobs, rejects, _, _ = read(path, *lines, **options)
    assert len(jobs) == 1, rejects
    return jobs[0]


def at(seconds: int) -> datetime:
    return datetime.fromtimestamp(CTIME + seconds, UTC)


def test_end_record_fills_times_and_resources(tmp_path: Path) -> None:
    job = only(tmp_path, line("E"))
    expected = {
        "cluster": "server", "job_id": 12, "array_task": None, "submit_time": at(0), "eligible_time": at(0), "start_time": at(60),
        "end_time": at(660), "user": "wren", "group": "aves", "job_name": "fit", "partition": "batch", "req_cpus": 8, "cpus": 8,
        "req_nodes": 2, "nodes": 2, "node_list": "n1,n2", "req_mem_bytes": 2 << 30, "max_rss_bytes": 1 << 20,
        "time_limit_s": 3600.0, "elapsed_s": 600.0, "cpu_time_s": 1200.0, "cpu_limit_s": 4800.0, "state": "COMPLETED",
        "state_raw": "E 0", "exit_code": 0, "exit_signal": 0, "restart": 0,
    }  # fmt: skip
    assert {name: job[name] for name in expected} == expected


def test_queue_and_start_records_are_folded_into_the_end(tmp_path: Path) -> None:
    jobs, _, count, folded = read(tmp_path, line("Q", queue="batch"), line("S"), line("E"))
    assert (len(jobs), count, folded) == (1, 3, 2)


def test_job_that_only_queued_is_pending_since_the_time_of_the_line(tmp_path: Path) -> None:
    job = only(tmp_path, line("Q", at="07/01/2023 12:00:00", queue="batch"), time_zone="Europe/Berlin")
    assert (job["state"], job["submit_time"]) == ("PENDING", datetime(2023, 7, 1, 10, tzinfo=UTC))
    assert job["start_time"] is None and job["end_time"] is None


def test_job_that_started_is_running(tmp_path: Path) -> None:
    job = only(tmp_path, line("Q", queue="batch"), line("S"))
    assert (job["state"], job["state_raw"], job["start_time"], job["end_time"]) == ("RUNNING", "S", at(60), None)


def test_deleted_job_without_an_end_is_cancelled_by_its_requestor(tmp_path: Path) -> None:
    job = only(tmp_path, line("Q", queue="batch"), line("D", requestor="finch@login1"))
    assert (job["state"], job["cancelled_by"]) == ("CANCELLED", "finch")


def test_delete_record_is_folded_into_the_end_that_follows(tmp_path: Path) -> None:
    job = only(tmp_path, line("S"), line("D", requestor="finch@login1"), line("E", Exit_status=271))
    assert (job["state"], job["state_raw"], job["cancelled_by"]) == ("CANCELLED", "E 271", "finch")


def test_delete_record_after_the_end_changes_nothing(tmp_path: Path) -> None:
    assert only(tmp_path, line("E"), line("D", requestor="finch@login1"))["state"] == "COMPLETED"


def test_aborted_job_failed_and_keeps_the_message(tmp_path: Path) -> None:
    job = only(tmp_path, line("Q", ctime=CTIME), line("A", body="Job deleted as result of dependency on job 11.server"))
    assert (job["state"], job["extra"]) == ("FAILED", {"message": "Job deleted as result of dependency on job 11.server"})


def test_rerun_is_a_row_of_its_own_and_the_next_run_counts_up(tmp_path: Path) -> None:
    jobs, _, count, folded = read(
        tmp_path, line("S"), line("R", body=""), line("S", start=CTIME + 900), line("E", start=CTIME + 900, end=CTIME + 1000)
    )
    assert [(job["state"], job["restart"]) for job in jobs] == [("REQUEUED", 0), ("COMPLETED", 1)]
    assert (count, folded) == (4, 2)


def test_run_count_tells_the_restart_where_the_log_has_it(tmp_path: Path) -> None:
    job = only(tmp_path, line("R", ctime=CTIME, Exit_status=-3, run_count=21))
    assert (job["state"], job["restart"], job["state_raw"]) == ("REQUEUED", 20, "R -3")


def test_job_deleted_after_a_rerun_has_no_start(tmp_path: Path) -> None:
    jobs, _, _, _ = read(tmp_path, line("S"), line("R", body=""), line("D", requestor="root@server"))
    assert [(job["state"], job["restart"], job["start_time"]) for job in jobs] == [
        ("REQUEUED", 0, at(60)),
        ("CANCELLED", 1, None),
    ]


def test_rerun_with_nothing_after_it_is_one_row(tmp_path: Path) -> None:
    assert only(tmp_path, line("S"), line("R", body=""))["state"] == "REQUEUED"


@pytest.mark.parametrize("kind", ["L", "P", "T", "C", "M", "Y", "a", "Z"])
def test_other_kinds_are_folded(tmp_path: Path, kind: str) -> None:
    jobs, _, _, folded = read(tmp_path, line(kind, "license", body="floating license hour:0"), line("E"))
    assert (len(jobs), folded) == (1, 1)


@pytest.mark.parametrize(
    ("name", "job_id", "task"),
    [("123[4].server", 123, 4), ("123-4.server", 123, 4), ("123[].server", 123, None), ("123", 123, None), ("123[0].s", 123, 0)],
)
def test_array_ids_are_taken_apart(tmp_path: Path, name: str, job_id: int, task: int | None) -> None:
    job = only(tmp_path, line("E", name))
    assert (job["job_id"], job["array_task"]) == (job_id, task)


def test_record_of_a_whole_array_is_marked(tmp_path: Path) -> None:
    assert "whole" in str(only(tmp_path, line("E", "123[].server"))["extra"])


def test_given_cluster_wins_over_the_server(tmp_path: Path) -> None:
    assert only(tmp_path, line("E"), cluster="petrel")["cluster"] == "petrel"


@pytest.mark.parametrize(
    ("status", "walltime", "state", "code", "signal"),
    [
        (1, "00:10:00", "FAILED", 1, 0),
        (271, "00:10:00", "CANCELLED", 0, 15),
        (271, "01:00:05", "TIMEOUT", 0, 15),
        (265, "3605", "TIMEOUT", 0, 9),
        (267, "01:00:05", "FAILED", 0, 11),
        (-10, "00:10:00", "OUT_OF_MEMORY", -10, 0),
        (-11, "00:10:00", "TIMEOUT", -11, 0),
    ],
)
def test_exit_status_and_run_time_make_the_state(
    tmp_path: Path, status: int, walltime: str, state: str, code: int, signal: int
) -> None:
    job = only(tmp_path, line("E", Exit_status=status, resources_used__walltime=walltime))
    assert (job["state"], job["exit_code"], job["exit_signal"]) == (state, code, signal)
    assert job["state_raw"] == f"E {status}"


@pytest.mark.parametrize(
    ("fields", "cpus", "gpus"),
    [
        ({"Resource_List__ncpus": None, "Resource_List__nodes": "2:ppn=4+1:ppn=8:gpus=2"}, 16, 2),
        ({"Resource_List__ncpus": 1, "Resource_List__nodes": "2:ppn=8"}, 16, None),
        ({"Resource_List__ncpus": None, "Resource_List__nodes": "n7:ppn=3"}, 3, None),
        ({"Resource_List__ncpus": None, "Resource_List__nodes": "4"}, 4, None),
        ({"Resource_List__ncpus": None, "Resource_List__select": "2:ncpus=3:ngpus=1"}, 6, 2),
        ({"total_execution_slots": 32, "Resource_List__ngpus": 4}, 32, 4),
    ],
)
def test_cpus_and_gpus_are_found_wherever_they_are_told(
    tmp_path: Path, fields: dict[str, Any], cpus: int, gpus: int | None
) -> None:
    job = only(tmp_path, line("E", **fields))
    assert (job["cpus"], job["gpus"]) == (cpus, gpus)


def test_memory_per_process_is_multiplied(tmp_path: Path) -> None:
    assert only(tmp_path, line("E", Resource_List__mem=None, Resource_List__pmem="100mb"))["req_mem_bytes"] == 800 << 20


def test_nodes_come_from_vnodes_where_there_are_no_hosts(tmp_path: Path) -> None:
    job = only(tmp_path, line("E", exec_host=None, exec_vnode="(n7:ncpus=1:mem=4kb+n8:ncpus=2)+(n7:ncpus=1)"))
    assert (job["node_list"], job["nodes"]) == ("n7,n8", 2)


def test_quoted_values_keep_their_spaces(tmp_path: Path) -> None:
    job = only(tmp_path, line("E", account='"Deep Sea"', jobname="'my \"best\" job'"))
    assert (job["account"], job["job_name"]) == ("Deep Sea", 'my "best" job')


def test_default_project_is_no_account(tmp_path: Path) -> None:
    assert only(tmp_path, line("E", project="_pbs_project_default"))["account"] is None


def test_other_fields_are_kept(tmp_path: Path) -> None:
    extra = str(only(tmp_path, line("E", Resource_List__place="scatter", session=7))["extra"])
    assert "scatter" in extra and "session" in extra and "ctime" not in extra


@pytest.mark.parametrize(
    ("damaged", "rule"),
    [
        (b"11/14/2023 22:24:20;E;13.server;user=a\0b", "nul_byte"),
        (b"11/14/2023 22:24:20;E;13.server;user=\xff\xfe", "invalid_utf8"),
        (b"x" * 2_000_000, "line_too_long"),
        (b"11/14/2023 22:24:20;E;13.serv", "bad_record"),
        (b"<script>alert(1)</script>", "bad_record"),
        (b"11/14/2023 22:24:20;E;13.server;user=wren ctime=17000", "truncated_record"),
        (b"11/14/2023 22:24:20;E;13.server;Exit_status=zero", "truncated_record"),
        (b"11/14/2023 22:24:20;E;\x1b[31m.server;Exit_status=0", "bad_value"),
        (b"11/14/2023 22:24:20;E;13.server;Exit_status=0", "no_submit_time"),
        (b"11/14/2023 22:24:20;D;13.server;requestor=a@b", "no_submit_time"),
        (b"99/99/9999 99:99:99;Q;13.server;queue=batch", "no_submit_time"),
    ],
)
def test_damaged_line_is_refused_and_its_neighbours_are_kept(tmp_path: Path, damaged: bytes, rule: str) -> None:
    jobs, rejects, _, _ = read(tmp_path, line("E", "11.server"), damaged, line("E", "12.server"))
    assert sorted(str(job["job_id"]) for job in jobs) == ["11", "12"]
    assert rejects["rule"].to_list() == [rule]
    assert rejects["line"].to_list() == [2]


def test_refused_line_is_shown_without_control_characters(tmp_path: Path) -> None:
    _, rejects, _, _ = read(tmp_path, line("E"), "\x1b[2Jnothing;")
    assert rejects["raw"][0] == "\\x1b[2Jnothing;"


def test_hostile_names_stay_as_they_are(tmp_path: Path) -> None:
    job = only(tmp_path, line("E", jobname="<img/src=x>\x1b[31m", user="../../etc"))
    assert (job["job_name"], job["user"]) == ("<img/src=x>\x1b[31m", "../../etc")


@pytest.mark.parametrize("absurd", ["9" * 30, "1e308", "NaN", "٣", ""])
def test_absurd_numbers_are_empty_and_noted(tmp_path: Path, absurd: str) -> None:
    fields: dict[str, Any] = dict.fromkeys(
        ("start", "Resource_List.mem", "Resource_List.nodect", "total_execution_slots", "resources_used.mem",
         "Resource_List.walltime", "resources_used.walltime"), absurd
    )  # fmt: skip
    jobs, rejects, _, _ = read(tmp_path, line("E", **fields))
    assert rejects.height == 0
    names = {"start_time", "req_mem_bytes", "req_nodes", "max_rss_bytes", "time_limit_s", "elapsed_s"}
    assert {jobs[0][name] for name in names} == {None}
    noted = {name: text for name, text in unread_in(jobs[0]).items() if name in names}
    assert noted == (dict.fromkeys(names, absurd) if absurd else {})


def test_a_count_below_zero_is_empty_and_noted(tmp_path: Path) -> None:
    job = only(tmp_path, line("E", Resource_List__nodect=-3))
    assert (job["req_nodes"], unread_in(job)) == (None, {"req_nodes": "-3"})


def test_an_end_that_cannot_be_read_is_the_time_of_its_line(tmp_path: Path) -> None:
    job = only(tmp_path, line("E", end="never"))
    assert (job["end_time"], unread_in(job)) == (datetime(2023, 11, 14, 22, 24, 20, tzinfo=UTC), {})


def test_long_line_of_words_is_read_in_linear_time(tmp_path: Path) -> None:
    words = [
        line("E", jobname="a" * 500_000),
        line("E", "13.server", jobname='"' + 'b="' * 100_000),
        line("E", "14.server", x=" y" * 200_000),
    ]
    jobs, _, _, _ = read(tmp_path, *words)
    assert len(jobs) == 3


def test_broken_gzip_gives_what_comes_before_the_break(tmp_path: Path) -> None:
    document = pbs_document(make_jobs(2000))
    path = tmp_path / "20240304.gz"
    path.write_bytes(gzip.compress(b"\n".join(document.records))[:-2000])
    jobs, rejects, count, folded = read_all(PbsAccounting(path))
    assert 0 < jobs.height < 2000 and rejects["rule"].to_list() == ["truncated_file"]
    assert count == jobs.height + folded + 1


def test_records_of_a_job_are_folded_across_blocks(tmp_path: Path) -> None:
    lines = [line(kind, f"{number}.server") for number in range(50) for kind in "SE"]
    jobs, _, _, folded = read(tmp_path, *lines, block_bytes=700)
    assert (len(jobs), folded) == (50, 50)


def test_oldest_open_jobs_are_told_when_there_are_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pbs, "_MAX_OPEN", 3)
    jobs, _, _, _ = read(tmp_path, *(line("S", f"{number}.server") for number in range(10)))
    assert [job["job_id"] for job in jobs] == list(range(10))


def test_many_records_of_one_job_are_one_row(tmp_path: Path) -> None:
    jobs, _, _, folded = read(tmp_path, *(line("Q", queue=f"q{number}", ctime=CTIME) for number in range(100)))
    assert (len(jobs), folded, jobs[0]["partition"]) == (1, 99, "q99")


def test_chunks_are_bounded(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("\n".join(line("E", f"{number}.server") for number in range(12_000)))
    assert max(chunk.records.height for chunk in PbsAccounting(path).chunks()) <= 10_000


def test_empty_log_has_no_jobs(tmp_path: Path) -> None:
    assert read(tmp_path)[0] == []


def test_another_format_is_refused_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(SourceFormatError, match="server_priv/accounting"):
        read(tmp_path, "JobID|User|State", "1|ada|COMPLETED")
