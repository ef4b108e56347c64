"""What a thread does in each kind of job: the shares of user, system and iowait, before the kernel counts them in ticks.

random generator, threads, steps -> JOB_SHARES[type] -> shares (steps, threads, 3). One function per job type. A job is a sequence
of phases of random lengths, cut into steps exactly: a phase of .3 s fills three tenths of a step of one second. Where each number
comes from is stated in docs/traces-simulated.md; none was tuned to a model's error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from stormpetrel.records.arrays import Floats
from stormpetrel.records.traces import BAD_IO, GOOD_IO, IDLE, NP

Shares = npt.NDArray[np.float32]  # (steps, threads, 3): user, system, iowait; what is left of one is other

MPI: Final = "MPI"  # one behaviour for all numbers of ranks: what differs is how long the fastest waits for the slowest


@dataclass(frozen=True, slots=True)
class JobShape:
    """The size of a job: its threads, its steps, the length of a step; `starved` is an NP job whose data do not fit in memory."""

    threads: int
    steps: int
    step_s: float
    starved: bool = False

    @property
    def length_s(self) -> float:
        """How long the job runs."""
        return self.steps * self.step_s

    @property
    def edges_s(self) -> Floats:
        """The borders of the steps, from the job's start."""
        return np.linspace(0, self.length_s, self.steps + 1)


def likelihood_fit(rng: np.random.Generator, shape: JobShape) -> Shares:
    """NP: iterations of a fit on all threads at once; after each, the parts are summed and the next data read.

    A starved job waits for the disk during a good part of each iteration; a healthy one for a second or three.
    """
    period_s = rng.uniform(70, 140)  # iterations of the order of 100 s
    count = int(shape.length_s / (0.6 * period_s)) + 3
    wait_share = rng.uniform(0.15, 0.7) if shape.starved else rng.uniform(0.005, 0.03)
    wait_level = rng.uniform(0.4, 0.9) if shape.starved else rng.uniform(0.05, 0.3)
    iteration_s = period_s * rng.uniform(0.92, 1.08, count)
    read_s = iteration_s * wait_share * rng.uniform(0.7, 1.3, count)
    sum_s = rng.uniform(0.5, 2.5, count)
    fit_s = np.maximum(iteration_s - read_s - sum_s, 1.0)
    # Each thread has its own part of the events, so that it is done a little before the last one and then sleeps.
    early_s = fit_s[:, None] * np.abs(rng.normal(0, 0.015, (count, shape.threads)))  # (iterations, threads)
    early_s = np.minimum(early_s, fit_s[:, None] - 0.5)
    fitting = np.array([rng.uniform(0.965, 0.995), rng.uniform(0.003, 0.012), 0.0])
    reading = np.array([(1 - wait_level) * 0.6, (1 - wait_level) * 0.2, wait_level])
    summing = np.array([rng.uniform(0.4, 0.7), rng.uniform(0.15, 0.35), 0.01])
    loading_s, loading = rng.uniform(10, 40), np.array([0.45, 0.15, rng.uniform(0.1, 0.35)])
    shares = np.empty((shape.steps, shape.threads, 3), dtype=np.float32)
    levels = np.concatenate([[loading], np.tile([fitting, [0.0, 0.005, 0.0], summing, reading], (count, 1))])
    for thread in range(shape.threads):
        early = early_s[:, thread]
        phases = np.stack([fit_s - early, early, sum_s, read_s], axis=1).ravel()
        shares[:, thread] = mean_per_step(np.concatenate([[loading_s], phases]), levels, shape)
    waiting = shares[:, :, 2:] / max(wait_level, loading[2])  # how much of each step: what a slow disk delivers is uneven
    shares[:, :, :2] *= _drift(rng, shape, 20.0, 0.006) + waiting * (_drift(rng, shape, 4.0, 0.25) - 1)
    shares[:, :, 2:] *= _drift(rng, shape, 4.0, 0.06)
    return shares


def unbuffered_writer(rng: np.random.Generator, shape: JobShape) -> Shares:
    """Bad IO: each thread writes, seeks and flushes, and waits for the disk that it shares with the others."""
    iowait, system, user = rng.uniform(0.62, 0.88), rng.uniform(0.07, 0.2), rng.uniform(0.01, 0.04)
    busy = 1 + rng.normal(0, 0.12, (shape.threads, 1)).astype(np.float32)  # no two writers share the disk evenly
    file_s = rng.uniform(40, 160)  # a file is full: the next one is opened and its first blocks are written
    shares = np.empty((shape.steps, shape.threads, 3), dtype=np.float32)
    writing, opening = np.array([user, system, iowait]), np.array([user + 0.06, system + 0.22, iowait * 0.45])
    for thread in range(shape.threads):
        count = int(shape.length_s / (0.5 * file_s)) + 3
        phases = np.stack([file_s * rng.uniform(0.6, 1.4, count), rng.uniform(0.5, 3.0, count)], axis=1).ravel()
        phases[0] *= rng.random()
        shares[:, thread] = mean_per_step(phases, np.tile([writing, opening], (count, 1)), shape)
    disk = _drift(rng, JobShape(1, shape.steps, shape.step_s), 25.0, 0.08)  # the disk's own slow changes, felt by all writers
    work = busy * disk * _drift(rng, shape, 3.0, 0.15)  # (steps, threads, 1)
    shares[:, :, :2] *= work
    shares[:, :, 2:] = np.minimum(shares[:, :, 2:] * (2 - work), 1 - shares[:, :, :2].sum(axis=2, keepdims=True))
    return shares


