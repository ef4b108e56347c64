"""Faults of storage and memory: threads wait for files, or for pages that were swapped out."""

from __future__ import annotations

from typing import Final

import numpy as np

from stormpetrel.records.traces import IOWAIT, OTHER, SYSTEM, USER
from stormpetrel.traces.faults.contract import Floats, Severity
from stormpetrel.traces.faults.shaping import Dose, counted, first_step, generator, mixed, neighbouring, wander

_BAD_IO: Final = {"mild": Dose(0.125, 0.35, 0.5), "moderate": Dose(0.25, 0.6, 0.25), "severe": Dose(0.5, 0.9, 0.0)}
_STORAGE: Final = {"mild": Dose(1.0, 0.25, 0.5), "moderate": Dose(1.0, 0.5, 0.25), "severe": Dose(1.0, 0.85, 0.0)}
_THRASHING: Final = {"mild": Dose(0.25, 0.3, 0.5), "moderate": Dose(0.5, 0.5, 0.25), "severe": Dose(1.0, 0.8, 0.0)}


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
