"""How long a job will wait: a distribution, learned from what the queue was like and how long jobs then waited.

queue features, waits -> WaitModel.fit -> forecast -> WaitForecast -> p50 and p90. Who still waits counts as "longer than so far".
"""

from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import numpy as np

from stormpetrel.errors import ModelFormatError, NotEnoughJobsError
from stormpetrel.jobs.wait.mixture import Mixture, candidates
from stormpetrel.jobs.wait.queue_state import feature_names
from stormpetrel.learn.distribution_forest import DistributionForest
from stormpetrel.learn.saving import load_model_bytes, save_model
from stormpetrel.records.arrays import Flags, Floats, Matrix

KIND: Final = "job-wait"
FORMAT_VERSION: Final = 2
FEWEST_JOBS: Final = 50
MOST_ROWS: Final = 50_000
QUANTILES: Final = (0.5, 0.9)
_ARRAYS: Final = "forest.npz"
_AGAIN: Final = "Train it again: stormpetrel jobs train"


@dataclass(frozen=True, slots=True)
class WaitForecast:
    """The wait of each job: steps in log(1 + seconds), ascending, and the probability of at most so much: (job, step)."""

    steps: Floats
    below: Matrix


@dataclass
class WaitModel:
    """Forecasts how long a job will wait from the moment it is submitted.

    `levels_` are the levels at which a p50 and a p90 were lately enough for half and nine tenths of the jobs, `shares_` how much
    of each is the forest's (the rest is that of the last waits of the same shape); both hold at `fitted_until_` (Unix seconds).
    With a `mixture_` the p90 is that of the mixture instead.
    """

    seed: int = 0
    metadata: dict[str, Any] = field(default_factory=dict)
    levels_: tuple[float, ...] = QUANTILES
    shares_: tuple[float, ...] = (1.0,) * len(QUANTILES)
    mixture_: Mixture | None = None
    fitted_until_: float = 0.0
    n_train_: int = 0
    forest_: DistributionForest | None = None

    def fit(self, values: Matrix, wait_s: Floats, still_waits: Flags) -> Self:
        """Learn from waits in seconds; where `still_waits`, of jobs that have waited so long and have not started."""
        known = np.flatnonzero(~np.isnan(wait_s))[-MOST_ROWS:]
        if known.size < FEWEST_JOBS:
            raise NotEnoughJobsError(
                f"{known.size} jobs tell how long they waited: too few to learn from (at least {FEWEST_JOBS} are needed).",
                hint="Take in more jobs, with their submit and start times.",
            )
        self.forest_ = DistributionForest.fit(values[known], np.log1p(wait_s[known]), still_waits[known], seed=self.seed)
        self.n_train_ = int(known.size)
        return self

    def forecast(self, values: Matrix) -> WaitForecast:
        """The distribution of each job's wait."""
        if self.forest_ is None:
            raise ModelFormatError("This model of waits was never trained.", hint=_AGAIN)
        return WaitForecast(self.forest_.steps, np.cumsum(self.forest_.chance(values), axis=1, dtype=np.float32))

    def quantiles(self, values: Matrix, recent_s: Floats, levels: tuple[float, ...]) -> Floats:
        """Seconds that each job waits at most (p50, p90): (job, quantile).

        `recent_s` are those of the last waits of the same shape, `levels` those of the model as they are now.
        """
        from stormpetrel.jobs.wait.queue_kernel import blended_quantile

        forecast, recent = self.forecast(values), np.log1p(recent_s)
        out = np.empty((len(values), len(QUANTILES)))
        for row, below in enumerate(forecast.below):
            for column, (level, share) in enumerate(zip(levels, self.shares_, strict=True)):
                out[row, column] = np.expm1(blended_quantile(forecast.steps, below, level, share, recent[row, column]))
        if self.mixture_ is not None:
            out[:, 1] = self.mixture_.seconds(candidates(values, forecast.steps, forecast.below))
        out[:, 1] = np.maximum(out[:, 0], out[:, 1])
        return out

    def save(self, folder: Path) -> None:
        """Write the model to a new folder."""
        assert self.forest_ is not None
        arrays: dict[str, Any] = dict(self.forest_.to_arrays("wait"))
        content = io.BytesIO()
        np.savez_compressed(content, allow_pickle=False, **arrays)
        record = {
            "features": list(feature_names()),
            "levels": list(self.levels_),
            "shares": list(self.shares_),
            "mixture": None if self.mixture_ is None else self.mixture_.as_json(),
            "fitted_until": self.fitted_until_,
            "n_train": self.n_train_,
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
            model = cls(seed=int(record["seed"]), metadata=dict(record["about"]), n_train_=int(record["n_train"]))
            model.levels_ = tuple(float(level) for level in record["levels"])
            model.shares_ = tuple(float(share) for share in record["shares"])
            model.fitted_until_ = float(record["fitted_until"])
            mixture = record.get("mixture")  # models of before have none
            model.mixture_ = None if mixture is None else Mixture.from_json(mixture)
            good = all(0.0 < level < 1.0 for level in model.levels_) and all(0.0 <= share <= 1.0 for share in model.shares_)
            if not good or not len(model.levels_) == len(model.shares_) == len(QUANTILES) or not np.isfinite(model.fitted_until_):
                raise ValueError("its record holds values that make no sense")
            with np.load(io.BytesIO(files[_ARRAYS]), allow_pickle=False) as stored:
                arrays = {name: stored[name] for name in stored.files}
            model.forest_ = DistributionForest.from_arrays(arrays, "wait", features=len(feature_names()))
        except (KeyError, TypeError, ValueError, OSError, zipfile.BadZipFile) as error:
            raise ModelFormatError(f"The model in {folder} is damaged: {error}", hint=_AGAIN) from None
        return model
