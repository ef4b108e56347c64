"""What every source of event counts, of background and of outages keeps to.

EventSource -> spans -> CountedSpan -> the store. A span says what a source knows of a stretch of time: the counts, the marks of
the buckets it has seen whole, and what is missing with its reason.

::

    class Somewhere:                                     # EventSource
        def __init__(self, ...) -> None:
            self.source, self.notes = "elastic:fifebatch-*", []

        def spans(self, cursor, now):
            read_to = cursor(self.source)                # None at the first run
            for start, end in ...:                       # oldest first; both at the edge of a bucket
                counts = count_events(events, source=self.source, bucket_s=3600, most_places=100)
                marks = covered(self.source, start, seen_to, 3600, counts)
                yield CountedSpan(start, end, pl.concat([counts, marks]), cursor=Cursor(self.source, position))

A span that is not `additive` is *all* that the source says of [start, end): the store puts it in place of what it said before.
Buckets without a mark leave alone what was seen whole before. An `additive` span (a log that is read on) holds only events that
no earlier span held; it must have a cursor, and is added once, however often it is brought. A source that fails raises
SourceUnavailableError between two spans: what was taken in stays, and the store records the gap.

The store makes them so: elastic.ElasticEvents(settings.elastic, settings.events), condor_follow.FollowedEventLog(settings),
condor_counts.CondorEventFile(path, settings, year=None), event_tables.EventTable(path, settings) and CountTable(path, settings),
graphite.GraphiteBackground(settings.graphite, settings.events), prometheus_background.PrometheusBackground(settings.prometheus,
settings.events), grafana.GrafanaOutages(settings.grafana).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

import polars as pl

from stormpetrel.records.cursor import Cursor, CursorOf
from stormpetrel.records.events import Missing
from stormpetrel.records.outages import Outage


@dataclass(frozen=True, slots=True, eq=False)
class CountedSpan:
    """What a source knows of the time from `start` to before `end` (UTC)."""

    start: datetime
    end: datetime
    counts: pl.DataFrame  # COUNT_SCHEMA, marks included
    cursor: Cursor | None = None
    additive: bool = False
    quarantined: dict[str, int] = field(default_factory=dict)  # events that were not counted, by reason: future, bad_time, …
    missing: list[Missing] = field(default_factory=list)  # stretches that were not seen, with the reason in words
    done: float = 0.0  # share of the whole reading, for the progress bar; 0 where nobody knows


class EventSource(Protocol):
    """A server, a log or a file that counts of events come from."""

    source: str  # its name in COUNT_SCHEMA, such as `elastic:fifebatch-*`
    notes: list[str]  # what a person should know about how it was read

    def spans(self, cursor: CursorOf, now: datetime) -> Iterator[CountedSpan]:
        """Read on from the cursor up to what is over and settled at `now`, oldest first."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class BackgroundSpan:
    """What a server says of the background from `start` to before `end` (UTC)."""

    start: datetime
    end: datetime
    values: pl.DataFrame  # BACKGROUND_SCHEMA
    cursor: Cursor | None = None


class BackgroundSource(Protocol):
    """A server that queued jobs, slots, utilisation and the like come from."""

    source: str  # graphite, prometheus
    notes: list[str]

    def spans(self, cursor: CursorOf, now: datetime) -> Iterator[BackgroundSpan]:
        """Read on from the cursor up to what is over and settled at `now`, oldest first."""
        ...


class OutageSource(Protocol):
    """Somebody who names outages and maintenance: Grafana, a calendar, a file."""

    source: str  # grafana, file:NAME
    notes: list[str]

    def outages(self, start: datetime, end: datetime) -> list[Outage]:
        """All that this source says of the time from `start` to `end`."""
        ...
