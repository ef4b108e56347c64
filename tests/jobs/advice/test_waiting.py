"""Why a job has not started, in one sentence, with what to change."""

from __future__ import annotations

import gzip
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest

from stormpetrel.jobs.advice.waiting import COLUMNS, EXTRA, parents_of, waiting_columns, why_waiting
from stormpetrel.records.cluster import Cluster, NodeKind, Partition, Qos
from stormpetrel.records.jobs import job_frame
from stormpetrel.records.pending_reasons import WaitKind
from stormpetrel.sources.slurm.json_jobs import SlurmJson
from tests.builders import read_all

RECORDINGS = Path(__file__).parents[2] / "recordings"
GIB = 1024**3
CLUSTER = Cluster(
    partitions=(Partition("short", max_time_s=86400.0, max_nodes=1), Partition("long", is_default=True)),
    nodes=(NodeKind(4, 4 * GIB, partitions=("short", "long"), count=2, in_service=1),),
    qos=(Qos("normal"), Qos("tiny", max_wall_s=600.0, max_per_job={"cpu": 2}), Qos("shared", max_in_all={"cpu": 8})),
    enforced=("associations", "limits", "qos"),
)


def job(reason: str | None, **values: object) -> dict[str, object]:
    extra = {name: values.pop(name) for name in EXTRA if name in values}
    row = {"state": "PENDING", "job_id": 12, "array_task": None, "partition": "short", "qos": "normal", "account": "lab"}
    return {**row, **values, "extra": {"reason": reason, **extra} if reason is not None else None}


def test_a_limit_above_the_partitions_is_said_with_the_value_that_fits():
    told = why_waiting(job("PartitionTimeLimit", time_limit_s=3 * 86400.0), CLUSTER)
    assert told.never_runs
    assert told.sentence == "Cannot run as it stands: it asks for 3 days; the limit of partition short is 1 day."
    assert told.change == "Ask for --time=1-00:00:00. Or take --partition=long: it fits there."
    assert told.command == "scontrol update JobId=12 TimeLimit=1-00:00:00"


def test_without_the_cluster_the_same_job_is_still_said_never_to_run():
    told = why_waiting(job("PartitionTimeLimit", time_limit_s=3 * 86400.0))
    assert told.never_runs and "3 days" in told.sentence and "--time" in told.change


def test_a_limit_of_a_qos_is_named_with_its_number():
    told = why_waiting(job("QOSMaxCpuPerJobLimit", qos="tiny", req_cpus=3), CLUSTER)
    assert told.never_runs and "3 CPUs; QOS tiny allows 2 CPUs in one job" in told.sentence


def test_a_job_that_its_partition_does_not_let_in_never_has_its_turn():
    closed = Cluster((Partition("short", allow_accounts=("physics",)),))
    assert why_waiting(job("Resources", account="lab"), closed).never_runs
    assert not why_waiting(job("Resources", account="physics"), closed).never_runs


def test_a_group_limit_is_waited_for():
    told = why_waiting(job("QOSGrpCpuLimit", qos="shared", req_cpus=4), CLUSTER)
    assert told.kind is WaitKind.LIMIT and told.waits_for == ("QOSGrpCpuLimit",)


def test_a_job_that_asks_for_more_than_a_whole_group_may_have_never_runs():
    assert why_waiting(job("QOSGrpCpuLimit", qos="shared", req_cpus=9), CLUSTER).never_runs


def test_nodes_that_a_partition_has_but_not_in_service_are_waited_for():
    told = why_waiting(job("PartitionNodeLimit", partition="long", req_tres="cpu=2,node=2"), CLUSTER)
    assert told.kind is WaitKind.NODE and "2 nodes" in told.sentence


def test_a_parent_is_named_with_what_it_has_to_do():
    told = why_waiting(job("Dependency", dependency="afterok:7(unfulfilled),afterany:8_*(unfulfilled)"))
    assert told.sentence == "Waits for job 7 to complete, job 8_* to end." and told.waits_for == ("7", "8_*")


def test_a_dependency_that_cannot_come_true_names_the_parent_that_failed():
    told = why_waiting(job("DependencyNeverSatisfied", dependency="afterok:7(failed),afterok:8(unfulfilled)"))
    assert told.never_runs and told.waits_for == ("7",) and "job 7" in told.sentence
    assert told.command == "scontrol update JobId=12 Dependency="


