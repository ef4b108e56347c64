"""Whether a network that reads a user's past jobs one by one beats the trees, or adds to them; writes results/jobs_sequence.json.

STORMPETREL_DATA=… python -m benchmarks.jobs_sequence [--only kth,theta,supercloud,mira,…] [--seeds 2]

Splits, judged jobs, rules and metrics of `jobs evaluate FILE --at submit --protocol time`, beside these networks
(`outcome_network`, over the events of `past_events`):

- `gru`: the user's past events, the request and the calendar; none of the features of the trees that hold history.
- `attention`: the same, the events weighted by one layer of attention in place of a recurrent network.
- `gru_features`: `gru` with all features of the trees.
- `features_network`: all features of the trees without the events: what a second kind of model gives, and no sequence.

`trees_and_…` is the mean of both log-odds, its weight by log loss on out-of-time forecasts inside the training part, as the
thresholds are. `trees_and_xgboost` and `trees_and_features_network` are controls: a gain of theirs is not one of sequences. The
networks were chosen inside the training parts of KTH and Theta (docs/log.md); the other logs were judged once. They learn from
the latest 30,000 jobs of a training part, the trees from all. Of Curie only the latest 40,000 jobs are taken. Gains have the
spread of the seeds, and the interval in which 90 of 100 lie when the days of the judged part are resampled.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray

from benchmarks.jobs_recalibration import LOGS
from benchmarks.outcome_network import NetworkSettings, fit_network
from benchmarks.past_events import PastEvents
from stormpetrel.jobs.exam.baselines import BASELINES
from stormpetrel.jobs.exam.evaluation import PROFILE_SHARE
from stormpetrel.jobs.features import group_of
from stormpetrel.jobs.model import FEWEST_OF_A_CLASS
from stormpetrel.jobs.moments import Moment
from stormpetrel.jobs.prior.first_days import log_loss
from stormpetrel.jobs.training import LabelledJobs, TrainingSettings, fit_risk_at, label_jobs
from stormpetrel.learn.metrics import best_f1_threshold, judge, pr_auc, roc_auc
from stormpetrel.learn.splits import INNER_CUTS, TIME_CUT, Split, splits_at
from stormpetrel.records.arrays import Floats
from stormpetrel.simulate.cluster import simulate
from stormpetrel.simulate.spec import ClusterSpec
from stormpetrel.sources.formats import ReadOptions
from stormpetrel.sources.reading import read_log

Mask = NDArray[np.bool_]
Forecast = Callable[[Mask, Mask], Floats]  # training rows, rows to forecast -> risks

RESULT: Final = Path(__file__).parent / "results" / "jobs_sequence.json"
SIMULATED: Final = {f"simulated_{seed}": ClusterSpec(days=60, nodes=16, seed=seed) for seed in (401, 402)}
MOST_JOBS: Final = 40_000  # of a log: the latest ones; Curie alone has more
NETWORKS: Final = {
    "gru": NetworkSettings(),
    "attention": NetworkSettings(past="attention"),
    "gru_features": NetworkSettings(),
    "features_network": NetworkSettings(past="none"),
}
WITH_FEATURES: Final = ("gru_features", "features_network")
BLENDED: Final = (*NETWORKS, "xgboost")
WEIGHTS: Final = tuple(tenth / 10 for tenth in range(11))
FIGURES: Final = ("roc_auc", "pr_auc", "f1", "log_loss", "ece")
RESAMPLED: Final = 200
_CLOSEST: Final = 1e-4  # to 0 and 1, of a risk that is blended


@dataclass(frozen=True)
class Risks:
    """What one forecaster said of the slices inside the training part, and of the judged jobs."""

    inner: Floats
    judged: Floats

    def blended(self, other: Risks, weight: float) -> Risks:
        """The mean of both log-odds; `weight` is the other's."""

        def mean(own: Floats, others: Floats) -> Floats:
            risk: Floats = 1.0 / (1.0 + np.exp(-((1.0 - weight) * _log_odds(own) + weight * _log_odds(others))))
            return risk

        return Risks(mean(self.inner, other.inner), mean(self.judged, other.judged))


