"""Who stands beside whom, and what came before: threads of one node, threads of one job on a node, the past of threads and nodes.

Windows -> Layout.of. Threads that changed hands within a window, and those whose job is labelled as trouble, are known to be
something else: they are scored, but no group and no calm window is made of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from stormpetrel.records.traces import MIXED_JOB
from stormpetrel.records.windows import Windows
from stormpetrel.traces.detector.past import Past, chain, previous_rows

Floats = npt.NDArray[np.float64]
Groups = npt.NDArray[np.intp]

_SAME_WORK: Final = 0.75  # of a node's threads must run the same jobs as before for its past to count


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """Groups of threads are numbered from 0; -1 is in none."""

    counted: npt.NDArray[np.bool_]  # (windows,) belongs to groups
    job_type: npt.NDArray[np.str_]  # (windows,)
    thread_past: Past
    node: Groups  # (windows,) threads of one node at one moment, counted ones
    node_of: npt.NDArray[np.int32]  # (node groups,) which of the windows' nodes
    node_start_s: Floats  # (node groups,)
    node_trace: npt.NDArray[np.int32]  # (node groups,)
    node_past: Past
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
            thread_past=chain(before),
            node=node,
            node_of=groups[:, 2].astype(np.int32),
            node_start_s=groups[:, 1],
            node_trace=groups[:, 0].astype(np.int32),
            node_past=chain(_node_before(groups, node, goes_on, windows.window_s)),
            work=work - shift,
            work_job=work_job,
            work_node=works[shift:, 0].astype(np.intp),
        )

    def of_nodes(self, some: Groups) -> tuple[Self, Groups]:
        """The layout of some node groups alone, in their order, and the rows of their windows.

        What the past holds is gone from it, and only whether there is a past is kept: expectations are made before.
        """
        number = np.full(self.nodes, -1, dtype=np.intp)
        number[some] = np.arange(len(some))
        rows = np.flatnonzero((self.node >= 0) & (number[np.maximum(self.node, 0)] >= 0))
        works, work = np.unique(self.work[rows], return_inverse=True)
        part = replace(
            self,
            counted=self.counted[rows],
            job_type=self.job_type[rows],
            thread_past=Past(self.thread_past.rows[rows]),
            node=number[self.node[rows]],
            node_of=self.node_of[some],
            node_start_s=self.node_start_s[some],
            node_trace=self.node_trace[some],
            node_past=Past(self.node_past.rows[some]),
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


def _same_job_same_number(windows: Windows) -> npt.NDArray[np.int64]:
    """A number per window, equal for windows of jobs of the same id; what is below zero stays as it is."""
    if not windows.jobs:
        return windows.job.astype(np.int64)
    numbers = np.unique([job.job_id for job in windows.jobs], return_inverse=True)[1].ravel()
    return np.where(windows.job >= 0, numbers[np.maximum(windows.job, 0)], windows.job).astype(np.int64)
