"""Events of a cluster: something happened to a job, at a time, somewhere; and how many did, per bucket of time.

raw events (EVENT_SCHEMA) -> count_events -> counts per bucket (COUNT_SCHEMA), of each kind as a whole and at each place. A
bucket of which a source has seen everything carries a mark (kind COVERED, from `covered`): a marked bucket without a kind is a
zero of that kind, a bucket without the mark is a gap. Buckets are counted from the Unix epoch in UTC: an hour begins with the
hour, a day at UTC midnight.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final, overload

import polars as pl

from stormpetrel.records.times import EARLIEST, UTC_TIME

Missing = tuple[datetime, datetime, str]  # a stretch of time that was not seen: from, to, why
FUTURE_SLACK: Final = timedelta(minutes=5)  # clocks of a cluster agree no better than this
FUTURE: Final = "future"  # why an event is not counted: its clock is ahead of ours
BAD_TIME: Final = "bad_time"  # its time is no time
NO_KIND: Final = "no_kind"
LONGEST_NAME: Final = 200  # letters of a kind, site, host, group or node; what is longer is cut
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class EventKind(StrEnum):
    """The kinds that we know by name: HTCondor's (its class names without `Event`), and our own."""

    SUBMIT = "Submit"
    EXECUTE = "Execute"
    EVICTED = "JobEvicted"
    TERMINATED = "JobTerminated"
    IMAGE_SIZE = "JobImageSize"
    SHADOW_EXCEPTION = "ShadowException"
    ABORTED = "JobAborted"
    HELD = "JobHeld"
    RELEASED = "JobRelease"
    REMOTE_ERROR = "RemoteError"
    DISCONNECTED = "JobDisconnected"
    RECONNECTED = "JobReconnected"
    RECONNECT_FAILED = "JobReconnectFailed"
    SUSPENDED = "JobSuspended"
    UNSUSPENDED = "JobUnsuspended"
    # Ours. FAILED and FAILED_FAST are told next to the TERMINATED of the same job, not in place of it.
    FAILED = "JobFailed"  # ended with a non-zero exit code or by a signal
    FAILED_FAST = "JobFailedFast"  # the same within seconds of its start: a node that does so to all its jobs is a black hole
    TIMED_OUT = "JobTimedOut"  # ended by its time limit
    NODE_FAILED = "NodeFailed"  # ended by the failure of a node
    # Of nodes and of the scheduler itself, as slurmctld's log has them.
    NODE_DOWN = "NodeDown"
    NODE_DRAINED = "NodeDrained"
    NODE_RETURNED = "NodeReturned"
    CONTROLLER_STARTED = "ControllerStarted"


SEED_KINDS: Final = (
    EventKind.SUBMIT, EventKind.EXECUTE, EventKind.EVICTED, EventKind.TERMINATED, EventKind.IMAGE_SIZE,
    EventKind.SHADOW_EXCEPTION, EventKind.ABORTED, EventKind.HELD, EventKind.RELEASED, EventKind.REMOTE_ERROR,
    EventKind.DISCONNECTED, EventKind.RECONNECTED, EventKind.RECONNECT_FAILED,
)  # fmt: skip
# Kinds that can be told out of the records of jobs alone, so that a Slurm site has the same alarm.
JOB_RECORD_KINDS: Final = (
    EventKind.SUBMIT, EventKind.EXECUTE, EventKind.TERMINATED, EventKind.FAILED, EventKind.FAILED_FAST, EventKind.TIMED_OUT,
    EventKind.ABORTED, EventKind.EVICTED, EventKind.NODE_FAILED,
)  # fmt: skip

PLACES: Final = ("site", "submit_host", "group", "node")  # where an event happened, as far as its source tells
WHOLE: Final = ""  # the `place` of a count over all places
COVERED: Final = ""  # the `kind` of the mark that a bucket was seen whole; its count is the number of events in it
OTHER_VALUES: Final = "(other)"  # all values of a place beyond the most frequent ones

EVENT_SCHEMA: Final = pl.Schema(
    {
        "time": UTC_TIME,
        "kind": pl.String(),
        **{place: pl.String() for place in PLACES},  # null where the source does not tell
    }
)

