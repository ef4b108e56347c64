"""Campaigns that never ran: the same set of job types on the threads of some nodes, as a recording would show them.

CampaignSpec -> simulate_campaign -> Trace. The scheduler places jobs on whole stretches of threads (campaign_schedule.py), each
type says what its threads do (trace_types.py), the node adds its own housekeeping and interrupts, and the kernel counts all of it
in ticks of 10 ms, read at moments that are never quite regular (kernel_ticks.py). Each job and each node has a generator of its
own: what one of them does depends on the seed and on nothing else that is being made.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from stormpetrel.errors import UsageError
from stormpetrel.records.traces import NO_JOB, NP, Indices, Rates, Split, Trace, TraceJob
from stormpetrel.simulate.telemetry.kernel_ticks import counted, with_node_noise
from stormpetrel.simulate.telemetry.schedule import Placement, place_jobs
from stormpetrel.simulate.telemetry.trace_types import JOB_SHARES, MPI, JobShape, Shares

_APART_S: Final = 3 * 86_400.0  # between the starts of the campaigns of a set
_MAX_VALUES: Final = 2_000_000_000  # of the rates: 8 GB; more is a slip of the pen
_FINEST_S: Final = 1.0  # longer steps are means of steps of at most this
_STARVED_EVERY: Final = 5  # one NP job in five reads data that do not fit in memory
_JOB_STREAM, _NODE_STREAM = 1, 2


@dataclass(frozen=True, slots=True)
class CampaignSpec:
    """A campaign to simulate: so many nodes for so many minutes, seen every `step_s`.

    `start_s` is the Unix time of the beginning. `mpi_sizes` are the numbers of ranks of the MPI jobs; sizes that do not fit on a
    node are left out. `threads_per_node` counts hardware threads: CPU k and CPU k + threads_per_node / 2 share a core.
    """

    name: str = "campaign"
    split: Split | None = None
    nodes: int = 5
    threads_per_node: int = 32
    minutes: float = 30.0
    step_s: float = 1.0
    seed: int = 0
    start_s: float = 1_725_000_000.0
    mpi_sizes: tuple[int, ...] = (2, 16)
    first_job_id: int = 1001

    def __post_init__(self) -> None:
        _check(self.nodes >= 1, f"nodes is {self.nodes}; it must be at least 1.")
        _check(self.threads_per_node >= 1, f"threads_per_node is {self.threads_per_node}; it must be at least 1.")
        _check(0.05 <= self.step_s <= 3600, f"step_s is {self.step_s}; it must lie between 0.05 and 3600 seconds.")
        _check(self.minutes * 60 >= self.step_s, f"minutes is {self.minutes}; not even one step of {self.step_s:g} s fits.")
        _check(self.seed >= 0, f"seed is {self.seed}; it must not be negative.")
        _check(all(size >= 2 for size in self.mpi_sizes), f"mpi_sizes is {self.mpi_sizes}; an MPI job has at least 2 ranks.")
        values = self.nodes * self.threads_per_node * self.steps * 4
        _check(values <= _MAX_VALUES, f"The campaign would hold {values:,} values; at most {_MAX_VALUES:,} are made at once.")

    @property
    def steps(self) -> int:
        """How many steps the campaign has."""
        return int(self.minutes * 60 / self.step_s + 1e-9)

    @property
    def substeps(self) -> int:
        """Into how many finer steps each step is cut while it is being made."""
        return int(np.ceil(self.step_s / _FINEST_S - 1e-9)) if self.step_s > _FINEST_S else 1


def simulate_campaign(spec: CampaignSpec) -> Trace:
    """The campaign as a trace; the same for the same spec."""
    placements = place_jobs(spec.nodes, spec.threads_per_node, spec.steps * spec.step_s, spec.mpi_sizes, spec.seed)
    rates = np.empty((spec.steps, spec.nodes * spec.threads_per_node, 4), dtype=np.float32)
    job = np.full(rates.shape[:2], NO_JOB, dtype=np.int32)
    starved = _starved(placements)
    for node in range(spec.nodes):
        first = node * spec.threads_per_node
        here = [(number, placement) for number, placement in enumerate(placements) if placement.node == node]
        part = slice(first, first + spec.threads_per_node)
        rates[:, part] = _node_rates(spec, node, here, starved, job[:, part])
    return Trace(
        name=spec.name,
        step_s=spec.step_s,
        time_s=np.arange(1, spec.steps + 1, dtype=np.float64) * spec.step_s + spec.start_s,
        nodes=tuple(f"node{node + 1:03d}" for node in range(spec.nodes) for _ in range(spec.threads_per_node)),
        cpus=tuple(range(spec.threads_per_node)) * spec.nodes,
        rates=rates,
        job=job,
        jobs=tuple(TraceJob(str(spec.first_job_id + number), placed.job_type) for number, placed in enumerate(placements)),
        split=spec.split,
    )


def campaign_set(seed: int, *, train: int = 3, validation: int = 1, test: int = 1, **spec: Any) -> list[Trace]:
    """Campaigns for each split, days apart, each with a seed of its own; `spec` are further fields of CampaignSpec."""
    start_s = spec.pop("start_s", CampaignSpec().start_s)
    wanted = [(split, number + 1) for split, count in _counted(train, validation, test) for number in range(count)]
    return [
        simulate_campaign(
            CampaignSpec(
                name=f"{split.value}-{number}",
                split=split,
                seed=seed * 1000 + place,
                start_s=start_s + place * _APART_S,
                first_job_id=1001 + 1000 * place,
                **spec,
            )
        )
        for place, (split, number) in enumerate(wanted)
    ]


def _counted(train: int, validation: int, test: int) -> list[tuple[Split, int]]:
    return [(Split.TRAIN, train), (Split.VALIDATION, validation), (Split.TEST, test)]


def _starved(placements: list[Placement]) -> frozenset[int]:
    """Which NP jobs wait for data: a fixed share, so that campaigns of the same size hold as many of them."""
    fits = [number for number, placement in enumerate(placements) if placement.job_type == NP]
    return frozenset(fits[1::_STARVED_EVERY])


def _node_rates(spec: CampaignSpec, node: int, here: list[tuple[int, Placement]], starved: frozenset[int], job: Indices) -> Rates:
    """The rates of one node's threads (steps, threads, 4); `job` is filled in on the way."""
    fine_s = spec.step_s / spec.substeps
    fine_steps = spec.steps * spec.substeps
    shares = np.zeros((fine_steps, spec.threads_per_node, 3), dtype=np.float32)
    for number, placement in here:
        begin, end = (round(second / spec.step_s) for second in (placement.start_s, placement.end_s))
        fine = slice(begin * spec.substeps, end * spec.substeps)
        cpus = np.array(placement.cpus)
        rng = np.random.default_rng([spec.seed, _JOB_STREAM, number])
        shape = JobShape(cpus.size, fine.stop - fine.start, fine_s, number in starved)
        shares[fine, cpus] = _shares_of(placement.job_type, rng, shape)
        job[begin:end, cpus] = number
    rng = np.random.default_rng([spec.seed, _NODE_STREAM, node])
    fine_rates = with_node_noise(rng, shares, fine_s)  # (fine steps, threads, 4)
    means = fine_rates.reshape(spec.steps, spec.substeps, spec.threads_per_node, 4).mean(axis=1)
    return counted(rng, means, spec.step_s)


def _shares_of(job_type: str, rng: np.random.Generator, shape: JobShape) -> Shares:
    return JOB_SHARES[MPI if job_type.startswith(MPI) else job_type](rng, shape)


def _check(true: bool, message: str) -> None:
    if not true:
        raise UsageError(message, hint="Change it in the CampaignSpec.")
