"""Comparison: two sets of job models on the same jobs, which neither has seen.

FittedModels × 2 + job frame -> compare -> Comparison per moment: log loss, its difference with an interval, PR area.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stormpetrel.errors import NotEnoughJobsError
from stormpetrel.jobs.enough import counted_failed
from stormpetrel.jobs.features import matrix_of
from stormpetrel.jobs.history import event_times
from stormpetrel.jobs.moments import MOMENTS
from stormpetrel.jobs.predictor import JobPredictor
from stormpetrel.jobs.training import TrainingSettings
from stormpetrel.learn.metrics import Floats, Truth, pr_auc
from stormpetrel.lifecycle.job_models import FittedModels

LEVEL: Final = 0.90  # of the interval of the difference
DRAWS: Final = 1000
FEWEST_GROUPS: Final = 10
_AT_ONCE: Final = 2_000_000  # numbers of the resampling in memory
_SMALLEST_RISK: Final = 1e-6  # no forecast is surer than this: one surprise must not decide everything


@dataclass(frozen=True, slots=True)
class Comparison:
    """A candidate against the model in use at one moment, on the same jobs; lower log loss is better."""

    moment: str
    jobs: int
    failed: int
    log_loss: float
    log_loss_current: float
    difference_low: float  # interval of: log loss of the candidate − that of the model in use
    difference_high: float
    pr_auc: float | None
    pr_auc_current: float | None

    @property
    def better(self) -> bool:
        """Whether the candidate is better beyond noise."""
        return self.difference_high < 0

    @property
    def worse(self) -> bool:
        """Whether the candidate is worse beyond noise."""
        return self.difference_low > 0

    def words(self) -> str:
        """The figures in words."""
        loss = f"log loss {_decimals(self.log_loss, 3)} against {_decimals(self.log_loss_current, 3)}"
        if self.pr_auc is None or self.pr_auc_current is None:
            return loss
        return f"PR area {_decimals(self.pr_auc, 2)} against {_decimals(self.pr_auc_current, 2)}, {loss}"


def compare(
    candidate: FittedModels,
    current: FittedModels,
    jobs: pl.DataFrame,
    *,
    cut: datetime,
    now: datetime,
    settings: TrainingSettings,
) -> list[Comparison]:
    """Both on the jobs submitted after the cut and ended by now, at each moment that both know, in the order of a job's life."""
    new, old = (forecasts_after(fitted, jobs, cut=cut, now=now) for fitted in (candidate, current))
    truth = new.select(counted_failed(settings), "user", day=pl.col("submit_time").dt.truncate("1d"))
    found = []
    for moment in (str(moment) for moment in MOMENTS):
        if moment in new.columns and moment in old.columns:
            rows = truth.with_columns(new=new[moment], old=old[moment]).drop_nulls(["failed", "new", "old"])
            if rows.height:
                found.append(_compared(moment, rows))
    if not found:
        raise NotEnoughJobsError("there is no job that both the candidate and the model in use could judge.")
    return found


def forecasts_after(fitted: FittedModels, jobs: pl.DataFrame, *, cut: datetime, now: datetime) -> pl.DataFrame:
    """The jobs submitted after the cut, with a column per moment: the risk as it would have been told, null if never.

    On the path of the live loop: history as it was known at the cut, then moved on event by event.
    """
    predictor = JobPredictor(fitted.models, fitted.profiles, jobs, now=cut)
    open_then = pl.col("end_time").is_null() | (pl.col("end_time") >= cut)
    later = jobs.filter(open_then).sort("submit_time", "job_id", "array_task", maintain_order=True)
    happened = event_times(later)
    done = happened < cut.timestamp()
    done[:, 0] |= happened[:, 0] == cut.timestamp()  # at equal times submissions are known, and nothing else
    profiled = predictor.profiled(later)
    history, zone = predictor.history, predictor.time_zone
    advanced = history.advance(profiled, done, since=cut.timestamp(), until=now.timestamp(), moments=MOMENTS)
    asked = (later["submit_time"] > cut).to_numpy()
    columns = []
    for column, moment in enumerate(MOMENTS):
        if moment in fitted.models:
            rows = np.flatnonzero(asked & advanced.due[:, column])
            features = matrix_of(profiled, advanced.readings, history, moment, time_zone=zone).rows(rows)
            risks = np.full(later.height, np.nan)
            risks[rows] = fitted.models[moment].risk(features)
            columns.append(pl.Series(str(moment), risks).fill_nan(None))
    return later.with_columns(columns).filter(asked)


def _compared(moment: str, rows: pl.DataFrame) -> Comparison:
    truth, new, old = (rows[name].to_numpy() for name in ("failed", "new", "old"))
    loss, loss_current = _log_losses(truth, new), _log_losses(truth, old)
    # One user's jobs of one day stand or fall together: they are drawn together.
    group = rows.select(pl.struct("user", "day").rank("dense") - 1).to_series().to_numpy()
    low, high = _interval(loss - loss_current, group)
    return Comparison(
        moment=moment,
        jobs=rows.height,
        failed=int(truth.sum()),
        log_loss=float(loss.mean()),
        log_loss_current=float(loss_current.mean()),
        difference_low=low,
        difference_high=high,
        pr_auc=pr_auc(truth, new),
        pr_auc_current=pr_auc(truth, old),
    )


def _log_losses(truth: Truth, risk: Floats) -> Floats:
    sure = np.clip(risk, _SMALLEST_RISK, 1 - _SMALLEST_RISK)
    return -np.log(np.where(truth, sure, 1 - sure))


def _interval(difference: Floats, group: NDArray[np.int64]) -> tuple[float, float]:
    """The interval of a mean difference over jobs, by a bootstrap that draws groups of jobs; the same each time."""
    groups = int(group.max()) + 1
    if groups < FEWEST_GROUPS:  # too few to draw from: each job for itself
        group, groups = np.arange(difference.size), difference.size
    totals, sizes = np.bincount(group, weights=difference), np.bincount(group)
    rng = np.random.default_rng(0)
    means: list[Floats] = []
    at_once = max(1, min(DRAWS, _AT_ONCE // groups))
    for begin in range(0, DRAWS, at_once):
        drawn = rng.multinomial(groups, np.full(groups, 1 / groups), size=min(at_once, DRAWS - begin))  # (draw, group)
        means.append((drawn @ totals) / (drawn @ sizes))
    low, high = np.quantile(np.concatenate(means), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def _decimals(value: float, places: int) -> str:
    """A share without its leading zero: .61."""
    return f"{value:.{places}f}".removeprefix("0")
