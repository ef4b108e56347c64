from datetime import UTC, datetime

import pytest

from stormpetrel.records.outages import MaintenanceWindow
from stormpetrel.sources.slurm.nodes import maintenance_in, maintenance_of

# As `scontrol -o show reservation` of Slurm 22.05 writes it, with SLURM_TIME_FORMAT=%s.
LINE = (
    "ReservationName=root_1 StartTime=1718000000 EndTime=1718003600 Duration=01:00:00 Nodes=n[001-002],gpu3 NodeCnt=3 CoreCnt=12 "
    "Features=(null) PartitionName=debug Flags=MAINT,IGNORE_JOBS,SPEC_NODES TRES=cpu=12 Users=root Groups=(null) Accounts=(null) "
    "Licenses=(null) State=ACTIVE BurstBuffer=(null) Watts=n/a MaxStartDelay=(null)"
)
START, END = datetime(2024, 6, 10, 6, 13, 20, tzinfo=UTC), datetime(2024, 6, 10, 7, 13, 20, tzinfo=UTC)


def windows_in(text):
    return list(maintenance_in(text, cluster="petrel"))


def test_a_reservation_for_maintenance_is_a_window_with_its_nodes():
    assert windows_in(LINE) == [MaintenanceWindow(START, END, frozenset({"n001", "n002", "gpu3"}), "petrel")]


def test_one_of_all_nodes_is_of_the_whole_cluster():
    assert windows_in(LINE.replace("SPEC_NODES", "SPEC_NODES,ALL_NODES")) == [MaintenanceWindow(START, END, cluster="petrel")]


def test_a_date_is_understood_where_an_old_scontrol_does_not_write_seconds():
    assert windows_in(LINE.replace("1718000000", "2024-06-10T06:13:20"))[0].start == START


@pytest.mark.parametrize(
    "text",
    [
        "No reservations in the system\n",
        LINE.replace("MAINT,", ""),
        LINE.replace("MAINT", "NO_MAINT"),
        LINE.replace("n[001-002],gpu3", "(null)"),  # of licences: no node is worked on
        LINE.replace("1718003600", "1718000000"),
        LINE.replace("1718003600", "99999999999999999999"),
        LINE.replace("Flags=MAINT,IGNORE_JOBS,SPEC_NODES", "Flags=SPEC_NODES") + " Comment=not Flags=MAINT",
    ],
)
def test_what_is_no_maintenance_of_nodes_silences_nothing(text):
    assert windows_in(text) == []


def test_slurmrestd_tells_of_maintenance_in_the_shape_of_any_version():
    old = {"name": "r", "flags": "MAINT,SPEC_NODES", "node_list": "n[1-2]", "start_time": 1718000000, "end_time": 1718003600}
    set_to = {"set": True, "infinite": False}
    new = {
        **old,
        "flags": ["MAINT", "SPEC_NODES"],
        "start_time": {**set_to, "number": 1718000000},
        "end_time": {**set_to, "number": 1718003600},
    }
    (window,) = maintenance_of([old], cluster="c1")
    assert [window] == list(maintenance_of([new], cluster="c1")) and window.nodes == {"n1", "n2"}
    (whole,) = maintenance_of([{**new, "flags": ["MAINT", "ALL_NODES"]}], cluster="c1")
    assert whole.nodes == frozenset()
    assert list(maintenance_of([{**new, "flags": []}, {**new, "node_list": ""}, {}], cluster="c1")) == []
