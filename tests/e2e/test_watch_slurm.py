"""`stormpetrel watch` beside a real Slurm: real jobs are judged as they come, within ten seconds, and settled when they end.

Two sites: a new one whose watch is a thread of this process, with its patience shortened, and one that has a model, watched by a
process.
"""

from __future__ import annotations

import io
import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

from stormpetrel.config import SlurmSection
from stormpetrel.ingest.jobs import ingest_jobs
from stormpetrel.lifecycle.job_models import train_job_models
from stormpetrel.lifecycle.live import current_versions
from stormpetrel.lifecycle.running_quality import settled
from stormpetrel.records import predictions
from stormpetrel.records.findings import Finding, FindingKind, SubjectKind
from stormpetrel.records.predictions import LATE_AFTER_S
from stormpetrel.simulate.writing import sacct_text
from stormpetrel.sources.slurm.nodes import read_node_states
from stormpetrel.sources.slurm.sacct_text import SacctText
from stormpetrel.store.site import Site, open_site
from stormpetrel.store.source_health import SourceBook
from stormpetrel.store.watch_status import read_status
from stormpetrel.watch import running, training
from stormpetrel.watch.incident_keeper import IncidentKeeper
from stormpetrel.watch.logs import Log
from stormpetrel.watch.system_findings import SystemFindings
from tests.builders import make_site
from tests.jobs.logs import one_thread
from tests.lifecycle.sites import few_trees
from tests.parts import wait_until
from tests.parts.alarm_findings import finding
from tests.parts.command_line import start
from tests.parts.slurm import RealSlurm
from tests.parts.watched_site import simulated_jobs

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("slurm")]

FIELDS = (
    "JobID JobIDRaw Cluster JobName User Account Partition Submit Start End Elapsed State ExitCode Timelimit ReqCPUS AllocCPUS "
    "ReqNodes NNodes ReqMem NodeList WorkDir"
).split()


def said_of(site: Site, job_id: int) -> pl.DataFrame:
    return site.predictions.read().filter(pl.col("job_id") == job_id).collect().sort("moment_time")


def moments_of(site: Site, job_id: int) -> list[str]:
    return said_of(site, job_id)["moment"].to_list()


def delays_of(said: pl.DataFrame) -> list[float]:
    return said.select((pl.col("predicted_at") - pl.col("moment_time")).dt.total_milliseconds() / 1000).to_series().to_list()


# A new site


@dataclass(frozen=True)
class Life:
    """What was seen of the watch of a site that knew nothing, until it was stopped."""

    waited_for: str  # before there was a model
    models: set[str]
    first: list[str]  # the moments at which the first job was judged
    waits_for: str  # afterwards
    said_while_away: list[str]  # of a job that came, ran and failed while accounting was away
    said_later: pl.DataFrame
    log: list[dict[str, object]]


@pytest.fixture(scope="module")
def life(slurm, overdue, tmp_path_factory) -> Life:
    """A watch of a site that has nothing but a real cluster: no log, no training by hand, no job that lives for two minutes.

    It counts jobs at every look, asks again at once where accounting is away, and calls late what it says after three seconds.
    """
    folder = tmp_path_factory.mktemp("new")
    gate, log = folder / "closed", io.StringIO()
    section = {"since": now_words(), "pause_s": 0.0, "timeout_s": 60.0, "sacct": gated_sacct(gate)}
    make_site(folder / "site", slurm=section, watch={"retrain_min_jobs": 24}).close()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLURM_CONF", slurm.env["SLURM_CONF"])
        patch.setattr(training, "_COUNT_EVERY_S", 0.0)
        patch.setattr(training, "_AT_MOST", 0.0)
        patch.setattr(running, "retry_pause_s", lambda failures, poll_s: poll_s)
        patch.setattr(predictions, "LATE_AFTER_S", 3.0)
        with watching_here(folder / "site", log), open_site(folder / "site") as site:
            learnt = learn_by_itself(slurm, site)
            away = while_accounting_is_away(slurm, site, gate)
    return Life(*learnt, *away, [json.loads(line) for line in log.getvalue().splitlines()])


def learn_by_itself(slurm: RealSlurm, site: Site) -> tuple[str, set[str], list[str], str]:
    wait_until(lambda: (told := read_status(site.state)) and told.waits_for, "it says what it waits for", limit_s=90)
    waited_for = read_status(site.state).waits_for
    for code in (0, 1):
        slurm.submit("--job-name=first", "--time=5", "--array=1-13", f"--wrap=exit {code}")
    wait_until(lambda: "jobs-profiles" in current_versions(site), "it trains by itself", limit_s=300)
    judged = slurm.submit("--job-name=second", "--time=5", "--wrap=sleep 1")
    wait_until(lambda: len(moments_of(site, judged)) == 2, "it judges with what it learnt", limit_s=90)
    return waited_for, set(current_versions(site)), moments_of(site, judged), read_status(site.state).waits_for


