"""First come, first served with backfill: nothing is overbooked, and nobody passes the first of the queue at its cost."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from itertools import pairwise

import pytest

from stormpetrel.records.states import JobState
from stormpetrel.simulate.cluster import ended_jobs
from stormpetrel.simulate.outcomes import KILL_WAIT_S
from stormpetrel.simulate.scheduler import MAX_WAITING, EndedJob
from stormpetrel.simulate.spec import ClusterSpec, Fault
from tests.simulate.made import SMALL, run, submission

TWO_NODES = ClusterSpec(nodes=2, cores_per_node=4, mem_per_node_gib=8, days=1)


@pytest.fixture(scope="module")
def busy() -> list[EndedJob]:
    """Some days of a small cluster under load, with outages."""
    return list(ended_jobs(replace(SMALL, node_failures_per_year=20.0)))


def most_held(jobs: list[EndedJob], spec: ClusterSpec) -> tuple[int, int]:
    """The most cores and MiB that were held on any node at any time."""
    changes = defaultdict(list)
    for job in jobs:
        asked = job.submission
        cores, mib = (spec.cores_per_node, spec.mem_per_node_mib) if asked.nodes else (asked.cores, asked.mem_mib)
        for node in job.nodes:
            changes[node] += [(job.start_s, 1, cores, mib), (job.end_s, 0, -cores, -mib)]  # what ends makes room first
    most_cores = most_mib = 0
    for events in changes.values():
        cores = mib = 0
        for _, _, more_cores, more_mib in sorted(events):
            cores, mib = cores + more_cores, mib + more_mib
            most_cores, most_mib = max(most_cores, cores), max(most_mib, mib)
    return most_cores, most_mib


def test_no_job_starts_before_its_submission(busy):
    assert all(job.start_s >= job.submission.submit_s for job in busy if job.start_s >= 0)
    assert all(job.end_s >= job.submission.submit_s for job in busy)


def test_a_node_never_holds_more_than_it_has(busy):
    cores, mib = most_held(busy, SMALL)
    assert cores == SMALL.cores_per_node  # and it was full at some time, or this would prove nothing
    assert SMALL.mem_per_node_mib * 0.9 < mib <= SMALL.mem_per_node_mib


def test_jobs_come_out_in_the_order_in_which_they_end(busy):
    ends = [job.end_s for job in busy]
    assert ends == sorted(ends)


def test_every_submission_comes_out_once(busy):
    ids = sorted(job.raw_id for job in busy)
    assert ids == list(range(SMALL.first_job_id, SMALL.first_job_id + len(busy)))


def test_the_first_of_the_queue_starts_by_its_reservation():
    jobs = list(ended_jobs(replace(SMALL, node_failures_per_year=0.0)))
    promised = [job for job in jobs if job.reserved_s >= 0]
    assert len(promised) > 100
    assert all(job.start_s <= job.reserved_s for job in promised)
    started = sorted((job for job in jobs if job.start_s >= 0), key=lambda job: (job.start_s, job.raw_id))
    assert any(later.raw_id < earlier.raw_id for earlier, later in pairwise(started)), "nothing was backfilled"


def test_a_short_job_passes_and_a_long_one_does_not():
    holder, wide, short, long = run(
        TWO_NODES,
        [
            submission(0, cores=4, need_s=500, limit_s=600),
            submission(1, nodes=2, need_s=100, limit_s=300),
            submission(2, cores=4, need_s=60, limit_s=300),
            submission(3, cores=4, need_s=60, limit_s=1000),
        ],
    )
    assert wide.reserved_s == 600 + KILL_WAIT_S
    assert short.start_s == 2
    assert wide.start_s == holder.end_s == 500
    assert long.start_s == wide.end_s


def test_a_long_job_passes_on_a_node_that_the_first_does_not_need():
    first, second, waits, passes = run(
        TWO_NODES,
        [
            submission(0, cores=4, need_s=500, limit_s=600),
            submission(0, cores=3, need_s=900, limit_s=1000),
            submission(1, cores=4, need_s=10, limit_s=60),
            submission(2, cores=1, need_s=5000, limit_s=6000),
        ],
    )
    assert (waits.start_s, waits.nodes) == (500, first.nodes)
    assert (passes.start_s, passes.nodes) == (2, second.nodes)


def test_memory_alone_makes_a_job_wait():
    first, second, third = run(TWO_NODES, [submission(k, cores=1, mem_mib=6000, need_s=100) for k in range(3)])
    assert first.nodes != second.nodes
    assert third.start_s == first.end_s


def test_a_user_who_is_tired_of_waiting_cancels_and_the_next_one_starts():
    _, gone, next_one = run(
        TWO_NODES,
        [
            submission(0, cores=4, need_s=500),
            submission(1, nodes=2, patience_s=100),
            submission(2, cores=4, limit_s=86_400),
        ],
    )
    assert (gone.outcome.state, gone.start_s, gone.end_s, gone.nodes) == (JobState.CANCELLED, -1, 101, ())
    assert next_one.start_s == 101


def test_a_user_with_a_long_queue_holds_back():
    jobs = run(
        replace(TWO_NODES, nodes=1), [submission(k, cores=4, need_s=100_000, limit_s=200_000) for k in range(3 * MAX_WAITING)]
    )
    assert len(jobs) == MAX_WAITING + 1


def test_a_node_that_goes_down_takes_its_jobs_with_it(busy):
    lost = [job for job in busy if job.outcome.state == JobState.NODE_FAIL]
    assert lost
    assert all(job.outcome.run_s == job.end_s - job.start_s < job.submission.limit_s + KILL_WAIT_S for job in lost)


def test_a_sick_node_fails_what_it_gets_and_no_other_does():
    spec = replace(SMALL, faults=(Fault(node=2, start_s=3 * 86_400, until_s=6 * 86_400),), node_failures_per_year=0.0)
    jobs = [job for job in ended_jobs(spec) if job.start_s >= 0]
    on_it = [job for job in jobs if 2 in job.nodes and 3 * 86_400 <= job.start_s < 6 * 86_400]
    assert len(on_it) > 20
    assert all(job.outcome.state == JobState.FAILED and job.outcome.run_s < 30 for job in on_it)
    before = [job for job in jobs if 2 in job.nodes and job.start_s < 3 * 86_400]
    assert sum(job.outcome.state == JobState.COMPLETED for job in before) > len(before) / 2


def test_an_array_has_one_id_and_its_tasks_have_their_own():
    jobs = run(TWO_NODES, [submission(0, array_task=k, array_size=3) for k in range(3)])
    assert [job.job_id for job in jobs] == [jobs[0].raw_id] * 3
    assert len({job.raw_id for job in jobs}) == 3
