"""A synthetic site in a folder, to try or to give away: its jobs, the CPU traces of these jobs, and their events.

workload frames -> record_workload_site -> FOLDER/feed: the jobs get waits, nodes and a clock, and are read through a `sacct`; the
clock stands where three quarters of the jobs are past, the others come as it runs. record_whole_site -> the same for
`stormpetrel demo FOLDER`, with traces/ and events.log; write_plain_folder -> jobs.sacct, traces/ and events.log without a feed,
which `stormpetrel ingest` reads. A feed contains commands with paths of this machine; a plain folder has invented names only.
"""

from __future__ import annotations

import heapq
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from stormpetrel.errors import NotEnoughJobsError, StoreNotWritableError, UsageError
from stormpetrel.private_files import write_private, writing_private
from stormpetrel.records.arrays import Ints
from stormpetrel.records.jobs import JOB_SCHEMA, conform
from stormpetrel.records.times import fixed_clock
from stormpetrel.records.workload_columns import SUBMIT, WAIT
from stormpetrel.simulate.demo_site import CLUSTER
from stormpetrel.simulate.feed import record_feed, write_fake_sacct
from stormpetrel.simulate.frames import FrameMaker
from stormpetrel.simulate.population import make_population
from stormpetrel.simulate.replay import Machine, machine_of, replay
from stormpetrel.simulate.spec import ClusterSpec
from stormpetrel.simulate.submitting import write_fake_sbatch, write_fake_scancel
from stormpetrel.simulate.writing import SACCT_FIELDS, sacct_text
from stormpetrel.synth.writers.event_log import write_job_events
from stormpetrel.synth.writers.job_records import JobFrames
from stormpetrel.synth.writers.traces import HOURS, TracedSpan, write_job_traces

FEED: Final = "feed"
MOST_JOBS: Final = 2_000_000  # all of them are in memory while nodes are found for them: some 400 bytes each
MOST_NODES: Final = 10_000
_FIRST_ID: Final = 100_001
_CHUNK: Final = 20_000
_PAST: Final = 0.75
_USUAL_CORES: Final = 32  # of a node, where the jobs do not tell


@dataclass(frozen=True, slots=True)
class RecordedSite:
    """What was recorded: how many jobs, on which machine of how many nodes, and where its clock stands."""

    jobs: int
    machine: Machine
    nodes: int
    now: datetime


