"""The day book: the ended jobs of a site summed by day, user and group; trends and waste are worked out of it.

job table -> LiveSite.boards.books -> DayBook: a few rows per day, not thousands. Only changed months are summed anew.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from stormpetrel.answers.background import Background
from stormpetrel.answers.history.energy import power_of
from stormpetrel.answers.overview.month import again, submission_spans, submitted_within
from stormpetrel.answers.viewer import READ
from stormpetrel.config import EnergySection
from stormpetrel.errors import ModelError
from stormpetrel.jobs import outcomes, waste
from stormpetrel.jobs.held import core_seconds as held_cores
from stormpetrel.jobs.held import energy as held_energy
from stormpetrel.jobs.held.energy import with_energy
from stormpetrel.jobs.history import keys
from stormpetrel.jobs.history.keys import family
from stormpetrel.jobs.outcomes import failed
from stormpetrel.jobs.waste import HELD, OVER_BEFORE_START, SUMS, UNKNOWN, group_key, uncounted
from stormpetrel.lifecycle.kept_frames import code_digest, profiles_digest, read_frames, write_frames
from stormpetrel.records.jobs import JOB_SCHEMA
from stormpetrel.records.nodes import expand_nodes

if TYPE_CHECKING:
    from stormpetrel.answers.live_site import LiveSite
    from stormpetrel.answers.viewer import Viewer
    from stormpetrel.config import Settings
    from stormpetrel.jobs.profiles import JobProfiles
    from stormpetrel.store.site import Site

GROUPS: Final = ("account", "partition", "application", "profile", "outcome")
_AMOUNTS: Final = ("jobs", "core_seconds", "joules")  # the sums of a line of `days`
_NUMBERS: Final = (*SUMS, "judged", "judged_failed", "never_started", "rows")
_PARTS: Final = ("days", "nodes", "totals", "uncounted")
_JOBS: Final = pl.Int32()  # of a day: ten million jobs have seven million such lines in memory. Sums of many are 64-bit.
_WORTH_KEEPING: Final = 5_000  # jobs of a month: fewer are summed as fast as they are read
_REST_S: Final = 15.0  # between two looks at the table: sums over days do not need more
_NEEDED: Final = (
    "user", "account", "partition", "state", "start_time", "end_time", "elapsed_s", "time_limit_s", "cpu_limit_s",
    "cpus", "req_cpus", "nodes", "req_nodes", "gpus", "req_gpus", "req_mem_bytes",
    "job_name", "script_path", "work_dir", "extra", "node_list", "quality",
)  # fmt: skip
Profiled = Callable[[pl.DataFrame], pl.DataFrame]


@dataclass(frozen=True, slots=True)
class _Month:
    """The sums of the jobs that were submitted in one month."""

    files: frozenset[Path]
    days: pl.DataFrame
    nodes: pl.DataFrame
    totals: pl.DataFrame
    uncounted: pl.DataFrame


@dataclass(frozen=True, slots=True)
class DayBook:
    """What ended on each day (of the site's time zone), per user and group; a null day is a job without an end.

    `days` has user, day, `GROUPS`, whether its jobs were `lost` and their energy `measured`; jobs, core-seconds and joules
    that the waste ledger counts (`held_sums` makes `SUMS` of them: each amount is in memory once); `judged` and
    `judged_failed`, those that a trend counts; `never_started`, those that neither does. `nodes` has user, day, node, judged
    and judged_failed. `totals` is summed straight over jobs, per user and day, with `rows`, for the ledger to reconcile with;
    `uncounted` says how many jobs the ledger leaves out, and why. `energy` says what its joules are worth. Numbers of jobs in
    `days`, `nodes` and `totals` are 32-bit, as of one day: cast what is summed.
    """

    days: pl.DataFrame
    nodes: pl.DataFrame
    totals: pl.DataFrame
    uncounted: pl.DataFrame
    profiles: JobProfiles | None
    months: Mapping[str, _Month]
    energy: EnergySection = field(default_factory=EnergySection)

    def seen_by(self, viewer: Viewer) -> DayBook:
        """Return the book with the rows that this viewer may see."""
        viewer.require(READ)
        if viewer.is_admin:
            return self
        own = {name: getattr(self, name).filter(viewer.sees()) for name in _PARTS}
        return DayBook(**own, profiles=self.profiles, months={}, energy=self.energy)

    def profile_descriptions(self) -> dict[str, str]:
        """Return the description of each profile, by its number as text."""
        return {} if self.profiles is None else {str(k): self.profiles.describe(k) for k in range(self.profiles.k_)}


def sum_jobs(jobs: pl.DataFrame, settings: Settings, profiled: Profiled | None = None, files: Iterable[Path] = ()) -> _Month:
    """Sum the jobs of a month, core seconds and joules included; with `profiled` each gets the profile of its request first."""
    zone, states = settings.site.time_zone, settings.jobs.failure_states
    dropped = settings.jobs.dropped_states
    counted = jobs.filter(~pl.col("state").is_in(dropped).fill_null(False)) if dropped else jobs
    frame = profiled(counted) if profiled else counted.with_columns(family())
    groups = [group_key(name, frame.columns, zone) for name in GROUPS if name != "application"]
    reason, bad, power = uncounted(), failed(states), power_of(settings.energy)
    lines = (
        with_energy(frame, power)
        .select(
            pl.col("user").cast(pl.Categorical),
            _known("family").alias("application"),
            *groups,
            "node_list",
            reason.alias("reason"),
            day=pl.col("end_time").dt.convert_time_zone(zone).dt.replace_time_zone(None).cast(pl.Date),
            bad=bad,
            **{name: pl.when(reason.is_null()).then(name) for name in HELD},
        )
        .with_columns(
            pl.col(GROUPS).cast(pl.Categorical),
            lost=pl.col("reason").is_null() & pl.col("bad").fill_null(False),
            measured=(pl.col("measured_joules") > 0).fill_null(False),
        )
    )
    kept = pl.col("reason").is_null()
    amounts = [_sum(kept, "jobs"), pl.col("core_seconds").sum(), pl.col("joules").sum()]
    has_outcome = pl.col("bad").is_not_null() & pl.col("day").is_not_null()
    judged = [_sum(has_outcome, "judged"), _sum(has_outcome & pl.col("bad"), "judged_failed")]
    return _Month(
        frozenset(files),
        days=lines.group_by("user", "day", *GROUPS, "lost", "measured").agg(
            *amounts, *judged, _sum(pl.col("reason") == OVER_BEFORE_START, "never_started")
        ),
        nodes=_per_node(lines.filter(has_outcome).group_by("node_list", "user", "day").agg(judged)),
        totals=lines.with_columns(jobs=kept.cast(_JOBS))
        .group_by("user", "day")
        .agg(pl.len().cast(pl.Int64).alias("rows"), *held_sums()),
        uncounted=lines.filter(~kept).group_by("user", "day", "reason").agg(pl.len().cast(pl.Int64).alias("jobs")),
    )


def held_sums() -> list[pl.Expr]:
    """`SUMS` of lines that are `lost` or not and `measured` or not, or of such jobs."""
    jobs, cores, energy = (pl.col(name) for name in _AMOUNTS)
    measured, lost = pl.col("measured"), pl.col("lost")
    sums = (
        jobs, jobs.filter(lost), cores, cores.filter(lost),
        energy, energy.filter(lost), energy.filter(measured), energy.filter(measured & lost),
    )  # fmt: skip
    return [amount.sum().alias(name) for name, amount in zip(SUMS, sums, strict=True)]


def book_of(
    months: Mapping[str, _Month], profiles: JobProfiles | None = None, energy: EnergySection = EnergySection()
) -> DayBook:
    """Return the book of some months."""
    parts: dict[str, Any] = {name: pl.concat([getattr(month, name) for month in months.values()]) for name in _PARTS}
    return DayBook(**parts, profiles=profiles, months=months, energy=energy)


def make_book(live: LiveSite, key: str, before: DayBook | None) -> DayBook:
    """Return the book of a site; months whose files are those of the book before are taken from there."""
    del key
    try:
        predictor = live.predictor()
        profiled: Profiled | None = None if predictor.is_prior else predictor.profiled
        profiles: JobProfiles | None = None if predictor.is_prior else predictor.profiles
    except ModelError:  # no model yet: every job's profile is unknown
        profiled = profiles = None
    done = before.months if before is not None and before.profiles is profiles else {}
    return book_of(again(lambda: _months(live.site, done, profiled, profiles)), profiles, live.settings.energy)


def book_of_site(site: Site) -> DayBook:
    """Return the book of a site that is not in memory, without profiles."""
    return book_of(again(lambda: _months(site, {}, None, None)), energy=site.settings.energy)


def book_background() -> Background[DayBook]:
    """Return what keeps the book of one site."""
    return Background(make_book, rest_s=_REST_S, most=1)


def _months(site: Site, done: Mapping[str, _Month], profiled: Profiled | None, profiles: JobProfiles | None) -> dict[str, _Month]:
    """Each month as it was where its files are the same, here or in the folder of snapshots, else summed anew."""
    months: dict[str, _Month] = {}
    shared = _identity(site.settings, profiles)
    for month, files in _by_month(site.jobs.table.files()).items():
        known = done.get(month)
        if known is None or known.files != files:
            identity = {**shared, "files": sorted(path.name for path in files)}
            kept = read_frames(site, f"days-{month}.npz", identity)
            known = None if kept is None else _Month(files, **kept)
        if known is None:
            known = _sum_files(site, files, profiled)
            if known.totals["rows"].sum() >= _WORTH_KEEPING:
                frames = {name: getattr(known, name) for name in _PARTS}
                write_frames(site, f"days-{month}.npz", identity, frames)
        months[month] = known
    if months:
        return months
    nothing = pl.DataFrame(schema={name: JOB_SCHEMA[name] for name in _needed(site.settings)})
    return {"": sum_jobs(nothing, site.settings)}


def _needed(settings: Settings) -> list[str]:
    """The columns that are read of each job."""
    return list(dict.fromkeys((*_NEEDED, *power_of(settings.energy).columns)))


def _sum_files(site: Site, files: frozenset[Path], profiled: Profiled | None) -> _Month:
    """Sum the jobs of some files piece by piece."""
    rows = site.jobs.table.scan(sorted(files)).select("submit_time", *_needed(site.settings))
    parts = [
        sum_jobs(rows.filter(submitted_within(span)).drop("submit_time").collect(), site.settings, profiled)
        for span in submission_spans(site.jobs.table, files)
    ]
    added = {name: _added([getattr(part, name) for part in parts]) for name in _PARTS}
    return _Month(files, **added)


def _added(parts: list[pl.DataFrame]) -> pl.DataFrame:
    """The sums over all jobs from sums over some each."""
    numbers = [name for name in parts[0].columns if name in _NUMBERS]
    return pl.concat(parts).group_by(pl.exclude(numbers)).agg(pl.col(numbers).sum()) if len(parts) > 1 else parts[0]


def _identity(settings: Settings, profiles: JobProfiles | None) -> dict[str, Any]:
    """What the sums of a month depend on beside its jobs."""
    return {
        "code": code_digest((sys.modules[__name__], held_cores, held_energy, keys, outcomes, waste)),
        "polars": pl.__version__,
        "zone": settings.site.time_zone,
        "states": [list(settings.jobs.failure_states), list(settings.jobs.dropped_states)],
        "power": asdict(power_of(settings.energy)),
        "profiles": None if profiles is None else profiles_digest(profiles),
    }


def _by_month(files: Iterable[Path]) -> dict[str, frozenset[Path]]:
    months: dict[str, set[Path]] = {}
    for path in files:
        months.setdefault(path.parent.name, set()).add(path)
    return {month: frozenset(paths) for month, paths in sorted(months.items())}


def _per_node(counts: pl.DataFrame) -> pl.DataFrame:
    """Sums per node list turned into sums per node; each distinct list is expanded once."""
    lists = counts["node_list"].drop_nulls().unique()
    expanded = pl.DataFrame(
        {"node_list": lists, "node": [sorted(set(expand_nodes(text))) for text in lists]},
        schema={"node_list": pl.String, "node": pl.List(pl.String)},
    )
    on_nodes = counts.join(expanded, on="node_list").explode("node").drop_nulls("node")
    named = on_nodes.with_columns(pl.col("node").cast(pl.Categorical))
    return named.group_by("user", "day", "node").agg(pl.col("judged", "judged_failed").sum())


def _known(name: str) -> pl.Expr:
    return pl.when(pl.col(name) != "").then(pl.col(name)).otherwise(pl.lit(UNKNOWN))


def _sum(mask: pl.Expr, name: str) -> pl.Expr:
    return mask.sum().cast(_JOBS).alias(name)