@dataclass(frozen=True)
class Study:
    """One log made ready: labels, features and events, and the cut."""

    labelled: LabelledJobs
    settings: TrainingSettings
    events: NDArray[np.float16]
    split: Split
    inner: list[Split]

    @classmethod
    def of(cls, jobs: pl.DataFrame, settings: TrainingSettings) -> Study:
        """The same labels, features and cut as `jobs evaluate --at submit --protocol time`."""
        labelled = label_jobs(jobs, settings, [Moment.SUBMIT], profiles_from=PROFILE_SHARE)
        past = PastEvents.of(labelled.jobs, settings)
        (split,) = splits_at((TIME_CUT,), labelled.submit, labelled.end, labelled.usable)
        slices = splits_at(INNER_CUTS, labelled.submit, labelled.end, split.train)
        inner = [part for part in slices if _both_outcomes(labelled.failed[part.train])]
        return cls(labelled, settings, past.numbers(past.visible()), split, inner)

    def truth(self) -> tuple[Mask, Mask]:
        """Outcomes of the slices inside the training part, and of the judged jobs."""
        failed = self.labelled.failed
        return np.concatenate([failed[part.test] for part in self.inner]), failed[self.split.test]

    def risks(self, forecast: Forecast) -> Risks:
        """What was forecast of both, each slice by what was known before it."""
        inner = [forecast(part.train, part.test) for part in self.inner]
        return Risks(np.concatenate(inner), forecast(self.split.train, self.split.test))

    def forecasts(self, seed: int) -> dict[str, Forecast]:
        """Every forecaster that has a seed, by its name."""
        return {
            "trees": partial(self._trees, seed),
            **{name: partial(self.network, name, replace(each, seed=seed)) for name, each in NETWORKS.items()},
        }

    def rules(self) -> dict[str, Forecast]:
        """The rules of `jobs evaluate`, untuned XGBoost among them."""
        return {name: partial(self._baseline, name) for name in BASELINES}

    def network(self, name: str, settings: NetworkSettings, train: Mask, test: Mask) -> Floats:
        """Risks by a network of these settings; without `…features` it sees none of the trees' features of history."""
        features = self.labelled.features[Moment.SUBMIT]
        own = np.array([name in WITH_FEATURES or group_of(feature) in ("request", "calendar") for feature in features.names])
        values = features.values[:, own]
        risk = fit_network(self.events[train], values[train], self.labelled.failed[train], settings)
        return risk(self.events[test], values[test])

    def _trees(self, seed: int, train: Mask, test: Mask) -> Floats:
        model = fit_risk_at(self.labelled, Moment.SUBMIT, train, replace(self.settings, seed=seed))
        return model.risk(self.labelled.features[Moment.SUBMIT].rows(test)).astype(np.float64)

    def _baseline(self, name: str, train: Mask, test: Mask) -> Floats:
        features = self.labelled.features[Moment.SUBMIT]
        return BASELINES[name](features.rows(train), self.labelled.failed[train], features.rows(test))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join((*LOGS, *SIMULATED)), help="logs, separated by commas")
    parser.add_argument("--seeds", type=int, default=2, help="of trees and networks")
    given = parser.parse_args()
    torch.set_num_threads(1)
    results: dict[str, Any] = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    for name in given.only.split(","):
        began = time.process_time()
        results[name] = measure(Study.of(*jobs_of(name)), given.seeds)
        results[name]["cpu_s"] = round(time.process_time() - began)
        RESULT.write_text(json.dumps(results, indent=1) + "\n")
        show(name, results[name])


def jobs_of(name: str) -> tuple[pl.DataFrame, TrainingSettings]:
    """The jobs of a public log or of a simulated site, and what counts as a failure there."""
    if name in SIMULATED:
        return pl.concat(simulate(SIMULATED[name])), TrainingSettings()
    log = LOGS[name]
    jobs = read_log([str(Path(os.environ["STORMPETREL_DATA"]) / log.file)], log.format_name, ReadOptions()).jobs
    jobs = jobs if log.since is None else jobs.filter(pl.col("submit_time") >= log.since)
    return jobs.sort("submit_time", maintain_order=True).tail(MOST_JOBS), log.settings


