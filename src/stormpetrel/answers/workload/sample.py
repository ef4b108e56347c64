"""New jobs out of a generator: written, counted on their way, with waits of a simulated scheduler where they are asked for.

LiveSite + Viewer + WorkloadRequest -> write_sample -> a file and its receipt; frames of jobs + how to write them -> write_jobs ->
WorkloadSample, which the command line asks for without a bound. For a page the jobs are made whole before the first byte is sent:
what goes wrong is a sentence and not half a file. One at a time per site, in a thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from stormpetrel.answers.schemas.workload import MOST_JOBS, SampleSchedule, WorkloadRequest, WorkloadSample
from stormpetrel.answers.viewer import MANAGE
from stormpetrel.errors import StoreBusyError, UsageError
from stormpetrel.lifecycle.workload_models import load_site_generator
from stormpetrel.records.times import EARLIEST, LATEST
from stormpetrel.simulate.replay import Machine, replayed, sized
from stormpetrel.synth.contract import Wanted
from stormpetrel.synth.writers.files import write_workload

if TYPE_CHECKING:
    from stormpetrel.answers.live_site import LiveSite
    from stormpetrel.answers.viewer import Viewer
    from stormpetrel.engine import Progress

# format -> (ending of the file, what it is for browsers)
FORMATS: Final = {
    "swf": (".swf", "text/plain; charset=utf-8"),
    "sacct": (".txt", "text/plain; charset=utf-8"),
    "csv": (".csv", "text/csv; charset=utf-8"),
    "parquet": (".parquet", "application/vnd.apache.parquet"),
}
Frames = Iterator[pl.DataFrame]
_MORE: Final = "For more: stormpetrel synth sample"
_WAIT_S: Final = 20.0
_NO_COUNTS: Final[Mapping[str, Any]] = {}


@dataclass(frozen=True, slots=True)
class SamplePlan:
    """How jobs are written: in which format to where, and of which machine's scheduler they get their waits.

    `cores` and `gpus` of None are as many as keep the machine usefully busy with these jobs.
    """

    output: str
    format: str
    schedule: bool = False
    cores: int | None = None
    gpus: int | None = None


def write_sample(live: LiveSite, viewer: Viewer, request: WorkloadRequest, path: Path) -> WorkloadSample:
    """Write new jobs of the site's generator to a file; administrators only, and it stands in the audit trail."""
    viewer.require(MANAGE)
    wanted = _wanted(request)
    if not live.workload.sampling.acquire(timeout=_WAIT_S):
        raise StoreBusyError("Another workload is being generated.", hint="Try again in a minute.")
    try:
        in_use = load_site_generator(live.site)
        plan = SamplePlan(path.name, request.format, request.waits, request.cores)

        def write(frames: Frames) -> Mapping[str, Any]:
            write_workload(frames, path, format_name=request.format)
            return _NO_COUNTS

        receipt = write_jobs(_bounded(in_use.generator.batches(wanted)), wanted, plan, write)
    finally:
        live.workload.sampling.release()
    about = {"training": in_use.training, "jobs": receipt.jobs, "format": request.format, "seed": request.seed}
    live.site.audit.record(viewer.user, "synth sample", about)
    return receipt


def write_jobs(
    frames: Frames,
    wanted: Wanted,
    plan: SamplePlan,
    write: Callable[[Frames], Mapping[str, Any]],
    progress: Progress = lambda _share, _words: None,
) -> WorkloadSample:
    """Write frames of new jobs as they come, in bounded memory, and return what was written.

    `write` takes the frames to where they go, and returns the counts of what it put next to them (`traces`, `events`).
    """
    began = time.perf_counter()
    counts, waits = JobCounts(), None
    frames = counts.counted(frames, wanted, progress)
    if plan.schedule:
        machine, frames = sized_machine(frames, plan.cores, plan.gpus)
        waits = _Waits(machine)
        frames = waits.counted(replayed(frames, machine))
    written = write(frames)
    return WorkloadSample(
        jobs=counts.jobs,
        users=len(counts.users),
        first=counts.first,
        last=counts.last,
        core_hours=round(counts.core_s / 3600, 1),
        seconds=round(time.perf_counter() - began, 2),
        output=plan.output,
        format=plan.format,
        seed=wanted.seed,
        schedule=waits.answer() if waits else None,
        **written,
    )


