"""Elasticsearch or OpenSearch -> event counts per bucket, counted by the server, a span of days after the other.

ElasticSection -> ElasticEvents -> CountedSpan with coverage. A bucket is covered when all shards have answered for it, it is over
and settled, and an index exists that holds it; else it is missing, with the reason. Each span has a cursor; the next run goes on
where the last ended, counting a little again (`events.overlap_hours`) for events that came late.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import polars as pl

from stormpetrel.config import ElasticSection, EventsSection
from stormpetrel.errors import SettingsError, SourceFormatError
from stormpetrel.records.cursor import Cursor, CursorOf
from stormpetrel.records.events import (
    BAD_TIME,
    COVERED,
    FUTURE,
    FUTURE_SLACK,
    Missing,
    bucket_floor,
    count_events,
    covered,
    no_counts,
    set_aside,
)
from stormpetrel.sources.contract import CountedSpan
from stormpetrel.sources.elastic import query
from stormpetrel.sources.elastic.documents import read_documents, read_events
from stormpetrel.sources.elastic.indices import Indices, find_indices
from stormpetrel.sources.elastic.query import Counting, zone_offset_s
from stormpetrel.sources.elastic.server import PartAnswerError, SearchServer, TooManyBucketsError, part_missing

NO_INDEX: Final = "no index"
_FIRST_RUN: Final = timedelta(days=180)
_REQUESTED_AGAIN: Final = timedelta(
    days=14
)  # for so long a hole holds the cursor back: a shard may come back, an index be restored
_DAY: Final = timedelta(days=1)
_MICROSECOND: Final = timedelta(microseconds=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SMALLEST_PAGE: Final = 10
_HOUR_MIN: Final = 60
_NO_FORM: Final = (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError)


@dataclass(slots=True)
class _Reading:
    """A run over the index: what is there, and how far back the cursor must stay."""

    indices: Indices
    how: Counting
    overview: query.Overview
    first: datetime
    last: datetime
    now: datetime
    cursor: int | None
    hole: datetime | None = None  # the first stretch that will be asked for again

    def note_missing(self, missing: Sequence[Missing]) -> None:
        """Let the cursor not pass what is missing, unless that is long ago."""
        for start, end, _ in missing:
            if self.hole is None and self.now - end < _REQUESTED_AGAIN:
                self.hole = start

    def position(self, end: datetime) -> int:
        """Microseconds up to which nothing needs to be asked for again; it never moves back."""
        return max(self.cursor or 0, _micros(min(end, self.hole or end)))


class ElasticEvents:
    """The events that an index holds; `notes` say what a person should know about how they were read."""

    def __init__(
        self, settings: ElasticSection, events: EventsSection | None = None, *, server: SearchServer | None = None
    ) -> None:
        self._settings, self._events = settings, events or EventsSection()
        self._server = server or SearchServer(settings)
        self._page = 0  # what the server took at once; 0: not yet known
        query.zone_offset_s(settings.time_zone)
        self.bucket_s = self._events.bucket_minutes * 60
        self.source = f"elastic:{settings.index}"
        # Buckets of another length are counts of their own, of all the time there is: their reading has its own cursor.
        minutes = self._events.bucket_minutes
        self._cursor_name = self.source if minutes == _HOUR_MIN else f"{self.source} per {minutes} min"
        self.notes: list[str] = []

    def __enter__(self) -> ElasticEvents:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.close()

    @property
    def name(self) -> str:
        """The server, for people."""
        return self._server.name

    def spans(self, cursor: CursorOf, now: datetime) -> Iterator[CountedSpan]:
        """What has not been read yet, oldest first, in whole buckets that are over and settled."""
        try:
            reading = self._begin(cursor(self._cursor_name), now.astimezone(UTC))
            if reading is None:
                return
            quarantined = self._set_aside(reading)
            for start, end in self._chunks(reading):
                self._server.resume = _moment(reading.position(start))
                span = self._span(reading, start, end)
                yield CountedSpan(
                    start,
                    end,
                    span.counts,
                    cursor=Cursor(self._cursor_name, reading.position(end)),
                    quarantined=_sum(quarantined, span.quarantined),
                    missing=span.missing,
                    done=(end - reading.first) / (reading.last - reading.first),
                )
                quarantined = {}
        finally:
            self._server.close()

    def documents(self, start: datetime, end: datetime, *, fields: Sequence[str] | None = None) -> Iterator[dict[str, Any]]:
        """The raw documents of a span, each once, as they were when the reading began."""
        try:
            how = Counting(self._settings, self.bucket_s, self._find().fields)
            yield from read_documents(self._server, how, start, end, fields=fields)
        finally:
            self._server.close()

    def events(self, start: datetime, end: datetime) -> Iterator[pl.DataFrame]:
        """The events of a span out of the raw documents (EVENT_SCHEMA), each once, exactly."""
        try:
            indices = self._find()
            how = Counting(self._settings, self.bucket_s, indices.fields)
            yield from read_events(self._server, how, start, end, nanoseconds=indices.nanoseconds)
        finally:
            self._server.close()

    def query_shown(self, start: datetime, end: datetime) -> dict[str, Any]:
        """What is sent to count a span, for people to read and to try; nothing is asked."""
        how = Counting(self._settings, self.bucket_s, frozenset(query.wanted_fields(self._settings).values()))
        bodies = {"whole": query.count_body(how, start, end)}
        bodies |= {place: query.count_body(how, start, end, field=field) for place, field in how.places.items()}
        return {"method": "POST", "path": f"/{self._settings.index}/_search", "bodies": bodies}

    # --- what there is --------------------------------------------------------------------------------------------------------

    def _find(self) -> Indices:
        indices = find_indices(self._server, self._settings)
        for note in indices.notes:
            self._note(note)
        return indices

    def _begin(self, cursor: int | None, now: datetime) -> _Reading | None:
        """What there is to read; None where nothing is."""
        indices = self._find()
        how = Counting(self._settings, self.bucket_s, indices.fields)
        with self._expected_form():
            body = query.overview_body(self._settings, now, now + FUTURE_SLACK)
            answer = self._server.search(body, part_will_do=True)  # a shard that is away must not hide the others
            overview = query.overview_of(answer)
        is_part = bool(part_missing(answer))
        if overview.oldest is None:
            if is_part:
                self._server.search(body)  # says what is away
            self._note(f"{self._settings.index} holds no event yet.")
            return None
        last = _floor(now - timedelta(minutes=self._events.settle_minutes), how)
        hole = None
        if cursor is None:
            first = _floor(self._since(now), how)
            hole = first if is_part else None  # older events may be where nobody answers
        else:
            reached = min(_moment(cursor), last)  # a clock that was ahead once must not end the reading
            first = _floor(reached - timedelta(hours=self._events.overlap_hours), how)
        oldest = overview.oldest if cursor is None or not is_part else min(overview.oldest, _moment(cursor))
        first = max(first, _floor(oldest, how))  # before the first event nobody was looking
        step = timedelta(seconds=self.bucket_s)
        if overview.newest is not None and last - overview.newest >= 2 * step:
            self._note(
                f"The newest event of {self._settings.index} is of {overview.newest:%Y-%m-%d %H:%M} UTC: "
                "unless the grid is silent, what ships the events has stopped."
            )
        return _Reading(indices, how, overview, first, last, now, cursor, hole)

    def _set_aside(self, reading: _Reading) -> dict[str, int]:
        """Documents that no span can hold: of the future, or without a time."""
        overview = reading.overview
        if overview.future:
            latest = reading.now + FUTURE_SLACK
            self._note(f"{overview.future:,} documents are of the future (after {latest:%Y-%m-%d %H:%M} UTC): check the clocks.")
        return {rule: number for rule, number in ((FUTURE, overview.future), (BAD_TIME, overview.untimed)) if number}

    def _since(self, now: datetime) -> datetime:
        if not self._events.since:
            return now - _FIRST_RUN
        try:
            moment = datetime.fromisoformat(self._events.since)
        except ValueError:
            raise SettingsError(f"events.since {self._events.since!r} is not a day.", hint="Write it as 2026-01-31.") from None
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)

    # --- counting -------------------------------------------------------------------------------------------------------------

    def _chunks(self, reading: _Reading) -> Iterator[tuple[datetime, datetime]]:
        step = max(1, int(self._settings.chunk_days * 86_400 // self.bucket_s)) * timedelta(seconds=self.bucket_s)
        start = reading.first
        while start < reading.last:
            end = min(start + step, reading.last)
            yield start, end
            start = end

    def _span(self, reading: _Reading, start: datetime, end: datetime) -> CountedSpan:
        """What the server says of a span; where shards are away, day by day, so that only those days are missing."""
        try:
            return self._counted(reading, start, end)
        except PartAnswerError as part:
            pieces = list(_by_day(start, end, self.bucket_s))
            if len(pieces) == 1:
                missing = [(start, end, part.reason)]
                reading.note_missing(missing)
                return CountedSpan(start, end, no_counts(), missing=missing)
        days = [self._span(reading, *day) for day in pieces]
        quarantined: dict[str, int] = {}
        for day in days:
            quarantined = _sum(quarantined, day.quarantined)
        counts = pl.concat([day.counts for day in days])
        return CountedSpan(start, end, counts, quarantined=quarantined, missing=[span for day in days for span in day.missing])

    def _counted(self, reading: _Reading, start: datetime, end: datetime) -> CountedSpan:
        how, source = reading.how, self.source
        without = [(first, last, NO_INDEX) for first, last in reading.indices.missing(start, end, self.bucket_s)]
        reading.note_missing(without)
        if without == [(start, end, NO_INDEX)]:
            return CountedSpan(start, end, no_counts(), missing=without)
        whole = self._rows(how, start, end)
        places = {place: self._rows(how, start, end, field=field) for place, field in how.places.items()}
        most = self._events.most_places
        counts = query.counts_of(whole, places, source=source, bucket_s=self.bucket_s, most=most)
        coverage = self._coverage(how, start, end, counts, without)
        return CountedSpan(start, end, pl.concat([counts, coverage]), quarantined=query.nameless(whole), missing=without)

    def _coverage(
        self, how: Counting, start: datetime, end: datetime, counts: pl.DataFrame, without: list[Missing]
    ) -> pl.DataFrame:
        """Marks of the buckets that an index holds."""
        shift = timedelta(seconds=how.shift_s)  # markers lie on the grid of UTC
        moved = counts.with_columns(pl.col("bucket_start") + shift)
        coverage = covered(self.source, start + shift, end + shift, self.bucket_s, moved)
        coverage = coverage.with_columns(pl.col("bucket_start") - shift)
        for first, last, _ in without:
            coverage = coverage.filter(~pl.col("bucket_start").is_between(first, last, closed="left"))
        return coverage

    def _rows(self, how: Counting, start: datetime, end: datetime, *, field: str = "") -> pl.DataFrame:
        """All pages of a count as one frame."""
        frames, kinds, after = [query.rows_frame([])], set[str](), None
        while True:
            answer = self._page_of(how, start, end, field, after)
            with self._expected_form():
                rows, following = query.page_of(answer, how)
            kinds.update(row[1] for row in rows)
            if len(kinds) > query.MOST_KINDS:
                raise self._server.failure(
                    SourceFormatError,
                    f"has more than {query.MOST_KINDS} different values in {self._settings.kind_field!r}",
                    "Set elastic.kind_field to the field with the event type.",
                )
            frames.append(query.rows_frame(rows))
            if following is None:
                return query.summed(pl.concat(frames))
            if following == after:
                raise self._server.failure(SourceFormatError, "tells the same page again and again", "Check any proxy before it.")
            after = following

    def _page_of(self, how: Counting, start: datetime, end: datetime, field: str, after: dict[str, Any] | None) -> dict[str, Any]:
        """One page, as large as the server takes it."""
        while True:
            size = self._page or how.page
            try:
                return self._server.search(query.count_body(how, start, end, field=field, after=after, size=size))
            except TooManyBucketsError:
                if size <= _SMALLEST_PAGE:
                    raise
                self._page = max(_SMALLEST_PAGE, size // 2)

    @contextmanager
    def _expected_form(self) -> Iterator[None]:
        try:
            yield
        except _NO_FORM:
            raise self._server.failure(
                SourceFormatError, "answered in a form that no search has", "Check elastic.url and any proxy before it."
            ) from None

    def _note(self, note: str) -> None:
        if note not in self.notes and len(self.notes) < 20:
            self.notes.append(note)


def _floor(moment: datetime, how: Counting) -> datetime:
    """The beginning of a bucket, by the zone of the settings."""
    shift = timedelta(seconds=how.shift_s)
    return bucket_floor(moment + shift, how.bucket_s) - shift


def _by_day(start: datetime, end: datetime, bucket_s: int) -> Iterator[tuple[datetime, datetime]]:
    """Pieces of a day at most, cut at UTC midnight where a bucket begins there: indices by day hold them."""
    while start < end:
        midnight = start.replace(hour=0, minute=0, second=0, microsecond=0) + _DAY
        cut = midnight if not (midnight - start) % timedelta(seconds=bucket_s) else start + _DAY
        yield start, min(cut, end)
        start = min(cut, end)


def _micros(moment: datetime) -> int:
    return (moment - _EPOCH) // _MICROSECOND


def _moment(micros: int) -> datetime:
    return _EPOCH + micros * _MICROSECOND


def _sum(first: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    return {rule: first.get(rule, 0) + other.get(rule, 0) for rule in {**first, **other}}


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
        coverage = span.counts.filter(pl.col("kind") == COVERED)
        quarantined = {**span.quarantined, **{why: n + span.quarantined.get(why, 0) for why, n in aside.items()}}
        return replace(span, counts=pl.concat([counts, coverage]), quarantined=quarantined)
