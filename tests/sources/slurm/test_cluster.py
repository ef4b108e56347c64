"""What a cluster has and allows, out of the text of scontrol and sacctmgr, and out of slurmrestd's records."""

from __future__ import annotations

import pytest

from stormpetrel.config import SlurmSection
from stormpetrel.records.cluster import Association, NodeKind, Partition, Qos
from stormpetrel.sources.scripts.job_script import parse_job_script
from stormpetrel.sources.scripts.slurm import resource_request
from stormpetrel.sources.slurm.cluster import (
    alike,
    associations_in,
    gpus_in,
    nodes_in,
    partitions_in,
    qos_in,
    read_associations,
    updates_memory,
)
from stormpetrel.sources.slurm.cluster_rest import nodes_of, partitions_of, qos_of

MIB = 1024**2
GIB = 1024**3
PARTITION = (
    "PartitionName=short AllowGroups=ALL AllowAccounts=lab,physics AllowQos=ALL Default=YES QoS=N/A DefaultTime=NONE MaxNodes=2 "
    "MaxTime=1-00:00:00 MinNodes=0 MaxCPUsPerNode=UNLIMITED Nodes=n[001-002] State=UP TotalCPUs=8 MaxMemPerNode=2048"
)
NODE = (
    "NodeName=n001 Arch=x86_64 CPUAlloc=4 CPUEfctv=62 CPUTot=64 AvailableFeatures=icelake,ib Gres=gpu:a100:4(S:0-1),nvme:1 "
    "OS=Linux 6.1 State=9 RealMemory=4000 MemSpecLimit=1000 State=IDLE+DRAIN Partitions=short,long  BootTime=2026 "
    "Reason=broken Partitions=all State=IDLE RealMemory=999999 [root@2026-01-01]"
)


def test_a_partition_is_read_with_its_limits():
    assert list(partitions_in(PARTITION)) == [
        Partition(
            "short",
            is_default=True,
            max_time_s=86400.0,
            max_nodes=2,
            max_mem_per_node_bytes=2048 * MIB,
            allow_accounts=("lab", "physics"),
        )
    ]


def test_a_node_is_read_without_what_is_set_aside_for_the_system():
    (node,) = nodes_in(NODE.replace("State=9 ", ""))
    assert node == NodeKind(62, 3000 * MIB, {"a100": 4}, ("icelake", "ib"), ("short", "long"), in_service=0)


def test_what_somebody_wrote_as_the_reason_of_a_node_is_not_read():
    (node,) = nodes_in(NODE.replace("State=9 ", ""))
    assert node.partitions == ("short", "long") and node.memory_bytes == 3000 * MIB


@pytest.mark.parametrize(
    "line", ["", "PartitionName=", "PartitionName=a|b State=UP", "PartitionName=" + "x" * 500, "\x00\x1b[31m", "=="]
)
def test_a_line_that_names_no_partition_is_left_out(line):
    assert list(partitions_in(line)) == [] == list(nodes_in(line))


def test_nodes_that_are_alike_are_counted():
    up, down = NodeKind(4, GIB, partitions=("a",)), NodeKind(4, GIB, partitions=("a",), in_service=0)
    assert alike([up, down, NodeKind(8, GIB)]) == (NodeKind(4, GIB, partitions=("a",), count=2, in_service=1), NodeKind(8, GIB))


@pytest.mark.parametrize(
    ("state", "usable"), [("IDLE", 1), ("MIXED+PLANNED", 1), ("DOWN*", 0), ("IDLE*", 0), ("IDLE~", 1), ("ALLOCATED+DRAIN", 0)]
)
def test_a_node_is_in_service_unless_it_is_down_drained_or_silent(state, usable):
    (node,) = nodes_in(f"NodeName=n CPUTot=4 RealMemory=10 State={state} Partitions=a")
    assert node.in_service == usable


def test_nodes_that_are_yet_to_come_are_not_there():
    assert list(nodes_in("NodeName=n CPUTot=4 RealMemory=10 State=FUTURE")) == []


