"""HTCondor event logs: events folded into jobs, dates without a year, damage, and agreement with HTCondor's own reader."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import polars as pl
import pytest

from stormpetrel.errors import SourceFormatError
from stormpetrel.sources.htcondor import event_jobs as condor_events
from stormpetrel.sources.htcondor import event_log
from stormpetrel.sources.htcondor.event_jobs import CondorEvents
from stormpetrel.sources.htcondor.event_log import CondorEvent
from stormpetrel.sources.lines import LineFile
from tests.builders import condor_events_document, make_jobs, read_all

USAGE = "\n".join(
    f"\t\tUsr 1 02:03:04, Sys 0 00:01:00  -  {span} {place} Usage" for span in ("Run", "Total") for place in ("Remote", "Local")
)
TABLE = """\
\tPartitionable Resources :    Usage  Request Allocated
\t   Cpus                 :     0.53        4         8
\t   Disk (KB)            :       15    10240     11265
\t   GPUs                 :                 1         1 "GPU-e91daf05"
\t   Memory (MB)          :        5       64       128 """
EXECUTE = (
    'Job executing on host: <10.0.0.7:9618?alias=n7&x>\n\tSlotName: slot1_1@n7\n\tScratch = "/d"\n\tCpus = 8\n\tMemory = 128'
)
IMAGE = "Image size of job updated: 5268\n\t5  -  MemoryUsage of job (MB)\n\t4660  -  ResidentSetSize of job (KB)"
SUBMIT = "Job submitted from host: <10.0.0.1:9618?alias=ap1&noUDP>"
HELD = "Job was held.\n\tJob has gone over memory limit of 64 megabytes.\n\tCode {} Subcode {}"
EVICTED = f"Job was evicted.\n\t(0) CPU times\n{USAGE}\n\t0  -  Run Bytes Sent By Job\n\tmachine went away\n{TABLE}"
ABORTED = "Job was aborted.\n\tvia condor_rm (by user finch)"


def ended(value: int = 0) -> str:
    return (
        f"Job terminated.\n\t(1) Normal termination (return value {value})\n{USAGE}\n{TABLE}\n\tJob terminated of its own accord."
    )


def event(number: int, text: str, at: str = "2024-03-04 08:00:00", job: str = "007.000.000") -> str:
    return f"{number:03} ({job}) {at} {text}\n...\n"


def minute(minutes: int) -> str:
    return f"2024-03-04 {8 + minutes // 60:02}:{minutes % 60:02}:00"


def story(*events: tuple[int, str], job: str = "007.000.000") -> str:
    """Events of one job, ten minutes apart, the first at eight."""
    return "".join(event(number, text, minute(10 * step), job) for step, (number, text) in enumerate(events))


def read(path: Path, text: str | bytes, **options: object) -> tuple[list[dict[str, object]], pl.DataFrame, int, int]:
    path = path / "job.log"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    jobs, rejects, count, folded = read_all(CondorEvents(path, **options))  # type: ignore[arg-type]
    assert count == jobs.height + folded + rejects.height
    return jobs.to_dicts(), rejects, count, folded


def only(path: Path, text: str, **options: object) -> dict[str, object]:
    jobs, rejects, _, _ = read(path, text, **options)
    assert len(jobs) == 1, rejects
    return jobs[0]


def clock(hour: int, minutes: int) -> datetime:
    return datetime(2024, 3, 4, hour, minutes, tzinfo=UTC)


def test_events_of_a_job_become_one_row(tmp_path: Path) -> None:
    jobs, _, count, folded = read(tmp_path, story((0, SUBMIT), (1, EXECUTE), (6, IMAGE), (5, ended())))
    expected = {
        "cluster": "ap1", "job_id": 7, "array_task": 0, "submit_time": clock(8, 0), "start_time": clock(8, 10),
        "end_time": clock(8, 30), "state": "COMPLETED", "exit_code": 0, "exit_signal": 0, "elapsed_s": 1200.0, "req_cpus": 4,
        "cpus": 8, "req_gpus": 1, "gpus": 1, "req_mem_bytes": 64 << 20, "mem_bytes": 128 << 20, "max_rss_bytes": 4660 << 10,
        "user_cpu_s": 93784.0, "system_cpu_s": 60.0, "cpu_time_s": 93844.0, "node_list": "n7", "restart": 0,
    }  # fmt: skip
    assert {name: jobs[0][name] for name in expected} == expected
    assert (len(jobs), count, folded) == (1, 4, 3)


@pytest.mark.parametrize(
    ("last", "state", "code", "signal"),
    [
        ((5, ended(3)), "FAILED", 3, 0),
        ((5, f"Job terminated.\n\t(0) Abnormal termination (signal 11)\n\t(0) No core file\n{USAGE}"), "FAILED", 0, 11),
        ((9, ABORTED), "CANCELLED", None, None),
        ((12, HELD.format(1, 0)), "HELD", None, None),
        ((4, EVICTED), "PENDING", None, None),
        ((7, "Shadow exception!\n\tError from n7"), "PENDING", None, None),
        ((10, "Job was suspended.\n\tNumber of processes actually suspended: 2"), "SUSPENDED", None, None),
        ((24, "Job reconnection failed\n    Job not found"), "PENDING", None, None),
        ((22, "Job disconnected, attempting to reconnect"), "RUNNING", None, None),
    ],
)
def test_last_event_makes_the_state(
    tmp_path: Path, last: tuple[int, str], state: str, code: int | None, signal: int | None
) -> None:
    job = only(tmp_path, story((0, SUBMIT), (1, EXECUTE), last))
    assert (job["state"], job["exit_code"], job["exit_signal"]) == (state, code, signal)


def test_released_job_is_pending_again(tmp_path: Path) -> None:
    assert only(tmp_path, story((0, SUBMIT), (12, HELD.format(1, 0)), (13, "Job was released.")))["state"] == "PENDING"


def test_aborted_job_says_who_removed_it(tmp_path: Path) -> None:
    job = only(tmp_path, story((0, SUBMIT), (9, ABORTED)))
    assert (job["cancelled_by"], job["end_time"], job["start_time"]) == ("finch", clock(8, 10), None)


def test_job_removed_from_a_hold_for_memory_ran_out_of_memory(tmp_path: Path) -> None:
    assert only(tmp_path, story((0, SUBMIT), (1, EXECUTE), (12, HELD.format(34, 102)), (9, ABORTED)))["state"] == "OUT_OF_MEMORY"


def test_run_time_is_the_sum_of_all_runs(tmp_path: Path) -> None:
    job = only(tmp_path, story((0, SUBMIT), (1, EXECUTE), (4, EVICTED), (1, EXECUTE), (5, ended())))
    assert (job["elapsed_s"], job["start_time"]) == (1200.0, clock(8, 10))


def test_exit_of_a_run_that_was_requeued_is_not_that_of_the_job(tmp_path: Path) -> None:
    requeued = f"Job was evicted.\n\t(1) Job terminated and was requeued\n{USAGE}\n\t(1) Normal termination (return value 4)"
    assert only(tmp_path, story((0, SUBMIT), (1, EXECUTE), (4, requeued), (9, ABORTED)))["exit_code"] is None


def test_run_that_was_lost_ends_when_contact_was_lost(tmp_path: Path) -> None:
    job = only(tmp_path, story((0, SUBMIT), (1, EXECUTE), (22, "Job disconnected"), (24, "Job reconnection failed")))
    assert job["elapsed_s"] == 600.0


def test_each_process_of_a_cluster_is_a_row(tmp_path: Path) -> None:
    log = story((0, SUBMIT), (5, ended()), job="007.000.000") + story((0, SUBMIT), job="007.001.000")
    jobs, _, _, _ = read(tmp_path, log)
    assert [(job["array_task"], job["state"]) for job in jobs] == [(0, "COMPLETED"), (1, "PENDING")]


def test_number_that_comes_again_is_another_job(tmp_path: Path) -> None:
    jobs, _, _, _ = read(tmp_path, story((0, SUBMIT), (5, ended())) + event(0, SUBMIT, "2024-03-05 08:00:00"))
    assert [job["state"] for job in jobs] == ["COMPLETED", "PENDING"]


def ad_event(trigger: int, at: str, **attributes: object) -> str:
    lines = [f"{name} = {value}" for name, value in {"TriggerEventTypeNumber": trigger, "Owner": '"wren"', **attributes}.items()]
    return event(28, "Job ad information event triggered.\n" + "\n".join(lines), at)


def test_ad_event_adds_to_the_event_it_repeats(tmp_path: Path) -> None:
    plain = story((0, SUBMIT), (1, EXECUTE), (5, ended(3)))
    job = only(tmp_path, plain + ad_event(5, minute(20), ReturnValue=3, TerminatedNormally="true"))
    assert (job["user"], job["state"], job["elapsed_s"]) == ("wren", "FAILED", 600.0)


def test_log_of_ad_events_alone_tells_the_job(tmp_path: Path) -> None:
    log = (
        ad_event(0, minute(0))
        + ad_event(1, minute(10), ExecuteHost='"<10.0.0.7:1?alias=n7>"')
        + ad_event(5, minute(20), ReturnValue=0, MemoryUsage=5)
    )
    job = only(tmp_path, log)
    assert (job["state"], job["node_list"], job["max_rss_bytes"], job["elapsed_s"]) == ("COMPLETED", "n7", 5 << 20, 600.0)


def test_event_of_the_log_itself_is_folded(tmp_path: Path) -> None:
    _, _, count, folded = read(tmp_path, event(8, "Global JobLog: ctime=1", job="-01.-01.-01") + story((0, SUBMIT)))
    assert (count, folded) == (2, 1)


def test_job_whose_submission_is_not_in_the_log_is_refused(tmp_path: Path) -> None:
    jobs, rejects, _, _ = read(tmp_path, story((1, EXECUTE), (5, ended())))
    assert (jobs, rejects["rule"].to_list()) == ([], ["no_submit_time"])


def test_local_time_is_read_in_the_sites_zone(tmp_path: Path) -> None:
    assert only(tmp_path, story((0, SUBMIT)), time_zone="Europe/Berlin")["submit_time"] == clock(7, 0)


@pytest.mark.parametrize(
    "at", ["2024-03-04 08:00:00.123", "2024-03-04T08:00:00", "2024-03-04 08:00:00Z", "2024-03-04 10:00:00+02:00"]
)
def test_every_style_of_iso_time_is_read_to_the_second(tmp_path: Path, at: str) -> None:
    assert only(tmp_path, event(0, SUBMIT, at))["submit_time"] == clock(8, 0)


def years(path: Path, dates: list[str], *, file_time: datetime, year: int | None = None) -> list[int]:
    log = path / "old.log"
    log.write_text("".join(event(0, SUBMIT, f"{date} 12:00:00", f"{number:03}.000.000") for number, date in enumerate(dates)))
    os.utime(log, (file_time.timestamp(),) * 2)
    found = event_log.events_in(LineFile(log), zone=ZoneInfo("UTC"), year=year)
    return [item.time.year for item, _ in found if isinstance(item, CondorEvent)]


@pytest.mark.parametrize(
    ("dates", "file_time", "expected"),
    [
        (["03/01", "03/02"], datetime(2024, 3, 2, 13, tzinfo=UTC), [2024, 2024]),
        (["12/30", "12/31"], datetime(2024, 1, 5, tzinfo=UTC), [2023, 2023]),
        (["12/30", "12/31", "01/01"], datetime(2024, 1, 5, tzinfo=UTC), [2023, 2023, 2024]),
        (["12/31", "01/01", "12/31", "01/01"], datetime(2024, 1, 5, tzinfo=UTC), [2023, 2024, 2023, 2024]),
        (["05/01", "11/01", "02/01", "12/01", "02/01"], datetime(2024, 6, 1, tzinfo=UTC), [2022, 2022, 2023, 2023, 2024]),
        (["02/29"], datetime(2024, 3, 1, tzinfo=UTC), [2024]),
    ],
)
def test_dates_without_a_year_take_it_from_the_time_of_the_file(
    tmp_path: Path, dates: list[str], file_time: datetime, expected: list[int]
) -> None:
    assert years(tmp_path, dates, file_time=file_time) == expected


def test_guessed_year_is_told(tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    path.write_text(event(0, SUBMIT, "03/04 08:00:00"))
    source = CondorEvents(path)
    read_all(source)
    assert "have no year" in source.notes[0]


def test_given_year_is_that_of_the_first_event(tmp_path: Path) -> None:
    assert years(tmp_path, ["12/31", "01/01"], file_time=datetime(2024, 6, 1, tzinfo=UTC), year=2017) == [2017, 2018]


@pytest.mark.parametrize(
    ("damaged", "rule"),
    [
        (b"000 (009.000.000) 2024-03-04 08:00:00 Job sub\0mitted\n...\n", "nul_byte"),
        (b"000 (009.000.000) 2024-03-04 08:00:00 Job submitted\n\t\xff\xfe\n\tmore\n...\n", "invalid_utf8"),
        (b"000 (009.000.000) 2024-03-04 08:00:00 Job submitted\n\t" + b"x" * 2_000_000 + b"\n...\n", "line_too_long"),
        (b"000 (009.000.000) 2024-13-44 08:00:00 Job submitted\n...\n", "bad_value"),
        (b"000 (009.000.000) 02/30 08:00:00 Job submitted\n...\n", "bad_value"),
        (b"<script>alert(1)</script>\nanother line\n...\n", "bad_record"),
        (b"000 (9999999999999999999999.0.0) 2024-03-04 08:00:00 Job submitted\n...\n", "bad_record"),
        (b"000 (009.000.000) 2024-03-04 08:00:00 Job submitted\n\tno end\n", "truncated_record"),
        (
            b"000 (009.000.000) 2024-03-04 08:00:00 Job\n" + b"\tx\n" * 100 + (b"\t" + b"y" * 900_000 + b"\n") * 6 + b"...\n",
            "record_too_long",
        ),
    ],
)
def test_damaged_event_is_refused_as_one_and_its_neighbours_are_kept(tmp_path: Path, damaged: bytes, rule: str) -> None:
    before, after = story((0, SUBMIT), job="001.000.000"), story((0, SUBMIT), job="002.000.000")
    jobs, rejects, _, _ = read(tmp_path, before.encode() + damaged + after.encode())
    assert [job["job_id"] for job in jobs] == [1, 2]
    assert rejects["rule"].to_list() == [rule]


@pytest.mark.parametrize("block_bytes", [64, 1000, 100_000])
def test_size_of_blocks_changes_nothing(tmp_path: Path, block_bytes: int) -> None:
    path = condor_events_document(make_jobs(40, failed=3)).write(tmp_path / "job.log")
    jobs, rejects, count, folded = read_all(CondorEvents(path, block_bytes=block_bytes))
    assert (jobs.height, rejects.height, count, folded) == (40, 0, 120, 80)


def test_unfinished_event_at_the_end_is_refused_as_truncated(tmp_path: Path) -> None:
    jobs, rejects, _, _ = read(tmp_path, story((0, SUBMIT), (1, EXECUTE)) + "005 (007.000.000) 2024-03-04 09:00:00 Job termi")
    assert (jobs[0]["state"], rejects["rule"].to_list()) == ("RUNNING", ["truncated_record"])


def test_empty_log_has_no_jobs(tmp_path: Path) -> None:
    assert read(tmp_path, "")[0] == []


def test_another_format_is_refused_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(SourceFormatError, match="XML and JSON"):
        read(tmp_path, '<?xml version="1.0"?>\n<c><a n="MyType"><s>SubmitEvent</s></a></c>\n')


def test_hostile_reasons_stay_as_they_are(tmp_path: Path) -> None:
    job = only(tmp_path, story((0, SUBMIT), (12, "Job was held.\n\t<img src=x>\x1b[31m\n\tCode 1 Subcode 0")))
    assert "<img src=x>" in str(job["extra"])


def test_absurd_amounts_become_null(tmp_path: Path) -> None:
    absurd = "9" * 40
    image = (
        f"Image size of job updated: {absurd}\n\t{absurd}  -  MemoryUsage of job (MB)\n\t{absurd}  -  ResidentSetSize of job (KB)"
    )
    usage = f"Usr {absurd} 02:03:04, Sys 0 00:01:00  -  Run Remote Usage"
    ending = f"Job terminated.\n\t(1) Normal termination (return value {absurd})\n\t\t{usage}"
    job = only(tmp_path, story((0, SUBMIT), (1, EXECUTE), (6, image), (5, ending)))
    assert [job[name] for name in ("max_rss_bytes", "exit_code", "cpu_time_s")] == [None] * 3


def test_ended_jobs_are_told_when_too_many_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(condor_events, "_MAX_ENDED", 2)
    path = condor_events_document(make_jobs(10)).write(tmp_path / "job.log")
    assert read_all(CondorEvents(path))[0]["job_id"].to_list() == list(range(1000, 1010))


@pytest.fixture
def utc_clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


COMPARED = (
    "SubmitHost", "ExecuteHost", "SlotName", "Size", "MemoryUsage", "ResidentSetSize", "ReturnValue", "TerminatedNormally",
    "TerminatedBySignal", "RunRemoteUsage", "TotalRemoteUsage", "HoldReason", "HoldReasonCode", "HoldReasonSubCode",
    "RequestCpus", "RequestMemory", "RequestGPUs", "Cpus", "CpusUsage", "Memory", "GPUs", "Owner",
)  # fmt: skip
ALL_KINDS = story(
    (0, SUBMIT), (1, EXECUTE), (6, IMAGE), (4, EVICTED), (12, HELD.format(34, 102)),
    (13, "Job was released.\n\tvia condor_release"), (1, EXECUTE),
    (10, "Job was suspended.\n\tNumber of processes actually suspended: 2"), (11, "Job was unsuspended."),
    (22, "Job disconnected, attempting to reconnect\n    Socket closed\n    Trying to reconnect to slot1_1@n7 <10.0.0.7:9618>"),
    (23, "Job reconnected to slot1_1@n7\n    startd address: <10.0.0.7:9618>\n    starter address: <10.0.0.7:9619>"),
    (5, ended(3)),
)  # fmt: skip


@pytest.mark.usefixtures("utc_clock")
@pytest.mark.parametrize(
    "log",
    [
        ALL_KINDS,
        ALL_KINDS + story((0, SUBMIT), (9, ABORTED), job="008.003.000"),
        story(
            (0, SUBMIT),
            (1, EXECUTE),
            (5, f"Job terminated.\n\t(0) Abnormal termination (signal 9)\n\t(0) No core file\n{USAGE}\n{TABLE}"),
        ),
    ],
)
def test_events_agree_with_htcondors_own_reader(tmp_path: Path, log: str) -> None:
    htcondor = pytest.importorskip("htcondor2")
    path = tmp_path / "job.log"
    path.write_text(log)
    ours = [item for item, _ in event_log.events_in(LineFile(path), zone=ZoneInfo("UTC"))]
    theirs = list(htcondor.JobEventLog(str(path)).events(stop_after=0))
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs, strict=True):
        assert isinstance(mine, CondorEvent)
        assert (mine.number, mine.cluster, mine.proc) == (int(other.type), other.cluster, other.proc)
        assert mine.time.timestamp() == other.timestamp
        # Of an eviction, HTCondor's reader says TerminatedNormally = false, which the log does not.
        shared = [name for name in COMPARED if name in other and not (mine.number == 4 and name == "TerminatedNormally")]
        assert {name: mine.attributes.get(name) for name in shared} == {name: other[name] for name in shared}
