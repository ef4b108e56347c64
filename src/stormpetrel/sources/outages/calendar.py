"""iCalendar -> outages and maintenance: recurring ones expanded, cancelled ones left out.

text -> IncidentCalendar -> outages(start, end). A day without a clock lasts from midnight to midnight in the site's zone; a time
without a zone is in the site's zone. Needs the extra `calendar`.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo

from stormpetrel.errors import MissingExtraError, SourceFormatError, UsageError
from stormpetrel.records.outages import Outage, OutageKind
from stormpetrel.records.times import EARLIEST, LATEST
from stormpetrel.sources.outages.entries import FARTHEST, LONGEST_UID, IncidentNotes, check_span, kind_in, source_name

_BACK: Final = timedelta(days=3653)
_MOST_EVENTS: Final = 20_000  # entries of the file
_MOST_OUTAGES: Final = 50_000  # with all their repetitions
_LONGEST_S: Final = 60.0  # for all repetitions together
_FREQUENCIES: Final = frozenset({"DAILY", "WEEKLY", "MONTHLY", "YEARLY"})
_MOST_PER_DAY: Final = 24
_HOW: Final = "An iCalendar file (.ics), whole, as calendars export it is expected."
# What the two libraries raise at entries that make no sense.
_UNREADABLE: Final = (
    ValueError, TypeError, KeyError, AttributeError, IndexError, OverflowError, RecursionError, AssertionError,
)  # fmt: skip


class IncidentCalendar:
    """The events of a calendar; what is neither outage nor maintenance by its words is left out, unless `kind` says what."""

    def __init__(
        self, name: str, text: str, *, zone: str, now: datetime, kind: OutageKind | None, notes: IncidentNotes | None = None
    ) -> None:
        self.source = source_name(name)
        self._name, self._text, self._zone, self._now, self._kind = name, text, ZoneInfo(zone), now, kind
        self._notes = notes or IncidentNotes()
        self.notes = self._notes.notes
        self._neither: list[str] = []

    @property
    def span(self) -> tuple[datetime, datetime]:
        """The time in which repetitions are looked for: ten years back, one ahead."""
        return self._now - _BACK, self._now + FARTHEST

    def outages(self, start: datetime, end: datetime) -> list[Outage]:
        """What the calendar says of a span, with all repetitions, oldest first."""
        outages: list[Outage] = []
        give_up = time.monotonic() + _LONGEST_S
        for line, calendar, recurs in self._groups():
            try:
                outages += self._expanded(calendar, start, end, recurs=recurs)
            except UsageError as error:
                self._notes.refuse(line, str(error))
            except _UNREADABLE as error:
                self._notes.refuse(line, f"It cannot be read ({type(error).__name__}).")
            if len(outages) > _MOST_OUTAGES or time.monotonic() > give_up:
                what = (
                    f"{self._name} has more than {_MOST_OUTAGES:,} entries, or takes more than {_LONGEST_S:g} s to repeat them."
                )
                raise SourceFormatError(what, hint="Give a later --since, or a smaller calendar.")
        self._note_neither()
        self._notes.close()
        return sorted(outages, key=lambda outage: (outage.start, outage.uid))

    def _groups(self) -> Iterator[tuple[int, Any, bool]]:
        """Entries that belong together (one and its exceptions) as a calendar of their own: line, calendar, does it recur."""
        icalendar, whole = self._parsed()
        zones = whole.walk("VTIMEZONE")
        lines = [n for n, line in enumerate(self._text.splitlines(), start=1) if line.strip().upper() == "BEGIN:VEVENT"]
        events = whole.walk("VEVENT")
        if len(events) > _MOST_EVENTS:
            raise SourceFormatError(f"{self._name} has {len(events):,} entries.", hint=f"At most {_MOST_EVENTS:,} are read.")
        groups: dict[str, list[tuple[int, Any]]] = {}
        for number, event in enumerate(events):
            line = lines[number] if number < len(lines) else 0
            groups.setdefault(str(event.get("UID") or f"\0{number}"), []).append((line, event))
        for members in groups.values():
            part = icalendar.Calendar()
            for name in ("VERSION", "PRODID", "X-WR-TIMEZONE"):
                if name in whole:
                    part[name] = whole[name]
            part.subcomponents = [*zones, *(event for _, event in members)]
            recurs = any(name in event for _, event in members for name in ("RRULE", "RDATE", "RECURRENCE-ID"))
            yield members[0][0], part, recurs

    def _parsed(self) -> tuple[Any, Any]:
        try:
            import icalendar
            import recurring_ical_events  # noqa: F401
        except ImportError:
            raise MissingExtraError("Reading a calendar", "calendar") from None
        if not self._text.rstrip().upper().endswith("END:VCALENDAR"):  # half a file would take the other half away
            raise SourceFormatError(f"{self._name} is no calendar, or breaks off before its end.", hint=_HOW)
        try:
            return icalendar, icalendar.Calendar.from_ical(self._text)
        except _UNREADABLE as error:
            what = f"{self._name} is no calendar: {_printable(str(error))[:200]}."
            raise SourceFormatError(what, hint=_HOW) from None

    def _expanded(self, calendar: Any, start: datetime, end: datetime, *, recurs: bool) -> list[Outage]:
        """All repetitions that overlap a span."""
        import recurring_ical_events

        for event in calendar.walk("VEVENT"):
            _check_readable(event)
        slack = timedelta(days=1)  # zones are looked at below
        outages = []
        for event in recurring_ical_events.of(calendar).between(max(start - slack, EARLIEST), min(end + slack, LATEST)):
            began, ended = self._times(event)
            if str(event.get("STATUS", "")).upper() == "CANCELLED" or began > end or ended < start:
                continue
            outage = self._outage(event, began, ended, recurs=recurs)
            outages += [outage] if outage is not None else []
        return outages

    def _outage(self, event: Any, began: datetime, ended: datetime, *, recurs: bool) -> Outage | None:
        title = _printable(str(event.get("SUMMARY", "")))
        kind = kind_in(_categories(event)) or kind_in(title) or self._kind
        if kind is None:
            self._neither.append(title)
            return None
        check_span(began, ended, kind, now=self._now)
        uid = _printable(str(event.get("UID", "")))
        if recurs:
            uid = f"{uid}@{began:%Y%m%dT%H%MZ}"
        if len(uid) > LONGEST_UID:
            uid = hashlib.sha256(uid.encode()).hexdigest()[:32]
        return Outage(began, ended, kind, title, self.source, uid)

    def _times(self, event: Any) -> tuple[datetime, datetime]:
        first, last = event["DTSTART"].dt, event["DTEND"].dt
        if not isinstance(first, datetime) and last <= first:  # a day without an end is that day
            last = first + timedelta(days=1)
        return self._utc(first), self._utc(last)

    def _utc(self, moment: date | datetime) -> datetime:
        if not isinstance(moment, datetime):
            moment = datetime(moment.year, moment.month, moment.day)
        return (moment if moment.tzinfo else moment.replace(tzinfo=self._zone)).astimezone(UTC)

    def _note_neither(self) -> None:
        if self._neither:
            titles = ", ".join(repr(title[:40]) for title in dict.fromkeys(self._neither[:3]))
            what = f"{len(self._neither):,} entries say neither outage nor maintenance ({titles}) and were left out"
            self.notes.append(f"{what}; --kind says what they are.")


def _check_readable(event: Any) -> None:
    """Refuse an entry whose times are damaged, and a rule that could keep us busy for ever."""
    broken = [str(name) for name, _ in getattr(event, "errors", ())]
    if broken or "DTSTART" not in event:
        raise UsageError(
            f"Its {_printable(', '.join(broken) or 'DTSTART')[:80]} cannot be read.", hint="Correct it, or leave it."
        )
    for name in ("DTSTART", "DTEND"):
        value = event.get(name)
        zone = getattr(value, "params", {}).get("TZID") if value is not None else None
        if zone and isinstance(value.dt, datetime) and value.dt.tzinfo is None:
            raise UsageError(
                f"Its time zone {_printable(str(zone))[:60]!r} is not known.", hint="Use a name such as Europe/Berlin."
            )
    if not EARLIEST.year <= event["DTSTART"].dt.year <= LATEST.year:
        raise UsageError("It begins before 1980 or after 2105.", hint="Correct its DTSTART.")
    rules = event.get("RRULE", [])
    for rule in rules if isinstance(rules, list) else [rules]:
        _check_rule(rule)


def _check_rule(rule: Any) -> None:
    frequency = str((rule.get("FREQ") or [""])[0]).upper()
    per_day = 1
    for name in ("BYHOUR", "BYMINUTE", "BYSECOND"):
        per_day *= max(len(rule.get(name) or []), 1)
    if frequency not in _FREQUENCIES or per_day > _MOST_PER_DAY or int((rule.get("INTERVAL") or [1])[0]) < 1:
        raise UsageError("It repeats too often to be expanded.", hint=f"At most {_MOST_PER_DAY} times a day is taken.")


def _categories(event: Any) -> str:
    """The words of CATEGORIES, which may be there several times."""
    categories = event.get("CATEGORIES", [])
    names = [
        str(word)
        for entry in (categories if isinstance(categories, list) else [categories])
        for word in getattr(entry, "cats", [entry])
    ]
    return " ".join(names)


def _printable(text: str) -> str:
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
