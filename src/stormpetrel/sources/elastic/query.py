"""What is asked of Elasticsearch or OpenSearch, and what its answers mean.

settings and a span of time -> bodies of searches; answers -> rows of counts -> COUNT_SCHEMA frame. No network here.

The server counts: a composite aggregation over bucket of time × kind (× trigger × place), paged by `after`, in the order of time.
HTCondor can write an event twice: as itself, and as event 028 that tells of it with more attributes. A document with a trigger is
such a copy. Per bucket and kind the form with more documents counts, the copies where both are equal: they know the places.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final
from zoneinfo import ZoneInfo

import polars as pl

from stormpetrel.config import ElasticSection
from stormpetrel.errors import SettingsError, SourceFormatError
from stormpetrel.records.events import LONGEST_NAME, NO_KIND, OTHER_VALUES, PLACES, WHOLE, EventKind, as_counts
from stormpetrel.records.times import UTC_TIME
from stormpetrel.sources.htcondor.vocabulary import kind_name

Body = dict[str, Any]

MOST_KINDS: Final = 500  # different kinds in a span: with more, the field holds something else
PRECISION: Final = 40_000  # of distinct values: the most that the servers offer; counts below are close to exact
_UNIQUE_PAGE: Final = 200  # buckets per page where each carries a sketch of distinct values, of up to 320 kB
_ROW_SCHEMA: Final = pl.Schema(
    {
        "bucket_start": UTC_TIME,
        "kind": pl.String(),
        "is_copy": pl.Boolean(),
        "value": pl.String(),
        "count": pl.Int64(),
        "failed": pl.Int64(),
    }
)


@dataclass(frozen=True, slots=True)
class Counting:
    """How events are counted: the settings, and which of their fields the index has."""

    settings: ElasticSection
    bucket_s: int
    fields: frozenset[str]  # of the settings, those that the index has

    @property
    def places(self) -> dict[str, str]:
        """The places that the index tells, and the field of each."""
        named = {place: getattr(self.settings, f"{place}_field") for place in PLACES}
        return {place: field for place, field in named.items() if field in self.fields}

    def has(self, field: str) -> bool:
        """Whether a field is set and there."""
        return field in self.fields

    @property
    def zone(self) -> str:
        """The time zone as the server is told it: one distance from UTC all year, so that every bucket is as long as the next."""
        offset_s = zone_offset_s(self.settings.time_zone)
        sign, minutes = "-" if offset_s < 0 else "+", abs(offset_s) // 60
        return f"{sign}{minutes // 60:02}:{minutes % 60:02}" if offset_s else "UTC"

    @property
    def shift_s(self) -> int:
        """How far the beginnings of buckets lie before those of UTC."""
        return zone_offset_s(self.settings.time_zone) % self.bucket_s

    @property
    def page(self) -> int:
        """Buckets per page."""
        return min(self.settings.page_size, _UNIQUE_PAGE) if self.has(self.settings.unique_field) else self.settings.page_size


def zone_offset_s(zone: str) -> int:
    """How far a zone's winter time is ahead of UTC, in seconds."""
    try:
        year = datetime(2025, 1, 1, tzinfo=UTC)
        offsets = [ZoneInfo(zone).utcoffset(year + timedelta(days=30 * month)) for month in range(12)]
    except (KeyError, ValueError, OSError):  # a zone that is not there is a KeyError, a path that is none a ValueError
        raise SettingsError(f"elastic.time_zone {zone!r} is no time zone.", hint="Write it as Europe/Berlin or UTC.") from None
    return round(min(offset.total_seconds() for offset in offsets if offset is not None))


def wanted_fields(settings: ElasticSection) -> dict[str, str]:
    """The fields that the settings name, by the name of the setting."""
    names = ("time", "kind", "trigger", "return", "unique", *PLACES)
    return {f"{name}_field": field for name in names if (field := getattr(settings, f"{name}_field"))}


# --- questions ----------------------------------------------------------------------------------------------------------------


def chosen(settings: ElasticSection, start: datetime | None, end: datetime | None) -> Body:
    """The query that chooses the documents of a span; None: without that end."""
    edges = {edge: round(moment.timestamp() * 1000) for edge, moment in (("gte", start), ("lt", end)) if moment is not None}
    filters: list[Body] = [{"range": {settings.time_field: {**edges, "format": "epoch_millis"}}}] if edges else []
    if settings.query:
        filters.append({"query_string": {"query": settings.query}})
    return {"bool": {"filter": filters}}


