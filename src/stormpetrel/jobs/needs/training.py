"""Training of needs and waits on a site's jobs: models of memory, run time and the queue, and the policy of allocation.

job frame -> train_outlook -> TrainedOutlook. The policy is tuned on the last part of the log, which a first fit has not seen; the
model in use is then fitted on all of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import polars as pl

from stormpetrel.errors import NotEnoughJobsError
from stormpetrel.jobs.needs.allocation import PastForecasts, tune
from stormpetrel.jobs.needs.model import NeedsModel
from stormpetrel.jobs.needs.past_use import RESOURCES, PastUse, UseTable, use_table
from stormpetrel.jobs.wait.evaluation import fit_waits, queue_log
from stormpetrel.jobs.wait.model import WaitModel

TUNED_FROM: Final = 0.85  # of the log: a first fit sees what is before, the policy is tuned on what comes after
_MOST_TUNED: Final = 8_000
_MOST_JOBS: Final = 200_000  # the latest: what was earlier is forgotten by then


@dataclass(frozen=True, slots=True)
class TrainedOutlook:
    """Models of what jobs need and how long they wait, as far as the jobs tell; `missing` says why one is not there."""

    needs: dict[str, NeedsModel] = field(default_factory=dict)
    wait: WaitModel | None = None
    missing: dict[str, str] = field(default_factory=dict)


def train_outlook(jobs: pl.DataFrame, *, now: float, seed: int = 0, metadata: dict[str, Any] | None = None) -> TrainedOutlook:
    """Train what these jobs are enough for; `now` in Unix seconds."""
    jobs = jobs.sort("submit_time", maintain_order=True).tail(_MOST_JOBS)
    needs: dict[str, NeedsModel] = {}
    missing: dict[str, str] = {}
    for resource in RESOURCES:
        try:
            needs[resource] = train_needs(jobs, resource, seed=seed, metadata=metadata)
        except NotEnoughJobsError as error:
            missing[resource] = error.what
    wait = None
    try:
        wait = fit_waits(queue_log(jobs), now, seed)
        wait.metadata = dict(metadata or {})
    except NotEnoughJobsError as error:
        missing["wait"] = error.what
    return TrainedOutlook(needs, wait, missing)


def train_needs(jobs: pl.DataFrame, resource: str, *, seed: int = 0, metadata: dict[str, Any] | None = None) -> NeedsModel:
    """The model of one resource, with the policy that did best on jobs that an earlier fit had not seen."""
    table = use_table(jobs, resource)
    readings = PastUse(resource).sweep(jobs, table)
    model = NeedsModel(resource, seed=seed, metadata=dict(metadata or {})).fit(readings, table, jobs)
    past = _past_forecasts(jobs, table, readings, resource, seed)
    if past is not None:
        model.policy = tune(past, resource)
    return model


def _past_forecasts(jobs: pl.DataFrame, table: UseTable, readings: Any, resource: str, seed: int) -> PastForecasts | None:
    submit, end = (
        jobs[name].dt.epoch("us").cast(pl.Float64).fill_null(np.nan).to_numpy() for name in ("submit_time", "end_time")
    )
    usable = table.judged & ~np.isnan(table.request)
    if not usable.any():
        return None
    cut = float(np.quantile(submit[usable], TUNED_FROM))
    try:
        earlier = NeedsModel(resource, seed=seed).fit(readings, table, jobs, end < cut)
    except NotEnoughJobsError:
        return None
    later = np.flatnonzero(usable & (submit >= cut))
    chosen = np.zeros(jobs.height, bool)
    chosen[later[:: max(1, later.size // _MOST_TUNED)]] = True
    forecast = earlier.forecast(readings, table, jobs, chosen)
    return PastForecasts(forecast, readings[chosen], table.request[chosen], table.used[chosen], table.weight(resource)[chosen])
