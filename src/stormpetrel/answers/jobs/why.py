"""What happened to a job, what would have been predicted in time, and what to ask for next.

Site + Viewer + job id -> explain_job -> JobWhy.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import polars as pl

from stormpetrel.answers.jobs.causes import cause_of, remedies_for
from stormpetrel.answers.jobs.one_job import (
    ENOUGH_REASONS,
    PRIOR_SPEAKS,
    advice_answer,
    advice_for,
    fitting_advice,
    notes_about,
    script_line,
    useful_advice,
    verdict_answer,
    waiting_answer,
)
from stormpetrel.answers.jobs.outlook import RiskNow, site_outlook, with_outlook
from stormpetrel.answers.jobs.past_jobs_judged import verdicts_on
from stormpetrel.answers.json_values import json_value
from stormpetrel.answers.schemas.job import JobWhy
from stormpetrel.answers.viewer import READ
from stormpetrel.errors import ModelError, NotThereError, UsageError
from stormpetrel.jobs.advice.kinds import find_kind
from stormpetrel.jobs.advice.prescription import Prescribed
from stormpetrel.jobs.advice.waiting import why_waiting
from stormpetrel.jobs.causes.cause import ended_near
from stormpetrel.jobs.moments import MOMENT_LABELS, MOMENTS, Moment
from stormpetrel.jobs.predictor import Verdict, moment_of
from stormpetrel.records.jobs import JobRef, is_job_id, job_number, jobs_with_id, was_never_started
from stormpetrel.records.states import JobState

if TYPE_CHECKING:
    from stormpetrel.answers.viewer import Viewer
    from stormpetrel.store.site import Site


def explain_job(site: Site, viewer: Viewer, job_id: str, *, now: datetime, most_reasons: int | None = ENOUGH_REASONS) -> JobWhy:
    """Look into one job of the site: its record, the models' view of it at each moment, advice, and what it waits for.

    NotThereError where there is none of that id that the viewer may see.
    """
    from stormpetrel.ingest.cluster import current_cluster
    from stormpetrel.lifecycle.job_models import FAMILY, lacking_moments, load_predictor

    viewer.require(READ)
    past = site.jobs.read_jobs(until=now)
    row = find_job(_called(past if viewer.is_admin else past.filter(viewer.sees()), job_id), job_id)
    job = row.row(0, named=True)
    explained, notes = _verdicts(site, row, now)
    current = site.models.current_training(FAMILY)
    lacking = lacking_moments(current) if current else ()
    reached = MOMENTS[: MOMENTS.index(moment_of(job, now)) + 1]
    notes += [f"There is no model {MOMENT_LABELS[moment]} yet." for moment in reached if moment in lacking]
    notes += notes_about(job, known=explained[-1].known if explained else None, named=job_id)
    kind = find_kind(row, past, now=now)
    following, proposed = advice_for(row, past, now=now, kind=kind)
    advice, left_out = useful_advice(site, proposed)
    risk = RiskNow(lambda: load_predictor(site, now=now, moments=[Moment.SUBMIT], few=True), now)
    flagged = _was_flagged(site, JobRef.of(job), job["submit_time"])
    prescribed = Prescribed(advice, lambda: following is None and (flagged or risk.flagged(row)), now, kind)
    more = with_outlook(site, site_outlook(site, now), row, prescribed, risk)
    is_held = job["state"] == JobState.HELD  # others on its host and of its cluster id tell whose fault a hold is
    known = current_cluster(site) if job["state"] in ("PENDING", "HELD") else None
    cause = cause_of(site, job, past.filter(ended_near(job)).collect())
    return JobWhy(
        job={name: json_value(value) for name, value in job.items() if value is not None},
        never_started=was_never_started(job),
        waiting=waiting_answer(why_waiting(job, known.cluster if known else None, past.collect() if is_held else None)),
        cause=cause,
        remedies=remedies_for(row, past, now=now),
        at={str(verdict.moment): verdict_answer(verdict, most_reasons=most_reasons) for verdict in explained},
        next=None if following is None else advice_answer(following, script_line(job, following)),
        advice=[
            advice_answer(piece, script_line(job, piece), mem_update=more.mem_update)
            for piece in fitting_advice(more.advice, cause, following)
        ],
        needs=more.needs,
        wait=more.wait,
        notes=[*notes, *left_out, *more.notes],
    )


def _verdicts(site: Site, job: pl.DataFrame, now: datetime) -> tuple[list[Verdict], list[str]]:
    """What the models in use would have predicted at each moment, and why there is nothing where there is none."""
    from stormpetrel.lifecycle.job_models import load_models

    try:
        predictor = load_models(site, few=True)
    except ModelError as error:
        return [], [f"No risk can be given: {error}"]
    return list(verdicts_on(site, predictor, job, now=now)), [PRIOR_SPEAKS] if predictor.is_prior else []


def _called(jobs: pl.LazyFrame, job_id: str) -> pl.DataFrame:
    """The jobs that may be meant by an id."""
    if not is_job_id(job_id.strip()):
        return jobs.head(0).collect()
    number = job_number(job_id.strip())
    return jobs.filter((pl.col("job_id") == number) | (pl.col("job_id_raw") == number)).collect()


def _was_flagged(site: Site, ref: JobRef, submitted: datetime) -> bool:
    """Whether the latest prediction that was kept of a job flagged it."""
    kept = site.predictions.read(since=submitted).filter(ref.is_row()).select("predicted_at", "flagged").collect()
    return bool(kept.height and kept.sort("predicted_at")["flagged"][-1])


def find_job(jobs: pl.DataFrame, job_id: str) -> pl.DataFrame:
    """Return the latest job of that id (`12345`, or `12345_7` for a task of an array), as a frame of one row."""
    if not is_job_id(job_id.strip()):
        raise UsageError(
            f"{job_id!r} is not a job id.",
            hint="Write it as 12345, 12345_7 for a task of an array, or 12345.7 for a job of HTCondor.",
        )
    matches = jobs_with_id(jobs, job_id.strip())
    if matches.is_empty():
        raise NotThereError(f"There is no job {job_id} in this site.", hint="Take in the latest: stormpetrel ingest jobs --live")
    return matches.sort("submit_time", "restart").tail(1)
