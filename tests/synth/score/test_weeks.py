"""Odd and even weeks: which jobs go where, and at what time."""

import numpy as np

from stormpetrel.synth.score.fidelity import hour_of_week
from stormpetrel.synth.score.scorecard import WEEK_S, odd_even_split
from stormpetrel.synth.workload import Workload
from tests.synth.made_workloads import made_workload, workload_at

OFFSET_S = 3 * 86400 + 4000  # the log begins on a Thursday


def weeks_of(*numbers):
    """One job in the middle of each of these weeks, counted from 0, and one at the very beginning."""
    times = [OFFSET_S, *(OFFSET_S + week * WEEK_S + WEEK_S / 2 for week in numbers)]
    return workload_at(np.array(times), cores=[99, *numbers])


def test_weeks_are_numbered_from_the_first_submission():
    odd, even = odd_even_split(weeks_of(0, 1, 2, 3, 4))
    assert odd.jobs["cores"].to_list() == [99, 0, 2, 4]
    assert even.jobs["cores"].to_list() == [1, 3]


def test_weeks_are_closed_up():
    odd, even = odd_even_split(weeks_of(0, 1, 2, 3, 4))
    assert odd.interval_s().tolist() == [WEEK_S / 2, WEEK_S, WEEK_S]
    assert even.interval_s().tolist() == [WEEK_S]


def test_a_week_without_jobs_counts_as_a_week():
    odd, even = odd_even_split(weeks_of(0, 1, 4, 7))  # of the odd weeks the second, of the even ones the third is empty
    assert odd.jobs["cores"].to_list() == [99, 0, 4] and odd.interval_s()[-1] == 2 * WEEK_S
    assert even.jobs["cores"].to_list() == [1, 7] and even.interval_s()[-1] == 3 * WEEK_S


def test_the_hour_of_the_week_stays_and_no_job_is_lost():
    jobs = made_workload(1000, weeks=9)
    odd, even = odd_even_split(jobs)
    together = hour_of_week(odd) * odd.height + hour_of_week(even) * even.height
    assert np.allclose(together, hour_of_week(jobs) * jobs.height)


def test_parts_are_in_the_order_of_submission():
    for part in odd_even_split(made_workload(1000, weeks=9)):
        assert part.interval_s().min() >= 0


def test_the_even_part_of_one_week_is_empty_and_what_is_known_of_the_log_stays():
    log = Workload(workload_at(np.arange(10)).jobs, has_clock=False, notes=("as it is",))
    odd, even = odd_even_split(log)
    assert (odd.height, even.height) == (10, 0)
    assert not even.has_clock and odd.notes == ("as it is",)
    assert [part.height for part in odd_even_split(even)] == [0, 0]
