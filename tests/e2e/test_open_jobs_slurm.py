"""What is open in the table is what `squeue -r` shows, whatever users do to a real Slurm."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from stormpetrel.records.jobs import never_started
from stormpetrel.store.site import Site
from stormpetrel.watch.reading import LiveReader
from tests.builders import make_site, table_of
from tests.parts import wait_until
from tests.parts.command_line import start
from tests.parts.slurm import RealSlurm
from tests.parts.slurm_acts import SlurmActs, Task, queue_of, quiet, seed_of_today

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("slurm")]

LIMIT_S = 120.0  # ten on a quiet machine


@pytest.fixture
def site(slurm, overdue, tmp_path, monkeypatch) -> Iterator[Site]:
    """A site that looks at the real Slurm from this process."""
    monkeypatch.setenv("SLURM_CONF", slurm.env["SLURM_CONF"])
    settings = {"since": f"{datetime.now(UTC):%Y-%m-%d}", "pause_s": 0.0, "timeout_s": 60.0}
    with make_site(tmp_path / "site", slurm=settings, watch={"address": ""}) as made:
        yield made


def open_jobs_of(site: Site) -> set[Task]:
    rows = site.jobs.open_jobs().select("job_id", "array_task", "state").iter_rows()
    return {(job, task, "waits" if state == "PENDING" else "runs") for job, task, state in rows}


def is_true(slurm: RealSlurm, site: Site, reader: LiveReader) -> Callable[[], bool]:
    """Looks once, and says whether table and queue are the same, with the queue itself at rest."""

    def looked() -> bool:
        before = queue_of(slurm)
        read = reader.read()
        assert read.problem is None
        return quiet(slurm) and open_jobs_of(site) == before == queue_of(slurm)

    return looked


def difference(slurm: RealSlurm, site: Site) -> str:
    ours, theirs = open_jobs_of(site), queue_of(slurm)
    return f"open in the table only: {sorted(ours - theirs, key=str)[:9]}; in squeue only: {sorted(theirs - ours, key=str)[:9]}"


def wait_for_accounting(slurm: RealSlurm, *jobs: int) -> None:
    """Wait until accounting knows jobs that wait: what is cancelled sooner is recorded as started, and found by its time."""
    wait_until(lambda: all(slurm.states(job) for job in jobs), f"accounting knows {jobs}", limit_s=LIMIT_S)


def settle(slurm: RealSlurm, site: Site, reader: LiveReader) -> float:
    """Look until table and queue are the same; how many seconds that took."""
    started = time.monotonic()
    try:
        wait_until(is_true(slurm, site, reader), "open jobs are those of squeue -r", limit_s=LIMIT_S)
    except TimeoutError:
        raise AssertionError(difference(slurm, site)) from None
    return time.monotonic() - started


def settle_beside_watch(slurm: RealSlurm, site: Site) -> float:
    """Wait until the watch has made table and queue the same; how many seconds after the queue itself had changed last.

    Users may be done while their arrays go on: of a queue that starts and ends a task every second no picture is true for long.
    """
    changed, before = time.monotonic(), queue_of(slurm)

    def same() -> bool:
        nonlocal changed, before
        ours, theirs = open_jobs_of(site), queue_of(slurm)
        if theirs != before:
            changed, before = time.monotonic(), theirs
        return quiet(slurm) and ours == theirs

    wait_until(same, "open jobs are those of squeue -r", limit_s=LIMIT_S)
    return time.monotonic() - changed


def play_and_settle(slurm: RealSlurm, site: Site, *, count: int, seed: int, look_every: int) -> None:
    """Act at random with looks in between; then nothing more starts, and table and queue are the same, twice."""
    reader = LiveReader(site)
    with SlurmActs(slurm, seed=seed) as acts:
        acts.play(count, between=lambda number: reader.read() if number % look_every == 0 else None)
        with slurm.nothing_starts():
            settle(slurm, site, reader)
            acts.end()
            settle(slurm, site, reader)


def test_after_random_acts_open_jobs_are_those_of_squeue(slurm, site):
    play_and_settle(slurm, site, count=20, seed=seed_of_today(), look_every=7)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [16, 17])
def test_after_many_random_acts_open_jobs_are_those_of_squeue(slurm, site, seed):
    play_and_settle(slurm, site, count=60, seed=seed, look_every=7)


def test_six_held_arrays_that_were_cancelled_leave_nothing_open(slurm, site):
    reader = LiveReader(site)
    arrays = [slurm.submit("--hold", "--mem=10", "--array=0-999", "--wrap=true") for _ in range(6)]
    settle(slurm, site, reader)
    assert site.jobs.open_jobs().filter(pl.col("job_id").is_in(arrays)).height == 6000
    wait_for_accounting(slurm, *arrays)
    slurm.command("scancel", *map(str, arrays))
    settle(slurm, site, reader)
    rows = table_of(site).filter(pl.col("job_id").is_in(arrays))
    assert rows["state"].unique().to_list() == ["CANCELLED"] and rows.height == 6000
    assert rows.select(never_started()).to_series().all() and rows["end_time"].null_count() == 0


def test_each_way_of_never_starting_is_cancelled_before_it_started(slurm, site):
    reader = LiveReader(site)
    submit = lambda *words: slurm.submit("--mem=10", *words, "--wrap=sleep 600")  # noqa: E731
    held, later, array = submit("--hold"), submit("--begin=now+1hour"), submit("--hold", "--array=0-9")
    dependent, hopeless = (
        submit(f"--dependency=afterok:{held}"),
        submit(f"--dependency=afterok:{held}", "--kill-on-invalid-dep=yes"),
    )
    settle(slurm, site, reader)
    wait_for_accounting(slurm, held, later, array, dependent, hopeless)
    slurm.command("scancel", str(held), str(later), str(dependent), f"{array}_3", f"{array}_[5-6]")
    settle(slurm, site, reader)
    over = table_of(site).filter(pl.col("job_id").is_in([held, later, array, dependent, hopeless]), never_started())
    assert set(over.select("job_id", "array_task").iter_rows()) == {
        (held, None), (later, None), (dependent, None), (hopeless, None), (array, 3), (array, 5), (array, 6)
    }  # fmt: skip
    assert over["state"].unique().to_list() == ["CANCELLED"]
    slurm.command("scancel", str(array))


def test_a_queue_at_rest_moves_no_version_of_any_table(slurm, site):
    # What ended in the second that is not over is not asked for yet: jobs of other tests may have.
    wait_until(lambda: datetime.now() - last_end(slurm) > timedelta(seconds=2), "nothing ended just now", limit_s=LIMIT_S)
    reader = LiveReader(site)
    job = slurm.submit("--hold", "--mem=10", "--array=0-99", "--wrap=true")
    settle(slurm, site, reader)
    wait_until(lambda: reader.read() and told_by_accounting(site), "accounting is asked for what runs, seconds later", limit_s=60)
    tables = (site.jobs.table, site.jobs.sightings)

    def at_rest() -> bool:
        before = [table.version() for table in tables]
        reads = [reader.read() for _ in range(3)]
        return not any(read.new or read.changed for read in reads) and [table.version() for table in tables] == before

    wait_until(at_rest, "three looks write nothing", limit_s=LIMIT_S)
    before = (last_end(slurm), queue_of(slurm))
    assert at_rest() or (last_end(slurm), queue_of(slurm)) != before
    slurm.command("scancel", str(job))


def told_by_accounting(site: Site) -> bool:
    """Whether the table has of every job that runs what only accounting tells."""
    return table_of(site).filter(pl.col("state") == "RUNNING")["submit_line"].null_count() == 0


def last_end(slurm: RealSlurm) -> datetime:
    """When the last job ended, as accounting says; in this machine's zone, as sacct tells it."""
    ends = slurm.command("sacct", "-a", "-D", "-X", "-n", "-P", "-o", "End").split()
    return max((datetime.fromisoformat(end) for end in ends if end != "Unknown"), default=datetime.min)


