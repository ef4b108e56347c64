"""The load by week out of jobs and out of counts: sums that can be checked by hand, gaps, and what is not over yet."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from stormpetrel.events.capacity.weeks import (
    LoadUnit,
    LogFacts,
    core_hours_held,
    load_of_counts,
    load_of_pieces,
    rows_of,
)
from stormpetrel.records.event_series import EventSeries
from stormpetrel.records.jobs import job_frame
from tests.events.loads import MONDAY, end_of, load_of_jobs, steady_jobs

HOUR = timedelta(hours=1)


def job(number, submit, *, wait=timedelta(0), run=HOUR, cpus=4, account="a", **others):
    start = None if wait is None else submit + wait
    return {
        "cluster": "c", "job_id": number, "restart": 0, "submit_time": submit, "start_time": start, "cpus": cpus,
        "account": account, "end_time": None if run is None or start is None else start + run, "time_limit_s": 7200.0, **others,
    }  # fmt: skip


def weekly(weeks, **others):
    """A job at the beginning of each week, and one in the middle of the week after them."""
    rows = [job(number, MONDAY + timedelta(weeks=number), **others) for number in range(weeks)]
    return [*rows, job(weeks, MONDAY + timedelta(weeks=weeks, days=3), **others)]


def test_core_hours_are_counted_in_the_week_of_submission():
    late = job(99, MONDAY + timedelta(days=6, hours=23), wait=timedelta(days=3), run=10 * HOUR, cpus=8)
    record = load_of_jobs(job_frame([*weekly(4), late]), now=end_of(10), zone="UTC")
    first = record.weeks.row(0, named=True)
    assert first["week"] == date(2025, 1, 6) and first["load"] == 4 + 80 and first["jobs"] == 2
    assert record.weeks["ended"].to_list() == [1, 2, 1]
    assert first["asked"] == 4 * 2 + 8 * 2


def test_weeks_begin_on_monday_by_the_clock_on_the_wall():
    sunday_night = MONDAY + timedelta(weeks=1) - timedelta(minutes=30)  # in Berlin it is Monday
    rows = [*weekly(3), job(50, sunday_night, cpus=100)]
    loads = {
        zone: load_of_jobs(job_frame(rows), now=end_of(9), zone=zone).weeks["load"].to_list() for zone in ("UTC", "Europe/Berlin")
    }
    assert [load > 50 for load in loads["UTC"]] == [True, False, False]
    assert [load > 50 for load in loads["Europe/Berlin"]] == [False, True, False]


def test_the_week_that_is_not_over_and_those_of_jobs_that_still_run_unseen_are_left_out():
    """A log of ended jobs only: what was submitted shortly before its end is not in it yet."""
    now = MONDAY + timedelta(weeks=6, days=3)
    rows = [*weekly(5, run=timedelta(days=9)), job(60, now - timedelta(days=1))]
    assert load_of_jobs(job_frame(rows), now=now, zone="UTC").weeks.height == 5
    running = [*rows, job(61, now - timedelta(days=1), run=None)]
    assert load_of_jobs(job_frame(running), now=now, zone="UTC").weeks.height == 6


def test_a_job_that_has_not_ended_counts_as_much_as_others_used_of_their_limits():
    rows = [*weekly(3, run=HOUR), job(70, MONDAY + timedelta(weeks=2, days=6), wait=None, cpus=10)]
    record = load_of_jobs(job_frame(rows), now=MONDAY + timedelta(weeks=3, days=4), zone="UTC")
    assert record.weeks["load"].to_list() == pytest.approx([4, 4, 4 + 10 * 2 * 0.5])


def test_the_first_week_is_scaled_by_what_was_seen_of_it_and_an_empty_one_has_no_load():
    rows = [job(1, MONDAY + timedelta(days=1)), *(row for row in weekly(5) if row["job_id"] not in (0, 3))]
    weeks = load_of_jobs(job_frame(rows), now=end_of(9), zone="UTC").weeks
    assert weeks["seen"].to_list() == pytest.approx([6 / 7, 1, 1, 0, 1])
    assert weeks["load"].to_list() == [pytest.approx(4 * 7 / 6), 4, 4, None, 4]


def test_cores_in_use_are_those_that_were_held_in_each_hour():
    jobs = job_frame(
        [
            job(1, MONDAY, wait=timedelta(minutes=30), run=2 * HOUR, cpus=8),
            job(2, MONDAY + 2 * HOUR, run=timedelta(minutes=15), cpus=4),
            job(3, MONDAY - 5 * HOUR, run=6 * HOUR, cpus=2),  # from before the beginning
            job(4, MONDAY, wait=None, run=None, cpus=64),  # never started
        ]
    )
    now = MONDAY + timedelta(days=1)
    facts = LogFacts.of([jobs], now=now)
    held = core_hours_held(rows_of(jobs, facts, now=now), MONDAY, MONDAY + 4 * HOUR)
    assert np.diff(held).tolist() == pytest.approx([4 + 2, 8, 4 + 1, 0])
    assert facts.grouped_by == "account"


@pytest.mark.parametrize("open_jobs", [False, True])
def test_the_load_is_the_same_whether_jobs_come_at_once_or_week_by_week(open_jobs):
    rows = [
        job(900 + day, MONDAY + timedelta(days=day, hours=5), wait=timedelta(hours=day % 7), cpus=day % 9) for day in range(63)
    ]
    rows += [job(999, MONDAY + timedelta(days=60), run=None)] if open_jobs else []
    jobs = job_frame([*weekly(9), *rows])
    weeks = jobs.with_columns(week=pl.col("submit_time").dt.truncate("2w")).partition_by("week", include_key=False)
    assert len(weeks) > 4
    now = end_of(9)
    whole, pieces = load_of_jobs(jobs, now=now, zone="UTC"), load_of_pieces(lambda: weeks, now=now, zone="UTC")
    assert_frame_equal(pieces.weeks, whole.weeks)
    assert_frame_equal(pieces.groups, whole.groups)
    assert pieces.in_use == pytest.approx(whole.in_use)
    assert sorted(zip(pieces.waited_in, pieces.waited_s, strict=True)) == sorted(
        zip(whole.waited_in, whole.waited_s, strict=True)
    )


def test_a_damaged_number_of_cores_and_a_time_that_goes_backwards_do_no_harm():
    rows = [*weekly(9), job(80, MONDAY, cpus=10**17), job(81, MONDAY, run=-HOUR, elapsed_s=-5.0), job(82, MONDAY, cpus=None)]
    record = load_of_jobs(job_frame(rows), now=end_of(20), zone="UTC")
    assert np.isfinite(record.in_use).all() and (record.in_use >= 0).all() and record.known_weeks == 9


@pytest.mark.parametrize("rows", [[], [job(1, MONDAY)], [job(1, MONDAY, wait=None, run=None)]])
def test_less_than_a_week_of_jobs_has_no_weeks(rows):
    assert load_of_jobs(job_frame(rows), now=MONDAY + HOUR, zone="UTC").known_weeks == 0


def test_groups_sum_to_the_whole():
    record = load_of_jobs(steady_jobs(9), now=end_of(30), zone="UTC")
    sums = record.groups.group_by("week").agg(pl.col("load").sum()).sort("week")
    assert sums["load"].to_list() == pytest.approx(record.weeks["load"].to_list())


# --- counts ------------------------------------------------------------------------------------------------------------------


def counted(weeks=10, *, submit=100.0, background=(), names=()):
    hours = weeks * 168
    counts = np.tile([submit, submit, submit], (hours, 1))
    return EventSeries(
        start_s=int(MONDAY.timestamp()) + 3600 * np.arange(hours),
        bucket_s=3600,
        kinds=("Submit", "Execute", "JobTerminated"),
        counts=counts,
        label=np.zeros(hours, dtype=np.int8),
        background=np.tile(np.array(background, dtype=float), (hours, 1)) if names else np.empty((0, 0)),
        background_names=tuple(names),
    )


def test_counts_alone_tell_jobs_a_week():
    record = load_of_counts(counted())
    assert record.unit is LoadUnit.JOBS and record.weeks["load"].to_list() == [16_800.0] * 10 and not record.waited_s.size


def test_a_gap_is_scaled_up_and_a_week_of_gaps_has_no_load():
    series = counted()
    counts = series.counts.copy()
    counts[168 : 168 + 42] = np.nan
    counts[336 : 336 + 120] = np.nan
    weeks = load_of_counts(replace(series, counts=counts)).weeks
    assert weeks["seen"].to_list()[:4] == pytest.approx([1, 0.75, 48 / 168, 1])
    assert weeks["load"].to_list()[:4] == [16_800.0, pytest.approx(16_800.0), None, 16_800.0]


def test_background_turns_jobs_into_slot_hours():
    record = load_of_counts(counted(background=(50.0, 400.0, 80.0), names=("queued", "running", "utilisation")))
    assert record.unit is LoadUnit.SLOT_HOURS and record.full == pytest.approx(500)  # 80 is told in per cent
    assert record.weeks["load"].item(0) == pytest.approx(400 * 168)
    assert record.waited_s == pytest.approx(np.full(1680, 0.5 * 3600), rel=0.01) and record.waits_are_estimates


def test_utilisation_alone_is_counted_in_hours_of_the_whole_grid():
    record = load_of_counts(counted(background=(0.6,), names=("utilisation",)))
    assert record.unit is LoadUnit.FULL_HOURS and record.weeks["load"].item(0) == pytest.approx(0.6 * 168)


def test_a_grid_without_counts_has_no_weeks():
    series = counted(1)
    assert load_of_counts(series.take(0, 0)).known_weeks == 0
    empty = load_of_counts(replace(series, counts=np.full_like(series.counts, np.nan)))
    assert empty.known_weeks == 0


def test_groups_of_counts_are_those_of_submissions():
    starts = [datetime(2025, 1, 6, tzinfo=UTC) + number * HOUR for number in range(336)]
    groups = pl.DataFrame({"bucket_start": starts, "group": ["nova"] * 336, "count": [30] * 336}).with_columns(
        pl.col("bucket_start").cast(pl.Datetime("us", "UTC"))
    )
    record = load_of_counts(counted(), groups)
    assert record.groups["load"].to_list() == [30 * 168.0] * 2 and record.grouped_by == "group"
