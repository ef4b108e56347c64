"""What faults are put together from: which threads, from when on, mixed with what, and counted in ticks as a kernel does.

A severity is a `Dose`: how many of the threads, how strongly, and from which part of the window on.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stormpetrel.traces.faults.contract import Floats, Severity

TICK = 0.01  # of a second: what a kernel counts CPU time in
_STREAMS = {"mild": 1, "moderate": 2, "severe": 3}


@dataclass(frozen=True, slots=True)
class Dose:
    """How bad it is: share of the threads, strength in 0..1, and from which share of the window on."""

    threads: float
    strength: float
    begins: float


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
