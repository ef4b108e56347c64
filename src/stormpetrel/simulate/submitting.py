"""Submitting to a feed and cancelling in it: what becomes of a job is decided when it is submitted, and shown as the clock runs.

JobRequest, user -> submit_job -> needs (hidden_needs), a place (free_room), an outcome (outcomes) -> jobs-submitted-ID.parquet,
which the feed reads like the recorded jobs. Job id, user -> cancel_job -> a cancellation that is laid over them.
FreeRoom.earliest finds where and when one more job fits around what runs and what is still to come in the recording, which cannot
move; a node is shared where there are cores and memory for both.
"""

from __future__ import annotations

import fcntl
import grp
import math
import os
import pwd
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count, groupby
from pathlib import Path, PurePath
from random import Random
from typing import Any, Final, NamedTuple

import polars as pl

from stormpetrel.errors import AccessError, NotThereError, UsageError
from stormpetrel.private_files import PRIVATE, writing_private
from stormpetrel.records.nodes import expand_nodes
from stormpetrel.simulate.arrivals import NEVER, Submission
from stormpetrel.simulate.feed import Feed, write_cancellation, write_command
from stormpetrel.simulate.frames import PARTITION, QOS, FrameMaker
from stormpetrel.simulate.hidden_needs import HiddenNeeds, Need, Work
from stormpetrel.simulate.outcomes import KILL_WAIT_S, SickNodes, outcome
from stormpetrel.simulate.population import make_population
from stormpetrel.simulate.scheduler import EndedJob
from stormpetrel.simulate.spec import DAY_S, MIB_PER_GIB, ClusterSpec
from stormpetrel.sources.scripts.request import JobRequest
from stormpetrel.sources.scripts.slurm_options import deciding