@pytest.mark.parametrize(
    ("gres", "found"),
    [("gpu:4", {"": 4}), ("gpu:a100:2(S:0),gpu:h100:1(S:1)", {"a100": 2, "h100": 1}), ("(null)", {}), ("nvme:1", {})],
)
def test_gpus_of_a_node(gres, found):
    assert gpus_in(gres) == found


def test_a_qos_is_read_with_its_limits():
    line = "tiny|1-00:00:00|cpu=2,mem=1.50G,gres/gpu=1|cpu=1|cpu=1|cpu=8|cpu=16|cpu=32,node=x|DenyOnLimit,OverPartQOS"
    assert list(qos_in(line)) == [
        Qos(
            "tiny", 86400.0, {"cpu": 2, "mem": 1536 * MIB, "gres/gpu": 1}, {"cpu": 1}, {"cpu": 1}, {"cpu": 8}, {"cpu": 16},
            {"cpu": 32}, ("DenyOnLimit", "OverPartQOS"),
        )
    ]  # fmt: skip


def test_lines_of_another_width_are_no_qos():
    assert list(qos_in("a|b\n\nsacctmgr: error\n")) == []


def test_associations_of_another_cluster_are_left_out():
    text = "main|lab|lab||normal,long|normal|00:10:00|cpu=4||\nother|lab|physics||normal||||||"
    (own,) = associations_in(text, cluster="main")
    expected = Association("lab", is_default=True, qos=("normal", "long"), default_qos="normal", max_wall_s=600.0)
    assert (own.account, own.is_default, own.qos, own.default_qos, own.max_wall_s, own.max_per_job) == (
        expected.account, expected.is_default, expected.qos, expected.default_qos, 600.0, {"cpu": 4},
    )  # fmt: skip


@pytest.mark.parametrize("user", ["", "a b", "--help", "a,b", "x" * 100, "a\nb", "name=root"])
def test_whatever_is_no_user_name_is_never_asked_about(user, tmp_path):
    for name in ("scontrol", "sacctmgr"):
        (tmp_path / name).write_text(f"#!/bin/sh\ntouch {tmp_path}/asked\n")
        (tmp_path / name).chmod(0o755)
    assert read_associations(SlurmSection(scontrol=str(tmp_path / "scontrol")), user, cluster=None, patience_s=5.0) == ()
    assert not (tmp_path / "asked").exists()


# slurmrestd: the shapes of its versions.


def set_to(number: int) -> dict[str, object]:
    return {"set": True, "infinite": False, "number": number}


INFINITE = {"set": True, "infinite": True, "number": 0}
OLD = {
    "name": "short", "flags": ["default"], "max_time_limit": 60, "maximum_nodes_per_job": 2, "min nodes per job": 1,
    "state": "UP", "maximum_cpus_per_node": -1, "maximum_memory_per_node": None, "allowed_accounts": "lab", "denied_accounts": "",
    "allowed_qos": "", "denied_qos": "", "qos": "tiny",
}  # fmt: skip
NEW = {
    "name": "short", "maximums": {"time": set_to(60), "nodes": set_to(2), "cpus_per_node": INFINITE}, "minimums": {"nodes": 1},
    "partition": {"state": ["UP"]}, "accounts": {"allowed": "lab", "deny": ""},
    "qos": {"allowed": "", "deny": "", "assigned": "tiny"},
}  # fmt: skip


@pytest.mark.parametrize(("record", "is_default"), [(OLD, True), (NEW, False)])
def test_partitions_of_old_and_new_versions_read_the_same(record, is_default):
    (found,) = partitions_of([record])
    assert found == Partition(
        "short", is_default=is_default, max_time_s=3600.0, max_nodes=2, min_nodes=1, allow_accounts=("lab",), qos="tiny"
    )


@pytest.mark.parametrize(
    "record",
    [
        {
            "cpus": 4,
            "real_memory": 10,
            "state": "idle",
            "state_flags": ["DRAIN"],
            "features": "a,b",
            "gres": "gpu:2",
            "partitions": ["p"],
        },
        {"cpus": 4, "real_memory": 10, "state": ["IDLE", "DRAIN"], "features": ["a", "b"], "gres": "gpu:2", "partitions": ["p"]},
    ],
)
def test_nodes_of_old_and_new_versions_read_the_same(record):
    assert list(nodes_of([record])) == [NodeKind(4, 10 * MIB, {"": 2}, ("a", "b"), ("p",), in_service=0)]


