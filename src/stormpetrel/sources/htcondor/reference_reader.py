"""HTCondor's own reader of event logs: slower, and the one to ask where ours does not know a format (XML, JSON).

LogFile -> htcondor2.JobEventLog -> EventBatch. The tests hold the fast scanner to what comes out here. Its cursor counts events,
not bytes: the library does not tell where it stands.
"""

from __future__ import annotations

import re
import tempfile
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo

import numpy as np

from stormpetrel.errors import MissingExtraError
from stormpetrel.records.events import BAD_TIME, FUTURE, FUTURE_SLACK, PLACES
from stormpetrel.records.times import EARLIEST
from stormpetrel.sources.htcondor import vocabulary
from stormpetrel.sources.htcondor.batches import FAILED_FLAG, FAST_FLAG, EventBatch
from stormpetrel.sources.htcondor.log_files import LogFile
from stormpetrel.sources.htcondor.scan_state import MOST_JOBS
from stormpetrel.sources.htcondor.vocabulary import host_name, host_of_slot
from stormpetrel.sources.job_rows import text, whole

_BATCH: Final = 50_000
_NODE: Final = PLACES.index("node")
_MOST_FAILURES: Final = 100  # in a row: the library stands still in front of some damage
_SLACK: Final = timedelta(days=1)
_UNREADABLE: Final = "bad_record"
_ERROR: Final = re.compile(r"\s*(?:Error from )?(?:starter on )?([^\s:]*@[^\s:]*):", re.ASCII)


def reference_batches(
    file: LogFile, position: int, *, time_zone: str, year: int | None, now: datetime, fast_failure_s: float, submit_host: str = ""
) -> Iterator[tuple[EventBatch, int, float]]:
    """The events behind the first `position` ones, the number of the last one so far, and the share of the reading done.

    All events are read each time, so that the jobs that run are known whatever the position.
    """
    years = _Years(year, file.modified, ZoneInfo(time_zone))
    rows, count = _Rows(fast_failure_s, submit_host, now), 0
    with tempfile.TemporaryDirectory(prefix="stormpetrel-") as folder:
        for event in _events(_plain(file, Path(folder))):
            count += 1
            if event is None:
                rows.refuse(_UNREADABLE, is_new=count > position)
            else:
                rows.take(event, years.time_of(str(event.get("EventTime", ""))), is_new=count > position)
            if len(rows.number) >= _BATCH:
                yield rows.batch(), count, 0.0
        yield rows.batch(), count, 1.0


def _plain(file: LogFile, folder: Path) -> Path:
    if file.size_bytes is not None:
        return file.path
    copy = folder / "events"
    with copy.open("wb") as target:
        target.writelines(file.pieces())
    return copy


def _events(path: Path) -> Iterator[Any]:
    """The events that the library gives; None for one that it cannot read."""
    try:
        import htcondor2
    except ImportError:
        raise MissingExtraError("Reading an event log in XML or JSON", "htcondor") from None
    log, failures = htcondor2.JobEventLog(str(path)), 0
    events = log.events(stop_after=0)
    while failures < _MOST_FAILURES:
        try:
            yield next(events)
            failures = 0
        except StopIteration:
            return
        except (htcondor2.HTCondorException, ValueError):  # UnicodeDecodeError is one too
            failures += 1
            yield None


class _Years:
    """The times of events; those of a header without a year come with the current one, and get their own."""

    def __init__(self, year: int | None, modified: datetime, zone: ZoneInfo) -> None:
        self._zone, self._limit = zone, modified + _SLACK
        self._argument = year

    def time_of(self, written: str) -> datetime | None:
        """The time of an event; None where it has none."""
        try:
            at = datetime.fromisoformat(written)
        except ValueError:
            return None
        at = at if at.tzinfo else at.replace(tzinfo=self._zone)
        leap_day = (at.month, at.day) == (2, 29)
        if self._argument is not None and not leap_day:
            at = at.replace(year=self._argument)
        while at > self._limit and at.year > EARLIEST.year and not leap_day:
            at = at.replace(year=at.year - 1)
        return at.astimezone(UTC)


@dataclass(slots=True)
class _Job:
    start: datetime | None = None
    places: list[int] = field(default_factory=lambda: [-1] * len(PLACES))
    awaited: set[int] = field(default_factory=set)  # numbers of events whose 028 has not come
    row: int = -1


