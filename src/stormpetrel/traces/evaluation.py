"""Evaluation: Table 2 of the published study for ensembles of autoencoders, beside two baselines.

scorers by architecture, training and test windows -> TraceEvaluation -> JSON. Windows in which a thread changed hands are scored
(they are somebody's neighbours) and left out of every figure.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from stormpetrel.engine import Progress
from stormpetrel.errors import ModelError
from stormpetrel.learn.metrics import roc_auc, scores_at
from stormpetrel.records.arrays import Floats
from stormpetrel.records.traces import MIXED_JOB, UNKNOWN
from stormpetrel.records.windows import Windows
from stormpetrel.traces.baselines import RawPca, chosen_threshold, mean_iowait
from stormpetrel.traces.networks.architecture import Architecture, Scorer
from stormpetrel.traces.separability import SUBSETS, MeanStd, silhouette

SAMPLE: Final = 200  # errors per architecture and job type that a figure shows
QUANTILES: Final = (0.05, 0.25, 0.5, 0.75, 0.95)
FIGURES: Final = ("re_normal", "re_anomalous", "silhouette", "roc_auc")
_MEAN_IOWAIT, _PCA = "mean_iowait", "pca"

# Table 2 of the published study (EPJ Web of Conferences 337, 01120): ensembles of ten.
PUBLISHED: Final[Mapping[Architecture, Mapping[str, MeanStd]]] = {
    Architecture.VANILLA: {
        "re_normal": MeanStd(0.0064, 0.0002, 10), "re_anomalous": MeanStd(0.3543, 0.0434, 10),
        "silhouette": MeanStd(0.7503, 0.0207, 10),
    },
    Architecture.NODE_GNN: {
        "re_normal": MeanStd(0.0122, 0.0033, 10), "re_anomalous": MeanStd(0.3642, 0.0065, 10),
        "silhouette": MeanStd(0.6849, 0.0373, 10),
    },
    Architecture.JOB_GNN: {
        "re_normal": MeanStd(0.0069, 0.0003, 10), "re_anomalous": MeanStd(0.3733, 0.0151, 10),
        "silhouette": MeanStd(0.6694, 0.0232, 10),
    },
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ModelFigures:
    """The figures of one architecture; None where the test windows cannot tell."""

    models: int
    re_normal: MeanStd | None
    re_anomalous: MeanStd | None
    silhouette: MeanStd | None
    roc_auc: MeanStd | None
    by_job_type: Mapping[str, ErrorSpread] = field(default_factory=dict)
    per_run: Mapping[str, MeanStd] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ErrorSpread:
    """How the errors of one job type lie, over all models of an ensemble; `sample` is for drawing."""

    windows: int
    mean: float
    quantiles: tuple[float, ...]
    sample: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class TraceEvaluation:
    """What was measured, and why what was not was not."""

    models: Mapping[Architecture, ModelFigures]
    baselines: Mapping[str, Mapping[str, float | None]]
    why: Mapping[Architecture, str]
    test_windows: int
    mixed_windows: int


def why_not(architecture: Architecture, *parts: Windows) -> str:
    """Why an architecture cannot be trained and judged on these windows; empty where it can."""
    if architecture is Architecture.JOB_GNN and any((part.job < 0).all() for part in parts):
        return "No thread is known to belong to a job: without jobs the Job-GNN is the vanilla autoencoder."
    return ""


def evaluate(
    scorers: Mapping[Architecture, Sequence[Scorer]],
    train: Windows,
    test: Windows,
    *,
    seed: int = 0,
    why: Mapping[Architecture, str] | None = None,
    progress: Progress = lambda _share, _words: None,
) -> TraceEvaluation:
    """Judge ensembles and baselines on the same test windows; what the baselines learn comes from training windows.

    `why` says of architectures that are not among the scorers why they are not.
    """
    judged = _Judged(test, seed)
    if not judged.normal.any():
        raise ModelError("No test window is normal: there is nothing to measure a reconstruction error on.")
    models = {}
    total, done = sum(map(len, scorers.values())), 0
    for architecture, ensemble in scorers.items():
        runs = []
        for scorer in ensemble:
            progress(done / max(1, total), f"judging {architecture}")
            runs.append(judged.run(scorer))
            done += 1
        if runs:
            models[architecture] = judged.together(runs)
    progress(1.0, "judging the baselines")
    embedding = max((scorer.settings.embedding for ensemble in scorers.values() for scorer in ensemble), default=16)
    return TraceEvaluation(
        models, judged.baselines(train, embedding), dict(why or {}), len(test), int((test.job == MIXED_JOB).sum())
    )


def windows_per_second(scorer: Scorer, windows: Windows, *, at_least_s: float = 1.0) -> float:
    """Windows that a scorer scores in one second of one core: by CPU time, so that others on the machine do not count.

    The scorer must use one thread.
    """
    some = windows.take(slice(0, 4096))
    scorer.score(some)  # warm
    done, began = 0, time.process_time()
    while time.process_time() - began < at_least_s:
        scorer.score(some)
        done += len(some)
    return done / (time.process_time() - began)


@dataclass(frozen=True, slots=True)
class _OneModel:
    """What one model says of the test windows."""

    scores: Floats
    silhouette: float | None


class _Judged:
    """The test windows with what is true of them."""

    def __init__(self, test: Windows, seed: int) -> None:
        self.test = test
        self.seed = seed
        self.types = test.job_types()
        self.counted = test.job != MIXED_JOB
        self.anomalous = test.is_anomalous() & self.counted
        self.normal = ~test.is_anomalous() & self.counted
        self.typed = self.counted & (self.types != UNKNOWN)

    def run(self, scorer: Scorer) -> _OneModel:
        return _OneModel(np.asarray(scorer.score(self.test), dtype=np.float64), self.separability(scorer.embed(self.test)))

    def separability(self, embeddings: npt.NDArray[np.float32]) -> float | None:
        """Mean silhouette over random subsets, by job type; None where fewer than two types are known."""
        types = self.types[self.typed]
        if np.unique(types).size < 2:
            return None
        runs = silhouette(embeddings[self.typed], types, subsets=SUBSETS, seed=self.seed)
        return runs.mean if runs.n else None

    def together(self, runs: Sequence[_OneModel]) -> ModelFigures:
        """The figures of an ensemble."""
        scores = np.stack([run.scores for run in runs])  # (models, windows)
        return ModelFigures(
            models=len(runs),
            re_normal=MeanStd.of(scores[:, self.normal].mean(axis=1)),
            re_anomalous=MeanStd.of(scores[:, self.anomalous].mean(axis=1)) if self.anomalous.any() else None,
            silhouette=_spread([run.silhouette for run in runs]),
            roc_auc=_spread([self.area(run.scores) for run in runs]),
            by_job_type=self.by_job_type(scores),
            per_run=self.per_run(scores),
        )

    def area(self, scores: Floats) -> float | None:
        """How well scores tell anomalous windows from normal ones."""
        return roc_auc(self.anomalous[self.counted], scores[self.counted])

    def by_job_type(self, scores: Floats) -> dict[str, ErrorSpread]:
        rng = np.random.default_rng(self.seed)
        runs = {}
        for job_type in np.unique(self.types[self.counted]):
            errors = scores[:, self.counted & (self.types == job_type)].ravel()
            sample = rng.choice(errors, min(SAMPLE, errors.size), replace=False)
            quantiles = tuple(float(value) for value in np.quantile(errors, QUANTILES))
            windows = errors.size // len(scores)
            runs[str(job_type)] = ErrorSpread(windows, float(errors.mean()), quantiles, tuple(map(float, np.sort(sample))))
        return runs

    def per_run(self, scores: Floats) -> dict[str, MeanStd]:
        """The error on normal windows of each test campaign or run."""
        rows = {name: self.normal & (self.test.trace == place) for place, name in enumerate(self.test.traces)}
        return {name: MeanStd.of(scores[:, those].mean(axis=1)) for name, those in rows.items() if those.any()}

    def baselines(self, train: Windows, embedding: int) -> dict[str, dict[str, float | None]]:
        return {_MEAN_IOWAIT: self._mean_iowait(train), _PCA: self._pca(train, embedding)}

    def _mean_iowait(self, train: Windows) -> dict[str, float | None]:
        known = train.job != MIXED_JOB
        threshold = chosen_threshold(mean_iowait(train)[known], train.is_anomalous()[known])
        scores = mean_iowait(self.test)
        precision, recall, f1 = scores_at(self.anomalous[self.counted], scores[self.counted], threshold)
        some = bool(self.anomalous.any())
        return {
            "roc_auc": self.area(scores),
            "threshold": threshold,
            "precision": precision if some else None,
            "recall": recall if some else None,
            "f1": f1 if some else None,
            "false_alarm_share": float((scores[self.normal] >= threshold).mean()),
        }

    def _pca(self, train: Windows, embedding: int) -> dict[str, float | None]:
        pca = RawPca.fit(train.of_normal(), embedding)
        scores = pca.score(self.test)
        return {
            "components": embedding,
            "re_normal": float(scores[self.normal].mean()),
            "re_anomalous": float(scores[self.anomalous].mean()) if self.anomalous.any() else None,
            "silhouette": self.separability(pca.embed(self.test)),
            "roc_auc": self.area(scores),
        }


def _spread(values: Sequence[float | None]) -> MeanStd | None:
    known = [value for value in values if value is not None]
    return MeanStd.of(known) if known else None
