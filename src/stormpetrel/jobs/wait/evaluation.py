"""Evaluation of waits: the p50 and p90 that each job would have been given, beside the last 20 of the same shape.

job frame -> evaluate_waits -> WaitEvaluation (the JSON of `jobs evaluate --wait`). Before each block the forest is grown on the
waits that were known; within it the levels follow how often the quantiles were enough (adaptive conformal inference).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stormpetrel.errors import NotEnoughJobsError
from stormpetrel.jobs.needs.features import typical_use
from stormpetrel.jobs.needs.past_use import TIME, PastUse, use_table
from stormpetrel.jobs.wait.model import FEWEST_JOBS, QUANTILES, WaitModel
from stormpetrel.jobs.wait.queue_state import SPACE_NAMES, QueueState, WaitTable, queue_features, wait_table
from stormpetrel.learn.splits import ROLLING_CUTS, TIME_CUT
from stormpetrel.records.arrays import Floats, Matrix

JUDGED_FROM: Final = {"time": TIME_CUT, "rolling": ROLLING_CUTS[0]}
BLOCK: Final = 0.05
WARM_UP: Final = 0.10  # of the log, before the judged part, in which levels and shares find their place
SHARES: Final = (0.0, 0.25, 0.5, 0.75, 1.0)  # of the forest's quantile, the rest is that of the last waits of the same shape
PACE: Final = 0.004  # of the levels, per job that is known
BASELINE: Final = "last_20_same_shape"


@dataclass(frozen=True, slots=True)
class WaitFigures:
    """How good quantiles of the wait were: mean pinball loss in seconds, and the share of jobs that waited no longer."""

    pinball_50: float
    pinball_90: float
    coverage_50: float
    coverage_90: float
    n: int

    def as_json(self) -> dict[str, float | int]:
        """The figures as `jobs evaluate --wait` prints them."""
        return {name: getattr(self, name) for name in ("pinball_50", "pinball_90", "coverage_50", "coverage_90", "n")}


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


@dataclass(frozen=True, slots=True)
class QueueLog:
    """A log in the order of submission, with the queue that each job met and how long it is expected to run."""

    jobs: pl.DataFrame
    table: WaitTable
    features: Matrix
    readings: Matrix


def queue_log(jobs: pl.DataFrame, queue: QueueState | None = None, past: PastUse | None = None) -> QueueLog:
    """The log as the model sees it; `queue` and `past` are left as they are after its last event."""
    jobs = jobs.sort("submit_time", maintain_order=True)
    table = wait_table(jobs)
    past_readings = (past or PastUse(TIME)).sweep(jobs, use_table(jobs, TIME))
    run_s = expected_run(past_readings, table)
    readings = (queue or QueueState()).sweep(jobs, table, run_s)
    return QueueLog(jobs, table, queue_features(readings, jobs, table, run_s), readings)


def expected_run(past_readings: Matrix, table: WaitTable) -> Floats:
    """How long each job is expected to run: as such jobs mostly ran, at most its limit."""
    typical = np.exp(typical_use(past_readings))
    return np.where(np.isnan(typical), table.limit_s, np.fmin(typical, table.limit_s))


def evaluate_waits(
    jobs: pl.DataFrame, *, protocol: str = "time", seed: int = 0, progress: Callable[[str], None] = lambda _: None
) -> WaitEvaluation:
    """Judge p50 and p90 of the wait on the last fifth of a log (`rolling`: from 60 % on)."""
    began = time.monotonic()
    progress("the queue")
    log = queue_log(jobs)
    wait_s = log.table.wait_s
    if (~np.isnan(wait_s)).sum() < 2 * FEWEST_JOBS or not np.nanmax(wait_s, initial=0.0) > 0:
        raise NotEnoughJobsError(
            f"{int((~np.isnan(wait_s)).sum())} jobs of this log tell how long they waited: too few to judge anything.",
            hint="Use a log with submit and start times (SWF: a wait time that is not -1).",
        )
    judged_from = JUDGED_FROM[protocol]
    quantiles_s = np.full((log.jobs.height, len(QUANTILES)), np.nan)
    state = _Running(list(QUANTILES), [0.75] * len(QUANTILES), np.full((log.jobs.height, len(QUANTILES)), np.nan))
    shares = np.arange(judged_from - WARM_UP, 1.0 - 1e-9, BLOCK)
    cuts = np.quantile(log.table.submit, shares)
    for number, (cut, until) in enumerate(zip(cuts, [*cuts[1:], np.inf], strict=True)):
        progress(f"block {number + 1} of {len(cuts)}")
        _forecast_block(log, cut, until, state, quantiles_s, seed)
    judged = ~np.isnan(quantiles_s[:, 0]) & ~np.isnan(wait_s) & (log.table.submit >= np.quantile(log.table.submit, judged_from))
    return WaitEvaluation(
        model=judge(quantiles_s[judged], wait_s[judged]),
        baselines={BASELINE: judge(last_of_shape(log.readings)[judged], wait_s[judged])},
        seconds=time.monotonic() - began,
    )


@dataclass(slots=True)
class _Running:
    """What goes on from block to block: levels, shares of the forest, and the forest's own quantiles as they were."""

    levels: list[float]
    shares: list[float]
    by_forest: Floats


