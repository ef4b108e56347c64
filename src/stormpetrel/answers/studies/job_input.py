"""The jobs that a study works on, wherever they were read from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

    from stormpetrel.config import JobsSection
    from stormpetrel.jobs.training import TrainingSettings


@dataclass(frozen=True, slots=True)
class JobInput:
    """The jobs to work on, and what counts as what."""

    jobs: pl.DataFrame
    section: JobsSection
    time_zone: str
    notes: tuple[str, ...] = ()

    def training(self) -> TrainingSettings:
        """The same as the settings of a training."""
        from stormpetrel.lifecycle.job_settings import training_of

        return training_of(self.section, self.time_zone)
