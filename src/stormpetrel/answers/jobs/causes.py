"""Why a job failed and what helped others, for `why`, the job's page and the API.

Site + job row + past jobs -> cause_of -> JobCause | None; remedies_for -> JobRemedy. Whose output is read: only that of jobs
which the viewer may see, and only where the site allows it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from stormpetrel.answers.schemas.job import JobCause, JobRemedy
from stormpetrel.jobs.causes.cause import ErrorMessage, find_cause, find_error_message, victims_near
from stormpetrel.jobs.causes.remedies import remedies, retries
from stormpetrel.jobs.history.keys import family
from stormpetrel.jobs.outcomes import OUTCOME_LABELS, outcome
from stormpetrel.sources.job_output import output_path, read_tail

if TYPE_CHECKING:
    from stormpetrel.store.site import Site

_SURE: Final = {
    "certain": "It failed because",
    "likely": "Most likely it failed because",
    "possible": "Possibly it failed because",
}
_FAULTS: Final = {
    "user": "its own",
    "node": "the node's",
    "storage": "the storage's",
    "scheduler": "the scheduler's",
    "unclear": "unclear",
}


def cause_of(site: Site, job: Mapping[str, Any], past: pl.DataFrame) -> JobCause | None:
    """Return why a job failed; None where it did not."""
    cause = find_cause(job, victims=victims_near(job, past), message=_error_message(site, job))
    if cause is None:
        return None
    happened = f"{_SURE[cause.certainty]} {cause.sentence}" if cause.sentence else "Its record does not say why it failed"
    sentence = f"{happened}. Whose fault: {_FAULTS[cause.fault]}."
    return JobCause(**{**asdict(cause), "sentence": sentence, "evidence": list(cause.evidence)})


def remedies_for(job: pl.DataFrame, past: pl.DataFrame | pl.LazyFrame, *, now: datetime) -> list[JobRemedy]:
    """Return what helped others after a failure like that of a job (a frame of one row), best first."""
    row = job.with_columns(outcome(), family()).row(0, named=True)
    if row["outcome"] not in OUTCOME_LABELS or row["outcome"] == "CANCELLED":
        return []
    best = remedies(row, row["family"], row["outcome"], retries(past, now=now))
    return [
        JobRemedy(
            change=each.change, tries=each.tries, succeeded=each.succeeded, unchanged=each.unchanged, whose=each.whose,
            sentence=each.sentence,
        )
        for each in best
    ]  # fmt: skip


def _error_message(site: Site, job: Mapping[str, Any]) -> ErrorMessage | None:
    settings = site.settings.jobs
    path = output_path(job) if settings.read_output else None
    if path is None or job.get("uid") is None:  # without the owner's number nobody can tell whose file it is
        return None
    text = read_tail(path, folders=settings.output_folders, owner_uid=job["uid"])
    return find_error_message(text) if text else None
