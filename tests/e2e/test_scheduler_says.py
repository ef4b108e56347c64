"""What a real Slurm says of jobs that wait, and what `check` says of scripts before it: the same cluster, the same limits."""

from __future__ import annotations

import getpass
import json
import stat
from datetime import UTC, datetime
from functools import partial

import polars as pl
import pytest

from stormpetrel.answers.jobs.check import fit_to_site
from stormpetrel.answers.live_site import LiveSite
from stormpetrel.answers.overview.overview import TableQuery
from stormpetrel.answers.viewer import LOCAL
from stormpetrel.ingest.cluster import associations, current_cluster
from stormpetrel.jobs.advice.waiting import why_waiting
from stormpetrel.sources.scripts.job_script import parse_job_script
from stormpetrel.sources.slurm.cluster import read_associations, read_cluster
from stormpetrel.store.cluster_cache import FILE, ClusterCache
from stormpetrel.watch.reading import LiveReader
from tests.builders import make_site, table_of
from tests.parts import wait_until
from tests.parts.command_line import report_of, run, run_here
from tests.parts.slurm import RealSlurm

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("slurm")]

_LIMITS = """
AccountingStorageEnforce=associations,limits,qos
Licenses=matlab:1
PartitionName=short Nodes=n001,n002 MaxTime=60 MaxNodes=1 State=UP
PartitionName=down Nodes=n001 State=DOWN
PartitionName=private Nodes=n001 AllowAccounts=lab State=UP
PartitionName=special Nodes=n001 AllowQos=special State=UP
"""
# name -> (what sbatch is given, the reason that Slurm comes to, its kind, what the sentence holds)
_CASES = {
    "licence": (("--licenses=matlab:1", "--time=5"), "Licenses", "licence", "matlab:1"),
    "constraint": (("--constraint=rare", "--time=5"), "BadConstraints", "never", "rare"),
    "turn": (("--ntasks=4", "--time=5"), "Resources", "turn", ""),
    "queue": (("--ntasks=1", "--time=5"), "Priority", "turn", "higher priority"),
    "time": (("--partition=short", "--time=120"), "PartitionTimeLimit", "never", "2 h; the limit of partition short is 1 h"),
    "nodes": (("--partition=short", "--nodes=2", "--time=5"), "PartitionNodeLimit", "never", "allows a job 1 node"),
    "too many": (("--nodes=3", "--time=5"), "PartitionNodeLimit", "never", "asks for 3 nodes; partition debug has 2 nodes"),
    "cpus": (("--ntasks=100", "--time=5"), "PartitionConfig", "never", "have 8"),
    # Of these two a full cluster says now this, now Resources.
    "account": (("--partition=private", "--time=5"), None, "never", "science"),
    "qos": (("--partition=special", "--time=5"), None, "never", "normal"),
    "qos time": (("--qos=tiny", "--time=60"), "QOSMaxWallDurationPerJobLimit", "never", "limit of QOS tiny is 10 min"),
    "qos cpus": (("--qos=tiny", "--time=5", "--ntasks=3"), "QOSMaxCpuPerJobLimit", "never", "QOS tiny allows 2 CPUs"),
    "qos memory": (("--qos=tiny", "--time=5", "--mem=500"), "QOSMaxMemoryPerJob", "never", "QOS tiny allows 200 MB"),
    "qos nodes": (("--qos=tiny", "--time=5", "--nodes=2"), "QOSMaxNodePerJobLimit", "never", "QOS tiny allows 1 node"),
    "group": (("--qos=group", "--time=5", "--ntasks=2"), "QOSGrpCpuLimit", "limit", "QOS group"),
    "beyond group": (("--qos=group", "--time=5", "--ntasks=4"), "QOSGrpCpuLimit", "never", "QOS group allows 3 CPUs in all"),
    "down": (("--partition=down", "--time=5"), "PartitionDown", "partition", "down"),
    "held": (("--hold", "--time=5"), "JobHeldUser", "held", "by its user"),
    "admin": (("--time=5", "--begin=now+1hour"), "JobHeldAdmin", "held", "by an administrator"),
    "begin": (("--begin=now+1hour", "--time=5"), "BeginTime", "begin time", f"{datetime.now(UTC):%Y-}"),
}  # fmt: skip


