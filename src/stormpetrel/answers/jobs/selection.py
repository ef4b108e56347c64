"""Jobs that somebody has picked out to have them judged: of a site, or of any log that Stormpetrel reads.

site folder or log file + Viewer -> select_jobs -> JobSelection -> prepare_selection -> PreparedSelection. Both hold frames, since
every row of them goes into the next step: what is said about the jobs is a model, that of a single job or forecast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import polars as pl

from stormpetrel.answers.viewer import READ
from stormpetrel.config import SITE_FILE
from stormpetrel.errors import UsageError
from stormpetrel.jobs.predictor import known_by
from stormpetrel.jobs.preparation import PreparationSettings, Prepared, prepare
from stormpetrel.lifecycle.job_models import preparation_of
from stormpetrel.records.jobs import JOB_SCHEMA, KEY
from stormpetrel.records.times import UTC_TIME
from stormpetrel.sources.formats import ReadOptions
from stormpetrel.sources.reading import read_log
from stormpetrel.store.site import open_site

if TYPE_CHECKING:
    from stormpetrel.answers.viewer import Viewer
    from stormpetrel.store.site import Site

SiteLike: TypeAlias = "Site | Path | str"
Progress = Callable[[float], None]  # the share that is done, 0 to 1
_TIMES: Final = ("submit_time", "start_time", "end_time")


def silent(_: float) -> None:
    """A progress report that nobody reads."""


@dataclass(frozen=True, slots=True, repr=False)
class JobSelection:
    """Jobs to look at, as they were known at `as_of`; `earlier` are those of the same log that came before them."""

    frame: pl.DataFrame
    as_of: datetime
    source: str
    earlier: pl.DataFrame
    settings: PreparationSettings = field(default_factory=PreparationSettings)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class PreparedSelection:
    """The prepared jobs of a selection, what was done to them, and the records that are left (`kept`)."""

    kept: pl.DataFrame
    prepared: Prepared


def select_jobs(
    source: SiteLike,
    viewer: Viewer,
    *,
    last_days: float | None = None,
    format_name: str | None = None,
    time_zone: str = "UTC",
    cluster: str = "",
    progress: Progress = silent,
) -> JobSelection:
    """Return the jobs of a site that the viewer may see, or those of a log file, of the last days only where asked.

    The last day is the site's now, or the last thing that the log records. `time_zone` and `cluster` are for logs without them.
    """
    viewer.require(READ)
    if last_days is not None and not last_days > 0:
        raise UsageError(f"last_days is {last_days}; it must be above 0.", hint="Leave it out to load everything.")
    if not isinstance(source, str | Path) or (Path(source).expanduser() / SITE_FILE).exists():
        return _of_site(source, viewer, last_days, progress)
    path = Path(source).expanduser()
    if path.is_dir():
        raise UsageError(
            f"{path} is a folder, but no site: there is no {SITE_FILE} in it.", hint="Name a site's folder, or a log file."
        )

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
    return JobSelection(recent, as_of, path.name, earlier, PreparationSettings(time_zone=time_zone), (*refused, *log.notes))


def selection_of(jobs: pl.DataFrame) -> JobSelection:
    """Return a job frame of somebody's own making as a selection; UsageError where a column of the key is missing."""
    missing = [name for name in ("cluster", "job_id", "submit_time", "state") if name not in jobs.columns]
    if missing:
        raise UsageError(
            f"These are no jobs: the column '{missing[0]}' is missing. Found: {', '.join(jobs.columns[:8])}.",
            hint="Pass what load_jobs gave, or some rows of its frame.",
        )
    return JobSelection(jobs, last_moment(jobs), "a job frame", jobs.clear())


def prepare_selection(
    selection: JobSelection, *, missing: Literal["impute", "drop"] | None = None, min_run_s: float | None = None
) -> PreparedSelection:
    """Return the jobs with run and wait time, sizes and calendar worked out; what is dropped or filled in is counted.

    Left out, `missing` and `min_run_s` are as the site says (jobs.missing, jobs.min_run_s).
    """
    settings = replace(
        selection.settings,
        missing=missing or selection.settings.missing,
        min_run_s=selection.settings.min_run_s if min_run_s is None else (min_run_s or None),
    )
    prepared = prepare(selection.frame, settings)
    kept = selection.frame.join(
        prepared.frame.select(KEY).unique(), on=list(KEY), how="semi", nulls_equal=True, maintain_order="left"
    )
    return PreparedSelection(kept, prepared)


@contextmanager
def opened(site: SiteLike) -> Iterator[Site]:
    """A site by its folder, closed afterwards; one that is open already stays so."""
    if not isinstance(site, str | Path):
        yield site
        return
    with open_site(Path(site).expanduser()) as fresh:
        yield fresh


def last_moment(jobs: pl.DataFrame) -> datetime:
    """Return the second after the last thing that a log records; 1970 where it tells nothing."""
    last = jobs.select(pl.max_horizontal(pl.col(_TIMES).max())).item() if jobs.height else None
    if not isinstance(last, datetime):
        return datetime.fromisoformat("1970-01-01T00:00:00+00:00")
    return last + timedelta(seconds=1)


def _of_site(source: SiteLike, viewer: Viewer, last_days: float | None, progress: Progress) -> JobSelection:
    with opened(source) as site:
        now = site.now()
        since = None if last_days is None else now - timedelta(days=last_days)
        jobs = site.jobs.read_jobs(since=since, until=now + timedelta(seconds=1)).filter(viewer.sees()).collect()
        settings, name = site.settings, site.settings.site.name
    progress(1.0)
    return JobSelection(
        known_by(jobs, now).sort("submit_time", "job_id", "array_task", maintain_order=True),
        now,
        name,
        pl.DataFrame(schema=JOB_SCHEMA),  # the model reads them from the site
        preparation_of(settings.jobs, settings.site.time_zone),
    )


def _split(jobs: pl.DataFrame, as_of: datetime, last_days: float | None) -> tuple[pl.DataFrame, pl.DataFrame]:
    if last_days is None:
        return jobs, jobs.clear()
    recent = pl.col("submit_time") >= pl.lit(as_of - timedelta(days=last_days), dtype=UTC_TIME)
    return jobs.filter(recent), jobs.filter(~recent)
