"""Thread → job → node → cluster: each level a learned summary of the level below, with one embedding and one score.

embeddings of threads' windows, Moments, metrics of nodes -> NodeHierarchy.fit -> calibrated -> summarise -> Summaries. A job on a
node at a moment is summed up by the mean, spread and extremes of its threads' embeddings; a node by those of its jobs' embeddings
and of its threads', and by other metrics of the node (pressure, disk, network; shares in [0, 1]) where there are any; the cluster
by those of its nodes. Threads without a job are one job. A metric that is missing counts as usual, and one that was never seen
in training is left out. A score is -log10 of the share of calm moments, kept aside, that are as unusual: 3 is one in a thousand.

A learned summary of any number of measurements: one embedding and one score for each row.

values (rows, measurements) of calm times -> LearnedSummary.fit -> embed (rows, embedding), score (rows). Measurements are
standardised, and principal components that hold nine tenths of the variance are the embedding. The score joins two ways of being
unusual, each in units of what is usual: the five measurements that the embedding explains worst, and how far out the embedding
lies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray

from stormpetrel.errors import MissingExtraError, ModelError, ModelFormatError, UsageError
from stormpetrel.records.arrays import Floats
from stormpetrel.traces.detector.calibration import Calibration

Numbers = NDArray[np.int64]
Level = Literal["job", "node", "cluster"]
LEVELS: Final[tuple[Level, ...]] = ("job", "node", "cluster")
ARRAYS: Final = "hierarchy.safetensors"
_FAR: Final = 4.0  # times its spread in training: a metric that says why a node is unusual
_FEWEST_SEEN: Final = 0.2  # of the node moments in training must have a metric for it to be learnt
EXPLAINED: Final = 0.9  # of the variance is in the embedding
MOST_COMPONENTS: Final = 60
WORST: Final = 5  # measurements that a score looks at
SMALLEST_SPREAD: Final = 0.02  # of a measurement in [0, 1]: one that stood still in training may tremble
SMALLEST_RESIDUAL: Final = 0.05  # in units of a measurement's spread
LARGEST: Final = 20.0  # in units of what is usual: beyond it one measurement says no more
_ARRAYS: Final = ("mean", "spread", "components", "scale", "residual")


@dataclass(frozen=True, slots=True, eq=False)
class Moments:
    """Which windows belong to which job on which node, to which node, and to which moment of the cluster.

    Nodes and moments are in the order of trace, time and node; metrics of nodes come in that order.
    """

    first: Numbers  # (nodes × moments,) a window of each
    node: Numbers  # (windows,) which node and moment
    job: Numbers  # (windows,) which job on a node at a moment
    node_of_job: Numbers  # (jobs,)
    moment: Numbers  # (nodes × moments,) which moment of the cluster
    first_node: Numbers  # (moments,) a node of each

    @classmethod
    def of(cls, trace: NDArray[Any], start: NDArray[Any], node: NDArray[Any], job: NDArray[Any]) -> Self:
        """Those of windows, given trace, start, node and job of each as numbers; a job below zero is none."""
        key = np.stack([trace, start, node], axis=1).astype(np.float64)
        nodes, first, of_node = np.unique(key, axis=0, return_index=True, return_inverse=True)
        of_node = of_node.reshape(-1)
        pairs, of_job = np.unique(np.stack([of_node, np.maximum(job, -1)], axis=1), axis=0, return_inverse=True)
        _, first_node, moment = np.unique(nodes[:, :2], axis=0, return_index=True, return_inverse=True)
        numbers = (first, of_node, of_job.reshape(-1), pairs[:, 0], moment.reshape(-1), first_node)
        return cls(*(number.astype(np.int64) for number in numbers))

    def __len__(self) -> int:
        return len(self.first)


@dataclass(frozen=True, slots=True, eq=False)
class Summary:
    """Embeddings (members, embedding) and scores (members,) of one level."""

    embedding: Floats
    score: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Summaries:
    """What each level comes to: of jobs on nodes, of nodes at moments, of the cluster at moments, as Moments numbers them."""

    job: Summary
    node: Summary
    cluster: Summary
    unusual: Numbers  # (nodes × moments,) the metric that is farthest from what is usual, -1 where none is far
    metrics: Floats  # (nodes × moments, metrics) with what is usual where one is missing


@dataclass(frozen=True, slots=True, eq=False)
class NodeHierarchy:
    """The learned summaries of jobs, nodes and the cluster; `usual` and `spread` are those of the metrics of nodes."""

    levels: Mapping[Level, LearnedSummary]
    names: tuple[str, ...]  # of the metrics
    usual: Floats  # (metrics,)
    spread: Floats  # (metrics,)
    calibrations: Mapping[Level, Calibration] = field(default_factory=dict)  # none: scores are what the summaries say

    @classmethod
    def fit(
        cls, embeddings: NDArray[np.float32], moments: Moments, metrics: Floats | None = None, names: Sequence[str] = ()
    ) -> Self:
        """Learn from the embeddings of calm windows (windows, embedding), and metrics of nodes (nodes × moments, metrics)."""
        known = _checked(metrics, moments, len(names))
        seen = np.isfinite(known)
        learnt = np.flatnonzero(seen.mean(axis=0) >= _FEWEST_SEEN) if len(moments) else np.empty(0, dtype=np.intp)
        columns = [known[seen[:, column], column] for column in learnt]
        usual = np.array([column.mean() for column in columns])
        spread = np.array([max(float(column.std()), 0.02) for column in columns])
        of_threads = _members(embeddings, moments.job, len(moments.node_of_job))
        job = LearnedSummary.fit(of_threads)
        filled = np.where(seen[:, learnt], known[:, learnt], usual)
        of_jobs = _node_values(job.embed(of_threads), embeddings, moments, filled)
        node = LearnedSummary.fit(of_jobs)
        cluster = LearnedSummary.fit(_cluster_values(node.embed(of_jobs), moments))
        return cls(
            {"job": job, "node": node, "cluster": cluster}, tuple(names[column] for column in learnt.tolist()), usual, spread
        )

    def calibrated(self, embeddings: NDArray[np.float32], moments: Moments, metrics: Mapping[str, Floats]) -> Self:
        """The same, with scores as ranks among calm windows that it was not learnt from."""
        raw = replace(self, calibrations={}).summarise(embeddings, moments, metrics)
        scores: dict[Level, Floats] = {"job": raw.job.score, "node": raw.node.score, "cluster": raw.cluster.score}
        return replace(self, calibrations={level: Calibration.fit(values) for level, values in scores.items()})

    def summarise(
        self, embeddings: NDArray[np.float32], moments: Moments, metrics: Mapping[str, Floats] | None = None
    ) -> Summaries:
        """Sum up windows; each metric by its name, in the order of nodes and moments, NaN where it is missing."""
        known = np.full((len(moments), len(self.names)), np.nan)
        for place, name in enumerate(self.names):
            if metrics is not None and name in metrics:
                known[:, place : place + 1] = _checked(metrics[name][:, None], moments, 1)
        filled = np.where(np.isfinite(known), known, self.usual)
        of_threads = _members(embeddings, moments.job, len(moments.node_of_job))
        job = self._summary("job", of_threads)
        of_jobs = _node_values(job.embedding, embeddings, moments, filled)
        node = self._summary("node", of_jobs)
        cluster = self._summary("cluster", _cluster_values(node.embedding, moments))
        return Summaries(job, node, cluster, self._unusual(filled), filled)

    def _summary(self, level: Level, values: Floats) -> Summary:
        summary, calibration = self.levels[level], self.calibrations.get(level)
        raw = summary.score(values)
        return Summary(summary.embed(values), raw if calibration is None else calibration.score(raw))

    def _unusual(self, metrics: Floats) -> Numbers:
        if not self.names:
            return np.full(len(metrics), -1, dtype=np.int64)
        far = np.abs(metrics - self.usual) / self.spread
        return np.where(far.max(axis=1) >= _FAR, far.argmax(axis=1), -1).astype(np.int64)

    def content(self) -> bytes:
        """All arrays, as safetensors."""
        arrays = {"usual": self.usual, "spread": self.spread}
        for level in LEVELS:
            arrays |= self.levels[level].arrays(level)
            if level in self.calibrations:
                arrays |= self.calibrations[level].arrays(f"{level}.calibration")
        content: bytes = _safetensors().save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
        return content

    def metadata(self) -> dict[str, Any]:
        """What it is, as JSON can hold it."""
        sizes = {level: len(self.levels[level].scale) for level in LEVELS}
        calm = {level: calibration.windows for level, calibration in self.calibrations.items()}
        return {"metrics": list(self.names), "embedding": sizes, "calm": calm}

    @classmethod
    def of_content(cls, record: Mapping[str, Any], content: bytes, where: str) -> Self:
        """The hierarchy of which `metadata` and `content` were kept; ModelFormatError says what is wrong with them."""
        from safetensors import SafetensorError

        try:
            arrays = _safetensors().load(content)
            names = tuple(str(name) for name in record["metrics"])
            levels = {level: LearnedSummary.of_arrays(level, arrays) for level in LEVELS}
            calibrations = {level: Calibration.of_arrays(f"{level}.calibration", arrays) for level in LEVELS}
            usual, spread = arrays["usual"], arrays["spread"]
            if usual.shape != (len(names),) or spread.shape != usual.shape:
                raise ValueError("its metrics do not fit their names")
        except (KeyError, TypeError, ValueError, OverflowError, SafetensorError, ModelFormatError) as error:
            hint = "Train it again: stormpetrel traces train"
            raise ModelFormatError(f"The hierarchy in {where} is damaged: {str(error)[:200]}", hint=hint) from None
        return cls(levels, names, usual, spread, calibrations)


def _node_values(placed: Floats, embeddings: NDArray[np.float32], moments: Moments, metrics: Floats) -> Floats:
    """What a node is summed up from: its jobs, its threads, how many jobs it has, and its metrics."""
    size = len(moments)
    jobs = _members(placed, moments.node_of_job, size)
    threads = _members(embeddings, moments.node, size)
    count = np.log1p(np.bincount(moments.node_of_job, minlength=size))[:, None]
    return np.concatenate([jobs, threads, count, metrics], axis=1)


def _cluster_values(placed: Floats, moments: Moments) -> Floats:
    """What the cluster is summed up from: its nodes, and how many there are."""
    size = len(moments.first_node)
    count = np.log1p(np.bincount(moments.moment, minlength=size))[:, None]
    return np.concatenate([_members(placed, moments.moment, size), count], axis=1)


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


def _checked(metrics: Floats | None, moments: Moments, count: int) -> Floats:
    if metrics is None:
        return np.zeros((len(moments), count))
    if metrics.shape != (len(moments), count):
        raise UsageError(f"There are {len(moments)} nodes and moments and {count} metrics, and values of shape {metrics.shape}.")
    return metrics.astype(np.float64)


def _safetensors() -> Any:
    try:
        import safetensors.numpy
    except ImportError as error:
        raise MissingExtraError("A saved hierarchy of CPU traces", "scoring") from error
    return safetensors.numpy


@dataclass(frozen=True, slots=True, eq=False)
class LearnedSummary:
    """What calm rows look like, as a plane with a scale."""

    mean: Floats  # (measurements,)
    spread: Floats  # (measurements,)
    components: Floats  # (embedding, measurements)
    scale: Floats  # (embedding,) standard deviation of each component
    residual: Floats  # (measurements,) what the plane leaves unexplained, usually
    usual: tuple[float, float]  # medians of the two parts of the score in training

    @classmethod
    def fit(cls, values: Floats) -> Self:
        """Learn from calm rows; ModelError where there are fewer than two."""
        if len(values) < 2 or not np.isfinite(values).all():
            raise ModelError("A summary is learnt from two rows or more, of finite numbers.", hint="Take in more calm windows.")
        mean, spread = values.mean(axis=0), np.maximum(values.std(axis=0), SMALLEST_SPREAD)
        standard = (values - mean) / spread
        _, singular, axes = np.linalg.svd(standard, full_matrices=False)
        variance = singular**2
        share = np.cumsum(variance) / max(float(variance.sum()), 1e-12)
        size = min(int(np.searchsorted(share, EXPLAINED)) + 1, MOST_COMPONENTS, len(axes))
        scale = np.maximum(singular[:size] / np.sqrt(len(values)), 1e-6)
        rest = standard - standard @ axes[:size].T @ axes[:size]
        plain = cls(mean, spread, axes[:size], scale, np.maximum(rest.std(axis=0), SMALLEST_RESIDUAL), (1.0, 1.0))
        worst, far = plain._parts(values)
        usual = (max(float(np.median(worst)), 1e-9), max(float(np.median(far)), 1e-9))
        return cls(mean, spread, plain.components, scale, plain.residual, usual)

    def embed(self, values: Floats) -> Floats:
        """Where each row lies, each component in units of its spread: (rows, embedding)."""
        embedding: Floats = ((values - self.mean) / self.spread) @ self.components.T / self.scale
        return embedding

    def score(self, values: Floats) -> Floats:
        """How unusual each row is; about 2 for a usual one, higher is more abnormal."""
        worst, far = self._parts(values)
        score: Floats = worst / self.usual[0] + far / self.usual[1]
        return score

    def _parts(self, values: Floats) -> tuple[Floats, Floats]:
        standard = (values - self.mean) / self.spread
        rest = standard - standard @ self.components.T @ self.components
        apart = np.minimum(np.abs(rest) / self.residual, LARGEST)
        worst = np.sort(apart, axis=1)[:, -WORST:].mean(axis=1)
        out = np.minimum(np.abs(self.embed(values)), LARGEST)
        return worst, np.sqrt((out**2).mean(axis=1))

    def arrays(self, prefix: str) -> dict[str, Floats]:
        """As they are saved."""
        arrays = {f"{prefix}.{name}": getattr(self, name) for name in _ARRAYS}
        return {**arrays, f"{prefix}.parts": np.array(self.usual)}

    @classmethod
    def of_arrays(cls, prefix: str, arrays: Mapping[str, Floats]) -> Self:
        """As they were saved; ModelFormatError where they do not fit each other."""
        try:
            mean, spread, components, scale, residual = (arrays[f"{prefix}.{name}"] for name in _ARRAYS)
            first, second = arrays[f"{prefix}.parts"]
            summary = cls(mean, spread, components, scale, residual, (float(first), float(second)))
            fits = components.shape == (*scale.shape, *mean.shape) and mean.shape == spread.shape == residual.shape
            fits = fits and all(np.isfinite(array).all() for array in (mean, spread, components, scale, residual))
        except (KeyError, TypeError, ValueError, AttributeError):
            fits = False
        if not fits:
            raise ModelFormatError("A learned summary cannot be read.", hint="Train it again: stormpetrel traces train")
        return summary