@pytest.fixture(scope="module")
def limited():
    """A cluster with partitions, QOS and limits that are enforced, as this process reaches it."""
    with (
        RealSlurm(nodes=2, node_options="Features=rare,common", more_conf=_LIMITS) as slurm,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("SLURM_CONF", slurm.env["SLURM_CONF"])
        manage = lambda *words: slurm.command("sacctmgr", "-i", *words)  # noqa: E731
        manage("add", "account", "lab", "Description=lab", "Organization=lab")
        manage("add", "qos", "tiny", "set", "MaxWall=10", "MaxTRESPerJob=cpu=2,mem=200M,node=1")
        manage("add", "qos", "group", "set", "GrpTRES=cpu=3")
        manage("add", "qos", "special")
        manage("modify", "user", getpass.getuser(), "set", "qos=normal,tiny,group")
        yield slurm


@pytest.fixture(scope="module")
def waiting(limited) -> dict[str, int]:
    """Jobs that wait for everything there is to wait for: name -> job id."""
    failed = limited.submit("--time=5", "--wrap=false")
    limited.wait_for_state(failed, "FAILED")
    long = "--wrap=sleep 600"
    running = limited.submit("--ntasks=6", "--nodes=2", "--licenses=matlab:1", "--time=30", long)
    grouped = limited.submit("--ntasks=2", "--qos=group", "--time=30", long)
    started = ("squeue", "-h", "-t", "RUNNING", "-o", "%i")
    wait_until(lambda: {str(running), str(grouped)} <= set(limited.command(*started).split()), "the cluster is full", limit_s=60)
    jobs = {name: limited.submit(*words, long) for name, (words, *_) in _CASES.items()}
    jobs |= {"parent": limited.submit(f"--dependency=afterok:{running}", long), "running": running, "failed": failed}
    jobs["orphan"] = limited.submit(f"--dependency=afterok:{failed}", long)
    limited.command("scontrol", "hold", str(jobs["admin"]))
    limited.command("scontrol", "update", "NodeName=n001,n002", "AvailableFeatures=common", "ActiveFeatures=common")
    expected = {jobs[name]: reason for name, (_, reason, *_) in _CASES.items() if reason}
    expected |= {jobs["parent"]: "Dependency", jobs["orphan"]: "DependencyNeverSatisfied"}
    wait_until(lambda: not expected.items() - reasons(limited).items(), f"Slurm says {expected}", limit_s=90)
    return jobs


def reasons(slurm: RealSlurm) -> dict[int, str]:
    told = json.loads(slurm.command("squeue", "--all", "--json"))["jobs"]
    return {job["job_id"]: job["state_reason"] for job in told if job["job_state"] == "PENDING"}


@pytest.fixture(scope="module")
def site(limited, waiting, tmp_path_factory):
    """A site that has read the cluster once, as the watch does."""
    slurm = {"since": f"{datetime.now(UTC):%Y-%m-%d}", "pause_s": 0.0, "timeout_s": 60.0}
    with make_site(tmp_path_factory.mktemp("limited") / "site", slurm=slurm) as opened:
        current_cluster(opened, patience_s=60.0)
        assert LiveReader(opened).read().problem is None
        yield opened


def told_of(site, job_id: int, *, alone: bool = False):
    (row,) = table_of(site).filter(pl.col("job_id") == job_id).to_dicts()
    return why_waiting(row, None if alone else site.cluster.known().cluster)


@pytest.mark.parametrize("name", _CASES)
def test_a_waiting_job_is_told_its_kind_and_what_it_waits_for(site, waiting, name):
    _, reason, kind, words = _CASES[name]
    told = told_of(site, waiting[name])
    assert str(told.kind) == kind
    assert told.reason == reason or kind == "turn" or reason is None
    assert words in told.sentence


@pytest.mark.parametrize(
    "name", [name for name, (_, reason, kind, _) in _CASES.items() if kind == "never" and reason not in (None, "QOSGrpCpuLimit")]
)
def test_a_job_that_cannot_run_is_told_so_without_the_cluster_too(site, waiting, name):
    told = told_of(site, waiting[name], alone=True)
    assert told.never_runs and told.change


def test_a_job_that_waits_for_another_names_it(site, waiting):
    told = told_of(site, waiting["parent"])
    assert (str(told.kind), told.waits_for) == ("parent", (str(waiting["running"]),))


def test_a_job_whose_parent_failed_cannot_run(site, waiting):
    told = told_of(site, waiting["orphan"])
    assert told.never_runs and told.waits_for == (str(waiting["failed"]),)


def test_the_command_that_is_told_makes_the_job_fit(limited, site, waiting):
    command = told_of(site, waiting["time"]).command
    assert command == f"scontrol update JobId={waiting['time']} TimeLimit=01:00:00"
    copy = limited.submit("--partition=short", "--time=120", "--wrap=true")
    limited.command(*command.replace(str(waiting["time"]), str(copy)).split())
    wait_until(lambda: reasons(limited).get(copy) != "PartitionTimeLimit", "its limit fits", limit_s=30)


def test_jobs_that_cannot_run_stand_first_in_the_overview(site, waiting):
    live = LiveSite(site)
    live.refresh()
    rows = live.overview.page(LOCAL, TableQuery(sort=(("never_runs", True), ("submit_time", True)), limit=100)).rows
    stuck = {waiting[name] for name, (_, _, kind, _) in _CASES.items() if kind == "never"} | {waiting["orphan"]}
    assert set(rows["job_id"].head(len(stuck))) == stuck
    assert rows.filter(pl.col("job_id") == waiting["time"])["waiting_words"].item().endswith("it fits there.")


def test_why_says_it_before_any_risk(limited, site, waiting):
    report = report_of(run_here(site.folder, "why", str(waiting["time"]), "--json", env=limited.env))
    assert report["waiting"]["never_runs"] and report["waiting"]["reason"] == "PartitionTimeLimit"
    shown = run_here(site.folder, "why", str(waiting["held"]), env=limited.env).stdout
    assert "Held by its user." in shown and f"scontrol release {waiting['held']}" in shown


# The cluster itself.


def test_the_cluster_is_read_as_it_is(site):
    cluster = site.cluster.known().cluster
    assert cluster.name == "petrel" and cluster.enforced == ("associations", "limits", "qos")
    assert cluster.default_partition().name == "debug"
    short = cluster.partition("short")
    assert (short.max_time_s, short.max_nodes, short.state) == (3600.0, 1, "UP")
    assert cluster.partition("down").state == "DOWN" and cluster.partition("private").allow_accounts == ("lab",)
    assert sum(kind.count for kind in cluster.nodes_of("debug")) == 2
    assert {kind.cpus for kind in cluster.nodes} == {4} and {kind.memory_bytes for kind in cluster.nodes} == {4000 * 2**20}
    tiny = cluster.find_qos("tiny")
    assert (tiny.max_wall_s, tiny.max_per_job) == (600.0, {"cpu": 2, "mem": 200 * 2**20, "node": 1})


def test_slurmrestd_shows_the_same_cluster(limited, site):
    told = read_cluster(site.settings.slurm.model_copy(update={"rest_url": limited.rest_socket()}), patience_s=60.0)
    known = site.cluster.known().cluster
    assert told.partitions == known.partitions and told.nodes == known.nodes
    assert {one.name: (one.max_wall_s, one.max_per_job, one.max_in_all) for one in told.qos} == {
        one.name: (one.max_wall_s, one.max_per_job, one.max_in_all) for one in known.qos
    }


def test_what_a_user_may_do_is_asked_for(site):
    (own, *_) = [
        one
        for one in read_associations(site.settings.slurm, getpass.getuser(), cluster="petrel", patience_s=60.0)
        if one.account == "science"
    ]
    assert set(own.qos) == {"normal", "tiny", "group"}


@pytest.mark.parametrize(
    ("lines", "rules"),
    [
        ("--time=30 --ntasks=4", []),
        ("--partition=shrot", ["unknown_partition"]),
        ("--partition=short --time=2:00:00", ["time_above_partition"]),
        ("--partition=short --nodes=2", ["nodes_above_partition"]),
        ("--nodes=3", ["nodes_above_partition"]),
        ("--cpus-per-task=5", ["cpus_above_node"]),
        ("--mem=9000", ["memory_above_node"]),
        ("--gres=gpu:1", ["gpus_above_node"]),
        ("--partition=private --account=science", ["account_not_allowed"]),
        ("--partition=special --qos=normal", ["qos_not_allowed"]),
        ("--qos=tiny --time=60", ["time_above_qos"]),
        ("--qos=tiny --ntasks=3", ["above_limit"]),
        ("--qos=tinny", ["unknown_qos"]),
        ("--constraint=comon", ["unknown_feature"]),
        ("--partition=down", ["partition_not_up"]),
        ("--account=physics", ["unknown_account"]),
    ],
)
def test_a_script_is_compared_with_the_cluster(site, lines, rules):
    request = parse_job_script(f"#!/bin/bash\n#SBATCH {lines}\ntrue\n", name="job.sh")
    associations(site, getpass.getuser(), patience_s=60.0)
    assert [one.rule for one in fit_to_site(site, request, user=getpass.getuser()).problems] == rules


@pytest.mark.parametrize(
    "lines", ["--partition=short --time=2:00:00", "--nodes=3", "--cpus-per-task=5", "--mem=9000", "--partition=short --nodes=2"]
)
def test_the_line_that_is_told_makes_the_script_fit(limited, site, lines):
    text = f"#!/bin/bash\n#SBATCH {lines}\n#SBATCH --account=science\n"
    fit = fit_to_site(site, parse_job_script(text, name="job.sh"), user=getpass.getuser())
    changed = f"{text}{fit.problems[0].line}\ntrue\n"
    assert fit_to_site(site, parse_job_script(changed, name="job.sh"), user=getpass.getuser()).can_run
    path = limited.folder / "work" / "fits.sh"
    path.write_text(changed)
    assert "to start" in limited_test(limited, str(path))


def limited_test(slurm: RealSlurm, script: str) -> str:
    """What sbatch says of a script that it only looks at; it says it on standard error."""
    import subprocess

    return subprocess.run(["sbatch", "--test-only", script], env=slurm.env, capture_output=True, text=True, timeout=60).stderr


def test_check_ends_with_its_own_code_where_the_cluster_cannot_run_the_script(limited, site, tmp_path):
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/bash\n#SBATCH --partition=short --time=2:00:00\ntrue\n")
    done = run(site.folder, "check", str(script), "--json", env=limited.env)
    assert done.returncode == 4
    told = json.loads(done.stdout)["cluster"]
    assert told["can_run"] is False and told["problems"][0]["line"] == "#SBATCH --time=01:00:00"
    shown = run_here(site.folder, "check", str(script), env=limited.env).stdout
    assert shown.index("cannot run it as submitted") < shown.index("No history of this site yet")


# A scheduler that hangs.


@pytest.fixture
def hung(tmp_path):
    """A sacct and a scontrol that never answer."""
    for name in ("sacct", "scontrol", "sacctmgr"):
        program = tmp_path / name
        program.write_text("#!/bin/sh\nexec sleep 600\n")
        program.chmod(0o755)
    return str(tmp_path / "sacct")


def test_a_hung_scheduler_leaves_what_was_known_with_its_age(site, hung, tmp_path):
    old = json.loads((site.folder / FILE).read_text())
    (tmp_path / FILE).write_text(json.dumps({**old, "read_at": "2026-01-01T00:00:00+00:00"}))
    slurm = site.settings.slurm.model_copy(update={"sacct": hung})
    known = ClusterCache(tmp_path, slurm).current(partial(read_cluster, slurm, patience_s=0.2))
    assert known.cluster == site.cluster.known().cluster
    assert "did not answer" in known.problem and known.age_s() > 86400


def test_a_scheduler_that_never_answered_is_a_note_and_no_verdict(site, hung, tmp_path):
    slurm = site.settings.slurm.model_copy(update={"sacct": hung})
    cache = ClusterCache(tmp_path, slurm)
    assert cache.current(partial(read_cluster, slurm, patience_s=0.2)) is None and "did not answer" in cache.problem


def test_what_is_kept_of_the_cluster_is_for_its_owner_and_names_no_user(site):
    path = site.folder / FILE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert f'"{getpass.getuser()}"' not in path.read_text()
