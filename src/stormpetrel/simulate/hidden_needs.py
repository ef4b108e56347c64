"""What a submitted job will need: what the same work needed in the recording, which nobody on the site can see.

recorded jobs, (user, job name) -> HiddenNeeds.of -> Need. The same user and the same name are the same work and need the same
each time, so that more memory or time helps exactly where the want of it was the cause, and a broken program stays broken.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

import polars as pl

from stormpetrel.private_files import writing_private
from stormpetrel.records.states import DEFAULT_FAILURE_STATES, JobState
from stormpetrel.simulate.arrivals import NEVER
from stormpetrel.simulate.cluster import ended_jobs
from stormpetrel.simulate.feed import Feed
from stormpetrel.simulate.population import Population
from stormpetrel.simulate.spec import ClusterSpec

_CACHE: Final = "needs.parquet"
_ALIKE: Final = 100  # so many of the latest jobs alike may lend a job their needs
_TOO_SMALL: Final = 1.2  # what was not enough, times this: the median of simulated jobs is 1.17 for memory, 1.22 for time
_SPEED_UP: Final = 0.8  # twice the cores make a run shorter by 2 to this power, as in arrivals.py
_MIB: Final = 1 << 20
_FAILURES: Final = [state.value for state in DEFAULT_FAILURE_STATES]

Job = dict[str, Any]  # a row of the recorded jobs


class Work(NamedTuple):
    """Whose work is submitted under which name, and what it asks for: memory of the whole job, and time."""

    user: str
    job_name: str
    mem_bytes: int
    limit_s: int
    tasks: Sequence[int] = ()


class Need(NamedTuple):
    """What a job needs: so many seconds on so many CPUs, memory of each node; when it crashes, or `NEVER`."""

    application: int
    cpus: int
    run_s: int
    mem_mib: int
    crash_s: int

    def on(self, cpus: int) -> Need:
        """The same work on another number of CPUs."""
        return self._replace(cpus=cpus, run_s=max(1, round(self.run_s * (self.cpus / cpus) ** _SPEED_UP)))


class HiddenNeeds:
    """The needs of recorded jobs: known where the feed keeps the spec it was made from, guessed from accounting elsewhere."""

    def __init__(self, feed: Feed, known: pl.DataFrame, population: Population, *, seed: int) -> None:
        self._true = _true_needs(feed.folder, feed.spec, population) if feed.spec else None
        named = known.with_columns(application=pl.col("job_name").str.split("-").list.first()).sort("submit_time", "job_id_raw")
        self._submitted = named.filter("submitted")
        self._ran = named.filter(~pl.col("submitted"), pl.col("start_time").is_not_null())
        self._applications = {application.name: number for number, application in enumerate(population.applications)}
        self._seed = seed

    def of(self, work: Work, *, now: datetime) -> list[Need]:
        """What a piece of work needs: one Need, or one for each task of an array; [] if nothing has ended yet."""
        again = None if work.tasks else self._failed_before(work, now)
        models = [again] if again else self._drawn(work, now)
        return [self._guessed(model, now) if self._true is None else self._truly(model) for model in models]

    def _failed_before(self, work: Work, now: datetime) -> Job | None:
        """The job that failed and is now submitted again: the latest of this user and name that did.

        Who asks for more memory (time) than last time means the latest that ran out of it. A crash is mended once a job of that
        name has completed since. A user whom the recording does not know is taken for whoever's job of that name it was.
        """
        is_stranger = not self._ran.select((pl.col("user") == work.user).any()).item()
        own = pl.lit(True) if is_stranger else pl.col("user") == work.user
        named = self._past(now).filter(own, pl.col("job_name") == work.job_name)
        state = pl.col("state")
        short_of = {
            JobState.OUT_OF_MEMORY: (pl.col("mem_bytes"), work.mem_bytes),
            JobState.TIMEOUT: (pl.col("time_limit_s"), work.limit_s),
        }
        for shortage, (column, requested) in short_of.items():
            short = named.filter(state == shortage.value, column < requested)
            if short.height and named.select(column.last() < requested).item():
                return short.row(-1, named=True)
        unmended = (state == JobState.COMPLETED.value).cum_sum(reverse=True) == 0
        failed = state.is_in(_FAILURES) & (unmended | state.is_in(list(short_of)))
        matches = named.filter(failed)
        return matches.row(-1, named=True) if matches.height else None

    def _drawn(self, work: Work, now: datetime) -> list[Job]:
        """For each task a job out of the latest that are alike; the same ones each time the same work is submitted."""
        same = (pl.col("user") == work.user) & (pl.col("job_name") == work.job_name)
        first = self._submitted.filter(same)["submit_time"].min()
        past = self._past(first if isinstance(first, datetime) else now)  # a second submission must not draw anew
        matches = (past.filter(alike).tail(_ALIKE) for alike in _alike(work.user, work.job_name))
        jobs = next((rows.rows(named=True) for rows in matches if rows.height), None)
        seed = f"{self._seed}/submitted/{work.user}/{work.job_name}"
        return [Random(f"{seed}/{task}").choice(jobs) for task in work.tasks or (0,)] if jobs else []  # noqa: S311 - no secret

    def _past(self, until: datetime) -> pl.DataFrame:
        """The recorded jobs that had run and ended by then, in the order of their submission."""
        return self._ran.filter(pl.col("end_time") <= until)

    def _truly(self, model: Job) -> Need:
        assert self._true is not None
        return Need(*self._true.row(by_predicate=pl.col("job_id_raw") == model["job_id_raw"])[1:])

    def _guessed(self, model: Job, now: datetime) -> Need:
        """What a completed job alike needed, and more than the model asked for where that was not enough."""
        done = self._past(now).filter(pl.col("state") == JobState.COMPLETED.value)
        matches = (done.filter(alike).tail(1) for alike in _alike(model["user"], model["job_name"]))
        base = next((rows.row(0, named=True) for rows in matches if rows.height), model)
        base = model if model["state"] == JobState.COMPLETED else base
        application = self._applications.get(base["application"], 0)
        need = Need(application, base["cpus"], max(1, int(base["elapsed_s"])), _mib(base, "max_rss_bytes"), NEVER)
        need = need.on(model["cpus"])
        if model["state"] == JobState.OUT_OF_MEMORY:
            requested_mib = _mib(model, "mem_bytes") // model["nodes"]
            mem_mib = max(need.mem_mib, round(requested_mib * _TOO_SMALL))
            # Memory fills up along the run (outcomes.py), so that the run that was cut off tells how long a whole one takes.
            return need._replace(mem_mib=mem_mib, run_s=max(need.run_s, round(model["elapsed_s"] * mem_mib / requested_mib)))
        if model["state"] == JobState.TIMEOUT:
            return need._replace(run_s=max(need.run_s, round(model["time_limit_s"] * _TOO_SMALL)))
        if model["state"] == JobState.FAILED:
            return need._replace(crash_s=max(1, int(model["elapsed_s"])))
        return need


def _alike(user: str, job_name: str) -> Iterator[pl.Expr]:
    """Which jobs are alike, the closest first: `align-30` is the application `align`, as the simulated users name their work."""
    application = pl.col("application") == job_name.partition("-")[0]
    own = pl.col("user") == user
    yield own & (pl.col("job_name") == job_name)
    yield own & application
    yield application
    yield own
    yield pl.lit(True)


def _mib(job: Job, column: str) -> int:
    return max(1, -(-(job[column] or 0) // _MIB))


def _true_needs(folder: Path, spec: ClusterSpec, population: Population) -> pl.DataFrame:
    """The needs of all recorded jobs, simulated again the first time they are asked for."""
    kept = folder / _CACHE
    if not kept.exists():
        rows = []
        for job in ended_jobs(spec, population):
            submission = job.submission
            cpus = submission.nodes * spec.cores_per_node or submission.cores
            rows.append((job.raw_id, submission.application, cpus, submission.need_s, submission.need_mib, submission.crash_s))
        with writing_private(kept) as file:
            pl.DataFrame(rows, schema=["job_id_raw", *Need._fields], orient="row").write_parquet(file)
    return pl.read_parquet(kept)