def while_accounting_is_away(slurm: RealSlurm, site: Site, gate: Path) -> tuple[list[str], pl.DataFrame]:
    """The real sacct is behind a gate that is closed: what Slurm goes through meanwhile is real."""
    gate.touch()
    job = slurm.submit("--job-name=unseen", "--time=10", "--wrap=exit 1")
    slurm.wait_for_state(job, "FAILED")
    late = timedelta(seconds=predictions.LATE_AFTER_S + 1)
    wait_until(lambda: datetime.now(UTC) - start_of(slurm, job) > late, "it is late", limit_s=30)
    said_while_away = moments_of(site, job)
    gate.unlink()
    wait_until(lambda: len(moments_of(site, job)) == 2, "it is caught up with", limit_s=90)
    return said_while_away, said_of(site, job)


def start_of(slurm: RealSlurm, job: int) -> datetime:
    """When a job started, as Slurm says."""
    text = slurm.command("sacct", "-n", "-P", "-X", "-j", str(job), "-o", "Start").strip()
    return datetime.fromisoformat(text).astimezone(UTC)


@contextmanager
def watching_here(folder: Path, log: io.StringIO) -> Iterator[None]:
    """`watch` as a thread of this process, until the block ends; it reads its standard input and stops when that is closed."""
    problems: list[BaseException] = []

    def work() -> None:
        try:
            with open_site(folder) as site:
                running.run_watch(
                    site, running.WatchOptions(address="", poll_s=0.5, stop_with_stdin=True), Log(log, as_json=True)
                )
        except BaseException as error:
            problems.append(error)

    read, write = os.pipe()
    thread = threading.Thread(target=work, name="watch")
    with os.fdopen(read) as stdin, pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdin", stdin)
        thread.start()
        try:
            yield
        finally:
            os.close(write)
            thread.join(60)
    assert not thread.is_alive() and not problems


def gated_sacct(gate: Path) -> str:
    """The real sacct behind a gate that the test closes."""
    sacct = gate.parent / "sacct"
    sacct.write_text(
        f'#!/bin/sh\n[ -e {gate} ] && {{ echo "sacct: error: slurm_persist_conn_open" >&2; exit 1; }}\nexec sacct "$@"\n'
    )
    sacct.chmod(0o755)
    return str(sacct)


def now_words() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def test_a_new_site_says_what_it_waits_for_and_trains_by_itself_on_jobs_of_seconds(life):
    assert "of 24 ended jobs" in life.waited_for
    assert life.models == {"jobs-profiles", "jobs-submit", "jobs-start"}
    assert life.first == ["submit", "start"]
    assert "longer than two minutes" in life.waits_for
    assert "waiting" in {line["event"] for line in life.log}


def test_accounting_that_is_away_is_caught_up_with_and_what_came_meanwhile_is_marked_late(life):
    assert not life.said_while_away
    assert life.said_later["moment"].to_list() == ["submit", "start"]
    assert life.said_later["late"].all()


# A site with a model


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Iterator[Site]:
    """A site that has learnt from the log of another cluster, and is told to watch the real one."""
    folder = tmp_path_factory.mktemp("watched") / "site"
    slurm = {"since": now_words(), "pause_s": 0.0, "timeout_s": 60.0}
    with make_site(folder, slurm=slurm, watch={"poll_s": 0.5, "address": "", "retrain_hours": 0.0}) as made:
        log = folder.parent / "log.txt"
        jobs = simulated_jobs().with_columns(pl.col("^.*_time$") - timedelta(days=30))
        log.write_text("|".join(FIELDS) + "\n" + sacct_text(jobs, fields=FIELDS, delimiter="|"))
        ingest_jobs(made, SacctText(log))
        with few_trees(), one_thread():
            train_job_models(made)
        yield made


@pytest.fixture(scope="module")
def watched(slurm, overdue, site) -> Iterator[Site]:
    """The site, with a watcher beside it that has looked at the cluster once."""
    process = start(site.folder, "watch", "--json", env=slurm.env)
    try:
        assert json.loads(process.stderr.readline())["event"] == "watching"
        wait_until(lambda: read_status(site.state) is not None, "a first look", limit_s=90)
        yield site
    finally:
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors


