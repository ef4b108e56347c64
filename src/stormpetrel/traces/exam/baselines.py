"""What the detector must beat: rules and density estimates of the literature, each a score per thread or per node window.

calm training windows -> fitted_baselines -> baselines; Baseline.score(windows) -> scores. Scores of threads become a node's
score as the mean of its highest quarter, the same for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from stormpetrel.records.arrays import Floats
from stormpetrel.records.traces import IOWAIT, MODES
from stormpetrel.traces.detector.distance import Distance
from stormpetrel.traces.detector.normal_scores import NormalScores
from stormpetrel.traces.detector.reconstruction import Reconstruction
from stormpetrel.traces.detector.statistics import MOVEMENT_COLUMNS, THREAD_COLUMNS, movement, over_threads

Rates = npt.NDArray[np.floating[Any]]

COMPONENTS: Final = 16
_SIMPLE: Final = ("mean", "std", "min", "max", "step", "largest_step")
_COLUMNS: Final = [THREAD_COLUMNS.index(f"{mode}_{name}") for mode in MODES for name in _SIMPLE]
_STILL: Final = THREAD_COLUMNS.index("longest_still")
_MOST_LEARNT: Final = 6_000
_NEIGHBOURS: Final = 5
_CLUSTERS: Final = 20
_ROUNDS: Final = 15
_LAYERS: Final = (64, 32, 64)  # of the autoencoder
_EPOCHS: Final = 50
_FEWEST_TO_STOP: Final = 200  # windows, of which a tenth tells when to stop
_FLOOR: Final = 1e-2  # under each variance
_AT_ONCE: Final = 2_048


@dataclass(frozen=True, slots=True, eq=False)
class WindowsOfNodes:
    """Thread windows with the node group of each, and their statistics."""

    rates: Rates  # (windows, steps, 4)
    statistics: Floats  # (windows, statistics)
    node: npt.NDArray[np.intp]  # (windows,)
    nodes: int


@dataclass(frozen=True, slots=True, eq=False)
class Baseline:
    """A name and a score: of each window, or where `per_node` of each node group."""

    name: str
    score: Callable[[WindowsOfNodes], Floats]
    per_node: bool = False


def fitted_baselines(train: WindowsOfNodes, seed: int, names: Collection[str] | None = None) -> list[Baseline]:
    """The baselines of some names, or all of them, fitted on calm windows."""
    rng = np.random.default_rng(seed)
    rows = np.sort(rng.choice(len(train.rates), min(len(train.rates), _MOST_LEARNT), replace=False))
    rates, statistics = train.rates[rows], train.statistics[rows][:, _COLUMNS]
    fits: dict[str, Callable[[], Baseline]] = {
        "iowait": _iowait,
        "pca": lambda: _pca(rates, rng),
        "pca_statistics": lambda: _pca_statistics(statistics),
        "mahalanobis": lambda: _mahalanobis(statistics),
        "node_mahalanobis": lambda: _node_mahalanobis(train),
        "ecod": lambda: _ecod(statistics),
        "knn": lambda: _knn(rates, rng),
        "kmeans": lambda: _kmeans(rates, np.random.default_rng([seed, 3])),
        "iforest": lambda: _isolation_forest(statistics, seed),
        "autoencoder": lambda: _autoencoder(rates, seed),
    }
    if find_spec("sklearn") is None:
        del fits["iforest"], fits["autoencoder"]
    return [fit() for name, fit in fits.items() if names is None or name in names]


def _iowait() -> Baseline:
    return Baseline("iowait", lambda windows: np.asarray(windows.rates[:, :, IOWAIT].mean(axis=1), dtype=np.float64))


def _pca(rates: Rates, rng: np.random.Generator) -> Baseline:
    lines = Reconstruction.fit(rates, COMPONENTS, rng)
    return Baseline("pca", lambda windows: lines.log_error(windows.rates))


def _pca_statistics(statistics: Floats) -> Baseline:
    """The residual of window statistics outside the directions that hold nine tenths of their variance."""
    mean, spread = statistics.mean(axis=0), statistics.std(axis=0) + 1e-6
    power, axes = np.linalg.eigh(np.cov((statistics - mean) / spread, rowvar=False))
    order = np.argsort(-power)
    kept = axes[:, order[: int(np.searchsorted(np.cumsum(power[order]), 0.9 * power.sum())) + 1]]

    def score(windows: WindowsOfNodes) -> Floats:
        scaled = (windows.statistics[:, _COLUMNS] - mean) / spread
        return np.asarray(((scaled - scaled @ kept @ kept.T) ** 2).sum(axis=1))

    return Baseline("pca_statistics", score)


def _mahalanobis(statistics: Floats) -> Baseline:
    distance = Distance.fit(statistics / (statistics.std(axis=0) + 1e-6), shrinkage=0.05, floor=_FLOOR)
    spread = statistics.std(axis=0) + 1e-6
    return Baseline("mahalanobis", lambda windows: distance.log_distance(windows.statistics[:, _COLUMNS] / spread))


def _node_mahalanobis(train: WindowsOfNodes) -> Baseline:
    """Mahalanobis on quantile-normalised node statistics."""

    def features(windows: WindowsOfNodes) -> Floats:
        over = over_threads(windows.statistics[:, _COLUMNS], windows.node, windows.nodes)
        still = over_threads((windows.statistics[:, [_STILL]] > 0.5).astype(np.float64), windows.node, windows.nodes)[:, :1]
        moves = movement(windows.rates, windows.node, windows.nodes)
        kept = [place for place, name in enumerate(MOVEMENT_COLUMNS) if not name.endswith("together")]
        return np.concatenate([over, moves[:, kept], still], axis=1)

    calm = features(train)
    scores = NormalScores.fit(calm, least_spread=1e-3)
    distance = Distance.fit(scores.transform(calm), shrinkage=0.1, floor=_FLOOR)
    return Baseline("node_mahalanobis", lambda windows: distance.log_distance(scores.transform(features(windows))), per_node=True)


def _ecod(statistics: Floats) -> Baseline:
    """Empirical cumulative distributions: how far out each statistic lies on its longer tail, and on either, summed."""
    ordered = np.sort(statistics, axis=0)
    skewed = ((statistics - statistics.mean(axis=0)) ** 3).mean(axis=0) > 0

    def score(windows: WindowsOfNodes) -> Floats:
        values = windows.statistics[:, _COLUMNS]
        left, right = np.empty(values.shape), np.empty(values.shape)
        for column in range(values.shape[1]):
            left[:, column] = np.searchsorted(ordered[:, column], values[:, column], "right")
            right[:, column] = len(ordered) - np.searchsorted(ordered[:, column], values[:, column], "left")
        low, high = (-np.log(np.maximum(side, 0.5) / len(ordered)) for side in (left, right))
        return np.asarray(np.maximum.reduce([low.sum(axis=1), high.sum(axis=1), np.where(skewed, high, low).sum(axis=1)]))

    return Baseline("ecod", score)


def _knn(rates: Rates, rng: np.random.Generator) -> Baseline:
    """The distance to the fifth nearest calm window in the space of principal components."""
    lines = Reconstruction.fit(rates, COMPONENTS, rng)
    calm = _placed(lines, rates).astype(np.float32)
    length = (calm**2).sum(axis=1)

    def score(windows: WindowsOfNodes) -> Floats:
        result = np.empty(len(windows.rates))
        for at in range(0, len(result), _AT_ONCE):
            points = _placed(lines, windows.rates[at : at + _AT_ONCE]).astype(np.float32)
            apart = length - 2 * points @ calm.T  # less the length of the point itself, the same for all
            nearest = np.partition(apart, _NEIGHBOURS - 1, axis=1)[:, _NEIGHBOURS - 1]
            result[at : at + _AT_ONCE] = nearest + (points**2).sum(axis=1)
        return result

    return Baseline("knn", score)


def _kmeans(rates: Rates, rng: np.random.Generator) -> Baseline:
    """KMeansAD of the benchmark literature: the distance of a window to the nearest of twenty centres of calm windows."""
    calm = _flat(rates)
    centres = calm[rng.choice(len(calm), min(_CLUSTERS, len(calm)), replace=False)]
    for _ in range(_ROUNDS):
        nearest = _apart(calm, centres).argmin(axis=1)
        filled = np.unique(nearest)
        centres = np.stack([calm[nearest == number].mean(axis=0) for number in filled])
    return Baseline("kmeans", lambda windows: np.asarray(_apart(_flat(windows.rates), centres).min(axis=1), dtype=np.float64))


def _apart(points: npt.NDArray[np.float32], centres: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """The squared distance of each point to each centre."""
    length = (points**2).sum(axis=1)[:, None] + (centres**2).sum(axis=1)
    return np.asarray(np.maximum(length - 2 * points @ centres.T, 0.0))


def _flat(rates: Rates) -> npt.NDArray[np.float32]:
    return np.asarray(rates[:, :, :3], dtype=np.float32).reshape(len(rates), -1)


def _placed(lines: Reconstruction, rates: Rates) -> Floats:
    return np.asarray((rates[:, :, :3].reshape(len(rates), -1) - lines.mean) @ lines.axes.T)


def _isolation_forest(statistics: Floats, seed: int) -> Baseline:
    from sklearn.ensemble import IsolationForest

    forest = IsolationForest(n_estimators=100, random_state=seed).fit(statistics)
    return Baseline("iforest", lambda windows: -np.asarray(forest.score_samples(windows.statistics[:, _COLUMNS])))


def _autoencoder(rates: Rates, seed: int) -> Baseline:
    """AutoEncoder of the benchmark literature: the error of a small network that gives standardised windows back."""
    import warnings

    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPRegressor

    calm = _flat(rates)
    mean, spread = calm.mean(axis=0), calm.std(axis=0) + 1e-3
    network = MLPRegressor(
        hidden_layer_sizes=_LAYERS, max_iter=_EPOCHS, early_stopping=len(calm) >= _FEWEST_TO_STOP, random_state=seed
    )
    with warnings.catch_warnings():  # it stops after so many epochs, converged or not
        warnings.simplefilter("ignore", ConvergenceWarning)
        network.fit((calm - mean) / spread, (calm - mean) / spread)

    def score(windows: WindowsOfNodes) -> Floats:
        scaled = (_flat(windows.rates) - mean) / spread
        return np.asarray(((network.predict(scaled) - scaled) ** 2).mean(axis=1), dtype=np.float64)

    return Baseline("autoencoder", score)
