"""A whole site that can be given away: synthetic jobs, the CPU traces of these jobs, and their events, in one folder.

workload frames -> record_whole_site -> FOLDER/feed for `stormpetrel demo FOLDER`, with traces/ and events.log beside it;
write_plain_folder -> the same without a feed: jobs.sacct, traces/, events.log, which `stormpetrel ingest` reads. A feed has
commands in it that name folders of this machine; a plain folder holds no name that was not made up.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import polars as pl

from stormpetrel.errors import StoreNotWritableError
from stormpetrel.private_files import write_private, writing_private
from stormpetrel.records.jobs import JOB_SCHEMA, conform
from stormpetrel.simulate.demo_site import CLUSTER
from stormpetrel.simulate.replay import Machine
from stormpetrel.simulate.workload_events import write_job_events
from stormpetrel.simulate.workload_site import FEED, RecordedSite, record_workload_site
from stormpetrel.simulate.workload_traces import HOURS, TracedSpan, write_job_traces
from stormpetrel.simulate.writing import SACCT_FIELDS, sacct_text

TRACES: Final = "traces"
EVENTS: Final = "events.log"
JOBS: Final = "jobs.sacct"
ABOUT: Final = "README.txt"
ALONGSIDE: Final = (TRACES, "events")  # what can be made beside the jobs
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Alongside:
    """What is made beside the jobs: traces of so many hours on so many nodes, events; drawn by the seed."""

    what: frozenset[str] = frozenset()
    hours: float = HOURS
    nodes: int | None = None
    seed: int = 0


@dataclass(frozen=True, slots=True)
class WholeSite:
    """What was made: the jobs and their machine, and counts of what lies beside them."""

    site: RecordedSite
    counts: dict[str, Any] = field(default_factory=dict)


def record_whole_site(
    folder: Path,
    frames: Iterable[pl.DataFrame],
    beside: Alongside,
    *,
    machine: Machine | None = None,
    progress: Progress | None = None,
) -> WholeSite:
    """Record a workload as the site of `stormpetrel demo FOLDER`, with traces and events up to where its clock stands."""
    site = record_workload_site(folder, frames, machine=machine)
    with _or_nothing(folder):
        return WholeSite(site, _add(folder, site, beside, until=site.now, progress=progress))


def write_plain_folder(
    folder: Path,
    frames: Iterable[pl.DataFrame],
    beside: Alongside,
    *,
    machine: Machine | None = None,
    progress: Progress | None = None,
) -> WholeSite:
    """Write a workload as files for anybody: jobs as `sacct -P` prints them, events and traces up to the last of them."""
    site = record_workload_site(folder, frames, machine=machine)
    with _or_nothing(folder):
        *_, newest = recorded_jobs(folder)
        last: datetime = newest["submit_time"][-1]
        counts = _add(folder, site, beside, until=last, whole=True, progress=progress)
        _write_jobs(folder)
        write_private(folder / ABOUT, _about(counts))
        shutil.rmtree(folder / FEED)
        return WholeSite(site, counts)


def _add(
    folder: Path,
    site: RecordedSite,
    beside: Alongside,
    *,
    until: datetime,
    whole: bool = False,
    progress: Progress | None,
) -> dict[str, Any]:
    """Make what was asked for beside the jobs of a feed; what it came to. `whole`: events to the end of the last job."""
    tell = progress or (lambda _words: None)
    counts: dict[str, Any] = {}
    if TRACES in beside.what:
        tell("CPU traces")
        jobs = pl.concat(recorded_jobs(folder))
        last = _last_work(jobs, until)
        span = TracedSpan(last, site.machine.cores // site.nodes, beside.hours, beside.nodes, beside.seed)
        made = write_job_traces(jobs, folder / TRACES, span)
        first = made.traces[0]
        counts["traces"] = {
            "nodes": len(set(first.nodes)),
            "threads": first.threads,
            "hours": round(span.steps / 3600, 2),
            "jobs": made.threads["job"].n_unique(),
            "until": last.isoformat(),
        }
    if "events" in beside.what:
        tell("events")
        written = write_job_events(recorded_jobs(folder), folder / EVENTS, until=None if whole else until, seed=beside.seed)
        counts["events"] = dict(sorted(written.counts.items()))
    return counts


def _last_work(jobs: pl.DataFrame, until: datetime) -> datetime:
    """The last time, up to another, at which a job ran: on a quiet day there would be nothing to see."""
    ran = jobs.filter(pl.col("start_time") < until, pl.col("end_time") > pl.col("start_time"))
    last = ran["end_time"].max()
    return min(until, last) if isinstance(last, datetime) else until


def recorded_jobs(folder: Path) -> Iterator[pl.DataFrame]:
    """The jobs of a recorded site, in the order of submission."""
    return (conform(pl.read_parquet(path)) for path in sorted((folder / FEED).glob("jobs-[0-9]*.parquet")))


def _write_jobs(folder: Path) -> None:
    names = [name for name, dtype in JOB_SCHEMA.items() if dtype == pl.String]
    with writing_private(folder / JOBS) as out:
        out.write(("|".join(SACCT_FIELDS) + "\n").encode())
        for frame in recorded_jobs(folder):
            # No name may look like the end of its field, or of its line.
            plain = frame.with_columns(pl.col(names).str.replace_all(r"[|\p{Cc}]", "_"))
            out.write(sacct_text(plain, steps=False).encode())


def _about(counts: dict[str, Any]) -> str:
    parts = [f"{JOBS}: jobs as `sacct -P` prints them, times in UTC"]
    commands = [f"stormpetrel init mysite --cluster {CLUSTER} --time-zone UTC", f"stormpetrel --site mysite ingest jobs {JOBS}"]
    if "traces" in counts:
        parts.append(f"{TRACES}/: CPU modes of threads at 1 Hz, and whose job ran on them")
        commands.append(f"stormpetrel --site mysite ingest traces {TRACES}")
    if "events" in counts:
        parts.append(f"{EVENTS}: the same jobs as an HTCondor event log, times in UTC")
        commands.append(f"stormpetrel --site mysite ingest events {EVENTS}")
    about = "A synthetic site. None of these jobs ran anywhere; users, groups, accounts and nodes are made up."
    return "\n".join([about, "", *parts, "", "To take it in:", *(f"  {command}" for command in commands), ""])


@contextmanager
def _or_nothing(folder: Path) -> Iterator[None]:
    """Take away what was made where something goes wrong, also with Ctrl-C: half a site would be taken for a whole one."""
    try:
        yield
    except BaseException as error:
        for name in (FEED, TRACES):
            shutil.rmtree(folder / name, ignore_errors=True)
        for name in (EVENTS, JOBS, ABOUT):
            (folder / name).unlink(missing_ok=True)
        with suppress(OSError):
            folder.rmdir()  # only where nothing is in it
        if isinstance(error, OSError):
            raise StoreNotWritableError(
                f"{folder} cannot be written: {error.strerror or error}.", hint="Check the folder and the room on its disk."
            ) from error
        raise