def _forecast_block(log: QueueLog, cut: float, until: float, state: _Running, quantiles_s: Floats, seed: int) -> None:
    """Tell every job that is submitted from `cut` to `until` its quantiles."""
    state.shares = _best_shares(log, cut, state)
    model = fit_waits(log, cut, seed)
    rows = np.flatnonzero((log.table.submit >= cut) & (log.table.submit < until))
    if rows.size:
        quantiles_s[rows], state.levels = follow(model, log, rows, state.levels, state.shares)
        state.by_forest[rows], _ = follow(model, log, rows, list(QUANTILES), [1.0] * len(QUANTILES))


def _best_shares(log: QueueLog, now: float, state: _Running) -> list[float]:
    """The share of the forest with the least loss on jobs that were forecast before, as far as their waits are known now."""
    table, before = log.table, ~np.isnan(state.by_forest[:, 0])
    if before.sum() < FEWEST_JOBS:
        return state.shares
    waited = np.where(
        table.start[before] < now, table.wait_s[before], np.maximum(np.fmin(now, table.end[before]) - table.submit[before], 0.0)
    )
    forest, recent = np.log1p(state.by_forest[before]), np.log1p(last_of_shape(log.readings[before]))
    best = []
    for column, level in enumerate(QUANTILES):
        blends = [np.expm1(share * forest[:, column] + (1.0 - share) * recent[:, column]) for share in SHARES]
        best.append(SHARES[int(np.argmin([pinball(blend, waited, level) for blend in blends]))])
    return best


def fit_waits(log: QueueLog, now: float, seed: int) -> WaitModel:
    """A model of what was known at `now`: jobs that had not started yet count as "longer than so far"."""
    table = log.table
    before = table.submit < now
    still_waits = before & ~(table.start < now) & ~(table.end < now)
    waited = np.where(still_waits, now - table.submit, table.wait_s)
    ended_waiting = np.isnan(table.start) & (table.end < now)  # cancelled while it waited: nobody knows how long it would have
    usable = before & ~ended_waiting
    return WaitModel(seed=seed).fit(log.features[usable], waited[usable], still_waits[usable])


def follow(
    model: WaitModel, log: QueueLog, rows: NDArray[np.int64], levels: list[float], shares: list[float]
) -> tuple[Floats, list[float]]:
    """Quantiles of the waits of these jobs, at levels that follow what became known in between; the levels afterwards."""
    from stormpetrel.jobs.wait.queue_kernel import follow_levels

    forecast = model.forecast(log.features[rows])
    wait_s = np.nan_to_num(log.table.wait_s[rows], nan=np.inf)
    recent = np.log1p(last_of_shape(log.readings[rows]))
    out, after = np.empty((rows.size, len(levels))), []
    for column, wanted in enumerate(QUANTILES):
        quantiles_s = np.empty(rows.size)
        level = follow_levels(
            log.table.submit[rows], wait_s, forecast.steps, forecast.below, np.ascontiguousarray(recent[:, column]),
            shares[column], wanted, PACE, levels[column], quantiles_s,
        )  # fmt: skip
        out[:, column] = np.expm1(quantiles_s)
        after.append(float(level))
    out[:, 1] = np.maximum(out[:, 0], out[:, 1])
    return out, after


def last_of_shape(readings: Matrix) -> Floats:
    """The median and the 90 % quantile of the last 20 waits of the same shape, of the site where there are none: (job, 2)."""
    from stormpetrel.jobs.wait.queue_kernel import N_READINGS, READINGS

    out = np.zeros((len(readings), 2))
    for column, reading in enumerate(("median", "q90")):
        shape, site = (
            readings[:, SPACE_NAMES.index(space) * N_READINGS + READINGS.index(reading)] for space in ("shape", "site")
        )
        out[:, column] = np.expm1(np.nan_to_num(np.where(np.isnan(shape), site, shape)))
    return out


def judge(quantiles: Floats, wait_s: Floats) -> WaitFigures:
    """Mean pinball loss and coverage of a p50 and a p90."""
    loss = [pinball(quantiles[:, column], wait_s, level) for column, level in enumerate(QUANTILES)]
    covered = [float((wait_s <= quantiles[:, column] + 1e-6).mean()) for column in range(len(QUANTILES))]
    return WaitFigures(loss[0], loss[1], covered[0], covered[1], int(wait_s.size))


def pinball(quantile: Floats, wait_s: Floats, level: float) -> float:
    """The mean loss of a quantile at a level, in seconds."""
    short = wait_s - quantile
    return float(np.maximum(level * short, (level - 1.0) * short).mean())
