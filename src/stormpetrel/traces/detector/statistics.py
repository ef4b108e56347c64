"""Statistics of windows: what each thread did, and how the threads of a node differ.

rates (windows, steps, 4) -> thread_statistics -> (windows, statistics); values of windows, with a group number for each ->
over_threads, movement, medians, top_mean -> (groups, columns). Level, spread, extremes, steps, drift, roughness and standing
still: whatever goes wrong on a node moves some of these up or down, and what is usual for them is a site's own affair.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from stormpetrel.records.arrays import Floats
from stormpetrel.records.traces import MODES, OTHER

Rates = npt.NDArray[np.floating[Any]]
Groups = npt.NDArray[np.intp]

_OF_MODE: Final = ("mean", "std", "min", "max", "step", "largest_step", "drift", "change")
_OF_THREAD: Final = (
    "still", "longest_still", "longest_still_busy", "memory", "roughness",
    "user_level", "system_level", "busy_level", "user_growth", "system_growth", "busy_growth",
)  # fmt: skip
THREAD_COLUMNS: Final = (*(f"{mode}_{name}" for mode in MODES for name in _OF_MODE), *_OF_THREAD)
QUANTILES: Final = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
OVER_THREADS: Final = ("mean", "std", *(f"q{round(100 * q)}" for q in QUANTILES))
_OF_MEAN: Final = ("std", "step", "largest_step", "drift", "change", "together")
MOVEMENT_COLUMNS: Final = tuple(f"{mode}_node_{name}" for mode in MODES for name in _OF_MEAN)
_SAME: Final = 5e-4  # steps that differ by less in every mode are the same
_BUSY: Final = 0.025  # two ticks in a second and more: idle threads show the same second for minutes, working ones do not
_SMALL: Final = 0.004  # added before a logarithm: less than half a tick in a second is nothing
_AT_ONCE: Final = 8192
_MANY: Final = 12  # rows of a group


def thread_statistics(rates: Rates) -> Floats:
    """The statistics of each window, (windows, THREAD_COLUMNS); rates are (windows, steps, 4)."""
    parts = [_thread_statistics(np.asarray(rates[at : at + _AT_ONCE], dtype=np.float32)) for at in range(0, len(rates), _AT_ONCE)]
    return np.concatenate(parts) if parts else np.empty((0, len(THREAD_COLUMNS)))


def _thread_statistics(rates: npt.NDArray[np.float32]) -> Floats:
    steps = rates.shape[1]
    jumps = np.diff(rates, axis=1)  # (windows, steps - 1, 4)
    size = np.abs(jumps)
    mean, std = rates.mean(axis=1), rates.std(axis=1)  # (windows, 4)
    step = size.mean(axis=1)
    half = steps // 2
    drift = rates[:, half:].mean(axis=1) - rates[:, :half].mean(axis=1)
    walk = np.abs(np.cumsum(rates - mean[:, None], axis=1)).max(axis=1) / steps  # how far a change of level lets it walk
    of_mode = np.stack([mean, std, rates.min(axis=1), rates.max(axis=1), step, size.max(axis=1), drift, walk], axis=2)
    same = (size < _SAME).all(axis=2)  # (windows, steps - 1)
    busy = same & (rates[:, 1:, OTHER] < 1 - _BUSY)
    idle = rates[:, :, OTHER] - mean[:, None, OTHER]
    memory = (idle[:, 1:] * idle[:, :-1]).sum(axis=1) / np.maximum((idle**2).sum(axis=1), 1e-4)
    roughness = step[:, OTHER] / np.maximum(std[:, OTHER], 1e-3)
    longest = [_longest_run(np.asarray(rows)) / max(1, steps - 1) for rows in (same, busy)]
    of_thread = np.stack([same.mean(axis=1), *longest, memory, roughness, *_in_proportion(rates)], axis=1)
    return np.concatenate([of_mode.reshape(len(rates), -1), of_thread], axis=1).astype(np.float64)


def _in_proportion(rates: npt.NDArray[np.float32]) -> list[npt.NDArray[np.float32]]:
    """Level, and growth from the first half to the second, as logarithms: a clock turned down is one factor for everybody."""
    half = rates.shape[1] // 2
    first, second = (np.log(part.mean(axis=1) + _SMALL) for part in (rates[:, :half, :2], rates[:, half:, :2]))  # (windows, 2)
    busy_first, busy_second = (
        np.log(1 - part.mean(axis=1) + _SMALL) for part in (rates[:, :half, OTHER], rates[:, half:, OTHER])
    )
    level = (first + second) / 2
    growth = second - first
    return [level[:, 0], level[:, 1], (busy_first + busy_second) / 2, growth[:, 0], growth[:, 1], busy_second - busy_first]


def over_threads(values: Floats, group: Groups, groups: int) -> Floats:
    """Mean, spread and quantiles over the threads of each group, (groups, columns × OVER_THREADS); zero for a group without any.

    `group` numbers the group of each row; -1 leaves a row out.
    """
    pooled = np.zeros((groups, values.shape[1] * len(OVER_THREADS)))
    for rows, numbers in rows_by_size(group):
        of_threads = values[rows]  # (groups, threads, columns)
        over = [of_threads.mean(axis=1), of_threads.std(axis=1), *_quantiles(of_threads)]
        pooled[numbers] = np.stack(over, axis=2).reshape(len(rows), -1)
    return pooled


def movement(rates: Rates, group: Groups, groups: int) -> Floats:
    """How the mean over the threads of each group moves, and how much of it they share: (groups, MOVEMENT_COLUMNS)."""
    pooled = np.zeros((groups, len(MOVEMENT_COLUMNS)))
    for rows, numbers in rows_by_size(group):
        pooled[numbers] = _of_mean(rates, rows)
    return pooled


def medians(values: Floats, group: Groups, fewest: int) -> Floats:
    """For each row the median over its group, column by column; zero where the group has fewer than so many rows, or is -1."""
    pooled = np.zeros(values.shape)
    for rows, _ in rows_by_size(group):
        if rows.shape[1] >= fewest:
            pooled[rows] = np.median(values[rows], axis=1)[:, None]
    return pooled


def others_median(values: Floats, group: Groups) -> Floats:
    """For each row the median over the other rows of its group, column by column; zero for who is in none, or alone."""
    pooled = np.zeros(values.shape)
    for rows, _ in rows_by_size(group):
        size = rows.shape[1]
        if size > _MANY:  # one of many does not move a median
            pooled[rows] = np.median(values[rows], axis=1)[:, None]
        elif size > 1:
            for place in range(size):
                pooled[rows[:, place]] = np.median(values[np.delete(rows, place, axis=1)], axis=1)
    return pooled


def top_mean(values: Floats, group: Groups, groups: int, share: float) -> Floats:
    """The mean of the largest values of each group, a share of them and at least one; NaN for a group without any."""
    pooled = np.full(groups, np.nan)
    for rows, numbers in rows_by_size(group):
        count = max(1, round(share * rows.shape[1]))
        pooled[numbers] = np.sort(values[rows], axis=1)[:, -count:].mean(axis=1)
    return pooled


def _quantiles(of_threads: Floats) -> list[Floats]:
    """Quantiles over the second axis, from one sort: NumPy's own costs ten times as much on many small groups."""
    ordered = np.sort(of_threads, axis=1)
    places = np.array(QUANTILES) * (ordered.shape[1] - 1)
    below = np.floor(places).astype(np.intp)
    above = np.minimum(below + 1, ordered.shape[1] - 1)
    return [
        ordered[:, low] * (1 - place + low) + ordered[:, high] * (place - low)
        for place, low, high in zip(places, below, above, strict=True)
    ]


