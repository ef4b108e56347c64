"""Jobs that really run: started on their CPUs, watched until their time is over, and written down.

Slot -> run_slot -> JobRecords: what ran where, from when to when, how it ended, and what it says it did.
build_mpi_program compiles the MPI program of a campaign, where a compiler is there.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, Final

from stormpetrel.errors import UsageError
from stormpetrel.rehearse.placing import JobPlaces
from stormpetrel.rehearse.plan import JobKind, PlannedJob, Slot
from stormpetrel.rehearse.processes import POLL_S, RunningProgram, python_module, start, stop, undisturbed

_COMPILERS: Final = ("mpicc.mpich", "mpicc")
_STARTERS: Final = ("mpiexec.mpich", "mpiexec.hydra", "mpiexec")
_COMPILE_LIMIT_S: Final = 120.0
_ANSWER_LIMIT_S: Final = 20.0
_HOW: Final = (
    "Install MPICH (Debian: apt-get install mpich libmpich-dev gcc; RHEL: dnf install mpich-devel gcc, then module load mpi), "
    "or leave mpi out of --types."
)


@dataclass(frozen=True, slots=True)
class MpiProgram:
    """The compiled program and what starts it."""

    starter: str
    program: Path
    version: str

    def words(self, cpus: Sequence[int], seconds: float, seed: int) -> list[str]:
        """The command line of one job: a rank on each of the CPUs, all of them on this machine."""
        places = ",".join(map(str, cpus))
        return [self.starter, "-launcher", "fork", "-n", str(len(cpus)), str(self.program), f"{seconds:.3f}", str(seed), places]


def build_mpi_program(folder: Path) -> MpiProgram:
    """Compile the MPI job into a folder; UsageError where there is no MPICH."""
    starter, version = _find_starter()
    compiler = next((path for name in _COMPILERS if (path := shutil.which(name))), None)
    if compiler is None:
        raise UsageError("An MPI job needs MPICH's compiler, and there is no mpicc here.", hint=_HOW)
    program = folder / "allreduce"
    with as_file(files("stormpetrel.rehearse.workloads") / "allreduce.c") as source:
        command = [compiler, "-O2", "-o", str(program), str(source), "-lm"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_COMPILE_LIMIT_S, cwd=folder, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise UsageError(f"{compiler} cannot be run: {str(error)[:200]}.", hint=_HOW) from None
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[0][:200]
        raise UsageError(f"{compiler} cannot compile the MPI job: {reason}.", hint=_HOW)
    return MpiProgram(starter, program, version)


def _find_starter() -> tuple[str, str]:
    """MPICH's mpiexec (its process manager is Hydra) and its version; Open MPI's does not know the same words."""
    others = []
    for path in filter(None, map(shutil.which, _STARTERS)):
        try:
            done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=_ANSWER_LIMIT_S, check=False)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if "HYDRA" in done.stdout:
            version = next((line.split(":", 1)[1].strip() for line in done.stdout.splitlines() if "Version:" in line), "")
            return path, version[:40]
        others.append(path)
    problem = f"{others[0]} is not MPICH's" if others else "there is no mpiexec here"
    raise UsageError(f"An MPI job needs MPICH, and {problem}.", hint=_HOW)


_GRACE_S: Final = 15.0  # a job that is still busy so long after its end is killed
_EARLY_S: Final = 0.5
_ONE_THREAD: Final = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1")
_MODULES: Final = {
    JobKind.NP: "stormpetrel.rehearse.workloads.likelihood_fit",
    JobKind.BAD_IO: "stormpetrel.rehearse.workloads.bad_io",
    JobKind.GOOD_IO: "stormpetrel.rehearse.workloads.good_io",
}


@dataclass(frozen=True, slots=True)
class JobRecord:
    """One job as it ran. Times are Unix seconds; `sound_until_s` is when the first of its processes ended."""

    job: PlannedJob
    started_s: float
    sound_until_s: float
    ended_s: float
    planned_end_s: float
    exit_codes: tuple[int, ...]
    did: tuple[dict[str, Any], ...] = ()
    complaint: str = ""

    @property
    def died_early(self) -> bool:
        """Whether it ended before its time, or not well."""
        return any(self.exit_codes) or self.sound_until_s < self.planned_end_s - _EARLY_S

    def as_dict(self) -> dict[str, Any]:
        """The record as it is written down."""
        return {
            "job_id": self.job.job_id,
            "job_type": self.job.job_type,
            "cpus": list(self.job.cpus),
            "seed": self.job.seed,
            "started_s": round(self.started_s, 3),
            "ended_s": round(self.ended_s, 3),
            "exit_codes": list(self.exit_codes),
            "died_early": self.died_early,
            "did": list(self.did),
            "complaint": self.complaint,
        }


@dataclass(frozen=True, slots=True)
class Workshop:
    """What jobs need to run: places, a folder, the MPI program where there is one."""

    places: JobPlaces
    folder: Path
    mpi: MpiProgram | None = None


@dataclass(slots=True)
class _Running:
    """A job while it runs."""

    job: PlannedJob
    started_s: float
    programs: list[RunningProgram]
    first_end_s: float = 0.0
    end_s: float = 0.0

    def look(self) -> bool:
        """Whether it still runs; notes when its first and its last process ended."""
        ended = [program.ended() for program in self.programs]
        now_s = time.time()
        if any(ended) and not self.first_end_s:
            self.first_end_s = now_s
        if all(ended) and not self.end_s:
            self.end_s = now_s
        return not all(ended)


def run_slot(slot: Slot, seconds: float, workshop: Workshop, tick: Callable[[], None]) -> list[JobRecord]:
    """Run the jobs of a slot side by side to their end, or idle as long; `tick` is called all the while and may raise."""
    deadline = time.monotonic() + seconds
    running: list[_Running] = []
    try:
        for job in slot.jobs:
            running.append(_Running(job, time.time(), []))
            _start_job(job, seconds, workshop, running[-1].programs)
        while _still_busy(running) or (time.monotonic() < deadline and not slot.jobs):
            tick()
            if time.monotonic() > deadline + _GRACE_S:
                stop([program for entry in running for program in entry.programs])
            time.sleep(POLL_S)
    finally:
        with undisturbed():
            stop([program for entry in running for program in entry.programs])
            for job in slot.jobs:
                workshop.places.close(job)
    _wait(deadline, tick)  # where all jobs died, the slot lasts as long as planned
    return [_record(entry, seconds) for entry in running]


def _start_job(job: PlannedJob, seconds: float, workshop: Workshop, programs: list[RunningProgram]) -> None:
    """Start the processes of a job; `programs` grows with each, so that none is forgotten when the next cannot be started."""
    cgroups = workshop.places.open(job)
    if job.kind is JobKind.MPI:
        assert workshop.mpi is not None
        command = workshop.mpi.words(job.cpus, seconds, job.seed)
        programs.append(start(f"job_{job.job_id}", command, folder=workshop.folder, cpus=job.cpus, cgroups=cgroups))
        return
    for number, cpu in enumerate(job.cpus):
        name = f"job_{job.job_id}_{cpu}"
        scratch = workshop.folder / name
        scratch.mkdir(exist_ok=True)
        command = [*python_module(_MODULES[job.kind]), "--seconds", f"{seconds:.3f}", "--scratch", str(scratch)]
        command += ["--seed", str(job.seed + number)]
        programs.append(start(name, command, folder=workshop.folder, cpus=(cpu,), cgroups=cgroups, env=_ONE_THREAD))


def _still_busy(running: Sequence[_Running]) -> bool:
    busy = [entry.look() for entry in running]  # every one is looked at
    return any(busy)


def _wait(deadline: float, tick: Callable[[], None]) -> None:
    while time.monotonic() < deadline:
        tick()
        time.sleep(POLL_S)


def _record(entry: _Running, seconds: float) -> JobRecord:
    entry.look()
    complaints = [program.last_complaint() for program in entry.programs if program.exit_code != 0]
    return JobRecord(
        job=entry.job,
        started_s=entry.started_s,
        sound_until_s=entry.first_end_s,
        ended_s=entry.end_s,
        planned_end_s=entry.started_s + seconds,
        exit_codes=tuple(program.exit_code for program in entry.programs),
        did=tuple(report for program in entry.programs if (report := _report_of(program.words()))),
        complaint=next(filter(None, complaints), ""),
    )


def _report_of(text: str) -> dict[str, Any]:
    """The JSON that a workload printed; nothing if it did not get that far."""
    try:
        report = json.loads(text.strip().splitlines()[-1])
    except (ValueError, IndexError):
        return {}
    return report if isinstance(report, dict) else {}
