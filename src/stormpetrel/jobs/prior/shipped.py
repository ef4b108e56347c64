"""The prior that comes with the package: read, checked, and set up for a site that has no model of its own.

shipped_prior -> JobOutcomeModel of each moment; its version in predictions is a negative number, `prior-1` in words.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import polars as pl

from stormpetrel.jobs.history.keys import stand_ins
from stormpetrel.jobs.model import JobOutcomeModel
from stormpetrel.jobs.moments import MOMENTS, Moment
from stormpetrel.jobs.profiles import SUBMIT, JobProfiles

SHIPPED: Final = Path(__file__).parent / "shipped"
VERSION: Final = 1  # of the shipped files; raised whenever they change
PRIOR_VERSION: Final = -VERSION  # as predictions and versions in use note it: the registry counts from 1
LEARNT: Final = datetime(2026, 11, 18, tzinfo=UTC)  # when the shipped files were made


def shipped_prior(
    moments: Collection[Moment] = MOMENTS,
    *,
    failure_states: Sequence[str],
    dropped_states: Sequence[str] = (),
    time_zone: str = "UTC",
    similar_names: bool = False,
    past: pl.DataFrame | None = None,
) -> dict[Moment, JobOutcomeModel]:
    """The prior of each moment, counting what the site counts; `past` says which allocation stands in for a missing request."""
    taught: dict[str, Any] = {"failure_states": list(failure_states), "dropped_states": list(dropped_states)}
    taught |= {"time_zone": time_zone, "similar_names": similar_names, "stand_in": {} if past is None else stand_ins(past)}
    models = {}
    for moment in MOMENTS:
        if moment in moments:
            models[moment] = JobOutcomeModel.load(SHIPPED / str(moment))
            models[moment].metadata |= taught
    return models


@lru_cache
def prior_of(moment: Moment) -> JobOutcomeModel:
    """The prior of a moment, to learn a site's own model on; read once."""
    return JobOutcomeModel.load(SHIPPED / str(moment))


def learnt_from(prior: JobOutcomeModel) -> Mapping[str, str]:
    """The logs that a prior was learnt from, by name, and their fingerprints."""
    logs = prior.metadata.get("logs")
    return logs if isinstance(logs, dict) else {}


class NoProfiles(JobProfiles):
    """The profiles of a site that has none yet: no job has one."""

    def __init__(self) -> None:
        super().__init__(SUBMIT)
        self.k_ = 0

    def assign(self, prepared: pl.DataFrame) -> pl.Series:
        """Return null for each job."""
        return pl.Series("profile", [None] * prepared.height, dtype=pl.Int32)
