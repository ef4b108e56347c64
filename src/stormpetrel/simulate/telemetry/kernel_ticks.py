"""From what the threads do to what the kernel shows: housekeeping and interrupts of the node, then counters in ticks.

shares (steps, threads, 3) -> with_node_noise -> rates (steps, threads, 4) -> counted -> rates as a scrape sees them.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from stormpetrel.records.traces import Rates
from stormpetrel.simulate.telemetry.trace_types import Shares

_TICKS_PER_S: Final = 100.0  # /proc/stat counts in units of 10 ms
_KERNEL_HZ: Final = 250.0  # how often the kernel looks whether a busy thread is in user or in system
_READ_JITTER: Final = 0.05  # true gaps between reads, standard deviation as a share of the step
_BLIPS_PER_S: Final = 0.02  # housekeeping on a thread: once in 50 s
_BLIP_S: Final = 0.05  # its mean CPU time
_CRON_EVERY_S: Final = 60.0


def with_node_noise(rng: np.random.Generator, shares: Shares, step_s: float) -> Rates:
    """The four modes of a node's threads, with what the node itself does apart from the jobs."""
    steps, threads = shares.shape[:2]
    shares = _limited(shares)
    background = _housekeeping(rng, steps, threads, step_s)  # (steps, threads) share of the step
    # Interrupts of disks and network go to the first thread of each socket; the more I/O on the node, the more of them.
    activity = (0.3 * shares[:, :, 1] + 0.7 * shares[:, :, 2]).mean(axis=1)  # (steps,)
    sockets = sorted({0, threads // 4}) if threads >= 4 else [0]
    interrupts = np.zeros((steps, threads), dtype=np.float32)
    interrupts[:, sockets] = (0.002 + 0.05 * activity[:, None]) * rng.uniform(0.5, 1.5, (1, len(sockets)))
    left = 1 - background - interrupts
    rates = np.empty((steps, threads, 4), dtype=np.float32)
    rates[:, :, :3] = shares * left[:, :, None]
    rates[:, :, 0] += 0.6 * background
    rates[:, :, 1] += 0.4 * background + interrupts
    rates[:, :, 3] = 1 - rates[:, :, :3].sum(axis=2)
    return np.clip(rates, 0, 1, out=rates)


def counted(rng: np.random.Generator, rates: Rates, step_s: float) -> Rates:
    """The rates as two reads of /proc/stat give them: whole ticks, irregular gaps, user and system separated by sampling."""
    steps, threads = rates.shape[:2]
    seen = rates.copy()
    busy = seen[:, :, 0] + seen[:, :, 1]
    in_user = np.divide(seen[:, :, 0], busy, out=np.ones_like(busy), where=busy > 0)
    looks = np.maximum(busy * np.float32(_KERNEL_HZ * step_s), 1)
    spread = np.sqrt(in_user * (1 - in_user) / looks)
    in_user = np.clip(in_user + spread * rng.standard_normal((steps, threads), dtype=np.float32), 0, 1)
    seen[:, :, 0], seen[:, :, 1] = busy * in_user, busy * (1 - in_user)
    gap = 1 + np.clip(rng.normal(0, _READ_JITTER, (steps, 1, 1)), -3 * _READ_JITTER, 3 * _READ_JITTER)
    counters = np.cumsum(seen * (gap * (_TICKS_PER_S * step_s)), axis=0, dtype=np.float64)
    counters += rng.random((1, threads, 4))  # every counter starts somewhere within a tick
    ticks = np.diff(np.floor(counters), axis=0, prepend=0.0).astype(np.float32)
    total = ticks.sum(axis=2, keepdims=True)
    ticks[:, :, 3:] += total == 0  # nothing counted at all: the thread slept
    differences: Rates = ticks / np.maximum(total, 1)
    return differences


def _limited(shares: Shares) -> Shares:
    """Shares that sum to at most one, and none below zero."""
    shares = np.clip(shares, 0, 1)
    limited: Shares = shares / np.maximum(shares.sum(axis=2, keepdims=True), 1)
    return limited


def _housekeeping(rng: np.random.Generator, steps: int, threads: int, step_s: float) -> Rates:
    """The share of each step that daemons take: rare blips anywhere, and a minute's job on one thread."""
    chance = 1 - np.exp(-_BLIPS_PER_S * step_s)
    number = rng.binomial(steps * threads, chance)
    share = np.zeros((steps, threads), dtype=np.float32)
    where = np.divmod(rng.integers(0, share.size, number), threads)
    share[where] = np.minimum(rng.exponential(_BLIP_S / step_s, number), 0.5)
    minutes = np.arange(rng.uniform(0, _CRON_EVERY_S), steps * step_s, _CRON_EVERY_S)
    at = np.minimum((minutes / step_s).astype(np.intp), steps - 1)
    share[at, rng.integers(0, threads)] += np.minimum(rng.uniform(0.05, 0.3, at.size) / max(step_s, 1.0), 0.45)
    return np.minimum(share, 0.95)
