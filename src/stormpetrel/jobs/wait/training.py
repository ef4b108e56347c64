"""Training of waits: a forest of what was known, and what was right lately: level and share of the p50, mixture of the p90.

job frame -> queue_log -> QueueLog -> WaitTraining.fit_at(moment) -> WaitModel; advance(until) -> quantiles of the jobs that came
since. The evaluation walks through a log with it block by block, a site walks through its latest jobs: what is served is what
was judged. Within a block the level of the p50 follows how often it was enough (adaptive conformal inference).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stormpetrel.jobs.needs.features import typical_use
from stormpetrel.jobs.needs.past_use import TIME, PastUse, use_table
from stormpetrel.jobs.wait.mixture import LEVEL, MOST_WEIGHED, Mixture, candidates, weigh
from stormpetrel.jobs.wait.model import FEWEST_JOBS, QUANTILES, WaitModel
from stormpetrel.jobs.wait.queue_state import SPACE_NAMES, QueueState, WaitTable, queue_features, wait_table

Floats = NDArray[np.float64]
Matrix = NDArray[np.float32]

WARM_UP: Final = 0.10  # of the log, in which levels and shares find their place
SHARES: Final = (0.0, 0.25, 0.5, 0.75, 1.0)  # of the forest's quantile, the rest is that of the last waits of the same shape
PACE: Final = 0.004  # of the levels, per job that is known
MOST_FOLLOWED: Final = 20_000  # jobs since a fit, the latest: what levels follow has a bound


@dataclass(frozen=True, slots=True)
class QueueLog:
    """A log in the order of submission, with the queue that each job met and how long it is expected to run."""

    jobs: pl.DataFrame
    table: WaitTable
    features: Matrix
    readings: Matrix


def queue_log(
    jobs: pl.DataFrame, queue: QueueState | None = None, past: PastUse | None = None, *, since: float | None = None
) -> QueueLog:
    """The log as the model sees it; `queue` and `past` are left as they are after its last event.

    With `since` (Unix seconds) only jobs that were not over by then have features: whoever asks about now needs no others.
    """
    jobs = jobs.sort("submit_time", maintain_order=True)
    table = wait_table(jobs)
    wanted = None if since is None else ~(table.end < since)
    past_readings = (past or PastUse(TIME)).sweep(jobs, use_table(jobs, TIME), wanted)
    run_s = expected_run(past_readings, table)
    readings = (queue or QueueState()).sweep(jobs, table, run_s, wanted)
    return QueueLog(jobs, table, queue_features(readings, jobs, table, run_s), readings)


def expected_run(past_readings: Matrix, table: WaitTable) -> Floats:
    """How long each job is expected to run: as such jobs mostly ran, at most its limit."""
    typical = np.exp(typical_use(past_readings))
    return np.where(np.isnan(typical), table.limit_s, np.fmin(typical, table.limit_s))


def train_waits(log: QueueLog, now: float, *, seed: int = 0) -> WaitModel:
    """The model to serve from `now` on: walked through the log as the evaluation does, its latest part at once."""
    training = WaitTraining(log, seed)
    known = log.table.submit[log.table.submit < now]
    if known.size >= 2 * FEWEST_JOBS:
        training.fit_at(float(np.quantile(known, 1.0 - WARM_UP)))
        training.advance(now)
    return training.fit_at(now)


class WaitTraining:
    """Fits along a log: each model carries on the levels and shares that earlier ones ended with."""

    def __init__(self, log: QueueLog, seed: int = 0) -> None:
        self._log, self._seed = log, seed
        self._levels: tuple[float, ...] = QUANTILES
        self._shares: tuple[float, ...] = (0.75,) * len(QUANTILES)
        self._by_forest = np.full((log.jobs.height, len(QUANTILES)), np.nan)  # quantiles of the forests alone, as they were
        self._mixed: list[tuple[NDArray[np.int64], Matrix, Floats]] = []  # rows, what candidates said, what was mixed of it
        self._model: WaitModel | None = None

    def fit_at(self, now: float) -> WaitModel:
        """A model of what was known at `now` (Unix seconds)."""
        self._shares = self._best_shares(now)
        self._model = fit_waits(self._log, now, self._seed)
        self._model.levels_, self._model.shares_, self._model.mixture_ = self._levels, self._shares, self._mixture(now)
        return self._model

    def advance(self, until: float) -> tuple[NDArray[np.int64], Floats]:
        """The jobs that were submitted from the latest fit until then, and the quantiles that each would have been given."""
        assert self._model is not None
        submit = self._log.table.submit
        rows = np.flatnonzero((submit >= self._model.fitted_until_) & (submit < until))
        quantiles_s, self._levels = follow(self._model, self._log, rows, until=until)
        plain = WaitModel(forest_=self._model.forest_)
        self._by_forest[rows], _ = follow(plain, self._log, rows, until=until, pace=0.0)
        if self._model.mixture_ is not None:
            forecast = self._model.forecast(self._log.features[rows])
            forecasts = candidates(self._log.features[rows], forecast.steps, forecast.below)
            self._mixed.append((rows, forecasts, self._model.mixture_.plain(forecasts)))
        return rows, quantiles_s

    def _mixture(self, now: float) -> Mixture:
        """The mixture of the p90 from `now` on, by jobs that were forecast before, as far as their waits are known."""
        if not self._mixed:
            return Mixture()
        rows, forecasts, mixed = (np.concatenate(columns)[-MOST_WEIGHED:] for columns in zip(*self._mixed, strict=True))
        return weigh(forecasts, mixed, self._waited(rows, now), self._log.table.start[rows] < now)

    def _waited(self, rows: NDArray[Any], now: float) -> Floats:
        """How long jobs had waited by then, in seconds, those that still did as well."""
        table = self._log.table
        so_far = np.maximum(np.fmin(now, table.end[rows]) - table.submit[rows], 0.0)
        return np.asarray(np.where(table.start[rows] < now, table.wait_s[rows], so_far), np.float64)

    def _best_shares(self, now: float) -> tuple[float, ...]:
        """The share of the forest with the least loss on jobs that were forecast before, as far as their waits are known now."""
        before = ~np.isnan(self._by_forest[:, 0])
        if before.sum() < FEWEST_JOBS:
            return self._shares
        waited = self._waited(before, now)
        forest, recent = np.log1p(self._by_forest[before]), np.log1p(last_of_shape(self._log.readings[before]))
        best = []
        for column, level in enumerate(QUANTILES):
            blends = [np.expm1(share * forest[:, column] + (1.0 - share) * recent[:, column]) for share in SHARES]
            best.append(SHARES[int(np.argmin([pinball(blend, waited, level) for blend in blends]))])
        return tuple(best)


def fit_waits(log: QueueLog, now: float, seed: int) -> WaitModel:
    """A forest of what was known at `now`: jobs that had not started yet count as "longer than so far"."""
    table = log.table
    before = table.submit < now
    still_waits = before & ~(table.start < now) & ~(table.end < now)
    waited = np.where(still_waits, now - table.submit, table.wait_s)
    ended_waiting = np.isnan(table.start) & (table.end < now)  # cancelled while it waited: nobody knows how long it would have
    usable = before & ~ended_waiting
    model = WaitModel(seed=seed, fitted_until_=now)
    return model.fit(log.features[usable], waited[usable], still_waits[usable])


def follow(
    model: WaitModel, log: QueueLog, rows: NDArray[np.int64], *, until: float, pace: float = PACE
) -> tuple[Floats, tuple[float, ...]]:
    """Quantiles of the waits of these jobs, at levels that follow what became known in between; the levels at `until`."""
    from stormpetrel.jobs.wait.queue_kernel import follow_levels

    forecast = model.forecast(log.features[rows])
    table = log.table.rows(rows)
    wait_s = np.nan_to_num(table.wait_s, nan=np.inf)
    gone_s = np.where(np.isnan(table.start) & ~np.isnan(table.end), table.end - table.submit, np.inf)
    recent = np.log1p(last_of_shape(log.readings[rows]))
    out, after = np.empty((rows.size, len(QUANTILES))), []
    for column, wanted in enumerate(QUANTILES):
        log_quantiles = np.empty(rows.size)
        level = follow_levels(
            table.submit, wait_s, gone_s, forecast.steps, forecast.below, np.ascontiguousarray(recent[:, column]),
            model.shares_[column], wanted, pace, model.levels_[column], until, log_quantiles,
        )  # fmt: skip
        out[:, column] = np.expm1(log_quantiles)
        after.append(float(level) if model.mixture_ is None or wanted != LEVEL else wanted)
    if model.mixture_ is not None:
        out[:, 1] = model.mixture_.seconds(candidates(log.features[rows], forecast.steps, forecast.below))
    out[:, 1] = np.maximum(out[:, 0], out[:, 1])
    return out, tuple(after)


def levels_now(model: WaitModel, log: QueueLog, now: float) -> tuple[float, ...]:
    """The levels of a model at `now`: where it was fitted, moved by what became known since."""
    rows = np.flatnonzero((log.table.submit >= model.fitted_until_) & (log.table.submit < now))[-MOST_FOLLOWED:]
    return follow(model, log, rows, until=now)[1]


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


def pinball(quantile: Floats, wait_s: Floats, level: float) -> float:
    """The mean loss of a quantile at a level, in seconds."""
    short = wait_s - quantile
    return float(np.maximum(level * short, (level - 1.0) * short).mean())
