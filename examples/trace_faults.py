"""Seven faults of CPU traces that the detector was never tuned on: how a fault of one's own is written, and an exam of its own.

    stormpetrel traces evaluate campaigns/ --models 0 --no-bench --faults examples/trace_faults.py:cron_storm --scores scores.csv

Each takes the modes of one node over one window, (T, threads, 4) in the order user, system, iowait, other, and gives them back
changed. `mild`, `moderate` and `severe` say how many threads, how strongly and from when on. NumPy is all that is needed.
"""

from __future__ import annotations

import numpy as np

STRENGTH = {"mild": 0.3, "moderate": 0.6, "severe": 1.0}
BEGINS = {"mild": 0.5, "moderate": 0.25, "severe": 0.0}  # share of the window that is over before
THREADS = {"mild": 0.125, "moderate": 0.25, "severe": 0.5}


def _drawn(severity: str, seed: int) -> np.random.Generator:
    return np.random.default_rng([seed, sorted(STRENGTH).index(severity)])


def _begin(windows: np.ndarray, severity: str) -> int:
    return int(BEGINS[severity] * len(windows))


def _job(rng: np.random.Generator, windows: np.ndarray, severity: str) -> np.ndarray:
    """Neighbouring threads, as a scheduler gives them to a job."""
    threads = windows.shape[1]
    count = max(1, round(THREADS[severity] * threads))
    return np.arange(count) + int(rng.integers(0, threads - count + 1))


def _ticks(busy: np.ndarray) -> np.ndarray:
    """User, system and iowait in whole ticks of 10 ms, with the rest as other."""
    borders = np.minimum(np.round(np.cumsum(np.maximum(busy, 0.0), axis=-1) * 100), 100)
    borders = np.concatenate([borders, np.full((*borders.shape[:-1], 1), 100.0)], axis=-1)
    return np.diff(borders, axis=-1, prepend=0.0) / 100


def memory_bandwidth(windows: np.ndarray, severity: str, seed: int) -> np.ndarray:
    """Jobs starve each other of memory bandwidth: whoever works loses a share that trembles, the same for the whole node."""
    rng, begin = _drawn(severity, seed), _begin(windows, severity)
    shape = len(windows) - begin
    lost = STRENGTH[severity] * (0.15 + 0.35 * rng.random((shape, 1)) + 0.1 * rng.random((shape, windows.shape[1])))
    busy = windows[begin:, :, :3].copy()
    busy[:, :, 0] *= 1 - lost
    windows[begin:] = _ticks(busy)
    return windows


def cron_storm(windows: np.ndarray, severity: str, seed: int) -> np.ndarray:
    """Every node starts the same script again and again: short bursts of system on all threads at the same seconds."""
    rng, begin = _drawn(severity, seed), _begin(windows, severity)
    period = int(rng.integers(8, 16))
    bursts = (np.arange(len(windows)) % period < 2) & (np.arange(len(windows)) >= begin)
    busy = windows[:, :, :3].copy()
    share = STRENGTH[severity] * rng.uniform(0.15, 0.35, (int(bursts.sum()), windows.shape[1]))
    busy[bursts] *= (1 - share)[:, :, None]
    busy[bursts, :, 1] += share
    windows[bursts] = _ticks(busy[bursts])
    return windows


def irq_storm(windows: np.ndarray, severity: str, seed: int) -> np.ndarray:
    """One device interrupts one CPU all the time (two where severe): its kernel share rises, its work does not get done."""
    rng, begin = _drawn(severity, seed), _begin(windows, severity)
    for cpu in rng.choice(windows.shape[1], min(windows.shape[1], 2 if severity == "severe" else 1), replace=False):
        share = np.clip(STRENGTH[severity] * rng.normal(0.6, 0.05, len(windows) - begin), 0, 1)
        busy = windows[begin:, cpu, :3] * (1 - share)[:, None]
        busy[:, 1] += share
        windows[begin:, cpu] = _ticks(busy)
    return windows


def desynchronised_ranks(windows: np.ndarray, severity: str, seed: int) -> np.ndarray:
    """The ranks of a job have lost step: each computes and waits in a rhythm of its own, where all did it together."""
    rng, begin, job = _drawn(severity, seed), _begin(windows, severity), _job(_drawn(severity, seed + 1), windows, severity)
    steps = np.arange(len(windows) - begin)[:, None]
    waits = (steps + rng.integers(0, 30, job.size)) % rng.integers(10, 30, job.size) < 5  # (steps, ranks)
    busy = windows[begin:, job, :3] * (1 - STRENGTH[severity] * waits)[:, :, None]
    windows[begin:, job] = _ticks(busy)
    return windows


def lagging_samples(windows: np.ndarray, severity: str, seed: int) -> np.ndarray:
    """The exporter reads every second time only: each sample is shown twice (three or four times), on all threads."""
    times, begin = {"mild": 2, "moderate": 3, "severe": 4}[severity], _begin(windows, severity)
    place = np.arange(len(windows))
    place[begin:] = begin + (place[begin:] - begin) // times * times
    return windows[place]


def numa_imbalance(windows: np.ndarray, severity: str, seed: int) -> np.ndarray:
    """Memory lies on the other socket: half of the threads do the same work with more kernel time and get less done."""
    rng, begin, threads = _drawn(severity, seed), _begin(windows, severity), windows.shape[1]
    far = np.arange(threads) >= threads // 2 if rng.random() < 0.5 else np.arange(threads) < (threads + 1) // 2
    busy = windows[begin:, far, :3].copy()
    moved = 0.5 * STRENGTH[severity] * busy[:, :, 0] * rng.uniform(0.6, 1.0, busy.shape[:2])
    busy[:, :, 0] -= moved
    busy[:, :, 1] += 0.5 * moved
    windows[begin:, far] = _ticks(busy)
    return windows


def creeping_leak(windows: np.ndarray, severity: str, seed: int) -> np.ndarray:
    """A daemon that grows: on two threads user and system rise slowly over the window, up to an eighth, a quarter or half."""
    rng = _drawn(severity, seed)
    grown = np.linspace(0, {"mild": 0.125, "moderate": 0.25, "severe": 0.5}[severity], len(windows))[:, None]
    some = rng.choice(windows.shape[1], min(2, windows.shape[1]), replace=False)
    busy = windows[:, some, :3] * (1 - grown)[:, :, None]
    busy[:, :, 0] += 0.7 * grown
    busy[:, :, 1] += 0.3 * grown
    windows[:, some] = _ticks(busy)
    return windows
