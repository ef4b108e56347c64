"""How the watch's own reads go: when each live source was last read well, what is wrong with it, for how long, and how
far it was read beyond its cursor.

`with book.poll("sacct", …)` around every poll -> SourceHealth -> troubles at a given moment. Ages are computed when they are
read, so that a poll that hangs is seen while it hangs, by any thread or process that has the records.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from typing import Any, Final, Literal

import sqlalchemy as sa

from stormpetrel.errors import StoreError, StormpetrelError
from stormpetrel.store.state import StateStore
from stormpetrel.store.state_tables import meta

JOBS: Final = "jobs"
EVENTS: Final = "events"
TRACES: Final = "traces"

Seen = Callable[[int], None]  # reports progress of a poll: so many more records were read
PollSource = Callable[[str], AbstractContextManager[Seen]]
_MOMENTS: Final = ("since", "last_good", "problem_since", "looking_since", "progressed")


@dataclass(frozen=True, slots=True)
class SourceHealth:
    """One live source of a watch. Moments are the machine's clock in UTC, lengths are real seconds."""

    name: str  # sacct, slurmrestd, squeue, event log, elasticsearch, …
    watcher: str  # whose it is: JOBS or EVENTS
    every_s: float  # how often it is polled
    patience_s: float  # a poll without progress for this long is reported
    since: datetime  # when this watch took it up
    last_good: datetime | None = None  # the end of the last successful poll
    records: int = 0  # that it read
    problem: str = ""  # why the last poll failed
    problem_since: datetime | None = None
    looking_since: datetime | None = None  # the beginning of the poll under way
    progressed: datetime | None = None  # when that poll last made progress
    behind: str = ""  # what is left out because there is no time for all of it

    def lag_s(self, now: datetime) -> float | None:
        """Seconds since the last successful poll; None where there was none."""
        return None if self.last_good is None else max(0.0, (now - self.last_good).total_seconds())

    def last_read_text(self, now: datetime) -> str:
        """Sentence on when it was last read successfully."""
        lag_s = self.lag_s(now)
        return "It has not been read well yet." if lag_s is None else f"Last read well {format_span(lag_s)} ago."

    def as_dict(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        values = asdict(self)
        return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in values.items()}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> SourceHealth:
        """Out of plain values; what a later version added is left out."""
        known = {field.name: values[field.name] for field in fields(cls) if field.name in values}
        moments = {name: datetime.fromisoformat(known[name]) for name in _MOMENTS if known.get(name)}
        return cls(**{**known, **moments})


@dataclass(frozen=True, slots=True)
class Trouble:
    """What is wrong with a source: its last look failed, the look under way takes too long, or the next one is overdue.

    `behind`: it is read well, and only a part of it is judged, because there is no time for all.
    """

    source: str
    kind: Literal["failed", "slow", "overdue", "behind"]
    what: str

    def same_as(self, other: Trouble | None) -> bool:
        """Whether both tell of the same thing: seconds that go by are no news, another reason is."""
        return other is not None and self.kind == other.kind and (self.kind in ("slow", "overdue") or self.what == other.what)


def troubles(sources: Iterable[SourceHealth], now: datetime) -> list[Trouble]:
    """What is wrong at a moment, source by source.

    A source that nobody could get to because another one of the same watcher failed or hangs is not blamed for it.
    """
    sources = list(sources)
    direct = {source.name: trouble for source in sources if (trouble := _direct(source, now))}
    held_up = {source.watcher for source in sources if source.name in direct}
    late = {
        source.name: Trouble(source.name, "overdue", f"{source.name} should have been polled again. {source.last_read_text(now)}")
        for source in sources
        if source.watcher not in held_up and _is_overdue(source, now)
    }
    behind = {source.name: Trouble(source.name, "behind", source.behind) for source in sources if source.behind}
    return [
        problem for source in sources if (problem := direct.get(source.name) or late.get(source.name) or behind.get(source.name))
    ]


def leading(sources: Iterable[SourceHealth]) -> list[SourceHealth]:
    """The sources without which the watch does not do its work: those of jobs where it reads any, otherwise all."""
    sources = list(sources)
    return [source for source in sources if source.watcher == JOBS] or sources


def _direct(source: SourceHealth, now: datetime) -> Trouble | None:
    if source.problem:
        return Trouble(source.name, "failed", source.problem)
    if source.progressed is None or source.looking_since is None:
        return None
    if (now - source.progressed).total_seconds() < source.patience_s:
        return None
    lasts = format_span((now - source.looking_since).total_seconds())
    return Trouble(source.name, "slow", f"A poll of {source.name} has been under way for {lasts}. {source.last_read_text(now)}")