@pytest.mark.parametrize("count", [10, pytest.param(25, marks=pytest.mark.slow)])
def test_a_site_that_reads_slurmrestd_sees_the_same(slurm, tmp_path, count):
    settings = {"since": f"{datetime.now(UTC):%Y-%m-%d}", "pause_s": 0.0, "timeout_s": 60.0, "rest_url": slurm.rest_socket()}
    with make_site(tmp_path / "rest", slurm=settings, watch={"address": ""}) as site:
        play_and_settle(slurm, site, count=count, seed=seed_of_today() + count, look_every=5)


def test_a_job_that_was_requeued_is_two_rows_of_which_one_is_open(slurm, site):
    reader = LiveReader(site)
    job = slurm.submit("--requeue", "--mem=10", "--wrap=sleep 600")
    slurm.wait_for_state(job, "RUNNING")
    settle(slurm, site, reader)
    slurm.command("scontrol", "requeue", str(job))
    slurm.wait_for_state(job, "REQUEUED")
    settle(slurm, site, reader)
    rows = table_of(site).filter(pl.col("job_id") == job).sort("submit_time")
    assert rows["state"].to_list() == ["REQUEUED", "PENDING"]
    slurm.command("scancel", str(job))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_within_ten_seconds_of_the_last_of_three_hundred_acts_the_watch_shows_what_squeue_does(slurm, tmp_path, seed):
    """The real watch, at its own pace, beside users of whom none knows of the other. `pytest -s` shows the times."""
    users = [slurm.add_user(name) for name in ("games", "news")]
    settings = {"since": f"{datetime.now(UTC):%Y-%m-%d}", "pause_s": 0.0, "timeout_s": 60.0}
    with (
        make_site(tmp_path / "site", slurm=settings, watch={"address": "", "retrain_hours": 0.0}) as site,
        SlurmActs(slurm, seed=seed, users=("", *users)) as acts,
    ):
        process = start(site.folder, "watch", "--json", env=slurm.env)
        try:
            wait_until(lambda: open_jobs_of(site) == queue_of(slurm), "a first look", limit_s=LIMIT_S)
            acts.play(300)
            assert acts.late < 100 and len(acts.jobs) > 100
            acted_s = settle_beside_watch(slurm, site)
            acts.end()
            ended_s = settle_beside_watch(slurm, site)
            when = f"{acted_s:.1f} s after 300 acts and what came of them, {ended_s:.1f} s after all were cancelled"
            print(f"\nseed {seed}: open jobs are those of squeue -r {when}; load {os.getloadavg()[0]:.0f}")  # noqa: T201
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=120)
