"""Sites for the tests of the desk: jobs straight into the table, and made-up predictions beside them."""

from __future__ import annotations

from datetime import datetime, timedelta

import polars as pl

from stormpetrel.ingest.commit import commit_jobs
from stormpetrel.records.jobs import KEY, VALUES, field_mask
from stormpetrel.records.predictions import PREDICTION_SCHEMA
from stormpetrel.store.site import Site
from tests.builders import T0


def put_jobs(site: Site, jobs: pl.DataFrame, *, as_of: datetime | None = None) -> None:
    """Jobs as they are known at a moment; those that are there already are corrected."""
    words = jobs.drop("extra").hash_rows(seed=1).reinterpret(signed=True)
    rows = jobs.with_columns(fingerprint=words, line=pl.int_range(pl.len(), dtype=pl.Int64))
    commit_jobs(site.jobs, rows, fields=field_mask(frozenset(VALUES)), as_of=as_of or T0 + timedelta(days=400))


def said_about(
    jobs: pl.DataFrame, moment: str = "submit", *, risk: pl.Expr | float = 0.25, threshold: float = 0.5
) -> pl.DataFrame:
    """A prediction for each of these jobs; `risk` may look at their columns."""
    risks = jobs.with_columns(risk=risk if isinstance(risk, pl.Expr) else pl.lit(risk))["risk"].cast(pl.Float32)
    rows = jobs.select(KEY).with_columns(
        moment=pl.lit(moment),
        moment_time=pl.col("submit_time"),
        as_of=pl.col("submit_time"),
        predicted_at=pl.col("submit_time") + timedelta(seconds=2),
        late=pl.lit(False),
        model_version=pl.lit(1),
        risk=risks,
        threshold=pl.lit(threshold),
        flagged=risks >= threshold,
        known=pl.lit(True),
        likeliest=pl.lit("TIMEOUT"),
        likeliest_probability=risks / 2,
        profile=pl.lit(0),
        base=pl.lit(-1.0),
        reason_features=pl.lit(["user.failed_rate_12h", "time_limit"]),
        reason_words=pl.lit([f"failures at {moment}", "a short limit"]),
        reason_contributions=pl.lit([0.5, -0.25]),
    )
    return rows.select([pl.col(name).cast(dtype) for name, dtype in PREDICTION_SCHEMA.items()])


def put_predictions(site: Site, *frames: pl.DataFrame) -> None:
    """Predictions into the table, the horizon after the last of them."""
    for frame in frames:
        site.predictions.append(frame, horizon=frame["predicted_at"].max())  # type: ignore[arg-type]
