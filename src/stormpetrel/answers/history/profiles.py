"""Profiles of a site: the kinds of jobs it runs, what each is like, and who runs them.

LiveSite + Viewer -> profiles -> Profiles; LiveSite.boards.profiles -> ProfileView, for a page. The profiles are those of the
site's model; without one they are found once, in the background. Users see how their own jobs divide, administrators how all do.
More jobs than `AT_ONCE` are counted by month, and what only all of them could decide is decided by the latest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import polars as pl

from stormpetrel.answers.background import Background, scope_of
from stormpetrel.answers.history.profile_months import (
    Basis,
    MonthOfProfiles,
    counts_by_month,
    ended_jobs,
    find_basis,
    keep_basis,
    known_requests,
    latest_rows,
    preparation_for,
)
from stormpetrel.answers.overview.overview import again
from stormpetrel.answers.schemas.job_studies import Profile, Profiles
from stormpetrel.answers.viewer import READ, Viewer
from stormpetrel.errors import ModelError, NotEnoughJobsError
from stormpetrel.jobs.exam.feature_study import correlations
from stormpetrel.jobs.exam.seed_protocol import seed_columns
from stormpetrel.jobs.groups import GroupLimits
from stormpetrel.jobs.preparation import UNKNOWN, PreparationSettings, label_distribution, prepare
from stormpetrel.jobs.profiles import SUBMIT, JobProfiles, ProfileTables
from stormpetrel.lifecycle.job_models import PROFILES, limits_of
from stormpetrel.records.arrays import Floats
from stormpetrel.records.jobs import KEY, never_started

if TYPE_CHECKING:
    from stormpetrel.answers.live_site import LiveSite
    from stormpetrel.config import Settings

AT_ONCE: Final = 250_000  # jobs, a kilobyte each while they are divided
_REST_S: Final = 300.0  # kinds of jobs change in weeks, and the whole table is read for them
EVERYBODY: Final = scope_of(Viewer("", is_admin=True))
_USER: Final = scope_of(Viewer("", is_admin=False))
_NEEDED: Final = (
    *KEY, "user", "uid", "group", "gid", "account", "state", "start_time", "end_time", "elapsed_s", "time_limit_s",
    "cpus", "req_cpus", "nodes", "req_nodes", "gpus", "req_gpus", "mem_bytes", "req_mem_bytes", "alloc_tres", "req_tres",
    "quality",
)  # fmt: skip
_HEAT_JOBS: Final = 100_000
_HEAT_COLUMNS: Final = 14
_COLUMN_LABELS: Final = {
    "req_cpu": "requested CPUs", "req_node": "requested nodes", "req_mem_gb": "requested memory", "time_limit_s": "time limit",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ProfileView:
    """The profiles, and the jobs of the viewer by profile, as the frames that a page draws; `profiles` answers with their counts.

    `words` says of each profile what it is like at this site. The tables are of `jobs` jobs, those that the viewer may see;
    `users` has profile, user, jobs, failed and failed_share.
    """

    words: tuple[str, ...]
    why: str  # so many profiles
    elbow: pl.DataFrame
    version: int | None  # of the model `jobs-profiles`; None where they were found for this page
    jobs: int
    never_started: int  # jobs that are not among those: they were over before they ran
    labels: pl.DataFrame
    tables: ProfileTables
    users: pl.DataFrame
    heat_names: tuple[str, ...]  # the outcome first
    heat: Floats
    limits: GroupLimits
    own_only: bool
    basis: Basis | None = None  # of many jobs: what was decided by the latest of them
    months: Mapping[str, MonthOfProfiles] = field(default_factory=dict)  # of many jobs: the counts by month

    @property
    def k(self) -> int:
        """How many profiles there are."""
        return len(self.words)


def profiles(live: LiveSite, viewer: Viewer) -> Profiles:
    """Return the profiles, each with how the jobs that the viewer may see divide; waits where they are still being worked out."""
    viewer.require(READ)
    latest = live.boards.profiles.wait(live, scope_of(viewer))
    return latest.answer("profiles", lambda: _answer(latest.value, latest.at))


def _answer(view: ProfileView, as_of: datetime) -> Profiles:
    resources = {row["profile"]: row for row in view.tables.resources.iter_rows(named=True)}
    counts = {name: _by_profile(getattr(view.tables, name)) for name in ("duration", "activity", "status", "types")}
    means = ("cpu_mean", "mem_gb_mean", "run_time_s_mean", "wait_time_s_mean")
    return Profiles(
        as_of=as_of,
        own_only=view.own_only,
        version=view.version,
        why=view.why,
        jobs=view.jobs,
        never_started=view.never_started,
        profiles=[
            Profile.model_validate(
                {
                    "profile": number,
                    "words": text,
                    "jobs": resources.get(number, {}).get("jobs", 0),
                    **{name: resources.get(number, {}).get(name) for name in means},
                    **{name: table.get(number, {}) for name, table in counts.items()},
                }
            )
            for number, text in enumerate(view.words)
        ],
    )


def _by_profile(table: pl.DataFrame) -> dict[int, dict[str, int]]:
    """A table of counts by profile: profile -> word -> count."""
    return {row.pop("profile"): row for row in table.iter_rows(named=True)}


def make_view(live: LiveSite, key: str, before: ProfileView | None) -> ProfileView:
    """The view of everybody's jobs, or of one user's."""
    viewer = Viewer("", is_admin=True) if key == EVERYBODY else Viewer(key.removeprefix(_USER), is_admin=False)
    if again(lambda: live.jobs(viewer).select(pl.len()).collect().item()) > AT_ONCE:
        return again(lambda: _view_by_month(live, viewer, before))
    jobs = again(lambda: live.jobs(viewer).select(_NEEDED).collect())
    if jobs.is_empty():
        raise NotEnoughJobsError(
            "The site has no jobs yet." if viewer.is_admin else "You have no jobs here yet.",
            hint="Profiles appear with the first jobs.",
        )
    model, version = _model_of(live)
    return view_of(jobs, model, live.settings, version=version, own_only=not viewer.is_admin)


def _view_by_month(live: LiveSite, viewer: Viewer, before: ProfileView | None) -> ProfileView:
    """The view of more jobs than are read at once."""
    site, settings, now = live.site, live.settings, live.now()

    def read(files: Iterable[Path], within: pl.Expr) -> pl.DataFrame:
        rows = site.jobs.table.scan(sorted(files)).filter(within, viewer.sees(), pl.col("submit_time") < now)
        return rows.select(_NEEDED).collect()

    model, version = _model_of(live)
    same = before is not None and before.version == version
    latest = latest_rows(site, read, AT_ONCE)
    basis = (before.basis if before is not None and same else None) or (find_basis(site, model) if viewer.is_admin else None)
    if basis is None:
        basis = Basis.of(latest, settings)
        if viewer.is_admin:
            keep_basis(site, model, basis)
    done = before.months if before is not None and same else {}
    months = counts_by_month(site, read, model, basis, done, keep=viewer.is_admin)
    names, heat = _heat(latest, model, settings, basis.preparation(settings))
    whole, limits = MonthOfProfiles.together(months.values()), limits_of(settings.jobs)
    return ProfileView(
        words=tuple(model.describe(profile) for profile in range(model.k_)),
        why=_why(model),
        elbow=model.elbow_,
        version=version,
        jobs=whole.totals["jobs"].item(),
        never_started=whole.totals["never_started"].item(),
        labels=whole.label_shares(),
        tables=whole.counts.tables(limits),
        users=whole.counts.users_by_profile(),
        heat_names=names,
        heat=heat,
        limits=limits,
        own_only=not viewer.is_admin,
        basis=basis,
        months=months,
    )


def profile_background() -> Background[ProfileView]:
    """Return what keeps the views of one site, by `scope_of` their viewers."""
    return Background(make_view, rest_s=_REST_S)


def view_of(jobs: pl.DataFrame, model: JobProfiles, settings: Settings, *, version: int | None, own_only: bool) -> ProfileView:
    """The view of some jobs by some profiles."""
    limits, preparation = limits_of(settings.jobs), preparation_for(jobs, settings)
    prepared = prepare(jobs, preparation).frame
    profiled = prepared.with_columns(model.assign(known_requests(prepared)))
    names, heat = _heat(jobs, model, settings, preparation)
    return ProfileView(
        words=tuple(model.describe(profile) for profile in range(model.k_)),
        why=_why(model),
        elbow=model.elbow_,
        version=version,
        jobs=profiled.height,
        never_started=int(jobs.select(never_started().sum()).item()),
        labels=label_distribution(ended_jobs(jobs, settings)),
        tables=ProfileTables.of(profiled, limits),
        users=_users(profiled),
        heat_names=names,
        heat=heat,
        limits=limits,
        own_only=own_only,
    )


def _model_of(live: LiveSite) -> tuple[JobProfiles, int | None]:
    """The profiles of the site's registry; where it has none, those of its jobs, found once."""
    try:
        current = live.site.models.current(PROFILES)
    except ModelError:
        memory = live.memory
        if memory.profiles is None:
            everyone = again(lambda: live.past().select(_NEEDED).tail(AT_ONCE).collect())
            prepared = prepare(everyone, preparation_for(everyone, live.settings))
            memory.profiles = JobProfiles(SUBMIT).fit(prepared.frame)
        return memory.profiles, None
    return JobProfiles.load(live.site.models.verified_folder(PROFILES, current.version)), current.version


