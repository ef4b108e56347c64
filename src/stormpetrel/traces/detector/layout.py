"""Who stands beside whom, and what came before: threads of one node, threads of one job on a node, the past of threads and nodes.

Windows -> Layout.of. Threads that changed hands within a window, and those whose job is labelled as trouble, are known to be
something else: they are scored, but no group and no calm window is made of them.

The past of each row: the windows of the same thread (or node) that ended before it began, newest first.

key and start of each row -> previous_rows -> chain -> Past; Past.mean(values) -> (rows, columns). Only what came before is looked
at, so that a score does not change with what comes after.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from stormpetrel.records.arrays import Floats
from stormpetrel.records.traces import MIXED_JOB
from stormpetrel.records.windows import Windows

Groups = npt.NDArray[np.intp]
_SAME_WORK: Final = 0.75  # of a node's threads must run the same jobs as before for its past to count
Rows = npt.NDArray[np.intp]
LOOK_BACK: Final = 12  # windows
_LONGEST_GAP_S: Final = 3600.0  # to the window before: what was longer ago says nothing about now
FORGETS: Final = 0.5  # each window before counts half of the next


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """Groups of threads are numbered from 0; -1 is in none."""

    counted: npt.NDArray[np.bool_]  # (windows,) belongs to groups
    job_type: npt.NDArray[np.str_]  # (windows,)
    start_s: Floats  # (windows,)
    thread_past: Past
    node: Groups  # (windows,) threads of one node at one moment, counted ones
    node_of: npt.NDArray[np.int32]  # (node groups,) which of the windows' nodes
    node_start_s: Floats  # (node groups,)
    node_trace: npt.NDArray[np.int32]  # (node groups,)
    node_past: Past
    peers: Groups  # (node groups,) nodes that mostly run the same job at the same moment; -1 where there is no other
    work: Groups  # (windows,) threads of one job on one node at one moment; those without a known job together
    work_job: npt.NDArray[np.int32]  # (work groups,) which of the windows' jobs, or below zero
    work_node: Groups  # (work groups,) the node group it belongs to

    @property
    def nodes(self) -> int:
        """How many node groups there are."""
        return len(self.node_of)

    @classmethod
    def of(cls, windows: Windows) -> Self:
        """The layout of some windows."""
        counted = ~windows.is_anomalous() & (windows.job != MIXED_JOB)
        job = _same_job_same_number(windows)
        thread = windows.node.astype(np.int64) * (int(windows.cpu.max(initial=0)) + 1) + windows.cpu
        before = previous_rows(thread, windows.start_s, windows.window_s)
        goes_on = (before >= 0) & (job == job[np.maximum(before, 0)]) & counted & counted[np.maximum(before, 0)]
        before = np.where(goes_on, before, -1)
        key = np.stack([windows.trace, windows.start_s, windows.node], axis=1).astype(np.float64)
        groups, node = np.unique(key, axis=0, return_inverse=True) if len(windows) else (key, np.empty(0, dtype=np.intp))
        node = np.where(counted, node.ravel(), -1)
        work_key = np.stack([node, job], axis=1)
        works, work = np.unique(work_key, axis=0, return_inverse=True) if len(windows) else (work_key, node)
        work = work.ravel()
        first = np.zeros(len(works), dtype=np.intp)
        first[work[::-1]] = np.arange(len(windows))[::-1]
        in_none = works[:, 0] < 0 if len(works) else np.empty(0, dtype=bool)
        shift = int(in_none.sum())
        work_job = windows.job[first][shift:] if len(works) else np.empty(0, dtype=np.int32)
        return cls(
            counted=counted,
            job_type=windows.job_types(),
            start_s=windows.start_s.astype(np.float64),
            thread_past=chain(before),
            node=node,
            node_of=groups[:, 2].astype(np.int32),
            node_start_s=groups[:, 1],
            node_trace=groups[:, 0].astype(np.int32),
            node_past=chain(_node_before(groups, node, goes_on, windows.window_s)),
            peers=_peers(groups, node, job),
            work=work - shift,
            work_job=work_job,
            work_node=works[shift:, 0].astype(np.intp),
        )

    def of_nodes(self, some: Groups) -> tuple[Self, Groups]:
        """The layout of some node groups alone, in their order, and the rows of their windows.

        What the past and the job's other nodes hold is gone from it, and only whether there is a past is kept: expectations are
        made before.
        """
        number = np.full(self.nodes, -1, dtype=np.intp)
        number[some] = np.arange(len(some))
        rows = np.flatnonzero((self.node >= 0) & (number[np.maximum(self.node, 0)] >= 0))
        works, work = np.unique(self.work[rows], return_inverse=True)
        part = replace(
            self,
            counted=self.counted[rows],
            job_type=self.job_type[rows],
            start_s=self.start_s[rows],
            thread_past=Past(self.thread_past.rows[rows]),
            node=number[self.node[rows]],
            node_of=self.node_of[some],
            node_start_s=self.node_start_s[some],
            node_trace=self.node_trace[some],
            node_past=Past(self.node_past.rows[some]),
            peers=np.full(len(some), -1, dtype=np.intp),
            work=work.ravel(),
            work_job=self.work_job[works],
            work_node=number[self.work_node[works]],
        )
        return part, rows


def _node_before(groups: Floats, node: Groups, goes_on: npt.NDArray[np.bool_], window_s: float) -> Groups:
    """The node group before each; -1 where too many threads have got other work since."""
    before = previous_rows(groups[:, 2].astype(np.int64), groups[:, 1], window_s)
    inside = node >= 0
    threads = np.bincount(node[inside], minlength=len(groups))
    same = np.bincount(node[inside], weights=goes_on[inside], minlength=len(groups))
    return np.where(same >= _SAME_WORK * np.maximum(threads, 1), before, -1)


def _peers(groups: Floats, node: Groups, job: npt.NDArray[np.int64]) -> Groups:
    """A number for each node group, equal for nodes of which more than half of the threads run the same job at one moment."""
    inside = node >= 0
    threads = np.bincount(node[inside], minlength=len(groups))
    known = inside & (job >= 0)
    pairs, counts = np.unique(np.stack([node[known], job[known]], axis=1), axis=0, return_counts=True)
    main = pairs[counts > threads[pairs[:, 0]] / 2] if len(pairs) else pairs  # (nodes with a main job, 2)
    peers = np.full(len(groups), -1, dtype=np.intp)
    if len(main):
        key = np.concatenate([groups[main[:, 0], :2], main[:, 1:]], axis=1)
        _, number, size = np.unique(key, axis=0, return_inverse=True, return_counts=True)
        number = number.ravel()
        peers[main[:, 0]] = np.where(size[number] > 1, number, -1)
    return peers


def _same_job_same_number(windows: Windows) -> npt.NDArray[np.int64]:
    """A number per window, equal for windows of jobs of the same id; what is below zero stays as it is."""
    if not windows.jobs:
        return windows.job.astype(np.int64)
    numbers = np.unique([job.job_id for job in windows.jobs], return_inverse=True)[1].ravel()
    return np.where(windows.job >= 0, numbers[np.maximum(windows.job, 0)], windows.job).astype(np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Past:
    """Rows before each row, newest first; -1 where there are no more."""

    rows: Rows  # (rows, LOOK_BACK)

    @property
    def known(self) -> npt.NDArray[np.bool_]:
        """Which rows have any past."""
        return np.asarray(self.rows[:, 0] >= 0)

    def counts(self) -> Rows:
        """How many windows each row's past has."""
        return np.asarray((self.rows >= 0).sum(axis=1))

    def mean(self, values: Floats, *, forgets: float = 1.0, prior: Floats | float = 0.0, weight: float = 0.0) -> Floats:
        """The mean of values over each row's past, newer windows counting more; `prior` counts like `weight` windows."""
        shape = (len(self.rows), *values.shape[1:])
        total = np.broadcast_to(np.asarray(prior, dtype=np.float64) * weight, shape).copy()
        count = np.full((len(self.rows), *(1 for _ in values.shape[1:])), weight)
        for lag in range(self.rows.shape[1]):
            there = self.rows[:, lag] >= 0
            if not there.any():
                break
            share = forgets**lag
            total[there] += share * values[self.rows[there, lag]]
            count[there] += share
        return np.asarray(total / np.maximum(count, 1e-9))


