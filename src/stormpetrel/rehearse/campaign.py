"""A campaign: jobs of known types really run on this machine, recorded and labelled.

CampaignRequest -> run_campaign -> NAME.npz (the labelled trace) and NAME.json (plan, machine, what ran, checks). A campaign
belongs to exactly one of train, validation and test. One that is interrupted leaves nothing behind.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from stormpetrel.engine import Progress
from stormpetrel.errors import SourceError, StoreBusyError, UsageError
from stormpetrel.records.traces import Split, Trace
from stormpetrel.records.windows import WINDOW_STEPS
from stormpetrel.rehearse.campaign_files import (
    Campaign,
    campaign_facts,
    compare_with_exporter,
    free_name,
    label_trace,
    write_campaign,
)
from stormpetrel.rehearse.placing import JobPlaces
from stormpetrel.rehearse.plan import GUARD_S, CampaignPlan, JobKind, plan_campaign
from stormpetrel.rehearse.processes import interruptions_end_in_order, undisturbed
from stormpetrel.rehearse.recording import BUSY_LOAD, STEP_S, Recorder, machine_facts, other_recorder, own_recorder
from stormpetrel.rehearse.running import JobRecord, Workshop, build_mpi_program, run_slot
from stormpetrel.rehearse.scratch import scratch_folder
from stormpetrel.store.filesystem import writing

_CLOCK_TOLERANCE_S: Final = 0.5
_AROUND_S: Final = 8.0  # for the start of the recorders and reading back, in the estimate of the time left


@dataclass(frozen=True, slots=True)
class CampaignRequest:
    """What to run, and where it goes."""

    folder: Path
    split: Split = Split.TRAIN
    name: str = ""  # the next free one, such as train-1, if left out
    kinds: tuple[JobKind, ...] = tuple(JobKind)
    cpus: tuple[int, ...] = ()  # all that this process may use, if left out
    seconds_per_job: float = 300.0
    repeat: int = 1
    seed: int = 0
    prometheus_url: str = ""  # a server that scrapes an exporter here; otherwise both are started
    node: str = ""  # how that server calls this machine
    scratch: Path | None = None


def run_campaign(request: CampaignRequest, progress: Progress | None = None) -> Campaign:
    """Run, record, label and write one campaign; interrupted or failed, it writes nothing and ends what it started."""
    name = free_name(request.folder, request.name or request.split.value, numbered=not request.name)
    plan = plan_campaign(
        name,
        request.kinds,
        usable_cpus(request.cpus),
        seconds_per_job=request.seconds_per_job,
        repeat=request.repeat,
        seed=request.seed,
    )
    return record_plan(plan, request, progress)


def record_plan(plan: CampaignPlan, request: CampaignRequest, progress: Progress | None = None) -> Campaign:
    """The same for a plan of one's own."""
    report = progress or (lambda _share, _words: None)
    machine = machine_facts()
    with interruptions_end_in_order(), _only_campaign_here(), ExitStack() as stack:
        must_flush = JobKind.BAD_IO in plan.kinds
        scratch = stack.enter_context(scratch_folder(request.scratch, request.folder, must_flush=must_flush, cpus=len(plan.cpus)))
        report(0.0, "preparing")
        mpi = build_mpi_program(scratch.folder) if JobKind.MPI in plan.kinds else None
        places = stack.enter_context(_places(scratch.folder / "threads"))
        recorder = stack.enter_context(_recorder(request, scratch.folder, places))
        clock, began_s = _clock(), time.time()
        records = _run_slots(plan, Workshop(places, scratch.folder, mpi), recorder, report)
        ended_s = time.time()
        _refuse_set_clock(clock)
        report(_share(plan, plan.seconds), "reading the recording")
        recorded = recorder.read(began_s, ended_s)
    machine |= {"scratch": scratch.facts(), "mpi": mpi.version if mpi else ""}
    trace = label_trace(recorded, records, name=plan.name, split=request.split, node=recorder.node, cpus=plan.cpus)
    labelled_by = "cgroups" if places.in_cgroups else "threads_file" if recorder.by == "own" else "nothing"
    recording = {"by": recorder.by, "jobs_told_by": labelled_by, "exporter_check": compare_with_exporter(trace, recorded)}
    return write_campaign(request.folder, trace, _facts(plan, trace, records, (began_s, ended_s), machine, recording))


def run_set(request: CampaignRequest, progress: Progress | None = None) -> Iterator[Campaign]:
    """Three campaigns, for train, validation and test, each with an order of its own and kept once it is written."""
    report = progress or (lambda _share, _words: None)
    names = {split: f"{request.name}-{split.value}" if request.name else "" for split in Split}
    for split, name in names.items():  # before hours have been spent on the first
        free_name(request.folder, name or split.value, numbered=not name)
    for number, (split, name) in enumerate(names.items()):
        campaign = replace(request, split=split, name=name, seed=request.seed + number)
        yield run_campaign(campaign, lambda share, message, done=number: report((done + share) / len(names), message))  # type: ignore[misc]


