"""The last status of the watch and of its sources, for the pages that show it: two small records in the state store.

The loop leaves a WatchStatus at each turn; a thread next to it leaves the sources, also while the loop hangs. WatchReport puts
both together and says how the watch is at a given moment.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Final, Literal

import sqlalchemy as sa

from stormpetrel.store.source_health import JOBS, SourceHealth, Trouble, format_span, leading, troubles
from stormpetrel.store.state import StateStore
from stormpetrel.store.state_tables import meta

_KEY: Final = "watch"
_SOURCES_KEY: Final = "watch-sources"
_SILENT_S: Final = 30.0  # the thread next to the loop writes every few seconds
_STUCK_S: Final = 120.0

WatchState = Literal["never", "stopped", "silent", "trouble", "live"]


@dataclass(frozen=True, slots=True)
class WatchStatus:
    """A sign of life: who watches, since when, how far, and what is wrong. Times are ISO, in the site's own clock."""

    pid: int
    host: str
    started: str
    stepped: str  # the site's clock at the last turn of the loop
    stepped_real: str  # the machine's
    horizon: str | None = None
    problem: str | None = None  # of the loop itself: a model or the store; that of a source is reported by the source
    open_jobs: int = 0
    predictions: int = 0  # since it was started
    late: int = 0
    poll_s: float = 5.0
    stopped: bool = False
    models: dict[str, int] = field(default_factory=dict)
    training: str | None = None  # what the last training came to
    waits_for: str | None = None  # what a first model, of the site or of a moment, waits for; `problem` as well where it is all

    def seconds_silent(self, now: datetime) -> float:
        """How long ago, in real time, the loop was last heard of."""
        return (now - datetime.fromisoformat(self.stepped_real)).total_seconds()


@dataclass(frozen=True, slots=True)
class WatchReport:
    """Everything that a watch has left in the state: its status, its sources, and when it was last `heard` of with the loop."""

    status: WatchStatus | None = None
    sources: tuple[SourceHealth, ...] = ()
    heard: datetime | None = None

    @property
    def reads_jobs(self) -> bool:
        """Whether jobs are judged, as far as is known: a site of events alone has a watch as well."""
        return not self.sources or any(source.watcher == JOBS for source in self.sources)

    def silent_s(self, now: datetime) -> float:
        """How long ago, in real seconds, the watch was last heard of, by its loop or next to it."""
        loop_s = self.status.seconds_silent(now) if self.status else float("inf")
        return loop_s if self.heard is None else min(loop_s, (now - self.heard).total_seconds())

    def state(self, now: datetime) -> WatchState:
        """How the watch is at a moment; `silent` is one that died, or stands still as a whole."""
        if self.status is None:
            return "never"
        if self.status.stopped:
            return "stopped"
        rare_s = 0.0 if self.heard else 5 * self.status.poll_s
        if self.silent_s(now) > max(_SILENT_S, rare_s):
            return "silent"
        return "trouble" if self.problem(now) else "live"

    def is_new(self, now: datetime) -> bool:
        """Whether nothing is wrong but that there are too few jobs yet for a first model."""
        return self.status is not None and bool(self.status.waits_for) and self.problem(now) == self.status.waits_for

    def problem(self, now: datetime) -> str:
        """Why the watch does not do its work, in a sentence; empty where it does."""
        if self.status is None:
            return ""
        leading_troubles = self.troubles(now, of=leading(self.sources))
        troubles = [trouble for trouble in leading_troubles if trouble.kind != "behind"]  # who is behind does its work
        if troubles:
            return troubles[0].what
        turned_s = self.status.seconds_silent(now)
        is_looking = any(source.looking_since for source in self.sources)
        if not is_looking and turned_s > stuck_after_s(self.status.poll_s):
            return f"The loop has not made a turn for {format_span(turned_s)}."
        return self.status.problem or ""

    def troubles(self, now: datetime, *, of: list[SourceHealth] | None = None) -> list[Trouble]:
        """What is wrong with the sources."""
        return troubles(self.sources if of is None else of, now)


def stuck_after_s(poll_s: float) -> float:
    """From when on a loop without a turn is stuck."""
    return max(_STUCK_S, 10 * poll_s)


def write_status(state: StateStore, status: WatchStatus) -> None:
    """Leave a sign of life."""
    _write(state, _KEY, json.dumps(asdict(status)))


def write_sources(state: StateStore, sources: tuple[SourceHealth, ...], now: datetime) -> None:
    """Leave how the sources are, and that somebody is there."""
    record = {"heard": now.isoformat(), "sources": [source.as_dict() for source in sources]}
    _write(state, _SOURCES_KEY, json.dumps(record))


def _write(state: StateStore, key: str, value: str) -> None:
    with state.transaction() as connection:
        updated = connection.execute(sa.update(meta).where(meta.c.key == key).values(value=value))
        if not updated.rowcount:
            connection.execute(sa.insert(meta).values(key=key, value=value))


def read_status(state: StateStore) -> WatchStatus | None:
    """The last sign of life; None where nobody has watched yet."""
    return read_watch(state).status


def read_watch(state: StateStore) -> WatchReport:
    """Everything that the last watch has left."""
    query = sa.select(meta.c.key, meta.c.value).where(meta.c.key.in_([_KEY, _SOURCES_KEY]))
    with state.transaction() as connection:
        values = {key: json.loads(value) for key, value in connection.execute(query)}
    record = values.get(_SOURCES_KEY)
    return WatchReport(
        status=WatchStatus(**values[_KEY]) if _KEY in values else None,
        sources=tuple(SourceHealth.from_dict(source) for source in record["sources"]) if record else (),
        heard=datetime.fromisoformat(record["heard"]) if record else None,
    )
