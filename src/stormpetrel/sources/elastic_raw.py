"""Events of an index counted here, out of its raw documents: slower than the server's own counts, and each document exactly once.

ElasticEvents -> spans -> the same spans, marks and gaps, with counts of our own. The documents are read and forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime

import polars as pl

from stormpetrel.config import ElasticSection, EventsSection
from stormpetrel.errors import SettingsError
from stormpetrel.records.cursor import CursorOf
from stormpetrel.records.event_counting import count_events, set_aside
from stormpetrel.records.events import COVERED
from stormpetrel.sources.elastic import ElasticEvents
from stormpetrel.sources.elastic_query import zone_offset_s
from stormpetrel.sources.event_contract import CountedSpan


class RawElasticEvents:
    """What the index holds, document by document."""

    def __init__(self, settings: ElasticSection, events: EventsSection) -> None:
        if zone_offset_s(settings.time_zone) % (events.bucket_minutes * 60):
            raise SettingsError(
                f"Documents are counted here in UTC, and elastic.time_zone {settings.time_zone} cuts other days or hours.",
                hint="Leave out --raw, or set elastic.time_zone to UTC, or events.bucket_minutes to 15 or less.",
            )
        self._settings, self._events = settings, events
        self._spans = ElasticEvents(settings, events)  # says what can be seen, and where the cursor is
        self.source = self._spans.source
        self.notes: list[str] = []

    def spans(self, cursor: CursorOf, now: datetime) -> Iterator[CountedSpan]:
        """The spans of the server, each counted again."""
        try:
            for span in self._spans.spans(cursor, now):
                yield self._counted(span, now)
        finally:
            self.notes += self._spans.notes

    def _counted(self, span: CountedSpan, now: datetime) -> CountedSpan:
        with ElasticEvents(self._settings, self._events) as reader:  # its own connection: the other is in the middle of a reading
            frames = list(reader.events(span.start, span.end))
        if not frames:
            return span
        events, aside = set_aside(pl.concat(frames), now=now)
        bucket_s, most = self._events.bucket_minutes * 60, self._events.most_places
        counts = count_events(events, source=self.source, bucket_s=bucket_s, most_places=most)
        marks = span.counts.filter(pl.col("kind") == COVERED)
        told = {**span.quarantined, **{why: n + span.quarantined.get(why, 0) for why, n in aside.items()}}
        return replace(span, counts=pl.concat([counts, marks]), quarantined=told)
