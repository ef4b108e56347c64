"""Outcomes: what became of a job, in the few words that a forecast is made in.

job frame -> `failed` (true, false, or null where the job does not count) and `outcome`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import polars as pl

from stormpetrel.records.states import DEFAULT_FAILURE_STATES, FINISHED, JobState

COMPLETED: Final = "COMPLETED"
# The outcomes that a job may have beside COMPLETED, in the words of the state vocabulary, and what they are called in a sentence.
OUTCOME_WORDS: Final = {
    "FAILED": "crash",
    "TIMEOUT": "time-out",
    "OUT_OF_MEMORY": "out of memory",
    "NODE_FAIL": "node failure",
    "CANCELLED": "cancelled",
}
OUTCOMES: Final = tuple(OUTCOME_WORDS)
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
    """Whether a job failed: null where it has not ended, or ended in a state that is left out."""
    counted = {str(state) for state in FINISHED - {JobState.REQUEUED, JobState.PREEMPTED, JobState.REVOKED, JobState.VANISHED}}
    failure_states = {str(state) for state in failure_states}
    judged = (counted | failure_states) - {str(state) for state in dropped_states}
    return pl.when(pl.col("state").is_in(sorted(judged))).then(pl.col("state").is_in(sorted(failure_states))).alias("failed")


def outcome() -> pl.Expr:
    """The outcome of a job: null while it has none. A failed job that had used up its time limit is a time-out."""
    words = {str(state): word for state, word in _OUTCOME_OF_STATE.items()}
    plain = pl.col("state").replace_strict(words, default=None, return_dtype=pl.String)
    reached = reached_limit() & (pl.col("state") == "FAILED")
    return pl.when(reached.fill_null(False)).then(pl.lit("TIMEOUT")).otherwise(plain).alias("outcome")


def reached_limit() -> pl.Expr:
    """Whether a job ran for as long as it was allowed to."""
    return (pl.col("time_limit_s") > 0) & (pl.col("elapsed_s") >= LIMIT_REACHED * pl.col("time_limit_s"))