def test_a_held_job_says_by_whom_and_how_it_is_released():
    own, admins = why_waiting(job("JobHeldUser", state="HELD")), why_waiting(job("JobHeldAdmin"))
    assert own.sentence == "Held by its user." and own.command == "scontrol release 12"
    assert admins.sentence == "Held by an administrator." and "administrator" in admins.change


def test_the_node_that_is_away_is_named():
    told = why_waiting(job("ReqNodeNotAvail", reason_detail="ReqNodeNotAvail, UnavailableNodes:n[001-002]"))
    assert told.kind is WaitKind.NODE and told.waits_for == ("n[001-002]",) and "n[001-002]" in told.sentence


def test_a_reason_with_its_detail_in_one_text_is_read_as_sacct_prints_it():
    told = why_waiting(job("ReqNodeNotAvail, UnavailableNodes:n7"))
    assert told.reason == "ReqNodeNotAvail" and told.waits_for == ("n7",)


def test_a_begin_time_and_a_licence_are_named():
    begins = datetime(2026, 3, 1, 8, tzinfo=UTC)
    assert "2026-03-01 08:00 UTC" in why_waiting(job("BeginTime", eligible_time=begins)).sentence
    assert "matlab:1" in why_waiting(job("Licenses", licenses="matlab:1")).sentence


@pytest.mark.parametrize("state", ["RUNNING", "COMPLETED", "CANCELLED", "VANISHED"])
def test_a_job_that_does_not_wait_is_not_explained(state):
    assert why_waiting(job("Resources", state=state)) is None


def test_a_held_job_of_another_scheduler_is_left_alone():
    assert why_waiting({**job(None, state="HELD"), "extra": {"HoldReason": "memory"}}) is None


def test_text_from_outside_stays_short_and_on_one_line():
    told = why_waiting(job("Foo\n\x1b[31m{bar}" + "x" * 5000, reason_detail="{job}\r" * 900))
    assert told.sentence.isprintable() and len(told.sentence) < 500


def test_dependencies_that_are_no_dependencies_give_no_parents():
    assert parents_of("singleton(unfulfilled)") == () == parents_of("after:;rm -rf(x)") == parents_of("")


def test_columns_say_the_same_as_one_job_and_nothing_of_others():
    rows = [
        job("PartitionTimeLimit", time_limit_s=3 * 86400.0),
        job(None, state="COMPLETED"),
        job("Priority", job_id=13),
        job("Priority", job_id=14),
        job(None),
    ]
    frame = job_frame([{"cluster": "c", "restart": 0, **row} for row in rows])
    told = waiting_columns(frame, CLUSTER)
    assert told["waiting"].to_list() == ["never", None, "turn", "turn", None]
    assert told["never_runs"].to_list() == [True, False, False, False, False]
    assert told["waiting_words"][0] == why_waiting(rows[0], CLUSTER).with_change


def test_columns_of_a_frame_where_nobody_waits_say_nothing():
    frame = job_frame([{"cluster": "c", "restart": 0, **job(None, state="COMPLETED")}])
    assert waiting_columns(frame).row(0) == (None, None, False)


@pytest.mark.parametrize("version", ["22.05-v0.0.38", "23.11-v0.0.40", "24.11-v0.0.42", "26.05-v0.0.43", "26.05-v0.0.45"])
def test_recorded_queues_of_every_slurm_are_explained(version, tmp_path):
    path = tmp_path / "squeue.json"
    path.write_bytes(gzip.decompress((RECORDINGS / f"squeue-{version}.json.gz").read_bytes()))
    jobs, *_ = read_all(SlurmJson(path))
    waiting = jobs.filter(pl.col("state").is_in(["PENDING", "HELD"]))
    told = {row["extra"]["reason"]: why_waiting(row) for row in waiting.iter_rows(named=True)}
    assert told["JobHeldUser"].kind is WaitKind.HELD and told["BeginTime"].kind is WaitKind.BEGIN_TIME
    assert told["Resources"].kind is WaitKind.TURN and told["JobArrayTaskLimit"].kind is WaitKind.LIMIT
    parent = told.get("Dependency") or told["DependencyNeverSatisfied"]
    assert parent.waits_for and parent.waits_for[0].isdigit()


def test_the_columns_that_are_needed_are_columns_of_the_job_frame():
    assert set(COLUMNS) <= set(job_frame([]).columns)
