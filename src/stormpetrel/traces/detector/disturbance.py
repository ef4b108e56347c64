"""Disturbed windows: calm node windows in which something was changed by lot, to learn which changes matter on this site.

windows (steps, threads, 4) of one node, a random generator -> disturbed -> the same with a change in it. A change has three
parts, drawn independently: in which threads, in which seconds, and what happens there (more or less of the same, one mode for
another, a load, a value that is held, a level that drifts, ...). None of them is a fault of the bench, and none has a name: what
goes wrong on a node changes levels, spreads, rhythms or who does what, and the detector is to know such changes from calm ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from stormpetrel.records.arrays import Floats

Threads = npt.NDArray[np.intp]
Seconds = npt.NDArray[np.bool_]
Change = Callable[[Floats, Floats, int, np.random.Generator], Floats]  # busy modes of some threads, of all, first second

_SHARES: Final = (0.0, 0.0625, 0.125, 0.25, 0.5, 1.0)  # of the threads, that change; 0: one thread
_ODDS: Final = (0.15, 0.15, 0.2, 0.2, 0.15, 0.15)
_NEIGHBOURS: Final = 0.6  # how often they are neighbours, as a scheduler gives them to a job
_TICKS: Final = 100  # in a second


def disturbed(windows: npt.NDArray[np.floating[Any]], rng: np.random.Generator) -> Floats:
    """The modes (steps, threads, 4) of a node with one change in them, in whole ticks where it changed."""
    steps, threads = windows.shape[:2]
    who, when = _threads(threads, rng), _seconds(steps, rng)
    everybody = np.asarray(windows[:, :, :3], dtype=np.float64)
    change = _CHANGES[rng.integers(len(_CHANGES))]
    busy = np.maximum(change(everybody[:, who].copy(), everybody, int(when.argmax()), rng), 0.0)
    busy /= np.maximum(1.0, busy.sum(axis=2, keepdims=True))
    changed = np.asarray(windows, dtype=np.float64).copy()
    changed[np.ix_(when, who)] = _in_ticks(busy)[when]
    return changed


def _threads(threads: int, rng: np.random.Generator) -> Threads:
    """One thread, some or all; neighbours or here and there."""
    count = max(1, round(rng.choice(_SHARES, p=_ODDS) * threads))
    if rng.random() < _NEIGHBOURS:
        return np.sort((int(rng.integers(threads)) + np.arange(count)) % threads)
    return np.sort(rng.permutation(threads)[:count])


def _seconds(steps: int, rng: np.random.Generator) -> Seconds:
    """From some second on (half of the time), again and again, or here and there; one second at least."""
    at = np.arange(steps)
    way = rng.integers(4)
    if way < 2:
        return at >= (rng.uniform(0, 0.6) * steps if rng.random() < 0.6 else 0)
    if way == 2:
        period = int(rng.integers(4, 40))
        return (at + int(rng.integers(period))) % period < max(1.0, rng.uniform(0.1, 0.6) * period)
    chosen = rng.random(steps) < rng.uniform(0.05, 0.5)
    chosen[int(rng.integers(steps))] = True
    return np.asarray(chosen)


def _strength(rng: np.random.Generator) -> float:
    return float(rng.beta(1.2, 1.2))


def _tremble(busy: Floats, rng: np.random.Generator) -> Floats:
    """A factor for each second and thread, (steps, threads, 1): one, or near it."""
    return np.asarray(1 + rng.choice([0.0, 0.3]) * rng.uniform(-1, 1, (*busy.shape[:2], 1)))


def _more_or_less(busy: Floats, everybody: Floats, first: int, rng: np.random.Generator) -> Floats:
    """Of user, of system or of all that is done."""
    factor = np.exp(rng.choice([-1, 1]) * (0.15 + 1.2 * _strength(rng))) * _tremble(busy, rng)
    mode = rng.choice([0, 1, 3])
    part = slice(None) if mode == 3 else slice(mode, mode + 1)
    busy[:, :, part] *= factor
    return busy


def _one_for_another(busy: Floats, everybody: Floats, first: int, rng: np.random.Generator) -> Floats:
    """A share of one mode becomes another."""
    had, becomes = rng.permutation(3)[:2]
    moved = busy[:, :, had] * np.clip(_strength(rng) * _tremble(busy, rng)[:, :, 0], 0, 1)
    busy[:, :, had] -= moved
    busy[:, :, becomes] += moved
    return busy


def _load(busy: Floats, everybody: Floats, first: int, rng: np.random.Generator) -> Floats:
    """Something else in the time that is left, or in place of what was done."""
    level = np.clip(_strength(rng) * _tremble(busy, rng)[:, :, 0], 0, 1)
    mode = rng.integers(3)
    if rng.random() < 0.5:
        busy[:, :, mode] += level * np.maximum(1 - busy.sum(axis=2), 0)
        return busy
    busy *= (1 - level)[:, :, None]
    busy[:, :, mode] += level
    return busy


def _held(busy: Floats, everybody: Floats, first: int, rng: np.random.Generator) -> Floats:
    """A value is repeated, for a few seconds or for good."""
    if rng.random() < 0.5:
        return np.repeat(busy[first : first + 1], len(busy), axis=0)
    length = int(rng.integers(2, 12))
    return np.asarray(busy[(np.arange(len(busy)) // length) * length])


def _smooth_or_rough(busy: Floats, everybody: Floats, first: int, rng: np.random.Generator) -> Floats:
    """A mean over some seconds, or a factor of each second: of each thread its own, or the same for all."""
    if rng.random() < 0.5:
        length, at = int(rng.integers(2, 20)), np.arange(len(busy))
        sums = np.concatenate([np.zeros((1, *busy.shape[1:])), np.cumsum(busy, axis=0)])
        begin = np.maximum(0, at - length + 1)
        return np.asarray((sums[at + 1] - sums[begin]) / (at + 1 - begin)[:, None, None])
    threads = 1 if rng.random() < 0.5 else busy.shape[1]
    return np.asarray(busy * (1 + _strength(rng) * rng.uniform(-1, 1, (len(busy), threads, 1))))


def _of_others(busy: Floats, everybody: Floats, first: int, rng: np.random.Generator) -> Floats:
    """What other threads do: each that of another, or all that of one."""
    threads, count = everybody.shape[1], busy.shape[1]
    others = rng.permutation(threads)[:count] if rng.random() < 0.5 else np.full(count, rng.integers(threads))
    return everybody[:, others].copy()


def _nothing(busy: Floats, everybody: Floats, first: int, rng: np.random.Generator) -> Floats:
    """Idle."""
    return np.zeros_like(busy)


def _drift(busy: Floats, everybody: Floats, first: int, rng: np.random.Generator) -> Floats:
    """Slowly more or less, through the whole window."""
    ramp = _strength(rng) * np.linspace(0, 1, len(busy))[:, None]
    if rng.random() < 0.5:
        return np.asarray(busy * (1 + rng.choice([-1, 1, 2]) * ramp[:, :, None]))
    busy[:, :, rng.integers(2)] += 0.3 * ramp
    return busy


_CHANGES: Final[tuple[Change, ...]] = (
    _more_or_less, _one_for_another, _load, _load, _held, _smooth_or_rough, _of_others, _nothing, _drift,
)  # fmt: skip


def _in_ticks(busy: Floats) -> Floats:
    """User, system and iowait in whole ticks, with the rest as other."""
    borders = np.minimum(np.round(np.cumsum(busy, axis=2) * _TICKS), _TICKS)
    whole = np.concatenate([borders, np.full((*borders.shape[:2], 1), float(_TICKS))], axis=2)
    return np.asarray(np.diff(whole, axis=2, prepend=0.0) / _TICKS)
