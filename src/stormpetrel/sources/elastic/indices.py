"""Which indices a pattern stands for, what their fields are, and which days they hold.

answer of `_field_caps` -> Indices: one request tells all of it, however many indices there are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

from stormpetrel.config import ElasticSection
from stormpetrel.errors import SourceFormatError
from stormpetrel.sources.elastic.query import wanted_fields
from stormpetrel.sources.elastic.server import SearchServer
from stormpetrel.sources.http import shown

_DATES: Final = frozenset({"date", "date_nanos"})
_NEEDED: Final = ("time_field", "kind_field", "unique_field")  # without these the counts would be wrong
# The day at the end of a name, as Logstash and Beats write it. A data stream's date is that of its beginning; a number follows.
_DAY: Final = re.compile(r"(?<!\d)(\d{4})([.\-_]?)(\d\d)\2(\d\d)$", re.ASCII)


@dataclass(frozen=True, slots=True)
class Indices:
    """What is there to be read."""

    names: tuple[str, ...]
    fields: frozenset[str]  # of the settings, those that can be counted by
    days: frozenset[date] = frozenset()  # that have an index of their own; empty: the indices are not by day
    nanoseconds: bool = False  # the time field counts nanoseconds
    notes: list[str] = field(default_factory=list)

    def missing(self, start: datetime, end: datetime, bucket_s: int) -> list[tuple[datetime, datetime]]:
        """The stretches of whole buckets that touch a day without an index."""
        if not self.days:
            return []
        stretches: list[tuple[datetime, datetime]] = []
        step = timedelta(seconds=bucket_s)
        for day in _days_between(start, end):
            if day in self.days:
                continue
            midnight = datetime(day.year, day.month, day.day, tzinfo=UTC)
            first = max(start, start + (midnight - start) // step * step)
            last = min(end, start - (start - midnight - timedelta(days=1)) // step * step)
            if stretches and stretches[-1][1] >= first:
                first = stretches.pop()[0]
            stretches.append((first, last))
        return stretches


def find_indices(server: SearchServer, settings: ElasticSection) -> Indices:
    """Ask which indices there are and whether the fields of the settings can be used; one sentence where one cannot."""
    wanted = wanted_fields(settings)
    answer = server.on_index(
        "_field_caps",
        "GET",
        fields=",".join(sorted({*wanted.values()})),
        ignore_unavailable="true",
        allow_no_indices="true",
    )
    names, fields = answer.get("indices"), answer.get("fields")
    if not isinstance(names, list) or not isinstance(fields, dict):
        raise server.failure(SourceFormatError, "does not tell its fields", "Check elastic.url and the server's version.")
    if not names:
        raise server.no_index()
    notes: list[str] = []
    usable = set()
    for setting, name in wanted.items():
        problem, hint = _problem_with(setting, name, fields.get(name))
        if not problem:
            usable.add(name)
        elif setting in _NEEDED:
            raise server.failure(SourceFormatError, f"has {problem}", f"{hint} (elastic.{setting})")
        else:
            notes.append(f"elastic.{setting}: there is {problem}; it is left out. {hint}")
    texts = tuple(str(name) for name in names)
    nanoseconds = "date_nanos" in fields[settings.time_field]
    return Indices(texts, frozenset(usable), days_of(texts), nanoseconds, notes)


def days_of(names: tuple[str, ...]) -> frozenset[date]:
    """The days that indices are named after; none where not all are: another one may hold any day."""
    days = set()
    for name in names:
        match = _DAY.search(name)
        try:
            days.add(date(int(match[1]), int(match[3]), int(match[4])))  # type: ignore[index]
        except (TypeError, ValueError):
            return frozenset()
    return frozenset(days)


def _problem_with(setting: str, name: str, types: Any) -> tuple[str, str]:
    """What is wrong with a field, and what to do about it; "" where nothing is."""
    if not isinstance(types, dict) or not set(types) - {"unmapped"}:
        other = name.removesuffix(".keyword")
        return f"no field {name!r} in {'these indices'}", f"Try {other!r}." if other != name else "Set another one."
    for type_name, caps in types.items():
        where = _where(caps)
        if setting == "time_field" and type_name not in (*_DATES, "unmapped"):
            return f"a field {name!r} of type {shown(type_name)}, not date{where}", "Set a field of type date."
        if type_name == "text":
            return f"a field {name!r} of type text{where}, which cannot be counted by", f"Use {name + '.keyword'!r}."
        if type_name != "unmapped" and isinstance(caps, dict) and caps.get("aggregatable") is False:
            return f"a field {name!r}{where} that cannot be counted by", "Set another one."
    return "", ""


def _where(caps: Any) -> str:
    """In which index, where the indices differ."""
    indices = caps.get("indices") if isinstance(caps, dict) else None
    return f" in {shown(indices[0])}" if isinstance(indices, list) and indices else ""


def _days_between(start: datetime, end: datetime) -> Iterator[date]:
    day = start.date()
    while datetime(day.year, day.month, day.day, tzinfo=UTC) < end:
        yield day
        day += timedelta(days=1)
