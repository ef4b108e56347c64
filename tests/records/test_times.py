from datetime import UTC, datetime

import numpy as np
import polars as pl
import pytest

from stormpetrel.records.times import UTC_TIME, from_unix, hours_of, to_utc, weekdays_of


@pytest.mark.parametrize(
    ("text", "zone", "expected"),
    [
        ("2024-07-01T12:00:00", "UTC", datetime(2024, 7, 1, 12, tzinfo=UTC)),
        ("2024-07-01T12:00:00", "Europe/Berlin", datetime(2024, 7, 1, 10, tzinfo=UTC)),
        ("2024-01-01T12:00:00", "Europe/Berlin", datetime(2024, 1, 1, 11, tzinfo=UTC)),
        ("2024-07-01T12:00:00+02:00", "UTC", datetime(2024, 7, 1, 10, tzinfo=UTC)),
        ("2024-07-01 12:00:00", "UTC", datetime(2024, 7, 1, 12, tzinfo=UTC)),
        ("1719835200", "Europe/Berlin", datetime(2024, 7, 1, 12, tzinfo=UTC)),
        ("Unknown", "UTC", None),
        ("9999-12-31T23:59:59", "UTC", None),
        ("1970-01-01T00:00:00", "UTC", None),
        ("2024-13-45T99:00:00", "UTC", None),
    ],
)
def test_times_become_utc(text, zone, expected):
    assert to_utc(pl.Series([text]), zone).to_list() == [expected]


def test_the_doubled_hour_of_autumn_is_its_first_pass():
    assert to_utc(pl.Series(["2024-10-27T02:30:00"]), "Europe/Berlin").to_list() == [datetime(2024, 10, 27, 0, 30, tzinfo=UTC)]


def test_the_hour_that_spring_leaves_out_moves_forward():
    assert to_utc(pl.Series(["2024-03-31T02:30:00"]), "Europe/Berlin").to_list() == [datetime(2024, 3, 31, 1, 30, tzinfo=UTC)]


def test_unix_times_of_zero_and_beyond_reason_are_none():
    assert from_unix(pl.Series(["0", "-5", "1e30", "nonsense", "1719835200.5"])).to_list() == [
        None,
        None,
        None,
        None,
        datetime(2024, 7, 1, 12, 0, 0, 500000, tzinfo=UTC),
    ]


def test_hours_and_weekdays_are_those_of_the_calendar_in_utc():
    hours = pl.datetime_range(
        datetime(1999, 12, 30, tzinfo=UTC), datetime(2000, 3, 2, tzinfo=UTC), "59m", time_unit="us", eager=True
    )
    times = pl.concat([hours, pl.Series([datetime(2038, 1, 19, 3, 14, 7, 999999, tzinfo=UTC), None], dtype=UTC_TIME)])
    expected = pl.DataFrame({"hour": times.dt.hour().cast(pl.Float64), "weekday": times.dt.weekday().cast(pl.Float64)})
    np.testing.assert_array_equal(np.stack([hours_of(times), weekdays_of(times)], axis=1), expected.to_numpy())
