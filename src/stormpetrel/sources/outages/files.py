"""Files of incidents -> outages and maintenance: CSV here, iCalendar in `incident_calendar`, downtimes in `incident_downtimes`.

file -> incident_file -> a source of incidents -> outages(start, end). What cannot be read is told with its line; the rest is
kept. Reading a file again changes nothing; what is gone from it is gone here.

Downtime files as grids publish them (OSG topology) -> outages and maintenance.

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

import csv
import io
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Final

from stormpetrel.errors import SourceError, SourceFormatError, UsageError
from stormpetrel.records.outages import Outage, OutageKind
from stormpetrel.records.times import EARLIEST
from stormpetrel.sources.outages.calendar import IncidentCalendar
from stormpetrel.sources.outages.entries import (
    FARTHEST,
    LONGEST,
    LONGEST_UID,
    IncidentNotes,
    check_span,
    end_of,
    kind_in,
    moment_of,
    source_name,
)
from stormpetrel.sources.tables.column_names import Vocabulary

_MOST_BYTES: Final = 16 * 1024**2
_MOST_ROWS: Final = 100_000
_COLUMNS: Final = {
    "start": ("start", "from", "begin", "begins", "began", "start_time", "starttime", "started", "opened", "dtstart", "time"),
    "end": ("end", "to", "until", "ends", "ended", "end_time", "endtime", "stop", "closed", "resolved", "dtend"),
    "duration": ("duration", "lasted", "length"),
    "kind": ("kind", "type", "category", "class", "label"),
    "title": ("title", "summary", "description", "what", "text", "name", "subject", "reason", "comment"),
    "uid": ("uid", "id", "key", "ticket", "incident", "number"),
}
_VOCABULARY: Final = Vocabulary(_COLUMNS, plain=lambda name: name.strip().casefold().replace(" ", "_").replace("-", "_"))
_MOST_ENTRIES: Final = 100_000
_LONGEST_VALUE: Final = 2_000
_START: Final = re.compile(r"^(?:- +| +)StartTime:", re.MULTILINE)
_LINE: Final = re.compile(r"( *)(- +)?(?:([A-Za-z]\w*):(?: +(.*))?)?.*")
_HARMLESS: Final = "no significant"  # severity: nothing is expected to happen, so nothing is excused


def incident_file(
    path: Path, *, zone: str, now: datetime, kind: OutageKind | None = None
) -> IncidentTable | IncidentCalendar | IncidentDowntimes:
    """The file as a source of outages: a calendar or a list of downtimes if it looks like one, else a table.

    `zone` is that of times that have none; `kind` is of entries that do not say what they are.
    """
    text, notes = _text_of(path)
    left_out = IncidentNotes(list(notes))
    if text.lstrip().upper().startswith("BEGIN:VCALENDAR") or path.suffix.lower() in (".ics", ".ical"):
        return IncidentCalendar(path.name, text, zone=zone, now=now, kind=kind, notes=left_out)

    if path.suffix.lower() in (".yaml", ".yml") or is_downtime_file(text):
        return IncidentDowntimes(path.name, text, zone=zone, now=now, kind=kind, notes=left_out)
    return IncidentTable(path.name, text, zone=zone, now=now, kind=kind, notes=left_out)


class _IncidentText:
    """The text of a file of incidents, and what is known of all its entries."""

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


class IncidentTable(_IncidentText):
    """A CSV with a header: start, end or duration, kind, title, id, under these or other usual names."""

    def __init__(
        self, name: str, text: str, *, zone: str, now: datetime, kind: OutageKind | None, notes: IncidentNotes | None = None
    ) -> None:
        super().__init__(name, text, zone=zone, now=now, kind=kind, notes=notes)
        self._unclear: dict[str, int] = {}

    def outages(self, start: datetime, end: datetime) -> list[Outage]:
        """The rows that overlap a span, in the order of the file."""
        outages_by_key: dict[tuple[object, ...], tuple[int, Outage]] = {}
        for line, row in self._rows():
            try:
                outage = self._outage(row)
            except UsageError as error:
                self._notes.refuse(line, str(error))
                continue
            key = (outage.uid,) if outage.uid else (outage.start, outage.kind, outage.title)
            if key in outages_by_key and outages_by_key[key][1] != outage:
                self._notes.refuse(outages_by_key[key][0], f"Line {line} says the same otherwise, and is the one that counts.")
            outages_by_key[key] = (line, outage)
        self._note_unclear()
        self._notes.close()
        return [
            outage for _, outage in outages_by_key.values() if outage.start <= end and (outage.end is None or outage.end >= start)
        ]

    def _rows(self) -> Iterator[tuple[int, dict[str, str]]]:
        """The lines as fields under our names, with their number."""
        header = next((line for line in self._text.splitlines() if line.strip()), "")
        delimiter = max(",;\t|", key=header.count)
        reader = csv.reader(io.StringIO(self._text, newline=""), delimiter=delimiter, skipinitialspace=True)
        places: dict[str, int] | None = None
        number = 0
        try:
            for cells in reader:
                if not any(cell.strip() for cell in cells):
                    continue
                if places is None:
                    places = self._places(cells)
                    continue
                number += 1
                if number > _MOST_ROWS:
                    raise SourceFormatError(f"{self._name} has more than {_MOST_ROWS:,} rows.", hint="Cut it into parts.")
                yield reader.line_num, {name: cells[at].strip() if at < len(cells) else "" for name, at in places.items()}
        except csv.Error as error:
            what = f"{self._name} is no CSV from line {reader.line_num} on: {error}."
            raise SourceFormatError(what, hint="Save it again as CSV (UTF-8).") from None
        if places is None:
            raise SourceFormatError(f"{self._name} is empty.", hint="A header is expected: start,end,kind,title")

    def _places(self, header: list[str]) -> dict[str, int]:
        """Where our columns stand in a header."""
        columns = _VOCABULARY.columns(header, _COLUMNS)
        if "start" not in columns:
            names = ", ".join(name for name in map(_VOCABULARY.plain, header) if name)[:200]
            hint = "A header is expected: start,end,kind,title (or from, to, type, summary)."
            raise SourceFormatError(f"{self._name} has no column 'start'. Found: {_printable(names)}.", hint=hint)
        return {name: header.index(column) for name, column in columns.items()}

    def _outage(self, row: dict[str, str]) -> Outage:
        began = moment_of(row["start"], self._zone, what="The start")
        end_text = row.get("end") or row.get("duration") or ""
        ended = end_of(end_text, began, self._zone) if end_text else None
        kind = self._kind_of(row.get("kind", ""), row.get("title", ""))
        check_span(began, ended, kind, now=self._now)
        if ended is None and kind is not OutageKind.OUTAGE:
            raise UsageError("It has no end.", hint="Only an outage may last; write when this ends.")
        uid = row.get("uid", "")
        if len(uid) > LONGEST_UID or not uid.isprintable():
            raise UsageError("Its id is too long or not plain text.", hint=f"At most {LONGEST_UID} letters are taken.")
        return Outage(began, ended, kind, row.get("title", ""), self.source, uid)

    def _kind_of(self, kind_text: str, title: str) -> OutageKind:
        """The column of the row; else --kind; else the words of the title; else an outage: the file is one of incidents."""
        if kind_text:
            kind = kind_in(kind_text)
            if kind is not None:
                return kind
            self._unclear[kind_text] = self._unclear.get(kind_text, 0) + 1
        return self._kind or kind_in(title) or OutageKind.OUTAGE

    def _note_unclear(self) -> None:
        if self._unclear:
            names = ", ".join(_printable(word)[:40] for word in list(self._unclear)[:5])
            count = sum(self._unclear.values())
            self.notes.append(f"{count:,} rows are of a kind that says neither outage nor maintenance ({names}): see --kind.")


def _text_of(path: Path) -> tuple[str, list[str]]:
    """The text of a file that is not absurdly long, and a note where it is not in UTF-8."""
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        hint = "Check the name and its permissions."
        raise SourceError(f"{path} cannot be read: {error.strerror or error}.", hint=hint) from None
    if len(content) > _MOST_BYTES:
        what = f"{path.name} is larger than {_MOST_BYTES // 1024**2} MiB."
        raise SourceFormatError(what, hint="That is no list of incidents; cut it into parts if it is.")
    if b"\0" in content[:4096]:
        raise SourceFormatError(
            f"{path.name} is not text.", hint="A CSV, iCalendar (.ics) or downtime (.yaml) file in UTF-8 is expected."
        )
    try:
        return content.decode("utf-8-sig"), []
    except UnicodeDecodeError:
        return content.decode("cp1252", "replace"), ["The file is not in UTF-8, and was read as Windows text."]


def _printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else " " for letter in text)


def is_downtime_file(text: str) -> bool:
    """Whether a text is a list of downtimes."""
    return _START.search(text) is not None


class IncidentDowntimes(_IncidentText):
    """The downtimes of a file: scheduled ones are maintenance, unscheduled ones outages."""

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
                outage = self._outage(entry)
            except UsageError as error:
                self._notes.refuse(line, str(error))
                continue
            kept[(outage.uid,) if outage.uid else (outage.start, outage.kind, outage.title)] = outage
        if harmless:
            self.notes.append(f"{harmless:,} downtimes with 'No Significant Outage Expected' were left out.")
        self._notes.close()
        return [outage for outage in kept.values() if outage.start <= end and (outage.end is None or outage.end >= start)]

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