COUNT_SCHEMA: Final = pl.Schema(
    {
        "source": pl.String(),  # such as `condor:schedd-2`, `elastic:fifebatch-*`, `jobs:mycluster`, `table:counts.csv`
        "bucket_start": UTC_TIME,
        "bucket_s": pl.Int32(),
        "kind": pl.String(),
        "place": pl.String(),  # one of PLACES, or WHOLE
        "value": pl.String(),  # which site, host, group or node; "" where the place is WHOLE
        "count": pl.Int64(),
    }
)
COUNT_KEY: Final = ("source", "bucket_start", "bucket_s", "kind", "place", "value")

BACKGROUND_SCHEMA: Final = pl.Schema(
    {
        "source": pl.String(),  # graphite, prometheus
        "bucket_start": UTC_TIME,
        "bucket_s": pl.Int32(),
        "name": pl.String(),  # as site.toml names it: queued, running, …
        "value": pl.Float64(),  # mean over the bucket; a bucket without a sample has no row
    }
)
BACKGROUND_KEY: Final = ("source", "bucket_start", "bucket_s", "name")

EVENT_SCORE_SCHEMA: Final = pl.Schema(
    {
        "bucket_start": UTC_TIME,
        "bucket_s": pl.Int32(),
        "model": pl.String(),
        "model_version": pl.Int64(),
        "score": pl.Float64(),  # higher is more abnormal
        "threshold": pl.Float64(),
        "alarm": pl.Boolean(),  # above the threshold, and not in a maintenance
        "said_at": UTC_TIME,
        "kinds": pl.List(pl.String()),
        "counts": pl.List(pl.Float64()),
        "expected": pl.List(pl.Float64()),
        "low": pl.List(pl.Float64()),  # band in which 99 % of calm buckets lie
        "high": pl.List(pl.Float64()),
        "surprise": pl.List(pl.Float64()),  # signed: above zero more than expected, below less; 3 is one in a thousand
        "why": pl.String(),  # JSON list of findings; "[]" where nothing is wrong
    }
)
EVENT_SCORE_KEY: Final = ("bucket_start", "bucket_s", "model", "model_version")


