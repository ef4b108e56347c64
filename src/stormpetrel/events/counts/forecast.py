"""The statistical forecaster: how many events of each kind the next bucket should hold, and how odd it is that it holds others.

EventSeries -> fit -> CountForecaster -> forecast (expected counts with their band), score.

Needs no labels and no network. Two regressions per kind stand on the same memory (slow level, rhythm of the week, departures of
the last days). One sees the past only: it is the forecast that people are shown. The other sees the *other* kinds of the same
bucket and of the one before as well: when users send many jobs, starts and ends rise with them, and that is no outage; when ends
stay away although jobs start, it may be one. The score is made of the second (docs/log.md has the figures of both).

A regression of counts: mean and spread of the next bucket, out of its memory.

design (rows, features), counts, log level -> fit_counts -> CountRegression -> mean, dispersion.

Negative binomial with a logarithmic link, drawn towards "as the level says" (ridge). Rows far from what is expected weigh less
(Huber), because the training part holds outages that nobody has labelled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from stormpetrel.engine import Progress, no_progress
from stormpetrel.errors import ModelError
from stormpetrel.events.contract import Forecast, Scores
from stormpetrel.events.counts.memory import DEPARTURES, Memory, Rhythm, Truth, fit_rhythm, history_buckets, memory, seen_buckets
from stormpetrel.events.surprise import (
    LARGEST_DISPERSION,
    SMALLEST_DISPERSION,
    SurpriseScale,
    calm_band,
    fit_surprise,
    normal_scores,
    signed_surprise,
)
from stormpetrel.records.arrays import Floats
from stormpetrel.records.event_series import ANOMALY, HOUR_S, MAINTENANCE, EventSeries

Rows = npt.NDArray[np.int64]
Design = Callable[[Memory, int, Rows, float], tuple[Floats, Floats]]
FEWEST_DAYS: Final = 7
AFTERMATH_HOURS: Final = 6.0  # after an outage or a maintenance the grid still digests it: not learnt as normal
RIDGE: Final = 40.0
DAY_S: Final = 86_400
_OWN: Final = 0.25  # of the ridge, for what a kind's own past says
_FREE: Final = 1e-3  # ridge of the constant
_MOST_BUCKETS: Final = 200_000  # of the end of a series, that are learnt from: minutes of 139 days, hours of 22 years
_MOST_ROWS: Final = 20_000  # that the regressions see, evenly drawn from those
FEWEST_EVENTS: Final = 5  # of a kind, in the training part; below, it is expected as rarely as it was seen
_ROUNDS: Final = 12
_HUBER: Final = 3.0
_LONGEST_STEP: Final = 1.0
_LARGEST_LOG: Final = 25.0
_OF_RARE_KINDS: Final = float(np.log(5.0))  # log dispersion of a kind that was hardly seen
_LOG_DISPERSIONS: Final = np.linspace(np.log(1e-4), np.log(20.0), 14)
_SLOPES: Final = (-1.0, -0.75, -0.5, -0.25, 0.0)  # of log dispersion over log mean: -1 is variance ∝ mean, 0 is ∝ mean²
_ROWS_FOR_SPREAD: Final = 3000


@dataclass
class CountForecaster:
    """Expected counts of every kind, and a score for each bucket, without labels."""

    ridge: float = RIDGE
    kinds_: tuple[str, ...] = ()
    bucket_s_: int = HOUR_S
    rhythm_: Rhythm | None = None
    ahead_: tuple[CountRegression, ...] = ()  # one per kind, from the past only
    with_others_: tuple[CountRegression, ...] = ()  # one per kind, from the past and from the other kinds now
    scale_: SurpriseScale | None = None

    @property
    def history_buckets(self) -> int:
        """How many buckets before a bucket its score depends on."""
        after = self.scale_.history_buckets if self.scale_ else 0
        return history_buckets(self.bucket_s_) + after + 1

    def fit(self, series: EventSeries, *, progress: Progress = no_progress) -> Self:
        """Learn level, rhythm, memory and spread; labelled outages, maintenance and what follows them are left out."""
        series = series.take(max(0, len(series) - _MOST_BUCKETS), len(series))
        calm = calm_for_training(series)
        _refuse_too_short(series, calm)
        self.kinds_, self.bucket_s_ = series.kinds, series.bucket_s
        with one_thread():
            self._learn(series, calm, progress)
        progress(1.0, "learnt")
        return self

    def forecast(self, series: EventSeries, *, since: int = 0) -> Forecast:
        """What each bucket was expected to hold, seen from the bucket before it; NaN before place `since`.

        An announced maintenance is no surprise.
        """
        series = self._checked(series)
        past = memory(series, self._rhythm)
        wanted = past.ready & (np.arange(len(series)) >= since)
        mean, dispersion = self._means(past, self.ahead_, _design_ahead, wanted)
        low, high = calm_band(mean, dispersion)
        surprise = signed_surprise(series.counts, mean, dispersion)
        surprise[(series.label == MAINTENANCE)[:, None] & ~np.isnan(surprise)] = 0.0
        return Forecast(self.kinds_, mean, low, high, surprise)

    def score(self, series: EventSeries, *, since: int = 0) -> Scores:
        """(buckets,) −log10 of the share of calm buckets that are so odd; NaN at gaps, with too little before, before `since`."""
        return self.score_and_oddness(series, since=since)[0]

    def score_and_oddness(self, series: EventSeries, *, since: int = 0) -> tuple[Scores, Floats]:
        """The scores, and (buckets, kinds) normal scores: how odd each count is given the other kinds; NaN where unknown.

        Normal scores are there as far before `since` as the scores remember.
        """
        series = self._checked(series)
        past = memory(series, self._rhythm)
        scale = self._scale
        wanted = past.ready & (np.arange(len(series)) >= since - scale.history_buckets)
        oddness = self._normal_scores(series, past, wanted)
        has_score = wanted & ~series.is_gap & (np.arange(len(series)) >= since)
        return np.where(has_score, scale.score(oddness), np.nan), oddness

    def save(self, folder: Path) -> None:
        """Write it to a folder that is not there yet, whole or not at all."""
        from stormpetrel.events.counts.saving import save_forecaster

        save_forecaster(self, folder)

    @classmethod
    def load(cls, folder: Path) -> CountForecaster:
        """Read a saved forecaster; ModelFormatError says what is wrong with it."""
        from stormpetrel.events.counts.saving import load_forecaster

        return load_forecaster(folder)

    def _learn(self, series: EventSeries, calm: Truth, progress: Progress) -> None:
        self.rhythm_ = fit_rhythm(series, calm)
        past = memory(series, self.rhythm_)
        rows = _some_rows(calm & past.ready)
        ahead, with_others = [], []
        for kind in range(len(self.kinds_)):
            progress(kind / len(self.kinds_), f"learning {self.kinds_[kind]}")
            counts, log_level = series.counts[rows, kind], past.log_level[rows, kind]
            ahead.append(fit_counts(*_design_ahead(past, kind, rows, self.ridge), counts, log_level))
            with_others.append(fit_counts(*_design_with_others(past, kind, rows, self.ridge), counts, log_level))
        self.ahead_, self.with_others_ = tuple(ahead), tuple(with_others)
        self.scale_ = fit_surprise(self._normal_scores(series, past, past.ready), calm & past.ready, series.bucket_s)

    @property
    def _rhythm(self) -> Rhythm:
        if self.rhythm_ is None:
            raise _not_fitted()
        return self.rhythm_

    @property
    def _scale(self) -> SurpriseScale:
        if self.scale_ is None:
            raise _not_fitted()
        return self.scale_

    def _checked(self, series: EventSeries) -> EventSeries:
        if self.rhythm_ is None:
            raise _not_fitted()
        if series.bucket_s != self.bucket_s_:
            raise ModelError(
                f"The model was trained on buckets of {self.bucket_s_} s; these are of {series.bucket_s} s.",
                hint="Train it again: stormpetrel events train",
            )
        return series if series.kinds == self.kinds_ else series.of_kinds(self.kinds_)

    def _normal_scores(self, series: EventSeries, past: Memory, wanted: Truth) -> Floats:
        mean, dispersion = self._means(past, self.with_others_, _design_with_others, wanted)
        return normal_scores(np.where(seen_buckets(series)[:, None], series.counts, np.nan), mean, dispersion)

    def _means(
        self, past: Memory, regressions: tuple[CountRegression, ...], design: Design, wanted: Truth
    ) -> tuple[Floats, Floats]:
        """(buckets, kinds) means and dispersions of the wanted buckets; NaN and 1 elsewhere."""
        mean = np.full(past.log_level.shape, np.nan)
        dispersion = np.ones(past.log_level.shape)
        rows = np.flatnonzero(wanted)
        for kind, regression in enumerate(regressions):
            columns, _ = design(past, kind, rows, self.ridge)
            mean[rows, kind] = regression.mean(columns, past.log_level[rows, kind], self._rhythm.floor)
            dispersion[rows, kind] = regression.dispersion(mean[rows, kind])
        return mean, dispersion


def calm_for_training(series: EventSeries) -> Truth:
    """(buckets,) those to learn normal operation from: seen, and neither in nor just after a known outage or maintenance."""
    disturbed = (series.label == ANOMALY) | (series.label == MAINTENANCE)
    after = int(np.ceil(AFTERMATH_HOURS * HOUR_S / series.bucket_s))
    total = np.concatenate([[0], np.cumsum(disturbed)])
    places = np.arange(len(series))
    near = total[places + 1] > total[np.maximum(places - after, 0)]
    return ~series.is_gap & ~near


def width_ahead() -> int:
    """How many weights a regression on the past has."""
    return 1 + len(DEPARTURES)


def width_with_others(kinds: int) -> int:
    """How many weights a regression on the other kinds has."""
    return 2 + 2 * (kinds - 1)


def _design_ahead(past: Memory, kind: int, rows: Rows, ridge: float) -> tuple[Floats, Floats]:
    """What a kind's own past says, with the penalty of each column; the last hours are left out, lest an outage be expected."""
    return _columns(past.departures[rows, kind], np.empty((len(rows), 0)), ridge)


