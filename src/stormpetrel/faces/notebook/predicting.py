"""Step 4: what the model says about each job, from what was known at that job's own moment.

LatestModel + jobs -> predict -> Job ID, User ID, Start Time, Risk (%), Flagged.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, TypeAlias

import polars as pl

from stormpetrel.answers.job_selection import Progress, silent
from stormpetrel.answers.past_jobs_judged import KnownJobs, judged_jobs
from stormpetrel.errors import ModelError, UsageError
from stormpetrel.faces.notebook.loading import LoadedJobs, as_loaded
from stormpetrel.faces.notebook.model import LatestModel
from stormpetrel.faces.notebook.preparing import PreparedJobs
from stormpetrel.jobs.moments import MOMENTS, Moment
from stormpetrel.jobs.outcomes import failed
from stormpetrel.jobs.predictor import known_by
from stormpetrel.records.job_ref import job_text
from stormpetrel.records.jobs import JOB_SCHEMA, KEY, conform

Jobs: TypeAlias = LoadedJobs | PreparedJobs | pl.DataFrame

COLUMNS: Final = ("Job ID", "User ID", "Start Time", "Risk (%)", "Flagged")
FAIL: Final = "Fail"
COMPLETE: Final = "Complete"
# A log may name its cluster otherwise than the site does: the rest of the key says that it is the same job.
_SAME_JOB: Final = [name for name in KEY if name != "cluster"]


def predict(
    model: LatestModel, jobs: Jobs, *, at: str | None = None, details: bool = False, progress: Progress = silent
) -> pl.DataFrame:
    """The risk of failing (%) of each job, and whether it is flagged, in the order of submission.

    Each job is judged at the latest moment that it has reached (or `at` submit, start or 2min), from what was known then: what
    happened afterwards, to it or to others, is not looked at. The past is that of the model's site and of the jobs' own log.
    `details` adds the class that this makes (`Prediction`: Fail or Complete) with its probability (`Confidence`, %), the risk
    (0 to 1), the threshold, the moment, whether user and application were known, when it was submitted, whether it failed (null
    while nobody knows), and whether the model learnt from this very job: then its word proves nothing.

    The whole past is walked through once per moment: 28,000 jobs in it take a second, 280,000 eight, and 3 kB of memory each.
    """
    judged = judge_jobs(model, jobs, moments=_moments(model, at), progress=progress)
    return prediction_table(model, judged, details=details)


def prediction_table(model: LatestModel, judged: pl.DataFrame, *, details: bool = False) -> pl.DataFrame:
    """Job rows with `moment`, `risk`, `threshold` and `known` as people read them."""
    zone = model.predictor.time_zone
    taught = model.predictor.history
    likely = pl.col("risk") >= pl.col("threshold")
    table = judged.select(
        job_text().alias("Job ID"),
        pl.coalesce("user", pl.col("uid").cast(pl.String)).alias("User ID"),
        pl.col("start_time").dt.convert_time_zone(zone).alias("Start Time"),
        (100 * pl.col("risk")).round(2).alias("Risk (%)"),
        likely.alias("Flagged"),
        pl.when(likely).then(pl.lit(FAIL)).otherwise(pl.lit(COMPLETE)).alias("Prediction"),
        (100 * pl.when(likely).then("risk").otherwise(1 - pl.col("risk"))).round(2).alias("Confidence"),
        pl.col("risk").alias("Risk"),
        pl.col("threshold").alias("Threshold"),
        pl.col("moment").alias("Moment"),
        pl.col("known").alias("Known"),
        pl.col("submit_time").dt.convert_time_zone(zone).alias("Submit Time"),
        failed(taught.failure_states, taught.dropped_states).alias("Failed"),
        _learnt_from(model).alias("Learnt From"),
    )
    return table if details else table.select(COLUMNS)


def judge_jobs(model: LatestModel, jobs: Jobs, *, moments: Collection[Moment], progress: Progress = silent) -> pl.DataFrame:
    """The wanted jobs with `moment`, `risk`, `threshold` and `known` at the latest of these moments that each has reached."""
    known = known_jobs(model, jobs)
    progress(0.1)
    return judged_jobs(model.predictor, known, moments=moments, progress=lambda share: progress(0.1 + 0.9 * share))


def known_jobs(model: LatestModel, jobs: Jobs) -> KnownJobs:
    """The past of the site, that of the log, and the jobs themselves, each job once: the log's record counts."""
    wanted, loaded = (jobs.kept, jobs.loaded) if isinstance(jobs, PreparedJobs) else (None, as_loaded(jobs))
    frame = conform(loaded.frame)
    own = pl.concat([conform(loaded.earlier), frame]).unique(KEY, keep="last", maintain_order=True)
    past = model.past(loaded.as_of).select(list(JOB_SCHEMA)).join(own, on=_SAME_JOB, how="anti", nulls_equal=True)
    chosen = (frame if wanted is None else wanted).select(KEY).unique().with_columns(wanted=pl.lit(True))
    everyone = pl.concat([past, known_by(own, loaded.as_of)]).join(chosen, on=list(KEY), how="left", nulls_equal=True)
    everyone = everyone.sort("submit_time", "job_id", "array_task", maintain_order=True)
    return KnownJobs(everyone.drop("wanted"), everyone["wanted"].fill_null(False).to_numpy(), loaded.as_of)


def _moments(model: LatestModel, at: str | None) -> list[Moment]:
    if at is None:
        return list(model.predictor.models)
    if at not in set(MOMENTS):
        raise UsageError(f"'{at}' is not a moment of a job.", hint=f"Known: {', '.join(MOMENTS)}.")
    if Moment(at) not in model.predictor.models:
        raise ModelError(f"There is no model for '{at}'.", hint="Train it: stormpetrel jobs train")
    return [Moment(at)]


def _learnt_from(model: LatestModel) -> pl.Expr:
    """Whether the outcome of a job was known when the model was trained."""
    if model.trained_until is None:
        return pl.lit(None, dtype=pl.Boolean)
    return (pl.col("end_time") < pl.lit(model.trained_until)).fill_null(False)
