from datetime import UTC, datetime

from stormpetrel.sources.slurm.nodes import node_states_in, node_states_of

# As `scontrol -o show node` of Slurm 22.05 writes it, with SLURM_TIME_FORMAT=%s; shortened.
TEXT = """\
NodeName=n1 Arch=x86_64 CoresPerSocket=1 CPUAlloc=0 CPUEfctv=1 State=IDLE ThreadsPerCore=1 Partitions=debug BootTime=1718000000
NodeName=n2 State=DOWN+DRAIN+NOT_RESPONDING Partitions=debug  Reason=disk State=IDLE broken, see [ticket] [root@1718000000]
NodeName=n3 CPUTot=1 State=DOWN* Partitions=debug Reason=Not responding [slurm@2024-06-10T06:13:20]
NodeName=n4 State=FUTURE
nothing that could be read
"""


def test_the_state_of_each_node_with_its_reason_and_since_when():
    idle, broken, silent = node_states_in(TEXT)
    assert (idle.name, idle.is_down, idle.reason) == ("n1", False, "")
    moment = datetime(2024, 6, 10, 6, 13, 20, tzinfo=UTC)
    assert broken.is_down and broken.reason == "disk State=IDLE broken, see [ticket]" and broken.since == moment
    assert silent.is_down and "NOT_RESPONDING" in silent.states and silent.since == moment


def test_a_reason_cannot_pretend_to_be_a_state():
    (node,) = node_states_in("NodeName=n9 State=DOWN Reason=x State=IDLE [root@99999999999999999999]")
    assert node.is_down and node.since is None


def test_slurmrestd_tells_the_same_in_the_shape_of_any_version():
    old = {
        "name": "n2",
        "state": "down",
        "state_flags": ["DRAIN", "NOT_RESPONDING"],
        "reason": "disk",
        "reason_changed_at": 1718000000,
    }
    new = {
        "name": "n2",
        "state": ["DOWN", "DRAIN", "NOT_RESPONDING"],
        "reason": "disk",
        "reason_changed_at": {"set": True, "infinite": False, "number": 1718000000},
    }
    assert list(node_states_of([old])) == list(node_states_of([new]))
    (node,) = node_states_of([new])
    assert node.is_down and node.since == datetime(2024, 6, 10, 6, 13, 20, tzinfo=UTC)
    assert list(node_states_of([{"name": 7}, {"name": "n3", "state": ["FUTURE"]}, {}])) == []
