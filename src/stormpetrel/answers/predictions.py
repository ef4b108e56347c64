"""Predictions of a site's jobs as a table: job, user, start, risk of failing, flagged or not, what a failure would be.

Site -> predict_jobs -> frame, most likely to fail first.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

    from stormpetrel.jobs.moments import Moment
    from stormpetrel.store.site import Site


def predict_jobs(site: Site, *, moment: Moment | None, last: int | None, now: datetime) -> pl.DataFrame:
    """Return jobs that wait or run now, each at its latest moment; with `last` the last N submitted ones, as known then."""
    import polars as pl

    from stormpetrel.answers.past_jobs_judged import judged_jobs, site_jobs
    from stormpetrel.lifecycle.job_models import load_predictor
    from stormpetrel.records.job_ref import job_text

    known = site_jobs(site, now=now, last=last)
    predictor = load_predictor(site, now=now, past=known.jobs.head(0), moments=[moment] if moment else None)
    judged = judged_jobs(predictor, known, moments=list(predictor.models))
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
    return table.sort("risk", descending=True, maintain_order=True)
