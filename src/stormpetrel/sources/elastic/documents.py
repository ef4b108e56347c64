"""Raw documents of Elasticsearch or OpenSearch, one page after the other, from one point in time.

span of time -> hits in the order of time -> documents, or events (EVENT_SCHEMA). What is written while we read is not among them,
and none is told twice: neither by a page nor by a document that repeats another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from hashlib import blake2b
from typing import Any, Final

import polars as pl

from stormpetrel.errors import SourceError, SourceFormatError
from stormpetrel.records.events import EVENT_SCHEMA, PLACES, EventKind, bucket_floor
from stormpetrel.records.times import UTC_TIME
from stormpetrel.sources.elastic.query import Counting, chosen, chosen_form, kind_of, name_of
from stormpetrel.sources.elastic.server import OPENSEARCH, Answer, SearchServer

_KEEP_ALIVE: Final = "2m"  # between two pages
_NO_RAW: Final = "Raw documents need Elasticsearch 7.10 or OpenSearch 2.4; counts do not."
_RAW_SCHEMA: Final = pl.Schema(
    {
        "time_ms": pl.Int64(),
        "kind": pl.String(),
        "is_copy": pl.Boolean(),
        "failed": pl.Boolean(),
        **{place: pl.String() for place in PLACES},
    }
)


def read_documents(
    server: SearchServer, how: Counting, start: datetime, end: datetime, *, fields: Sequence[str] | None = None
) -> Iterator[dict[str, Any]]:
    """The documents of a span as they were stored, with `_index` and `_id`; all fields, or those named."""
    wanted: Answer = {"_source": list(fields) if fields is not None else True}
    for hits in _pages(server, how, start, end, wanted):
        for hit in hits:
            source = hit.get("_source")
            yield {**(source if isinstance(source, dict) else {}), "_index": hit.get("_index"), "_id": hit.get("_id")}


def read_events(
    server: SearchServer, how: Counting, start: datetime, end: datetime, *, nanoseconds: bool = False
) -> Iterator[pl.DataFrame]:
    """The events of a span (EVENT_SCHEMA), whole buckets at a time; of an event and its 028 only the form that counts."""
    settings = how.settings
    names = [settings.kind_field, settings.trigger_field, settings.return_field, *how.places.values()]
    wanted: Answer = {"_source": False, "docvalue_fields": sorted({name for name in names if how.has(name)})}
    waiting = pl.DataFrame(schema=_RAW_SCHEMA)
    for hits in _pages(server, how, start, end, wanted):
        rows = [_row(hit, how, nanoseconds) for hit in hits]
        page = pl.DataFrame(rows, schema=_RAW_SCHEMA, orient="row")
        waiting = pl.concat([waiting, page]).with_columns(bucket_ms=_bucket(how)) if page.height else waiting
        if page.height:
            last = waiting["bucket_ms"].max()
            over, waiting = waiting.filter(pl.col("bucket_ms") < last), waiting.filter(pl.col("bucket_ms") == last)
            waiting = waiting.drop("bucket_ms")
            if over.height:
                yield _events(over)
    if waiting.height:
        yield _events(waiting.with_columns(bucket_ms=_bucket(how)))


def _events(rows: pl.DataFrame) -> pl.DataFrame:
    """Events in the form that counts, JobFailed next to each ended job that failed."""
    named = rows.filter(pl.col("kind") != "")
    counted = named.group_by(pl.col("bucket_ms").alias("bucket_start"), "kind", "is_copy").agg(count=pl.len().cast(pl.Int64))
    form = chosen_form(counted).rename({"bucket_start": "bucket_ms"})
    kept = named.join(form, on=["bucket_ms", "kind", "is_copy"], how="semi", maintain_order="left")
    failed = kept.filter("failed").with_columns(kind=pl.lit(str(EventKind.FAILED)))
    time = (pl.col("time_ms") * 1000).cast(UTC_TIME).alias("time")
    return pl.concat([kept, failed]).sort("time_ms", maintain_order=True).select(time, *list(EVENT_SCHEMA)[1:])


def _bucket(how: Counting) -> pl.Expr:
    """The bucket of each time, by the edges that the counts have."""
    shift_ms = how.shift_s * 1000
    shifted = ((pl.col("time_ms") + shift_ms) * 1000).cast(UTC_TIME)
    return bucket_floor(shifted, how.bucket_s).to_physical() // 1000 - shift_ms


def _row(hit: Answer, how: Counting, nanoseconds: bool) -> tuple[Any, ...]:
    """Time, kind, copy, failed and places of a hit."""
    fields = hit.get("fields") or {}

    def first(name: str) -> object:
        values = fields.get(name) if how.has(name) else None
        return values[0] if isinstance(values, list) and values else None

    settings = how.settings
    kind, is_copy = kind_of(first(settings.kind_field), first(settings.trigger_field))
    code = first(settings.return_field)
    failed = kind == EventKind.TERMINATED and code is not None and str(code) not in ("0", "0.0")
    time_ms = int(hit["sort"][0]) // (1_000_000 if nanoseconds else 1)
    return time_ms, kind, is_copy, failed, *(name_of(first(how.places.get(place, ""))) or None for place in PLACES)


def _pages(server: SearchServer, how: Counting, start: datetime, end: datetime, wanted: Answer) -> Iterator[list[Answer]]:
    """Hits of a span, page by page, each document once."""
    settings, seen = how.settings, set[bytes]()
    if settings.unique_field:
        wanted = {**wanted, "docvalue_fields": sorted({*wanted.get("docvalue_fields", ()), settings.unique_field})}
    with _point_in_time(server) as point:
        # OpenSearch has no order of its own among documents of the same millisecond.
        tie = {"_id": "asc"} if server.identity.flavour == OPENSEARCH else {"_shard_doc": "asc"}
        body = {
            "size": settings.page_size,
            "track_total_hits": False,
            "query": chosen(settings, start, end),
            "sort": [{settings.time_field: {"order": "asc", "unmapped_type": "date"}}, tie],
            **wanted,
        }
        while True:
            answer = server.search({**body, "pit": {"id": point["id"], "keep_alive": _KEEP_ALIVE}}, point_in_time=True)
            point["id"] = answer.get("pit_id") or point["id"]
            try:
                hits = answer["hits"]["hits"]
                fresh = [hit for hit in hits if _is_new(hit, settings.unique_field, seen)]
                after = hits[-1]["sort"] if hits else None
            except (KeyError, TypeError, AttributeError, IndexError):
                raise server.failure(SourceFormatError, "answered in a form that no search has", "Check elastic.url.") from None
            yield fresh
            if after is None or len(hits) < settings.page_size:
                return
            if after == body.get("search_after"):
                raise server.failure(SourceFormatError, "tells the same page again and again", "Check any proxy before it.")
            body["search_after"] = after


def _is_new(hit: Answer, unique_field: str, seen: set[bytes]) -> bool:
    """Whether a document was not told before: by the name of its event, or by its own."""
    named = (hit.get("fields") or {}).get(unique_field) if unique_field else None
    name = f"u{named[0]}" if isinstance(named, list) and named else f"d{hit['_id']}"
    digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=12).digest()  # names can be long
    if digest in seen:
        return False
    seen.add(digest)
    return True


@contextmanager
def _point_in_time(server: SearchServer) -> Iterator[dict[str, str]]:
    """A point in time, given back at the end whatever happens."""
    is_opensearch = server.identity.flavour == OPENSEARCH
    verb, name = ("_search/point_in_time", "pit_id") if is_opensearch else ("_pit", "id")
    try:
        opened = server.on_index(verb, keep_alive=_KEEP_ALIVE)
        point = {"id": str(opened[name])}
    except KeyError:
        raise server.failure(SourceFormatError, "gives no point in time", _NO_RAW) from None
    try:
        yield point
    finally:
        _give_back(server, point["id"], is_opensearch)


def _give_back(server: SearchServer, point: str, is_opensearch: bool) -> None:
    path, body = ("/_search/point_in_time", {"pit_id": [point]}) if is_opensearch else ("/_pit", {"id": point})
    try:
        server.request("DELETE", path, body, tries=1)
    except SourceError:
        return  # it ends by itself when its time is over; what was read is whole all the same