class _Rows:
    """Makes rows of events: what the compiled scanner does, said in Python."""

    def __init__(self, fast_failure_s: float, submit_host: str, now: datetime) -> None:
        self._fast_s, self._submit_host, self._latest = fast_failure_s, submit_host, now + FUTURE_SLACK
        self._jobs: OrderedDict[tuple[int, int], _Job] = OrderedDict()
        self._ids: dict[str, int] = {}
        self._base = 0
        self._clear()

    def _clear(self) -> None:
        self.number: list[int] = []
        self._times: list[datetime] = []
        self._places: list[list[int]] = []
        self._markers: list[int] = []
        self._aside: dict[str, int] = {}
        self._read: list[datetime] = []

    def refuse(self, reason: str, *, is_new: bool) -> None:
        """An event that cannot be counted."""
        if is_new:
            self._aside[reason] = self._aside.get(reason, 0) + 1

    def take(self, event: Any, at: datetime | None, *, is_new: bool) -> None:
        """One event; `is_new` where it has not been counted before."""
        if at is None or at < EARLIEST or at > self._latest:
            self.refuse(BAD_TIME if at is None or at < EARLIEST else FUTURE, is_new=is_new)
            return
        if is_new:
            self._read.append(at)
        cluster, proc = whole(event.get("Cluster")), whole(event.get("Proc"))
        if cluster is None or proc is None or cluster < 0 or proc < 0:
            return
        job = self._job((cluster, proc))
        places = self._places_of(event)
        node = self._node_in_text(event) if int(event.type) in vocabulary.HOST_IN_TEXT else -1
        trigger = whole(event.get("TriggerEventTypeNumber")) if int(event.type) == vocabulary.AD_INFORMATION else None
        if trigger is not None and trigger in job.awaited:
            self._repeat(job, trigger, places)
            return
        number = int(event.type) if trigger is None else trigger
        if trigger is None:
            job.awaited.add(number)
        self._row(event, number, job, at, places, is_new, node)

    def batch(self) -> EventBatch:
        """The rows so far; there are none afterwards."""
        names = list(self._ids)
        batch = EventBatch(
            np.array(self.number, dtype=np.int64),
            np.array([round(at.timestamp() * 1e6) for at in self._times], dtype=np.int64),
            np.array(self._places, dtype=np.int64).reshape(-1, len(PLACES)),
            np.array(self._markers, dtype=np.int64),
            names,
            read=len(self._read),
            quarantined=self._aside,
            first=min(self._read, default=None),
            last=max(self._read, default=None),
        )
        if self._submit_host and (batch.places[:, 1] < 0).any():
            names.append(self._submit_host)
            batch.places[batch.places[:, 1] < 0, 1] = len(names) - 1
        self._base += len(self.number)
        self._clear()
        return batch

    def _job(self, key: tuple[int, int]) -> _Job:
        job = self._jobs.setdefault(key, _Job())
        self._jobs.move_to_end(key)
        if len(self._jobs) > MOST_JOBS:
            self._jobs.popitem(last=False)
        return job

    def _places_of(self, event: Any) -> list[int]:
        ids = []
        for place in PLACES:
            keys = () if place == "node" and int(event.type) in vocabulary.HOST_IN_TEXT else vocabulary.PLACE_ATTRIBUTES[place]
            name = next((value for key in keys if (value := text(event.get(key)))), None)
            name = host_name((host_of_slot(name) if place == "node" else name) or "") if name else ""
            ids.append(self._ids.setdefault(name, len(self._ids)) if name else -1)
        return ids

    def _node_in_text(self, event: Any) -> int:
        """The host that the text of an error names; -1 where it names none."""
        number = int(event.type)
        message = text(event.get(vocabulary.HOST_IN_TEXT[number])) or ""
        match = _ERROR.match(f"{message}:" if number == vocabulary.REMOTE_ERROR else message)
        name = host_name(host_of_slot(match[1]) or "") if match else ""
        return self._ids.setdefault(name, len(self._ids)) if name else -1

    def _repeat(self, job: _Job, number: int, places: list[int]) -> None:
        """An 028 tells again of an event that has a row; what it adds goes there."""
        job.awaited.discard(number)
        row = job.row - self._base
        is_here = 0 <= row < len(self.number) and self.number[row] == number
        for place, name in enumerate(places):
            if name < 0 or job.places[place] >= 0:
                continue
            if place != _NODE or job.start is not None:
                job.places[place] = name
            if is_here and self._places[row][place] < 0:
                self._places[row][place] = name

    def _row(self, event: Any, number: int, job: _Job, at: datetime, places: list[int], is_new: bool, node: int) -> None:
        if number in (vocabulary.SUBMIT, vocabulary.EXECUTE):
            job.start = at if number == vocabulary.EXECUTE else None
            job.places[0] = job.places[3] = -1
        job.places = [name if name >= 0 else known for name, known in zip(places, job.places, strict=True)]
        mark = 0
        if number == vocabulary.TERMINATED and _ended_badly(event):
            ran_s = (at - job.start).total_seconds() if job.start else -1.0
            mark = FAILED_FLAG | (FAST_FLAG if 0 <= ran_s <= self._fast_s else 0)
        if is_new:
            job.row = self._base + len(self.number)
            self.number.append(number)
            self._times.append(at)
            self._places.append([*job.places[:_NODE], job.places[_NODE] if job.places[_NODE] >= 0 else node])
            self._markers.append(mark)
        if number in vocabulary.ENDS_RUN:
            job.start, job.places[3] = None, -1


def _ended_badly(event: Any) -> bool:
    return event.get("TerminatedNormally") is False or bool(
        whole(event.get("ReturnValue")) or whole(event.get("TerminatedBySignal"))
    )
