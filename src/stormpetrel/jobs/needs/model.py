"""What a job will need of memory, time, CPUs or GPUs: a distribution, learned from what jobs like it used.

readings, request, use -> NeedsModel.fit -> forecast -> UseForecast (amounts and their probabilities) -> quantiles, allocation.
Two forests, one per anchor (`features.py`), are averaged; each alone was worse on every log (docs/log.md).
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stormpetrel.errors import ModelFormatError, NotEnoughJobsError
from stormpetrel.jobs.needs.allocation import Policy
from stormpetrel.jobs.needs.features import ANCHORS, Features, feature_names, make_features
from stormpetrel.jobs.needs.forecast import UseForecast
from stormpetrel.jobs.needs.past_use import RESOURCES, UseTable
from stormpetrel.learn.distribution_forest import DistributionForest
from stormpetrel.learn.saving import load_model_bytes, save_model
from stormpetrel.records.arrays import Flags, Matrix

KIND: Final = "job-needs"
FORMAT_VERSION: Final = 1
FEWEST_JOBS: Final = 50
MOST_ROWS: Final = 80_000  # the latest: older ones say little about the next, and a fit has a bound
_ARRAYS: Final = "forests.npz"
_AGAIN: Final = "Train it again: stormpetrel jobs train"
_BATCH: Final = 20_000


@dataclass
class NeedsModel:
    """Forecasts how much of one resource a job will use.

    Parameters
    ----------
    resource
        `memory` (bytes), `time` (seconds), `cpus` (busy on average), `gpus` (busy at most) or `gpu_memory` (bytes), of the
        whole job.
    policy
        How an amount is chosen out of the forecast: found by `allocation.tune` on jobs that were forecast before they ran.
    """

    resource: str
    seed: int = 0
    policy: Policy = field(default_factory=lambda: Policy(np.inf))
    metadata: dict[str, Any] = field(default_factory=dict)
    n_train_: int = 0
    forests_: dict[str, DistributionForest] = field(default_factory=dict)

    def fit(self, readings: Matrix, table: UseTable, jobs: pl.DataFrame, which: Flags | None = None) -> Self:
        """Learn from the jobs that tell what they used; `which` leaves others out (those that had not ended then)."""
        if self.resource not in RESOURCES:
            raise ModelFormatError(f"There is no needs model of '{self.resource}'.", hint=f"Known: {', '.join(RESOURCES)}.")
        usable = table.judged & ~np.isnan(table.used)
        chosen = np.flatnonzero(usable if which is None else usable & which)[-MOST_ROWS:]
        self.n_train_ = 0
        for name in ANCHORS:
            features = _features_of(chosen, readings, table, jobs, self.resource, name)
            known = ~np.isnan(features.anchor)
            target = np.log(table.used[chosen][known]) - features.anchor[known]
            if target.size < FEWEST_JOBS:
                raise NotEnoughJobsError(
                    f"{target.size} ended jobs tell how much {self.resource} they used: too few to learn from "
                    f"(at least {FEWEST_JOBS} are needed).",
                    hint="Take in more jobs, with the memory that they used (sacct's MaxRSS) for memory.",
                )
            self.forests_[name] = DistributionForest.fit(
                features.values[known], target, table.cut_off[chosen][known], seed=self.seed
            )
            self.n_train_ = max(self.n_train_, int(target.size))
        return self

    def forecast(self, readings: Matrix, table: UseTable, jobs: pl.DataFrame, which: Flags | None = None) -> UseForecast:
        """The distribution of each job's use, of those in `which`; NaN amounts where a job has neither request nor past."""
        rows = np.arange(len(readings)) if which is None else np.flatnonzero(which)
        parts = [self._forecast(rows[at : at + _BATCH], readings, table, jobs) for at in range(0, rows.size, _BATCH)]
        if not parts:
            width = sum(len(forest.steps) for forest in self.forests_.values())
            return UseForecast(np.empty((0, width), np.float32), np.empty((0, width), np.float32))
        return UseForecast(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    def _forecast(self, rows: NDArray[np.int64], readings: Matrix, table: UseTable, jobs: pl.DataFrame) -> tuple[Matrix, Matrix]:
        amounts, chance = [], []
        for name, forest in self.forests_.items():
            features = _features_of(rows, readings, table, jobs, self.resource, name)
            amounts.append(np.exp(forest.steps[None, :] + features.anchor[:, None]).astype(np.float32))
            chance.append(forest.chance(features.values) / len(self.forests_))
        both: Matrix = np.concatenate(amounts, axis=1, dtype=np.float32)
        chances: Matrix = np.concatenate(chance, axis=1, dtype=np.float32)
        order = np.argsort(both, axis=1, kind="stable")
        return np.take_along_axis(both, order, axis=1), np.take_along_axis(chances, order, axis=1)

    def save(self, folder: Path) -> None:
        """Write the model to a new folder."""
        arrays: dict[str, Any] = {}
        for name, forest in self.forests_.items():
            arrays |= forest.to_arrays(name)
        content = io.BytesIO()
        np.savez_compressed(content, allow_pickle=False, **arrays)
        record = {
            "resource": self.resource,
            "features": list(feature_names()),
            "n_train": self.n_train_,
            "policy": self.policy.as_json(),
            "seed": self.seed,
            "about": self.metadata,
        }
        save_model(folder, kind=KIND, format_version=FORMAT_VERSION, metadata=record, files={_ARRAYS: content.getvalue()})

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read a model that `save` wrote; ModelFormatError where it is damaged or for another version."""
        record, files = load_model_bytes(folder, kind=KIND, format_version=FORMAT_VERSION)
        try:
            if tuple(record["features"]) != feature_names():
                raise ValueError("it was trained on other columns")
            model = cls(str(record["resource"]), seed=int(record["seed"]), policy=Policy.from_json(record["policy"]))
            if model.resource not in RESOURCES:
                raise ValueError("its record holds values that make no sense")
            model.metadata, model.n_train_ = dict(record["about"]), int(record["n_train"])
            stored = _read_arrays(files[_ARRAYS])
            model.forests_ = {
                name: DistributionForest.from_arrays(stored, name, features=len(feature_names())) for name in ANCHORS
            }
        except (KeyError, TypeError, ValueError, OSError, zipfile.BadZipFile) as error:
            raise ModelFormatError(f"The model in {folder} is damaged: {error}", hint=_AGAIN) from None
        return model


def _read_arrays(content: bytes) -> Mapping[str, NDArray[Any]]:
    with np.load(io.BytesIO(content), allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}


def _features_of(
    rows: NDArray[np.int64], readings: Matrix, table: UseTable, jobs: pl.DataFrame, resource: str, anchor: str
) -> Features:
    if rows.size == len(readings):  # all of them, in their order
        return make_features(readings, table, jobs, resource, anchor)
    return make_features(readings[rows], table.rows(rows), jobs[rows], resource, anchor)
