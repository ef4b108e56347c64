"""What decides between a champion and its challengers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from stormpetrel.lifecycle.contests.decision import (
    Compute,
    FamilyNight,
    Stopwatch,
    difference_of,
    level_for,
    span_name,
    spans_of,
    worse_groups,
)

RNG = np.random.default_rng(0)


def test_a_clear_difference_is_better_and_noise_is_neither():
    rows = np.arange(400)
    assert difference_of(RNG.normal(-0.2, 0.5, 400), rows).better
    noise = difference_of(RNG.normal(0.0, 0.5, 400), rows)
    assert not noise.better and not noise.worse


def test_more_comparisons_make_each_interval_wider():
    values, rows = RNG.normal(0.0, 1.0, 200), np.arange(200)
    one, of_ten = difference_of(values, rows), difference_of(values, rows, level=level_for(10))
    assert of_ten.low < one.low and of_ten.high > one.high


def test_a_large_group_that_fares_worse_is_named_and_small_ones_are_not():
    names = np.repeat(["ada", "ben", "eve"], [100, 100, 5])
    values = np.where(names == "ada", -0.5, 0.5) + RNG.normal(0, 0.1, names.size)
    assert worse_groups(values, names, np.arange(names.size), fewest=50) == (["ben"], 2)


@pytest.mark.parametrize(
    ("night", "sentence"),
    [
        (FamilyNight("jobs", True, "better", "jobs-2", "jobs-1"), "jobs-2 is in use now in place of jobs-1: better."),
        (FamilyNight("jobs", False, "worse", "jobs-2", "jobs-1"), "jobs-1 stays in use. jobs-2 is kept, not in use: worse."),
        (FamilyNight("jobs", False, "not trained: no jobs", None, "jobs-1"), "jobs-1 stays in use; not trained: no jobs."),
    ],
)
def test_a_night_is_told_in_one_sentence(night, sentence):
    assert night.sentence() == sentence


def test_what_was_used_is_measured():
    watch = Stopwatch()
    np.linalg.svd(RNG.random((200, 200)))
    used = watch.read()
    assert used.cpu_s > 0 and used.seconds > 0 and used.peak_bytes > 1_000_000


def test_what_was_used_is_told_in_words():
    assert Compute(12.3, 20.1, 310_000_000).words() == "12 s, 20 s of CPU, 310 MB"


def test_spans_end_with_everything():
    until = datetime(2026, 1, 8, tzinfo=UTC)
    assert list(spans_of([0.0, 7.0, 1.0], until)) == [
        (1.0, until - timedelta(days=1)),
        (7.0, until - timedelta(days=7)),
        (0.0, None),
    ]
    assert [span_name(days) for days in (1.0, 7.0, 0.0)] == ["1 day", "7 days", "everything"]