def _design_with_others(past: Memory, kind: int, rows: Rows, ridge: float) -> tuple[Floats, Floats]:
    """What the slow level says, and what the other kinds do in the same bucket and did in the one before."""
    own = past.departures[rows, kind, DEPARTURES.index("slow")][:, None]  # (rows, 1)
    others = np.delete(past.others[rows], kind, axis=2)  # (rows, 2, other kinds)
    others = others.reshape(len(rows), 2 * others.shape[2])
    return _columns(own, others, ridge)


def _columns(own: Floats, others: Floats, ridge: float) -> tuple[Floats, Floats]:
    columns = np.concatenate([np.ones((len(own), 1)), own, others], axis=1)
    penalty = np.concatenate([[_FREE], np.full(own.shape[1], _OWN * ridge), np.full(others.shape[1], ridge)])
    return columns, penalty


def _some_rows(usable: Truth) -> Rows:
    rows = np.flatnonzero(usable)
    return rows if len(rows) <= _MOST_ROWS else rows[np.linspace(0, len(rows) - 1, _MOST_ROWS).astype(np.int64)]


def _refuse_too_short(series: EventSeries, calm: Truth) -> None:
    days = calm.sum() * series.bucket_s / DAY_S
    if not series.kinds or days < FEWEST_DAYS:
        raise ModelError(
            f"{days:.1f} days of event counts in normal operation, of {len(series.kinds)} kinds: too few to learn from "
            f"(at least {FEWEST_DAYS} days of one kind are needed).",
            hint="Ingest more events: stormpetrel ingest events",
        )


