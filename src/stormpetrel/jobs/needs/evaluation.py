"""Evaluation of needs: what the model would have given each job, block by block in the order of time, beside the baselines.

job frame -> evaluate_needs -> NeedsEvaluation (the JSON of `jobs evaluate --needs`, and one row per judged job). Before each
block the model is trained on what had ended, by the code that trains what a site serves.

Baselines of allocation: the users' own request, and three rules over what the same work used before.
readings of PastUse + requests -> amounts. None gives more than was requested, and all give the request where nothing is known.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl

from stormpetrel.errors import NotEnoughJobsError
from stormpetrel.jobs.needs.allocation import Frontier, judge
from stormpetrel.jobs.needs.features import narrowest
from stormpetrel.jobs.needs.forecast import LEVELS
from stormpetrel.jobs.needs.model import FEWEST_JOBS
from stormpetrel.jobs.needs.past_use import GPUS, MEMORY, TIME
from stormpetrel.jobs.needs.training import TUNED_ON, NeedsTraining, UseLog, use_log
from stormpetrel.learn.splits import ROLLING_CUTS, TIME_CUT
from stormpetrel.records.arrays import Floats, Matrix
from stormpetrel.records.jobs import job_text

JUDGED_FROM: Final = {"time": TIME_CUT, "rolling": ROLLING_CUTS[0]}
SMALL_JUDGED_FROM: Final = 0.3  # of a small log: a fifth of a thousand tasks would be chance
REQUEST: Final = "request"
MAX_HEAD_ROOM: Final = 1.2


@dataclass(frozen=True, slots=True)
class NeedsEvaluation:
    """What one evaluation measured: figures of the model and the baselines, coverage of the quantiles, one row per judged job."""

    resource: str
    model: Frontier
    baselines: dict[str, Frontier]
    coverage: dict[str, float]  # by quantile: the share of jobs that used no more, ideally the level itself
    rows: pl.DataFrame
    seconds: float
    notes: list[str]

    def as_json(self) -> dict[str, Any]:
        """The JSON of `jobs evaluate --needs` (DESIGN: stable, other programs read it)."""
        figures = {
            "model": {**self.model.as_json(), "coverage": self.coverage},
            "baselines": {name: figure.as_json() for name, figure in self.baselines.items()},
        }
        return {"needs": {self.resource: figures}, "seconds": round(self.seconds, 3), "notes": self.notes}


def evaluate_needs(
    jobs: pl.DataFrame,
    resource: str,
    *,
    protocol: str = "time",
    seed: int = 0,
    progress: Callable[[str], None] = lambda _: None,
) -> NeedsEvaluation:
    """Judge allocations on the last fifth of a log (`rolling`: from 60 %, under 5,000 jobs: from 30 % on).

    Nothing is used that was not known at a job's submission.
    """
    began = time.monotonic()
    progress("past use")
    training = NeedsTraining(use_log(jobs, resource), seed)
    jobs, table = training.log.jobs, training.log.table
    granted, quantiles = _walk(training, JUDGED_FROM[protocol], progress)
    judged = ~np.isnan(granted)
    if not judged.any():
        wanted = "run times" if resource == TIME else f"the {resource.replace('_', ' ')} that jobs used"
        source = " (sacct's MaxRSS, Nextflow's peak_rss)" if resource == MEMORY else ""
        raise NotEnoughJobsError(
            f"{int(table.judged.sum())} ended jobs tell how much {resource} they used: too few to judge anything.",
            hint=f"Use a longer log, or one with {wanted}{source}.",
        )
    used, weight = table.used[judged], table.weight(resource)[judged]
    amounts = baseline_amounts(training.log.readings[judged], table.request[judged])
    amounts = {name: np.ceil(amount) for name, amount in amounts.items()} if resource == GPUS else amounts
    coverage = {f"p{round(100 * level)}": float((used <= quantiles[judged, at]).mean()) for at, level in enumerate(LEVELS)}
    rows = jobs.filter(judged).select(job=job_text()).with_columns(
        given=granted[judged], used=used, request=pl.Series(table.request[judged], nan_to_null=True),
        run_s=table.run_s[judged], cores=table.cores[judged],
    )  # fmt: skip
    return NeedsEvaluation(
        resource=resource,
        model=judge(granted[judged], used, weight),
        baselines={name: judge(amount, used, weight) for name, amount in amounts.items()},
        coverage=coverage,
        rows=rows,
        seconds=time.monotonic() - began,
        notes=_notes(training.log),
    )


def _walk(training: NeedsTraining, judged_from: float, progress: Callable[[str], None]) -> tuple[Floats, Floats]:
    """Given amounts and quantiles of use, of the judged jobs; NaN for the others."""
    log = training.log
    usable, height = log.judgeable, log.jobs.height
    granted, quantiles = np.full(height, np.nan), np.full((height, len(LEVELS)), np.nan)
    if usable.sum() < FEWEST_JOBS + 10:
        return granted, quantiles
    judged_from = min(judged_from, SMALL_JUDGED_FROM) if training.is_small else judged_from
    shares = np.arange(judged_from - TUNED_ON, 1.0 - 1e-9, training.block)
    cuts = np.unique(np.quantile(log.submit[usable], shares))
    for number, (cut, until) in enumerate(zip(cuts, [*cuts[1:], np.inf], strict=True)):
        progress(f"block {number + 1} of {len(cuts)}")
        judged = bool(shares[min(number, len(shares) - 1)] >= judged_from - 1e-9)
        try:
            training.fit_at(float(cut), tuned=judged)
        except NotEnoughJobsError:
            continue
        rows, allocation, forecast = training.advance(float(until), judged=judged)
        if judged:
            granted[rows], quantiles[rows] = allocation.granted, forecast.quantiles(LEVELS)
    return granted, quantiles


def _notes(log: UseLog) -> list[str]:
    judged, asks = log.table.judged, ~np.isnan(log.table.request)
    if judged.any() and not (judged & asks).any():
        return [f"No job says how much {log.resource} it asked for: there is nothing to compare with."]
    silent = int((judged & ~asks).sum())
    notes = [f"{silent:,} jobs do not say how much {log.resource} they asked for, and are not judged."] if silent else []
    if log.jobs["elapsed_s"].null_count() == log.jobs.height:
        notes.append("No job says how long it ran: each counts alike in what is wasted.")
    return notes


def baseline_amounts(readings: Matrix, request: Floats) -> dict[str, Floats]:
    """What each baseline gives each job.

    `max_of_last`: the most of the last 32 runs × 1.2. `tovar`: the first allocation of Tovar et al. (2018), which costs least if
    whoever needs more is given the most that was seen. `witt`: the 95th percentile of Witt et al. (2019). All over the narrowest
    group of past jobs that is known.
    """
    rules = {
        "max_of_last": MAX_HEAD_ROOM * np.exp(narrowest(readings, "max")),
        "tovar": np.exp(narrowest(readings, "first_allocation")),
        "witt": np.exp(narrowest(readings, "q95")),
    }
    return {REQUEST: request, **{name: np.where(np.isnan(rule), request, np.fmin(rule, request)) for name, rule in rules.items()}}
