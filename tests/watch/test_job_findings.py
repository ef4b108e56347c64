from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from stormpetrel.watch.job_findings import RecordLateness

NOON = datetime(2024, 5, 6, 12, tzinfo=UTC)
POLL = timedelta(seconds=5)


def ends(*moments):
    return pl.Series("end_time", moments, pl.Datetime("us", "UTC"))


def after_looks(looks, *, ahead, each=2):
    """A lateness that has seen so many looks, each with two ends just before it by a clock that is behind ours."""
    lateness, now = RecordLateness(), NOON
    for _ in range(looks):
        lateness.note(ends(*(now - ahead - timedelta(seconds=second) for second in range(1, each + 1))), now)
        now += POLL
    return lateness, now


@pytest.mark.parametrize("ahead_s", [20, 90, 7200])
def test_a_clock_that_is_ahead_is_seen_after_a_few_looks_that_bring_ends(ahead_s):
    ahead = timedelta(seconds=ahead_s)
    lateness, _ = after_looks(3, ahead=ahead)
    assert lateness.late == timedelta(0)
    lateness, _ = after_looks(4, ahead=ahead)
    assert abs(lateness.late - ahead) <= POLL


def test_ends_that_come_in_time_or_within_the_seconds_of_accounting_are_not_late():
    lateness, _ = after_looks(50, ahead=timedelta(seconds=6))
    assert lateness.late == timedelta(0)


def test_a_clock_that_was_put_right_is_in_time_with_the_first_end():
    lateness, now = after_looks(6, ahead=timedelta(hours=2))
    lateness.note(ends(now - timedelta(seconds=1)), now)
    assert lateness.late == timedelta(0)
    lateness, now = after_looks(6, ahead=timedelta(hours=2))
    lateness.note(ends(), now - timedelta(hours=2))  # the clock was set back
    assert lateness.late == timedelta(0)


def test_an_import_of_old_records_and_single_late_ends_are_no_lateness():
    lateness, now = RecordLateness(), NOON
    for look in range(10):
        old = [now - timedelta(days=30)] * 100
        fresh = [now - timedelta(minutes=10)] if look % 2 else [now - timedelta(seconds=1)]
        lateness.note(ends(*old, *fresh), now)
        now += POLL
        assert lateness.late == timedelta(0)
