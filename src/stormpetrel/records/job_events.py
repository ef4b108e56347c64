"""Records of jobs -> the events they went through, so that a site without an event log has the same alarm.

JobFrame -> job_events -> EVENT_SCHEMA with JOB_RECORD_KINDS. The site is the job's cluster, the group its account. A job on many
nodes counts once, on the first of them; its submission has no node yet. Who submitted from where, job records do not tell.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from stormpetrel.records.events import EVENT_SCHEMA, EventKind
from stormpetrel.records.states import JobState

# What the end of a job is, by its state; a job in another state has not ended.
_ENDS_BY_STATE: Final = {
    JobState.COMPLETED: EventKind.TERMINATED,
    JobState.FAILED: EventKind.TERMINATED,
    JobState.OUT_OF_MEMORY: EventKind.TERMINATED,
    JobState.TIMEOUT: EventKind.TIMED_OUT,
    JobState.DEADLINE: EventKind.TIMED_OUT,
    JobState.CANCELLED: EventKind.ABORTED,
    JobState.REVOKED: EventKind.ABORTED,
    JobState.VANISHED: EventKind.ABORTED,  # it left the queue, and nobody saw how
    JobState.PREEMPTED: EventKind.EVICTED,
    JobState.REQUEUED: EventKind.EVICTED,
    JobState.NODE_FAIL: EventKind.NODE_FAILED,
    JobState.BOOT_FAIL: EventKind.NODE_FAILED,
}
_ENDS: Final = {str(state): str(kind) for state, kind in _ENDS_BY_STATE.items()}
_FAILURES: Final = (JobState.FAILED.value, JobState.OUT_OF_MEMORY.value)
_NO_NODES: Final = ("None assigned", "(null)", "Unknown", "None", "")


def job_events(jobs: pl.DataFrame, *, fast_failure_s: float) -> pl.DataFrame:
    """The events of jobs, in no particular order: submission (once, however often it was requeued), start, and end of each.

    A failed job has a JobTerminated and a JobFailed, and a JobFailedFast too if it ran for at most `fast_failure_s`.
    """
    start, end, state = pl.col("start_time"), pl.col("end_time"), pl.col("state")
    ran_s = (end - start).dt.total_microseconds() / 1e6
    has_failed = state.is_in(_FAILURES) & end.is_not_null()
    facts = jobs.select(
        pl.col("submit_time"),
        start,
        end,
        end_kind=state.replace_strict(
            {str(state): str(kind) for state, kind in _ENDS.items()}, default=None, return_dtype=pl.String
        ),
        has_failed=has_failed.fill_null(False),
        has_failed_fast=(has_failed & ran_s.is_between(0, fast_failure_s)).fill_null(False),
        is_first_run=pl.col("restart").fill_null(0) == 0,
        site=_plain("cluster"),
        group=pl.coalesce(_plain("account"), _plain("group")),
        node=first_node(jobs["node_list"]),
    )
    is_over = pl.col("end_kind").is_not_null()
    parts = [
        _events(facts.filter("is_first_run"), "submit_time", pl.lit(EventKind.SUBMIT.value), has_node=False),
        _events(facts, "start_time", pl.lit(EventKind.EXECUTE.value)),
        _events(facts.filter(is_over), "end_time", pl.col("end_kind")),
        _events(facts.filter("has_failed"), "end_time", pl.lit(EventKind.FAILED.value)),
        _events(facts.filter("has_failed_fast"), "end_time", pl.lit(EventKind.FAILED_FAST.value)),
    ]
    return pl.concat(parts)


def event_times() -> dict[str, pl.Expr]:
    """When a job was submitted, started and ended, by column, as far as these are events; null where they are none."""
    return {
        "submit_time": pl.when(pl.col("restart").fill_null(0) == 0).then(pl.col("submit_time")),
        "start_time": pl.col("start_time"),
        "end_time": pl.when(pl.col("state").is_in(list(_ENDS))).then(pl.col("end_time")),
    }


def first_node(node_lists: pl.Series) -> pl.Series:
    """The first node of each list: `cpn-f15-06` of `cpn-f15-[06,08,11-12],gpu3`; null where there is none."""
    different = node_lists.unique().drop_nulls()
    # Each bracket gives its first number; what is left is a plain list.
    first = different.str.replace_all(r"\[([^\],-]*)[^\]]*\]", "${1}").str.split(",").list.first().str.strip_chars()
    named = pl.select(pl.when(~first.is_in(_NO_NODES)).then(first)).to_series()
    return node_lists.replace_strict(different, named, default=None, return_dtype=pl.String)


def _events(jobs: pl.DataFrame, time: str, kind: pl.Expr, *, has_node: bool = True) -> pl.DataFrame:
    columns = {
        "time": pl.col(time),
        "kind": kind,
        "site": pl.col("site"),
        "submit_host": pl.lit(None),
        "group": pl.col("group"),
        "node": pl.col("node") if has_node else pl.lit(None),
    }
    return jobs.drop_nulls(time).select(columns[name].cast(dtype).alias(name) for name, dtype in EVENT_SCHEMA.items())


def _plain(name: str) -> pl.Expr:
    """A name, null where it is empty."""
    return pl.when(pl.col(name) != "").then(pl.col(name))
