"""What is new in a site's work, and load that grows."""

from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest

from stormpetrel.jobs.changes import work_changes

START = datetime(2026, 3, 2, tzinfo=UTC)
NOW = START + timedelta(days=35)


def work(*, new_from=None, growth=1.0, days=35):
    """Forty jobs a day of four users; some of a newcomer from a day on; the last week `growth` times as many."""
    rng = np.random.default_rng(1)
    rows = []
    for day in range(days):
        many = round(40 * (growth if day >= days - 7 else 1.0))
        rows += [(day, f"user{number % 4}", "fit", "lab") for number in range(many)]
        if new_from is not None and day >= new_from:
            rows += [(day, "eve", "sweep", "guests")] * 10
    times = [START + timedelta(days=day, seconds=int(rng.integers(86_000))) for day, *_ in rows]
    return pl.DataFrame(
        {
            "submit_time": times,
            "start_time": times,
            "end_time": [moment + timedelta(minutes=5) for moment in times],
            "user": [row[1] for row in rows],
            "application": [row[2] for row in rows],
            "account": [row[3] for row in rows],
            "core_s": [300.0] * len(rows),
            "failed": [row[1] == "eve" for row in rows],
        }
    )


def test_what_came_in_the_last_week_is_new_with_its_share_of_jobs_load_and_failures():
    changes = work_changes(work(new_from=32), NOW)
    assert [(one.by, one.name) for one in changes.newcomers] == [("application", "sweep"), ("user", "eve"), ("account", "guests")]
    sweep = changes.newcomers[0]
    assert sweep.since >= START + timedelta(days=32) and sweep.jobs == 30
    assert sweep.share_of_jobs == pytest.approx(30 / 310) and sweep.share_of_load == pytest.approx(30 / 310, abs=0.01)
    assert sweep.share_of_failures == 1.0 and sweep.failure_rate == 1.0


def test_what_came_ten_days_ago_is_still_new_and_its_share_is_that_since_it_came():
    changes = work_changes(work(new_from=25), NOW)
    assert {one.name for one in changes.newcomers} == {"sweep", "eve", "guests"}
    assert changes.newcomers[0].share_of_jobs == pytest.approx(100 / 500, abs=0.02)  # not of the last week alone


def test_what_was_there_two_weeks_ago_is_not_new():
    assert work_changes(work(new_from=20), NOW).newcomers == ()


def test_nothing_is_new_where_there_is_no_past():
    assert work_changes(work(new_from=5, days=12), START + timedelta(days=12)).newcomers == ()


def test_what_came_within_the_first_ten_days_of_the_records_is_not_new():
    early, later = (work_changes(work(new_from=day, days=20), START + timedelta(days=20)) for day in (8, 12))
    assert early.newcomers == () and {one.name for one in later.newcomers} == {"sweep", "eve", "guests"}


def test_what_comes_later_is_not_known():
    early = work_changes(work(new_from=32), START + timedelta(days=31))
    assert early.newcomers == ()


def test_load_that_grows_is_told_with_its_interval_and_steady_load_is_not_growth():
    grown, steady = work_changes(work(growth=1.5), NOW).load, work_changes(work(), NOW).load
    assert grown.low < grown.ratio < grown.high or grown.low == grown.high
    assert grown.ratio == pytest.approx(1.5, abs=0.1) and grown.grows
    assert steady.ratio == pytest.approx(1.0, abs=0.05) and not steady.grows