def test_a_job_is_judged_when_it_is_submitted_and_when_it_starts_and_settled_when_it_ends(slurm, watched):
    began = watched.now() - timedelta(seconds=1)
    job = slurm.submit("--job-name=judged", "--time=10", "--hold", "--wrap=sleep 3; exit 3")
    wait_until(lambda: moments_of(watched, job) == ["submit"], "it is judged while it waits", limit_s=60)
    slurm.command("scontrol", "release", str(job))
    wait_until(lambda: moments_of(watched, job) == ["submit", "start"], "it is judged at its start", limit_s=60)
    said = said_of(watched, job)
    delays = delays_of(said)  # `benchmarks.watch_slurm` measures them; on a busy machine they are what they are, and told so
    assert max(delays) <= 60.0 and said["late"].to_list() == [delay > LATE_AFTER_S for delay in delays]
    assert said["risk"].is_between(0, 1).all() and (said["model_version"] == 1).all()
    slurm.wait_for_state(job, "FAILED")
    wait_until(
        lambda: settled(watched, since=began).filter(pl.col("failed")).height == 2,
        "both predictions are settled",
        limit_s=60,
    )
    assert moments_of(watched, job) == ["submit", "start"]


def test_an_array_and_a_job_that_never_starts_are_judged_too(slurm, watched):
    array = slurm.submit("--job-name=many", "--time=10", "--array=0-2", "--wrap=sleep 2")
    held = slurm.submit("--job-name=held", "--time=10", "--hold", "--wrap=true")
    wait_until(lambda: moments_of(watched, held) == ["submit"], "the held job is judged", limit_s=60)
    wait_until(lambda: moments_of(watched, array).count("start") == 3, "all tasks are judged at their start", limit_s=60)
    slurm.command("scancel", str(held))
    slurm.wait_for_state(held, "CANCELLED")
    assert moments_of(watched, held) == ["submit"]


@pytest.mark.slow
def test_a_job_is_judged_two_minutes_after_its_start(slurm, watched):
    job = slurm.submit("--job-name=long", "--time=10", "--wrap=sleep 150")
    wait_until(lambda: moments_of(watched, job) == ["submit", "start", "2min"], "it is judged two minutes in", limit_s=200)
    assert max(delays_of(said_of(watched, job))) <= 10.0
    slurm.command("scancel", str(job))


# Maintenance


@pytest.mark.parametrize("through", ["scontrol", "slurmrestd"])
def test_a_node_that_is_reserved_for_maintenance_is_not_paged_about_and_the_others_are(slurm, tmp_path, monkeypatch, through):
    monkeypatch.setenv("SLURM_CONF", slurm.env["SLURM_CONF"])
    reserved, other = slurm.nodes
    words = (f"nodes={reserved}", "starttime=now", "duration=60", "flags=maint,ignore_jobs", "users=root")
    address = {"rest_url": slurm.rest_socket()} if through == "slurmrestd" else {}
    with make_site(tmp_path / "site", site={"cluster": "c1"}, slurm=address) as site:
        keeper = IncidentKeeper(site)
        watcher = SystemFindings(site, SourceBook(patience_s=60.0), note_reserved=keeper.note_reserved)
        slurm.command("scontrol", "create", "reservation", "ReservationName=work", *words)
        try:
            watcher.step(site.now())
        finally:
            slurm.command("scontrol", "delete", "ReservationName=work")
        (worked_on,) = keeper.take("jobs", [sick(reserved, site.now())], "", site.now())
        assert worked_on.held_back == "maintenance" and not worked_on.page
        later = site.now() + timedelta(minutes=30)  # what falls ill together is one incident
        assert [one.page for one in keeper.take("jobs", [sick(other, later)], "", later)] == [True]
        watcher.step(later)  # the reservation was deleted
        assert [one.page for one in keeper.take("jobs", [sick(reserved, later)], "", later)] == [True]


def test_slurmrestd_says_of_every_node_what_scontrol_says(slurm, monkeypatch):
    monkeypatch.setenv("SLURM_CONF", slurm.env["SLURM_CONF"])
    node = slurm.nodes[0]
    slurm.command("scontrol", "update", f"NodeName={node}", "State=DRAIN", "Reason=new disk")
    try:
        said, asked = (
            read_node_states(SlurmSection(**address), patience_s=20.0) for address in ({"rest_url": slurm.rest_socket()}, {})
        )
    finally:
        slurm.command("scontrol", "update", f"NodeName={node}", "State=RESUME")
    facts = [[(one.name, one.is_down, "DRAIN" in one.states, one.reason, one.since) for one in nodes] for nodes in (said, asked)]
    assert facts[0] == facts[1] and (node, False, True, "new disk") in [fact[:4] for fact in facts[0]]


def sick(node: str, now: datetime) -> Finding:
    return finding(FindingKind.NODE_EATS_JOBS, (SubjectKind.NODE, node), when=now, known=now)