def _not_fitted() -> ModelError:
    return ModelError("The model has learnt nothing yet.", hint="Call fit first, or train one: stormpetrel events train")


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep the linear algebra on one core: its matrices are small, and next to other programs more threads only wait."""
    with threadpool_limits(limits=1):
        yield


@dataclass(frozen=True, slots=True, eq=False)
class CountRegression:
    """What one kind's counts depend on."""

    weights: Floats  # (features,)
    spread: tuple[float, float, float]  # log dispersion at the centre, its slope, the centre (a log mean)

    def mean(self, design: Floats, log_level: Floats, floor: float) -> Floats:
        """(rows,) the expected count."""
        return np.asarray(np.exp(np.clip(log_level + design @ self.weights, np.log(floor), _LARGEST_LOG)), dtype=np.float64)

    def dispersion(self, mean: Floats) -> Floats:
        """(rows,) variance = mean + dispersion × mean²."""
        at_centre, slope, centre = self.spread
        log_dispersion = at_centre + slope * (np.log(mean) - centre)
        return np.asarray(np.clip(np.exp(log_dispersion), SMALLEST_DISPERSION, LARGEST_DISPERSION), dtype=np.float64)


def fit_counts(design: Floats, ridge: Floats, counts: Floats, log_level: Floats) -> CountRegression:
    """Weights by iterated least squares, then the spread by likelihood; `ridge` is the penalty of each feature."""
    weights = np.zeros(design.shape[1])
    if counts.sum() < FEWEST_EVENTS:
        return CountRegression(weights, (_OF_RARE_KINDS, 0.0, 0.0))
    dispersion = 0.3
    for step in range(_ROUNDS):
        mean = np.exp(np.clip(log_level + design @ weights, -_LARGEST_LOG, _LARGEST_LOG))
        variance = mean * (1.0 + dispersion * mean)
        trust = np.minimum(1.0, _HUBER / np.maximum(np.abs(counts - mean) / np.sqrt(variance), 1e-9))  # (rows,)
        slope = design.T @ (trust * (counts - mean) * mean / variance) - ridge * weights
        curve = (design * (trust * mean * mean / variance)[:, None]).T @ design + np.diag(ridge)
        weights = weights + np.clip(np.linalg.solve(curve, slope), -_LONGEST_STEP, _LONGEST_STEP)
        if step % 3 == 2:
            dispersion = _moment_dispersion(counts, mean)
    mean = np.exp(np.clip(log_level + design @ weights, -_LARGEST_LOG, _LARGEST_LOG))
    return CountRegression(weights, _fit_spread(counts, mean))


