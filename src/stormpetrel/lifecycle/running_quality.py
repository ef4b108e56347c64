"""Running quality: what was predicted, held against what became of the jobs.

predictions + jobs -> settle -> one row per prediction whose job has ended -> quality. With the figures stand
those of the two trivial rules: the share of failed jobs, and "as this user's last ended job".
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, Final

import numpy as np
import polars as pl

from stormpetrel.jobs.moments import MOMENTS
from stormpetrel.jobs.outcomes import failed
from stormpetrel.learn.metrics import Truth, judge, pr_auc, reliability_slope, scores_at
from stormpetrel.records.jobs import KEY
from stormpetrel.records.states import FINISHED
from stormpetrel.records.times import UTC_TIME
from stormpetrel.store.site import Site

SETTLED_SCHEMA: Final = pl.Schema(
    {
        "moment": pl.String(),
        "model_version": pl.Int32(),
        "risk": pl.Float32(),
        "flagged": pl.Boolean(),
        "late": pl.Boolean(),
        "predicted_at": UTC_TIME,
        "moment_time": UTC_TIME,
        "end_time": UTC_TIME,
        "failed": pl.Boolean(),
        "last_failed": pl.Boolean(),  # whether the user's last ended job had failed, as far as anybody knew then
    }
)
_FIGURES: Final = (
    "failed_share", "pr_auc", "roc_auc", "brier", "ece", "slope", "intercept", "precision", "recall", "f1", "flagged_share",
    "late_share", "base_pr_auc", "base_brier", "last_pr_auc", "last_precision", "last_recall", "last_f1",
)  # fmt: skip
QUALITY_SCHEMA: Final = pl.Schema(
    {
        "moment": pl.String(),
        "model_version": pl.Int32(),  # null: all versions together
        "n": pl.Int64(),
        "failed": pl.Int64(),
        **dict.fromkeys(_FIGURES, pl.Float64()),
        "first": UTC_TIME,
        "last": UTC_TIME,
    }
)
_PREDICTED: Final = (*KEY, "moment", "model_version", "risk", "flagged", "late", "as_of", "predicted_at", "moment_time")
_LONGEST_WAIT: Final = timedelta(days=32)  # tables are kept by submission, and a job may wait for long before it starts
_EARLIER: Final = timedelta(days=7)  # in which users' last jobs are looked for


def settled(site: Site, *, since: datetime) -> pl.DataFrame:
    """Predictions for moments from `since` on whose jobs have ended, with the truth: the columns of SETTLED_SCHEMA."""
    recent = site.predictions.read(since=since - _LONGEST_WAIT).filter(pl.col("moment_time") >= since)
    predictions = recent.select(_PREDICTED).collect()
    first = predictions["submit_time"].min()
    if not isinstance(first, datetime):
        return pl.DataFrame(schema=SETTLED_SCHEMA)
    jobs = site.jobs.read_jobs(since=first - _EARLIER).filter(pl.col("end_time").is_not_null())
    section = site.settings.jobs
    return settle(
        predictions,
        jobs.select(*KEY, "user", "state", "start_time", "end_time", "elapsed_s").collect(),
        failure_states=section.failure_states,
        dropped_states=section.dropped_states,
    )


def running_quality_of(site: Site, *, since: datetime) -> pl.DataFrame:
    """How good the predictions for moments from `since` on have been, by moment and model version: QUALITY_SCHEMA."""
    return quality(settled(site, since=since))


def settle(
    predictions: pl.DataFrame, jobs: pl.DataFrame, *, failure_states: Iterable[str], dropped_states: Iterable[str] = ()
) -> pl.DataFrame:
    """Predictions whose job has ended in a state that counts, and that were made of what was known before it ended.

    Of a job that never started nothing shows who was right: its predictions are not settled.
    """
    ended = jobs.filter(pl.col("state").is_in([str(state) for state in FINISHED]), pl.col("end_time").is_not_null())
    truth = ended.select(*KEY, "user", "end_time", failed(failure_states, dropped_states)).drop_nulls("failed")
    judged = predictions.select(_PREDICTED).join(truth, on=list(KEY), how="inner", nulls_equal=True)
    judged = judged.filter(pl.col("as_of") < pl.col("end_time")).sort("as_of", "moment_time", "job_id", maintain_order=True)
    outcomes = truth.select("user", pl.col("end_time").alias("as_of"), last_failed="failed").drop_nulls("user").sort("as_of")
    # Strictly before: at equal times nobody knew yet.
    known = judged.join_asof(outcomes, on="as_of", by="user", allow_exact_matches=False, check_sortedness=False)
    return known.with_columns(pl.col("last_failed").fill_null(False)).select(SETTLED_SCHEMA.names()).cast(SETTLED_SCHEMA)


def quality(settled_rows: pl.DataFrame) -> pl.DataFrame:
    """The figures of settled predictions: for each moment a row over all versions, then one per version."""
    rows = []
    for moment in MOMENTS:
        of_moment = settled_rows.filter(pl.col("moment") == str(moment)).sort("model_version", maintain_order=True)
        versions = of_moment.partition_by("model_version", maintain_order=True)
        single = [_quality_row(part, str(moment), part["model_version"][0]) for part in versions]
        if len(single) == 1:  # the usual case, and sorting a million predictions takes its time
            rows += [{**single[0], "model_version": None}, *single]
        elif single:
            rows += [_quality_row(of_moment, str(moment), None), *single]
    return pl.DataFrame(rows, schema=QUALITY_SCHEMA, orient="row")


def _quality_row(part: pl.DataFrame, moment: str, version: int | None) -> dict[str, Any]:
    return {
        "moment": moment,
        "model_version": version,
        **_figures(part),
        "first": part["moment_time"].min(),
        "last": part["moment_time"].max(),
    }


def _figures(part: pl.DataFrame) -> dict[str, Any]:
    """Figures of some predictions; None where these cannot tell."""
    truth = part["failed"].to_numpy()
    risk = part["risk"].cast(pl.Float64).to_numpy()
    flagged = part["flagged"].to_numpy()
    figures = judge(truth, risk, threshold=0.5, n_train=0)
    precision, recall, f1 = _rule(truth, flagged)  # by the flags as they were shown: thresholds change with the model
    slope = reliability_slope(truth, risk)
    last = part["last_failed"].to_numpy()
    last_precision, last_recall, last_f1 = _rule(truth, last)
    share = figures.failed_share
    return {
        "n": figures.n_test,
        "failed": int(truth.sum()),
        "failed_share": share,
        "pr_auc": figures.pr_auc,
        "roc_auc": figures.roc_auc,
        "brier": figures.brier,
        "ece": figures.ece,
        "slope": slope,
        "intercept": None if slope is None else share - slope * float(risk.mean()),
        "precision": precision,
        "recall": recall,
        "f1": f1,
        "flagged_share": float(flagged.mean()),
        "late_share": float(part["late"].mean()),  # type: ignore[arg-type]
        "base_pr_auc": share if truth.any() else None,
        "base_brier": share * (1 - share),
        "last_pr_auc": pr_auc(truth, last.astype(np.float64)),
        "last_precision": last_precision,
        "last_recall": last_recall,
        "last_f1": last_f1,
    }


def _rule(truth: Truth, flagged: Truth) -> tuple[float | None, float | None, float | None]:
    """Precision, recall and F1 of a yes-or-no rule; None where nothing was flagged, or nothing failed."""
    precision, recall, f1 = scores_at(truth, flagged.astype(np.float64), 0.5)
    return (precision if flagged.any() else None), (recall if truth.any() else None), (f1 if truth.any() else None)
