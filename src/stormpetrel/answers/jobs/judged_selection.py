"""What the models in use say about jobs of one's own choice, each from what was known at its own moment.

ModelsInUse + JobSelection -> judge_selection -> frame of jobs with risks; + job id -> explain_selected -> SelectedJob.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stormpetrel.answers.jobs.models_in_use import ModelsInUse
from stormpetrel.answers.jobs.one_job import advice_answer, advice_for, notes_about, verdict_answer
from stormpetrel.answers.jobs.past_jobs_judged import JobsAsOf, judged_jobs, verdicts
from stormpetrel.answers.jobs.selection import JobSelection, Progress, silent
from stormpetrel.answers.jobs.why import find_job
from stormpetrel.answers.schemas.predictions import Advice, Verdict
from stormpetrel.errors import ModelError, NotThereError, UsageError
from stormpetrel.jobs.advice.advice import RiskOf
from stormpetrel.jobs.moments import MOMENTS, Moment
from stormpetrel.jobs.predictor import JobPredictor, known_by
from stormpetrel.records.jobs import JOB_SCHEMA, KEY, JobRef, conform

# A log may name its cluster otherwise than the site does: the rest of the key says that it is the same job.
_SAME_JOB: Final = [name for name in KEY if name != "cluster"]


@dataclass(frozen=True, slots=True)
class SelectedJob:
    """One job of a selection, the verdict at each of its moments, and advice as of now.

    `row` is its record with `moment`, `risk`, `threshold` and `known` of the latest moment: a line of what `judge_selection`
    returns.
    """

    row: pl.DataFrame
    job: dict[str, Any]
    verdicts: tuple[Verdict, ...]
    next_request: Advice | None
    advice: tuple[Advice, ...]
    notes: tuple[str, ...]


def moments_in_use(models: ModelsInUse, at: str | None) -> list[Moment]:
    """Return the moments that there are models of, or the one that is named; ModelError where there is none of it."""
    if at is None:
        return list(models.predictor.models)
    if at not in set(MOMENTS):
        raise UsageError(f"'{at}' is not a moment of a job.", hint=f"Known: {', '.join(MOMENTS)}.")
    if Moment(at) not in models.predictor.models:
        raise ModelError(f"There is no model for '{at}'.", hint="Train it: stormpetrel jobs train")
    return [Moment(at)]


def judge_selection(
    models: ModelsInUse,
    selection: JobSelection,
    wanted: pl.DataFrame | None = None,
    *,
    moments: Collection[Moment],
    progress: Progress = silent,
) -> pl.DataFrame:
    """Return the jobs (or those `wanted` among them) with `moment`, `risk`, `threshold` and `known`, in order of submission.

    Each is judged at the latest of these moments that it has reached.
    """
    known = known_jobs(models, selection, wanted)
    progress(0.1)
    return judged_jobs(models.predictor, known, moments=moments, progress=lambda share: progress(0.1 + 0.9 * share))


def known_jobs(models: ModelsInUse, selection: JobSelection, wanted: pl.DataFrame | None = None) -> JobsAsOf:
    """Return the past of the site, that of the log, and the jobs themselves, each job once: the log's record counts."""
    frame = conform(selection.frame)
    own = pl.concat([conform(selection.earlier), frame]).unique(KEY, keep="last", maintain_order=True)
    past = models.past(selection.as_of).select(list(JOB_SCHEMA)).join(own, on=_SAME_JOB, how="anti", nulls_equal=True)
    chosen = (frame if wanted is None else wanted).select(KEY).unique().with_columns(wanted=pl.lit(True))
    everyone = pl.concat([past, known_by(own, selection.as_of)]).join(chosen, on=list(KEY), how="left", nulls_equal=True)
    everyone = everyone.sort("submit_time", "job_id", "array_task", maintain_order=True)
    return JobsAsOf(everyone.drop("wanted"), everyone["wanted"].fill_null(False).to_numpy(), selection.as_of)


def explain_selected(models: ModelsInUse, selection: JobSelection, job_id: str) -> SelectedJob:
    """Return everything about one job; NotThereError where the selection has none of that id."""
    row = _find(selection, job_id)
    job = row.row(0, named=True)
    known = known_jobs(models, selection)
    explained = [verdict_answer(verdict, most_reasons=None) for verdict in verdicts(models.predictor, known.only(JobRef.of(job)))]
    if not explained:
        raise NotThereError(f"Nothing can be said about job {job_id}: it has not been submitted yet.", hint="Look again later.")
    latest = explained[-1]
    following, advice = _advice(models, known, row)
    return SelectedJob(
        row=row.with_columns(
            risk=pl.lit(latest.risk),
            threshold=pl.lit(latest.threshold),
            moment=pl.lit(str(latest.moment)),
            known=pl.lit(latest.known),
        ),
        job=job,
        verdicts=tuple(explained),
        next_request=following,
        advice=advice,
        notes=tuple(_notes(models, job, latest, job_id)),
    )


def _find(selection: JobSelection, job_id: str) -> pl.DataFrame:
    try:
        return find_job(selection.frame, job_id)
    except NotThereError:
        raise NotThereError(
            f"There is no job {job_id} among these {selection.frame.height:,} jobs of {selection.source}.",
            hint="Look at the table for the ids that there are, or load more days: load_jobs(…, last_days=30)",
        ) from None


def _advice(models: ModelsInUse, known: JobsAsOf, row: pl.DataFrame) -> tuple[Advice | None, tuple[Advice, ...]]:
    """What to ask for next if the job ran out of something, and what else past jobs speak for; with the risk if submitted now."""
    risk_of = _risk_now(models, known)
    following, others = advice_for(row, known.jobs, now=known.as_of, risk_of=risk_of)
    if following is not None and following.column and following.proposed is not None and risk_of is not None:
        changed = row.with_columns(pl.lit(following.proposed).cast(row.schema[following.column]).alias(following.column))
        before, after = (float(risk) for risk in risk_of(pl.concat([row, changed])))
        following = replace(following, risk_before=before, risk_after=after)
    return None if following is None else advice_answer(following), tuple(map(advice_answer, others))


def _risk_now(models: ModelsInUse, known: JobsAsOf) -> RiskOf | None:
    """What says the risk of requests if they were submitted now; None where there is no model of that moment."""
    in_use = models.predictor
    if Moment.SUBMIT not in in_use.models:
        return None
    predictor = JobPredictor({Moment.SUBMIT: in_use.models[Moment.SUBMIT]}, in_use.profiles, known.jobs, now=known.as_of)

    def risk_of(requests: pl.DataFrame) -> NDArray[np.float64]:
        return predictor.risk(requests.with_columns(submit_time=pl.lit(known.as_of)), Moment.SUBMIT, known.as_of)

    return risk_of


def _notes(models: ModelsInUse, job: dict[str, Any], verdict: Verdict, named: str) -> Iterator[str]:
    yield from notes_about(job, known=verdict.known, named=named)
    if models.trained_until and job["end_time"] is not None and job["end_time"] < models.trained_until:
        yield "The model has learnt from this very job, so its word about it proves nothing."
