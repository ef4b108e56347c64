"""What is open in the table is what `squeue -r` shows, whatever users do to a real Slurm."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import pytest

from stormpetrel.store.site import Site
from stormpetrel.watch.reading import LiveReader
from tests.builders import make_site
from tests.parts import wait_until
from tests.parts.slurm import RealSlurm
from tests.parts.slurm_acts import SlurmActs, Task, queue_of, quiet

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("slurm")]

LIMIT_S = 120.0  # ten on a quiet machine


@pytest.fixture
def site(slurm, tmp_path, monkeypatch) -> Iterator[Site]:
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


def settle(slurm: RealSlurm, site: Site, reader: LiveReader) -> float:
    """Look until table and queue are the same; how many seconds that took."""
    started = time.monotonic()
    try:
        wait_until(is_true(slurm, site, reader), "open jobs are those of squeue -r", limit_s=LIMIT_S)
    except TimeoutError:
        pytest.fail(difference(slurm, site), pytrace=False)
    return time.monotonic() - started


def test_after_sixty_random_acts_open_jobs_are_those_of_squeue(slurm, site):
    reader, acts = LiveReader(site), SlurmActs(slurm, seed=16)
    try:
        acts.play(60, between=lambda number: reader.read() if number % 7 == 0 else None)
        settle(slurm, site, reader)
    finally:
        acts.end()
    settle(slurm, site, reader)
