"""`stormpetrel watch` beside a real Slurm: real jobs are judged as they come, within ten seconds, and settled when they end."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

from stormpetrel.ingest.jobs import ingest_jobs
from stormpetrel.lifecycle.job_models import train_job_models
from stormpetrel.lifecycle.live import current_versions
from stormpetrel.lifecycle.running_quality import settled
from stormpetrel.records.predictions import LATE_AFTER_S
from stormpetrel.simulate.writing import sacct_text
from stormpetrel.sources.sacct_text import SacctText
from stormpetrel.store.site import Site
from stormpetrel.store.watch_status import read_status
from tests.builders import make_site
from tests.parts import wait_until
from tests.parts.command_line import start
from tests.parts.watched_site import simulated_jobs

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("slurm")]

FIELDS = (
    "JobID JobIDRaw Cluster JobName User Account Partition Submit Start End Elapsed State ExitCode Timelimit ReqCPUS AllocCPUS "
    "ReqNodes NNodes ReqMem NodeList WorkDir"
).split()


@pytest.fixture(scope="module")
def gate(tmp_path_factory) -> Path:
    """While this file is there, accounting is away; Slurm itself goes on."""
    return tmp_path_factory.mktemp("gate") / "closed"


@pytest.fixture(scope="module")
def site(gate, tmp_path_factory) -> Iterator[Site]:
    """A site that has learnt from the log of another cluster, and is told to watch the real one, through the gate."""
    folder = tmp_path_factory.mktemp("watched") / "site"
    sacct = gate.parent / "sacct"
    sacct.write_text(
        f'#!/bin/sh\n[ -e {gate} ] && {{ echo "sacct: error: slurm_persist_conn_open" >&2; exit 1; }}\nexec sacct "$@"\n'
    )
    sacct.chmod(0o755)
    since = datetime.now(UTC).isoformat(timespec="seconds")
    slurm = {"since": since, "pause_s": 0.0, "timeout_s": 60.0, "sacct": str(sacct), "squeue": "squeue"}
    with make_site(folder, slurm=slurm, watch={"poll_s": 0.5, "address": "", "retrain_hours": 0.0}) as made:
        log = folder.parent / "log.txt"
        jobs = simulated_jobs().with_columns(pl.col("^.*_time$") - timedelta(days=30))
        log.write_text("|".join(FIELDS) + "\n" + sacct_text(jobs, fields=FIELDS, delimiter="|"))
        ingest_jobs(made, SacctText(log))
        train_job_models(made)
        yield made


@pytest.fixture(scope="module", autouse=True)
def watching(slurm, overdue, site) -> Iterator[None]:
    """A real watcher for all tests, which has looked at the cluster once."""
    process = start(site.folder, "watch", "--json", env=slurm.env)
    try:
        assert json.loads(process.stderr.readline())["event"] == "watching"
        wait_until(lambda: read_status(site.state) is not None, "a first look", limit_s=90)
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors


def said_of(site: Site, job_id: int) -> pl.DataFrame:
    return site.predictions.read().filter(pl.col("job_id") == job_id).collect().sort("moment_time")


def moments_of(site: Site, job_id: int) -> list[str]:
    return said_of(site, job_id)["moment"].to_list()


def delays_of(said: pl.DataFrame) -> list[float]:
    return said.select((pl.col("predicted_at") - pl.col("moment_time")).dt.total_milliseconds() / 1000).to_series().to_list()


def test_a_job_is_judged_when_it_is_submitted_and_when_it_starts_and_settled_when_it_ends(slurm, site):
    began = site.now() - timedelta(seconds=1)
    job = slurm.submit("--job-name=judged", "--time=10", "--hold", "--wrap=sleep 3; exit 3")
    wait_until(lambda: moments_of(site, job) == ["submit"], "it is judged while it waits", limit_s=60)
    slurm.command("scontrol", "release", str(job))
    wait_until(lambda: moments_of(site, job) == ["submit", "start"], "it is judged at its start", limit_s=60)
    said = said_of(site, job)
    delays = delays_of(said)  # `benchmarks.watch_slurm` measures them; on a busy machine they are what they are, and told so
    assert max(delays) <= 60.0 and said["late"].to_list() == [delay > LATE_AFTER_S for delay in delays]
    assert said["risk"].is_between(0, 1).all() and (said["model_version"] == 1).all()
    slurm.wait_for_state(job, "FAILED")
    wait_until(
        lambda: settled(site, since=began).filter(pl.col("failed")).height == 2,
        "both predictions are settled",
        limit_s=60,
    )
    assert moments_of(site, job) == ["submit", "start"]


def test_an_array_and_a_job_that_never_starts_are_judged_too(slurm, site):
    array = slurm.submit("--job-name=many", "--time=10", "--array=0-2", "--wrap=sleep 2")
    held = slurm.submit("--job-name=held", "--time=10", "--hold", "--wrap=true")
    wait_until(lambda: moments_of(site, held) == ["submit"], "the held job is judged", limit_s=60)
    wait_until(lambda: moments_of(site, array).count("start") == 3, "all tasks are judged at their start", limit_s=60)
    slurm.command("scancel", str(held))
    slurm.wait_for_state(held, "CANCELLED")
    assert moments_of(site, held) == ["submit"]


def test_accounting_that_is_away_is_caught_up_with_and_what_came_meanwhile_is_marked_late(slurm, site, gate):
    """The real sacct behind a gate that the test closes: what Slurm goes through meanwhile is real."""
    gate.touch()
    try:
        job = slurm.submit("--job-name=unseen", "--time=10", "--wrap=exit 1")
        slurm.wait_for_state(job, "FAILED")
        wait_until(
            lambda: datetime.now(UTC) - said_time(slurm, job) > timedelta(seconds=LATE_AFTER_S + 1), "it is late", limit_s=30
        )
        assert not moments_of(site, job)
    finally:
        gate.unlink()
    wait_until(lambda: moments_of(site, job) == ["submit", "start"], "it is caught up with", limit_s=90)
    assert said_of(site, job)["late"].all()


def said_time(slurm, job: int) -> datetime:
    """When a job started, as Slurm says."""
    text = slurm.command("sacct", "-n", "-P", "-X", "-j", str(job), "-o", "Start").strip()
    return datetime.fromisoformat(text).astimezone(UTC)


@pytest.mark.slow
def test_a_job_is_judged_two_minutes_after_its_start(slurm, site):
    job = slurm.submit("--job-name=long", "--time=10", "--wrap=sleep 150")
    wait_until(lambda: moments_of(site, job) == ["submit", "start", "2min"], "it is judged two minutes in", limit_s=200)
    assert max(delays_of(said_of(site, job))) <= 10.0
    slurm.command("scancel", str(job))


def test_a_new_site_says_what_it_waits_for_and_trains_by_itself_on_jobs_of_seconds(slurm, tmp_path):
    """Nothing but a real cluster: no log, no training by hand, and no job that lives for two minutes."""
    folder = tmp_path / "new"
    since = datetime.now(UTC)
    watch = {"poll_s": 0.5, "address": "", "retrain_min_jobs": 24}
    with make_site(
        folder, slurm={"since": since.isoformat(timespec="seconds"), "pause_s": 0.0, "timeout_s": 60.0}, watch=watch
    ) as site:
        process = start(folder, "watch", "--json", env=slurm.env)
        try:
            wait_until(lambda: (told := read_status(site.state)) and told.waits_for, "it says what it waits for", limit_s=90)
            assert "of 24 ended jobs" in read_status(site.state).waits_for
            for code in (0, 1):
                slurm.submit("--job-name=first", "--time=5", "--array=1-13", f"--wrap=exit {code}")
            wait_until(lambda: current_versions(site), "it trains by itself", limit_s=300)
            assert set(current_versions(site)) == {"jobs-profiles", "jobs-submit", "jobs-start"}
            judged = slurm.submit("--job-name=second", "--time=5", "--wrap=sleep 3")
            wait_until(lambda: moments_of(site, judged) == ["submit", "start"], "it judges with what it learnt", limit_s=90)
            assert "longer than two minutes" in read_status(site.state).waits_for
        finally:
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
        assert "waiting" in {json.loads(line)["event"] for line in errors.splitlines() if line.startswith("{")}
