"""Servers that the end-to-end tests share: each is started once, when the first test asks for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.parts import wait_until
from tests.parts.postgres import RealPostgres
from tests.parts.slurm import RealSlurm


@pytest.fixture(scope="session")
def slurm() -> Iterator[RealSlurm]:
    """A cluster of two nodes with accounting: some five seconds, once per worker (tests/schedule.py puts its files together)."""
    with RealSlurm(nodes=2) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def overdue(slurm: RealSlurm) -> int:
    """A job beyond its time limit, which Slurm will notice within 35 s: it looks every 30 s, and then waits for the job to end.

    Files that share the cluster ask for it early, so that it is over when `played` in test_live_slurm.py waits for its end.
    """
    job_id = slurm.submit(
        "--job-name=times out", "--time=10", f"--nodelist={slurm.nodes[0]}", "--wrap=touch slow; exec sleep 300"
    )
    wait_until((slurm.folder / "work" / "slow").exists, "the job runs", limit_s=60)
    slurm.command("scontrol", "update", f"jobid={job_id}", "EndTime=now+1")
    return job_id


@pytest.fixture(scope="session")
def postgres() -> Iterator[RealPostgres]:
    """A PostgreSQL server."""
    with RealPostgres() as server:
        yield server
