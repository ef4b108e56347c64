"""The jobs that a study works on, wherever they were read from.

Site + Viewer -> jobs_of_site -> JobInput; log files -> jobs_of_files -> JobInput: whoever has a log may read all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

import polars as pl

from stormpetrel.config import Settings
from stormpetrel.errors import NotEnoughJobsError

if TYPE_CHECKING:
    from stormpetrel.answers.viewer import Viewer
    from stormpetrel.config import JobsSection
    from stormpetrel.jobs.training import TrainingSettings
    from stormpetrel.store.site import Site


@dataclass(frozen=True, slots=True)
class JobInput:
    """The jobs to work on, and what counts as what."""

    jobs: pl.DataFrame
    section: JobsSection
    time_zone: str
    notes: tuple[str, ...] = ()

    def since(self, moment: datetime) -> JobInput:
        """The same without jobs that were submitted before."""
        return replace(self, jobs=self.jobs.filter(pl.col("submit_time") >= moment))

    def training(self) -> TrainingSettings:
        """The same as the settings of a training."""
        from stormpetrel.lifecycle.job_settings import training_of

        return training_of(self.section, self.time_zone)


def jobs_of_site(site: Site, viewer: Viewer) -> JobInput:
    """Return the jobs of a site that the viewer may see, with its settings; NotEnoughJobsError where there are none."""
    visible = viewer.sees()
    jobs = site.jobs.read_jobs().filter(visible).collect()
    if not jobs.height:
        raise NotEnoughJobsError("The site has no jobs yet.", hint="Run: stormpetrel ingest jobs --live, or name files.")
    return JobInput(jobs, site.settings.jobs, site.settings.site.time_zone)


def jobs_of_files(
    files: Sequence[str],
    format_name: str | None = None,
    fields: Sequence[str] | None = None,
    *,
    progress: Callable[[int, int], None] = lambda _done, _count: None,
) -> JobInput:
    """Return the jobs of log files, with the settings that a site begins with; notes say what was refused."""
    from stormpetrel.sources.formats import ReadOptions
    from stormpetrel.sources.reading import read_log

    log = read_log(files, format_name, ReadOptions(fields=fields), progress=progress)
    refused = (f"{count:,} records were refused: {rule}" for rule, count in log.refused.items())
    settings = Settings()
    return JobInput(log.jobs, settings.jobs, settings.site.time_zone, (*log.notes, *refused))
