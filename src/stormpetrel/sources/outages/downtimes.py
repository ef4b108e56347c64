"""Downtime files as grids publish them (OSG topology) -> outages and maintenance.

    - Class: SCHEDULED
      ID: 1005689
      Description: There will be a power outage in the machine room
      Severity: Outage
      StartTime: Jul 20, 2018 16:00 -0500
      EndTime: Jul 21, 2018 17:00 -0500
      ResourceName: FNAL_GPGRID_CE_03

text -> IncidentDowntimes -> outages(start, end). Of YAML, a list of plain entries is all that these files use
and all that is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Final

from stormpetrel.errors import SourceFormatError, UsageError
from stormpetrel.records.outages import Outage, OutageKind
from stormpetrel.records.times import EARLIEST
from stormpetrel.sources.outages.entries import (
    FARTHEST,
    LONGEST,
    LONGEST_UID,
    IncidentNotes,
    check_span,
    kind_in,
    moment_of,
    source_name,
)

_MOST_ENTRIES: Final = 100_000
_LONGEST_VALUE: Final = 2_000
_START: Final = re.compile(r"^(?:- +| +)StartTime:", re.MULTILINE)
_LINE: Final = re.compile(r"( *)(- +)?(?:([A-Za-z]\w*):(?: +(.*))?)?.*")
_HARMLESS: Final = "no significant"  # severity: nothing is expected to happen, so nothing is excused


def is_downtime_file(text: str) -> bool:
    """Whether a text is a list of downtimes."""
    return _START.search(text) is not None


class IncidentDowntimes:
    """The downtimes of a file: scheduled ones are maintenance, unscheduled ones outages."""

    def __init__(
        self, name: str, text: str, *, zone: str, now: datetime, kind: OutageKind | None, notes: IncidentNotes | None = None
    ) -> None:
        self.source = source_name(name)
        self._name, self._text, self._zone, self._now, self._kind = name, text, zone, now, kind
        self._notes = notes or IncidentNotes()
        self.notes = self._notes.notes

    @property
    def span(self) -> tuple[datetime, datetime]:
        """The time that the file may speak of."""
        return EARLIEST, self._now + FARTHEST + LONGEST

    def outages(self, start: datetime, end: datetime) -> list[Outage]:
        """The downtimes that overlap a span, in the order of the file; those that announce no outage are left out and told."""
        kept: dict[tuple[object, ...], Outage] = {}
        harmless = 0
        for number, (line, entry) in enumerate(entries_in(self._text)):
            if number >= _MOST_ENTRIES:
                raise SourceFormatError(f"{self._name} has more than {_MOST_ENTRIES:,} entries.", hint="Cut it into parts.")
            if entry.get("Severity", "").casefold().startswith(_HARMLESS):
                harmless += 1
                continue
            try:
                one = self._outage(entry)
            except UsageError as error:
                self._notes.refuse(line, str(error))
                continue
            kept[(one.uid,) if one.uid else (one.start, one.kind, one.title)] = one
        if harmless:
            self.notes.append(f"{harmless:,} downtimes with 'No Significant Outage Expected' were left out.")
        self._notes.close()
        return [one for one in kept.values() if one.start <= end and (one.end is None or one.end >= start)]

    def _outage(self, entry: dict[str, str]) -> Outage:
        began = moment_of(entry.get("StartTime", ""), self._zone, what="The StartTime")
        ended = moment_of(entry.get("EndTime", ""), self._zone, what="The EndTime")
        kind = kind_in(entry.get("Class", "")) or self._kind or OutageKind.OUTAGE
        check_span(began, ended, kind, now=self._now)
        uid = entry.get("ID", "")
        if len(uid) > LONGEST_UID or not uid.isprintable():
            raise UsageError("Its ID is too long or not plain text.", hint=f"At most {LONGEST_UID} letters are taken.")
        title = ": ".join(part for part in (entry.get("ResourceName", ""), entry.get("Description", "")) if part)
        return Outage(began, ended, kind, title, self.source, uid, resource=entry.get("ResourceName", ""))


def entries_in(text: str) -> Iterator[tuple[int, dict[str, str]]]:
    """The entries of a list of plain mappings, each with the line at which it begins; lists within them are read as text."""
    entry: dict[str, str] = {}
    began, indent, key = 0, -1, ""  # `indent`: of the keys of an entry
    for number, line in enumerate(text.expandtabs().splitlines(), 1):
        match = _LINE.fullmatch(line)
        if match is None or not line.strip() or line.lstrip().startswith("#"):
            continue
        spaces, dash, name, value = match.groups()
        width = len(spaces) + len(dash or "")
        if dash and name and (indent < 0 or width == indent):
            if entry:
                yield began, {field: _scalar(words) for field, words in entry.items()}
            entry, began, indent = {}, number, width
        if name and width == indent:
            key = name
            entry.setdefault(key, value or "")
        elif key and len(entry[key]) < _LONGEST_VALUE:
            entry[key] = f"{entry[key]} {line.strip()}".strip()
    if entry:
        yield began, {field: _scalar(words) for field, words in entry.items()}


def _scalar(text: str) -> str:
    """A value without its quotes, the sign of a folded text, or a comment behind it."""
    value = re.sub(r"^[>|][+-]?(?= |$)", "", text.strip()).strip()[:_LONGEST_VALUE]
    if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
        return value[1:-1].replace("''", "'") if value[0] == "'" else value[1:-1].replace('\\"', '"')
    return re.sub(r" +#.*$", "", value)
