"""What an ingest counts: records read, what became of them, the time that they cover; and the report of events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import polars as pl

from stormpetrel.records.events import COVERED, WHOLE
from stormpetrel.store.events.gaps import EventGap
from stormpetrel.store.tables import Committed


@dataclass(slots=True, kw_only=True)
class IngestCounts:
    """The counts that the reports of jobs, traces and events share; `first` and `last` are null before anything was kept."""

    read: int = 0
    kept: int = 0
    known: int = 0
    changed: int = 0
    first: datetime | None = None
    last: datetime | None = None
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def stretch(self, first: datetime, last: datetime) -> None:
        """Make the span of the report hold these times."""
        self.first = min(self.first, first) if self.first else first
        self.last = max(self.last, last) if self.last else last

    def counted(self) -> dict[str, int]:
        """The counts as `--json` prints them."""
        return {"read": self.read, "kept": self.kept, "known": self.known, "changed": self.changed}

    def span(self) -> dict[str, Any]:
        """The span of time as `--json` prints it, in ISO 8601."""
        return {
            "first": self.first.isoformat() if self.first else None,
            "last": self.last.isoformat() if self.last else None,
        }


_MOST_GAPS: Final = 20  # that a report lists
_MOST_NOTES: Final = 50


@dataclass(slots=True)
class EventReport(IngestCounts):
    """The counts of one ingest: `read` and `quarantined` are events; kept, known and changed are buckets of time.

    Of background they are values, of outages they are outages. `last` is the end of the last bucket. `problems` are sources that
    failed: the others were read.
    """

    source: str = ""
    quarantined: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    gaps: list[EventGap] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """The report as `--json` prints it."""
        return {
            "source": self.source,
            **self.counted(),
            "quarantined": dict(self.quarantined),
            "kinds": dict(self.kinds.most_common()),
            **self.span(),
            "gaps": [gap.as_dict() for gap in self.gaps[-_MOST_GAPS:]],
            "notes": self.notes[:_MOST_NOTES],
            "problems": self.problems,
            "seconds": round(self.seconds, 3),
        }

    def add(self, done: Committed) -> None:
        """Count what became of one commit."""
        self.kept += done.kept
        self.known += done.known
        self.changed += done.changed

    def count(self, counts: pl.DataFrame) -> None:
        """Count the events of a frame of counts, by kind."""
        whole = counts.filter(pl.col("place") == WHOLE, pl.col("kind") != COVERED, pl.col("count") != 0)
        self.read += int(whole["count"].sum())
        self.kinds.update(dict(whole.group_by("kind").agg(pl.col("count").sum()).iter_rows()))

    def set_aside(self, why: str, events: int) -> None:
        """Count events that were read and cannot be counted."""
        if events:
            self.read += events
            self.quarantined[why] += events


def sum_event_reports(reports: Sequence[EventReport]) -> EventReport:
    """The sum of several reports."""
    total = EventReport(", ".join(report.source for report in reports))
    for report in reports:
        total.read += report.read
        total.seconds += report.seconds
        total.add(Committed(report.kept, report.known, report.changed))
        total.quarantined.update(report.quarantined)
        total.kinds.update(report.kinds)
        total.gaps += report.gaps
        total.notes += report.notes
        total.problems += report.problems
        if report.first and report.last:
            total.stretch(report.first, report.last)
    return total
