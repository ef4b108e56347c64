"""Step 1: jobs of a site, or of any log that Stormpetrel reads.

site folder or log file -> load_jobs -> LoadedJobs: the job frame, and what was known before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import polars as pl

from stormpetrel.config import SITE_FILE, Settings
from stormpetrel.errors import UsageError
from stormpetrel.faces.notebook import markup
from stormpetrel.jobs.predictor import known_by
from stormpetrel.jobs.preparation import PreparationSettings
from stormpetrel.records.job_ref import job_text
from stormpetrel.records.jobs import JOB_SCHEMA
from stormpetrel.records.times import UTC_TIME

if TYPE_CHECKING:
    from stormpetrel.store.site import Site

SiteLike: TypeAlias = "Site | Path | str"
Progress = Callable[[float], None]  # the share that is done, 0 to 1
_SHOWN_ROWS: Final = 5
_GIB: Final = 2**30
_TIMES: Final = ("submit_time", "start_time", "end_time")


def silent(_: float) -> None:
    """A progress report that nobody reads."""


@dataclass(frozen=True, slots=True, repr=False)
class LoadedJobs:
    """Jobs to look at, as they were known at `as_of`; `earlier` are those of the same log that came before them."""

    frame: pl.DataFrame
    as_of: datetime
    source: str
    earlier: pl.DataFrame
    settings: PreparationSettings = field(default_factory=PreparationSettings)
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return self.frame.height

    @property
    def table(self) -> pl.DataFrame:
        """The jobs as people read them: id, name, user, times, state, sizes (memory in GiB, times in the site's zone)."""
        return shown_jobs(self.frame, self.settings.time_zone)

    def summary(self) -> str:
        """How many jobs there are, and of which days."""
        if not self.frame.height:
            return f"There is no job to show in {self.source}."
        first, last = (self.frame.select(time).item() for time in (pl.col("submit_time").min(), pl.col("submit_time").max()))
        users = self.frame["user"].n_unique()
        days = f"submitted {first:%d %B %Y} to {last:%d %B %Y}"
        return f"{self.frame.height:,} jobs of {users:,} users, {days}, from {self.source}."

    def __repr__(self) -> str:
        return self.summary()

    def _repr_html_(self) -> str:
        shown = markup.table(self.table.head(_SHOWN_ROWS), caption=self.summary())
        return markup.page(shown, *(markup.sentence(note, quiet=True) for note in self.notes))


def load_jobs(
    source: SiteLike,
    *,
    last_days: float | None = None,
    format_name: str | None = None,
    time_zone: str = "UTC",
    cluster: str = "",
    progress: Progress = silent,
) -> LoadedJobs:
    """Jobs of a site (its folder) or of a log file (sacct, SWF, PBS, HTCondor, …), those of the last days only where asked.

    The last day is the site's now, or the last thing that the log tells. `time_zone` and `cluster` are for logs that do not say.
    Time and memory grow with the jobs that are read: a site reads only the months it needs (28,000 jobs: 0.1 s, 25 MB), a log is
    read whole (85,000 lines of sacct, which are 28,000 jobs and their steps: 0.5 s, 60 MB).
    """
    if last_days is not None and not last_days > 0:
        raise UsageError(f"last_days is {last_days}; it must be above 0.", hint="Leave it out to load everything.")
    if not isinstance(source, str | Path) or (Path(source).expanduser() / SITE_FILE).exists():
        return _from_site(source, last_days, progress)
    path = Path(source).expanduser()
    if path.is_dir():
        raise UsageError(
            f"{path} is a folder, but no site: there is no {SITE_FILE} in it.", hint="Name a site's folder, or a log file."
        )
    from stormpetrel.sources.formats import ReadOptions
    from stormpetrel.sources.reading import read_log

    size = max(1, path.stat().st_size) if path.is_file() else 1
    log = read_log(
        [str(path)],
        format_name,
        ReadOptions(time_zone=time_zone, cluster=cluster),
        progress=lambda bytes_done, _count: progress(min(1.0, bytes_done / size)),
    )
    progress(1.0)
    as_of = last_moment(log.jobs)
    recent, earlier = _split(log.jobs, as_of, last_days)
    refused = [f"{count:,} records were refused ({rule})." for rule, count in log.refused.items()]
    return LoadedJobs(recent, as_of, path.name, earlier, PreparationSettings(time_zone=time_zone), (*refused, *log.notes))


def as_loaded(jobs: LoadedJobs | pl.DataFrame) -> LoadedJobs:
    """Jobs that may have been loaded, or be a job frame of somebody's own making."""
    if isinstance(jobs, LoadedJobs):
        return jobs
    missing = [name for name in ("cluster", "job_id", "submit_time", "state") if name not in jobs.columns]
    if missing:
        raise UsageError(
            f"These are no jobs: the column '{missing[0]}' is missing. Found: {', '.join(jobs.columns[:8])}.",
            hint="Pass what load_jobs gave, or some rows of its frame.",
        )
    return LoadedJobs(jobs, last_moment(jobs), "a job frame", jobs.clear())


@contextmanager
def opened(site: SiteLike) -> Iterator[Site]:
    """A site by its folder, closed afterwards; one that is open already stays so."""
    from stormpetrel.store.site import open_site

    if not isinstance(site, str | Path):
        yield site
        return
    with open_site(Path(site).expanduser()) as fresh:
        yield fresh


def last_moment(jobs: pl.DataFrame) -> datetime:
    """Just after the last thing that a log tells."""
    last = jobs.select(pl.max_horizontal(pl.col(_TIMES).max())).item() if jobs.height else None
    if not isinstance(last, datetime):
        return datetime.fromisoformat("1970-01-01T00:00:00+00:00")
    return last + timedelta(seconds=1)


def shown_jobs(jobs: pl.DataFrame, time_zone: str) -> pl.DataFrame:
    """The columns that a person looks at first, under the names that the literature gives them."""
    local = {name: pl.col(name).dt.convert_time_zone(time_zone) for name in _TIMES}
    exits = pl.concat_str(pl.col("exit_code"), pl.lit(":"), pl.col("exit_signal").fill_null(0))
    return jobs.select(
        job_id=job_text(),
        job_name="job_name",
        user_id=pl.coalesce("user", pl.col("uid").cast(pl.String)),
        start_time=local["start_time"],
        end_time=local["end_time"],
        state_jobs="state",
        exit_code=exits,
        gid="gid",
        submit=local["submit_time"],
        cpulimit="cpu_limit_s",
        cpu="cpus",
        mem=(pl.col("mem_bytes") / _GIB).round_sig_figs(3),
        node="nodes",
    )


def _from_site(site: SiteLike, last_days: float | None, progress: Progress) -> LoadedJobs:
    with opened(site) as open_one:
        now = open_one.now()
        since = None if last_days is None else now - timedelta(days=last_days)
        jobs = open_one.jobs.read_jobs(since=since, until=now + timedelta(seconds=1)).collect()
        settings, name = open_one.settings, open_one.settings.site.name
    progress(1.0)
    return LoadedJobs(
        known_by(jobs, now).sort("submit_time", "job_id", "array_task", maintain_order=True),
        now,
        name,
        pl.DataFrame(schema=JOB_SCHEMA),  # the model reads them from the site
        _preparation(settings),
    )


def _preparation(settings: Settings) -> PreparationSettings:
    section = settings.jobs
    return PreparationSettings(
        missing=section.missing,
        min_run_s=section.min_run_s or None,
        time_zone=settings.site.time_zone,
        failure_states=tuple(section.failure_states),
        dropped_states=tuple(section.dropped_states),
    )


def _split(jobs: pl.DataFrame, as_of: datetime, last_days: float | None) -> tuple[pl.DataFrame, pl.DataFrame]:
    if last_days is None:
        return jobs, jobs.clear()
    recent = pl.col("submit_time") >= pl.lit(as_of - timedelta(days=last_days), dtype=UTC_TIME)
    return jobs.filter(recent), jobs.filter(~recent)
