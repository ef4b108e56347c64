"""Enough jobs to learn from: of each class, among those that lived to see a moment.

job frame + TrainingSettings -> class_counts -> ClassCounts of each moment: a model is made where there are enough, and words say
what is missing where there are not. Each moment stands for itself: a site whose jobs all end within two minutes has the others.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
import polars as pl

from stormpetrel.jobs.history import event_times
from stormpetrel.jobs.model import FEWEST_OF_A_CLASS
from stormpetrel.jobs.moments import MOMENT_WORDS, MOMENTS, Moment
from stormpetrel.jobs.outcomes import failed
from stormpetrel.jobs.training import TrainingSettings

_WHICH: Final = {
    Moment.SUBMIT: "ended jobs",
    Moment.START: "ended jobs whose start is known",
    Moment.TWO_MINUTES: "jobs that ran longer than two minutes",
}


@dataclass(frozen=True, slots=True)
class ClassCounts:
    """How many ended jobs that reached a moment failed, how many did not, and how many of each a model needs."""

    moment: Moment
    failed: int
    others: int
    needed: int = FEWEST_OF_A_CLASS

    @property
    def enough(self) -> bool:
        """Whether a model of this moment can be made."""
        return min(self.failed, self.others) >= self.needed

    def words(self) -> str:
        """What is missing, as part of a sentence."""
        return (
            f"no model {MOMENT_WORDS[self.moment]}: it needs {self.needed} failed and {self.needed} other {_WHICH[self.moment]}, "
            f"and has {self.failed:,} and {self.others:,}"
        )

    def as_dict(self) -> dict[str, Any]:
        """As a plain dictionary, for JSON and the registry; the moment is the key that it stands under."""
        return {name: value for name, value in asdict(self).items() if name != "moment"}


def counted_failed(settings: TrainingSettings) -> pl.Expr:
    """`failed` of the jobs that a training counts; null for the others."""
    counts = pl.col("end_time").is_not_null()
    if settings.min_run_s is not None:
        counts &= (pl.col("elapsed_s") >= settings.min_run_s).fill_null(False)
    return pl.when(counts).then(failed(settings.failure_states, settings.dropped_states)).alias("failed")


def class_counts(jobs: pl.DataFrame, settings: TrainingSettings) -> dict[Moment, ClassCounts]:
    """What there is to learn from at each moment, of jobs as they are known."""
    label = jobs.select(counted_failed(settings)).to_series()
    counts = (label.is_not_null() & jobs["submit_time"].is_not_null()).to_numpy()
    bad = label.fill_null(False).to_numpy()
    reached = ~np.isnan(event_times(jobs)[:, : len(MOMENTS)]) & counts[:, None]
    return {
        moment: ClassCounts(moment, int((reached[:, column] & bad).sum()), int((reached[:, column] & ~bad).sum()))
        for column, moment in enumerate(MOMENTS)
    }