def count_body(
    how: Counting, start: datetime, end: datetime, *, field: str = "", after: Body | None = None, size: int = 0
) -> Body:
    """The search that counts a span, as a whole or by the values of a field; `after` is where the page before ended."""
    settings = how.settings
    interval = f"{how.bucket_s // 60}m"
    time = {"field": settings.time_field, "fixed_interval": interval, "time_zone": how.zone}
    sources: list[Body] = [{"time": {"date_histogram": time}}, _terms("kind", settings.kind_field, missing=True)]
    if how.has(settings.trigger_field):
        sources.append(_terms("trigger", settings.trigger_field, missing=True))
    if field:
        sources.append(_terms("value", field, missing=False))
    composite: Body = {"size": size or how.page, "sources": sources}
    if after:
        composite["after"] = after
        # Buckets come in the order of time: those before the last one need not be looked at again.
        start = max(start, datetime.fromtimestamp(_whole_number(after["time"]) / 1000, UTC))
    counted: Body = {"composite": composite}
    if aggregations := _inside(how):
        counted["aggs"] = aggregations
    return {"size": 0, "track_total_hits": False, "query": chosen(settings, start, end), "aggs": {"counted": counted}}


def overview_body(settings: ElasticSection, now: datetime, latest: datetime) -> Body:
    """The search that tells the first and the last event, and how many have no time or one in the future."""
    edge = {"format": "epoch_millis"}
    known = {"range": {settings.time_field: {"lte": round(now.timestamp() * 1000), **edge}}}
    future = {"range": {settings.time_field: {"gt": round(latest.timestamp() * 1000), **edge}}}
    ends = {"oldest": {"min": {"field": settings.time_field}}, "newest": {"max": {"field": settings.time_field}}}
    aggregations = {
        "known": {"filter": known, "aggs": ends},
        "future": {"filter": future},
        "untimed": {"missing": {"field": settings.time_field}},
    }
    return {"size": 0, "track_total_hits": False, "query": chosen(settings, None, None), "aggs": aggregations}


def _terms(name: str, field: str, *, missing: bool) -> Body:
    return {name: {"terms": {"field": field, **({"missing_bucket": True} if missing else {})}}}


def _inside(how: Counting) -> Body:
    """What is counted inside each bucket: those that failed, and distinct events where documents may repeat."""
    distinct: Body = {}
    if how.has(how.settings.unique_field):
        field = {"field": how.settings.unique_field}
        distinct = {"distinct": {"cardinality": {**field, "precision_threshold": PRECISION}}, "nameless": {"missing": field}}
    if not how.has(how.settings.return_field):
        return distinct
    code = how.settings.return_field
    failed = {"bool": {"filter": [{"exists": {"field": code}}], "must_not": [{"term": {code: 0}}]}}
    return {**distinct, "failed": {"filter": failed, **({"aggs": distinct} if distinct else {})}}


# --- answers ------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Overview:
    """What an index holds at first sight."""

    oldest: datetime | None
    newest: datetime | None
    future: int
    untimed: int


def overview_of(answer: Body) -> Overview:
    """The first and the last event, and how many cannot be counted."""
    aggregations = answer["aggregations"]
    oldest, newest = (_moment(aggregations["known"][name].get("value")) for name in ("oldest", "newest"))
    future, untimed = (_whole_number(aggregations[name]["doc_count"]) for name in ("future", "untimed"))
    return Overview(oldest, newest, future, untimed)


def page_of(answer: Body, how: Counting) -> tuple[list[tuple[Any, ...]], Body | None]:
    """Rows (bucket_start, kind, is_copy, value, count, failed) of a page, and where the next one begins; None: it is the last."""
    counted = answer["aggregations"]["counted"]
    rows = []
    for bucket in counted["buckets"]:
        key = bucket["key"]
        kind, is_copy = kind_of(key["kind"], key.get("trigger"))
        value = name_of(key.get("value"))
        failed = _number_of(bucket["failed"]) if "failed" in bucket and kind == EventKind.TERMINATED else 0
        rows.append((_whole_number(key["time"]) * 1000, kind, is_copy, value, _number_of(bucket), failed))
    after = counted.get("after_key") if len(rows) else None
    if after is not None and set(after) != set(counted["buckets"][-1]["key"]):
        raise KeyError("after_key")
    return rows, after


def rows_frame(rows: list[tuple[Any, ...]]) -> pl.DataFrame:
    """Rows of a page as a frame; kinds and values that read alike are one."""
    columns = {name: [row[place] for row in rows] for place, name in enumerate(_ROW_SCHEMA)}
    frame = pl.DataFrame(columns, schema={**_ROW_SCHEMA, "bucket_start": pl.Int64()})
    return summed(frame.with_columns(pl.col("bucket_start").cast(UTC_TIME)))


