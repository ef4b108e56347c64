"""Does background (queued jobs, slots, utilisation) make the alarm of the grid better? Writes results/events_background.json.

`python -m benchmarks.events_background [--seeds 10] [--first-seed 200] [--workers 1]`. The two statistical models as they are,
and in four forms that see the background of the simulated grid, on the same data sets as `events evaluate`; differences are
paired by seed, with the 90 % interval of their mean. The forms were built on seeds 100 to 107; the default seeds are others.

Each value is told as a logarithm, less its own mean of the last two weeks, in units of how it scatters in calm operation, cut off
at 4; a missing one is as usual (0).

| form | what the background does |
| --- | --- |
| beside | of this bucket and the one before, it says how many events of each kind to expect |
| before | the same, of the bucket before only |
| surprise | each value is forecast from its past and the events beside it; its surprises count as those of a kind do |
| labels | the same surprises, for what labelled outages teach only |
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.options import add_workers, engine_of
from stormpetrel.engine import Progress, no_progress
from stormpetrel.events.combined import Combined, _Lesson, features_of
from stormpetrel.events.contract import Scores
from stormpetrel.events.counts import forecast as forecasts
from stormpetrel.events.counts.forecast import CountForecaster, calm_for_training, fit_counts, one_thread
from stormpetrel.events.counts.memory import Memory, Truth, lagged, memory, seen_buckets, weighted_past
from stormpetrel.events.evaluation import Contestant, judge_contestant
from stormpetrel.events.surprise import fit_surprise, normal_scores
from stormpetrel.records.arrays import Floats
from stormpetrel.records.event_series import EventSeries
from stormpetrel.rehearse.event_study import simulated_dataset

RESULT = Path(__file__).parent / "results" / "events_background.json"
FORMS = ("beside", "before", "surprise", "labels")
FIGURES = ("pr_auc", "roc_auc", "recall_at_one_per_week")
CUT, RIDGE = 4.0, 40.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=200)
    add_workers(parser)
    given = parser.parse_args()
    seeds = range(given.first_seed, given.first_seed + given.seeds)
    runs: dict[str, dict[str, list[float]]] = {}
    for seed, found in zip(seeds, engine_of(given).map(judged, seeds, name=lambda seed: f"seed {seed}"), strict=True):
        for name, figures in found.items():
            for figure, value in figures.items():
                runs.setdefault(name, {}).setdefault(figure, []).append(value)
            print(seed, name, *(f"{figure} {value:.3f}" for figure, value in figures.items()), sep="  ", flush=True)
    rows = [_row(name, runs) for name in runs]
    for row in rows:
        print(row)
    RESULT.write_text(json.dumps({"first_seed": given.first_seed, "seeds": given.seeds, "rows": rows}, indent=1))


def judged(seed: int, _progress: Progress) -> dict[str, dict[str, float]]:
    """The figures of every model in every form, on the grid of one seed."""
    dataset, found = simulated_dataset(seed), {}
    for name, make in contestants().items():
        model = "combined" if name.startswith("combined") else "unsupervised"
        told = judge_contestant(dataset, Contestant(model, make)).figures
        assert told is not None
        found[name] = {figure: getattr(told, figure) or 0.0 for figure in FIGURES}
    return found


def contestants() -> dict[str, Callable[[int], Any]]:
    """Both models as they are, and in each form."""
    found: dict[str, Callable[[int], Any]] = {"unsupervised": lambda _: CountForecaster(), "combined": lambda _: Combined()}
    for form in FORMS:
        if form != "labels":
            found[f"unsupervised, {form}"] = _maker(Informed, form)
        found[f"combined, {form}"] = _maker(InformedCombined, form)
    return found


def _maker(model: Callable[[str], Any], form: str) -> Callable[[int], Any]:
    return lambda _seed: model(form)


def _row(name: str, runs: dict[str, dict[str, list[float]]]) -> dict[str, Any]:
    """Means over the seeds, and the mean differences to the same model without background with their 90 % intervals."""
    plain = name.partition(",")[0]
    row: dict[str, Any] = {"model": name}
    for figure in FIGURES:
        values, against = np.array(runs[name][figure]), np.array(runs[plain][figure])
        drawn = np.random.default_rng(0).integers(len(values), size=(2000, len(values)))
        low, high = np.quantile((values - against)[drawn].mean(axis=1), [0.05, 0.95])
        row[figure] = {"mean": round(float(values.mean()), 4), "difference": round(float((values - against).mean()), 4)}
        row[figure]["interval"] = [round(float(low), 4), round(float(high), 4)]
    return row


class Background:
    """The background of a series in units of its calm scatter, and how odd each value is."""

    def __init__(self, series: EventSeries) -> None:
        spread = np.nanstd(_relative(series)[calm_for_training(series)], axis=0)
        self.spread = np.where(np.isfinite(spread) & (spread > 1e-9), spread, 1.0)

    def of(self, series: EventSeries) -> Floats:
        """(buckets, names): 0 is as usual, and what is missing."""
        return np.asarray(np.clip(np.nan_to_num(_relative(series) / self.spread), -CUT, CUT), dtype=np.float64)

    def learn(self, series: EventSeries, past: Memory) -> None:
        """How each value follows from its past and from the events."""
        values, calm = self.of(series), calm_for_training(series) & past.ready
        self.learnt = []
        for place in range(values.shape[1]):
            design = _design(past, values, place)
            weights = np.linalg.solve(
                design[calm].T @ design[calm] + RIDGE * np.eye(design.shape[1]), design[calm].T @ values[calm, place]
            )
            left = values[calm, place] - design[calm] @ weights
            centre = float(np.median(left))
            self.learnt.append((weights, centre, 1.4826 * float(np.median(np.abs(left - centre))) + 1e-6))

    def oddness(self, series: EventSeries, past: Memory) -> Floats:
        """(buckets, names) robust scores; NaN where too little was seen before."""
        values = self.of(series)
        columns = [
            np.clip((values[:, place] - _design(past, values, place) @ weights - centre) / spread, -8.0, 8.0)
            for place, (weights, centre, spread) in enumerate(self.learnt)
        ]
        return np.where(past.ready[:, None], np.column_stack(columns), np.nan)


class Informed(CountForecaster):
    """The forecaster with background in one of its forms."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.form = form

    def _learn(self, series: EventSeries, calm: Truth, progress: Progress) -> None:
        self.background = Background(series)
        super()._learn(series, calm, progress)
        past = memory(series, self._rhythm)
        self.background.learn(series, past)
        rows = forecasts._some_rows(calm & past.ready)
        design = self._design(series)
        self.with_others_ = tuple(
            fit_counts(*design(past, kind, rows, self.ridge), series.counts[rows, kind], past.log_level[rows, kind])
            for kind in range(len(self.kinds_))
        )
        self.scale_ = fit_surprise(self._normal_scores(series, past, past.ready), calm & past.ready, series.bucket_s)

    def _normal_scores(self, series: EventSeries, past: Memory, wanted: Truth) -> Floats:
        if not hasattr(self.background, "learnt"):
            return super()._normal_scores(series, past, wanted)
        mean, dispersion = self._means(past, self.with_others_, self._design(series), wanted)
        counts = np.where(seen_buckets(series)[:, None], series.counts, np.nan)
        scores = normal_scores(counts, mean, dispersion)
        if self.form != "surprise":
            return scores
        return np.column_stack([scores, np.where(wanted[:, None], self.background.oddness(series, past), np.nan)])

    def _design(self, series: EventSeries) -> forecasts.Design:
        values = self.background.of(series)
        extra = {"beside": np.column_stack([values, lagged(values, 1)]), "before": lagged(values, 1)}
        return partial(_with, extra.get(self.form, np.empty((len(values), 0))))


