"""The recurrent forecaster: an LSTM that says what the next bucket will hold, and how surprising it was. It needs no labels.

EventSeries -> fit -> RecurrentForecaster -> forecast (mean, band, surprise), score. torch is needed to learn, not to score.

The counts of a kind are negative binomial. The network gives the mean as a factor on the slow level, so that growth needs no
learning, and the dispersion. Outages in the training part are unknown to it: every count may come, with a small probability,
from a much wider distribution instead, so that what cannot be expected teaches little.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import numpy as np
import numpy.typing as npt

from stormpetrel.engine import Progress, no_progress
from stormpetrel.errors import ModelError
from stormpetrel.events.contract import Forecast, Scores
from stormpetrel.events.recurrent_features import (
    CALENDAR_WIDTH,
    Mask,
    Matrix,
    Scaling,
    calendar,
    is_seen,
    level_buckets,
    slow_level,
)
from stormpetrel.events.recurrent_numpy import Sizes, answers, check_weights
from stormpetrel.events.recurrent_saving import damaged, load_weights, need_torch, save_weights, scale_of_record, scale_record
from stormpetrel.events.recurrent_settings import ForecastSettings
from stormpetrel.events.surprise import SurpriseScale, fit_surprise
from stormpetrel.events.tails import calm_band, normal_scores, signed_surprise
from stormpetrel.records.event_series import ANOMALY, HOUR_S, MAINTENANCE, EventSeries

if TYPE_CHECKING:
    from torch import Tensor

    from stormpetrel.events.recurrent_training import Lesson

KIND: Final = "events-recurrent-forecast"
VALIDATION_SHARE: Final = 0.15
SMALLEST_LEVEL: Final = 0.02  # events per bucket: a kind never seen yet is expected to be this rare
FARTHEST_FACTOR: Final = 5.0  # natural logarithm of the largest factor on the slow level
FIRST_DISPERSION: Final = -1.2  # before softplus: .26, where learning begins
SMALLEST_DISPERSION: Final = 1e-3
FEWEST_BUCKETS: Final = 96
# Normal scores beyond count as this: one kind alone, as when a user's mistake holds a thousand jobs, is no outage.
ODDEST: Final = 5.0
MEMORY_HOURS: Final = (1.0, 3.0)  # short: what sees the last hours expects an outage after some of them
WIDE_DISPERSION: Final = 4.0  # of the distribution that outages are taken to come from
_JUDGED_AT_ONCE: Final = 2048


class RecurrentForecaster:
    """A network that forecasts the counts of the next bucket, and scores how far the truth was from it."""

    scaling_: Scaling
    weights_: dict[str, npt.NDArray[np.float32]]
    scale_: SurpriseScale
    history_: dict[str, list[float]]  # errors per epoch: train, judged

    def __init__(self, settings: ForecastSettings | None = None, *, seed: int | None = None) -> None:
        base = settings or ForecastSettings()
        self.settings = base if seed is None else replace(base, seed=seed)

    @property
    def history_buckets(self) -> int:
        """How many buckets before a bucket its score depends on: memory, sequence, what fills a gap in it, and slow level."""
        bucket_s = self.scaling_.bucket_s if hasattr(self, "scaling_") else HOUR_S
        remembered = self.scale_.history_buckets if hasattr(self, "scale_") else 0
        return remembered + 2 * self.settings.sequence + level_buckets(bucket_s)

    def fit(self, series: EventSeries, *, progress: Progress = no_progress, checkpoint: Path | None = None) -> Self:
        """Learn what calm operation looks like; gaps, maintenance and what is labelled as an outage teach nothing.

        With a checkpoint, a training that was stopped goes on where it was; the result is the same as without the stop.
        """
        need_torch()
        from stormpetrel.events.recurrent_training import Pace, train

        self.scaling_ = Scaling.of(series)
        settings = self.settings
        pace = Pace(settings.learning_rate, settings.batch, settings.max_epochs, settings.patience, settings.seed, settings.decay)
        self.weights_, history = train(self._lesson(series), pace, checkpoint=checkpoint, progress=progress)
        self.history_ = {"train": history.train, "judged": history.judged}
        scores = self._normal_scores(series, slow_level(series))
        calm = ~np.isnan(scores).any(axis=1) & (series.label != ANOMALY)
        self.scale_ = fit_surprise(scores, calm, series.bucket_s, MEMORY_HOURS)
        return self

    def forecast(self, series: EventSeries, *, since: int = 0) -> Forecast:
        """What each bucket was expected to hold, seen from the bucket before it; an announced maintenance is no surprise."""
        mine = self._fitting(series)
        mean, dispersion = self._moments(mine, slow_level(mine), since)
        low, high = calm_band(mean, dispersion)
        surprise = signed_surprise(mine.counts, mean, dispersion)
        surprise[(mine.label == MAINTENANCE)[:, None] & ~np.isnan(surprise)] = 0.0
        return Forecast(mine.kinds, mean, low, high, surprise)

    def score(self, series: EventSeries, *, since: int = 0) -> Scores:
        """(buckets,) −log10 of the share of calm buckets that are so odd; NaN at gaps, with too little before, before `since`."""
        mine = self._fitting(series)
        if not len(mine):
            return np.empty(0)
        level, first = slow_level(mine), max(0, since - self.scale_.history_buckets)
        odd = self._normal_scores(mine, level, first)[first:]  # what comes before is not remembered
        has_score = (self._is_ready(mine, level) & ~mine.is_gap & (np.arange(len(mine)) >= since))[first:]
        scores = np.full(len(mine), np.nan)
        scores[first:] = np.where(has_score, self.scale_.score(odd), np.nan)
        return scores

    def save(self, folder: Path) -> None:
        """Write the forecaster to a folder that does not exist yet, whole or not at all."""
        self._check_fitted()
        record = {
            "settings": self.settings.record(),
            "scaling": self.scaling_.record(),
            "scale": scale_record(self.scale_),
            "history": self.history_,
        }
        save_weights(folder, KIND, self.weights_, record)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read a forecaster, without torch; ModelFormatError says what is wrong with it."""
        record, weights = load_weights(folder, KIND)
        try:
            model = cls(ForecastSettings.of_record(record["settings"]))
            model.scaling_ = Scaling.of_record(record["scaling"])
            model.scale_ = scale_of_record(record["scale"], len(model.scaling_.kinds), model.scaling_.bucket_s)
            model.history_ = {name: [float(loss) for loss in record["history"][name]] for name in ("train", "judged")}
            check_weights(weights, model._sizes())
        except (ModelError, KeyError, TypeError, ValueError, OverflowError) as error:
            raise damaged(folder, error) from None
        model.weights_ = weights
        return model

    def _check_fitted(self) -> None:
        if not hasattr(self, "scale_"):
            raise ModelError("This forecaster has not been trained yet.", hint="Train it first: fit(series).")

    def _fitting(self, series: EventSeries) -> EventSeries:
        self._check_fitted()
        return self.scaling_.fitting(series)

    def _is_ready(self, series: EventSeries, level: Matrix) -> Mask:
        """(buckets,) those with enough before them."""
        full = np.arange(len(series)) >= self.settings.sequence
        return np.asarray(full & ~np.isnan(level).any(axis=1), dtype=np.bool_)

    def _moments(self, series: EventSeries, level: Matrix, since: int) -> tuple[Matrix, Matrix]:
        """(buckets, kinds) mean and dispersion of what was expected; NaN and 1 where there is too little before."""
        mean, dispersion = np.full(level.shape, np.nan), np.ones(level.shape)
        rows = np.flatnonzero(self._is_ready(series, level) & (np.arange(len(series)) >= since))
        if rows.size:
            columns = self.scaling_.changes(series, level, reach=self.settings.sequence)
            beside = columns[rows, -CALENDAR_WIDTH:]
            outputs = answers(self.weights_, columns, rows - 1, self.settings.sequence, beside)
            factor, spread = np.split(outputs, 2, axis=1)  # (buckets, kinds) each
            mean[rows] = (np.expm1(level[rows]) + SMALLEST_LEVEL) * np.exp(np.clip(factor, -FARTHEST_FACTOR, FARTHEST_FACTOR))
            dispersion[rows] = np.logaddexp(0.0, spread) + SMALLEST_DISPERSION
        return mean, dispersion

    def _normal_scores(self, series: EventSeries, level: Matrix, since: int = 0) -> Matrix:
        """(buckets, kinds) how odd each count is; NaN where it is unknown, or nobody expects it to be usual."""
        mean, dispersion = self._moments(series, level, since)
        counts = np.where(is_seen(series)[:, None], series.counts, np.nan)
        return np.clip(normal_scores(counts, mean, dispersion), -ODDEST, ODDEST)

    def _sizes(self) -> Sizes:
        width = self.scaling_.width + CALENDAR_WIDTH
        return Sizes(width, self.settings.hidden, 2 * len(self.scaling_.kinds), CALENDAR_WIDTH, self.settings.inner)

    def _lesson(self, series: EventSeries) -> Lesson:
        import torch

        from stormpetrel.events.recurrent_training import Lesson, make_network, task_of, windows_of

        settings, level = self.settings, slow_level(series)
        columns = self.scaling_.changes(series, level, reach=settings.sequence)
        beside = torch.from_numpy(calendar(series)).float()
        network = make_network(self._sizes(), dropout=settings.dropout, seed=settings.seed)
        with torch.no_grad():
            network.answer.weight.zero_()
            network.answer.bias.zero_()
            network.answer.bias[len(series.kinds) :] = FIRST_DISPERSION
        windows = windows_of(columns, settings.sequence)
        learnt, judged = _parted(series, self._is_ready(series, level))
        counts = torch.from_numpy(np.nan_to_num(series.counts))  # (buckets, kinds)
        levels = torch.from_numpy(np.nan_to_num(level))
        later = torch.from_numpy(np.flatnonzero(judged))
        rows_learnt = torch.from_numpy(np.flatnonzero(learnt))

        def loss(rows: Tensor) -> Tensor:
            outputs = network(windows(rows - 1), beside[rows]).double()  # (batch, 2 × kinds)
            return robust_loss(outputs, counts[rows], levels[rows], settings.contamination)

        def judge() -> float:
            parts = torch.split(later, _JUDGED_AT_ONCE)
            return float(sum(loss(rows) * len(rows) for rows in parts)) / len(later)

        def examples(generator: torch.Generator) -> Tensor:
            order = torch.randperm(len(rows_learnt), generator=generator)
            return rows_learnt[order][: settings.most_examples]

        task = task_of(settings.record(), columns, series.counts, series.label)
        return Lesson(network, loss, judge, examples, task)


