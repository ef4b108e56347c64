"""Step 1: jobs of a site, or of any log that Stormpetrel reads.

site folder or log file -> load_jobs -> LoadedJobs: the job frame, and what was known before it.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from stormpetrel.answers.jobs.selection import JobSelection, Progress, SiteLike, select_jobs, selection_of, silent
from stormpetrel.answers.viewer import LOCAL
from stormpetrel.faces.notebook import markup
from stormpetrel.records.jobs import job_text

_SHOWN_ROWS: Final = 5
_GIB: Final = 2**30
_TIMES: Final = ("submit_time", "start_time", "end_time")


class LoadedJobs(JobSelection):
    """Jobs to look at, as they were known at `as_of`; `earlier` are those of the same log that came before them."""

    __slots__ = ()

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

    The last day is the site's now, or the last thing that the log records. `time_zone` and `cluster` are for logs without them.
    Time and memory grow with the jobs that are read: a site reads only the months it needs (28,000 jobs: 0.1 s, 25 MB), a log is
    read whole (85,000 lines of sacct, which are 28,000 jobs and their steps: 0.5 s, 60 MB).
    """
    selection = select_jobs(
        source,
        LOCAL,
        last_days=last_days,
        format_name=format_name,
        time_zone=time_zone,
        cluster=cluster,
        progress=progress,
    )
    return _shown(selection)


def as_loaded(jobs: JobSelection | pl.DataFrame) -> LoadedJobs:
    """Jobs that may have been loaded, or be a job frame of somebody's own making."""
    if isinstance(jobs, LoadedJobs):
        return jobs
    return _shown(jobs if isinstance(jobs, JobSelection) else selection_of(jobs))


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


def _shown(jobs: JobSelection) -> LoadedJobs:
    """A selection that shows itself in a notebook."""
    return LoadedJobs(jobs.frame, jobs.as_of, jobs.source, jobs.earlier, jobs.settings, jobs.notes)
