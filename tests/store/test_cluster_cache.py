"""What is kept of the cluster: fresh, old, damaged, or of a scheduler that does not answer."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from stormpetrel.config import SlurmSection
from stormpetrel.records.cluster import Cluster, NodeKind, Partition, Qos
from stormpetrel.sources.slurm.cluster import read_cluster
from stormpetrel.store.cluster_cache import FILE, ClusterCache

PARTITIONS = "PartitionName=short MaxTime=01:00:00 Default=YES State=UP"
NODES = "NodeName=n1 CPUTot=4 RealMemory=1024 State=IDLE Partitions=short Gres=gpu:2"
CLUSTER = Cluster(
    (Partition("short", is_default=True, max_time_s=3600.0),),
    (NodeKind(4, 1024**3, {"": 2}, (), ("short",)),),
    (Qos("tiny", 600.0, {"cpu": 2}),),
    ("limits",),
    "main",
)


@pytest.fixture
def slurm(tmp_path) -> SlurmSection:
    """A scontrol and a sacctmgr that answer at once, and count how often they are asked."""
    answers = {"partition": PARTITIONS, "node": NODES, "config": "AccountingStorageEnforce = limits\nClusterName = main"}
    cases = "\n".join(f'*{name}*) cat <<"END"\n{text}\nEND\n;;' for name, text in answers.items())
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "scontrol").write_text(f'#!/bin/sh\necho . >> {programs}/asked\ncase "$*" in\n{cases}\nesac\n')
    (programs / "sacctmgr").write_text('#!/bin/sh\necho "tiny|00:10:00|cpu=2||||||"\n')
    for name in ("scontrol", "sacctmgr"):
        (programs / name).chmod(0o755)
    return SlurmSection(scontrol=str(programs / "scontrol"))


def asking(slurm: SlurmSection, patience_s: float = 1.0):
    return partial(read_cluster, slurm, patience_s=patience_s)


def asked(slurm: SlurmSection) -> int:
    from pathlib import Path

    path = Path(slurm.scontrol).parent / "asked"
    return len(path.read_text().split()) if path.exists() else 0


def hang(slurm: SlurmSection) -> None:
    from pathlib import Path

    Path(slurm.scontrol).write_text("#!/bin/sh\nexec sleep 600\n")


def age(folder, **by: float) -> None:
    document = json.loads((folder / FILE).read_text())
    read_at = datetime.fromisoformat(document["read_at"]) - timedelta(**by)
    (folder / FILE).write_text(json.dumps({**document, "read_at": read_at.isoformat()}))


def test_what_is_read_is_kept_for_other_processes(tmp_path, slurm):
    assert ClusterCache(tmp_path, slurm).current(asking(slurm, 20.0)).cluster == CLUSTER
    assert ClusterCache(tmp_path, slurm).known().cluster == CLUSTER
    assert asked(slurm) == 3


def test_what_is_young_enough_is_not_asked_for_again(tmp_path, slurm):
    cache = ClusterCache(tmp_path, slurm)
    cache.current(asking(slurm, 20.0))
    cache.current(asking(slurm, 20.0))
    assert asked(slurm) == 3


def test_what_is_too_old_is_asked_for_again(tmp_path, slurm):
    ClusterCache(tmp_path, slurm).current(asking(slurm, 20.0))
    age(tmp_path, minutes=11)
    assert ClusterCache(tmp_path, slurm).current(asking(slurm, 20.0)).age_s() < 60
    assert asked(slurm) == 6


def test_a_hung_scheduler_costs_its_patience_once_and_leaves_what_was_known(tmp_path, slurm):
    ClusterCache(tmp_path, slurm).current(asking(slurm, 20.0))
    age(tmp_path, hours=5)
    hang(slurm)
    cache = ClusterCache(tmp_path, slurm)
    known = cache.current(asking(slurm, 0.3))
    assert known.cluster == CLUSTER and known.age_s() > 4 * 3600 and "did not answer" in known.problem
    started = time.monotonic()
    assert cache.current(asking(slurm, 60.0)).problem == known.problem
    assert time.monotonic() - started < 30.0  # it was not asked again


def test_a_database_that_hangs_leaves_partitions_and_nodes(tmp_path, slurm):
    from pathlib import Path

    (Path(slurm.scontrol).parent / "sacctmgr").write_text("#!/bin/sh\nexec sleep 600\n")
    known = ClusterCache(tmp_path, slurm).current(asking(slurm, 3.0))
    assert known.cluster.partitions == CLUSTER.partitions and known.cluster.qos is None


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '{"format": 1}',
     '{"format": 99, "read_at": "2026-01-01T00:00:00+00:00", "cluster": {"partitions": []}}',
     '{"format": 1, "read_at": "never", "cluster": {}}', '{"format": 1, "read_at": "2026-01-01T00:00:00+00:00", "cluster": 5}',
     '{"format": 1, "read_at": "9999-01-01T00:00:00+00:00", "cluster": {"partitions": []}}', "[" * 100_000],
)  # fmt: skip
def test_a_damaged_file_is_made_anew(tmp_path, slurm, text):
    (tmp_path / FILE).write_text(text)
    assert ClusterCache(tmp_path, slurm).known() is None
    assert ClusterCache(tmp_path, slurm).current(asking(slurm, 20.0)).cluster == CLUSTER


def test_a_site_without_slurm_knows_no_cluster_and_has_no_problem(tmp_path):
    slurm = SlurmSection(sacct=str(tmp_path / "nothing"))
    cache = ClusterCache(tmp_path, slurm)
    assert cache.current(asking(slurm)) is None and cache.problem is None


def test_nothing_is_read_where_that_is_switched_off(tmp_path, slurm):
    assert ClusterCache(tmp_path, slurm.model_copy(update={"cluster_minutes": 0.0})).current(asking(slurm)) is None
    assert asked(slurm) == 0


def test_a_folder_that_cannot_be_written_is_no_hindrance(tmp_path, slurm):
    assert ClusterCache(tmp_path / "not there", slurm).current(asking(slurm, 20.0)).cluster == CLUSTER


def test_a_link_in_the_place_of_the_file_is_replaced_not_followed(tmp_path, slurm):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / FILE).symlink_to(victim)
    ClusterCache(tmp_path, slurm).current(asking(slurm, 20.0))
    assert victim.read_text() == "mine" and not (tmp_path / FILE).is_symlink()


def test_time_is_kept_in_utc(tmp_path, slurm):
    assert ClusterCache(tmp_path, slurm).current(asking(slurm, 20.0)).read_at.tzinfo is UTC
