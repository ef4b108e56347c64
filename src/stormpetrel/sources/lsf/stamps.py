"""Times as LSF's commands print them, in local time and often without a year -> UTC.

`Thu Apr 18 22:32:01` -> the year in which this date is a Thursday, so that the time is the latest before that of the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

STAMP: Final = (
    r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun) (Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) {1,2}(\d{1,2}) (\d\d):(\d\d):(\d\d)"
    r"(?: (\d{4}))?"
)
_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_YEARS: Final = 29  # after which every date has had every day of the week
_SLACK: Final = timedelta(days=1)


class Stamps:
    """Reads times of a file that was true at `as_of`; with `year`, dates without one are of the year that is nearest to it."""

    def __init__(self, zone: ZoneInfo, as_of: datetime, year: int | None = None) -> None:
        self._zone, self._year = zone, year
        self._latest = (as_of + _SLACK).astimezone(zone).date()
        self.without_year = False  # whether a year had to be found out
        self._year_of = lru_cache(maxsize=4096)(self._find_year)

    def moment(self, match: re.Match[str], first: int = 1) -> datetime | None:
        """The time of a match of STAMP whose first group has this number; None where there is no such time.

        The first pass of a doubled hour, an hour later for one that was left out.
        """
        name, month_name, day, hour, minute, second, year = match.group(*range(first, first + 7))
        month = _MONTHS.index(month_name) + 1
        self.without_year = self.without_year or year is None
        number = int(year) if year else self._year_of(name, month, int(day))
        if number is None:
            return None
        try:
            local = datetime(number, month, int(day), int(hour), int(minute), int(second), tzinfo=self._zone)
            return local.astimezone(UTC)
        except (ValueError, OverflowError):
            return None

    def _find_year(self, name: str, month: int, day: int) -> int | None:
        return next((year for year in self._years() if self._is_day(year, month, day, name)), None)

    def _years(self) -> Iterator[int]:
        if self._year is None:
            yield from range(self._latest.year, self._latest.year - _YEARS, -1)
            return
        yield self._year
        for distance in range(1, _YEARS):
            yield from (self._year - distance, self._year + distance)

    def _is_day(self, year: int, month: int, day: int, name: str) -> bool:
        try:
            moment = date(year, month, day)
        except ValueError:
            return False
        return _DAYS[moment.weekday()] == name and (self._year is not None or moment <= self._latest)
