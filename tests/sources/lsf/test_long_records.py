"""`bacct -l`, `bhist -l` and `bjobs -l`: what becomes of a record, of wrapped lines, of runs, and what is refused."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from stormpetrel.errors import SourceFormatError
from stormpetrel.sources.formats import sniff_format
from stormpetrel.sources.lsf.log import LsfLog
from tests.builders import read_all, unread_in

RECORDINGS = Path(__file__).parents[2] / "recordings" / "lsf"
GIB, MIB = 1 << 30, 1 << 20
RULE = "-" * 78
HEAD = "Job <600201>, Job Name <fit>, User <ada>, Project <genomics>, Command <./fit>"
SUBMITTED = "Wed Nov 15 01:00:00 2023: Submitted from host <login1>, to Queue <normal>, CWD <$HOME>, 8 Task(s);"
DISPATCHED = "Wed Nov 15 01:01:00 2023: Dispatched 8 Task(s) on Host(s) <8*n1>, Allocated 8 Slot(s) on Host(s) <8*n1>;"
DONE = "Wed Nov 15 01:11:00 2023: Done successfully. The CPU time used is 300.5 seconds;"


def wrapped(line: str) -> str:
    """A line as LSF prints it: eighty letters wide, what follows behind 21 blanks."""
    first, rest = line[:79], line[79:]
    return "\n".join([first, *(" " * 21 + rest[at : at + 58] for at in range(0, len(rest), 58))])


def read(folder: Path, *lines: str | bytes, **options: Any) -> tuple[list[dict[str, Any]], pl.DataFrame]:
    path = folder / "bhist.txt"
    path.write_bytes(b"".join((each.encode() if isinstance(each, str) else each) + b"\n" for each in lines))
    return read_file(path, **options)


def read_file(path: Path, **options: Any) -> tuple[list[dict[str, Any]], pl.DataFrame]:
    jobs, rejects, count, folded = read_all(LsfLog(path, **options))
    assert count == jobs.height + folded + rejects.height
    return jobs.to_dicts(), rejects


def only(folder: Path, *lines: str, **options: Any) -> dict[str, Any]:
    jobs, rejects = read(folder, *lines, **options)
    assert len(jobs) == 1 and rejects.is_empty(), rejects
    return jobs[0]


def at(hour: int, minute: int, second: int = 0, **date: int) -> datetime:
    return datetime(date.get("year", 2023), date.get("month", 11), date.get("day", 15), hour, minute, second, tzinfo=UTC)


def test_finished_job_fills_names_times_and_use(tmp_path: Path) -> None:
    job = only(tmp_path, HEAD, SUBMITTED, DISPATCHED, DONE, "MAX MEM: 220 Mbytes;  AVG MEM: 214 Mbytes")
    expected = {
        "job_id": 600201, "array_task": None, "job_name": "fit", "user": "ada", "account": "genomics", "partition": "normal",
        "submit_time": at(1, 0), "start_time": at(1, 1), "end_time": at(1, 11), "elapsed_s": 600.0, "state": "COMPLETED",
        "state_raw": "DONE", "exit_code": 0, "req_cpus": 8, "cpus": 8, "nodes": 1, "node_list": "n1", "cpu_time_s": 300.5,
        "max_rss_bytes": 220 * MIB, "submit_line": "./fit", "work_dir": "$HOME", "restart": 0,
    }  # fmt: skip
    assert {name: job[name] for name in expected} == expected


def test_wrapped_lines_say_the_same_as_whole_ones(tmp_path: Path) -> None:
    lines = [
        HEAD.replace("./fit", "./fit --in a.dat --out b.dat " + "x" * 300),
        SUBMITTED.replace("8 Task(s)", "8 Task(s), Requested Resources <rusage[mem=4G] span[ptile=4]>"),
        DISPATCHED.replace(";", ", Effective RES_REQ <select[(type == local) && (mem>4)] rusage[mem=4096.00] span[ptile=4] >;"),
        DONE,
    ]
    assert only(tmp_path, *(wrapped(line) for line in lines)) == only(tmp_path, *lines)


def test_effective_requirement_counts_and_not_what_was_asked_for(tmp_path: Path) -> None:
    submitted = SUBMITTED.replace("8 Task(s)", "8 Task(s), Requested Resources <rusage[mem=4]>")
    dispatched = DISPATCHED.replace(";", ", Effective RES_REQ <select[(mem>4096)] rusage[mem=4096.00] span[ptile=4] >;")
    job = only(tmp_path, HEAD, submitted, dispatched, DONE)
    assert (job["req_mem_bytes"], job["req_nodes"]) == (4 * GIB, 2)


@pytest.mark.parametrize(
    ("ends", "state", "raw", "code", "signal"),
    [
        (["Exited with exit code 1.", "Completed <exit>;"], "FAILED", "EXIT", 1, 0),
        (["Exited by signal 11. The CPU time used is 3.0 seconds;"], "FAILED", "EXIT", 0, 11),
        (["Exited with exit code 140.", "Completed <exit>; TERM_RUNLIMIT: …"], "TIMEOUT", "EXIT TERM_RUNLIMIT", 140, 0),
        (["Exited with exit code 137.", "Completed <exit>; TERM_MEMLIMIT: …"], "OUT_OF_MEMORY", "EXIT TERM_MEMLIMIT", 137, 0),
        (["Completed <exit>; TERM_PREEMPT: job killed after preemption."], "PREEMPTED", "EXIT TERM_PREEMPT", None, None),
        (["Exited with exit code 143.", "Completed <exit>; TERM_ZOMBIE: …"], "NODE_FAIL", "EXIT TERM_ZOMBIE", 143, 0),
        (["Done successfully.", "Post job process done successfully;"], "COMPLETED", "DONE", 0, 0),
    ],
)  # fmt: skip
def test_words_of_the_end_make_the_state(
    tmp_path: Path, ends: list[str], state: str, raw: str, code: int | None, signal: int | None
) -> None:
    job = only(tmp_path, HEAD, SUBMITTED, DISPATCHED, *(f"Wed Nov 15 01:11:00 2023: {end}" for end in ends))
    assert (job["state"], job["state_raw"], job["exit_code"], job["exit_signal"]) == (state, raw, code, signal)


def test_job_without_an_end_is_pending_or_running(tmp_path: Path) -> None:
    other = HEAD.replace("600201", "600202")
    jobs, _ = read(tmp_path, HEAD, SUBMITTED, RULE, other, SUBMITTED, DISPATCHED)
    assert [(job["state"], job["end_time"]) for job in jobs] == [("PENDING", None), ("RUNNING", None)]


@pytest.mark.parametrize(("lines", "state"), [([], "HELD"), ([DISPATCHED], "SUSPENDED")])
def test_suspended_job_is_held_if_it_had_not_started(tmp_path: Path, lines: list[str], state: str) -> None:
    job = only(tmp_path, HEAD, SUBMITTED, *lines, "Wed Nov 15 01:05:00 2023: Suspended by user or administrator;")
    assert job["state"] == state


def test_status_of_the_first_line_is_believed(tmp_path: Path) -> None:
    job = only(tmp_path, HEAD.replace("Command", "Status <UNKWN>, Queue <long>, Command"), SUBMITTED, DISPATCHED)
    assert (job["state"], job["state_raw"]) == ("UNKNOWN", "UNKWN")


def test_job_killed_while_it_waited_never_started(tmp_path: Path) -> None:
    killed = "Wed Nov 15 01:05:00 2023: Signal <KILL> requested by user or administrator <root>;"
    job = only(tmp_path, HEAD, SUBMITTED, killed, "Wed Nov 15 01:05:01 2023: Exited; job has been killed before it started;")
    told = (job["state"], job["start_time"], job["end_time"], job["cancelled_by"], job["cpus"])
    assert told == ("CANCELLED", None, at(1, 5, 1), "root", None)


def test_requeued_run_is_a_row_of_its_own_and_the_next_run_counts_up(tmp_path: Path) -> None:
    requeued = ["Wed Nov 15 01:05:00 2023: Exited by signal 9;", "Wed Nov 15 01:05:00 2023: Pending: Job has been requeued;"]
    again = DISPATCHED.replace("01:01:00", "01:06:00").replace("n1", "n2")
    jobs, _ = read(tmp_path, HEAD, SUBMITTED, DISPATCHED, *requeued, again, DONE, " RUNLIMIT", " 60.0 min of n2")
    told = [(job["state"], job["restart"], job["node_list"], job["end_time"], job["time_limit_s"]) for job in jobs]
    assert told == [("REQUEUED", 0, "n1", at(1, 5), 3600.0), ("COMPLETED", 1, "n2", at(1, 11), 3600.0)]


def test_run_that_was_started_again_without_a_word_is_two(tmp_path: Path) -> None:
    exited = "Wed Nov 15 01:05:00 2023: Exited with exit code 99;"
    jobs, _ = read(tmp_path, HEAD, SUBMITTED, DISPATCHED, exited, DISPATCHED.replace("01:01:00", "01:06:00"), DONE)
    assert [(job["state"], job["restart"]) for job in jobs] == [("REQUEUED", 0), ("COMPLETED", 1)]


def test_array_task_has_its_index(tmp_path: Path) -> None:
    job = only(tmp_path, HEAD.replace("600201", "600201[7]").replace("<fit>", "<fit[1-9]%2>"), SUBMITTED, DISPATCHED, DONE)
    assert (job["job_id"], job["array_task"], job["job_name"]) == (600201, 7, "fit")


@pytest.mark.parametrize(
    ("dispatched", "cpus", "nodes"),
    [
        ("Dispatched to <n1>", 1, 1),
        ("Started on <n1>, Execution Home </home/ada>", 1, 1),
        ("[3] started on 8 Hosts/Processors <8*n1>", 8, 1),
        ("Dispatched to 16 Hosts/Processors <8*n1> <8*n2>", 16, 2),
        ("Dispatched 2 Task(s) on Host(s) <2*n1>, Allocated 16 Slot(s) on Host(s) <16*n1>", 16, 1),
        ("Started 2 Task(s) on Host(s) <n1> <n2>, Allocated 2 Slot(s) on Host(s) <n1> <n2>", 2, 2),
    ],
)
def test_hosts_are_found_in_the_words_of_every_version(tmp_path: Path, dispatched: str, cpus: int, nodes: int) -> None:
    job = only(tmp_path, HEAD, SUBMITTED, f"Wed Nov 15 01:01:00 2023: {dispatched};", DONE)
    assert (job["cpus"], job["nodes"], job["start_time"]) == (cpus, nodes, at(1, 1))


def test_limits_are_minutes_and_sizes(tmp_path: Path) -> None:
    tables = [
        " CPULIMIT                ",
        " 60.0 min of n1",
        " RUNLIMIT                ",
        " 90.5 min of n1",
        " CORELIMIT MEMLIMIT",
        "      0 M      4 G  ",
    ]
    job = only(tmp_path, HEAD, SUBMITTED, DISPATCHED, DONE, *tables)
    assert (job["time_limit_s"], job["req_mem_bytes"]) == (5430.0, 4 * GIB)


def test_time_in_other_states_is_no_run_time(tmp_path: Path) -> None:
    table = [
        "Summary of time in seconds spent in various states by  Wed Nov 15 01:11:00 2023",
        "  PEND     PSUSP    RUN      USUSP    SSUSP    UNKWN    TOTAL",
        "  60       0        400      200      0        0        660         ",
    ]
    assert only(tmp_path, HEAD, SUBMITTED, DISPATCHED, DONE, *table)["elapsed_s"] == 400.0


def test_command_may_hold_what_looks_like_fields(tmp_path: Path) -> None:
    command = "sort < in > out; echo 'x>, User <root>, Status <DONE'"
    job = only(tmp_path, HEAD.replace("./fit", command), SUBMITTED, DISPATCHED, DONE)
    assert (job["user"], job["submit_line"][:15]) == ("ada", "sort < in > out")


@pytest.mark.parametrize(("zone", "hour"), [("UTC", 1), ("Europe/Berlin", 0), ("America/New_York", 6)])
def test_times_are_of_the_zone_of_the_site(tmp_path: Path, zone: str, hour: int) -> None:
    assert only(tmp_path, HEAD, SUBMITTED, time_zone=zone)["submit_time"] == at(hour, 0)


def test_year_is_the_latest_in_which_date_and_day_of_the_week_agree(tmp_path: Path) -> None:
    path = tmp_path / "bhist.txt"
    path.write_text("\n".join(line.replace(" 2023:", ":") for line in (HEAD, SUBMITTED)))
    os.utime(path, (datetime(2024, 3, 1, tzinfo=UTC).timestamp(),) * 2)
    log = LsfLog(path)
    jobs, *_ = read_all(log)
    assert jobs["submit_time"].to_list() == [at(1, 0)]
    assert len(log.notes) == 1 and "--year" in log.notes[0]


def test_given_year_wins_over_the_time_of_the_file(tmp_path: Path) -> None:
    job = only(tmp_path, HEAD, SUBMITTED.replace(" 2023:", ":"), year=2017)
    assert job["submit_time"] == at(1, 0, year=2017)


def test_day_of_the_week_corrects_a_year_that_is_off_by_one(tmp_path: Path) -> None:
    lines = [
        SUBMITTED.replace("Wed Nov 15 01:00:00 2023", "Sun Dec 31 23:00:00"),
        DISPATCHED.replace("Wed Nov 15 01:01:00 2023", "Mon Jan  1 00:10:00"),
    ]
    job = only(tmp_path, HEAD, *lines, year=2023)
    assert (job["submit_time"], job["start_time"]) == (at(23, 0, month=12, day=31), at(0, 10, year=2024, month=1, day=1))


@pytest.mark.parametrize("stamp", ["Wed Nov 31 01:01:00 2023", "Wed Nov 15 25:01:00 2023", "Wed Feb 30 01:01:00"])
def test_time_that_does_not_exist_is_empty(tmp_path: Path, stamp: str) -> None:
    job = only(tmp_path, HEAD, SUBMITTED, DISPATCHED.replace("Wed Nov 15 01:01:00 2023", stamp))
    assert (job["start_time"], job["state"], unread_in(job)) == (None, "RUNNING", {"start_time": stamp})


def test_record_of_bacct_is_read_from_its_tables(tmp_path: Path) -> None:
    jobs, rejects = read_file(RECORDINGS / "bacct.txt", year=2023)
    told = [
        (job["job_name"], job["state"], job["cpus"], job["req_mem_bytes"], job["max_rss_bytes"], job["cpu_time_s"])
        for job in jobs
    ]
    assert told == [
        ("assemble", "COMPLETED", 64, 8 * GIB, 3435973837, 220945.75),
        ("blast", "OUT_OF_MEMORY", 1, 2 * GIB, 2 * GIB, 38.5),
        ("sleep", "CANCELLED", None, None, None, 0.0),
    ]
    assert rejects.is_empty()


def test_records_of_bhist_are_read(tmp_path: Path) -> None:
    jobs, rejects = read_file(RECORDINGS / "bhist.txt")
    told = [
        (job["job_id"], job["array_task"], job["restart"], job["state"], job["time_limit_s"], job["cancelled_by"]) for job in jobs
    ]
    assert told == [
        (600201, None, 0, "REQUEUED", 7200.0, None),
        (600201, None, 1, "TIMEOUT", 7200.0, None),
        (600202, None, 0, "CANCELLED", None, "lsfadmin"),
        (600203, 7, 0, "SUSPENDED", None, None),
    ]
    assert rejects.is_empty()


def test_bacct_tells_no_limits_and_bhist_does(tmp_path: Path) -> None:
    logs = [LsfLog(RECORDINGS / name) for name in ("bacct.txt", "bhist.txt")]
    for log in logs:
        read_all(log)
    assert ["time_limit_s" in log.fields() for log in logs] == [False, True]


def test_unknown_line_is_refused_and_its_record_is_kept(tmp_path: Path) -> None:
    jobs, rejects = read(tmp_path, HEAD, SUBMITTED, "lorem ipsum", DISPATCHED, DONE)
    assert (rejects["rule"].to_list(), rejects["line"].to_list(), jobs[0]["state"]) == (["unknown_line"], [3], "COMPLETED")


def test_unknown_tables_are_skipped(tmp_path: Path) -> None:
    tables = [
        "GPU_ALLOCATION:",
        " HOST   TASK GPU_ID",
        " n1     0    0",
        "SCHEDULING PARAMETERS:",
        "           r15s   r1m  r15m",
        " loadSched   -     -     -",
    ]
    assert only(tmp_path, HEAD, SUBMITTED, DISPATCHED, DONE, *tables)["state"] == "COMPLETED"


@pytest.mark.parametrize(
    ("damaged", "rule"),
    [
        ([HEAD.replace("User <ada>, ", ""), SUBMITTED, DONE], "bad_record"),
        ([HEAD], "truncated_record"),
        ([HEAD.replace("Command", "Status <DONE>, Command"), SUBMITTED, DISPATCHED], "truncated_record"),
        ([HEAD.replace("Command", "Status <EXPLODED>, Command"), SUBMITTED, DISPATCHED], "bad_record"),
        ([HEAD, SUBMITTED.replace("Submitted", "Sub\0mitted"), DONE], "nul_byte"),
        ([HEAD, SUBMITTED, DISPATCHED + "x" * 2_000_000, DONE], "line_too_long"),
        ([HEAD, SUBMITTED, *[" " * 21 + "x" * 1_000_000] * 5], "record_too_long"),
        ([HEAD, DISPATCHED, DONE], "no_submit_time"),
    ],
)
def test_damaged_record_is_refused_and_its_neighbours_are_kept(tmp_path: Path, damaged: list[str], rule: str) -> None:
    whole = [SUBMITTED, DISPATCHED, DONE, RULE]
    jobs, rejects = read(tmp_path, HEAD.replace("600201", "11"), *whole, *damaged, RULE, HEAD.replace("600201", "12"), *whole)
    assert [job["job_id"] for job in jobs] == [11, 12]
    assert rejects["rule"].to_list() == [rule]


@pytest.mark.parametrize(
    "hostile", [">, " * 100_000, ", User <" * 50_000, "<" * 200_000, "Requested Resources <" * 20_000, "MEM: 1 " * 50_000]
)
def test_long_lines_are_read_in_linear_time(tmp_path: Path, hostile: str) -> None:
    jobs, rejects = read(tmp_path, HEAD.replace("./fit", hostile), SUBMITTED + hostile, DISPATCHED + hostile, DONE + hostile)
    assert len(jobs) + rejects.height == 1


def test_year_9999_and_more_do_not_stop_the_file(tmp_path: Path) -> None:
    jobs, _ = read(tmp_path, HEAD, SUBMITTED, DISPATCHED.replace("2023", "9999"), DONE.replace("2023", "0000"))
    assert len(jobs) == 1


def test_values_that_cannot_be_read_are_empty_and_noted(tmp_path: Path) -> None:
    job = only(tmp_path, HEAD, SUBMITTED, DISPATCHED, DONE, "MAX MEM: much;  AVG MEM: 3 M")
    assert (job["max_rss_bytes"], unread_in(job)) == (None, {"max_rss_bytes": "much"})


@pytest.mark.parametrize("name", ["bacct.txt", "bhist.txt", "lsb.acct"])
def test_form_is_known_from_the_first_lines(name: str) -> None:
    assert sniff_format(str(RECORDINGS / name)) == "lsf"


def test_short_output_of_bhist_is_refused_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(SourceFormatError, match="bacct -l"):
        read(
            tmp_path,
            "Summary of time in seconds spent in various states:",
            "JOBID   USER    JOB_NAME  PEND",
            "5031    ada  fit     2",
        )