def cpus_of(text: str) -> tuple[int, ...]:
    """The CPUs of a list such as `0,2-5`."""
    cpus: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or len(part) > 12 or int(last or first) > 65_535:
            raise UsageError(f"--cpus {text[:100]!r} is no list of CPUs.", hint="Write it as 0,1 or 0-3.")
        cpus += range(int(first), int(last or first) + 1)
    return tuple(cpus)


def usable_cpus(wanted: Sequence[int]) -> tuple[int, ...]:
    """The CPUs that were requested, or all that this process may use; UsageError names those that it may not."""
    allowed = os.sched_getaffinity(0)
    beyond = [cpu for cpu in wanted if cpu not in allowed]
    if beyond:
        there = ", ".join(map(str, sorted(allowed)[:64]))
        raise UsageError(f"CPU {', '.join(map(str, beyond[:16]))} cannot be used here.", hint=f"There are: {there}.")
    return tuple(wanted) or tuple(sorted(allowed))


@contextmanager
def _only_campaign_here() -> Iterator[None]:
    """Two campaigns at once would record each other's jobs."""
    path = Path(tempfile.gettempdir()) / f"stormpetrel-campaign-{os.getuid()}.lock"
    with writing(path.parent, doing="lock this machine for a campaign"):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreBusyError("Another campaign runs on this machine.", hint="Wait until it is done.") from None
        yield
    finally:
        os.close(descriptor)


@contextmanager
def _places(threads_file: Path) -> Iterator[JobPlaces]:
    places = JobPlaces(threads_file)
    try:
        yield places
    finally:
        with undisturbed():
            places.close_all()


def _recorder(request: CampaignRequest, folder: Path, places: JobPlaces) -> AbstractContextManager[Recorder]:
    if request.prometheus_url:
        return other_recorder(request.prometheus_url, request.node)
    return own_recorder(folder, None if places.in_cgroups else places.threads_file)


def _run_slots(plan: CampaignPlan, workshop: Workshop, recorder: Recorder, report: Progress) -> list[JobRecord]:
    records: list[JobRecord] = []
    began = time.monotonic()
    for number, slot in enumerate(plan.slots, start=1):
        message = f"{number} of {len(plan.slots)}: {slot.words()}"

        def tick(message: str = message) -> None:
            recorder.check()
            report(_share(plan, time.monotonic() - began), message)

        records += run_slot(slot, plan.seconds_per_job, workshop, tick)
    return records


def _share(plan: CampaignPlan, passed_s: float) -> float:
    """How much is done after so many seconds of jobs; starting and ending them takes a little longer than planned."""
    return min(passed_s, plan.seconds) / (plan.seconds + _AROUND_S)


def _clock() -> float:
    return time.time() - time.monotonic()


def _refuse_set_clock(before: float) -> None:
    moved_s = _clock() - before
    if abs(moved_s) > _CLOCK_TOLERANCE_S:
        raise SourceError(
            f"The clock of this machine was set by {moved_s:+.1f} s during the campaign: its labels would be wrong.",
            hint="Nothing was written; run the same command again.",
        )


def _facts(
    plan: CampaignPlan,
    trace: Trace,
    records: Sequence[JobRecord],
    span: tuple[float, float],
    machine: dict[str, Any],
    recording: dict[str, Any],
) -> dict[str, Any]:
    """The facts that are written with the trace."""
    began, ended = (datetime.fromtimestamp(moment, UTC).isoformat(timespec="seconds") for moment in span)
    return {
        **campaign_facts(trace, kind="recorded", seed=plan.seed),
        "began": began,
        "ended": ended,
        "guard_s": GUARD_S,
        "cpus": list(plan.cpus),
        "seconds_per_job": plan.seconds_per_job,
        "slots": [[job.job_id for job in slot.jobs] for slot in plan.slots],
        "jobs": [record.as_dict() for record in records],
        "machine": machine,
        "recording": recording,
        "problems": _problems(plan, records, machine, recording),
    }


def _problems(plan: CampaignPlan, records: Sequence[JobRecord], machine: dict[str, Any], recording: dict[str, Any]) -> list[str]:
    """What a reader of the campaign should know, in sentences."""
    problems = [
        f"Job {record.job.job_id} ({record.job.job_type}) ended before its time, with {record.exit_codes}: "
        f"{record.complaint or 'without a word'}. Its threads are unknown from then on."
        for record in records
        if record.died_early
    ]
    if plan.seconds_per_job - 2 * GUARD_S < WINDOW_STEPS * STEP_S:
        problems.append(f"Jobs of {plan.seconds_per_job:g} s hold no whole window of {WINDOW_STEPS * STEP_S:g} s.")
    if machine["load_before"] > BUSY_LOAD:
        problems.append(
            f"The machine was busy before the campaign (load {machine['load_before']}): idle threads may not be idle."
        )
    if disagree := recording["exporter_check"]["disagree"]:
        problems.append(f"The exporter named another job than our record for {disagree:,} steps of a thread.")
    return problems
