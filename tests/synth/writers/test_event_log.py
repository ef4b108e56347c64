"""The event log of recorded jobs: HTCondor and our readers find in it what the records say."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import polars as pl
import pytest

from stormpetrel.answers.workload.recorded_site import record_workload_site, recorded_jobs
from stormpetrel.config import Settings
from stormpetrel.errors import UsageError
from stormpetrel.records.events import EventKind
from stormpetrel.records.job_events import job_events
from stormpetrel.sources.formats import event_file
from stormpetrel.sources.htcondor.event_jobs import CondorEvents
from stormpetrel.synth.writers.event_log import write_job_events
from tests.synth.writers.sample_workload import made_workload, pieces

STATES = ("COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "OUT_OF_MEMORY", "NODE_FAIL", "PREEMPTED")
HEADER = re.compile(r"^(\d{3}) \((\d+)\.(\d+)\.000\) (\S+ \S+) ", re.MULTILINE)
NUMBERS = {"Submit": 0, "Execute": 1, "JobEvicted": 4, "JobTerminated": 5, "JobAborted": 9, "JobHeld": 12}


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    """Six hundred jobs of which every outcome is one, and some never started."""
    folder = tmp_path_factory.mktemp("told") / "site"
    given = made_workload(600).with_columns(state=pl.Series([STATES[row % len(STATES)] for row in range(600)]))
    never = (pl.col("state") == "CANCELLED") & (pl.int_range(pl.len()) % 2 == 0)
    record_workload_site(folder, [given.with_columns(runtime_s=pl.when(never).then(0.0).otherwise("runtime_s"))])
    return pl.concat(recorded_jobs(folder))


@pytest.fixture(scope="module")
def log(jobs, tmp_path_factory):
    return write_job_events(pieces(jobs, 70), tmp_path_factory.mktemp("log") / "events.log")


def headers(path: Path) -> list[tuple[int, tuple[int, int], str]]:
    return [(int(number), (int(cluster), int(proc)), at) for number, cluster, proc, at in HEADER.findall(path.read_text())]


def test_every_kind_is_told_as_often_as_the_records_count_it(jobs, log):
    counted = Counter(job_events(jobs, fast_failure_s=60)["kind"])
    outcomes = Counter(jobs["state"])
    assert log.counts["Submit"] == counted["Submit"] == 600 and log.counts["Execute"] == counted["Execute"] < 600
    assert log.counts["JobEvicted"] == counted["JobEvicted"] > 80
    assert log.counts["JobTerminated"] == counted["JobTerminated"] - outcomes["OUT_OF_MEMORY"]
    assert log.counts["JobHeld"] == counted["JobTimedOut"] + outcomes["OUT_OF_MEMORY"]
    assert log.counts["JobAborted"] == counted["JobAborted"] + log.counts["JobHeld"]
    assert log.counts["JobDisconnected"] == log.counts["JobReconnectFailed"] == counted["NodeFailed"]


def test_htcondor_reads_the_same_events(log):
    htcondor = pytest.importorskip("htcondor2")
    read = Counter(int(one.type) for one in htcondor.JobEventLog(str(log.path)).events(stop_after=0))
    assert read.pop(28) == log.events == read.total(), "each with its job ad"
    assert {kind: read[number] for kind, number in NUMBERS.items()} == {kind: log.counts[kind] for kind in NUMBERS}


def test_events_are_in_the_order_of_time_and_of_what_happens_to_a_job(log):
    told = [event for event in headers(log.path) if event[0] != 28]
    assert [at for *_, at in told] == sorted(at for *_, at in told) and len(told) == log.events
    of_job: dict[tuple[int, int], list[int]] = {}
    for number, job, _ in told:
        of_job.setdefault(job, []).append(number)
    lives = {tuple(numbers) for numbers in of_job.values()}
    assert lives == {(0, 1, 5), (0, 1, 4), (0, 1, 12, 9), (0, 1, 9), (0, 9), (0, 1, 22, 24)}


def test_jobs_read_back_with_user_times_size_and_outcome(jobs, log):
    chunks = list(CondorEvents(log.path, cluster="demo").chunks())
    assert not any(len(chunk.rejects) for chunk in chunks)
    read = pl.concat([chunk.records for chunk in chunks], how="diagonal_relaxed")
    given = jobs.with_columns(array_task=pl.col("array_task").fill_null(0))
    both = given.join(read.with_columns(pl.col("array_task").cast(pl.Int64)), on=["job_id", "array_task"], suffix="_read")
    assert both.height == 600
    for name in ("user", "submit_time", "start_time", "req_cpus", "req_mem_bytes"):
        assert both[name].eq_missing(both[f"{name}_read"].cast(both[name].dtype)).all(), name
    ended = both.filter(pl.col("state").is_in(["COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "OUT_OF_MEMORY"]))
    assert ended["state"].equals(ended["state_read"]) and ended["end_time"].equals(ended["end_time_read"])
    cores = ended.filter(pl.col("elapsed_s") > 60, pl.col("cpu_time_s_read") > 0)
    assert cores.height > 100 and (cores["cpu_time_s_read"] <= cores["elapsed_s"] * cores["cpus"] + 1).all()


def test_counting_the_log_gives_the_failures_too(jobs, log):
    settings = Settings()
    source = event_file(log.path, None, settings)
    counts = pl.concat([span.counts for span in source.spans(lambda _name: None, jobs["end_time"].max())])
    counted = dict(counts.filter(pl.col("place") == "").group_by("kind").agg(pl.col("count").sum()).iter_rows())
    expected = Counter(job_events(jobs, fast_failure_s=settings.events.fast_failure_s)["kind"])
    lost = jobs.filter(pl.col("state") == "OUT_OF_MEMORY").height
    assert {kind: counted[kind] for kind in log.counts} == dict(log.counts)
    assert counted[EventKind.FAILED] == expected["JobFailed"] - lost
    groups = set(counts.filter(pl.col("place") == "group")["value"])
    assert groups == set(jobs["account"]) and set(counts.filter(pl.col("place") == "node")["value"]) <= {"n001", "n002", "n003"}


def test_pieces_of_any_size_make_the_same_log_and_the_end_can_be_named(jobs, log, tmp_path):
    whole = write_job_events([jobs], tmp_path / "whole.log")
    assert whole.path.read_bytes() == log.path.read_bytes()
    until = jobs["submit_time"][300]
    cut = write_job_events(pieces(jobs, 70), tmp_path / "cut.log", until=until)
    assert log.path.read_text().startswith(cut.path.read_text()) and headers(cut.path)[-1][2] <= f"{until:%Y-%m-%d %H:%M:%S}"
    assert cut.counts["Submit"] == jobs.filter(pl.col("submit_time") <= until).height


def test_jobs_out_of_order_and_a_reader_that_stops_leave_no_file(jobs, tmp_path):
    with pytest.raises(UsageError, match="order of submission"):
        write_job_events([jobs[300:], jobs[:300]], tmp_path / "events.log")
    assert not list(tmp_path.iterdir())


def test_a_hostile_name_stays_in_its_place(jobs, tmp_path):
    odd = jobs.head(5).with_columns(user=pl.lit('a"\n...\n005 (1.0.0) (by user root)'))
    made = write_job_events([odd], tmp_path / "events.log")
    assert len(headers(made.path)) == 2 * made.events
    assert not any(len(chunk.rejects) for chunk in CondorEvents(made.path).chunks())
