"""People come in sessions, by day, in bursts, and each of them is a person of his own."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice, pairwise

import pytest

from stormpetrel.simulate.arrivals import rhythm, submissions
from stormpetrel.simulate.population import make_population
from tests.simulate.made import SMALL

ENDLESS = replace(SMALL, jobs=1, days=None)  # the scheduler counts the jobs, not the users
PEOPLE = make_population(SMALL, SMALL.seed)


@pytest.fixture(scope="module")
def made():
    return list(submissions(PEOPLE, SMALL))


def test_submissions_come_in_time_order_within_the_span(made):
    moments = [job.submit_s for job in made]
    assert moments == sorted(moments)
    assert moments[0] >= 0 and moments[-1] < SMALL.days * 86_400


def test_submissions_are_made_one_at_a_time_without_an_end():
    endless = submissions(PEOPLE, ENDLESS)
    assert len(list(islice(endless, 5000))) == 5000


def test_nobody_asks_for_more_than_there_is(made):
    assert all(1 <= job.cores <= SMALL.cores_per_node for job in made)
    assert all(0 <= job.nodes <= SMALL.nodes for job in made)
    assert all(0 < job.mem_mib <= SMALL.mem_per_node_mib for job in made)


def test_some_requests_are_too_small_and_most_are_not(made):
    too_short = sum(job.need_s > job.limit_s for job in made) / len(made)
    too_little = sum(job.need_mib > job.mem_mib for job in made) / len(made)
    assert 0.003 < too_short < 0.3 and 0.003 < too_little < 0.3


def test_the_tasks_of_an_array_stand_together(made):
    arrays = [job for job in made if job.array_size]
    assert arrays
    for before, job in pairwise(made):
        if job.array_task:
            assert (before.user, before.array_task, before.submit_s) == (job.user, job.array_task - 1, job.submit_s)


def test_a_user_works_by_day_and_less_at_weekends():
    user = replace(PEOPLE.users[0], work_begins_h=8.0, work_hours=10.0, weekend=0.3, present=1.0)
    monday_noon, monday_night, saturday_noon = 12 * 3600, 3 * 3600, 5 * 86_400 + 12 * 3600  # 2024 began on a Monday
    assert rhythm(user, monday_noon, SMALL) == 1.0
    assert rhythm(user, monday_night, SMALL) < 0.1
    assert rhythm(user, saturday_noon, SMALL) == pytest.approx(0.3)


def test_more_skill_means_requests_that_fit():
    def misfits(skill: float) -> float:
        people = replace(PEOPLE, users=tuple(replace(user, skill=skill) for user in PEOPLE.users))
        jobs = list(islice(submissions(people, ENDLESS), 4000))
        return sum(job.need_s > job.limit_s or job.need_mib > job.mem_mib for job in jobs) / len(jobs)

    assert misfits(0.95) < misfits(0.1)


def test_memory_and_run_time_grow_with_the_input_of_an_application():
    for application in PEOPLE.applications:
        assert application.run_power > 0 and application.mem_power > 0


def test_what_one_user_does_does_not_depend_on_the_others(made):
    first = PEOPLE.users[0].number
    alone = replace(PEOPLE, users=tuple(replace(user, retries=0.9) if user.number else user for user in PEOPLE.users))
    again = [job for job in submissions(alone, SMALL) if job.user == first]
    assert again == [job for job in made if job.user == first]
