"""The twelve faults that may be put into recorded windows of one node, and the parts that they share.

windows (steps, threads, modes), severity, seed -> a changed copy, counted in ticks as a kernel does. A severity is a `Dose`: how
many of the threads, how strongly, and from which part of the window on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from stormpetrel.records.arrays import Floats
from stormpetrel.records.traces import IOWAIT, OTHER, SYSTEM, USER
from stormpetrel.traces.faults.contract import Severity


@dataclass(frozen=True, slots=True)
class Dose:
    """How bad it is: share of the threads, strength in 0..1, and from which share of the window on."""

    threads: float
    strength: float
    begins: float


_HUNG: Final = {"mild": Dose(0.0625, 1.0, 0.5), "moderate": Dose(0.25, 1.0, 0.25), "severe": Dose(0.5, 1.0, 0.0)}
_STRAGGLER: Final = {"mild": Dose(0.125, 0.4, 0.5), "moderate": Dose(0.25, 0.7, 0.25), "severe": Dose(0.5, 0.95, 0.0)}
_SYSTEM: Final = {"mild": Dose(0.125, 0.2, 0.5), "moderate": Dose(0.25, 0.4, 0.25), "severe": Dose(0.5, 0.8, 0.0)}
_THROTTLED: Final = {"mild": Dose(1.0, 0.25, 0.5), "moderate": Dose(1.0, 0.5, 0.25), "severe": Dose(1.0, 0.75, 0.0)}
_NEIGHBOUR: Final = {"mild": Dose(0.125, 0.25, 0.5), "moderate": Dose(0.25, 0.5, 0.25), "severe": Dose(0.5, 0.8, 0.0)}
_BAD_IO: Final = {"mild": Dose(0.125, 0.35, 0.5), "moderate": Dose(0.25, 0.6, 0.25), "severe": Dose(0.5, 0.9, 0.0)}
_STORAGE: Final = {"mild": Dose(1.0, 0.25, 0.5), "moderate": Dose(1.0, 0.5, 0.25), "severe": Dose(1.0, 0.85, 0.0)}
_THRASHING: Final = {"mild": Dose(0.25, 0.3, 0.5), "moderate": Dose(0.5, 0.5, 0.25), "severe": Dose(1.0, 0.8, 0.0)}
_STUCK: Final = {"mild": Dose(0.0, 0.6, 0.5), "moderate": Dose(0.0, 1.0, 0.25), "severe": Dose(0.0625, 1.0, 0.0)}
_IDLE: Final = {"mild": Dose(0.125, 0.7, 0.6), "moderate": Dose(0.25, 0.9, 0.3), "severe": Dose(0.6, 1.0, 0.0)}
_FROZEN: Final = {"mild": Dose(0.125, 1.0, 0.5), "moderate": Dose(0.5, 1.0, 0.25), "severe": Dose(1.0, 1.0, 0.0)}
_GONE: Final = {"mild": Dose(0.5, 1.0, 0.75), "moderate": Dose(0.5, 1.0, 0.4), "severe": Dose(0.5, 1.0, 0.0)}
TICK = 0.01  # of a second: what a kernel counts CPU time in
_STREAMS = {"mild": 1, "moderate": 2, "severe": 3}


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


def bad_io(windows: Floats, severity: Severity, seed: int) -> Floats:
    """A job whose threads write, seek and flush: they wait for the disk most of the time, the kernel takes a tenth."""
    rng, dose = generator(severity, seed), _BAD_IO[severity]
    steps, threads = windows.shape[:2]
    part = slice(first_step(rng, steps, dose.begins), steps), neighbouring(rng, threads, dose.threads)
    shape = (part[0].stop - part[0].start, part[1].size)
    iowait = rng.uniform(0.62, 0.88) + wander(rng, shape, 0.7, 0.08)
    system = rng.uniform(0.07, 0.2) * (1 + wander(rng, shape, 0.7, 0.2))
    target = np.stack([np.full(shape, 0.02), system, iowait, np.zeros(shape)], axis=2)
    return mixed(windows, part, target, dose.strength)


def slow_storage(windows: Floats, severity: Severity, seed: int) -> Floats:
    """Shared storage stalls now and then: everybody's work turns into waiting at the same seconds; idle threads hardly notice."""
    rng, dose = generator(severity, seed), _STORAGE[severity]
    steps, threads = windows.shape[:2]
    begin = first_step(rng, steps, dose.begins)
    stalls = np.clip(wander(rng, (steps - begin, 1), 0.85, 1.0) + 0.5, 0, 1)  # (steps, 1): the same for all
    amount = dose.strength * stalls * np.clip(1 + 0.1 * rng.standard_normal((steps - begin, threads)), 0, 1)
    after = windows.copy()
    here = after[begin:]
    lost = here[:, :, USER : SYSTEM + 1] * amount[:, :, None]
    here[:, :, USER : SYSTEM + 1] -= lost
    waiting = lost.sum(axis=2)
    housekeeping = np.minimum(0.04 * amount, here[:, :, OTHER])  # what an idle node writes waits, too
    here[:, :, IOWAIT] += waiting + housekeeping
    here[:, :, OTHER] -= housekeeping
    after[begin:] = counted(here)
    return after


def thrashing(windows: Floats, severity: Severity, seed: int) -> Floats:
    """Memory is short: the kernel looks for pages (system), threads wait for what was swapped out, work comes in bursts."""
    rng, dose = generator(severity, seed), _THRASHING[severity]
    steps, threads = windows.shape[:2]
    part = slice(first_step(rng, steps, dose.begins), steps), neighbouring(rng, threads, dose.threads)
    shape = (part[0].stop - part[0].start, part[1].size)
    bursts = wander(rng, (shape[0], 1), 0.6, 0.2) + wander(rng, shape, 0.5, 0.1)
    target = np.stack([0.08 + 0 * bursts, 0.4 + bursts, 0.4 - bursts, 0 * bursts], axis=2)
    return mixed(windows, part, target, dose.strength * np.clip(0.9 + wander(rng, shape, 0.6, 0.2), 0, 1))


