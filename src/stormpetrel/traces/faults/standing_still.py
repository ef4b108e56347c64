"""Faults that make a node quieter: threads that stand still, jobs that do nothing, counters that are not counted any more."""

from __future__ import annotations

from typing import Final

import numpy as np

from stormpetrel.traces.faults.contract import Floats, Severity
from stormpetrel.traces.faults.shaping import Dose, busiest, first_step, generator, mixed, neighbouring

_STUCK: Final = {"mild": Dose(0.0, 0.6, 0.5), "moderate": Dose(0.0, 1.0, 0.25), "severe": Dose(0.0625, 1.0, 0.0)}
_IDLE: Final = {"mild": Dose(0.125, 0.7, 0.6), "moderate": Dose(0.25, 0.9, 0.3), "severe": Dose(0.6, 1.0, 0.0)}
_FROZEN: Final = {"mild": Dose(0.125, 1.0, 0.5), "moderate": Dose(0.5, 1.0, 0.25), "severe": Dose(1.0, 1.0, 0.0)}
_GONE: Final = {"mild": Dose(0.5, 1.0, 0.75), "moderate": Dose(0.5, 1.0, 0.4), "severe": Dose(0.5, 1.0, 0.0)}


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