def summed(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows of the same bucket, kind, form and value as one."""
    return rows.group_by("bucket_start", "kind", "is_copy", "value").agg(pl.col("count", "failed").sum())


def counts_of(whole: pl.DataFrame, places: dict[str, pl.DataFrame], *, source: str, bucket_s: int, most: int) -> pl.DataFrame:
    """Counts (COUNT_SCHEMA, no marks) out of the rows of the whole and of each place; each event in the form that counts."""
    named = whole.filter(pl.col("kind") != "")
    if named["kind"].n_unique() > MOST_KINDS:
        raise SourceFormatError(
            f"{source} has more than {MOST_KINDS} different kinds of events in a span.",
            hint="Set elastic.kind_field to the field with the event type.",
        )
    form = chosen_form(named)
    parts = [_with_failed(named.join(form, on=["bucket_start", "kind", "is_copy"], how="semi")).with_columns(place=pl.lit(WHOLE))]
    for place, rows in places.items():
        known = rows.filter(pl.col("kind") != "", pl.col("value") != "")
        counted = _with_failed(known.join(form, on=["bucket_start", "kind", "is_copy"], how="semi"))
        parts.append(_most(counted, most).with_columns(place=pl.lit(place)))
    columns = ("bucket_start", "kind", "place", "value", "count")
    counts = pl.concat([part.select(columns) for part in parts]).filter(pl.col("count") > 0)
    return as_counts(counts, source, bucket_s)


def chosen_form(rows: pl.DataFrame) -> pl.DataFrame:
    """Which form counts, per bucket and kind: (bucket_start, kind, is_copy)."""
    copies, plain = (pl.col("count").filter(form).sum() for form in (pl.col("is_copy"), ~pl.col("is_copy")))
    return rows.group_by("bucket_start", "kind").agg(is_copy=copies >= plain)


def nameless(whole: pl.DataFrame) -> dict[str, int]:
    """How many documents have no kind, as a reason of the quarantine."""
    number = int(whole.filter(pl.col("kind") == "")["count"].sum())
    return {NO_KIND: number} if number else {}


@lru_cache(maxsize=4096)  # the same few kinds come thousands of times a page
def kind_of(kind: object, trigger: object) -> tuple[str, bool]:
    """The kind of a document, and whether it is a copy of an event; "" where it has none.

    >>> kind_of("ExecuteEvent", None), kind_of("JobAdInformationEvent", "ULOG_JOB_RELEASED")
    (('Execute', False), ('JobRelease', True))
    """
    triggered = _kind_name(trigger)
    return (triggered, True) if triggered else (_kind_name(kind), False)


def _kind_name(text: object) -> str:
    name = name_of(text)
    return kind_name(name) if name else ""


@lru_cache(maxsize=16384)
def name_of(text: object) -> str:
    """A name out of a document: one line of printable text of bounded length; "" where there is none."""
    if text is None:
        return ""
    cut = str(text)[: 4 * LONGEST_NAME]
    return re.sub(r"\s+", " ", "".join(letter if letter.isprintable() else " " for letter in cut)).strip()[:LONGEST_NAME]


def _with_failed(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows, and next to those of ended jobs how many of them failed."""
    columns = ("bucket_start", "kind", "value", "count")
    failed = rows.filter(pl.col("failed") > 0).with_columns(kind=pl.lit(str(EventKind.FAILED)), count=pl.col("failed"))
    return (
        pl.concat([rows.select(columns), failed.select(columns)])
        .group_by("bucket_start", "kind", "value")
        .agg(pl.col("count").sum())
    )


def _most(rows: pl.DataFrame, most: int) -> pl.DataFrame:
    """The most frequent values of each bucket and kind; the others as one."""
    rank = pl.struct(-pl.col("count"), "value").rank("ordinal").over("bucket_start", "kind")
    value = pl.when(rank <= most).then("value").otherwise(pl.lit(OTHER_VALUES))
    return rows.with_columns(value=value).group_by("bucket_start", "kind", "value").agg(pl.col("count").sum())


def _number_of(bucket: Body) -> int:
    """How many events a bucket holds: documents, or distinct ones and those without a name of their own."""
    if "distinct" in bucket:
        return _whole_number(bucket["distinct"]["value"]) + _whole_number(bucket["nameless"]["doc_count"])
    return _whole_number(bucket["doc_count"])


def _whole_number(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or abs(value) > 2**53:
        raise TypeError(f"no number: {value!r:.40}")
    return int(value)


def _moment(value: object) -> datetime | None:
    return None if value is None else datetime.fromtimestamp(_whole_number(value) / 1000, UTC)
