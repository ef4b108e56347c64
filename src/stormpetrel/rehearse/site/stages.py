"""Where faults are put: the history of jobs and events, and the newest CPU windows; each walks its copy through as a replay.

Site -> HistoryStage, WindowStage: `begin`, `put` one fault per slot, `records`; records -> walker -> Walk, an item of the engine
that makes its own copy out of what it is given. A stage that has nothing to put faults into says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Protocol

import numpy as np
import polars as pl

from stormpetrel.alarms.job_rules import LOOK_BACK
from stormpetrel.engine import Work
from stormpetrel.ingest.events import counts_jobs
from stormpetrel.lifecycle.trace_models import TraceModel
from stormpetrel.records.findings import Finding
from stormpetrel.records.times import month_of
from stormpetrel.records.traces import LIVE
from stormpetrel.rehearse.site.event_faults import EVENT_FAULTS, EventFaults
from stormpetrel.rehearse.site.injection import Injection
from stormpetrel.rehearse.site.job_faults import JOB_FAULTS, JobFaults
from stormpetrel.rehearse.site.site_copy import CopyPlan, copy_plan, jobs_between
from stormpetrel.rehearse.site.trace_faults import TRACE_FAULTS, TraceFaults
from stormpetrel.store.site import Site
from stormpetrel.watch.past.replay import Replay, replay

LEARNING: Final = timedelta(weeks=2)  # before the first fault, or a third of the history
APART: Final = timedelta(days=4)  # from one fault to the next
SHORTEST: Final = timedelta(days=10)  # of history
_LAST_FAULT: Final = timedelta(days=2, hours=4)  # before the end: so long a fault lasts and may be found
_RULES_NEED: Final = LOOK_BACK + timedelta(days=1)  # that the rules look back from the beginning of a walk
Progress = Callable[[float, str], None]
Records = Mapping[str, pl.DataFrame]  # rows by the table that they stand in


@dataclass(frozen=True, slots=True)
class Walk:
    """What a walk through a copy came to."""

    past: Replay
    findings: tuple[Finding, ...]


class Stage(Protocol):
    """A copy into which faults are put, a few at a time."""

    kinds: tuple[str, ...]

    @property
    def slots(self) -> Sequence[Any]:
        """Where a fault can begin, far enough from each other."""
        ...

    def missing(self, kind: str) -> str:
        """Return why a kind cannot be put in, in a sentence; empty where it can."""
        ...

    def begin(self) -> None:
        """Go back to the copy without a fault."""
        ...

    def put(self, kind: str, severity: str, slot: Any, rng: np.random.Generator) -> Injection | None:
        """Put in a fault at a slot; None where it would hit nobody."""
        ...

    @property
    def records(self) -> Records:
        """The tables of the copy as they are now, by name."""
        ...

    def walker(self) -> Work[Records, Walk]:
        """Return what walks through such records, in whichever process."""
        ...


class HistoryStage:
    """The job records and event counts of a span of a site's history."""

    kinds = (*JOB_FAULTS, *EVENT_FAULTS)

    def __init__(self, site: Site, span: tuple[datetime, datetime], *, models: bool) -> None:
        self._site, self._span, self._models = site, span, models
        since, until = span
        jobs = jobs_between(site, since - _RULES_NEED, until)
        counts = site.event_counts.table.between("bucket_start", None, until).collect()
        self._jobs = JobFaults(jobs)
        self._events = EventFaults(counts, site.settings.events.bucket_minutes * 60)

    @property
    def slots(self) -> list[datetime]:
        """The moments within a day of which faults begin."""
        since, until = self._span
        first = since + min(LEARNING, (until - since) / 3)
        return [first + place * APART for place in range(max(1, (until - _LAST_FAULT - first) // APART + 1))]

    def missing(self, kind: str) -> str:
        """Return why a kind cannot be put in."""
        days = (self._span[1] - self._span[0]) / timedelta(days=1)
        if days < SHORTEST / timedelta(days=1):
            return f"{days:.1f} days of job records and events are too few to rehearse on: {SHORTEST.days} are needed."
        return self._of(kind).missing

    def _of(self, kind: str) -> JobFaults | EventFaults:
        return self._jobs if kind in JOB_FAULTS else self._events

    def begin(self) -> None:
        """Go back to the history as it was."""
        self._jobs.begin()
        self._events.begin()

    def put(self, kind: str, severity: str, slot: datetime, rng: np.random.Generator) -> Injection | None:
        """Put in a fault within the day that begins at the slot."""
        return self._of(kind).put(kind, severity, slot + timedelta(minutes=int(rng.integers(24 * 60))), rng)

    @property
    def records(self) -> Records:
        """Job records and event counts."""
        return {"jobs": self._jobs.jobs, "event_counts": self._events.counts}

    def walker(self) -> _HistoryWalk:
        """Return what walks through the whole span."""
        scores = self._site.trace_scores.table.between("window_start", *self._span).collect()
        return _HistoryWalk(copy_plan(self._site), self._span, self._models, counts_jobs(self._site), scores)


@dataclass(frozen=True, slots=True, eq=False)
class _HistoryWalk:
    """Walks through the whole span of a history."""

    plan: CopyPlan
    span: tuple[datetime, datetime]
    models: bool
    counts_jobs: bool
    trace_scores: pl.DataFrame

    def __call__(self, records: Records, progress: Progress) -> Walk:
        findings: list[Finding] = []
        with _copied(self.plan, {**records, "trace_scores": self.trace_scores}) as copy:
            past = replay(
                copy, since=self.span[0], until=self.span[1], models=self.models, count_jobs=self.counts_jobs,
                progress=progress, note=findings.append,
            )  # fmt: skip
        return Walk(past, tuple(findings))


class WindowStage:
    """The newest CPU windows of a site, scored by the model in use."""

    kinds = TRACE_FAULTS

    def __init__(self, site: Site) -> None:
        self._site = site
        self._faults = TraceFaults(site)
        self.notes = tuple(self._faults.notes)

    @property
    def slots(self) -> list[int]:
        """The places of the moments at which faults begin."""
        return self._faults.slots

    def missing(self, _kind: str) -> str:
        """Return why no fault can be put in."""
        return self._faults.missing

    def begin(self) -> None:
        """Go back to the windows as they were."""
        self._faults.begin()

    def put(self, kind: str, severity: str, slot: int, rng: np.random.Generator) -> Injection | None:
        """Put in a fault from a moment on."""
        return self._faults.put(kind, severity, slot, rng)

    @property
    def records(self) -> Records:
        """CPU windows and their scores."""
        with_month = month_of(pl.col("window_start"))
        return {
            "cpu_windows": self._faults.windows.with_columns(month=with_month),
            "trace_scores": self._faults.scores.with_columns(month=with_month, trace=pl.lit(LIVE)),
        }

    def walker(self) -> _WindowWalk:
        """Return what walks through all windows."""
        return _WindowWalk(copy_plan(self._site), self._faults.moments[0], self._faults.model)


@dataclass(frozen=True, slots=True, eq=False)
class _WindowWalk:
    """Walks through CPU windows that were scored by a model."""

    plan: CopyPlan
    since: datetime
    model: TraceModel | None

    def __call__(self, records: Records, progress: Progress) -> Walk:
        findings: list[Finding] = []
        with _copied(self.plan, records) as copy:
            past = replay(
                copy, since=self.since, families=("traces",), models=False, count_jobs=False, progress=progress,
                note=findings.append, trace_model=self.model,
            )  # fmt: skip
        return Walk(past, tuple(findings))


@contextmanager
def _copied(plan: CopyPlan, records: Records) -> Iterator[Site]:
    """A copy that holds these records, for as long as the block runs."""
    with TemporaryDirectory(prefix="stormpetrel-rehearsal-") as folder, closing(plan.create(Path(folder) / "site")) as copy:
        for name, rows in records.items():
            getattr(copy, name).table.overwrite(rows)
        yield copy