def robust_loss(said: Tensor, counts: Tensor, level: Tensor, contamination: float) -> Tensor:
    """Minus the log likelihood of a bucket, on average; each count is calm, or with a small probability anything.

    Parameters
    ----------
    said
        (batch, 2 × kinds): logarithm of the factor on the level, and the dispersion before softplus.
    level
        (batch, kinds): slow level of log(1 + count).
    """
    import torch
    from torch.nn import functional

    factor, spread = said.chunk(2, dim=1)
    mean = (torch.expm1(level) + SMALLEST_LEVEL) * torch.exp(factor.clamp(-FARTHEST_FACTOR, FARTHEST_FACTOR))
    calm = _log_mass(counts, mean, functional.softplus(spread) + SMALLEST_DISPERSION)
    if not contamination:
        return -calm.sum(dim=1).mean()
    wide = _log_mass(counts, mean.detach(), torch.full_like(mean, WIDE_DISPERSION))
    both = torch.logaddexp(calm + np.log1p(-contamination), wide + np.log(contamination))
    return -both.sum(dim=1).mean()


def _log_mass(counts: Tensor, mean: Tensor, dispersion: Tensor) -> Tensor:
    import torch

    r = 1 / dispersion
    mass: Tensor = (
        torch.lgamma(counts + r) - torch.lgamma(r) - torch.lgamma(counts + 1)
        - r * torch.log1p(mean / r) - counts * torch.log1p(r / mean)
    )  # fmt: skip
    return mass


def _parted(series: EventSeries, ready: Mask) -> tuple[Mask, Mask]:
    """The buckets to learn from, and the later ones to stop by."""
    usable = is_seen(series) & (series.label != ANOMALY) & ready
    places = np.flatnonzero(usable)
    if len(places) < FEWEST_BUCKETS:
        raise ModelError(
            f"There are {len(places)} calm buckets with enough before them, and the forecaster needs {FEWEST_BUCKETS}.",
            hint="Collect some more days of events, or count them in shorter buckets (events.bucket_minutes).",
        )
    later = np.arange(len(series)) >= places[int((1 - VALIDATION_SHARE) * len(places))]
    return usable & ~later, usable & later