def _of_mean(rates: Rates, rows: npt.NDArray[np.intp]) -> Floats:
    """How the mean over the threads moves, for each mode: (groups, modes × _OF_MEAN)."""
    mean = np.stack([np.asarray(rates[row], dtype=np.float64).mean(axis=0) for row in rows])  # (groups, steps, 4)
    apart = np.stack([np.asarray(rates[row], dtype=np.float32).std(axis=1).mean(axis=0) for row in rows])  # (groups, 4)
    size = np.abs(np.diff(mean, axis=1))
    half = mean.shape[1] // 2
    drift = mean[:, half:].mean(axis=1) - mean[:, :half].mean(axis=1)
    centred = mean - mean.mean(axis=1, keepdims=True)
    walk = np.abs(np.cumsum(centred, axis=1)).max(axis=1) / mean.shape[1]
    std = mean.std(axis=1)
    together = std / np.maximum(apart, 1e-4)  # one where all threads move as one, near zero where each goes its own way
    return np.stack([std, size.mean(axis=1), size.max(axis=1), drift, walk, together], axis=2).reshape(len(rows), -1)


def rows_by_size(group: Groups) -> list[tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]]:
    """Rows of groups of the same size, (groups, size), and the numbers of these groups."""
    order = np.argsort(group, kind="stable")
    order = order[int((group < 0).sum()) :]
    counts = np.bincount(group[order])
    firsts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    pooled = []
    for size in np.unique(counts[counts > 0]):
        numbers = np.flatnonzero(counts == size)
        pooled.append((order[firsts[numbers][:, None] + np.arange(size)], numbers))
    return pooled


def _longest_run(same: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """The longest run of true values in each row."""
    longest = np.zeros(len(same), dtype=np.int64)
    run = np.zeros(len(same), dtype=np.int64)
    for column in same.T:
        run = np.where(column, run + 1, 0)
        np.maximum(longest, run, out=longest)
    return longest
