"""The entries of files of outages: times as people write them -> UTC, kinds by their words, and notes of what was left out.

`2026-01-31 14:00` in the site's zone, ISO with an offset, `3h` after another -> datetime in UTC, or one sentence.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from stormpetrel.errors import UsageError
from stormpetrel.records.outages import OutageKind
from stormpetrel.records.times import EARLIEST, LATEST

LONGEST: Final = timedelta(days=60)  # nothing lasts longer: it is a mistyped year, or an entry that nobody has closed
FARTHEST: Final = timedelta(days=366)  # maintenance is announced, but not for the next decade
_LONGEST_TEXT: Final = 60
_DURATION: Final = re.compile(
    r"(?:(\d{1,4})\s*w)?\s*(?:(\d{1,4})\s*d)?\s*(?:(\d{1,5})\s*h)?\s*(?:(\d{1,6})\s*m(?:in)?)?", re.IGNORECASE
)
_UNIX: Final = re.compile(r"\d{9,10}(?:\.\d{1,6})?|\d{13}")  # seconds, or milliseconds
_DOTTED: Final = re.compile(r"(\d{1,2})\.(\d{1,2})\.(\d{4})(?:[ T]+(\d{1,2}:\d{2}(?::\d{2})?))?")
_MONTHS: Final = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()
# As downtimes of grids are written: `Jul 20, 2018 16:00 -0500`.
_NAMED_MONTH: Final = re.compile(rf"({'|'.join(_MONTHS)}) (\d{{1,2}}), (\d{{4}}) (\d{{1,2}}:\d{{2}})(?: ([+-]\d{{4}}|UTC))?")
HOW_TO_WRITE: Final = "Write it as 2026-01-31 14:00 (in the site's zone) or 2026-01-31T14:00+01:00."


def moment_of(text: str, zone: str, *, what: str = "The time") -> datetime:
    """A time in UTC; without an offset it is in `zone`, and of an hour that the clock shows twice it is the first."""
    written = text.strip()
    try:
        moment = _parsed(written)
        utc = (moment if moment.tzinfo else moment.replace(tzinfo=ZoneInfo(zone))).astimezone(UTC)
    except (ValueError, OverflowError):
        raise UsageError(f"{what} {_shown(written)!r} is not a time.", hint=HOW_TO_WRITE) from None
    if not EARLIEST <= utc <= LATEST:
        raise UsageError(f"{what} {_shown(written)!r} lies outside 1980 to 2105.", hint=HOW_TO_WRITE)
    return utc


def duration_of(text: str) -> timedelta | None:
    """`90m`, `3h`, `1d 12h`, `2w`; None where the text is no duration."""
    match = _DURATION.fullmatch(text.strip())
    if match is None or not any(match.groups()):
        return None
    weeks, days, hours, minutes = (int(part or 0) for part in match.groups())
    return timedelta(weeks=weeks, days=days, hours=hours, minutes=minutes)


def end_of(text: str, start: datetime, zone: str, *, what: str = "The end") -> datetime:
    """The end of what began at `start`: a time, or how long it lasted."""
    lasted = duration_of(text)
    return start + lasted if lasted is not None else moment_of(text, zone, what=what)


def check_span(start: datetime, end: datetime | None, kind: OutageKind, *, now: datetime) -> None:
    """Refuse, in one sentence, a span that cannot be meant."""
    if start > now + FARTHEST:
        raise UsageError(f"The start {_minute(start)} is more than a year away.", hint="Check the year.")
    if end is None:
        if start < now - LONGEST:
            raise UsageError(f"It began {_minute(start)} and has no end.", hint=f"Say when it ended: {_longest()}.")
        return
    if end < start:
        raise UsageError(f"The end {_minute(end)} is before the start {_minute(start)}.", hint="Check the two times.")
    if end - start > LONGEST:
        raise UsageError(
            f"{_minute(start)} to {_minute(end)} is {(end - start).days} days.", hint=f"Check the year: {_longest()}."
        )
    if kind is OutageKind.NORMAL and end > now:
        raise UsageError(f"The end {_minute(end)} is still to come.", hint="Normal is what somebody has looked at: end it now.")


def _parsed(written: str) -> datetime:
    if len(written) > _LONGEST_TEXT or not written.isascii():
        raise ValueError("no time is so long")
    if _UNIX.fullmatch(written):
        return datetime.fromtimestamp(float(written) / (1000 if len(written) == 13 else 1), UTC)
    dotted = _DOTTED.fullmatch(written)
    if dotted:
        day, month, year, clock = dotted.groups()
        written = f"{year}-{int(month):02}-{int(day):02}T{(clock or '00:00').zfill(5)}"
    named = _NAMED_MONTH.fullmatch(written)
    if named:
        month, day, year, clock, offset = named.groups()
        zone = {None: "", "UTC": "+00:00"}.get(offset, offset)
        written = f"{year}-{_MONTHS.index(month) + 1:02}-{int(day):02}T{clock.zfill(5)}{zone}"
    return datetime.fromisoformat(written.removesuffix(" UTC") + ("+00:00" if written.endswith(" UTC") else ""))


def _minute(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"


def _longest() -> str:
    return f"at most {LONGEST.days} days are taken"


def _shown(text: str) -> str:
    return "".join(letter if letter.isprintable() else " " for letter in text)[:_LONGEST_TEXT]


_NOT_PLANNED: Final = re.compile(r"\b(?:un(?:planned|scheduled)|ungeplant)", re.IGNORECASE)  # before `planned` is looked for
_WORDS: Final = (
    (OutageKind.NORMAL, r"\b(?:normal|false[ _-]alarm|no[ _-]problem|fehlalarm)\b"),
    (OutageKind.MAINTENANCE, r"\b(?:maint|downtime|planned|scheduled|upgrad|patch|reboot|intervention|wartung|geplant)"),
    (OutageKind.OUTAGE, r"\b(?:outage|incident|fail|fault|crash|down\b|anomaly|degraded|disruption|ausfall|störung)"),
)
_PATTERNS: Final = tuple((kind, re.compile(pattern, re.IGNORECASE)) for kind, pattern in _WORDS)


def kind_in(text: str) -> OutageKind | None:
    """What a few words say a span of time is; None where they do not say.

    >>> kind_in("Scheduled maintenance of the storage"), kind_in("unplanned outage"), kind_in("team meeting")
    (<OutageKind.MAINTENANCE: 'maintenance'>, <OutageKind.OUTAGE: 'outage'>, None)
    """
    if _NOT_PLANNED.search(text):
        return OutageKind.OUTAGE
    return next((kind for kind, pattern in _PATTERNS if pattern.search(text)), None)


LONGEST_UID: Final = 150  # letters of an id, or of the name of a file
_MOST_NOTED: Final = 20


@dataclass(slots=True)
class IncidentNotes:
    """What is told about the reading of a file: the first bad entries with their line, and how many more there are."""

    notes: list[str] = field(default_factory=list)
    bad: int = 0

    def refuse(self, line: int, why: str) -> None:
        """Tell that an entry was left out."""
        self.bad += 1
        if self.bad <= _MOST_NOTED:
            self.notes.append(f"line {line}: left out. {why}")

    def close(self) -> None:
        """Tell how many were left out beyond those that were told one by one."""
        if self.bad > _MOST_NOTED:
            self.notes.append(f"{self.bad - _MOST_NOTED:,} more entries were left out.")


def source_name(file_name: str) -> str:
    """The source of what a file tells: a file of the same name takes its place."""
    return f"file:{''.join(letter if letter.isprintable() else '_' for letter in file_name)[:LONGEST_UID]}"