def file_name(request: WorkloadRequest) -> str:
    """Return a name for the file of a request."""
    return f"workload-{request.seed}{FORMATS[request.format][0]}"


def sized_machine(frames: Frames, cores: int | None, gpus: int | None) -> tuple[Machine, Frames]:
    """Return the machine that was asked for, or that suits the first of the jobs; and all of the frames."""
    if cores is not None and gpus is not None:
        return Machine(cores, gpus), frames
    suits, frames = sized(frames)
    return Machine(cores or suits.cores, suits.gpus if gpus is None else gpus), frames


def _wanted(request: WorkloadRequest) -> Wanted:
    """The same for a generator; UsageError where it makes no sense."""
    start = request.start
    if request.jobs is None and request.days is None:
        raise UsageError("The number of jobs is missing.", hint="Name a number of jobs, or of days.")
    if start is not None and not EARLIEST <= start <= LATEST:
        raise UsageError(f"No log begins in {start.year}.", hint=f"Name a day from {EARLIEST:%Y} to {LATEST.year - 1}.")
    return Wanted(**request.model_dump(exclude={"waits", "cores", "format"}))


def _bounded(frames: Frames) -> Frames:
    """The frames; UsageError as soon as they are more jobs than fit into one file, which days alone do not say."""
    jobs = 0
    for frame in frames:
        jobs += frame.height
        if jobs > MOST_JOBS:
            raise UsageError(f"That would be more than {MOST_JOBS:,} jobs.", hint=f"Ask for fewer days. {_MORE}")
        yield frame


@dataclass(slots=True)
class JobCounts:
    """The jobs so far, counted on their way: the frames are never together in memory."""

    jobs: int = 0
    core_s: float = 0.0
    users: set[str] = field(default_factory=set)
    first: datetime | None = None
    last: datetime | None = None

    def counted(self, frames: Frames, wanted: Wanted, progress: Progress) -> Frames:
        """The same frames."""
        for frame in frames:
            self._count(frame)
            progress(self._share(wanted), f"{self.jobs:,} jobs")
            yield frame

    def _count(self, frame: pl.DataFrame) -> None:
        if not frame.height:
            return
        self.jobs += frame.height
        self.first = self.first or frame["submit_time"][0]
        self.last = frame["submit_time"][-1]
        if "user" in frame.columns:
            self.users.update(frame["user"].drop_nulls().unique().to_list())
        if {"cores", "runtime_s"} <= set(frame.columns):
            self.core_s += float((frame["cores"] * frame["runtime_s"]).sum() or 0.0)

    def _share(self, wanted: Wanted) -> float:
        if wanted.jobs:
            return self.jobs / wanted.jobs
        if wanted.days and self.first and self.last:
            return min(1.0, (self.last - self.first).total_seconds() / 86_400 / wanted.days)
        return 0.0


@dataclass(slots=True)
class _Waits:
    """What a scheduler made of the jobs, counted on their way."""

    machine: Machine
    jobs: int = 0
    wait_s: float = 0.0
    too_large: int = 0

    def counted(self, frames: Frames) -> Frames:
        """The same frames."""
        for frame in frames:
            self.jobs += frame.height
            self.wait_s += float(frame["wait_s"].sum() or 0.0)
            if "cores" in frame.columns:
                self.too_large += int((frame["cores"] > self.machine.cores).sum() or 0)
            yield frame

    def answer(self) -> SampleSchedule:
        mean = round(self.wait_s / self.jobs, 1) if self.jobs else None
        return SampleSchedule(cores=self.machine.cores, gpus=self.machine.gpus, mean_wait_s=mean, too_large=self.too_large)
