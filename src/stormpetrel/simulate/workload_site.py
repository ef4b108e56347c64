"""A workload as a site that `stormpetrel demo` runs: its jobs get waits, nodes and a clock, and are read through a `sacct`.

workload frames -> record_workload_site -> FOLDER/feed (see feed.py). The clock stands where three quarters of the jobs are past;
the others come as it runs.
"""

from __future__ import annotations

import heapq
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stormpetrel.errors import NotEnoughJobsError, StoreNotWritableError, UsageError
from stormpetrel.records.clock import fixed_clock
from stormpetrel.records.workload_columns import SUBMIT, WAIT
from stormpetrel.simulate.demo_site import CLUSTER
from stormpetrel.simulate.feed import record_feed, write_fake_sacct
from stormpetrel.simulate.frames import FrameMaker
from stormpetrel.simulate.population import make_population
from stormpetrel.simulate.replay import Machine, machine_of, replay
from stormpetrel.simulate.spec import ClusterSpec
from stormpetrel.simulate.submitting import write_fake_sbatch, write_fake_scancel
from stormpetrel.simulate.workload_jobs import JobFrames

FEED: Final = "feed"
MOST_JOBS: Final = 2_000_000  # all of them are in memory while nodes are found for them: some 400 bytes each
MOST_NODES: Final = 10_000
_FIRST_ID: Final = 100_001
_CHUNK: Final = 20_000
_PAST: Final = 0.75
_USUAL_CORES: Final = 32  # of a node, where the jobs do not tell
Ints = NDArray[np.int64]


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
        pl.Series("nodes", [len(found) for found in held], dtype=pl.Int64),
        pl.Series("_places", _node_lists(held, nodes), dtype=pl.String),
    )
    first, last = jobs[SUBMIT][0], jobs[SUBMIT][-1]
    now = (now or first + (last - first) * _PAST).astimezone(UTC).replace(microsecond=0)
    _record(folder, _job_frames(whole, progress), now)
    return RecordedSite(jobs.height, machine, nodes, now)


def cores_of_a_node(jobs: pl.DataFrame, machine: Machine | None = None) -> int:
    """How many cores a node has: as jobs on whole nodes tell, or what is usual; as many as keep the nodes countable."""
    cores = (machine or machine_of(jobs)).cores
    told = None
    if {"cores", "nodes"} <= set(jobs.columns):
        told = jobs.select((pl.col("cores") / pl.col("nodes").clip(1)).quantile(0.95)).item()
    each = max(1, min(cores, int(told or _USUAL_CORES)))
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
    found: dict[int, list[int]] = {}
    ends: list[tuple[int, int, Ints, Ints]] = []
    for job in np.lexsort((np.arange(start.size), start)).tolist():
        while ends and ends[0][0] <= start[job]:
            _, _, where, taken = heapq.heappop(ends)
            free[where] += taken
        where, taken = _room(free, int(cores[job]))
        found[job] = where.tolist()
        if run_s[job] > 0:  # who ends at once holds nothing
            free[where] -= taken
            heapq.heappush(ends, (int(start[job] + run_s[job]), job, where, taken))
    return [found[job] for job in range(start.size)]


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
    return [maker.node_list(found) for found in held]


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
        made = accounting.frame(part.drop("_places")).with_columns(node_list=part["_places"])
        yield made.with_columns(node_list=pl.when(pl.col("start_time").is_not_null()).then("node_list"))
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
