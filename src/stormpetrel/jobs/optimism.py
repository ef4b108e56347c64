"""Whether figures that are made of a log's history are optimistic: ends that are too early make outcomes known too early.

job frame -> optimism -> Optimism, or None where every end is known.

A log without wait times tells when a job was submitted and how long it ran, not when it ended. The earliest end it can have had
stands in its place. History as of a moment then holds outcomes that were not known yet, and a forecast made of it looks better.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl

from stormpetrel.records.doubts import END_WITHOUT_WAIT, has_any


@dataclass(frozen=True, slots=True)
class Optimism:
    """How many of the ended jobs of a log have an end that is only the earliest it can have been."""

    jobs: int
    ended: int

    @property
    def sentence(self) -> str:
        """What it means, for people."""
        return (
            f"Optimistic: {self.jobs:,} of {self.ended:,} ended jobs come without a wait time, so that their end is taken as "
            "submission + run time. Outcomes seem known earlier than they were, and forecasts that are made of them look better "
            "than they are."
        )

    def as_json(self) -> dict[str, Any]:
        """For other programs."""
        return {"rule": END_WITHOUT_WAIT, "jobs": self.jobs, "ended": self.ended, "why": self.sentence}


def optimism(jobs: pl.DataFrame | pl.LazyFrame) -> Optimism | None:
    """What the ends of these jobs (`end_time`, `quality`) mean for figures that are made of their history."""
    counts = jobs.lazy().select(early=has_any([END_WITHOUT_WAIT]).sum(), ended=pl.col("end_time").is_not_null().sum())
    early, ended = counts.collect().row(0)
    return Optimism(int(early), int(ended)) if early else None
