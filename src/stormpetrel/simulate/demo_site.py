"""The demo's site: three months of a small simulated cluster up to a busy afternoon, and a month beyond, with one sick node.
Soon after that moment, within the hour, a second node falls sick, so that a watch has something to tell.

The site lives by a clock of its own, which begins at that afternoon whenever the demo is started: at night and on Sundays the
simulated users sleep, and somebody who tries the demo then would see an empty cluster.

folder -> record_demo -> a feed, and the commands `sacct`, `sbatch` and `scancel` that show it and change it.
ClusterSpec, moment -> plan_fault -> ComingFault: the second fault, and the submissions of a busy hour. Left to chance, a node
that falls sick gets a job or two in an hour, which cannot be told from mistakes of their users.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import polars as pl

from stormpetrel.records.states import JobState
from stormpetrel.records.times import fixed_clock
from stormpetrel.simulate.arrivals import NEVER, Submission
from stormpetrel.simulate.cluster import ended_jobs, simulate
from stormpetrel.simulate.feed import record_feed, write_fake_sacct
from stormpetrel.simulate.scheduler import EndedJob
from stormpetrel.simulate.spec import DAY_S, ClusterSpec, Fault
from stormpetrel.simulate.submitting import write_fake_sbatch, write_fake_scancel

CLUSTER: Final = "demo"
SEED: Final = 1
PAST_DAYS: Final = 90
COMING_DAYS: Final = 30
_SICK_NODE: Final = 16
_TUESDAY: Final = 1
_AFTERNOON: Final = timedelta(hours=16, minutes=30)
_FALLS_SICK: Final = timedelta(minutes=20)  # after `now`; at the usual pace a third of a minute, in which the watch has started


def demo_now(wall: datetime) -> datetime:
    """The moment at which the demo begins: 16:30 UTC on the last Tuesday that was over, as seen from the clock on the wall."""
    midnight = wall.replace(hour=0, minute=0, second=0, microsecond=0)
    days_back = (midnight.weekday() - _TUESDAY) % 7 or 7
    return midnight - timedelta(days=days_back) + _AFTERNOON


def demo_spec(now: datetime) -> ClusterSpec:
    """The cluster of the demo: it began `PAST_DAYS` ago at midnight; one node has been sick for five days."""
    start = (now - timedelta(days=PAST_DAYS)).replace(hour=0, minute=0, second=0, microsecond=0)
    sick = Fault(_SICK_NODE, (PAST_DAYS - 5) * DAY_S, (PAST_DAYS + COMING_DAYS) * DAY_S)
    span = PAST_DAYS + COMING_DAYS
    return ClusterSpec(name=CLUSTER, nodes=24, days=span, load=0.55, start=start, faults=(sick,), seed=SEED)


def record_demo(folder: Path, now: datetime, progress: Callable[[int], None]) -> Path:
    """Simulate the site and keep it as a feed whose clock stands at `now` until it is set going; the path of its `sacct`."""

    def counted(frames: Iterator[pl.DataFrame]) -> Iterator[pl.DataFrame]:
        done = 0
        for frame in frames:
            done += frame.height
            progress(done)
            yield frame

    past = demo_spec(now)
    coming = plan_fault(past, int((now + _FALLS_SICK - past.start).total_seconds()))
    spec = replace(past, faults=(*past.faults, coming.fault))
    record_feed(counted(simulate(spec, chunk=5_000, more=coming.submissions)), folder, fixed_clock(now), spec=spec)
    return write_commands(folder)


def write_commands(folder: Path) -> Path:
    """Write `sbatch`, `scancel` and `sacct` for the feed in `folder`, for the Python that runs this; the path of `sacct`."""
    write_fake_sbatch(folder)
    write_fake_scancel(folder)
    return write_fake_sacct(folder)


_LASTS_S: Final = 6 * 3600
_USERS: Final = 12
_TASKS: Final = 3  # jobs that a user submits at once
_TURN_S: Final = 60  # from the submission of one user to that of the next
_BUSY_S: Final = 2 * 3600
_SOON_S: Final = 1200  # so long after its start the node should still be the one that the scheduler fills first
_LATEST_S: Final = 2400
_APART_S: Final = 300
_ROOM: Final = 4  # cores, and GiB, that are free on it
_MIB: Final = 1024


@dataclass(frozen=True, slots=True)
class ComingFault:
    """A fault, and what is submitted while it begins, in time order."""

    fault: Fault
    submissions: tuple[Submission, ...]


def plan_fault(spec: ClusterSpec, start_s: int) -> ComingFault:
    """Let the node fall sick that the scheduler fills first, at `start_s` (seconds after the start of the cluster) or soon after.

    The scheduler takes the fullest node with room: what is small goes there, is lost, and leaves the room as it was. Where the
    only nodes with room are nearly empty, which small jobs get around, the fault waits for a better one.
    """
    moments = range(start_s, start_s + _LATEST_S, _APART_S)
    jobs = [
        job for job in ended_jobs(spec) if job.end_s > start_s - 7 * DAY_S and job.submission.submit_s < moments[-1] + _SOON_S
    ]
    choices = [(*_first_filled(jobs, spec, moment), moment) for moment in moments]
    _, node, begin_s = next((choice for choice in choices if choice[0] <= spec.cores_per_node // 2), min(choices))
    return ComingFault(Fault(node, begin_s, begin_s + _LASTS_S), tuple(_busy_hours(_small_work(jobs, start_s), begin_s)))


def _first_filled(jobs: Sequence[EndedJob], spec: ClusterSpec, start_s: int) -> tuple[int, int]:
    """The healthy node with the least room that has some, at the moment and a while later: its free cores at most, its number."""
    sick = {fault.node for fault in spec.faults if fault.start_s <= start_s < fault.until_s}
    room = [_free_cores(jobs, spec, moment) for moment in (start_s, start_s + _SOON_S)]
    fits = [node for node in range(spec.nodes) if node not in sick and min(free[node] for free in room) >= _ROOM]
    return min(((max(free[node] for free in room), node) for node in fits), default=(spec.cores_per_node, 0))


def _free_cores(jobs: Iterable[EndedJob], spec: ClusterSpec, moment_s: int) -> list[int]:
    """Free cores of each node; none where there is hardly any memory left."""
    cores, mib = [spec.cores_per_node] * spec.nodes, [spec.mem_per_node_mib] * spec.nodes
    for job in jobs:
        if 0 <= job.start_s <= moment_s < job.end_s:
            for node in job.nodes:
                cores[node] -= spec.cores_per_node if job.submission.nodes else job.submission.cores
                mib[node] -= spec.mem_per_node_mib if job.submission.nodes else job.submission.mem_mib
    return [free if left >= _ROOM * _MIB else 0 for free, left in zip(cores, mib, strict=True)]


def _small_work(jobs: Sequence[EndedJob], before_s: int) -> list[Submission]:
    """A job of one core and an hour, of each of the users whose work went well last, the latest first."""
    work: dict[int, Submission] = {}
    for job in reversed(jobs):
        if job.end_s < before_s and job.outcome.state == JobState.COMPLETED and len(work) < _USERS:
            work.setdefault(job.submission.user, job.submission)
    return [
        job._replace(
            cores=1, nodes=0, mem_mib=_MIB, limit_s=1800, need_s=1500, need_mib=_MIB // 2, crash_s=NEVER, cancel_s=NEVER,
            patience_s=NEVER, array_task=0, array_size=0, attempt=0,
        )
        for job in work.values()
    ]  # fmt: skip


def _busy_hours(work: Sequence[Submission], start_s: int) -> Iterable[Submission]:
    """Each of the users in turn, some jobs at once, again and again."""
    for turn, moment_s in enumerate(range(start_s + _TURN_S, start_s + _BUSY_S, _TURN_S)):
        for _ in range(_TASKS if work else 0):
            yield work[turn % len(work)]._replace(submit_s=moment_s)