class InformedCombined(Combined):
    """The combined alarm with background in one of its forms."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.form = form

    def fit(self, series: EventSeries, *, progress: Progress = no_progress) -> InformedCombined:
        """Learn the forecast, and what labels say of events and background."""
        self.base_ = CountForecaster().fit(series) if self.form == "labels" else Informed(self.form).fit(series)
        if self.form == "labels":
            self.background = Background(series)
            self.background.learn(series, memory(series, self.base_._rhythm))
        scores, oddness = self._told(series)
        lesson = _Lesson.of(series, scores, oddness)
        with one_thread():
            self.trust_, self.correction_ = lesson.trust(), lesson.learn(lesson.outages)
        return self

    def score(self, series: EventSeries, *, since: int = 0) -> Scores:
        """(buckets,) as the combined alarm scores."""
        scores, oddness = self._told(series)
        assert self.correction_ is not None
        return np.asarray(scores + self.trust_ * self.correction_.of(features_of(oddness, series.bucket_s)), dtype=np.float64)

    def _told(self, series: EventSeries) -> tuple[Scores, Floats]:
        scores, oddness = self.base_.score_and_oddness(series)
        if self.form != "labels":
            return scores, oddness
        return scores, np.column_stack([oddness, self.background.oddness(series, memory(series, self.base_._rhythm))])


def _relative(series: EventSeries) -> Floats:
    """(buckets, names): the logarithm of each value, less its mean of the last two weeks; NaN where it is not known."""
    size = np.sign(series.background) * np.log1p(np.abs(series.background))
    known, day = np.isfinite(size), series.buckets_per_day
    weight = weighted_past(known.astype(np.float64), 7 * day, 14 * day)
    usual = weighted_past(np.where(known, size, 0.0), 7 * day, 14 * day) / np.maximum(weight, 1e-9)
    return np.where(known & (weight >= max(3.0, day / 2)), size - usual, np.nan)


def _design(past: Memory, values: Floats, place: int) -> Floats:
    events = past.others.reshape(len(values), -1)  # (buckets, 2 × kinds)
    own = [lagged(values, lag)[:, [place]] for lag in (1, 24)]
    return np.column_stack([np.ones(len(values)), events, *own])


def _with(extra: Floats, past: Memory, kind: int, rows: forecasts.Rows, ridge: float) -> tuple[Floats, Floats]:
    columns, penalty = forecasts._design_with_others(past, kind, rows, ridge)
    return np.concatenate([columns, extra[rows]], axis=1), np.concatenate([penalty, np.full(extra.shape[1], ridge)])


if __name__ == "__main__":
    main()
