"""Settled predictions: the forecasts of jobs compared with their outcomes; never of jobs a model learnt from.

prediction table + job table -> LiveSite.boards.settled -> Settled: figures of `lifecycle.running_quality`, and the rows behind.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

import polars as pl

from stormpetrel.answers.background import Background
from stormpetrel.answers.overview.overview import again
from stormpetrel.jobs.held.core_seconds import core_seconds, elapsed_seconds
from stormpetrel.jobs.optimism import Optimism, optimism
from stormpetrel.jobs.outcomes import failed
from stormpetrel.lifecycle.running_quality import quality, settle
from stormpetrel.records.jobs import JOB_SCHEMA, KEY, never_started
from stormpetrel.records.predictions import PREDICTION_SCHEMA
from stormpetrel.records.states import FINISHED

if TYPE_CHECKING:
    from stormpetrel.answers.live_site import LiveSite
    from stormpetrel.config import Settings

_REST_S: Final = 15.0
_LONGEST_WAIT: Final = timedelta(days=32)  # tables are kept by submission, and a job may wait for long before it starts
_EARLIER: Final = timedelta(days=7)  # in which users' last jobs are looked for, as in `running_quality`
PREDICTION_COLUMNS: Final = (
    *KEY, "moment", "moment_time", "as_of", "predicted_at", "late", "model_version", "risk", "threshold", "flagged", "known",
    "reason_features", "reason_contributions",
)  # fmt: skip
JOB: Final = (
    *KEY, "user", "state", "start_time", "end_time", "elapsed_s", "cpu_limit_s", "cpus", "req_cpus", "nodes",
    "quality",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Settled:
    """Predictions for moments of the last `watch.quality_days` days.

    `frame` has those whose job has ended: user, moment, moment_time, late, model_version, risk, threshold, flagged, known,
    failed, end_time, elapsed_s and core_seconds. `quality` has their figures by moment and version (QUALITY_SCHEMA). `waiting`
    counts those whose job has not ended, `never_started` those whose job was over before it ran. `importance` has the mean size
    of each feature's contribution (log-odds) per moment and version, out of the reasons that were stored. `optimism` says where
    the ends of past jobs are too early.
    """

    frame: pl.DataFrame
    quality: pl.DataFrame
    waiting: int
    never_started: int
    importance: pl.DataFrame
    since: datetime
    optimism: Optimism | None = None  # of the site's history, which forecasts are made of


def settled_of(predictions: pl.DataFrame, jobs: pl.DataFrame, settings: Settings, *, since: datetime) -> Settled:
    """Join predictions (`PREDICTION_COLUMNS`) with the ends of their jobs (`JOB`)."""
    states = {"failure_states": settings.jobs.failure_states, "dropped_states": settings.jobs.dropped_states}
    ended = jobs.filter(pl.col("state").is_in([str(state) for state in FINISHED]), pl.col("end_time").is_not_null())
    truth = failed(settings.jobs.failure_states, settings.jobs.dropped_states)
    ends = ended.select(*KEY, "user", "end_time", truth, elapsed_seconds().alias("elapsed_s"), core_seconds())
    forecasts = predictions.join(ends.drop_nulls("failed"), on=list(KEY), how="inner", nulls_equal=True)
    forecasts = forecasts.filter(pl.col("as_of") < pl.col("end_time"))  # a prediction made with the end in sight is no forecast
    frame = forecasts.drop("reason_features", "reason_contributions", "as_of", *KEY)
    return Settled(
        frame=frame.with_columns(pl.col("risk", "threshold").cast(pl.Float64)).sort("moment_time", maintain_order=True),
        quality=quality(settle(predictions, jobs, **states)),
        waiting=predictions.join(ended, on=list(KEY), how="anti", nulls_equal=True).height,
        never_started=predictions.join(ended.filter(never_started()), on=list(KEY), how="semi", nulls_equal=True).height,
        importance=_importance(forecasts),
        since=since,
    )


def make_settled(live: LiveSite, key: str, before: Settled | None) -> Settled:
    """The settled predictions of a site."""
    del key, before
    since = live.now() - timedelta(days=live.settings.watch.quality_days)
    return again(lambda: _read(live, since))


def settled_background() -> Background[Settled]:
    """Return what keeps the settled predictions of one site."""
    return Background(make_settled, rest_s=_REST_S, most=1)


def _read(live: LiveSite, since: datetime) -> Settled:
    recent = live.site.predictions.read(since=since - _LONGEST_WAIT).filter(pl.col("moment_time") >= since)
    predictions = recent.select(PREDICTION_COLUMNS).collect()
    first = predictions["submit_time"].min()
    if isinstance(first, datetime):
        jobs = live.site.jobs.read_jobs(since=first - _EARLIER).select(JOB).collect()
    else:
        predictions = pl.DataFrame(schema={name: PREDICTION_SCHEMA[name] for name in PREDICTION_COLUMNS})
        jobs = pl.DataFrame(schema={name: JOB_SCHEMA[name] for name in JOB})
    history = optimism(live.site.jobs.read_jobs().select("end_time", "quality"))
    return replace(settled_of(predictions, jobs, live.settings, since=since), optimism=history)


def _importance(predictions: pl.DataFrame) -> pl.DataFrame:
    """moment, model_version, feature, said, mean_abs_shap: over all predictions; a reason given once counts for little."""
    sizes = predictions.group_by("moment", "model_version").agg(said=pl.len())
    reasons = predictions.select("moment", "model_version", feature="reason_features", size="reason_contributions")
    sums = (
        reasons.explode("feature", "size")
        .drop_nulls("feature")
        .group_by("moment", "model_version", "feature")
        .agg(pl.col("size").cast(pl.Float64).abs().sum())
        .join(sizes, on=["moment", "model_version"])
    )
    mean = sums.select("moment", "model_version", "feature", "said", mean_abs_shap=pl.col("size") / pl.col("said"))
    return mean.sort("mean_abs_shap", "feature", descending=[True, False])
