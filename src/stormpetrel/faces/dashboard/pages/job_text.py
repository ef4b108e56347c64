"""Text about a job: its verdict, how it ended, its request, and the line to write in a script.

JobInFull -> sentences.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from stormpetrel.faces.dashboard.pages.job_table import MOMENT_LABELS, STATE_LABELS
from stormpetrel.jobs import prediction_text
from stormpetrel.jobs.advice.text import format_duration
from stormpetrel.records.predictions import version_text
from stormpetrel.records.states import UNFINISHED
from stormpetrel.records.units import format_memory

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
REQUEST_LABELS: Final = {
    "time_limit_s": "Time limit",
    "req_mem_bytes": "Requested memory",
    "req_cpus": "Requested CPUs",
    "req_nodes": "Requested nodes",
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
    prediction = details.predictions[-1] if details.predictions else None
    if state not in {str(unfinished) for unfinished in UNFINISHED}:
        return _over(details, prediction)
    if prediction is None:
        return Headline(
            f"This job is {STATE_LABELS.get(state or '', 'there').lower()}; nothing was predicted for it.", "", "open"
        )
    if details.waiting is not None and details.waiting.never_runs:
        return _if_it_ran(prediction)
    return Headline(f"{_sentence(prediction)}.", _predicted_when(prediction), "fail" if prediction.flagged else "complete")


def _if_it_ran(prediction: StoredPrediction) -> Headline:
    """The forecast of a job that cannot run as it stands: it is about the request, not about what will happen."""
    return Headline(f"If it could run: {_sentence(prediction)}.", _predicted_when(prediction), "open")


def _over(details: JobInFull, prediction: StoredPrediction | None) -> Headline:
    job = details.overview
    after = f" after {format_duration(job.elapsed_s)}" if job.elapsed_s else ""
    after = " before it started" if details.overview.never_started else after
    text = f"This job {_ENDS.get(job.state or '', 'is over')}{after}."
    failed = details.overview.failed
    tone = "open" if failed is None else "fail" if failed else "complete"
    if prediction is None or failed is None:
        return Headline(text, "", tone)
    when, risk = MOMENT_LABELS.get(prediction.moment, prediction.moment), f"{percent(prediction.risk)} risk of failing"
    return Headline(
        text, f"{_WAS[failed, prediction.flagged]}: {risk} {when}; the threshold is {percent(prediction.threshold)}.", tone
    )


def _sentence(prediction: StoredPrediction) -> str:
    text = prediction_text.prediction_text(
        prediction.risk, flagged=prediction.flagged, threshold=prediction.threshold, likeliest=prediction.likeliest
    )
    return text.replace(" %", f"{_STAYS}%")


def _predicted_when(prediction: StoredPrediction) -> str:
    known = "" if prediction.known else " User or application are new: this is the risk of similar jobs."
    late = " It came late." if prediction.late else ""
    model = version_text(prediction.model_version)
    return f"Said {MOMENT_LABELS.get(prediction.moment, prediction.moment)} by model {model}.{late}{known}"


def percent(share: float | None) -> str:
    """A share of one in percent, on one line."""
    return prediction_text.percent(share).replace(" ", _STAYS)


def value_text(column: str, value: Any) -> str:
    """A value of a column of the job frame, with its unit."""
    if value is None:
        return "–"
    if column.endswith("_bytes"):
        return format_memory(float(value)).replace(" ", _STAYS)
    if column.endswith("_s"):
        return format_duration(float(value)).replace(" ", _STAYS)
    return f"{value:,.0f}" if isinstance(value, int | float) else str(value)


def raw_text(value: Any) -> str:
    """A value of the record as it is stored."""
    return value.isoformat() if isinstance(value, datetime) else str(value)
