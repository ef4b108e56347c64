"""Evaluation of waits: the p50 and p90 that each job would have been given, beside the last 20 of the same shape.

job frame -> evaluate_waits -> WaitEvaluation (the JSON of `jobs evaluate --wait`). Before each block a model is trained on what
was known then, and gives each job of the block its quantiles, by the code that serves them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl

from stormpetrel.errors import NotEnoughJobsError
from stormpetrel.jobs.wait.model import FEWEST_JOBS, QUANTILES
from stormpetrel.jobs.wait.training import WARM_UP, WaitTraining, last_of_shape, pinball, queue_log
from stormpetrel.learn.splits import ROLLING_CUTS, TIME_CUT
from stormpetrel.records.arrays import Floats

JUDGED_FROM: Final = {"time": TIME_CUT, "rolling": ROLLING_CUTS[0]}
BLOCK: Final = 0.05  # of the log, between two fits
BASELINE: Final = "last_20_same_shape"


@dataclass(frozen=True, slots=True)
class WaitFigures:
    """How good quantiles of the wait were: mean pinball loss in seconds, the shares of jobs that waited no longer, and less.

    Where many jobs do not wait at all, a right p50 of 0 s is enough for far more than half of them: the level then lies between
    the share that waited less (`below`) and the share that waited no longer (`coverage`).
    """

    pinball_50: float
    pinball_90: float
    coverage_50: float
    coverage_90: float
    below_50: float
    below_90: float
    n: int

    def as_json(self) -> dict[str, float | int]:
        """The figures as `jobs evaluate --wait` prints them."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class WaitEvaluation:
    """What one evaluation measured."""

    model: WaitFigures
    baselines: dict[str, WaitFigures]
    seconds: float

    def as_json(self) -> dict[str, Any]:
        """The JSON of `jobs evaluate --wait` (DESIGN: stable, other programs read it)."""
        figures = {"model": self.model.as_json(), "baselines": {name: each.as_json() for name, each in self.baselines.items()}}
        return {"wait": figures, "seconds": round(self.seconds, 3)}


def evaluate_waits(
    jobs: pl.DataFrame, *, protocol: str = "time", seed: int = 0, progress: Callable[[str], None] = lambda _: None
) -> WaitEvaluation:
    """Judge p50 and p90 of the wait on the last fifth of a log (`rolling`: from 60 % on)."""
    began = time.monotonic()
    progress("the queue")
    log = queue_log(jobs)
    wait_s = log.table.wait_s
    enough = (~np.isnan(wait_s)).sum() >= 2 * FEWEST_JOBS
    if enough and not np.nanmax(wait_s) > 0:
        raise NotEnoughJobsError(
            "No job of this log waited: there is nothing to judge.",
            hint="Use a log with submit and start times of a cluster that was full at times.",
        )
    if not enough:
        raise NotEnoughJobsError(
            f"{int((~np.isnan(wait_s)).sum())} jobs of this log tell how long they waited: too few to judge anything.",
            hint="Use a log with submit and start times (SWF: a wait time that is not -1).",
        )
    judged_from = JUDGED_FROM[protocol]
    quantiles_s = np.full((log.jobs.height, len(QUANTILES)), np.nan)
    training = WaitTraining(log, seed)
    cuts = np.quantile(log.table.submit, np.arange(judged_from - WARM_UP, 1.0 - 1e-9, BLOCK))
    for number, (cut, until) in enumerate(zip(cuts, [*cuts[1:], np.inf], strict=True)):
        progress(f"block {number + 1} of {len(cuts)}")
        training.fit_at(float(cut))
        rows, block_s = training.advance(float(until))
        quantiles_s[rows] = block_s
    judged = ~np.isnan(quantiles_s[:, 0]) & ~np.isnan(wait_s) & (log.table.submit >= np.quantile(log.table.submit, judged_from))
    return WaitEvaluation(
        model=judge(quantiles_s[judged], wait_s[judged]),
        baselines={BASELINE: judge(last_of_shape(log.readings)[judged], wait_s[judged])},
        seconds=time.monotonic() - began,
    )


def judge(quantiles: Floats, wait_s: Floats) -> WaitFigures:
    """Mean pinball loss and coverage of a p50 and a p90."""
    loss = [pinball(quantiles[:, column], wait_s, level) for column, level in enumerate(QUANTILES)]
    covered = [float((wait_s <= quantiles[:, column] + 1e-6).mean()) for column in range(len(QUANTILES))]
    below = [float((wait_s < quantiles[:, column] - 1e-6).mean()) for column in range(len(QUANTILES))]
    return WaitFigures(loss[0], loss[1], covered[0], covered[1], below[0], below[1], int(wait_s.size))