def buffered_writer(rng: np.random.Generator, shape: JobShape) -> Shares:
    """Good IO: each thread fills bins and writes flat files into the page cache; now and then the kernel writes back.

    While it does, the writers are held up for some seconds; all of them at once, because they share the cache.
    """
    cycle_s = rng.uniform(60, 130)
    count = int(shape.length_s / (0.6 * cycle_s)) + 3
    filling_s, back_s = cycle_s * rng.uniform(0.75, 1.25, count), rng.uniform(3, 10, count)
    filling_s[0] *= rng.random()
    user, system = rng.uniform(0.5, 0.68), rng.uniform(0.22, 0.32)
    filling = np.array([user, system, 0.005])
    held_up = np.array([user * 0.45, system * 1.3, rng.uniform(0.1, 0.3)])
    shares = np.empty((shape.steps, shape.threads, 3), dtype=np.float32)
    for thread in range(shape.threads):
        late_s = rng.normal(0, 0.6, count)
        phases = np.stack([np.maximum(filling_s + late_s, 1.0), np.maximum(back_s - late_s, 0.5)], axis=1).ravel()
        shares[:, thread] = mean_per_step(phases, np.tile([filling, held_up], (count, 1)), shape)
    return shares * _drift(rng, shape, 6.0, 0.05)


def mpi_allreduce(rng: np.random.Generator, shape: JobShape) -> Shares:
    """MPI: every rank computes for a random time, then spins in Allreduce until the slowest has come.

    MPICH polls while it waits, so that waiting looks like work: user, with the system calls of the polling.
    """
    longest_s = rng.uniform(6, 24)  # each rank's time of each round is uniform up to this
    rounds = int(shape.length_s / (0.4 * longest_s)) + 8
    compute_s = longest_s * rng.uniform(0.02, 1, (rounds, shape.threads))
    slowest_s = compute_s.max(axis=1, keepdims=True)
    reduce_s = rng.uniform(0.05, 0.2, rounds)
    computing = np.array([rng.uniform(0.98, 0.995), rng.uniform(0.002, 0.01), 0.0])
    polling = rng.uniform(0.12, 0.25)
    spinning = np.array([0.995 - polling, polling, 0.0])
    reducing = np.array([0.6, 0.39, 0.0])
    starting_s, starting = rng.uniform(0.5, 2.0), np.array([0.35, 0.4, 0.02])
    levels = np.concatenate([[starting], np.tile([computing, spinning, reducing], (rounds, 1))])
    shares = np.empty((shape.steps, shape.threads, 3), dtype=np.float32)
    for rank in range(shape.threads):
        phases = np.stack([compute_s[:, rank], slowest_s[:, 0] - compute_s[:, rank], reduce_s], axis=1).ravel()
        shares[:, rank] = mean_per_step(np.concatenate([[starting_s], phases]), levels, shape)
    return shares * _drift(rng, shape, 20.0, 0.004)


def idle(rng: np.random.Generator, shape: JobShape) -> Shares:
    """Idle: nothing; the node's own housekeeping comes on top for every thread."""
    del rng
    return np.zeros((shape.steps, shape.threads, 3), dtype=np.float32)


JOB_SHARES: Final[dict[str, Callable[[np.random.Generator, JobShape], Shares]]] = {
    NP: likelihood_fit,
    BAD_IO: unbuffered_writer,
    GOOD_IO: buffered_writer,
    MPI: mpi_allreduce,
    IDLE: idle,
}


def mean_per_step(phases_s: Floats, levels: Floats, shape: JobShape) -> Floats:
    """The mean of a function that is `levels[i]` for `phases_s[i]` seconds, over each step: (steps, levels' columns).

    The integral of such a function is a polygon, which is read off at the borders of the steps: no phase is too short to count.
    """
    corners_s = np.concatenate([[0.0], np.cumsum(phases_s)])
    integral = np.concatenate([np.zeros((1, levels.shape[1])), np.cumsum(levels * phases_s[:, None], axis=0)])
    at_edges = np.stack([np.interp(shape.edges_s, corners_s, column) for column in integral.T], axis=1)
    means: Floats = np.diff(at_edges, axis=0) / shape.step_s
    return means


def _drift(rng: np.random.Generator, shape: JobShape, time_s: float, spread: float) -> Shares:
    """A factor around one that wanders and forgets within about `time_s`, for each thread its own: (steps, threads, 1)."""
    kept = float(np.exp(-shape.step_s / time_s))
    height = rng.standard_normal((shape.steps, shape.threads), dtype=np.float32)
    height[1:] *= np.float32(np.sqrt(1 - kept**2))
    # height[i] += kept * height[i - 1] for all i, in as many passes as the memory has binary digits.
    reach = 1
    while reach < shape.steps and kept**reach > 1e-4:
        height[reach:] += np.float32(kept**reach) * height[:-reach]
        reach *= 2
    factor: Shares = (1 + np.float32(spread) * np.clip(height, -2.5, 2.5))[:, :, None]
    return factor
