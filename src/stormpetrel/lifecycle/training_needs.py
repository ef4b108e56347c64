"""What a training of a site's job models needs, what there is of it, and how long the rest will take at the present pace.

Site -> training_needs -> TrainingNeeds: the watch of a new site, `jobs train` and the Health page tell the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import polars as pl

from stormpetrel.errors import NotEnoughJobsError
from stormpetrel.jobs.moments import MOMENTS, Moment
from stormpetrel.jobs.predictor import known_by
from stormpetrel.jobs.training import ClassCounts, TrainingSettings, class_counts, counted_failed
from stormpetrel.lifecycle.history_snapshot import submission_spans
from stormpetrel.store.site import Site

_RECENT: Final = timedelta(days=7)  # the pace is that of the last week, or since the first job ended
_COLUMNS: Final = ("submit_time", "start_time", "end_time", "elapsed_s", "state")
_UNITS: Final = ((86_400.0, "days"), (3_600.0, "hours"), (60.0, "minutes"))


@dataclass(frozen=True, slots=True)
class TrainingNeeds:
    """What there is to learn from at each moment, and how fast it grows."""

    counts: Mapping[Moment, ClassCounts]
    ended: int  # jobs that count
    per_second: Mapping[bool, float]  # ended jobs of each class, failed or not, in the last week

    def able(self, moments: Collection[Moment] = MOMENTS) -> tuple[Moment, ...]:
        """The moments that a model can be made of, in the order of a job's life."""
        return tuple(moment for moment in MOMENTS if moment in moments and self.counts[moment].enough)

    def missing(self, moments: Collection[Moment] = MOMENTS) -> tuple[ClassCounts, ...]:
        """What there is of the moments that no model can be made of."""
        return tuple(self.counts[moment] for moment in MOMENTS if moment in moments and not self.counts[moment].enough)

    def is_enough(self, fewest_jobs: int = 0) -> bool:
        """Whether a first model can be made, of so many ended jobs at least."""
        return self.ended >= fewest_jobs and bool(self.able())

    def progress(self, fewest_jobs: int = 0) -> str:
        """How far it is to a first model: `37 of 200 ended jobs, 3 of 10 failed ones; at this pace in about 6 hours`."""
        first = self.counts[Moment.SUBMIT]
        parts = [f"{self.ended:,} of {fewest_jobs:,} ended jobs"] if fewest_jobs else [_jobs(self.ended)]
        parts.append(f"{first.failed:,} of {first.needed} failed ones")
        if first.others < first.needed <= first.failed:
            parts.append(f"{first.others:,} of {first.needed} that did not fail")
        return f"{', '.join(parts)}; {self._how_long(fewest_jobs)}"

    def _how_long(self, fewest_jobs: int) -> str:
        first = self.counts[Moment.SUBMIT]
        waits = [
            (fewest_jobs - self.ended, sum(self.per_second.values()), "ended"),
            (first.needed - first.failed, self.per_second[True], "failed"),
            (first.needed - first.others, self.per_second[False], "ended well"),
        ]
        unseen = next((what for lacking, pace, what in waits if lacking > 0 and pace <= 0), None)
        if unseen is not None:
            return f"no job has {unseen} yet, so nobody can say how long that will take"
        seconds = max((lacking / pace for lacking, pace, _ in waits if lacking > 0), default=0.0)
        return f"at this pace in about {_span(seconds)}" if seconds else "that is enough"

    def refusal(self, missing: Collection[ClassCounts]) -> NotEnoughJobsError:
        """Why none of the wanted models can be made; `missing` is what there is for them."""
        hint = "Ingest more jobs, or say with jobs.failure_states which states count as a failure."
        if self.able():  # others could be made
            return NotEnoughJobsError(f"There is {'; '.join(counts.words() for counts in missing)}.", hint=hint)
        return NotEnoughJobsError(f"There are too few jobs to learn from: {self.progress()}.", hint=hint)


def training_needs(site: Site, settings: TrainingSettings, *, until: datetime, jobs: pl.DataFrame | None = None) -> TrainingNeeds:
    """Of the site's jobs as they were known at `until`; cheap. `jobs` (as known then) saves reading the table."""
    counts, labels = dict.fromkeys(MOMENTS, (0, 0)), []
    for piece in [jobs] if jobs is not None else _pieces(site, until):
        for moment, known in class_counts(piece, settings).items():
            counts[moment] = counts[moment][0] + known.failed, counts[moment][1] + known.others
        labels.append(piece.select("end_time", counted_failed(settings)).drop_nulls())
    label = pl.concat(labels)
    return TrainingNeeds(
        {moment: ClassCounts(moment, failed, others) for moment, (failed, others) in counts.items()},
        label.height,
        _paces(label, until),
    )


def _pieces(site: Site, until: datetime) -> Iterator[pl.DataFrame]:
    """The jobs as they were known at a time, some hundred thousand at a time."""
    for begin, end in submission_spans(site, None, until):
        yield known_by(site.jobs.read_jobs(since=begin, until=end).select(_COLUMNS).collect(), until)


def _paces(label: pl.DataFrame, until: datetime) -> dict[bool, float]:
    """How many failed jobs and others end in a second: in the last week, or in all the time where that saw none."""
    first = label["end_time"].min()
    if not isinstance(first, datetime):
        return {True: 0.0, False: 0.0}
    week = max(first, until - _RECENT)
    paces = {}
    for failed in (True, False):
        ends = label.filter(pl.col("failed") == failed)["end_time"]
        recent = int((ends >= week).sum())
        since, number = (week, recent) if recent else (first, ends.len())
        paces[failed] = number / max(60.0, (until - since).total_seconds())
    return paces


def _jobs(number: int) -> str:
    return f"{number:,} ended {'job' if number == 1 else 'jobs'}"


def _span(seconds: float) -> str:
    for size, unit in _UNITS:
        if seconds >= 1.5 * size:
            return f"{seconds / size:,.0f} {unit}"
    return "a minute"
