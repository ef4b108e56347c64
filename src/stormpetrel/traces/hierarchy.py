"""Thread → job → node: each level a learned summary of the level below, up to one embedding and one score for a node.

embeddings of threads' windows, Windows, metrics of nodes -> NodeHierarchy.fit -> summarise -> NodeSummaries. A job on a node at a
moment is summed up by the mean, spread and extremes of its threads' embeddings; a node by those of its jobs' embeddings and of
its threads', and by other metrics of the node (pressure, disk, network; shares in [0, 1]) where there are any. Threads without a
job are one job. A metric that is missing counts as usual.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from stormpetrel.errors import ModelFormatError, UsageError
from stormpetrel.records.windows import Windows
from stormpetrel.traces.learned_summary import LearnedSummary

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class NodeMoments:
    """Which windows belong to which job on which node, and to which node, at each moment.

    Nodes and moments are in the order of trace, time and node; metrics of nodes come in that order.
    """

    first: Numbers  # (nodes × moments,) a window of each
    node: Numbers  # (windows,) which node and moment
    job: Numbers  # (windows,) which job on a node at a moment
    node_of_job: Numbers  # (jobs,)

    @classmethod
    def of(cls, windows: Windows) -> Self:
        """Those of some windows; threads that run no job, or nobody knows whose, are one job of their node."""
        key = np.stack([windows.trace, windows.start_s, windows.node], axis=1)
        _, first, node = np.unique(key, axis=0, return_index=True, return_inverse=True)
        node = node.reshape(-1)
        pairs, job = np.unique(np.stack([node, np.maximum(windows.job, -1)], axis=1), axis=0, return_inverse=True)
        return cls(first.astype(np.int64), node.astype(np.int64), job.reshape(-1).astype(np.int64), pairs[:, 0].astype(np.int64))

    def __len__(self) -> int:
        return len(self.first)


@dataclass(frozen=True, slots=True, eq=False)
class NodeSummaries:
    """One embedding and one score for each node at each moment, and those of the jobs on it."""

    moments: NodeMoments
    embedding: Floats  # (nodes × moments, embedding)
    score: Floats  # (nodes × moments,) higher is more abnormal
    job_embedding: Floats  # (jobs, embedding)
    job_score: Floats  # (jobs,)


@dataclass(frozen=True, slots=True, eq=False)
class NodeHierarchy:
    """The learned summaries of jobs and of nodes; `metrics` are the usual values of the metrics of nodes."""

    jobs: LearnedSummary
    nodes: LearnedSummary
    metrics: Floats  # (metrics,)

    @classmethod
    def fit(cls, embeddings: NDArray[np.float32], windows: Windows, metrics: Floats | None = None) -> Self:
        """Learn from the embeddings of calm windows (windows, embedding), and metrics of nodes (nodes × moments, metrics)."""
        moments = NodeMoments.of(windows)
        known = _metrics(metrics, moments)
        seen = np.isfinite(known)
        usual = np.where(seen, known, 0.0).sum(axis=0) / np.maximum(seen.sum(axis=0), 1)
        members = _members(embeddings, moments.job, len(moments.node_of_job))
        jobs = LearnedSummary.fit(members)
        nodes = LearnedSummary.fit(_node_values(jobs.embed(members), embeddings, moments, known, usual))
        return cls(jobs, nodes, usual)

    def summarise(self, embeddings: NDArray[np.float32], windows: Windows, metrics: Floats | None = None) -> NodeSummaries:
        """Sum up windows; `metrics` in the order of `NodeMoments.of(windows)`, NaN where one is missing."""
        moments = NodeMoments.of(windows)
        known = _metrics(metrics, moments) if metrics is not None else np.full((len(moments), len(self.metrics)), np.nan)
        if known.shape[1] != len(self.metrics):
            raise UsageError(f"{len(self.metrics)} metrics of nodes were learnt, and {known.shape[1]} are here.")
        members = _members(embeddings, moments.job, len(moments.node_of_job))
        placed = self.jobs.embed(members)
        values = _node_values(placed, embeddings, moments, known, self.metrics)
        return NodeSummaries(moments, self.nodes.embed(values), self.nodes.score(values), placed, self.jobs.score(members))

    def record(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return {"jobs": self.jobs.record(), "nodes": self.nodes.record(), "metrics": self.metrics.tolist()}

    @classmethod
    def of_record(cls, record: Any) -> Self:
        """The hierarchy that a record holds; ModelFormatError where it holds none."""
        try:
            metrics = np.asarray(record["metrics"], dtype=np.float64).reshape(-1)
            return cls(LearnedSummary.of_record(record["jobs"]), LearnedSummary.of_record(record["nodes"]), metrics)
        except (KeyError, TypeError, ValueError):
            raise ModelFormatError("A hierarchy of summaries cannot be read.", hint="Fit it again on calm windows.") from None


def _node_values(placed: Floats, embeddings: NDArray[np.float32], moments: NodeMoments, metrics: Floats, usual: Floats) -> Floats:
    """What a node is summed up from: its jobs, its threads, how many jobs it has, and its metrics."""
    size = len(moments)
    jobs = _members(placed, moments.node_of_job, size)
    threads = _members(embeddings, moments.node, size)
    count = np.log1p(np.bincount(moments.node_of_job, minlength=size))[:, None]
    return np.concatenate([jobs, threads, count, np.where(np.isfinite(metrics), metrics, usual)], axis=1)


def _members(vectors: NDArray[Any], group: Numbers, groups: int) -> Floats:
    """Mean, spread and extremes of the members of each group: (groups, 4 × vector)."""
    order = np.argsort(group, kind="stable")
    ordered = vectors[order].astype(np.float64)
    first = np.searchsorted(group[order], np.arange(groups))
    count = np.bincount(group, minlength=groups)[:, None]
    mean = np.add.reduceat(ordered, first, axis=0) / count
    square = np.add.reduceat((ordered - mean[group[order]]) ** 2, first, axis=0) / count
    low, high = np.minimum.reduceat(ordered, first, axis=0), np.maximum.reduceat(ordered, first, axis=0)
    return np.concatenate([mean, np.sqrt(square), low, high], axis=1)


def _metrics(metrics: Floats | None, moments: NodeMoments) -> Floats:
    if metrics is None:
        return np.zeros((len(moments), 0))
    if metrics.ndim != 2 or len(metrics) != len(moments):
        raise UsageError(f"There are {len(moments)} nodes and moments, and metrics of shape {metrics.shape}.")
    return metrics.astype(np.float64)
