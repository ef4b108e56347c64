"""The first days of a site: the prior, the user's rate so far, and the site's own model with and without the prior, side by side.

PriorLog + prior -> first_days -> FirstDays: mean ROC area and log loss over many starting days, of the jobs of the first 1, 3, 10
and 30 days. Nothing from before a starting day is known, nothing from after a forecast is used; the prior has not seen it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stormpetrel.errors import NotEnoughJobsError
from stormpetrel.jobs.features import FeatureMatrix
from stormpetrel.jobs.model import JobOutcomeModel
from stormpetrel.jobs.moments import Moment
from stormpetrel.jobs.prior.learning import begin_with
from stormpetrel.jobs.prior.young_sites import DAY_S, Mask, PriorLog, YoungSite, young_site
from stormpetrel.learn.metrics import roc_auc
from stormpetrel.records.arrays import Floats

STARTS: Final = 30
DAYS: Final = (1, 3, 10, 30)
FEWEST_FAILURES: Final = 300  # of a log that is judged
FORECASTERS: Final = ("user_rate", "prior", "blend", "own")
_REFITS: Final = (1, 3, 10)  # days after which the site's own models are learnt anew
_FEWEST_JOBS: Final = 20  # of a starting day
_MOST_ROWS: Final = 4_000  # of one fit, the newest ones
_LONG_EVERY: Final = 3  # every third starting day is followed for longer than three days: each costs four fits
_CLOSEST: Final = 1e-6  # to 0 and 1 that a log loss is computed with


@dataclass(frozen=True, slots=True)
class PeriodFigures:
    """Over the jobs of the first `days` days, mean over starting days: ROC area and log loss of each forecaster."""

    days: int
    starts: int
    jobs: int
    roc_auc: dict[str, float]
    log_loss: dict[str, float]


@dataclass(frozen=True, slots=True)
class FirstDays:
    """What forecasts of a log's first days would have been worth, had it begun on each of so many days."""

    log: str
    jobs: int
    failures: int
    periods: tuple[PeriodFigures, ...]


def first_days(
    log: PriorLog,
    prior: JobOutcomeModel,
    *,
    starts: int = STARTS,
    days: Sequence[int] = DAYS,
    seed: int = 0,
    similar_names: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> FirstDays:
    """Judge the forecasters at submission over the first days of a log, begun on each of `starts` days that are drawn.

    With `similar_names`, rates lean on those of similar names and scripts, as at a site that allows it.
    """
    failures = int((log.failed & log.usable).sum())
    if failures < FEWEST_FAILURES:
        raise NotEnoughJobsError(
            f"{log.name} has {failures} failures: a log is judged from {FEWEST_FAILURES} on.",
            hint="Use a longer log, or say with --failed which states count as a failure.",
        )
    rows: dict[int, list[tuple[int, dict[str, tuple[float, float]]]]] = {period: [] for period in days}
    chosen = _starting_days(log, starts, seed)
    for number, start_s in enumerate(chosen):
        progress(f"{log.name}: starting day {number + 1} of {len(chosen)}")
        followed = max(days) if number % _LONG_EVERY == 0 else min(3, max(days))
        site = young_site(log, start_s, longest_s=followed * DAY_S, similar_names=similar_names)
        forecasts = _forecasts(site, prior, followed)
        for period in days:
            judged = site.age_s < period * DAY_S
            if period <= followed and _has_both(site.failed[judged]):
                rows[period].append((int(judged.sum()), _figures(site.failed[judged], forecasts, judged)))
    periods = tuple(_mean(period, several) for period, several in rows.items() if several)
    return FirstDays(log.name, int(log.usable.sum()), failures, periods)


def _starting_days(log: PriorLog, starts: int, seed: int) -> list[float]:
    """Days (Unix seconds of midnight UTC) with enough jobs and both outcomes, two days before the end at the latest."""
    day = np.floor(log.submit_s / DAY_S).astype(np.int64)
    able = []
    for number in np.unique(day[log.usable]):
        of_day = (day == number) & log.usable
        if of_day.sum() >= _FEWEST_JOBS and _has_both(log.failed[of_day]) and number <= day[-1] - 2:
            able.append(float(number) * DAY_S)
    if not able:
        raise NotEnoughJobsError(f"No day of {log.name} has {_FEWEST_JOBS} jobs of both outcomes.", hint="Use a longer log.")
    drawn = np.random.default_rng(seed).permutation(len(able))[:starts]
    return [able[number] for number in drawn]


def _forecasts(site: YoungSite, prior: JobOutcomeModel, followed: float) -> dict[str, Floats]:
    """What each forecaster says of each job; a site's own model is silent before its first failures: the user's rate speaks."""
    features = site.features[Moment.SUBMIT]
    rate = features.values[:, features.names.index("user.failed_rate_ever")].astype(np.float64)
    forecasts = {"user_rate": rate, "prior": prior.risk(features)}
    forecasts |= {"blend": forecasts["prior"].copy(), "own": rate.copy()}
    for cut, until in zip(_REFITS, (*_REFITS[1:], np.inf), strict=True):
        if cut >= followed:
            break
        learnt = np.flatnonzero(site.end_s < cut * DAY_S)[-_MOST_ROWS:]
        later = (site.age_s >= cut * DAY_S) & (site.age_s < until * DAY_S)
        for name, fit in (("own", _fit_own), ("blend", _fit_blend)):
            try:
                forecasts[name][later] = fit(features.rows(learnt), site.failed[learnt], prior).risk(features.rows(later))
            except NotEnoughJobsError:
                continue
    return forecasts


def _fit_own(features: FeatureMatrix, failed: Mask, _prior: JobOutcomeModel) -> JobOutcomeModel:
    return JobOutcomeModel(Moment.SUBMIT).fit_risk(features, failed)


def _fit_blend(features: FeatureMatrix, failed: Mask, prior: JobOutcomeModel) -> JobOutcomeModel:
    return JobOutcomeModel(Moment.SUBMIT).fit_risk(features, failed, begin=begin_with(prior, features.names, failed))


def _figures(truth: Mask, forecasts: dict[str, Floats], rows: NDArray[np.bool_]) -> dict[str, tuple[float, float]]:
    return {name: (roc_auc(truth, risk[rows]) or 0.0, log_loss(truth, risk[rows])) for name, risk in forecasts.items()}


def log_loss(truth: Mask, risk: Floats) -> float:
    """Mean negative log-likelihood in nats."""
    inside = np.clip(risk, _CLOSEST, 1.0 - _CLOSEST)
    return float(-np.mean(np.where(truth, np.log(inside), np.log1p(-inside))))


def _mean(period: int, rows: Sequence[tuple[int, dict[str, tuple[float, float]]]]) -> PeriodFigures:
    areas, losses = (
        {name: float(np.mean([figures[name][which] for _, figures in rows])) for name in FORECASTERS} for which in (0, 1)
    )
    return PeriodFigures(period, len(rows), sum(jobs for jobs, _ in rows), areas, losses)


def _has_both(failed: Mask) -> bool:
    return bool(failed.any() and not failed.all())
