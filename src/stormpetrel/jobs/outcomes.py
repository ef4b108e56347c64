"""Outcomes: what became of a job, in the few words that a forecast is made in.

job frame -> `failed` (true, false, or null where the job does not count) and `outcome`. A job that was over before it started
has an outcome of its own, which is neither success nor failure and no class of a model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Final

import polars as pl

from stormpetrel.records.jobs import never_started
from stormpetrel.records.states import DEFAULT_FAILURE_STATES, FINISHED, JobState

COMPLETED: Final = "COMPLETED"
NEVER_STARTED: Final = "NEVER_STARTED"
# The outcomes that a job may have beside COMPLETED, in the words of the state vocabulary, and what they are called in a sentence.
OUTCOME_LABELS: Final = {
    "FAILED": "crash",
    "TIMEOUT": "time-out",
    "OUT_OF_MEMORY": "out of memory",
    "NODE_FAIL": "node failure",
    "CANCELLED": "cancelled",
}
OUTCOMES: Final = tuple(OUTCOME_LABELS)
_ENDED_LABELS: Final = {
    JobState.CANCELLED: "was cancelled",
    JobState.DEADLINE: "missed its deadline",
    JobState.REVOKED: "was taken back",
    JobState.VANISHED: "vanished from the scheduler",
}
_OUTCOME_OF_STATE: Final = {
    JobState.COMPLETED: COMPLETED,
    JobState.FAILED: "FAILED",
    JobState.TIMEOUT: "TIMEOUT",
    JobState.DEADLINE: "TIMEOUT",
    JobState.OUT_OF_MEMORY: "OUT_OF_MEMORY",
    JobState.NODE_FAIL: "NODE_FAIL",
    JobState.BOOT_FAIL: "NODE_FAIL",
    JobState.CANCELLED: "CANCELLED",
}
# A job that used up its limit ran into it, whatever its state says (SWF knows no time-out).
LIMIT_REACHED: Final = 0.999


def failed(failure_states: Iterable[str] = DEFAULT_FAILURE_STATES, dropped_states: Iterable[str] = ()) -> pl.Expr:
    """Whether a job failed: null where it has not ended, never started, or ended in a state that is left out."""
    counted = {str(state) for state in FINISHED - {JobState.REQUEUED, JobState.PREEMPTED, JobState.REVOKED, JobState.VANISHED}}
    failure_states = {str(state) for state in failure_states}
    judged = (counted | failure_states) - {str(state) for state in dropped_states}
    counts = pl.col("state").is_in(sorted(judged)) & ~never_started()
    return pl.when(counts).then(pl.col("state").is_in(sorted(failure_states))).alias("failed")


@cache
def outcome() -> pl.Expr:
    """The outcome of a job: null while it has none. A failed job that had used up its time limit is a time-out.

    CANCELLED is a job that ran and was stopped; one that was over before it ran is NEVER_STARTED.
    """
    labels = {str(state): label for state, label in _OUTCOME_OF_STATE.items()}
    plain = pl.col("state").replace_strict(labels, default=None, return_dtype=pl.String)
    reached = reached_limit() & (pl.col("state") == "FAILED")
    own = pl.when(never_started()).then(pl.lit(NEVER_STARTED)).when(reached.fill_null(False)).then(pl.lit("TIMEOUT"))
    return own.otherwise(plain).alias("outcome")


def final_state() -> pl.Expr:
    """The state of a job as people count it: NEVER_STARTED where it was over before it ran."""
    return pl.when(never_started()).then(pl.lit(NEVER_STARTED)).otherwise(pl.col("state")).alias("state")


def never_started_text(job: Mapping[str, Any]) -> str:
    """The sentence on a job (a plain row) that was over before it ran."""
    return (
        f"It {_ENDED_LABELS[job['state']]} before it started: neither a success nor a failure, so no forecast was right or wrong."
    )


@cache
def reached_limit() -> pl.Expr:
    """Whether a job ran for as long as it was allowed to."""
    return (pl.col("time_limit_s") > 0) & (pl.col("elapsed_s") >= LIMIT_REACHED * pl.col("time_limit_s"))