ROOT: Final = "root"
DEFAULT_LIMIT_S: Final = DAY_S
LONGEST_LIMIT_S: Final = 14 * DAY_S
MAX_ARRAY_SIZE: Final = 1001  # Slurm's default: the largest index is 1000
_FAILED: Final = "Batch job submission failed: "
_NOT_AVAILABLE: Final = f"{_FAILED}Requested node configuration is not available"
_MIB: Final = 1 << 20
_WAIT_S: Final = (30, 90)  # between submission and start where there is room: the scheduler's own pace
_STILL_BROKEN: Final = 0.95  # how likely what crashed crashes again, as in a session whose code is broken (arrivals.py)
_ARRAY_PART: Final = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?", re.ASCII)
_NOBODY_KNOWS: Final = Need(application=0, cpus=1, run_s=600, mem_mib=500, crash_s=NEVER)  # before anything has ended
_KNOWN: Final = (
    "job_id", "job_id_raw", "array_task", "submit_time", "start_time", "end_time", "elapsed_s", "state", "job_name", "user",
    "uid", "group", "gid", "account", "partition", "cpus", "nodes", "mem_bytes", "time_limit_s", "max_rss_bytes", "node_list",
    "submitted",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class WantedJob:
    """What a request means on the simulated cluster: `cores` of one node, or `nodes` > 0 whole nodes; memory per node."""

    job_name: str
    cores: int
    nodes: int
    mem_mib: int
    limit_s: int
    tasks: tuple[int, ...]  # of an array; () for a single job
    avoid: frozenset[int]


def write_fake_sbatch(folder: Path) -> Path:
    """Write an `sbatch` command that submits to the feed in `folder`; its path."""
    return write_command(folder, "sbatch")


def write_fake_scancel(folder: Path) -> Path:
    """Write a `scancel` command that cancels in the feed in `folder`; its path."""
    return write_command(folder, "scancel")


def submit_job(folder: Path, request: JobRequest, *, user: str, work_dir: str = "", submit_line: str = "sbatch") -> int:
    """Submit a job of a simulated user to the feed in `folder`, now by its clock; the job's id."""
    with _one_at_a_time(folder) as feed:
        known = _known(feed)
        spec = feed.spec or _seen_spec(feed.cluster, known)
        population = make_population(spec, spec.seed)
        wanted = wanted_job(request, spec)
        partition = _partition(request, known)
        person = person_of(known, user)
        needs = HiddenNeeds(feed, known, population, seed=spec.seed)
        now = feed.now()  # as late as can be: what was slow lies behind, and live ingest must not have gone past it
        first_id: int = known.select(pl.max_horizontal(pl.col("job_id_raw", "job_id").max())).item() + 1
        jobs = list(_decide(wanted, needs, _room(known, spec, now), spec, person["user"], now, first_id))
        frame = FrameMaker(spec, population).frame(jobs)
        names = {
            "job_name": wanted.job_name,
            "partition": partition,
            "qos": request.columns.get("qos", QOS),
            "work_dir": request.columns.get("work_dir", work_dir),
            "script_path": request.columns.get("script_path"),
            "submit_line": submit_line,
            **person,
            "account": request.columns.get("account", person["account"]),
        }
        frame = frame.with_columns(pl.lit(value, dtype=frame.schema[name]).alias(name) for name, value in names.items())
        _keep(folder, frame.select(feed.truth().drop("submitted").collect_schema().names()), first_id)
    return first_id


def cancel_job(folder: Path, job_id: int, *, user: str, task: int | None = None, administrator: bool = False) -> int:
    """Cancel a job of the feed (a whole array, or one task of it), now by its clock; how many tasks that ended.

    Refused in Slurm's words: NotThereError, AccessError for another's job, UsageError for a job that is over.
    """
    with _one_at_a_time(folder) as feed:
        now, known = feed.now(), _known(feed)
        this = (pl.col("job_id") == job_id) | (pl.col("job_id_raw") == job_id)
        if task is not None:
            this = (pl.col("job_id") == job_id) & (pl.col("array_task") == task)
        matches = known.filter(this, pl.col("submit_time") <= now)
        if not matches.height:
            raise NotThereError("Invalid job id specified")
        person = person_of(known, user)
        if not (administrator or person["user"] == ROOT or (matches["user"] == person["user"]).all()):
            raise AccessError("Access/permission denied")
        alive = matches.filter(pl.col("end_time") > now)
        if not alive.height:
            raise UsageError("Job/step already completing or completed")
        for job_id_raw in alive["job_id_raw"]:
            write_cancellation(folder, job_id_raw, now, person["uid"])
    return alive.height


def wanted_job(request: JobRequest, spec: ClusterSpec) -> WantedJob:
    """What a request asks of this cluster; refused in Slurm's words where no node can give it."""
    columns = request.columns
    cpus, named_nodes = _number(columns, "req_cpus") or 1, _number(columns, "req_nodes")
    nodes = named_nodes or -(-cpus // spec.cores_per_node)
    mem_mib = _memory_mib(request, spec, cpus, nodes)
    if mem_mib > spec.mem_per_node_mib:
        raise UsageError(f"Memory specification can not be satisfied\n{_NOT_AVAILABLE}")
    avoid = _avoided(request, spec)
    if nodes > spec.nodes - len(avoid) or cpus > nodes * spec.cores_per_node or _number(columns, "req_gpus"):
        raise UsageError(_NOT_AVAILABLE)
    limit_s = int(_number(columns, "time_limit_s") or (LONGEST_LIMIT_S if request.last("time_limit_s") else DEFAULT_LIMIT_S))
    if limit_s > LONGEST_LIMIT_S:
        raise UsageError(f"{_FAILED}Requested time limit is invalid (missing or exceeds some limit)")
    whole = nodes > 1 or columns.get("exclusive") is True
    array = request.last("array_tasks")
    return WantedJob(
        job_name=str(columns.get("job_name") or PurePath(request.name).name),
        cores=spec.cores_per_node if whole else cpus,
        nodes=nodes if whole else 0,
        mem_mib=mem_mib,
        limit_s=limit_s,
        tasks=array_tasks(array.value) if array else (),
        avoid=avoid,
    )


def array_tasks(written: str) -> tuple[int, ...]:
    """The indices behind `0-9:3,20%4`, in order."""
    tasks: set[int] = set()
    for part in written.partition("%")[0].split(","):
        match = _ARRAY_PART.fullmatch(part.strip())
        first, last, step = (int(match[1]), int(match[2] or match[1]), int(match[3] or 1)) if match else (0, MAX_ARRAY_SIZE, 1)
        if last < first or last >= MAX_ARRAY_SIZE or step == 0:
            raise UsageError(f"{_FAILED}Invalid job array specification")
        tasks.update(range(first, last + 1, step))
    return tuple(sorted(tasks))


def person_of(known: pl.DataFrame, name: str) -> dict[str, Any]:
    """The columns that tell who somebody is: a simulated user (name or uid), else a user of this machine."""
    this = (pl.col("uid") == int(name)) if name.isascii() and name.isdigit() else (pl.col("user") == name)
    matches = known.filter(this).sort("submit_time").tail(1).select("user", "uid", "group", "gid", "account")
    if matches.height:
        return matches.row(0, named=True)
    with suppress(KeyError, OverflowError, ValueError):
        entry = pwd.getpwuid(int(name)) if name.isdigit() else pwd.getpwnam(name)
        group = None
        with suppress(KeyError):
            group = grp.getgrgid(entry.pw_gid).gr_name
        return {"user": entry.pw_name, "uid": entry.pw_uid, "group": group, "gid": entry.pw_gid, "account": None}
    raise NotThereError(f"Invalid user name: {name}")


@contextmanager
def _one_at_a_time(folder: Path) -> Iterator[Feed]:
    """Hold the feed: two submissions get neither the same id nor the same cores. The lock goes with its process."""
    Feed(folder)  # a folder that is no feed gets no lock
    descriptor = os.open(folder / "feed.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, PRIVATE)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield Feed(folder)
    finally:
        os.close(descriptor)


def _known(feed: Feed) -> pl.DataFrame:
    return feed.truth().select(_KNOWN).collect()


def _keep(folder: Path, frame: pl.DataFrame, first_id: int) -> None:
    """Write the file whole, then give it its name: a reader sees all of it or nothing."""
    with writing_private(folder / f"jobs-submitted-{first_id:010d}.parquet") as file:
        frame.write_parquet(file)


def _seen_spec(cluster: str, known: pl.DataFrame) -> ClusterSpec:
    """The cluster of a feed that does not keep its own: as large as its jobs show it. Times count from 1970."""
    each = known.filter(pl.col("node_list").is_not_null()).select(
        cores=(pl.col("cpus") // pl.col("nodes")).max(), mem_bytes=(pl.col("mem_bytes") // pl.col("nodes")).max()
    )
    cores, mem_bytes = each.row(0)
    last = max((number for nodes in known["node_list"].unique() for number in _numbers_of(nodes)), default=0)
    return ClusterSpec(
        name=cluster,
        nodes=last + 1,
        cores_per_node=cores or 1,
        mem_per_node_gib=max(1, -(-(mem_bytes or 0) // (_MIB * MIB_PER_GIB))),
        start=datetime.fromtimestamp(0, UTC),
        seed=0,
    )


def _numbers_of(node_list: str | None) -> list[int]:
    """`n[003,007]` -> [2, 6]."""
    return [int(name[1:]) - 1 for name in expand_nodes(node_list) if name[:1] == "n" and name[1:].isdecimal()]


def _number(columns: dict[str, object], name: str) -> int | None:
    value = columns.get(name)
    return int(value) if isinstance(value, int | float) else None


def _memory_mib(request: JobRequest, spec: ClusterSpec, cpus: int, nodes: int) -> int:
    """Memory of each node: as asked; `--mem=0` is all of a node; without a word, what goes with the CPUs."""
    requested_bytes, option = _number(request.columns, "req_mem_bytes"), request.last("req_mem_bytes")
    if requested_bytes is None:
        return spec.mem_per_node_mib if option else max(1, spec.mem_per_node_mib * -(-cpus // nodes) // spec.cores_per_node)
    per_node = "mem" in deciding([option] if option else [])
    return max(1, -(-requested_bytes // (_MIB * ((_number(request.columns, "req_nodes") or 1) if per_node else nodes))))


def _avoided(request: JobRequest, spec: ClusterSpec) -> frozenset[int]:
    excluded = deciding(request.directives).get("exclude")
    numbers = _numbers_of(excluded.value) if excluded else []
    return frozenset(number for number in numbers if 0 <= number < spec.nodes)


def _partition(request: JobRequest, known: pl.DataFrame) -> str:
    name = str(request.columns.get("partition", PARTITION))
    if name not in {PARTITION, *known["partition"].unique()}:
        raise UsageError(f"invalid partition specified: {name}\n{_FAILED}Invalid partition name specified")
    return name


def _room(known: pl.DataFrame, spec: ClusterSpec, now: datetime) -> FreeRoom:
    """What recorded and submitted jobs hold from now on."""
    room = FreeRoom(spec)
    alive = known.filter(pl.col("end_time") > now, pl.col("start_time").is_not_null()).select(
        "node_list", (pl.col("start_time", "end_time").dt.epoch("s") - spec.start_unix_s),
        pl.col("cpus") // pl.col("nodes"), pl.col("mem_bytes") // pl.col("nodes") // _MIB,
    )  # fmt: skip
    for node_list, *held in alive.iter_rows():
        room.take(_numbers_of(node_list), Held(*held))
    return room


def _decide(
    wanted: WantedJob, needs: HiddenNeeds, room: FreeRoom, spec: ClusterSpec, user: str, now: datetime, first_id: int
) -> Iterator[EndedJob]:
    """What becomes of the job, or of each task of the array; `user` and job name say what it needs, the id the rest."""
    sick = SickNodes(spec.faults)
    submit_s = int(now.timestamp()) - spec.start_unix_s
    cpus = wanted.nodes * spec.cores_per_node or wanted.cores
    tasks = wanted.tasks or (0,)
    work = Work(user, wanted.job_name, wanted.mem_mib * max(1, wanted.nodes) * _MIB, wanted.limit_s, wanted.tasks)
    needed = needs.of(work, now=now) or [_NOBODY_KNOWS] * len(tasks)
    for raw_id, task, need in zip(count(first_id), tasks, (need.on(cpus) for need in needed), strict=False):
        rng = Random(f"{spec.seed}/submitted/{raw_id}")  # noqa: S311 - a simulation, not a secret
        crash_s = need.crash_s if rng.random() < _STILL_BROKEN else NEVER
        job = Submission(
            submit_s, 0, need.application, 0, wanted.cores, wanted.nodes, wanted.mem_mib, wanted.limit_s, need.run_s,
            need.mem_mib, crash_s, NEVER, NEVER, task, len(wanted.tasks), 0,
        )  # fmt: skip
        begin_s = submit_s + rng.randint(*_WAIT_S)
        start_s, nodes = _place(wanted, room, begin_s, outcome(job, begin_s, sick=False).run_s + KILL_WAIT_S)
        end = outcome(job, start_s, sick=sick.any(nodes, start_s))
        room.take(nodes, Held(start_s, start_s + end.run_s, wanted.cores, wanted.mem_mib))
        yield EndedJob(first_id if wanted.tasks else raw_id, raw_id, job, start_s, start_s + end.run_s, end, nodes, -1)


def _place(wanted: WantedJob, room: FreeRoom, after_s: int, run_s: int) -> tuple[int, Sequence[int]]:
    place = room.earliest(wanted.cores, wanted.mem_mib, max(1, wanted.nodes), after_s=after_s, run_s=run_s, avoid=wanted.avoid)
    if place is None:  # wanted_job has seen to it that there are enough nodes, and after the last job all of them are free
        raise UsageError(_NOT_AVAILABLE)
    return place


class Held(NamedTuple):
    """Cores and memory of one node that a job holds from `start_s` until `end_s`."""

    start_s: int
    end_s: int
    cores: int
    mem_mib: int


class FreeRoom:
    """The nodes of a cluster and what others hold of them."""

    def __init__(self, spec: ClusterSpec) -> None:
        self._cores, self._mem_mib = spec.cores_per_node, spec.mem_per_node_mib
        self._held: list[list[Held]] = [[] for _ in range(spec.nodes)]

    def take(self, nodes: Sequence[int], held: Held) -> None:
        """Note what a job holds of each of its nodes."""
        for node in nodes:
            self._held[node].append(held)

    def earliest(
        self, cores: int, mem_mib: int, nodes: int, *, after_s: int, run_s: int, avoid: Collection[int] = ()
    ) -> tuple[int, list[int]] | None:
        """When and where a job finds `nodes` nodes with room for all of `run_s` seconds; None if it never does.

        Of several nodes the fullest is taken, as the scheduler does.
        """
        allowed = [node for node in range(len(self._held)) if node not in avoid]
        gaps = {node: [gap for gap in self._gaps(node, cores, mem_mib, after_s) if gap[1] - gap[0] >= run_s] for node in allowed}
        for start in sorted({begin for spans in gaps.values() for begin, _ in spans}):
            fitting = [node for node, spans in gaps.items() if any(b <= start and start + run_s <= e for b, e in spans)]
            if len(fitting) >= nodes:
                return start, sorted(sorted(fitting, key=lambda node: self._free_cores(node, start))[:nodes])
        return None

    def _gaps(self, node: int, cores: int, mem_mib: int, after_s: int) -> Iterator[tuple[int, float]]:
        """From when until when there is room on a node; the last gap has no end."""
        changes = [(max(held.start_s, after_s), -held.cores, -held.mem_mib) for held in self._held[node] if held.end_s > after_s]
        changes += [(held.end_s, held.cores, held.mem_mib) for held in self._held[node] if held.end_s > after_s]
        free_cores, free_mib = self._cores, self._mem_mib
        begin: int | None = after_s if self._fits(free_cores, free_mib, cores, mem_mib) else None
        for moment, together in groupby(sorted(changes), key=lambda change: change[0]):
            for _, more_cores, more_mib in together:
                free_cores, free_mib = free_cores + more_cores, free_mib + more_mib
            fits = self._fits(free_cores, free_mib, cores, mem_mib)
            if begin is not None and not fits:
                yield begin, moment
                begin = None
            elif begin is None and fits:
                begin = moment
        if begin is not None:
            yield begin, math.inf

    def _free_cores(self, node: int, moment_s: int) -> int:
        return self._cores - sum(held.cores for held in self._held[node] if held.start_s <= moment_s < held.end_s)

    @staticmethod
    def _fits(free_cores: int, free_mib: int, cores: int, mem_mib: int) -> bool:
        return free_cores >= cores and free_mib >= mem_mib
