"""Counts of events made by hand, and sources that tell them."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import polars as pl

from stormpetrel.records.events import as_counts, covered
from stormpetrel.records.times import UTC_TIME
from stormpetrel.store.events.counts import EventCountStore

H0 = datetime(2024, 3, 31, 12, tzinfo=UTC)  # twelve hours before the end of a month
HOUR = timedelta(hours=1)


def counts_of(rows, *, source="made", bucket_s=3600):
    """Counts of (hours after H0, kind, count) or (hours, kind, count, place, value)."""
    full = [(*row, "", "") if len(row) == 3 else row for row in rows]
    frame = pl.DataFrame(
        [(H0 + HOUR * hour, kind, count, place, value) for hour, kind, count, place, value in full],
        schema={
            "bucket_start": UTC_TIME,
            "kind": pl.String(),
            "count": pl.Int64(),
            "place": pl.String(),
            "value": pl.String(),
        },
        orient="row",
    )
    return as_counts(frame, source, bucket_s)


def seen_of(rows, first, last, *, source="made", unseen=()):
    """The same with marks of the hours from first to before last, without those that were not seen."""
    counts = counts_of(rows, source=source)
    marks = covered(source, H0 + HOUR * first, H0 + HOUR * last, 3600, counts)
    gone = [H0 + HOUR * hour for hour in unseen]
    return pl.concat([counts, marks.filter(~pl.col("bucket_start").is_in(gone))])


@dataclass
class CountsOnly:
    """What a site is to its event counts, made in a tenth of the time."""

    event_counts: EventCountStore


def counts_only(folder):
    """A store of event counts without a site around it."""
    store = EventCountStore(folder, nullcontext)
    store.create()
    return CountsOnly(store)


class MadeSource:
    """A source that tells the spans it was given; it fails when it comes to an error."""

    def __init__(self, *spans, source="made"):
        self.source, self.notes = source, []
        self._spans = spans
        self.asked = None

    def spans(self, cursor, now):
        self.asked = cursor(self.source)
        for span in self._spans:
            if isinstance(span, BaseException):
                raise span
            yield span
