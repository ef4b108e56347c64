"""Splits by time: nothing is learnt from what was not known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stormpetrel.learn.splits import INNER_CUTS, ROLLING_CUTS, TIME_CUT, split_between, splits_at, weekly_cuts

JOBS = st.lists(st.tuples(st.integers(0, 30), st.integers(-2, 15), st.booleans()), min_size=1, max_size=40)


def columns(jobs):
    submit = np.array([job[0] for job in jobs], dtype=np.float64)
    end = np.array([job[0] + job[1] for job in jobs], dtype=np.float64)
    end[::7] = np.nan  # some have not ended
    usable = np.array([job[2] for job in jobs]) & ~np.isnan(end)
    return submit, end, usable


@settings(max_examples=150, deadline=None)
@given(JOBS, st.sampled_from([(TIME_CUT,), ROLLING_CUTS, INNER_CUTS]))
def test_nothing_is_learnt_from_a_job_that_ends_at_the_cut_or_later(jobs, quantiles):
    submit, end, usable = columns(jobs)
    for split in splits_at(quantiles, submit, end, usable):
        assert (end[split.train] < split.cut).all() and (submit[split.train] < split.cut).all()
        assert (submit[split.test] >= split.cut).all()
        assert not (split.train & split.test).any()
        assert not ((split.train | split.test) & ~usable).any()
        assert split.purged == int((usable & (submit < split.cut) & ~(end < split.cut)).sum())


@settings(max_examples=150, deadline=None)
@given(JOBS)
def test_test_parts_do_not_overlap_and_hold_everything_after_the_first_cut(jobs):
    submit, end, usable = columns(jobs)
    splits = splits_at(ROLLING_CUTS, submit, end, usable)
    times_tested = sum((split.test.astype(int) for split in splits), np.zeros(len(jobs), dtype=int))
    if splits:
        np.testing.assert_array_equal(times_tested, (usable & (submit >= splits[0].cut)).astype(int))


def test_cuts_are_quantiles_of_the_submissions_of_usable_rows():
    submit = np.arange(100.0)
    usable = submit < 50
    (split,) = splits_at((TIME_CUT,), submit, submit + 0.5, usable)
    assert split.cut == pytest.approx(np.quantile(np.arange(50.0), 0.8))
    assert (split.train.sum(), split.test.sum(), split.purged) == (39, 10, 1)


def test_no_usable_row_is_no_split():
    assert splits_at(ROLLING_CUTS, np.arange(5.0), np.arange(5.0), np.zeros(5, dtype=bool)) == []


def test_a_job_that_ends_at_the_cut_is_purged():
    split = split_between(10.0, np.inf, np.array([1.0, 2.0, 10.0]), np.array([9.0, 10.0, 11.0]), np.ones(3, dtype=bool))
    assert split.train.tolist() == [True, False, False] and split.test.tolist() == [False, False, True] and split.purged == 1


def test_one_row_without_a_time_does_not_spoil_the_cuts():
    submit = np.append(np.arange(100.0), np.nan)
    (split,) = splits_at((TIME_CUT,), submit, submit + 0.5, np.ones(101, dtype=bool))
    assert split.train.any() and split.test.any()


def test_weekly_cuts_are_a_week_apart_and_end_with_the_log():
    cuts = weekly_cuts(0.0, 22 * 86400.0)
    assert cuts == [0.0, 7 * 86400.0, 14 * 86400.0, 21 * 86400.0]
    assert weekly_cuts(5.0, 5.0) == []
