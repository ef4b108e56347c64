"""`stormpetrel watch` beside a real Slurm: real jobs are judged as they come, within ten seconds, and settled when they end."""

from __future__ import annotations

import json
import shutil
import signal
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
from stormpetrel.store.site import Site, open_site
from stormpetrel.store.watch_status import read_status
from tests.builders import make_site
from tests.parts import wait_until
from tests.parts.command_line import change_settings, start
from tests.parts.watched_site import simulated_jobs

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("slurm")]

FIELDS = (
    "JobID JobIDRaw Cluster JobName User Account Partition Submit Start End Elapsed State ExitCode Timelimit ReqCPUS AllocCPUS "
    "ReqNodes NNodes ReqMem NodeList WorkDir"
).split()


@pytest.fixture(scope="module")
def learnt(tmp_path_factory) -> Path:
    """A site that has learnt from the log of another cluster, and is told to watch the real one."""
    folder = tmp_path_factory.mktemp("watched") / "site"
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    slurm = {"since": today, "pause_s": 0.0, "timeout_s": 60.0}
    with make_site(folder, slurm=slurm, watch={"poll_s": 1.0, "address": "", "retrain_hours": 0.0}) as site:
        log = folder.parent / "log.txt"
        jobs = simulated_jobs().with_columns(pl.col("^.*_time$") - timedelta(days=30))
        log.write_text("|".join(FIELDS) + "\n" + sacct_text(jobs, fields=FIELDS, delimiter="|"))
        ingest_jobs(site, SacctText(log))
        train_job_models(site)
    return folder


@pytest.fixture
def site(learnt, tmp_path):
    with open_site(Path(shutil.copytree(learnt, tmp_path / "site"))) as opened:
        yield opened


@pytest.fixture
def watching(slurm, site):
    """A real watcher, which has looked at the cluster once."""
    process = start(site.folder, "watch", "--json", env=slurm.env)
    try:
        assert json.loads(process.stderr.readline())["event"] == "watching"
        wait_until(lambda: read_status(site.state) is not None, "a first look", limit_s=90)
        yield process
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


def test_a_job_is_judged_when_it_is_submitted_and_when_it_starts_and_settled_when_it_ends(slurm, site, watching):
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
        lambda: settled(site, since=site.now() - timedelta(hours=1)).filter(pl.col("failed")).height == 2,
        "both predictions are settled",
        limit_s=60,
    )
    assert moments_of(site, job) == ["submit", "start"]


def test_an_array_and_a_job_that_never_starts_are_judged_too(slurm, site, watching):
    array = slurm.submit("--job-name=many", "--time=10", "--array=0-2", "--wrap=sleep 2")
    held = slurm.submit("--job-name=held", "--time=10", "--hold", "--wrap=true")
    wait_until(lambda: moments_of(site, held) == ["submit"], "the held job is judged", limit_s=60)
    wait_until(lambda: moments_of(site, array).count("start") == 3, "all tasks are judged at their start", limit_s=60)
    slurm.command("scancel", str(held))
    slurm.wait_for_state(held, "CANCELLED")
    assert moments_of(site, held) == ["submit"]


def test_accounting_that_is_away_is_caught_up_with_and_what_came_meanwhile_is_marked_late(slurm, site):
    """The real sacct behind a gate that the test closes: what Slurm goes through meanwhile is real."""
    gate = site.folder / "closed"
    sacct = site.folder / "sacct"
    sacct.write_text(
        f'#!/bin/sh\n[ -e {gate} ] && {{ echo "sacct: error: slurm_persist_conn_open" >&2; exit 1; }}\nexec sacct "$@"\n'
    )
    sacct.chmod(0o755)
    change_settings(site.folder, slurm={"sacct": str(sacct)})
    process = start(site.folder, "watch", "--json", env=slurm.env)
    try:
        wait_until(lambda: read_status(site.state) is not None, "a first look", limit_s=90)
        gate.touch()
        job = slurm.submit("--job-name=unseen", "--time=10", "--wrap=exit 1")
        slurm.wait_for_state(job, "FAILED")
        wait_until(
            lambda: datetime.now(UTC) - said_time(slurm, job) > timedelta(seconds=11), "ten seconds have passed", limit_s=30
        )
        assert not moments_of(site, job)
        gate.unlink()
        wait_until(lambda: moments_of(site, job) == ["submit", "start"], "it is caught up with", limit_s=90)
        assert said_of(site, job)["late"].all()
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


def said_time(slurm, job: int) -> datetime:
    """When a job started, as Slurm says."""
    text = slurm.command("sacct", "-n", "-P", "-X", "-j", str(job), "-o", "Start").strip()
    return datetime.fromisoformat(text).astimezone(UTC)


@pytest.mark.slow
def test_a_job_is_judged_two_minutes_after_its_start(slurm, site, watching):
    job = slurm.submit("--job-name=long", "--time=10", "--wrap=sleep 150")
    wait_until(lambda: moments_of(site, job) == ["submit", "start", "2min"], "it is judged two minutes in", limit_s=200)
    assert max(delays_of(said_of(site, job))) <= 10.0
    slurm.command("scancel", str(job))


def test_a_new_site_says_what_it_waits_for_and_trains_by_itself_on_jobs_of_seconds(slurm, tmp_path):
    """Nothing but a real cluster: no log, no training by hand, and no job that lives for two minutes."""
    folder = tmp_path / "new"
    since = datetime.now(UTC)
    watch = {"poll_s": 1.0, "address": "", "retrain_min_jobs": 24}
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