@overload
def bucket_floor(time: datetime, bucket_s: int) -> datetime: ...
@overload
def bucket_floor(time: pl.Expr, bucket_s: int) -> pl.Expr: ...
def bucket_floor(time: datetime | pl.Expr, bucket_s: int) -> datetime | pl.Expr:
    """When the bucket of a time begins; of one time, or of a column of UTC times with microseconds."""
    if isinstance(time, datetime):
        return time.astimezone(UTC) - (time - _EPOCH) % timedelta(seconds=bucket_s)
    micros = bucket_s * 1_000_000
    return (time.cast(UTC_TIME).to_physical() // micros * micros).cast(UTC_TIME)


def bucket_ceil(time: datetime, bucket_s: int) -> datetime:
    """The first beginning of a bucket that is not before a time."""
    floor = bucket_floor(time, bucket_s)
    return floor if floor == time else floor + timedelta(seconds=bucket_s)


def set_aside(events: pl.DataFrame, *, now: datetime) -> tuple[pl.DataFrame, dict[str, int]]:
    """The events that can be counted, and how many cannot, by reason: a time that is none, a clock in the future, no kind."""
    time, kind = pl.col("time"), pl.col("kind")
    reason = (
        pl.when(time.is_null() | (time < EARLIEST))
        .then(pl.lit(BAD_TIME))
        .when(time > now + FUTURE_SLACK)
        .then(pl.lit(FUTURE))
        .when(kind.is_null() | (kind.str.strip_chars() == ""))
        .then(pl.lit(NO_KIND))
    )
    why = events.select(reason.alias("why")).to_series()
    if why.null_count() == events.height:
        return events, {}
    return events.filter(why.is_null()), dict(why.drop_nulls().value_counts(sort=True).iter_rows())


def count_events(events: pl.DataFrame, *, source: str, bucket_s: int, most_places: int) -> pl.DataFrame:
    """Counts per bucket and kind, of all places together and by place, without marks.

    Of each bucket, kind and place the `most_places` values with most events are kept; the others are one, OTHER_VALUES. An event
    whose place is not known counts in the whole only. Events without a time or a kind are not counted.
    """
    rows = events.select(
        bucket_floor(pl.col("time"), bucket_s).alias("bucket_start"), "kind", *(place for place in PLACES)
    ).drop_nulls(["bucket_start", "kind"])
    whole = _tallied(rows, ["bucket_start", "kind"]).with_columns(place=pl.lit(WHOLE), value=pl.lit(""))
    known = [place for place in PLACES if rows[place].null_count() < rows.height]
    parts = [whole, *(_at_place(rows, place, most_places) for place in known)]
    columns = ("bucket_start", "kind", "place", "value", "count")
    return as_counts(pl.concat([part.select(columns) for part in parts]), source, bucket_s)


def covered(source: str, start: datetime, end: datetime, bucket_s: int, totals: pl.DataFrame | None = None) -> pl.DataFrame:
    """The marks of all buckets that lie between two times as a whole: they were seen, even where they hold nothing.

    `totals` is a frame of counts of that span: a mark then tells how many events its bucket holds (over all kinds), else 0.
    """
    first, last = bucket_ceil(start, bucket_s), bucket_floor(end, bucket_s)
    step = timedelta(seconds=bucket_s)
    buckets = pl.datetime_range(first, max(first, last), step, closed="left", time_unit="us", time_zone="UTC", eager=True)
    coverage = buckets.alias("bucket_start").to_frame()
    if totals is None:
        coverage = coverage.with_columns(count=pl.lit(0, dtype=pl.Int64))
    else:
        kinds = totals.filter(pl.col("place") == WHOLE, pl.col("kind") != COVERED, pl.col("bucket_s") == bucket_s)
        sums = kinds.group_by("bucket_start").agg(pl.col("count").sum())
        coverage = coverage.join(sums, on="bucket_start", how="left", maintain_order="left").with_columns(
            pl.col("count").fill_null(0)
        )
    return as_counts(coverage.with_columns(kind=pl.lit(COVERED), place=pl.lit(WHOLE), value=pl.lit("")), source, bucket_s)


def as_counts(rows: pl.DataFrame, source: str, bucket_s: int) -> pl.DataFrame:
    """Rows with bucket_start, kind, place, value and count as a frame of COUNT_SCHEMA, in the order of time."""
    frame = rows.with_columns(source=pl.lit(source), bucket_s=pl.lit(bucket_s, dtype=pl.Int32))
    typed = frame.select(pl.col(name).cast(dtype) for name, dtype in COUNT_SCHEMA.items())
    return typed.sort("bucket_start", "place", "kind", "value")


def no_counts() -> pl.DataFrame:
    """A frame of COUNT_SCHEMA without rows."""
    return pl.DataFrame(schema=COUNT_SCHEMA)


def _at_place(rows: pl.DataFrame, place: str, most: int) -> pl.DataFrame:
    """Counts by the values of one place; the same whatever the order of the events."""
    cell = ["bucket_start", "kind"]
    counts = _tallied(rows.select(*cell, pl.col(place).alias("value")).drop_nulls("value"), [*cell, "value"])
    size = pl.len().over(cell)
    crowded = counts.filter(size > most).sort("count", "value", descending=[True, False])
    if crowded.height:
        rank = pl.int_range(pl.len()).over(cell)
        fewer = crowded.with_columns(value=pl.when(rank < most).then("value").otherwise(pl.lit(OTHER_VALUES)))
        both = pl.concat([counts.filter(size <= most), fewer])
        counts = both.group_by(*cell, "value").agg(pl.col("count").sum())
    return counts.with_columns(place=pl.lit(place))


def _tallied(rows: pl.DataFrame, key: list[str]) -> pl.DataFrame:
    """How many rows have each key; names are examined after that: there are far fewer."""
    counts = rows.group_by(key).agg(pl.len().cast(pl.Int64).alias("count"))
    names = [name for name in ("kind", "value") if name in key]
    plain = [_plain_names(counts[name]) for name in names]
    if all(column is None for column in plain):
        return counts
    counts = counts.with_columns(column for column in plain if column is not None).drop_nulls(names)
    return counts.group_by(key).agg(pl.col("count").sum())


def _plain_names(column: pl.Series) -> pl.Series | None:
    """Names without blanks around them, cut where absurdly long, null where nothing is left; None if all are so already."""
    names = column.unique()
    plain = names.str.strip_chars().str.slice(0, LONGEST_NAME)
    if (plain == names).all() and not (plain == "").any():
        return None
    return column.replace_strict(names, plain.replace("", None), return_dtype=pl.String)