def _moment_dispersion(counts: Floats, mean: Floats) -> float:
    """Dispersion out of squared residuals, without the worst hundredth."""
    far = (counts - mean) ** 2 / (mean * (1.0 + 0.3 * mean))
    keep = far <= np.quantile(far, 0.99)
    weight = (mean / (1.0 + mean))[keep] ** 2
    excess = (((counts - mean) ** 2 - mean) / mean**2)[keep]
    return float(np.clip((weight * excess).sum() / weight.sum(), SMALLEST_DISPERSION, LARGEST_DISPERSION))


def _fit_spread(counts: Floats, mean: Floats) -> tuple[float, float, float]:
    """Dispersion as a power of the mean, by likelihood on a grid; a second time without the worst hundredth, and finer."""
    rows = np.linspace(0, len(counts) - 1, min(len(counts), _ROWS_FOR_SPREAD)).astype(np.int64)
    counts, mean = counts[rows], mean[rows]
    centre = float(np.log(mean).mean())
    coarse = _likeliest(counts, mean, centre, _LOG_DISPERSIONS, _SLOPES)
    scores = np.abs(normal_scores(counts, mean, np.exp(coarse[0] + coarse[1] * (np.log(mean) - centre))))
    keep = scores <= max(3.0, float(np.quantile(scores, 0.99)))
    around = coarse[0] + np.linspace(-1.5, 1.5, 16)
    return (*_likeliest(counts[keep], mean[keep], centre, around, _SLOPES), centre)


def _likeliest(
    counts: Floats, mean: Floats, centre: float, log_dispersions: Floats, slopes: tuple[float, ...]
) -> tuple[float, float]:
    """The log dispersion at the centre and the slope under which these counts are the most likely."""
    from scipy.special import gammaln

    best, highest = (_OF_RARE_KINDS, 0.0), -np.inf
    steep = np.log(mean) - centre
    for slope in slopes:
        for at_centre in log_dispersions:
            r = np.clip(np.exp(-(at_centre + slope * steep)), 1e-4, 1e6)
            terms = gammaln(counts + r) - gammaln(r) - r * np.log1p(mean / r) - counts * np.log1p(r / mean)
            if (likelihood := float(terms.sum())) > highest:
                highest, best = likelihood, (float(at_centre), slope)
    return best