def measure(study: Study, seeds: int) -> dict[str, Any]:
    """Figures of every forecaster and blend, mean and spread over the seeds, and what the blends gain over the trees."""
    before, truth = study.truth()
    figures: dict[str, list[dict[str, float]]] = {}
    weights: dict[str, list[float]] = {name: [] for name in BLENDED}
    judged: list[dict[str, Floats]] = []
    rules = {name: study.risks(forecast) for name, forecast in study.rules().items()}
    for seed in range(seeds):
        risks = {**{name: study.risks(forecast) for name, forecast in study.forecasts(seed).items()}, **rules}
        for name in BLENDED:
            weight = best_weight(before, risks["trees"], risks[name])
            weights[name].append(weight)
            risks[f"trees_and_{name}"] = risks["trees"].blended(risks[name], weight)
        for name, risk in risks.items():
            figures.setdefault(name, []).append(figures_of(truth, risk.judged, best_f1_threshold(before, risk.inner)))
        judged.append({name: risk.judged for name, risk in risks.items()})
    day = (study.labelled.submit[study.split.test] // 86_400).astype(np.int64)
    names = [f"trees_and_{name}" for name in BLENDED]
    return {
        "jobs": study.labelled.jobs.height,
        "trained_on": int(study.split.train.sum()),
        "judged": int(truth.size),
        "failed_share": float(truth.mean()),
        "notes": list(study.labelled.notes),
        "figures": {name: _over_seeds(several) for name, several in figures.items()},
        "weights": weights,
        "gains": {name: gain(figures[name], figures["trees"], interval(truth, day, judged, name)) for name in names},
    }


def best_weight(truth: Mask, trees: Risks, other: Risks) -> float:
    """The weight of the other with the lowest log loss inside the training part; the smallest of equals."""
    losses = [log_loss(truth, trees.blended(other, weight).inner) for weight in WEIGHTS]
    return WEIGHTS[int(np.argmin(losses))]


def figures_of(truth: Mask, risk: Floats, threshold: float) -> dict[str, float]:
    """All figures of one forecast, its threshold chosen elsewhere."""
    found = judge(truth, risk, threshold=threshold, n_train=0).as_dict()
    return {**{name: float(found[name] or 0.0) for name in FIGURES if name != "log_loss"}, "log_loss": log_loss(truth, risk)}


def gain(blend: list[dict[str, float]], trees: list[dict[str, float]], intervals: Mapping[str, Any]) -> dict[str, Any]:
    """Blend less trees, seed by seed."""
    differences = [{name: one[name] - other[name] for name in FIGURES} for one, other in zip(blend, trees, strict=True)]
    return {name: {**figure, **intervals.get(name, {})} for name, figure in _over_seeds(differences).items()}


def interval(truth: Mask, day: NDArray[np.int64], judged: list[dict[str, Floats]], name: str) -> dict[str, dict[str, float]]:
    """Where 90 of 100 gains lie, of the mean over the seeds, when the days of the judged part are drawn again."""
    rng = np.random.default_rng(0)
    of_day = [np.flatnonzero(day == each) for each in np.unique(day)]
    gains: dict[str, list[float]] = {"roc_auc": [], "pr_auc": []}
    for _ in range(RESAMPLED):
        rows = np.concatenate([of_day[draw] for draw in rng.integers(len(of_day), size=len(of_day))])
        for figure, area in (("roc_auc", roc_auc), ("pr_auc", pr_auc)):
            found = [(area(truth[rows], risks[name][rows]), area(truth[rows], risks["trees"][rows])) for risks in judged]
            gains[figure].append(float(np.mean([(one or 0.0) - (other or 0.0) for one, other in found])))
    return {
        figure: dict(zip(("low", "high"), np.quantile(values, (0.05, 0.95)), strict=True)) for figure, values in gains.items()
    }


def show(name: str, found: dict[str, Any]) -> None:
    head = (
        f"{found['judged']:,} judged, {found['failed_share']:.1%} failed, {found['cpu_s']} s of CPU, weights {found['weights']}"
    )
    print(f"{name}: {head}")
    print(f"  {'':<28}" + "".join(f"{figure:>10}" for figure in FIGURES))
    for who, figures in found["figures"].items():
        print(f"  {who:<28}" + "".join(f"{figures[figure]['mean']:10.4f}" for figure in FIGURES))
    for who, gains in found["gains"].items():
        area = gains["pr_auc"]
        print(
            f"  PR gain of {who:<28}{area['mean']:+.4f} ± {area['std']:.4f} ({area['low']:+.4f} to {area['high']:+.4f})",
            flush=True,
        )


def _over_seeds(several: list[dict[str, float]]) -> dict[str, dict[str, float]]:
    return {
        name: {"mean": float(np.mean([one[name] for one in several])), "std": float(np.std([one[name] for one in several]))}
        for name in FIGURES
    }


def _log_odds(risk: Floats) -> Floats:
    inside = np.clip(risk, _CLOSEST, 1.0 - _CLOSEST)
    odds: Floats = np.log(inside / (1.0 - inside))
    return odds


def _both_outcomes(failed: Mask) -> bool:
    return min(int(failed.sum()), int((~failed).sum())) >= FEWEST_OF_A_CLASS


if __name__ == "__main__":
    main()