@pytest.mark.parametrize("wrap", [int, set_to])
def test_qos_of_old_and_new_versions_read_the_same(wrap):
    per = {
        "job": [{"type": "cpu", "name": None, "count": 2}, {"type": "gres", "name": "gpu", "count": 1}],
        "node": [],
        "user": [],
    }
    limits = {"max": {"wall_clock": {"per": {"job": wrap(10)}}, "tres": {"per": per, "total": []}}, "min": {}}
    assert list(qos_of([{"name": "tiny", "limits": limits, "flags": ["PARTITION_TIME_LIMIT"]}])) == [
        Qos("tiny", 600.0, {"cpu": 2, "gres/gpu": 1}, flags=("PartitionTimeLimit",))
    ]


@pytest.mark.parametrize(
    "record", [{}, {"name": 5}, {"name": "a b"}, {"name": "x", "maximums": 7, "qos": [1], "partition": "UP"}]
)
def test_records_of_no_sense_do_no_harm(record):
    assert len(list(partitions_of([record]))) <= 1
    assert len(list(qos_of([record]))) <= 1 and list(nodes_of([record])) == []


# What a script asks of a cluster.


def asks(lines: str):
    return resource_request(parse_job_script(f"#!/bin/bash\n#SBATCH {lines}\ntrue\n", name="job.sh"))


def test_a_script_is_read_with_how_its_request_lies_on_nodes():
    found = asks("-p a,b -N 2-4 --ntasks-per-node=8 -c 4 --mem=10G --gres=gpu:a100:2 -C 'icelake&ib' -t 1-0 -A lab -q long")
    assert (found.partitions, found.account, found.qos, found.time_limit_s) == (("a", "b"), "lab", "long", 86400.0)
    assert (found.min_nodes, found.max_nodes, found.tasks_per_node, found.cpus_per_task) == (2, 4, 8, 4)
    assert (found.cpus, found.cpus_on_one_node, found.memory_on_one_node) == (64, 32, 10 * GIB)
    assert (found.gpus_per_node, found.gpus, found.features) == ({"a100": 2}, 4, ("icelake", "ib"))


@pytest.mark.parametrize(
    ("lines", "found"),
    [("--gpus-per-node=2", {"": 2}), ("--gpus-per-node=v100:3", {"v100": 3}), ("--gpus=4", {}), ("--gres=nvme:1", {})],
)
def test_gpus_are_tied_to_nodes_only_where_the_script_says_so(lines, found):
    assert asks(lines).gpus_per_node == found


def test_no_limit_is_a_request_of_its_own():
    assert asks("--time=UNLIMITED").no_time_limit and not asks("--time=5").no_time_limit and not asks("--mem=1G").no_time_limit


@pytest.mark.parametrize("written", ["a|b", "[a*2&b*3]", "a,b", "$X"])
def test_constraints_that_are_more_than_a_list_of_features_are_not_judged(written):
    assert asks(f"--constraint='{written}'").features == ()


MEMORY_UPDATES = {
    "SLURM_VERSION": "26.05.1",
    "SlurmctldParameters": "idle_on_node_suspend,enable_stepmgr",
    "JobAcctGatherType": "jobacct_gather/cgroup",
}


@pytest.mark.parametrize(
    ("changed", "can"),
    [
        ({}, True),
        ({"SLURM_VERSION": "27.11.0-rc1"}, True),
        ({"SLURM_VERSION": "25.11.3"}, False),
        ({"SLURM_VERSION": "(null)"}, False),
        ({"SlurmctldParameters": "(null)"}, False),
        ({"JobAcctGatherType": "jobacct_gather/linux"}, False),
    ],
)
def test_memory_is_given_back_only_where_slurm_is_new_enough_and_set_up_for_it(changed, can):
    assert updates_memory(MEMORY_UPDATES | changed) is can