def stuck_thread(windows: Floats, severity: Severity, seed: int) -> Floats:
    """One thread (two where it is severe) is stuck: in a loop, in the kernel, or in an uninterruptible wait."""
    rng, dose = generator(severity, seed), _STUCK[severity]
    steps, threads = windows.shape[:2]
    part = slice(first_step(rng, steps, dose.begins), steps), neighbouring(rng, threads, dose.threads)
    target = np.eye(4)[int(rng.integers(0, 3))]
    return mixed(windows, part, target, dose.strength)


def silent_idle(windows: Floats, severity: Severity, seed: int) -> Floats:
    """A job that does nothing any more and does not end: its threads fall to what an idle node does."""
    rng, dose = generator(severity, seed), _IDLE[severity]
    steps = windows.shape[0]
    job = busiest(windows, dose.threads)
    part = slice(first_step(rng, steps, dose.begins), steps), job
    shape = (part[0].stop - part[0].start, job.size)
    blips = 0.01 * (rng.random((2, *shape)) < 0.05)
    target = np.stack([blips[0], blips[1], np.zeros(shape), 1 - blips.sum(axis=0)], axis=2)
    return mixed(windows, part, target, dose.strength)


def frozen_counter(windows: Floats, severity: Severity, seed: int) -> Floats:
    """Counters of some threads stand still in the exporter: the last share that was seen is shown again and again."""
    rng, dose = generator(severity, seed), _FROZEN[severity]
    steps, threads = windows.shape[:2]
    begin, some = first_step(rng, steps, dose.begins), neighbouring(rng, threads, dose.threads)
    after = windows.copy()
    after[begin:, some] = windows[begin, some]
    return after


def half_node_gone(windows: Floats, severity: Severity, seed: int) -> Floats:
    """A socket is lost: from one second on, half of the threads do nothing at all, not even housekeeping."""
    rng, dose = generator(severity, seed), _GONE[severity]
    steps, threads = windows.shape[:2]
    half = np.arange(threads) < threads / 2
    gone = np.flatnonzero(half if rng.random() < 0.5 else ~half)
    after = windows.copy()
    after[first_step(rng, steps, dose.begins) :, gone if gone.size else slice(None)] = np.array([0.0, 0.0, 0.0, 1.0])
    return after


def generator(severity: Severity, seed: int) -> np.random.Generator:
    """The random generator of one injection."""
    return np.random.default_rng([seed, _STREAMS[severity]])


def neighbouring(rng: np.random.Generator, threads: int, share: float) -> npt.NDArray[np.intp]:
    """Threads of one job: a stretch of neighbours, at least one."""
    count = int(np.clip(round(share * threads), 1, threads))
    first = int(rng.integers(0, threads - count + 1))
    return np.arange(first, first + count)


def busiest(windows: Floats, share: float) -> npt.NDArray[np.intp]:
    """The threads that do most (user and system), at least one: where a job runs if nobody says where."""
    count = int(np.clip(round(share * windows.shape[1]), 1, windows.shape[1]))
    work = windows[:, :, :2].sum(axis=2).mean(axis=0)
    return np.sort(np.argsort(-work, kind="stable")[:count])


def first_step(rng: np.random.Generator, steps: int, begins: float) -> int:
    """The step at which a fault sets in: about `begins` of the window, a tenth sooner or later."""
    if begins <= 0:
        return 0
    return int(np.clip(round((begins + rng.uniform(-0.1, 0.1)) * steps), 0, steps - 2))


def wander(rng: np.random.Generator, shape: tuple[int, int], keeps: float, spread: float) -> Floats:
    """Noise around zero that forgets slowly, each thread its own: (steps, threads), standard deviation `spread`."""
    noise = rng.standard_normal(shape)
    for step in range(1, shape[0]):
        noise[step] = keeps * noise[step - 1] + np.sqrt(1 - keeps**2) * noise[step]
    return spread * noise


def mixed(windows: Floats, part: tuple[slice, npt.NDArray[np.intp]], target: Floats, amount: Floats | float) -> Floats:
    """The windows with a part of them (steps, threads) moved towards other modes by an amount in 0..1, counted in ticks."""
    steps, threads = part
    after = windows.copy()
    here = after[steps][:, threads]  # (steps, threads, 4)
    weight = np.broadcast_to(np.clip(np.asarray(amount, dtype=np.float64), 0, 1), here.shape[:2])[:, :, None]
    after[steps.start : steps.stop, threads] = counted((1 - weight) * here + weight * shares(np.broadcast_to(target, here.shape)))
    return after


def shares(values: Floats) -> Floats:
    """Values that are not negative and sum to one over the last axis: too much busy time is scaled down, the rest is other."""
    busy = np.maximum(values[..., :3], 0.0)
    busy = busy / np.maximum(busy.sum(axis=-1, keepdims=True), 1.0)
    return np.concatenate([busy, 1 - busy.sum(axis=-1, keepdims=True)], axis=-1)


def counted(rates: Floats) -> Floats:
    """Shares in whole ticks, as a counter that is read every second shows them: the borders between modes are rounded."""
    borders = np.round(np.cumsum(shares(rates), axis=-1) / TICK)
    return np.diff(borders, axis=-1, prepend=0.0) * TICK
