"""Baselines: what a careful engineer would put up without a forecast of ours, judged on the same buckets.

EventSeries -> fit -> score. `SeasonalZScore`, `PcaResidual` and `IsolationForestScore` need no labels and see counts with level
and hour of the week taken away; `XgboostLags` learns from labelled outages. scikit-learn and XGBoost are imported where they are
used.
The seasonal adjustment takes level, hour of the week and growth out of log(1 + count), using only buckets before each bucket;
lagged counts are the recent past of a bucket as one row of features for trees, as differences to the mean of the last week.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Self

import numpy as np
import numpy.typing as npt

from stormpetrel.engine import Progress, no_progress
from stormpetrel.errors import ModelError
from stormpetrel.events.contract import EventModel, Scores
from stormpetrel.learn.metrics import pr_auc
from stormpetrel.records.arrays import Floats
from stormpetrel.records.event_series import ANOMALY, HOUR_S, MAINTENANCE, NORMAL, EventSeries

DAY_S: Final = 86_400
LEAST_PAST: Final = 2  # counts of the same hour of past weeks without which nothing is expected of a bucket
LEAST_SPREAD: Final = 0.05  # of log counts: a kind that never moved is not infinitely surprising
NORMAL_MAD: Final = 1.4826  # standard deviations in a median absolute deviation of a normal distribution


@dataclass(frozen=True, slots=True)
class SeasonalAdjustment:
    """Log counts less what the same hour of past weeks, and the level of the last days, would let one expect."""

    weeks: int = 6  # how many past weeks the usual of an hour of the week is taken over
    level_days: int = 7  # the level is the median of so many days, so that one bad day does not move it

    def history_buckets(self, bucket_s: int) -> int:
        """How far back a residual reaches."""
        days = 7 * self.weeks + self.level_days + 1
        return (days * DAY_S + HOUR_S) // bucket_s + 1

    def residuals(self, series: EventSeries) -> Floats:
        """(buckets, kinds); NaN at a gap and where there is too little before."""
        seen = log_counts(series)  # (buckets, kinds)
        relative = np.where((series.label == MAINTENANCE)[:, None], np.nan, seen) - self._level(series, seen)
        past = self._past(series, relative)  # (samples, buckets, kinds)
        usual = quiet_median(past)
        usual[np.isfinite(past).sum(axis=0) < LEAST_PAST] = np.nan
        # A maintenance is scored like any other bucket; it is only never part of what others are compared with.
        return np.asarray(seen - self._level(series, seen) - usual, dtype=np.float64)

    def _level(self, series: EventSeries, seen: Floats) -> Floats:
        """(buckets, kinds): median over the last whole days of each day's mean."""
        if not len(series):
            return seen
        usable = np.where((series.label == MAINTENANCE)[:, None], np.nan, seen)
        day = series.start_s // DAY_S
        day = day - day[0]  # (buckets,)
        known = np.isfinite(usable)
        counted = np.zeros((int(day[-1]) + 1, usable.shape[1]))
        total = np.zeros_like(counted)
        np.add.at(counted, day, known)
        np.add.at(total, day, np.where(known, usable, 0.0))
        least = max(1, series.buckets_per_day // 2)  # a day of which less is known says nothing
        means = np.divide(total, counted, out=np.full_like(total, np.nan), where=counted >= least)  # (days, kinds)
        before = np.concatenate([np.full((self.level_days, means.shape[1]), np.nan), means[:-1]])
        windows = np.lib.stride_tricks.sliding_window_view(before, self.level_days, axis=0)  # (days, kinds, level_days)
        levels = quiet_median(np.moveaxis(windows, -1, 0))
        return np.asarray(levels[day], dtype=np.float64)

    def _past(self, series: EventSeries, relative: Floats) -> Floats:
        """(samples, buckets, kinds): the same hour of past weeks, and the hour before and after it."""
        week = series.buckets_per_week
        hour = HOUR_S // series.bucket_s
        shifts = [week * back + aside for back in range(1, self.weeks + 1) for aside in sorted({-hour, 0, hour})]
        return np.stack([shifted(relative, shift) for shift in shifts])


def log_counts(series: EventSeries) -> Floats:
    """(buckets, kinds) log(1 + count), NaN at a gap."""
    return np.log1p(series.counts)


def shifted(values: Floats, by: int) -> Floats:
    """The values of `by` buckets before, NaN where there were none."""
    moved = np.full_like(values, np.nan)
    if by < len(values):
        moved[by:] = values[: len(values) - by]
    return moved


def quiet_median(values: Floats) -> Floats:
    """The median over the first axis of what is known; NaN where nothing is."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a slice of which nothing is known
        return np.asarray(np.nanmedian(values, axis=0), dtype=np.float64)


def robust_spread(residuals: Floats) -> Floats:
    """(kinds,) the usual size of the residuals: of the middle half, or of all but the worst hundredth where that is larger.

    Of a kind that is nearly always zero the middle half does not move at all.
    """
    if not len(residuals):
        return np.full(residuals.shape[1], LEAST_SPREAD)
    middle = quiet_median(residuals)
    away = np.abs(residuals - middle)  # (buckets, kinds)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        bound = np.nanquantile(away, 0.99, axis=0)
        rms = np.sqrt(np.nanmean(np.minimum(away, bound) ** 2, axis=0))
    spread = np.fmax(np.fmax(NORMAL_MAD * quiet_median(away), rms), LEAST_SPREAD)
    return np.asarray(np.nan_to_num(spread, nan=1.0), dtype=np.float64)


LAG_HOURS: Final = tuple(range(1, 25))
MEAN_HOURS: Final = (3, 6, 12, 24)
DAY_HOURS: Final = 24
WEEK_HOURS: Final = 168


def history_hours() -> int:
    """How far back a row of features reaches."""
    return 2 * WEEK_HOURS  # the same hour of last week, compared with the week before it


def lagged_counts(series: EventSeries) -> Floats:
    """(buckets, features) of counts now, 1–24 h ago, yesterday and last week, rolling means, shares, calendar, background."""
    now = log_counts(series)  # (buckets, kinds)
    known = np.where((series.label == MAINTENANCE)[:, None], np.nan, now)
    week = _mean_before(known, _buckets(series, WEEK_HOURS))
    relative = now - week
    yesterday, last_week = (shifted(relative, _buckets(series, hours)) for hours in (DAY_HOURS, WEEK_HOURS))
    lags = sorted({_buckets(series, hours) for hours in LAG_HOURS})
    total = np.log1p(series.counts.sum(axis=1, keepdims=True))  # (buckets, 1)
    parts = [
        now,
        relative,
        *(shifted(now, lag) - week for lag in lags),
        relative - yesterday,
        relative - last_week,
        *(now - _mean_before(known, _buckets(series, hours)) for hours in MEAN_HOURS),
        now - total,  # the share of each kind
        total,
        *_calendar(series),
    ]
    if series.background_names:
        size = np.sign(series.background) * np.log1p(np.abs(series.background))
        parts += [size, size - shifted(size, _buckets(series, DAY_HOURS)), size - shifted(size, _buckets(series, 1))]
    return np.hstack(parts)


def _buckets(series: EventSeries, hours: float) -> int:
    return max(1, round(hours * HOUR_S / series.bucket_s))


def _calendar(series: EventSeries) -> tuple[Floats, Floats]:
    """(buckets, 1) each: which part of the day, and which day of the week."""
    day, within = np.divmod(series.bucket_of_week(), series.buckets_per_day)
    return within[:, None] / series.buckets_per_day, day[:, None].astype(np.float64)


def _mean_before(values: Floats, buckets: int) -> Floats:
    """The mean of what is known of the buckets before each, itself left out; NaN where nothing is."""
    known = np.isfinite(values)
    total = np.concatenate([np.zeros((1, values.shape[1])), np.cumsum(np.where(known, values, 0.0), axis=0)])
    counted = np.concatenate([np.zeros((1, values.shape[1])), np.cumsum(known, axis=0)])
    ends = np.arange(len(values))
    begins = np.maximum(ends - buckets, 0)
    sums, seen = total[ends] - total[begins], counted[ends] - counted[begins]
    return np.asarray(np.divide(sums, seen, out=np.full_like(values, np.nan), where=seen > 0), dtype=np.float64)


Mask = npt.NDArray[np.bool_]

LARGEST_Z: Final = 50.0  # beyond it a deviation says nothing more
LEAST_ROWS: Final = 50  # buckets with a history, without which nothing is learnt
LATE_SHARE: Final = 0.3  # of the training part: the trees stop by it
_TREES: Final = {
    "max_depth": 4,
    "learning_rate": 0.05,
    "subsample": 0.8,
    "colsample_bytree": 0.3,
    "min_child_weight": 5.0,
    "reg_lambda": 2.0,
    "tree_method": "hist",
    "n_jobs": 1,  # a few thousand rows: more threads cost more than they bring, and sums would depend on their number
}


@dataclass(eq=False)
class _Adjusted:
    """What the baselines without labels share: deviations from the usual, in units of their usual size."""

    adjustment: SeasonalAdjustment = field(default_factory=SeasonalAdjustment)
    kinds_: tuple[str, ...] = ()
    spread_: Floats = field(default_factory=lambda: np.empty(0))  # (kinds,)
    bucket_s_: int = HOUR_S

    @property
    def history_buckets(self) -> int:
        """How far back a score reaches."""
        return self.adjustment.history_buckets(self.bucket_s_)

    def _learn(self, series: EventSeries) -> tuple[Floats, Mask]:
        """The deviations of the training part, and which of its buckets may be learnt as normal."""
        residuals = self.adjustment.residuals(series)
        rows = np.isfinite(residuals).all(axis=1) & (series.label != MAINTENANCE)
        calm = rows & (series.label != ANOMALY)
        if calm.sum() < LEAST_ROWS:
            raise ModelError(
                f"Only {int(calm.sum())} buckets have a history to compare them with; {LEAST_ROWS} are needed.",
                hint="Collect three weeks of counts or more.",
            )
        self.kinds_, self.bucket_s_ = series.kinds, series.bucket_s
        self.spread_ = robust_spread(residuals[calm])
        return self._z(residuals), rows

    def _z(self, residuals: Floats) -> Floats:
        """(buckets, kinds) deviations in units of their usual size, bounded."""
        return np.clip(residuals / self.spread_, -LARGEST_Z, LARGEST_Z)

    def deviations(self, series: EventSeries) -> Floats:
        """(buckets, kinds) how far each count lies above (below) its usual; NaN at a gap and where there is too little before."""
        return self._z(self.adjustment.residuals(series.of_kinds(self.kinds_)))


@dataclass(eq=False)
class SeasonalZScore(_Adjusted):
    """The largest deviation of any kind, or the root mean square of all of them.

    `combine` is chosen on the training part where it has labelled outages; without labels it is the root mean square, which was
    the better one on simulated grids.
    """

    combine: Literal["auto", "max", "rms"] = "auto"
    combine_: Literal["max", "rms"] = "rms"

    def fit(self, series: EventSeries, *, progress: Progress = no_progress) -> Self:
        """Learn how far counts usually lie from what past weeks let one expect."""
        z, rows = self._learn(series)
        self.combine_ = self.combine if self.combine != "auto" else _better_combination(z[rows], series.label[rows] == ANOMALY)
        progress(1.0, "seasonal z-score")
        return self

    def score(self, series: EventSeries) -> Scores:
        """(buckets,) in units of the usual deviation."""
        return _combined(self.deviations(series), self.combine_)


@dataclass(eq=False)
class PcaResidual(_Adjusted):
    """How badly a few principal components of the deviations explain those of now: kinds that no longer go together."""

    share: float = 0.8  # of the variance that the components explain
    mean_: Floats = field(default_factory=lambda: np.empty(0))
    axes_: Floats = field(default_factory=lambda: np.empty((0, 0)))  # (components, kinds)

    def fit(self, series: EventSeries, *, progress: Progress = no_progress) -> Self:
        """Learn which deviations go together."""
        z, rows = self._learn(series)
        # Outages that nobody labelled would turn the axes: bounded, they are some buckets among thousands.
        bounded = np.clip(z[rows & (series.label != ANOMALY)], -4.0, 4.0)
        self.mean_ = bounded.mean(axis=0)
        _, sizes, axes = np.linalg.svd(bounded - self.mean_, full_matrices=False)
        explained = np.cumsum(sizes**2) / max(float(np.sum(sizes**2)), 1e-12)
        self.axes_ = axes[: int(np.searchsorted(explained, self.share)) + 1]
        progress(1.0, "principal components")
        return self

    def score(self, series: EventSeries) -> Scores:
        """(buckets,) root mean square of what the components leave."""
        centred = self.deviations(series) - self.mean_
        left = centred - (centred @ self.axes_.T) @ self.axes_
        return np.asarray(np.sqrt(np.mean(left**2, axis=1)), dtype=np.float64)


@dataclass(eq=False)
class IsolationForestScore(_Adjusted):
    """How soon random cuts part a bucket's deviations from all others."""

    trees: int = 200
    seed: int = 0
    forest_: Any = None

    def fit(self, series: EventSeries, *, progress: Progress = no_progress) -> Self:
        """Grow the forest on the training part; labelled outages are left out."""
        from sklearn.ensemble import IsolationForest

        z, rows = self._learn(series)
        calm = rows & (series.label != ANOMALY)
        self.forest_ = IsolationForest(n_estimators=self.trees, random_state=self.seed, n_jobs=1).fit(z[calm])
        progress(1.0, "isolation forest")
        return self

    def score(self, series: EventSeries) -> Scores:
        """(buckets,) from 0 to 1, as the forest's authors define it."""
        z = self.deviations(series)
        rows = np.isfinite(z).all(axis=1)
        scores = np.full(len(series), np.nan)
        if rows.any():
            scores[rows] = -self.forest_.score_samples(z[rows])
        return scores


@dataclass(eq=False)
class XgboostLags:
    """Gradient-boosted trees on counts of the last day, of the same hour yesterday and last week, rolling means and shares."""

    most_trees: int = 600
    fewest_trees: int = 200  # the later part holds a few outages only: a best number below this is chance (measured)
    patience: int = 50
    seed: int = 0
    kinds_: tuple[str, ...] = ()
    background_names_: tuple[str, ...] = ()
    bucket_s_: int = HOUR_S
    trees_: Any = None

    @property
    def history_buckets(self) -> int:
        """How far back a score reaches."""
        return int(history_hours() * HOUR_S // self.bucket_s_) + 1

    def fit(self, series: EventSeries, *, progress: Progress = no_progress) -> Self:
        """Learn from labelled outages; how many trees, from the later part of the series."""
        rows = np.flatnonzero(~series.is_gap & ((series.label == NORMAL) | (series.label == ANOMALY)))
        truth = series.label[rows] == ANOMALY
        if truth.sum() < 2 or truth.all():
            raise ModelError(
                "There is no labelled outage to learn from.",
                hint="Label some (stormpetrel events label), or use a model that needs no labels.",
            )
        self.kinds_, self.background_names_, self.bucket_s_ = series.kinds, series.background_names, series.bucket_s
        features = lagged_counts(series)[rows]
        progress(0.2, "lagged counts")
        rounds = self._rounds(features, truth)
        progress(0.6, f"{rounds} trees")
        self.trees_ = self._grown(features, truth, rounds)
        progress(1.0, "trees")
        return self

    def score(self, series: EventSeries) -> Scores:
        """(buckets,) log odds of an outage."""
        if series.background_names != self.background_names_:
            raise ModelError("The series has another background than the one that was learnt from.")
        scores = np.full(len(series), np.nan)
        rows = ~series.is_gap
        if rows.any():
            features = lagged_counts(series.of_kinds(self.kinds_))[rows]
            scores[rows] = self.trees_.predict(features, output_margin=True)
        return scores

    def _rounds(self, features: Floats, truth: Mask) -> int:
        """How many trees were best for the later part of the training part."""
        cut = _late_cut(truth)
        if cut is None:
            return self.fewest_trees
        stopped = self._grown(features[:cut], truth[:cut], self.most_trees, (features[cut:], truth[cut:]))
        # The whole training part has more rows than the part that was stopped on.
        return max(self.fewest_trees, round((int(stopped.best_iteration) + 1) / (1 - LATE_SHARE)))

    def _grown(self, features: Floats, truth: Mask, rounds: int, late: tuple[Floats, Mask] | None = None) -> Any:
        import xgboost

        weight = float((~truth).sum()) / max(1, int(truth.sum()))
        stopping = {"early_stopping_rounds": self.patience, "eval_metric": "aucpr"} if late else {}
        model = xgboost.XGBClassifier(n_estimators=rounds, scale_pos_weight=weight, random_state=self.seed, **_TREES, **stopping)
        return model.fit(features, truth, eval_set=[late] if late else None, verbose=False)


BASELINES: Final[Mapping[str, Callable[..., EventModel]]] = {
    "seasonal": SeasonalZScore,
    "pca": PcaResidual,
    "iforest": IsolationForestScore,
    "xgboost": XgboostLags,
}
WITH_CHANCE: Final = frozenset({"iforest", "xgboost"})  # those that take a seed


def _late_cut(truth: Mask) -> int | None:
    """Where the later part begins; None where the parts do not hold outages both."""
    cut = round(truth.size * (1 - LATE_SHARE))
    while 0 < cut < truth.size and truth[cut] and truth[cut - 1]:  # not in the middle of an outage
        cut += 1
    return cut if truth[:cut].any() and truth[cut:].any() else None


def _better_combination(z: Floats, truth: Mask) -> Literal["max", "rms"]:
    if not truth.any() or truth.all():
        return "rms"
    areas = {name: pr_auc(truth, _combined(z, name)) or 0.0 for name in ("max", "rms")}
    return "max" if areas["max"] > areas["rms"] else "rms"


def _combined(z: Floats, how: str) -> Scores:
    """(buckets,) one figure of the deviations of all kinds."""
    joined = np.abs(z).max(axis=1) if how == "max" else np.sqrt(np.mean(z**2, axis=1))
    return np.asarray(joined, dtype=np.float64)
