"""The plan of a campaign: which jobs run on which CPUs, in which order.

types, CPUs, seed -> CampaignPlan: slots that follow each other, and in each slot jobs side by side. Every type has the CPUs to
itself once, and runs next to two others once each; the order and the places are drawn from the seed, so that no two campaigns are
alike and every campaign holds the same set of jobs.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from stormpetrel.errors import UsageError
from stormpetrel.records.traces import BAD_IO, GOOD_IO, IDLE, NP, mpi

SHORTEST_JOB_S: Final = 5.0  # below, the guards at both ends leave nothing
LONGEST_JOB_S: Final = 86_400.0
MOST_REPEATS: Final = 1000
GUARD_S: Final = 2.0  # around each start and end nobody vouches for what a thread did


class JobKind(StrEnum):
    """What a job does; the words of `--types`."""

    NP = "np"
    BAD_IO = "bad_io"
    GOOD_IO = "good_io"
    MPI = "mpi"
    IDLE = "idle"


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """One job on some CPUs: as many processes as CPUs, each bound to its own."""

    job_id: str
    kind: JobKind
    cpus: tuple[int, ...]
    seed: int

    @property
    def job_type(self) -> str:
        """What the traces call it, such as `MPI 2`."""
        return mpi(len(self.cpus)) if self.kind is JobKind.MPI else _TYPES[self.kind]


@dataclass(frozen=True, slots=True)
class Slot:
    """What runs at the same time; CPUs that no job has are idle."""

    jobs: tuple[PlannedJob, ...]

    def words(self) -> str:
        """For people: `NP on CPU 0, Bad IO on CPU 1`."""
        return ", ".join(f"{job.job_type} on CPU {','.join(map(str, job.cpus))}" for job in self.jobs) or "idle"


@dataclass(frozen=True, slots=True)
class CampaignPlan:
    """All slots of a campaign."""

    name: str
    slots: tuple[Slot, ...]
    cpus: tuple[int, ...]
    seconds_per_job: float
    seed: int

    @property
    def jobs(self) -> tuple[PlannedJob, ...]:
        """All jobs, in the order in which they start."""
        return tuple(job for slot in self.slots for job in slot.jobs)

    @property
    def kinds(self) -> frozenset[JobKind]:
        """What has to be able to run."""
        return frozenset(job.kind for job in self.jobs)

    @property
    def seconds(self) -> float:
        """How long the jobs take, one slot after the other."""
        return len(self.slots) * self.seconds_per_job


def plan_campaign(
    name: str,
    kinds: Sequence[JobKind],
    cpus: Sequence[int],
    *,
    seconds_per_job: float = 120.0,
    repeat: int = 1,
    seed: int = 0,
) -> CampaignPlan:
    """Plan a campaign: per repeat one slot for each type alone, and one for each of some pairs side by side.

    Jobs are called after the campaign (`train-1.7`), so that no two jobs of a site have the same name.
    """
    _check(kinds, cpus, seconds_per_job, repeat)
    rng = random.Random(seed)  # noqa: S311  an order of jobs is no secret
    slots: list[Slot] = []
    numbers = itertools.count(1)
    for _ in range(repeat):
        shapes = [_alone(kind, cpus) for kind in kinds] + _side_by_side(kinds, cpus, rng)
        rng.shuffle(shapes)
        for shape in shapes:
            jobs = [PlannedJob(f"{name}.{next(numbers)}", kind, places, rng.randrange(2**31)) for kind, places in shape]
            slots.append(Slot(tuple(jobs)))
    return CampaignPlan(name, tuple(slots), tuple(cpus), seconds_per_job, seed)


def kinds_of(text: str) -> list[JobKind]:
    """The kinds of jobs named on the command line, each once, in their own order."""
    named = [word.strip().lower() for word in text.split(",") if word.strip()]
    unknown = [word for word in named if word not in set(JobKind)]
    if unknown or not named:
        raise UsageError(f"Unknown job type {unknown[0] if unknown else text!r}.", hint=f"Known: {', '.join(JobKind)}.")
    return [kind for kind in JobKind if kind in named]


_Shape = list[tuple[JobKind, tuple[int, ...]]]
_TYPES: Final = {JobKind.NP: NP, JobKind.BAD_IO: BAD_IO, JobKind.GOOD_IO: GOOD_IO, JobKind.IDLE: IDLE}


def _alone(kind: JobKind, cpus: Sequence[int]) -> _Shape:
    """One type on all CPUs; fits know nothing of each other, so that each is a job of its own."""
    if kind is JobKind.IDLE:
        return []
    return [(kind, (cpu,)) for cpu in cpus] if kind is JobKind.NP else [(kind, tuple(cpus))]


def _side_by_side(kinds: Sequence[JobKind], cpus: Sequence[int], rng: random.Random) -> list[_Shape]:
    """Each type next to the next of a random round; MPI has all CPUs or none."""
    single = [kind for kind in kinds if kind is not JobKind.MPI]
    if len(single) < 2 or len(cpus) < 2:
        return []
    rng.shuffle(single)
    pairs = list(zip(single, single[1:] + single[:1], strict=True)) if len(single) > 2 else [(single[0], single[1])]
    shapes = []
    for left, right in pairs:
        places = list(cpus)
        rng.shuffle(places)
        middle = len(places) // 2
        shapes.append(_alone(left, sorted(places[:middle])) + _alone(right, sorted(places[middle:])))
    return shapes


def _check(kinds: Sequence[JobKind], cpus: Sequence[int], seconds_per_job: float, repeat: int) -> None:
    if not kinds or len(set(kinds)) != len(kinds):
        raise UsageError("A campaign needs job types, each named once.", hint=f"Known: {', '.join(JobKind)}.")
    if not cpus or len(set(cpus)) != len(cpus) or min(cpus) < 0:
        raise UsageError(f"{', '.join(map(str, cpus)) or 'Nothing'} is no list of CPUs.", hint="Write it as --cpus 0,1.")
    if JobKind.MPI in kinds and len(cpus) < 2:
        raise UsageError("An MPI job needs at least two CPUs.", hint="Name more with --cpus, or leave mpi out of --types.")
    if not SHORTEST_JOB_S <= seconds_per_job <= LONGEST_JOB_S:
        raise UsageError(
            f"Jobs of {seconds_per_job:g} s are not possible.", hint=f"Expected {SHORTEST_JOB_S:g} to {LONGEST_JOB_S:,.0f} s."
        )
    if not 1 <= repeat <= MOST_REPEATS:
        raise UsageError(f"{repeat} repeats are not possible.", hint=f"Expected 1 to {MOST_REPEATS:,}.")
