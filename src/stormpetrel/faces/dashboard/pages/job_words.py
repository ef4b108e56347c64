"""What is said about a job in words: its verdict, how it ended, its request, and the line to write in a script.

JobInFull -> sentences.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from stormpetrel.faces.dashboard.pages.job_table import MOMENT_WORDS, STATE_WORDS
from stormpetrel.jobs import prediction_words
from stormpetrel.jobs.advice_words import time_words
from stormpetrel.records.sizes import memory_words
from stormpetrel.records.states import UNFINISHED

if TYPE_CHECKING:
    from stormpetrel.answers.schemas.job import JobInFull, StoredPrediction

_STAYS: Final = "\u00a0"  # a number and its unit stay on one line
_ENDS: Final = {
    "COMPLETED": "completed",
    "FAILED": "failed",
    "TIMEOUT": "ran out of time",
    "DEADLINE": "missed its deadline",
    "OUT_OF_MEMORY": "ran out of memory",
    "NODE_FAIL": "failed with its node",
    "BOOT_FAIL": "failed with its node",
    "CANCELLED": "was cancelled",
    "PREEMPTED": "was preempted",
    "REQUEUED": "was put back into the queue",
    "REVOKED": "was taken back",
    "VANISHED": "vanished from the scheduler",
}
# (failed, flagged): how the forecast of a job that is over turned out.
_WAS: Final = {
    (True, True): "Flagged in time",
    (True, False): "Missed",
    (False, True): "False alarm",
    (False, False): "Rightly not flagged",
}
REQUEST_WORDS: Final = {
    "time_limit_s": "Time limit",
    "req_mem_bytes": "Memory asked for",
    "req_cpus": "CPUs asked for",
    "req_nodes": "Nodes asked for",
    "partition": "Partition",
    "cpus": "CPUs",
    "nodes": "Nodes",
    "max_rss_bytes": "Memory used",
    "elapsed_s": "Run time",
    "wait_s": "Wait",
}


@dataclass(frozen=True, slots=True)
class Headline:
    """The verdict in a sentence, what stands behind it, and its tone: fail, complete or open."""

    words: str
    behind: str
    tone: str


def headline(details: JobInFull) -> Headline:
    """What is to be expected of a job; what became of it once it is over."""
    state = details.overview.state
    said = details.predictions[-1] if details.predictions else None
    if state not in {str(one) for one in UNFINISHED}:
        return _over(details, said)
    if said is None:
        return Headline(f"This job is {STATE_WORDS.get(state or '', 'there').lower()}; nothing was predicted for it.", "", "open")
    if details.waiting is not None and details.waiting.never_runs:
        return _if_it_ran(said)
    return Headline(f"{_sentence(said)}.", _said_when(said), "fail" if said.flagged else "complete")


def _if_it_ran(said: StoredPrediction) -> Headline:
    """The forecast of a job that cannot run as it stands: it is about the request, not about what will happen."""
    return Headline(f"If it could run: {_sentence(said)}.", _said_when(said), "open")


def _over(details: JobInFull, said: StoredPrediction | None) -> Headline:
    job = details.overview
    after = f" after {time_words(job.elapsed_s)}" if job.elapsed_s else ""
    after = " before it started" if details.overview.never_started else after
    words = f"This job {_ENDS.get(job.state or '', 'is over')}{after}."
    failed = details.overview.failed
    tone = "open" if failed is None else "fail" if failed else "complete"
    if said is None or failed is None:
        return Headline(words, "", tone)
    when, risk = MOMENT_WORDS.get(said.moment, said.moment), f"{percent(said.risk)} risk of failing"
    return Headline(words, f"{_WAS[failed, said.flagged]}: {risk} {when}; the threshold is {percent(said.threshold)}.", tone)


def _sentence(said: StoredPrediction) -> str:
    words = prediction_words.prediction_words(said.risk, flagged=said.flagged, threshold=said.threshold, likeliest=said.likeliest)
    return words.replace(" %", f"{_STAYS}%")


def _said_when(said: StoredPrediction) -> str:
    known = "" if said.known else " User or application are new: this is the habit of jobs that look alike."
    late = " It was said late." if said.late else ""
    return f"Said {MOMENT_WORDS.get(said.moment, said.moment)} by model {said.model_version}.{late}{known}"


def percent(share: float | None) -> str:
    """A share of one in percent, on one line."""
    return prediction_words.percent(share).replace(" ", _STAYS)


def value_words(column: str, value: Any) -> str:
    """A value of a column of the job frame, with its unit."""
    if value is None:
        return "–"
    if column.endswith("_bytes"):
        return memory_words(float(value)).replace(" ", _STAYS)
    if column.endswith("_s"):
        return time_words(float(value)).replace(" ", _STAYS)
    return f"{value:,.0f}" if isinstance(value, int | float) else str(value)


def raw_words(value: Any) -> str:
    """A value of the record as it is stored."""
    return value.isoformat() if isinstance(value, datetime) else str(value)
