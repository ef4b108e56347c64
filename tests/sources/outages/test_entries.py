from datetime import UTC, datetime, timedelta

import pytest

from stormpetrel.errors import UsageError
from stormpetrel.sources.outages.entries import duration_of, end_of, moment_of

BERLIN = "Europe/Berlin"


@pytest.mark.parametrize(
    ("text", "hour"),
    [
        ("2026-01-31 14:00", 13),
        ("2026-01-31T14:00", 13),
        (" 2026-01-31 14:00:00 ", 13),
        ("2026-01-31 14:00 UTC", 14),
        ("2026-01-31T14:00Z", 14),
        ("2026-01-31T14:00-05:00", 19),
        ("31.1.2026 14:00", 13),
        ("1769864400", 13),
        ("1769864400000", 13),
    ],
)
def test_a_time_is_read_in_the_sites_zone_unless_it_has_one(text, hour):
    assert moment_of(text, BERLIN) == datetime(2026, 1, 31, hour, tzinfo=UTC)


def test_the_hours_that_the_clock_shows_twice_or_never_have_a_meaning():
    assert moment_of("2026-10-25 02:30", BERLIN) == datetime(2026, 10, 25, 0, 30, tzinfo=UTC)  # the first of the two
    assert moment_of("2026-03-29 02:30", BERLIN) == datetime(2026, 3, 29, 1, 30, tzinfo=UTC)  # 03:30 in summer time


@pytest.mark.parametrize(
    "text", ["", "soon", "01/31/2026", "14:00", "2026-13-01", "0001-01-01", "9999-12-31", "٢٠٢٦-01-31", "1" * 500]
)
def test_what_is_no_time_is_one_short_sentence(text):
    with pytest.raises(UsageError, match=r"^START .{0,70} (is not a time|lies outside)") as caught:
        moment_of(text, BERLIN, what="START")
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize(
    ("text", "minutes"), [("90m", 90), ("3h", 180), ("1h30m", 90), ("1d 12h", 2160), ("2w", 20160), ("5 min", 5), ("0h", 0)]
)
def test_a_duration_is_understood(text, minutes):
    assert duration_of(text) == timedelta(minutes=minutes)


@pytest.mark.parametrize("text", ["", "3", "h", "-3h", "3h ago", "1e3h", "m3"])
def test_what_is_no_duration_is_none(text):
    assert duration_of(text) is None


def test_an_end_is_a_time_or_how_long_it_lasted():
    start = datetime(2026, 1, 31, 13, tzinfo=UTC)
    assert end_of("3h", start, BERLIN) == end_of("2026-01-31 17:00", start, BERLIN) == start + timedelta(hours=3)
