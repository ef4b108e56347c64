"""CPU traces: which share of each second the threads of some nodes spent in which mode, and for whose job.

counters, files, the simulator -> Trace. The four modes sum to one at each step; nothing is scaled by the data. A step that was
not seen is NaN in all four: a gap stays a gap.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np
import numpy.typing as npt

from stormpetrel.errors import SourceFormatError

MODES: Final = ("user", "system", "iowait", "other")  # in this order in every array
USER, SYSTEM, IOWAIT, OTHER = range(4)

LIVE: Final = "live"  # the name of a trace that came from a server

NO_JOB: Final = -1  # the thread runs no job: idle
UNKNOWN_JOB: Final = -2  # nobody can tell whose thread it is
MIXED_JOB: Final = -3  # of a window: the thread changed hands within it

NP: Final = "NP"  # nuclear physics: a CPU-bound likelihood fit
BAD_IO: Final = "Bad IO"
GOOD_IO: Final = "Good IO"
IDLE: Final = "Idle"
MIXED: Final = "Mixed"
UNKNOWN: Final = ""  # a job of which nobody said what it is
SILENT: Final = "Silent"  # a job that does nothing any more
HUNG: Final = "Hung"  # one that spins, or waits for ever
SWAPPING: Final = "Swapping"
ANOMALOUS_TYPES: Final = frozenset({BAD_IO, SILENT, HUNG, SWAPPING})  # labels that mean trouble wherever they come from

Rates = npt.NDArray[np.float32]
Indices = npt.NDArray[np.int32]
Seconds = npt.NDArray[np.float64]

_SUM_TOLERANCE: Final = 1e-3


def mpi(threads: int) -> str:
    """The job type of an MPI job on so many threads: `MPI 16`."""
    return f"MPI {threads}"


KNOWN_TYPES: Final = (NP, BAD_IO, GOOD_IO, mpi(2), mpi(16), IDLE, MIXED, UNKNOWN)  # in the order of every table and legend


def job_types_in_order(job_types: Iterable[str]) -> list[str]:
    """The known job types first, in their own order, so that a legend always reads the same; then the others by name."""
    there = set(job_types)
    return [job_type for job_type in KNOWN_TYPES if job_type in there] + sorted(there - set(KNOWN_TYPES))


class Split(StrEnum):
    """What a campaign is for: each belongs to exactly one."""

    TRAIN = "train"
    VALIDATION = "validation"
    TEST = "test"


@dataclass(frozen=True, slots=True, eq=False)
class NodeSteps:
    """Steps of the CPUs of one node, one behind the other, and whose job was on each; step n ends at (n + 1) × its length."""

    node: str
    cpus: tuple[int, ...]
    first: int  # the number of the first step, counted from the beginning of Unix time
    rates: Rates  # (steps, cpus, 4), NaN where nothing was seen
    job: Indices  # (steps, cpus): a place in `jobs`, NO_JOB or UNKNOWN_JOB
    jobs: tuple[str, ...]  # ids


@dataclass(frozen=True, slots=True)
class TraceJob:
    """A job that ran on some of the threads; `job_type` is empty where nobody labelled it.

    `labelled_anomalous` says that whoever labelled it meant trouble, whatever the label is called.
    """

    job_id: str
    job_type: str = UNKNOWN
    labelled_anomalous: bool = False

    @property
    def is_anomalous(self) -> bool:
        """Whether it is labelled as trouble: a model must not learn it as normal."""
        return self.labelled_anomalous or self.job_type in ANOMALOUS_TYPES


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """The modes of some threads on one regular grid of time.

    `time_s[i]` is the Unix time at the end of step i, and steps are `step_s` apart without exception; `rates[i, k]` are the
    shares of the four modes of thread k during that step, or NaN. `job[i, k]` points into `jobs`, or is NO_JOB or UNKNOWN_JOB.
    """

    name: str  # of the campaign or run
    step_s: float
    time_s: Seconds  # (steps,)
    nodes: tuple[str, ...]  # of each thread
    cpus: tuple[int, ...]  # of each thread
    rates: Rates  # (steps, threads, 4)
    job: Indices  # (steps, threads)
    jobs: tuple[TraceJob, ...] = ()
    split: Split | None = None

    @property
    def steps(self) -> int:
        """How many steps there are."""
        return int(self.time_s.size)

    @property
    def threads(self) -> int:
        """How many threads there are."""
        return len(self.cpus)

    def checked(self) -> Trace:
        """The trace itself, if it keeps what its fields promise; SourceFormatError says what it does not."""
        for problem in self._problems():
            raise SourceFormatError(f"The trace {self.name[:80]!r} {problem}.")
        return self

    def _problems(self) -> list[str]:
        shape = (self.steps, self.threads)
        wrong = []
        if self.rates.shape != (*shape, len(MODES)) or self.job.shape != shape or len(self.nodes) != self.threads:
            return [f"has arrays of shapes {self.rates.shape} and {self.job.shape} for {shape[0]} steps of {shape[1]} threads"]
        if len(set(zip(self.nodes, self.cpus, strict=True))) != self.threads:
            wrong.append("names a thread twice")
        if self.steps > 1 and not np.allclose(np.diff(self.time_s), self.step_s, atol=1e-3 * self.step_s):
            wrong.append(f"is not on a regular grid of {self.step_s:g} s")
        if self.job.size and (self.job.max() >= len(self.jobs) or self.job.min() < UNKNOWN_JOB):
            wrong.append("points to a job that it does not list")
        missing = np.isnan(self.rates)
        if (missing.any(axis=2) != missing.all(axis=2)).any():
            wrong.append("has steps with some modes missing")
        sums = self.rates.sum(axis=2)
        if (np.abs(sums[~np.isnan(sums)] - 1) > _SUM_TOLERANCE).any() or (self.rates < -_SUM_TOLERANCE).any():
            wrong.append("has modes that do not sum to one")
        return wrong