def _users(profiled: pl.DataFrame) -> pl.DataFrame:
    """Who runs jobs of each profile, most jobs first."""
    known = profiled.filter(pl.col("profile").is_not_null() & pl.col("user").is_not_null() & (pl.col("user") != UNKNOWN))
    counts = known.group_by("profile", "user").agg(
        pl.len().cast(pl.Int64).alias("jobs"), pl.col("failed").sum().cast(pl.Int64), failed_share=pl.col("failed").mean()
    )
    return counts.sort("profile", "jobs", "user", descending=[False, True, False])


def _heat(
    jobs: pl.DataFrame, model: JobProfiles, settings: Settings, preparation: PreparationSettings
) -> tuple[tuple[str, ...], Floats]:
    """Correlations of the published study's columns with having failed, on the latest ended jobs (Fig. 9)."""
    ended = ended_jobs(jobs, settings).drop_nulls("failed").sort("submit_time").tail(_HEAT_JOBS)
    everyone = prepare(ended.drop("failed"), PreparationSettings(allocation_as_request=preparation.allocation_as_request))
    columns = seed_columns(ended).with_columns(model.assign(known_requests(everyone.frame))).cast(pl.Float32)
    return correlations(columns.to_numpy(), columns.columns, ended["failed"].to_numpy()).top(_HEAT_COLUMNS)


def _why(model: JobProfiles) -> str:
    used = ", ".join(_COLUMN_LABELS.get(name, name) for name in model.columns_used_) or "nothing"
    if model.k_ == 1:
        return f"No division describes these jobs better than a single group. Compared by {used}."
    return f"The distortion bends at {model.k_elbow_}: more profiles would divide what belongs together. Compared by {used}."
