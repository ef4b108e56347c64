"""Counts of a large site's jobs by profile, month by month: a month is read in pieces, once, and its counts are kept.

job table + JobProfiles -> counts_by_month -> MonthOfProfiles of each month; Basis.of the latest jobs says what no piece can tell.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, Self

import polars as pl

from stormpetrel.answers.history import profile_counts
from stormpetrel.answers.history.profile_counts import ProfileCounts
from stormpetrel.answers.overview.month import files_by_month, submission_spans, submitted_within
from stormpetrel.config import Settings
from stormpetrel.jobs import groups, outcomes, preparation
from stormpetrel.jobs import profiles as job_profiles
from stormpetrel.jobs.groups import mem_per_cpu_gb
from stormpetrel.jobs.history.keys import stand_ins
from stormpetrel.jobs.outcomes import failed
from stormpetrel.jobs.preparation import PreparationSettings, label_distribution, prepare
from stormpetrel.jobs.profiles import SUBMIT, JobProfiles
from stormpetrel.lifecycle.job_models import limits_of, preparation_of
from stormpetrel.lifecycle.kept_frames import code_digest, profiles_digest, read_frames, write_frames
from stormpetrel.records.jobs import never_started
from stormpetrel.records.states import FINISHED
from stormpetrel.store.site import Site

_BASIS: Final = "profiles-basis.npz"
ReadRows = Callable[[Iterable[Path], pl.Expr], pl.DataFrame]


@dataclass(frozen=True, slots=True)
class Basis:
    """What is decided by all jobs together, of a large site by its latest: what missing values are filled with, the memory per
    CPU that makes a job a large one, and whether what was allocated stands in for what was requested.
    """

    medians: Mapping[str, float]
    mem_per_cpu_gb: float | None
    allocation_as_request: bool

    @classmethod
    def of(cls, jobs: pl.DataFrame, settings: Settings) -> Self:
        """What these jobs say."""
        prepared = prepare(jobs, preparation_for(jobs, settings))
        middle = prepared.frame.select(mem_per_cpu_gb().median()).item()
        return cls(prepared.medians, middle, bool(stand_ins(jobs)))

    def preparation(self, settings: Settings) -> PreparationSettings:
        """How jobs are prepared."""
        return preparation_of(settings.jobs, settings.site.time_zone, allocation_as_request=self.allocation_as_request)


@dataclass(frozen=True, slots=True)
class MonthOfProfiles:
    """The jobs of one month by profile; `labels`: state, label and count of those that ended; `totals`: jobs, never_started."""

    files: frozenset[Path]
    counts: ProfileCounts
    labels: pl.DataFrame
    totals: pl.DataFrame

    @classmethod
    def of(cls, jobs: pl.DataFrame, model: JobProfiles, settings: Settings, basis: Basis) -> Self:
        """The counts of some jobs."""
        prepared = prepare(jobs, basis.preparation(settings), medians=basis.medians).frame
        profiled = prepared.with_columns(model.assign(known_requests(prepared)))
        limits = replace(limits_of(settings.jobs), site_mem_per_cpu_gb=basis.mem_per_cpu_gb)
        over = int(jobs.select(never_started().sum()).item())
        return cls(
            frozenset(),
            ProfileCounts.of(profiled, limits),
            label_distribution(ended_jobs(jobs, settings)).drop("share"),
            pl.DataFrame({"jobs": [profiled.height], "never_started": [over]}),
        )

    @classmethod
    def together(cls, parts: Iterable[Self], files: frozenset[Path] = frozenset()) -> Self:
        """The counts of several months, or of pieces of one."""
        every = list(parts)
        labels = pl.concat([part.labels for part in every]).group_by("state", "label").agg(pl.col("count").sum())
        totals = pl.concat([part.totals for part in every]).sum()
        return cls(files, ProfileCounts.together([part.counts for part in every]), labels, totals)

    def label_shares(self) -> pl.DataFrame:
        """How jobs ended, the most frequent state first: state, label, count and share."""
        shares = self.labels.with_columns(share=pl.col("count") / pl.col("count").sum())
        return shares.sort(["count", "state"], descending=[True, False])


def preparation_for(jobs: pl.DataFrame, settings: Settings) -> PreparationSettings:
    """How these jobs are prepared, in a log that may tell no requests."""
    return preparation_of(settings.jobs, settings.site.time_zone, allocation_as_request=bool(stand_ins(jobs)))


def ended_jobs(jobs: pl.DataFrame, settings: Settings) -> pl.DataFrame:
    """Those that ended, with `failed`."""
    truth = failed(settings.jobs.failure_states, settings.jobs.dropped_states)
    return jobs.filter(pl.col("state").is_in([str(state) for state in FINISHED])).with_columns(truth)


def known_requests(prepared: pl.DataFrame) -> pl.DataFrame:
    """What was really requested: a profile is not to be guessed from medians."""
    return prepared.select(pl.when(~pl.col("imputed").list.contains(name)).then(name).alias(name) for name in SUBMIT)


def latest_rows(site: Site, read: ReadRows, most: int) -> pl.DataFrame:
    """The jobs that were submitted last, about so many, the earliest first."""
    parts: list[pl.DataFrame] = []
    for _, files in sorted(files_by_month(site.jobs.table).items(), reverse=True):
        for span in reversed(submission_spans(site.jobs.table, files)):
            parts.append(read(files, submitted_within(span)))
            if sum(part.height for part in parts) >= most:
                return pl.concat(reversed(parts)).tail(most)
    return pl.concat(reversed(parts))


def counts_by_month(
    site: Site, read: ReadRows, model: JobProfiles, basis: Basis, before: Mapping[str, MonthOfProfiles], *, keep: bool
) -> dict[str, MonthOfProfiles]:
    """Each month as it was where its files are the same, in `before` or in the folder of snapshots, else counted anew.

    With `keep` what was counted is written there: the counts have to be of all jobs.
    """
    shared = {**_identity(site.settings, model), "basis": asdict(basis)}
    months: dict[str, MonthOfProfiles] = {}
    for name, files in sorted(files_by_month(site.jobs.table).items()):
        known = before.get(name)
        if known is None or known.files != files:
            identity = {**shared, "files": sorted(path.name for path in files)}
            known = _find(site, name, identity, files) if keep else None
            if known is None:
                known = MonthOfProfiles.together(_pieces(site, read, files, model, basis), files)
                if keep:
                    frames = {**known.counts.frames(), "labels": known.labels, "totals": known.totals}
                    write_frames(site, _file(name), identity, frames)
        months[name] = known
    return months


def find_basis(site: Site, model: JobProfiles) -> Basis | None:
    """The basis that an earlier process has kept for these profiles; months that were counted with it are of use with it only."""
    kept = read_frames(site, _BASIS, _identity(site.settings, model))
    return None if kept is None else Basis(**json.loads(kept["basis"]["basis"].item()))


def keep_basis(site: Site, model: JobProfiles, basis: Basis) -> None:
    """Keep the basis for the next process."""
    frame = pl.DataFrame({"basis": [json.dumps(asdict(basis))]})
    write_frames(site, _BASIS, _identity(site.settings, model), {"basis": frame})


def _pieces(site: Site, read: ReadRows, files: frozenset[Path], model: JobProfiles, basis: Basis) -> Iterator[MonthOfProfiles]:
    for span in submission_spans(site.jobs.table, files):
        yield MonthOfProfiles.of(read(files, submitted_within(span)), model, site.settings, basis)


def _find(site: Site, name: str, identity: Mapping[str, Any], files: frozenset[Path]) -> MonthOfProfiles | None:
    kept = read_frames(site, _file(name), identity)
    if kept is None:
        return None
    labels, totals = kept.pop("labels"), kept.pop("totals")
    return MonthOfProfiles(files, ProfileCounts(**kept), labels, totals)


def _identity(settings: Settings, model: JobProfiles) -> dict[str, Any]:
    """What the counts of a month depend on beside its jobs and the basis."""
    modules = (sys.modules[__name__], groups, outcomes, preparation, profile_counts, job_profiles)
    jobs = settings.jobs
    return {
        "code": code_digest(modules),
        "polars": pl.__version__,
        "zone": settings.site.time_zone,
        "states": [list(jobs.failure_states), list(jobs.dropped_states)],
        "missing": [jobs.missing, jobs.min_run_s],
        "limits": asdict(limits_of(jobs)),
        "profiles": profiles_digest(model),
    }


def _file(month: str) -> str:
    return f"profiles-{month}.npz"
