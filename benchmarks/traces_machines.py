"""The learned summary on metrics that are no CPU traces: the Server Machine Dataset, VUS-PR per machine, beside PCA.

STORMPETREL_DATA=… python -m benchmarks.traces_machines -> benchmarks/results/traces_machines.json

Each machine learns from its own `train` and is judged on its `test`. PCA: reconstruction error of single samples, ten components,
as they are and standardised, each also with the same smoothing as ours. Lags, smoothing and the number of measurements in a score
were chosen once, looking at these six machines: there are no others to keep aside.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.vus import vus_pr
from stormpetrel.traces.hierarchy import SMALLEST_SPREAD, LearnedSummary

LAGS: Final = 8  # samples that `lagged` takes into account
SMOOTHING: Final = 16  # samples

RESULTS = Path(__file__).parent / "results" / "traces_machines.json"
COMPONENTS = 10
Floats = NDArray[np.float64]


def summary_score(train: Floats, test: Floats) -> Floats:
    """Ours."""
    return smoothed(LearnedSummary.fit(lagged(train)).score(lagged(test)))


def pca_score(train: Floats, test: Floats) -> Floats:
    """What ten principal components leave of each sample."""
    mean = train.mean(axis=0)
    _, _, axes = np.linalg.svd(train - mean, full_matrices=False)
    kept = axes[:COMPONENTS]
    rest = (test - mean) - (test - mean) @ kept.T @ kept
    return np.asarray((rest**2).sum(axis=1))


def standardised(train: Floats, test: Floats) -> tuple[Floats, Floats]:
    """Both in units of the training's spread."""
    mean, spread = train.mean(axis=0), np.maximum(train.std(axis=0), SMALLEST_SPREAD)
    return (train - mean) / spread, (test - mean) / spread


SCORERS: dict[str, Callable[[Floats, Floats], Floats]] = {
    "summary": summary_score,
    "pca": pca_score,
    "pca_standardised": lambda train, test: pca_score(*standardised(train, test)),
    "pca_smoothed": lambda train, test: smoothed(pca_score(train, test)),
    "pca_standardised_smoothed": lambda train, test: smoothed(pca_score(*standardised(train, test))),
}


def main() -> None:
    """All machines, all scorers."""
    folder = Path(os.environ["STORMPETREL_DATA"]) / "telemetry" / "smd"
    machines = {}
    for path in sorted(folder.glob("*.npz")):
        arrays = np.load(path)
        train, test = arrays["train"].astype(np.float64), arrays["test"].astype(np.float64)
        labels = arrays["label"].astype(bool)
        machines[path.stem] = {name: vus_pr(labels, score(train, test)) for name, score in SCORERS.items()}
        print(path.stem, " ".join(f"{name} {value:.3f}" for name, value in machines[path.stem].items()), flush=True)
    mean = {name: float(np.mean([figures[name] for figures in machines.values()])) for name in SCORERS}
    print("mean", " ".join(f"{name} {value:.3f}" for name, value in mean.items()))
    RESULTS.write_text(json.dumps({"machines": machines, "mean": mean}, indent=1) + "\n")


def lagged(values: Floats, lags: int = LAGS) -> Floats:
    """Mean and spread of each measurement over the last samples, this one included: (rows, 2 × measurements)."""
    padded = np.concatenate([np.repeat(values[:1], lags - 1, axis=0), values])
    windows = np.lib.stride_tricks.sliding_window_view(padded, lags, axis=0)  # (rows, measurements, lags)
    return np.concatenate([windows.mean(axis=2), windows.std(axis=2)], axis=1)


def smoothed(scores: Floats, samples: int = SMOOTHING) -> Floats:
    """The mean of the last scores, this one included; the first ones of as many as there are."""
    sums = np.concatenate([[0.0], np.cumsum(scores)])
    ends = np.arange(1, len(scores) + 1)
    begins = np.maximum(ends - samples, 0)
    mean: Floats = (sums[ends] - sums[begins]) / (ends - begins)
    return mean


if __name__ == "__main__":
    main()
