"""LSF's job reports: what becomes of a report, and of the output around it."""

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

RECORDING = Path(__file__).parents[2] / "recordings" / "lsf" / "job-reports.txt"
GIB, MIB = 1 << 30, 1 << 20
RULE = "-" * 60


def report(
    job: str = "700101",
    *,
    name: str = "fit",
    end: str = "Done",
    words: tuple[str, ...] = ("Successfully completed.",),
    terminated: str | None = "Wed Nov 15 02:00:04 2023",
    script: tuple[str, ...] = ("./fit",),
    hosts: tuple[str, ...] = ("32*n1", "32*n2"),
    use: tuple[str, ...] = (
        "CPU time : 300.5 sec.",
        "Max Memory : 3276 MB",
        "Total Requested Memory : 8192.00 MB",
        "Run time : 3601 sec.",
    ),
) -> list[str]:
    first, *others = hosts
    return [
        RULE, "Sender: LSF System <lsfadmin@n1>", f"Subject: Job {job}: <{name}> in cluster <north> {end}",
        f"Job <{name}> was submitted from host <login1> by user <ada> in cluster <north> at Wed Nov 15 01:00:00 2023",
        f"Job was executed on host(s) <{first}>, in queue <long>, as user <ada> in cluster <north> at Wed Nov 15 01:00:04 2023",
        *(f"                            <{host}>" for host in others),
        "</home/ada> was used as the home directory.", "</home/ada/run> was used as the working directory.",
        "Started at Wed Nov 15 01:00:04 2023", *([f"Terminated at {terminated}"] if terminated else []),
        "Results reported at Wed Nov 15 02:00:05 2023", "Your job looked like:", RULE, "# LSBATCH: User input", *script, RULE,
        *words, "Resource usage summary:", *(f"    {line}" for line in use), "The output (if any) is above this job summary.",
    ]  # fmt: skip


def read(folder: Path, *lines: str | bytes, **options: Any) -> tuple[list[dict[str, Any]], pl.DataFrame]:
    path = folder / "out.txt"
    path.write_bytes(b"".join((each.encode() if isinstance(each, str) else each) + b"\n" for each in lines))
    jobs, rejects, count, folded = read_all(LsfLog(path, **options))
    assert count == jobs.height + folded + rejects.height
    return jobs.to_dicts(), rejects


def only(folder: Path, *lines: str | bytes, **options: Any) -> dict[str, Any]:
    jobs, rejects = read(folder, *lines, **options)
    assert len(jobs) == 1 and rejects.is_empty(), rejects
    return jobs[0]


def at(hour: int, minute: int, second: int = 0) -> datetime:
    return datetime(2023, 11, 15, hour, minute, second, tzinfo=UTC)


def test_report_fills_names_times_hosts_and_use(tmp_path: Path) -> None:
    job = only(tmp_path, *report())
    expected = {
        "cluster": "north", "job_id": 700101, "job_name": "fit", "user": "ada", "account": None, "partition": "long",
        "submit_time": at(1, 0), "start_time": at(1, 0, 4), "end_time": at(2, 0, 4), "elapsed_s": 3600.0, "state": "COMPLETED",
        "state_raw": "DONE", "exit_code": 0, "exit_signal": 0, "cpus": 64, "nodes": 2, "node_list": "n1,n2", "cpu_time_s": 300.5,
        "max_rss_bytes": 3276 * MIB, "req_mem_bytes": 8 * GIB, "work_dir": "/home/ada/run", "submit_line": "./fit",
    }  # fmt: skip
    assert {name: job[name] for name in expected} == expected


def test_output_around_reports_is_passed_over_whatever_it_is(tmp_path: Path) -> None:
    noise = [b"\0\xff\xfe", b"x" * 2_000_000, b"Sender: LSF System", b"Job <12>", b"Exited with exit code 9."]
    jobs, rejects = read(tmp_path, *noise, *report(), *noise, *report("700102"), *noise)
    assert ([job["job_id"] for job in jobs], rejects.height) == ([700101, 700102], 0)


def test_jobs_that_a_job_submits_are_no_records(tmp_path: Path) -> None:
    nested = ["Job <12> is submitted to default queue <normal>.", "Job <13>, is not found"]
    assert only(tmp_path, *nested, *(f"step {number}" for number in range(3000)), *report())["job_id"] == 700101