def record_workload_site(
    folder: Path,
    frames: Iterable[pl.DataFrame],
    *,
    machine: Machine | None = None,
    now: datetime | None = None,
    progress: Callable[[int], None] | None = None,
) -> RecordedSite:
    """Record a workload as the site of `stormpetrel demo FOLDER`, whole or not at all.

    `machine` is the one that fits the jobs unless it is named; its cores are filled up to whole nodes. `now` is where the clock
    begins. UsageError where something is in the folder already.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} is there already.", hint="Name a folder that is new, or empty.")
    jobs = _in_whole_seconds(_together(frames))
    each = cores_of_a_node(jobs, machine)
    machine = machine or machine_of(jobs)
    nodes = -(-machine.cores // each)
    machine = Machine(nodes * each, machine.gpus)
    placed = replay(jobs, machine)
    held = places(placed, nodes, each)
    whole = placed.with_columns(
        pl.Series("nodes", [len(nodes_held) for nodes_held in held], dtype=pl.Int64),
        pl.Series("_places", _node_lists(held, nodes), dtype=pl.String),
    )
    first, last = jobs[SUBMIT][0], jobs[SUBMIT][-1]
    now = (now or first + (last - first) * _PAST).astimezone(UTC).replace(microsecond=0)
    _record(folder, _job_frames(whole, progress), now)
    return RecordedSite(jobs.height, machine, nodes, now)


def cores_of_a_node(jobs: pl.DataFrame, machine: Machine | None = None) -> int:
    """How many cores a node has: as jobs on whole nodes tell, or what is usual; as many as keep the nodes countable."""
    cores = (machine or machine_of(jobs)).cores
    per_node = None
    if {"cores", "nodes"} <= set(jobs.columns):
        per_node = jobs.select((pl.col("cores") / pl.col("nodes").clip(1)).quantile(0.95)).item()
    each = max(1, min(cores, int(per_node or _USUAL_CORES)))
    return max(each, -(-cores // MOST_NODES))


def places(jobs: pl.DataFrame, nodes: int, each: int) -> list[list[int]]:
    """The nodes of every job, in the order of the jobs: the fullest node with room, or else those that are emptiest.

    The scheduler counts the cores of the whole machine; where no single node has room left, a job is spread over several.
    """
    start = (jobs[SUBMIT].dt.epoch("s") + jobs[WAIT].round().cast(pl.Int64)).to_numpy()
    run_s = jobs["runtime_s"].fill_null(0.0).cast(pl.Int64).to_numpy() if "runtime_s" in jobs.columns else np.zeros_like(start)
    size = next((name for name in ("cores", "nodes") if name in jobs.columns), None)
    cores = jobs[size].fill_null(1).clip(1, nodes * each).to_numpy() if size else np.ones_like(start)
    free = np.full(nodes, each, dtype=np.int64)  # (nodes,) cores that nobody holds
    places_of: dict[int, list[int]] = {}
    ends: list[tuple[int, int, Ints, Ints]] = []
    for job in np.lexsort((np.arange(start.size), start)).tolist():
        while ends and ends[0][0] <= start[job]:
            _, _, where, taken = heapq.heappop(ends)
            free[where] += taken
        where, taken = _room(free, int(cores[job]))
        places_of[job] = where.tolist()
        if run_s[job] > 0:  # who ends at once holds nothing
            free[where] -= taken
            heapq.heappush(ends, (int(start[job] + run_s[job]), job, where, taken))
    return [places_of[job] for job in range(start.size)]


def _room(free: Ints, cores: int) -> tuple[Ints, Ints]:
    """Nodes for a job, and how many cores it takes of each."""
    fitting = np.flatnonzero(free >= cores)
    if fitting.size:
        best = fitting[free[fitting].argmin()]
        return np.array([best]), np.array([cores])
    emptiest = np.argsort(-free, kind="stable")
    before = np.cumsum(free[emptiest]) - free[emptiest]  # (nodes,) cores on the nodes taken before this one
    where = emptiest[(before < cores) & (free[emptiest] > 0)]
    taken = np.minimum(free[where], cores - before[: where.size])
    return (where, taken) if where.size else (emptiest[:1], np.zeros(1, dtype=np.int64))


def _node_lists(held: list[list[int]], nodes: int) -> list[str | None]:
    """As the simulated cluster names its nodes: what is submitted to the site later runs on the same ones."""
    spec = ClusterSpec(name=CLUSTER, nodes=nodes)
    maker = FrameMaker(spec, make_population(spec, spec.seed))
    return [maker.node_list(nodes_held) for nodes_held in held]


def _together(frames: Iterable[pl.DataFrame]) -> pl.DataFrame:
    kept, height = [], 0
    for frame in frames:
        kept.append(frame)
        height += frame.height
        if height > MOST_JOBS:
            raise UsageError(f"A site of more than {MOST_JOBS:,} jobs is not recorded.", hint="Ask for fewer jobs or days.")
    if not height:
        raise NotEnoughJobsError("There is no job to make a site of.", hint="Ask for some.")
    return pl.concat(kept).sort(SUBMIT, maintain_order=True)


def _in_whole_seconds(jobs: pl.DataFrame) -> pl.DataFrame:
    """As accounting tells times: nodes are shared out by the same seconds that are shown."""
    spans = [pl.col(name).round() for name in ("time_limit_s", "runtime_s") if name in jobs.columns]
    return jobs.with_columns(pl.col(SUBMIT).dt.truncate("1s"), *spans)


def _job_frames(jobs: pl.DataFrame, progress: Callable[[int], None] | None) -> Iterator[pl.DataFrame]:
    accounting = JobFrames(CLUSTER, first_id=_FIRST_ID)
    for at in range(0, jobs.height, _CHUNK):
        part = jobs[at : at + _CHUNK]
        frame = accounting.frame(part.drop("_places")).with_columns(node_list=part["_places"])
        yield frame.with_columns(node_list=pl.when(pl.col("start_time").is_not_null()).then("node_list"))
        if progress is not None:
            progress(at + part.height)


def _record(folder: Path, frames: Iterator[pl.DataFrame], now: datetime) -> None:
    """Write the feed under another name and rename it: half a feed would be taken for none."""
    fresh: Path | None = None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(dir=folder, prefix=f".{FEED}."))
        record_feed(frames, fresh, fixed_clock(now))
        fresh.replace(folder / FEED)
        for write in (write_fake_sbatch, write_fake_scancel, write_fake_sacct):
            write(folder / FEED)
    except OSError as error:
        raise StoreNotWritableError(
            f"{folder} cannot be written: {error.strerror or error}.", hint="Check the folder and the room on its disk."
        ) from error
    finally:
        if fresh is not None:
            shutil.rmtree(fresh, ignore_errors=True)
        with suppress(OSError):
            folder.rmdir()  # only where nothing is in it


TRACES: Final = "traces"
EVENTS: Final = "events.log"
JOBS: Final = "jobs.sacct"
ABOUT: Final = "README.txt"
ALONGSIDE: Final = (TRACES, "events")  # what can be generated along with the jobs
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Alongside:
    """What is generated along with the jobs: traces of so many hours on so many nodes, events; drawn by the seed."""

    what: frozenset[str] = frozenset()
    hours: float = HOURS
    nodes: int | None = None
    seed: int = 0


@dataclass(frozen=True, slots=True)
class WholeSite:
    """The result: the jobs and their machine, and counts of what was generated with them."""

    site: RecordedSite
    counts: dict[str, Any] = field(default_factory=dict)


def record_whole_site(
    folder: Path,
    frames: Iterable[pl.DataFrame],
    extras: Alongside,
    *,
    machine: Machine | None = None,
    progress: Progress | None = None,
) -> WholeSite:
    """Record a workload as the site of `stormpetrel demo FOLDER`, with traces and events up to where its clock stands."""
    site = record_workload_site(folder, frames, machine=machine)
    with _or_nothing(folder):
        return WholeSite(site, _add(folder, site, extras, until=site.now, progress=progress))


def write_plain_folder(
    folder: Path,
    frames: Iterable[pl.DataFrame],
    extras: Alongside,
    *,
    machine: Machine | None = None,
    progress: Progress | None = None,
) -> WholeSite:
    """Write a workload as files for anybody: jobs as `sacct -P` prints them, events and traces up to the last of them."""
    site = record_workload_site(folder, frames, machine=machine)
    with _or_nothing(folder):
        *_, newest = recorded_jobs(folder)
        last: datetime = newest["submit_time"][-1]
        counts = _add(folder, site, extras, until=last, whole=True, progress=progress)
        _write_jobs(folder)
        write_private(folder / ABOUT, _about(counts))
        shutil.rmtree(folder / FEED)
        return WholeSite(site, counts)


def _add(
    folder: Path,
    site: RecordedSite,
    extras: Alongside,
    *,
    until: datetime,
    whole: bool = False,
    progress: Progress | None,
) -> dict[str, Any]:
    """Generate what was requested along with the jobs of a feed; counts. `whole`: events to the end of the last job."""
    tell = progress or (lambda _words: None)
    counts: dict[str, Any] = {}
    if TRACES in extras.what:
        tell("CPU traces")
        jobs = pl.concat(recorded_jobs(folder))
        last = _last_work(jobs, until)
        span = TracedSpan(last, site.machine.cores // site.nodes, extras.hours, extras.nodes, extras.seed)
        traced = write_job_traces(jobs, folder / TRACES, span)
        first = traced.traces[0]
        counts["traces"] = {
            "nodes": len(set(first.nodes)),
            "threads": first.threads,
            "hours": round(span.steps / 3600, 2),
            "jobs": traced.threads["job"].n_unique(),
            "until": last.isoformat(),
        }
    if "events" in extras.what:
        tell("events")
        written = write_job_events(recorded_jobs(folder), folder / EVENTS, until=None if whole else until, seed=extras.seed)
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