def _is_overdue(source: SourceHealth, now: datetime) -> bool:
    if source.looking_since is not None:
        return False
    last = max(source.last_good or source.since, source.since)
    return (now - last).total_seconds() > source.every_s + 2 * source.patience_s  # the loop is busy: no fault of the source


class SourceBook:
    """The sources of one watch, kept by the thread that polls and read by others."""

    def __init__(self, *, patience_s: float = 15.0, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._patience_s, self._clock = patience_s, clock
        self._sources: dict[str, SourceHealth] = {}
        self._before: dict[str, SourceHealth] = {}
        self._lock = threading.Lock()

    def recall(self, before: Iterable[SourceHealth]) -> None:
        """Take over from an earlier watch when its sources were last read well."""
        self._before = {source.name: source for source in before}

    def sources(self) -> tuple[SourceHealth, ...]:
        """Every source that has been polled, in the order of the first poll."""
        with self._lock:
            return tuple(self._sources.values())

    def drop(self, name: str) -> None:
        """Leave out a source that turned out to be none."""
        with self._lock:
            self._sources.pop(name, None)

    def note_behind(self, name: str, what: str) -> None:
        """Note what of a source is left out for lack of time; empty: nothing is."""
        self._change(name, behind=what)

    def now(self) -> datetime:
        """The moment by the clock that its records have: the machine's, also where the site's own is another."""
        return self._clock()

    def troubles(self) -> list[Trouble]:
        """What is wrong now."""
        return troubles(self.sources(), self._clock())

    @contextmanager
    def poll(self, name: str, *, watcher: str, every_s: float) -> Iterator[Seen]:
        """Record one poll of a source while the block runs; an error is its problem until a poll succeeds."""
        records = 0

        def seen(more: int) -> None:
            nonlocal records
            records += more
            self._change(name, progressed=self._clock())

        self._begin(name, watcher, every_s)
        problem: str | None = None
        try:
            yield seen
            problem = ""
        except StormpetrelError as error:
            problem = None if isinstance(error, StoreError) else str(error)
            raise
        finally:
            self._end(name, problem, records)

    def _begin(self, name: str, watcher: str, every_s: float) -> None:
        now = self._clock()
        with self._lock:
            known = self._sources.get(name) or self._first(name, watcher, every_s, now)
            self._sources[name] = replace(known, every_s=every_s, looking_since=now, progressed=now)

    def _first(self, name: str, watcher: str, every_s: float, now: datetime) -> SourceHealth:
        fresh = SourceHealth(name, watcher, every_s, self._patience_s, since=now)
        before = self._before.get(name)
        return fresh if before is None else replace(fresh, last_good=before.last_good, records=before.records)

    def _end(self, name: str, problem: str | None, records: int) -> None:
        """Close a poll: '' succeeded, text is what was wrong, None says nothing about the source."""
        now = self._clock()
        over = {"looking_since": None, "progressed": None}
        if problem:
            since = self._sources[name].problem_since or now
            self._change(name, **over, problem=problem, problem_since=since)
        elif problem is None:
            self._change(name, **over)
        else:
            self._change(name, **over, problem="", problem_since=None, last_good=now, records=records)

    def _change(self, name: str, **changes: Any) -> None:
        with self._lock:
            self._sources[name] = replace(self._sources[name], **changes)


@contextmanager
def unnoted(name: str) -> Iterator[Seen]:
    """A poll that is not recorded."""
    del name
    yield lambda _records: None


def format_span(seconds: float) -> str:
    """A length of time in one number: `4 s`, `12 min`, `3 h`, `5 days`."""
    for size, unit in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


_KEY_LENGTH: Final = 60


class ReadPositions:
    """Small records in the state store, one for each live source."""

    def __init__(self, state: StateStore) -> None:
        self._state = state

    def note(self, name: str, *, beyond: int | None, position: int) -> None:
        """Note that a source has been read up to a position, with nothing new since the cursor `beyond`."""
        value = json.dumps([beyond, position])
        with self._state.transaction() as connection:
            updated = connection.execute(sa.update(meta).where(meta.c.key == _key(name)).values(value=value))
            if not updated.rowcount:
                connection.execute(sa.insert(meta).values(key=_key(name), value=value))

    def position(self, name: str, *, beyond: int | None) -> int | None:
        """How far a source has been read beyond a cursor; None where nothing is known of that."""
        with self._state.transaction() as connection:
            value = connection.execute(sa.select(meta.c.value).where(meta.c.key == _key(name))).scalar()
        if value is None:
            return None
        noted, position = json.loads(value)
        return int(position) if noted == beyond else None


def _key(name: str) -> str:
    key = f"read:{name}"
    return key if len(key) <= _KEY_LENGTH else f"read:{hashlib.sha256(name.encode()).hexdigest()[:32]}"
