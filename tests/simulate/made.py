"""What the tests of the simulated cluster share: single submissions, and what a scheduler makes of them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from stormpetrel.simulate.arrivals import NEVER, Submission
from stormpetrel.simulate.outcomes import Reactions
from stormpetrel.simulate.population import make_population
from stormpetrel.simulate.scheduler import EndedJob, Scheduler
from stormpetrel.simulate.spec import ClusterSpec

START = datetime(2024, 1, 1, tzinfo=UTC)
SMALL = ClusterSpec(nodes=6, cores_per_node=16, mem_per_node_gib=64, days=12, load=0.9, seed=7)


def submission(submit_s: int = 0, **given: int) -> Submission:
    """A job of user 0 that needs ten minutes of one core and gets them."""
    usual = {"submit_s": submit_s, "user": 0, "application": 1, "campaign": 1, "array_task": 0, "array_size": 0}
    usual |= {"cores": 1, "nodes": 0, "mem_mib": 1024, "limit_s": 3600, "need_s": 600, "need_mib": 500}
    usual |= {"crash_s": NEVER, "cancel_s": NEVER, "patience_s": NEVER}
    usual |= {"attempt": 9}  # nobody submits it again
    return Submission(**{**usual, **given})


def run(spec: ClusterSpec, jobs: Iterable[Submission]) -> list[EndedJob]:
    """The jobs by id, run on a cluster without outages."""
    scheduler = Scheduler(spec, Reactions(make_population(spec, spec.seed), spec), iter(()))
    return sorted(scheduler.run(iter(jobs)), key=lambda job: job.raw_id)