def test_report_after_a_long_output_is_found(tmp_path: Path) -> None:
    assert only(tmp_path, *(f"step {number}" for number in range(10_000)), *report())["job_id"] == 700101


@pytest.mark.parametrize(
    ("words", "state", "code", "signal"),
    [
        (
            ("TERM_MEMLIMIT: job killed after reaching LSF memory usage limit.", "Exited with exit code 137."),
            "OUT_OF_MEMORY",
            137,
            0,
        ),
        (("TERM_RUNLIMIT: job killed after reaching LSF run time limit.", "Exited with exit code 140."), "TIMEOUT", 140, 0),
        (("TERM_OWNER: job killed by owner.", "Exited by signal 9."), "CANCELLED", 0, 9),
        (("Exited with exit code 2.",), "FAILED", 2, 0),
        (("Exited by signal 11.",), "FAILED", 0, 11),
    ],
)
def test_words_of_the_end_make_the_state(tmp_path: Path, words: tuple[str, ...], state: str, code: int, signal: int) -> None:
    job = only(tmp_path, *report(end="Exited", words=words))
    assert (job["state"], job["exit_code"], job["exit_signal"]) == (state, code, signal)


def test_array_task_has_its_index(tmp_path: Path) -> None:
    job = only(tmp_path, *report("700102[3]", name="blast[1-3]%2"))
    assert (job["job_id"], job["array_task"], job["job_name"]) == (700102, 3, "blast")


def test_report_without_the_end_takes_the_time_at_which_it_was_made(tmp_path: Path) -> None:
    assert only(tmp_path, *report(terminated=None))["end_time"] == at(2, 0, 5)


def test_use_that_was_not_measured_is_empty(tmp_path: Path) -> None:
    job = only(tmp_path, *report(use=("CPU time : 0.07 sec.", "Max Memory : -")))
    assert (job["cpu_time_s"], job["max_rss_bytes"], unread_in(job)) == (0.07, None, {})


def test_use_that_cannot_be_read_is_empty_and_noted(tmp_path: Path) -> None:
    job = only(tmp_path, *report(use=("CPU time : lots", "Max Memory : 5 apples")))
    assert unread_in(job) == {"cpu_time_s": "lots", "max_rss_bytes": "5 apples"}


def test_time_for_which_a_job_was_suspended_is_no_run_time(tmp_path: Path) -> None:
    job = only(tmp_path, *report(use=("Run time : 600 sec.",)))
    assert (job["elapsed_s"], dict(job["extra"])["suspended_s"]) == (600.0, "3000")


def test_given_cluster_wins_over_the_one_in_the_report(tmp_path: Path) -> None:
    assert only(tmp_path, *report(), cluster="petrel")["cluster"] == "petrel"


@pytest.mark.parametrize(("cut", "rule"), [(3, "truncated_record"), (12, "truncated_record"), (16, "truncated_record")])
def test_report_that_breaks_off_is_refused_and_the_next_is_kept(tmp_path: Path, cut: int, rule: str) -> None:
    jobs, rejects = read(tmp_path, *report()[:cut], *report("700102"))
    assert ([job["job_id"] for job in jobs], rejects["rule"].to_list()) == ([700102], [rule])


def test_damage_inside_a_report_refuses_it(tmp_path: Path) -> None:
    lines: list[str | bytes] = [*report()]
    lines[7] = b"</home/\xff\xfe> was used as the working directory."
    jobs, rejects = read(tmp_path, *lines, *report("700102"))
    assert ([job["job_id"] for job in jobs], rejects["rule"].to_list()) == ([700102], ["invalid_utf8"])


def test_binary_data_in_the_script_costs_nothing(tmp_path: Path) -> None:
    assert only(tmp_path, *report(script=("./fit",))[:14], b"\xff\0", *report()[14:])["job_id"] == 700101


def test_recording_is_recognised_and_read(tmp_path: Path) -> None:
    jobs, rejects, *_ = read_all(LsfLog(RECORDING))
    assert sniff_format(str(RECORDING)) == "lsf"
    assert (jobs["state"].to_list(), jobs["cpus"].to_list(), rejects.height) == (["COMPLETED", "OUT_OF_MEMORY"], [64, 1], 0)


def test_output_without_a_report_is_refused_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(SourceFormatError, match="nor a job report"):
        read(tmp_path, "step 1", "step 2")
