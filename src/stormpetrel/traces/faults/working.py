"""Faults of computing: threads spin, wait for one of them, run slowly, or share their CPU with somebody."""

from __future__ import annotations

from typing import Final

import numpy as np

from stormpetrel.records.traces import OTHER, SYSTEM, USER
from stormpetrel.traces.faults.contract import Floats, Severity
from stormpetrel.traces.faults.shaping import Dose, busiest, counted, first_step, generator, mixed, neighbouring, wander

_HUNG: Final = {"mild": Dose(0.0625, 1.0, 0.5), "moderate": Dose(0.25, 1.0, 0.25), "severe": Dose(0.5, 1.0, 0.0)}
_STRAGGLER: Final = {"mild": Dose(0.125, 0.4, 0.5), "moderate": Dose(0.25, 0.7, 0.25), "severe": Dose(0.5, 0.95, 0.0)}
_SYSTEM: Final = {"mild": Dose(0.125, 0.2, 0.5), "moderate": Dose(0.25, 0.4, 0.25), "severe": Dose(0.5, 0.8, 0.0)}
_THROTTLED: Final = {"mild": Dose(1.0, 0.25, 0.5), "moderate": Dose(1.0, 0.5, 0.25), "severe": Dose(1.0, 0.75, 0.0)}
_NEIGHBOUR: Final = {"mild": Dose(0.125, 0.25, 0.5), "moderate": Dose(0.25, 0.5, 0.25), "severe": Dose(0.5, 0.8, 0.0)}


def hung_allreduce(windows: Floats, severity: Severity, seed: int) -> Floats:
    """An MPI job whose ranks wait for one that never comes: they poll, at 100 % user, without a tremble."""
    rng, dose = generator(severity, seed), _HUNG[severity]
    steps, threads = windows.shape[:2]
    part = slice(first_step(rng, steps, dose.begins), steps), neighbouring(rng, threads, dose.threads)
    shape = (part[0].stop - part[0].start, part[1].size)
    ticks = 0.01 * (rng.random(shape) < 0.03)  # the timer interrupt now and then
    target = np.stack([1 - ticks, ticks, np.zeros(shape), np.zeros(shape)], axis=2)
    return mixed(windows, part, target, dose.strength)


def straggler(windows: Floats, severity: Severity, seed: int) -> Floats:
    """One rank of an MPI job computes on while the others, done, wait asleep for it."""
    rng, dose = generator(severity, seed), _STRAGGLER[severity]
    steps = windows.shape[0]
    job = busiest(windows, dose.threads)
    part = slice(first_step(rng, steps, dose.begins), steps), job
    asleep = np.array([0.0, 0.005, 0.0, 0.995])
    after = mixed(windows, part, asleep, dose.strength * np.clip(1 + 0.1 * rng.standard_normal(job.size), 0, 1))
    late = np.array([int(rng.choice(job))])
    works = np.array([0.985, 0.01, 0.0, 0.005])
    return mixed(after, (part[0], late), works, 0.5 + 0.5 * dose.strength)


def runaway_system(windows: Floats, severity: Severity, seed: int) -> Floats:
    """The kernel takes more and more of some CPUs: a lock, a driver, a storm of interrupts."""
    rng, dose = generator(severity, seed), _SYSTEM[severity]
    steps, threads = windows.shape[:2]
    part = slice(first_step(rng, steps, dose.begins), steps), neighbouring(rng, threads, dose.threads)
    shape = (part[0].stop - part[0].start, part[1].size)
    growth = np.linspace(0.3, 1.0, shape[0])[:, None] * (1 + wander(rng, shape, 0.5, 0.1))
    return mixed(windows, part, np.array([0.02, 0.97, 0.0, 0.01]), dose.strength * growth)


def throttled_cpu(windows: Floats, severity: Severity, seed: int) -> Floats:
    """The clock is turned down: the same work takes a larger share of each second, up to all of it."""
    rng, dose = generator(severity, seed), _THROTTLED[severity]
    steps, threads = windows.shape[:2]
    begin = first_step(rng, steps, dose.begins)
    after = windows.copy()
    here = after[begin:]
    busy = here[:, :, USER : SYSTEM + 1].sum(axis=2)
    slower = 1 / (1 - dose.strength * np.clip(1 + 0.05 * rng.standard_normal((1, threads)), 0, 1.2))
    grown = np.minimum(busy * slower, 1 - here[:, :, 2])
    factor = np.divide(grown, busy, out=np.ones_like(busy), where=busy > 0)
    here[:, :, USER : SYSTEM + 1] *= factor[:, :, None]
    here[:, :, OTHER] = 1 - here[:, :, :3].sum(axis=2)
    after[begin:] = counted(here)
    return after


def noisy_neighbour(windows: Floats, severity: Severity, seed: int) -> Floats:
    """Somebody else's bursts on some threads: whoever runs there loses time to steal, and idle ones show work of no job."""
    rng, dose = generator(severity, seed), _NEIGHBOUR[severity]
    steps, threads = windows.shape[:2]
    part = slice(first_step(rng, steps, dose.begins), steps), neighbouring(rng, threads, dose.threads)
    shape = (part[0].stop - part[0].start, part[1].size)
    period = int(rng.integers(4, 16))
    on = ((np.arange(shape[0])[:, None] + rng.integers(0, 3, (1, shape[1]))) % period) < period / 2
    here = windows[part[0]][:, part[1]]
    idle = here[:, :, OTHER].mean(axis=0) > 0.5  # (threads,)
    burst = np.array([0.55, 0.3, 0.02, 0.13])
    stolen = np.array([0.0, 0.0, 0.0, 1.0])
    target = np.where(idle[None, :, None], burst, stolen) * np.ones((*shape, 1))
    amount = np.asarray(dose.strength * on * np.clip(1 + wander(rng, shape, 0.3, 0.15), 0, 1.2), dtype=np.float64)
    return mixed(windows, part, target, amount)
