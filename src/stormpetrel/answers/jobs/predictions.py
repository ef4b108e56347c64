"""Forecasts of a site's jobs: how likely each is to fail, from what was known at its own moment.

Site + Viewer -> predict_jobs -> JobForecasts, the most likely to fail first.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import polars as pl

from stormpetrel.answers.jobs.one_job import PRIOR_SPEAKS
from stormpetrel.answers.schemas.predictions import JobForecast, JobForecasts
from stormpetrel.answers.viewer import READ

if TYPE_CHECKING:
    from stormpetrel.answers.viewer import Viewer
    from stormpetrel.jobs.moments import Moment
    from stormpetrel.store.site import Site


def predict_jobs(site: Site, viewer: Viewer, *, moment: Moment | None, last: int | None, now: datetime) -> JobForecasts:
    """Judge the jobs that wait or run now and that the viewer may see, each at its latest moment.

    With `last` these are among the last N submitted ones, ended or not, as known then; with `moment` all are judged at that one.
    """
    from stormpetrel.answers.jobs.past_jobs_judged import judged_jobs, site_jobs
    from stormpetrel.lifecycle.job_models import load_models
    from stormpetrel.records.jobs import job_text

    viewer.require(READ)
    known = site_jobs(site, now=now, last=last)
    predictor = load_models(site, moments=[moment] if moment else None)
    judged = judged_jobs(predictor, known, moments=list(predictor.models)).filter(viewer.sees())
    flagged = pl.col("risk") >= pl.col("threshold")
    table = judged.select(
        job_text().alias("job"),
        "user",
        "submit_time",
        "start_time",
        "state",
        pl.col("moment").alias("at"),
        pl.when(flagged).then(pl.lit("Fail")).otherwise(pl.lit("Complete")).alias("prediction"),
        (100 * pl.when(flagged).then("risk").otherwise(1 - pl.col("risk"))).alias("confidence"),
        "risk",
        "threshold",
        flagged.alias("flagged"),
        "likeliest",
        "known",
    )
    rows = table.sort("risk", descending=True, maintain_order=True).iter_rows(named=True)
    return JobForecasts(forecasts=[JobForecast(**row) for row in rows], notes=[PRIOR_SPEAKS] if predictor.is_prior else [])
