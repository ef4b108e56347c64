"""The classic HTCondor job event log -> events, one at a time, damaged ones set aside.

blocks of lines ended by `...` -> CondorEvent with the attribute names that HTCondor's own reader gives. Both date styles.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from stormpetrel.errors import SourceFormatError
from stormpetrel.sources.htcondor.vocabulary import AD_INFORMATION, EXECUTE, HELD, SUBMIT
from stormpetrel.sources.job_rows import real, whole
from stormpetrel.sources.lines import Block, LineFile, Refused, shown, sound_lines

_HEADER: Final = re.compile(
    r"(\d{3}) \((-?\d{1,12})\.(-?\d{1,12})\.-?\d{1,12}\) (?:(\d{4})-(\d\d)-(\d\d)[ T]|(\d\d)/(\d\d) )(\d\d):(\d\d):(\d\d)"
    r"(?:\.\d{1,9})?(Z|[+-]\d\d:?\d\d)?(?: (.*))?",
    re.ASCII,
)
_LEGACY_DATE: Final = re.compile(rb"^\d{3} \([\d.-]+\) (\d\d)/(\d\d) \d\d:", re.MULTILINE)
_END: Final = "..."
_END_LINE: Final = re.compile(rb"\.\.\.[ \t\r]*\n")
_MAX_EVENT_BYTES: Final = 4 * 1024 * 1024
_SLACK: Final = timedelta(days=1)

_HOST: Final = re.compile(r"Job (?:submitted from|executing on) host: (.+)")
_IMAGE_SIZE: Final = re.compile(r"Image size of job updated: (\d+)", re.ASCII)
_AMOUNT: Final = re.compile(r"(\d+)\s+-\s+(\w+) of job\b", re.ASCII)
_NORMAL: Final = re.compile(r"\(1\) Normal termination \(return value (-?\d+)\)", re.ASCII)
_ABNORMAL: Final = re.compile(r"\(0\) Abnormal termination \(signal (\d+)\)", re.ASCII)
_USAGE: Final = re.compile(r"(Usr \S.{0,200}?)\s+-\s+(Run|Total) (Remote|Local) Usage", re.ASCII)
_HOLD_CODE: Final = re.compile(r"Code (\d+) Subcode (\d+)", re.ASCII)
_PROPERTY: Final = re.compile(r"([A-Za-z_]\w*)\s*=\s*(.*)", re.ASCII)
_NAMED: Final = re.compile(r"(SlotName|DAG Node): (.+)")
_TABLE_HEAD: Final = re.compile(r"\s*Partitionable Resources :(.*)")
_TABLE_ROW: Final = re.compile(r"\s*(\w+)(?: \(\w+\))?\s*:(.*)", re.ASCII)
_TABLE_NAMES: Final = {"Usage": "{}Usage", "Request": "Request{}", "Allocated": "{}"}
_BOOKKEEPING: Final = re.compile(r"\(\d\) |[\d.]+\s+-\s+(?:Run|Total) Bytes|Partitionable Resources")


@dataclass(frozen=True, slots=True)
class CondorEvent:
    """Something that happened to a job; `is_copy` for event 028, which tells of another event that may be there too."""

    line: int
    number: int
    cluster: int
    proc: int
    time: datetime
    attributes: dict[str, object]
    is_copy: bool = False


def events_in(
    file: LineFile, *, zone: ZoneInfo, year: int | None = None, notes: list[str] | None = None
) -> Iterator[tuple[CondorEvent | Refused, int]]:
    """The events of a log, and what was refused, each with the bytes read so far.

    `year` is that of the first event, for headers without one; None: the last event is taken to be as old as the file, and
    that is said in `notes`.
    """
    head = file.head()
    if head.strip() and not any(_HEADER.match(line.decode("utf-8", "replace")) for line in head.split(b"\n")):
        raise SourceFormatError(
            f"{file.name} is not a job event log of HTCondor: no line of its beginning is NNN (JOB) DATE TIME ….",
            hint="Name the log of the submit file or EVENT_LOG; XML and JSON event logs are not read.",
        )
    calendar = Calendar(year) if year is not None else _calendar_of(file, zone)
    if year is None and notes is not None and _LEGACY_DATE.search(head):
        notes.append(f"The dates of {file.name} have no year; the first is taken to be of {calendar.year} (another: --year).")
    assembler, done = _Assembler(), 0
    for block in file.blocks():
        done = block.bytes_done
        for block_or_date in _blocks_of_events(block, assembler):
            yield (block_or_date if isinstance(block_or_date, tuple) else _event(block_or_date, calendar, zone)), done
    for rest in assembler.finish():
        yield rest, done


def events_in_text(data: bytes, *, first_line: int, calendar: Calendar, zone: ZoneInfo) -> Iterator[CondorEvent | Refused]:
    """The events of a part of a log that begins and ends between two events, and what was refused."""
    assembler = _Assembler()
    block = Block(data, first_line, data.count(b"\n"), len(data))
    for item in _blocks_of_events(block, assembler):
        yield item if isinstance(item, tuple) else _event(item, calendar, zone)
    yield from assembler.finish()


def end_of_last_event(data: bytes) -> int:
    """Where the last whole event of some bytes ends; 0 where none does."""
    at = len(data)
    while (at := data.rfind(b"\n" + _END.encode(), 0, at)) >= 0:
        if end := _END_LINE.match(data, at + 1):
            return end.end()
    return 0


def begins_event(data: bytes) -> bool:
    """Whether some bytes begin with the first line of an event."""
    return bool(_HEADER.match(data.partition(b"\n")[0].decode("utf-8", "replace")))


Lines = list[tuple[int, str]]


class _Assembler:
    """Collects lines until the event they tell of is whole."""

    def __init__(self) -> None:
        self._lines: Lines = []
        self._size = 0
        self._problem: Refused | None = None

    def take(self, number: int, line: str) -> Iterator[Lines | Refused]:
        """A sound line; gives the event that it ends, or the refusal of one that it cuts short."""
        if line.rstrip() == _END:
            yield from self._close()
            return
        if _HEADER.match(line):
            yield from self.finish()
        self._size += len(line)
        if self._size <= _MAX_EVENT_BYTES:
            self._lines.append((number, line))
        elif not self._problem:
            reason = f"the event is longer than {_MAX_EVENT_BYTES:,} bytes"
            self._problem = (number, "record_too_long", reason, shown(line.encode()))

    def spoil(self, refused: Refused) -> None:
        """A line that cannot be read: the event it belongs to is refused for it."""
        self._problem = self._problem or refused

    def finish(self) -> Iterator[Refused]:
        """Refuse what has begun and has no end."""
        if self._lines and not self._problem:
            number, line = self._lines[0]
            self._problem = (number, "truncated_record", "the event has no end (a line of three dots)", shown(line.encode()))
        if self._problem:
            yield self._problem
        self._reset()

    def _close(self) -> Iterator[Lines | Refused]:
        if self._problem:
            yield self._problem
        elif self._lines:
            yield self._lines
        self._reset()

    def _reset(self) -> None:
        self._lines, self._size, self._problem = [], 0, None


def _blocks_of_events(block: Block, assembler: _Assembler) -> Iterator[Lines | Refused]:
    lines, refused = sound_lines(block)
    spoilt = {entry[0]: entry for entry in (*block.refused, *refused)}
    sound = dict(lines)
    for number in sorted({*sound, *spoilt}):
        if number in spoilt:
            assembler.spoil(spoilt[number])
        else:
            yield from assembler.take(number, sound[number].decode())


class Calendar:
    """Gives a year to dates that have none, in the order of the log.

    `year` is that of the first date; one year less, if that date comes after `today` in the calendar.
    """

    def __init__(self, year: int, today: tuple[int, int] = (12, 31)) -> None:
        self.year, self._today = year, today
        self._month = 0

    def year_of(self, month: int, day: int) -> int:
        """The year of the next date. Writers take turns, so that a date may be a little older than the one before."""
        if not self._month and (month, day) > self._today:
            self.year -= 1
        if self._month == 1 and month == 12:
            return self.year - 1
        if month < self._month - 1:
            self.year += 1
        if month != self._month - 1:
            self._month = month
        return self.year


def _calendar_of(file: LineFile, zone: ZoneInfo) -> Calendar:
    """A calendar by which the last date of the file is the newest that does not lie in the future of it."""
    limit = (file.as_of + _SLACK).astimezone(zone)
    today = limit.month, limit.day
    if file.is_stdin or not _LEGACY_DATE.search(file.head()):
        return Calendar(limit.year, today)
    scout, last = Calendar(0), (1, 1)
    for block in file.blocks():
        for block_or_date in _LEGACY_DATE.findall(block.data):
            date = int(block_or_date[0]), int(block_or_date[1])
            if scout.year_of(*date) == scout.year:
                last = date
    return Calendar(limit.year - (last > today) - scout.year)


def _event(lines: Lines, calendar: Calendar, zone: ZoneInfo) -> CondorEvent | Refused:
    number, first = lines[0]
    header = _HEADER.fullmatch(first)
    if not header:
        return (number, "bad_record", "the event does not begin with NNN (JOB) DATE TIME", shown(first.encode()))
    kind, cluster, proc = (int(part) for part in header.group(1, 2, 3))
    at = _time(header, calendar, zone)
    if at is None:
        return (number, "bad_value", "the event has a date or time that does not exist", shown(first.encode()))
    body = [line for _, line in lines[1:]]
    if kind != AD_INFORMATION:
        return CondorEvent(number, kind, cluster, proc, at, _attributes(kind, header[13] or "", body))
    attributes = {match[1]: _value(match[2]) for line in body if (match := _PROPERTY.fullmatch(line.strip()))}
    trigger = whole(attributes.get("TriggerEventTypeNumber"))
    return CondorEvent(number, AD_INFORMATION if trigger is None else trigger, cluster, proc, at, attributes, is_copy=True)


def _time(header: re.Match[str], calendar: Calendar, zone: ZoneInfo) -> datetime | None:
    """The time of an event in whole seconds, as the history has it."""
    year, month, day, legacy_month, legacy_day = header.group(4, 5, 6, 7, 8)
    if legacy_month:
        year, month, day = str(calendar.year_of(int(legacy_month), int(legacy_day))), legacy_month, legacy_day
    clock = f"{year:0>4}-{month}-{day}T{':'.join(header.group(9, 10, 11))}{header[12] or ''}"
    try:
        at = datetime.fromisoformat(clock)
        return (at if at.tzinfo else at.replace(tzinfo=zone)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _attributes(kind: int, title: str, body: list[str]) -> dict[str, object]:
    attributes: dict[str, object] = {}
    if host := _HOST.fullmatch(title):
        attributes["SubmitHost" if kind == SUBMIT else "ExecuteHost"] = host[1]
    if size := _IMAGE_SIZE.fullmatch(title):
        attributes["Size"] = whole(size[1])
    ends: list[tuple[str, int]] = []  # columns of the resource table, and where they end
    for line in body:
        if head := _TABLE_HEAD.fullmatch(line):
            ends = [(_TABLE_NAMES[word[0]], word.end()) for word in re.finditer(r"\w+", head[1]) if word[0] in _TABLE_NAMES]
        elif ends and (row := _TABLE_ROW.fullmatch(line)):
            attributes.update(_resources(row[1], row[2], ends))
        else:
            attributes.update(_line_attributes(kind, line.strip(), known=attributes))
    return attributes


def _line_attributes(kind: int, line: str, *, known: dict[str, object]) -> dict[str, object]:
    if named := _NAMED.fullmatch(line):
        return {named[1].replace("DAG Node", "DAGNodeName"): named[2]}
    if amount := _AMOUNT.match(line):
        return {amount[2]: whole(amount[1])}
    if normal := _NORMAL.fullmatch(line):
        return {"TerminatedNormally": True, "ReturnValue": whole(normal[1])}
    if abnormal := _ABNORMAL.fullmatch(line):
        return {"TerminatedNormally": False, "TerminatedBySignal": whole(abnormal[1])}
    if usage := _USAGE.fullmatch(line):
        return {f"{usage[2]}{usage[3]}Usage": usage[1]}
    if code := _HOLD_CODE.fullmatch(line):
        return {"HoldReasonCode": whole(code[1]), "HoldReasonSubCode": whole(code[2])}
    if kind == EXECUTE and (entry := _PROPERTY.fullmatch(line)):
        return {entry[1]: _value(entry[2])}
    reason = "HoldReason" if kind == HELD else "Reason"
    return {} if reason in known or _BOOKKEEPING.match(line) else {reason: line}


def _resources(name: str, cells: str, ends: list[tuple[str, int]]) -> dict[str, object]:
    """One row of the table, right-aligned under its head and with empty cells: each number goes to the nearest column."""
    cells_by_name: dict[str, object] = {}
    for cell in re.finditer(r"(?<!\S)[\d.]+(?!\S)", cells):
        column, _ = min(ends, key=lambda end: abs(end[1] - cell.end()))
        number = whole(cell[0])
        cells_by_name.setdefault(column.format(name), real(cell[0]) if number is None else number)
    return cells_by_name


def _value(raw: str) -> object:
    """A literal of the ClassAd language; anything else as it is written."""
    if len(raw) > 1 and raw[0] == raw[-1] == '"':
        return re.sub(r"\\(.)", r"\1", raw[1:-1])
    if raw in ("true", "false"):
        return raw == "true"
    number = whole(raw)
    return number if number is not None else real(raw) if real(raw) is not None else raw
