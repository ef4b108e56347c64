"""Events of a cluster: something happened to a job, at a time, somewhere; and how many did, per bucket of time.

raw events (EVENT_SCHEMA) -> counts per bucket (COUNT_SCHEMA). A bucket of which a source has seen everything carries a mark
(kind COVERED): a marked bucket without a kind is a zero of that kind, a bucket without the mark is a gap.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Final

import polars as pl

from stormpetrel.records.times import UTC_TIME

Missing = tuple[datetime, datetime, str]  # a stretch of time that was not seen: from, to, why


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
