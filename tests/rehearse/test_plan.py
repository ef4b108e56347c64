"""The plan of a campaign."""

import pytest

from stormpetrel.errors import UsageError
from stormpetrel.rehearse.plan import JobKind, kinds_of, plan_campaign

ALL = list(JobKind)


def shapes(plan):
    return [tuple((job.job_type, job.cpus) for job in slot.jobs) for slot in plan.slots]


def test_every_type_has_the_cpus_to_itself_once():
    alone = shapes(plan_campaign("train-1", ALL, [0, 1], seed=4))
    assert (("Bad IO", (0, 1)),) in alone
    assert (("Good IO", (0, 1)),) in alone
    assert (("MPI 2", (0, 1)),) in alone
    assert (("NP", (0,)), ("NP", (1,))) in alone  # two fits, two jobs
    assert () in alone  # idle


def test_every_type_but_mpi_runs_beside_two_others():
    plan = plan_campaign("train-1", ALL, [0, 1], seed=4)
    beside = [slot for slot in plan.slots if slot.jobs and not _whole(slot)]
    assert len(beside) == 4
    for job_type in ("NP", "Bad IO", "Good IO"):
        assert sum(job_type in {job.job_type for job in slot.jobs} for slot in beside) == 2


def _whole(slot):
    return len({job.kind for job in slot.jobs}) == 1 and sum(len(job.cpus) for job in slot.jobs) == 2


@pytest.mark.parametrize("cpus", [[0, 1], [3, 5, 8], list(range(32))])
def test_no_cpu_has_two_jobs_at_once(cpus):
    for slot in plan_campaign("c", ALL, cpus, repeat=3).slots:
        taken = [cpu for job in slot.jobs for cpu in job.cpus]
        assert len(taken) == len(set(taken)) and set(taken) <= set(cpus)


def test_the_order_follows_the_seed_and_the_set_of_jobs_does_not():
    one, same, other = (plan_campaign("c", ALL, [0, 1], seed=seed) for seed in (1, 1, 2))
    assert one == same
    assert shapes(one) != shapes(other)
    alone = [{shape for shape in shapes(plan) if len({kind for kind, _ in shape}) < 2} for plan in (one, other)]
    assert {shape for shape in alone[0] if len(shape) != 1 or len(shape[0][1]) == 2} == {
        shape for shape in alone[1] if len(shape) != 1 or len(shape[0][1]) == 2
    }


def test_jobs_are_called_after_their_campaign_and_no_two_alike():
    names = [job.job_id for job in plan_campaign("test-2", ALL, [0, 1], repeat=2).jobs]
    assert len(set(names)) == len(names) and all(name.startswith("test-2.") for name in names)


def test_one_cpu_runs_one_type_after_the_other():
    plan = plan_campaign("c", [JobKind.NP, JobKind.IDLE], [0], repeat=2)
    assert sorted(shapes(plan)) == [(), (), (("NP", (0,)),), (("NP", (0,)),)]


def test_a_plan_says_how_long_it_takes():
    assert plan_campaign("c", [JobKind.NP], [0], seconds_per_job=30, repeat=4).seconds == 120


@pytest.mark.parametrize(
    ("kinds", "cpus", "more", "said"),
    [
        ([], [0], {}, "job types"),
        ([JobKind.NP, JobKind.NP], [0], {}, "each named once"),
        ([JobKind.NP], [], {}, "no list of CPUs"),
        ([JobKind.NP], [0, 0], {}, "no list of CPUs"),
        ([JobKind.MPI], [0], {}, "at least two CPUs"),
        ([JobKind.NP], [0], {"seconds_per_job": 1}, "Jobs of 1 s"),
        ([JobKind.NP], [0], {"seconds_per_job": float("nan")}, "Jobs of nan s"),
        ([JobKind.NP], [0], {"repeat": 0}, "0 repeats"),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(kinds, cpus, more, said):
    with pytest.raises(UsageError, match=said):
        plan_campaign("c", kinds, cpus, **more)


def test_types_are_read_from_a_list():
    assert kinds_of("idle, NP,np") == [JobKind.NP, JobKind.IDLE]


@pytest.mark.parametrize("text", ["", ",", "np,gpu"])
def test_an_unknown_type_is_refused_and_the_known_ones_named(text):
    with pytest.raises(UsageError, match=r"Known: np, bad_io"):
        kinds_of(text)
