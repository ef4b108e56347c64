"""What a cluster cannot run: each misfit with the smallest change that fits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stormpetrel.jobs.advice.fit_to_cluster import clock, misfits, time_and_days
from stormpetrel.records.cluster import Association, Cluster, NodeKind, Partition, Qos, ResourceRequest

GIB = 1024**3
CLUSTER = Cluster(
    partitions=(
        Partition("batch", is_default=True, max_time_s=86400.0, max_nodes=4),
        Partition("gpu", max_time_s=3600.0, min_nodes=1),
        Partition("private", allow_accounts=("lab",), allow_qos=("special",)),
        Partition("old", state="DOWN"),
        Partition("closed", state="DRAIN"),
    ),
    nodes=(
        NodeKind(64, 256 * GIB, features=("icelake",), partitions=("batch", "private", "old", "closed"), count=10, in_service=10),
        NodeKind(16, 512 * GIB, features=("bigmem",), partitions=("batch",), count=2, in_service=0),
        NodeKind(32, 128 * GIB, gpus={"a100": 4}, partitions=("gpu",), count=2, in_service=2),
    ),
    qos=(Qos("normal"), Qos("tiny", max_wall_s=600.0, max_per_job={"cpu": 2, "mem": GIB}), Qos("special")),
    enforced=("associations", "limits", "qos"),
)
ADA = (Association("lab", is_default=True, qos=("normal", "tiny"), default_qos="normal"),)


def rules(request: ResourceRequest, cluster: Cluster = CLUSTER, associations=()) -> list[str]:
    return [one.rule for one in misfits(request, cluster, associations)]


def only(request: ResourceRequest, cluster: Cluster = CLUSTER, associations=()):
    (found,) = misfits(request, cluster, associations)
    return found


def test_a_request_that_fits_gives_nothing():
    request = ResourceRequest(time_limit_s=3600.0, min_nodes=2, cpus=128, cpus_per_task=64, mem_per_node_bytes=200 * GIB)
    assert misfits(request, CLUSTER, ADA) == ()


def test_an_unknown_partition_is_told_with_the_nearest_name():
    found = only(ResourceRequest(partitions=("btach",)))
    assert found.rule == "unknown_partition" and found.proposed == "batch" and found.never


def test_a_limit_above_the_partitions_proposes_the_partitions():
    found = only(ResourceRequest(time_limit_s=3 * 86400.0))
    assert (found.rule, found.proposed, found.column) == ("time_above_partition", 86400.0, "time_limit_s")
    assert found.words == "It asks for 3 days; the limit of partition batch is 1 day."


def test_no_limit_at_all_is_above_any_limit():
    assert rules(ResourceRequest(no_time_limit=True)) == ["time_above_partition"]


def test_a_partition_that_fits_is_named():
    found = misfits(ResourceRequest(partitions=("gpu",), time_limit_s=7200.0), CLUSTER)
    assert "--partition=batch" in found[0].change


def test_more_cpus_on_a_node_than_any_has():
    found = only(ResourceRequest(cpus=96, cpus_per_task=96))
    assert found.rule == "cpus_above_node" and found.proposed == 64 and "--cpus-per-task=64" in found.change


def test_more_tasks_on_a_node_than_it_has_cpus():
    found = only(ResourceRequest(cpus=200, tasks_per_node=100, min_nodes=2))
    assert found.rule == "cpus_above_node" and found.proposed == 128 and "--ntasks-per-node=64" in found.change


def test_more_memory_on_a_node_than_any_has():
    found = only(ResourceRequest(mem_per_node_bytes=600 * GIB, min_nodes=2))
    assert found.rule == "memory_above_node" and found.proposed == 2 * 512 * GIB and "--mem=524288M" in found.change


def test_memory_per_cpu_counts_for_the_cpus_of_a_task():
    found = only(ResourceRequest(cpus=16, cpus_per_task=16, mem_per_cpu_bytes=64 * GIB))
    assert found.rule == "memory_above_node" and "--mem-per-cpu=32768M" in found.change


def test_cpus_and_memory_that_no_single_node_has_together():
    assert rules(ResourceRequest(cpus=64, cpus_per_task=64, mem_per_node_bytes=400 * GIB)) == ["no_such_node"]


def test_more_gpus_than_a_node_has():
    found = only(ResourceRequest(partitions=("gpu",), gpus=8, gpus_per_node={"": 8}))
    assert found.rule == "gpus_above_node" and found.proposed == 4


def test_gpus_of_a_type_that_is_not_there_are_told_with_those_that_are():
    found = only(ResourceRequest(partitions=("gpu",), gpus=1, gpus_per_node={"v100": 1}))
    assert found.rule == "gpus_above_node" and "a100" in found.change


def test_gpus_where_there_are_none_name_a_partition_that_has_them():
    found = only(ResourceRequest(gpus=1, gpus_per_node={"": 1}, time_limit_s=60.0))
    assert "--partition=gpu" in found.change


def test_more_gpus_in_all_than_the_partition_has():
    assert rules(ResourceRequest(partitions=("gpu",), gpus=9)) == ["gpus_above_partition"]


def test_more_nodes_than_the_partition_allows():
    found = only(ResourceRequest(min_nodes=5))
    assert found.rule == "nodes_above_partition" and found.proposed == 4


def test_more_nodes_than_the_partition_has():
    assert only(ResourceRequest(partitions=("gpu",), min_nodes=3)).proposed == 2


def test_more_cpus_than_the_nodes_of_a_job_have_in_all():
    found = only(ResourceRequest(cpus=1000))
    assert found.rule == "cpus_above_partition" and found.proposed == 4 * 64


def test_a_feature_that_no_node_has():
    assert only(ResourceRequest(features=("icelak",))).change.startswith("Write --constraint=icelake.")


def test_an_account_and_a_qos_that_a_partition_does_not_let_in():
    request = ResourceRequest(partitions=("private",), account="physics", qos="normal")
    assert rules(request) == ["account_not_allowed", "qos_not_allowed"]


def test_a_partition_that_is_down_takes_jobs_and_is_waited_for():
    assert only(ResourceRequest(partitions=("old",))).never is False


def test_a_partition_that_is_drained_takes_no_jobs():
    assert only(ResourceRequest(partitions=("closed",))).never is True


def test_nodes_out_of_service_are_waited_for():
    found = only(ResourceRequest(mem_per_node_bytes=500 * GIB))
    assert found.rule == "nodes_out_of_service" and not found.never


def test_of_several_partitions_one_that_fits_is_enough():
    assert misfits(ResourceRequest(partitions=("gpu", "batch"), time_limit_s=7200.0), CLUSTER) == ()


@pytest.mark.parametrize(
    ("request_", "rule"),
    [
        (ResourceRequest(qos="tiny", time_limit_s=3600.0), "time_above_qos"),
        (ResourceRequest(qos="tiny", cpus=3), "above_limit"),
        (ResourceRequest(qos="tiny", mem_per_node_bytes=2 * GIB), "above_limit"),
        (ResourceRequest(qos="tinny"), "unknown_qos"),
    ],
)
def test_limits_of_the_qos(request_, rule):
    assert rules(request_) == [rule]


def test_limits_that_nobody_enforces_do_not_count():
    assert misfits(ResourceRequest(qos="tiny", cpus=3), replace(CLUSTER, enforced=())) == ()


def test_a_qos_that_the_user_may_not_use():
    assert rules(ResourceRequest(qos="special"), associations=ADA) == ["qos_not_allowed"]


def test_an_account_that_the_user_does_not_have():
    found = only(ResourceRequest(account="labb"), associations=ADA)
    assert found.rule == "unknown_account" and found.proposed == "lab"


def test_the_default_qos_of_the_user_counts_where_none_is_named():
    tiny = (replace(ADA[0], default_qos="tiny"),)
    assert rules(ResourceRequest(cpus=3), associations=tiny) == ["above_limit"]


def test_the_partitions_qos_comes_before_the_jobs():
    own = replace(CLUSTER.partitions[0], qos="tiny")
    cluster = replace(CLUSTER, partitions=(own, *CLUSTER.partitions[1:]))
    assert rules(ResourceRequest(cpus=3, qos="normal"), cluster)[0] == "above_limit"


def test_a_qos_may_lift_the_time_limit_of_the_partition():
    cluster = replace(CLUSTER, qos=(Qos("long", flags=("PartitionTimeLimit",)),))
    assert misfits(ResourceRequest(qos="long", time_limit_s=3 * 86400.0), cluster) == ()


def test_limits_of_the_account_count_where_no_qos_has_one():
    ada = (replace(ADA[0], max_wall_s=600.0, max_per_job={"cpu": 1}),)
    assert rules(ResourceRequest(time_limit_s=3600.0, cpus=2), associations=ada) == ["time_above_qos", "above_limit"]


def test_a_cluster_without_a_default_partition_wants_one_named():
    nowhere = replace(CLUSTER, partitions=CLUSTER.partitions[1:])
    assert rules(ResourceRequest(), nowhere) == ["no_partition"]


def test_where_the_default_partition_is_not_told_none_is_missed():
    assert misfits(ResourceRequest(), replace(CLUSTER, partitions=CLUSTER.partitions[1:], names_default=False)) == ()


@pytest.mark.parametrize(("seconds", "words", "written"), [(86400, "1 day", "1-00:00:00"), (5400, "1 h 30 min", "01:30:00")])
def test_times_are_said_as_people_and_slurm_say_them(seconds, words, written):
    assert (time_and_days(seconds), clock(seconds)) == (words, written)
