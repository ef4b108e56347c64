"""slurmctld's log: jobs, nodes and controllers, on what a real Slurm wrote."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest

from stormpetrel.config import Settings
from stormpetrel.errors import SourceFormatError
from stormpetrel.records.events import EventKind
from stormpetrel.sources.formats import event_file
from stormpetrel.sources.slurm.controller_log import ControllerLog
from tests.builders import read_all

RECORDINGS = Path(__file__).parents[2] / "recordings"
LOG = RECORDINGS / "slurmctld-22.05.log.gz"
NOW = datetime(2026, 11, 19, tzinfo=UTC)
# The same run of the same cluster, as `sacct -a -P -D -X` told it.
SACCT = """\
1|COMPLETED|0:0|n001
2|FAILED|3:0|n001
3|FAILED|0:11|n001
5|CANCELLED|0:15|n002
7|TIMEOUT|0:0|n002
4_1|COMPLETED|0:0|n001
4_2|FAILED|1:0|n002
4_3|FAILED|2:0|n002
10|REQUEUED|0:0|n002
11+0|COMPLETED|0:0|n003
11+1|COMPLETED|0:0|n002
14|NODE_FAIL|0:0|n003
15|NODE_FAIL|0:0|n003
16|NODE_FAIL|0:0|n002
17|PREEMPTED|0:0|n001
18|COMPLETED|0:0|n001
19|COMPLETED|0:0|n001"""


def written(folder: Path, *lines: str) -> Path:
    path = folder / "slurmctld.log"
    path.write_text("".join(f"[2026-11-18T08:{minute:02d}:00.000] {text}\n" for minute, text in enumerate(lines)))
    return path


def only(folder: Path, *lines: str) -> dict[str, object]:
    jobs, *_ = read_all(ControllerLog(written(folder, *lines), cluster="petrel"))
    assert jobs.height == 1
    return jobs.row(0, named=True)


@pytest.fixture(scope="module")
def recorded() -> pl.DataFrame:
    jobs, rejects, read, merged = read_all(ControllerLog(LOG))
    assert rejects.height == 0 and read == jobs.height + merged
    return jobs


def test_every_run_ends_as_accounting_says_it_did(recorded: pl.DataFrame) -> None:
    def number(row: dict[str, object]) -> str:
        if row["het_job_id"] is not None:
            return f"{row['het_job_id']}+{row['het_offset']}"
        return f"{row['job_id']}" if row["array_task"] is None else f"{row['job_id']}_{row['array_task']}"

    rows = recorded.sort("restart", descending=True).iter_rows(named=True)
    runs = {number(row): row for row in rows if row["start_time"] is not None}
    for line in SACCT.splitlines():
        name, state, codes, node = line.split("|")
        run = runs[name]
        assert (run["state"], run["node_list"]) == (state, node), name
        if state in ("COMPLETED", "FAILED"):
            assert f"{run['exit_code']}:{run['exit_signal']}" == codes, name


def test_the_log_names_the_cluster(recorded: pl.DataFrame) -> None:
    assert recorded["cluster"].unique().to_list() == ["petrel"]


def test_a_job_that_never_started_is_over_without_a_start(recorded: pl.DataFrame) -> None:
    held = recorded.row(by_predicate=pl.col("job_id") == 6, named=True)
    dependent = recorded.row(by_predicate=pl.col("job_id") == 13, named=True)
    assert [row["state"] for row in (held, dependent)] == ["CANCELLED", "CANCELLED"]
    assert held["start_time"] is None and dependent["start_time"] is None
    assert (held["cancelled_by"], dependent["cancelled_by"]) == ("0", None)


def test_a_requeued_run_is_followed_by_the_next(recorded: pl.DataFrame) -> None:
    runs = recorded.filter(pl.col("job_id") == 17).sort("restart")
    assert list(zip(runs["restart"], runs["state"], strict=True)) == [(0, "PREEMPTED"), (1, "PENDING")]


def test_a_signal_that_did_not_kill_leaves_the_job_as_it_ended(tmp_path: Path) -> None:
    job = only(
        tmp_path,
        "_slurm_rpc_submit_batch_job: JobId=7 InitPrio=1 usec=1",
        "sched: Allocate JobId=7 NodeList=n001 #CPUs=2 Partition=debug",
        "_slurm_rpc_kill_job: REQUEST_KILL_JOB JobId=7 uid 1000",
        "_job_complete: JobId=7 WEXITSTATUS 0",
        "_job_complete: JobId=7 done",
    )
    assert (job["state"], job["cancelled_by"], job["cpus"]) == ("COMPLETED", None, 2)
    assert job["elapsed_s"] == 180.0


@pytest.mark.parametrize(("name", "killed"), [("7", [0, 1]), ("7_1", [1]), ("7_1(7)", [1])])
def test_scancel_ends_running_tasks_by_whichever_name_it_calls_them(tmp_path: Path, name: str, killed: list[int]) -> None:
    path = written(
        tmp_path,
        "_slurm_rpc_submit_batch_job: JobId=7 InitPrio=1 usec=1",
        "sched: Allocate JobId=7_0(8) NodeList=n001 #CPUs=1 Partition=debug",
        "sched: Allocate JobId=7_1(7) NodeList=n001 #CPUs=1 Partition=debug",
        f"_slurm_rpc_kill_job: REQUEST_KILL_JOB JobId={name} uid 1000",
    )
    jobs, rejects, _, _ = read_all(ControllerLog(path))
    cancelled = jobs.filter(state="CANCELLED").sort("array_task")
    assert (rejects.height, jobs.height) == (0, 2)
    assert cancelled["array_task"].to_list() == killed and set(cancelled["elapsed_s"]) <= {60.0, 120.0}


def test_scancel_of_a_running_het_job_ends_all_its_components(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "_slurm_rpc_submit_batch_het_job: JobId=7 usec=1",
        "sched: Allocate JobId=7+0(7) NodeList=n001 #CPUs=1 Partition=debug",
        "sched: Allocate JobId=7+1(8) NodeList=n002 #CPUs=1 Partition=debug",
        "_slurm_rpc_kill_job: REQUEST_KILL_JOB JobId=7 uid 1000",
    )
    jobs, *_ = read_all(ControllerLog(path))
    assert jobs.sort("job_id")["state"].to_list() == ["CANCELLED", "CANCELLED"] and jobs["job_id_raw"].sort().to_list() == [7, 8]


def test_the_number_behind_the_name_of_the_cluster_is_not_part_of_it(tmp_path: Path) -> None:
    started = "slurmctld version 24.11.5 started on cluster alpha(2175)"
    path = written(tmp_path, started, "_slurm_rpc_submit_batch_job: JobId=7 InitPrio=1 usec=1")
    assert read_all(ControllerLog(path))[0]["cluster"].to_list() == ["alpha"]


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("update_node: node n1 state set to IDLE", EventKind.NODE_RETURNED),
        ("update_node: node n1 state set to DRAINING", EventKind.NODE_DRAINED),
        ("error: Setting node n1 state to INVAL with reason:Low RealMemory", EventKind.NODE_DRAINED),
    ],
)
def test_what_becomes_of_a_node_is_an_event(tmp_path: Path, message: str, kind: EventKind) -> None:
    log = ControllerLog(written(tmp_path, message))
    read_all(log)
    assert [(event.kind, event.nodes) for event in log.node_events] == [(kind, "n1")]


def test_a_number_that_comes_round_again_is_another_job(tmp_path: Path) -> None:
    lines = ["_slurm_rpc_submit_batch_job: JobId=7 InitPrio=1 usec=1", "Time limit exhausted for JobId=7"]
    jobs, *_ = read_all(ControllerLog(written(tmp_path, *lines, *lines)))
    assert jobs["submit_time"].n_unique() == 2 and jobs["job_id"].to_list() == [7, 7]


def test_a_job_whose_submission_is_missing_is_refused_once(tmp_path: Path) -> None:
    lines = ["_job_complete: JobId=7 WEXITSTATUS 0", "_job_complete: JobId=7 done"]
    jobs, rejects, read, merged = read_all(ControllerLog(written(tmp_path, *lines)))
    assert (jobs.height, rejects["rule"].to_list(), read, merged) == (0, ["no_submit_time"], 2, 1)


def test_a_zone_in_the_log_goes_before_that_of_the_site(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("[2026-11-18T08:00:00.000+01:00] _slurm_rpc_submit_batch_job: JobId=7 InitPrio=1 usec=1\n")
    jobs, *_ = read_all(ControllerLog(path, time_zone="America/New_York"))
    assert jobs["submit_time"].to_list() == [datetime(2026, 11, 18, 7, tzinfo=UTC)]


def test_another_file_is_refused_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("Nov 18 08:00:00 node slurmctld[12]: hello\n")
    with pytest.raises(SourceFormatError, match="not a log of slurmctld"):
        read_all(ControllerLog(tmp_path / "log"))


def test_nodes_and_controllers_are_events_next_to_those_of_jobs() -> None:
    source = event_file(LOG, None, Settings())
    (span,) = source.spans(lambda _name: None, NOW)
    whole = span.counts.filter(pl.col("place") == "").group_by("kind").agg(pl.col("count").sum())
    counts = dict(whole.iter_rows())
    assert counts[EventKind.NODE_DOWN] == 2 and counts[EventKind.CONTROLLER_STARTED] == 2
    assert counts[EventKind.NODE_FAILED] == 3 and counts[EventKind.TIMED_OUT] == 1
    nodes = span.counts.filter(pl.col("kind") == EventKind.NODE_DOWN, pl.col("place") == "node")["value"]
    assert sorted(nodes) == ["n002", "n003"]