def previous_rows(key: npt.NDArray[np.integer], start_s: Floats, window_s: float) -> Rows:
    """For each row the newest row of the same key that ended before it began; -1 where there is none within an hour."""
    order = np.lexsort((start_s, key))
    keys, starts = key[order], start_s[order]
    first = np.concatenate([[0], np.flatnonzero(np.diff(keys)) + 1]) if len(order) else np.empty(0, dtype=np.intp)
    bounds = [*first.tolist(), len(order)]
    previous = np.full(len(order), -1, dtype=np.intp)
    for begin, end in pairwise(bounds):
        own = starts[begin:end]
        at = np.searchsorted(own, own - window_s + 1e-3, "right") - 1
        near = (at >= 0) & ~_is_pause(own - own[np.maximum(at, 0)], window_s)
        previous[order[begin:end]] = np.where(near, order[begin + np.maximum(at, 0)], -1)
    return previous


def is_after_a_pause(moments: Floats, window_s: float) -> npt.NDArray[np.bool_]:
    """Which of some moments, but for the first, have no past because the one before is too long ago."""
    return _is_pause(np.diff(moments), window_s)


def _is_pause(apart_s: Floats, window_s: float) -> npt.NDArray[np.bool_]:
    return np.asarray(apart_s > window_s + _LONGEST_GAP_S)


def chain(previous: Rows, look_back: int = LOOK_BACK) -> Past:
    """Follow the rows before each row as far back as they go, at most `look_back`."""
    rows = np.full((len(previous), look_back), -1, dtype=np.intp)
    current = previous
    for lag in range(look_back):
        rows[:, lag] = current
        current = np.where(current >= 0, previous[np.maximum(current, 0)], -1)
    return Past(rows)
