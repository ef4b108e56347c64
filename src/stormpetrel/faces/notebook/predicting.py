"""Step 4: what the model says about each job, from what was known at that job's own moment.

LatestModel + jobs -> predict -> Job ID, User ID, Start Time, Risk (%), Flagged.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, TypeAlias

import polars as pl

from stormpetrel.answers.jobs.judged_selection import judge_selection, moments_in_use
from stormpetrel.answers.jobs.selection import Progress, silent
from stormpetrel.faces.notebook.loading import LoadedJobs, as_loaded
from stormpetrel.faces.notebook.model import LatestModel
from stormpetrel.faces.notebook.preparing import PreparedJobs
from stormpetrel.jobs.moments import Moment
from stormpetrel.jobs.outcomes import failed
from stormpetrel.records.jobs import job_text

Jobs: TypeAlias = LoadedJobs | PreparedJobs | pl.DataFrame

COLUMNS: Final = ("Job ID", "User ID", "Start Time", "Risk (%)", "Flagged")
FAIL: Final = "Fail"
COMPLETE: Final = "Complete"


def predict(
    model: LatestModel, jobs: Jobs, *, at: str | None = None, details: bool = False, progress: Progress = silent
) -> pl.DataFrame:
    """The risk of failing (%) of each job, and whether it is flagged, in the order of submission.

    Each job is judged at the latest moment that it has reached (or `at` submit, start or 2min), from what was known then: what
    happened afterwards, to it or to others, is not examined. The past is that of the model's site and of the jobs' own log.
    `details` adds the class that this makes (`Prediction`: Fail or Complete) with its probability (`Confidence`, %), the risk
    (0 to 1), the threshold, the moment, whether user and application were known, when it was submitted, whether it failed (null
    while nobody knows), and whether the model learnt from this very job: then its word proves nothing.

    The whole past is walked through once per moment: 28,000 jobs in it take a second, 280,000 eight, and 3 kB of memory each.
    """
    judged = judge_jobs(model, jobs, moments=moments_in_use(model, at), progress=progress)
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
    if isinstance(jobs, PreparedJobs):
        return judge_selection(model, jobs.loaded, jobs.kept, moments=moments, progress=progress)
    return judge_selection(model, as_loaded(jobs), moments=moments, progress=progress)


def _learnt_from(model: LatestModel) -> pl.Expr:
    """Whether the outcome of a job was known when the model was trained."""
    if model.trained_until is None:
        return pl.lit(None, dtype=pl.Boolean)
    return (pl.col("end_time") < pl.lit(model.trained_until)).fill_null(False)
