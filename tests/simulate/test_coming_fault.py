from dataclasses import replace

import pytest

from stormpetrel.records.states import JobState
from stormpetrel.simulate.cluster import ended_jobs
from stormpetrel.simulate.demo_site import plan_fault
from stormpetrel.simulate.spec import DAY_S, ClusterSpec, Fault

AFTERNOON_S = 15 * DAY_S + 16 * 3600  # 2024-01-16, a Tuesday
SICK = Fault(16, 10 * DAY_S, 30 * DAY_S)
SPEC = ClusterSpec(nodes=24, load=0.55, days=17, faults=(SICK,))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_node_loses_the_jobs_of_many_users_within_the_hour_and_a_half(seed):
    spec = replace(SPEC, seed=seed)
    coming = plan_fault(spec, AFTERNOON_S)
    node, begin_s = coming.fault.node, coming.fault.start_s
    assert node != SICK.node and AFTERNOON_S <= begin_s < AFTERNOON_S + 2400
    jobs = list(ended_jobs(replace(spec, faults=(SICK, coming.fault)), more=coming.submissions))
    on_it = [job for job in jobs if node in job.nodes and begin_s <= job.start_s < AFTERNOON_S + 5400]
    assert len(on_it) >= 10 and len({job.submission.user for job in on_it}) >= 5
    assert all(job.outcome.state == JobState.FAILED and job.outcome.run_s < 60 for job in on_it)


def test_what_ended_before_the_fault_is_as_it_would_have_been():
    coming = plan_fault(SPEC, AFTERNOON_S)
    faulty = ended_jobs(replace(SPEC, faults=(SICK, coming.fault)), more=coming.submissions)
    before, after = ([job for job in jobs if job.end_s < AFTERNOON_S] for jobs in (ended_jobs(SPEC), faulty))
    assert before == after and len(before) > 1_000
