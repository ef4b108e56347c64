"""Diagnosis: where windows lie on the map of a model, how far from known trouble, and how much iowait they saw.

Scorer, PcaMap, Trouble, Windows -> place -> Placement; Placement -> diagnose -> Diagnosis. A job that is no Bad IO job but lies
where Bad IO lies suffers from the same: it waits for its files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from stormpetrel.errors import ModelFormatError
from stormpetrel.records.arrays import Floats
from stormpetrel.records.traces import ANOMALOUS_TYPES, BAD_IO, IDLE, MIXED, NP
from stormpetrel.records.windows import Windows
from stormpetrel.traces.baselines import max_iowait
from stormpetrel.traces.networks.architecture import Scorer
from stormpetrel.traces.separability import PcaMap

Embeddings = npt.NDArray[np.float32]

NEAR_SHARE: Final = 0.25  # of the normal windows of jobs lie within the radius around Bad IO
HIGH_SHARE: Final = 0.5  # of the iowait that is usual in Bad IO is high for anything else
NO_SUSPECTS: Final = (*sorted(ANOMALOUS_TYPES), IDLE, MIXED)  # known already; runs no job; partly somebody else's
_AGAIN: Final = "Train again: stormpetrel traces train"


@dataclass(frozen=True, slots=True, eq=False)
class Trouble:
    """Where the known Bad IO windows lie, and the region around it that means trouble for others.

    A window lies in the region if it is nearer to the centre than three quarters of the normal windows of jobs *and* its largest
    iowait is half of what is usual in Bad IO, or more: distance alone would always find a quarter.
    """

    centre: Floats  # (embedding,)
    radius: float  # of the region
    high_iowait: float
    windows: int  # that it is known from

    def distance(self, embeddings: Embeddings) -> Floats:
        """How far each embedding lies from the centre."""
        return _distance(embeddings, self.centre)

    def holds(self, distance: Floats, iowait: Floats) -> npt.NDArray[np.bool_]:
        """Which windows lie in the region."""
        return np.asarray((distance <= self.radius) & (iowait >= self.high_iowait))

    def record(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return {"centre": self.centre.tolist(), "radius": self.radius, "high_iowait": self.high_iowait, "windows": self.windows}

    @classmethod
    def of_record(cls, record: Any) -> Self:
        """The trouble that a record holds; ModelFormatError where it holds none."""
        try:
            centre = np.asarray(record["centre"], dtype=np.float64)
            trouble = cls(centre, float(record["radius"]), float(record["high_iowait"]), int(record["windows"]))
        except (KeyError, TypeError, ValueError):
            raise ModelFormatError("The centre of Bad IO cannot be read.", hint=_AGAIN) from None
        if trouble.centre.ndim != 1 or not np.isfinite([*trouble.centre, trouble.radius, trouble.high_iowait]).all():
            raise ModelFormatError("The centre of Bad IO is not a point.", hint=_AGAIN)
        return trouble


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """What a model says of each window; `bad_io_distance` is None where no Bad IO is known."""

    score: Floats
    x: Floats
    y: Floats
    max_iowait: Floats
    bad_io_distance: Floats | None
    embedding: Embeddings  # (windows, embedding)


@dataclass(frozen=True, slots=True)
class Suspect:
    """A job on a node (or a thread, where no job is known) some of whose windows lie in the region of Bad IO."""

    job_id: str  # empty for a thread
    job_type: str
    node: str
    cpus: tuple[int, ...]
    windows: int
    near: int
    nearest: float
    max_iowait: float


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Who lies near Bad IO, and whether distance to it tells iowait."""

    windows: int  # that were asked
    near: int  # of them in the region
    radius: float
    high_iowait: float
    rank_correlation: float | None  # of distance and largest iowait of NP windows; -1: the nearer, the more iowait
    suspects: tuple[Suspect, ...]


def known_bad_io(scorer: Scorer, windows: Windows) -> Trouble | None:
    """Where labelled Bad IO lies among these windows, which hold normal ones as well; None where none is labelled."""
    types = windows.job_types()
    bad, normal = types == BAD_IO, ~np.isin(types, NO_SUSPECTS)
    if not bad.any():
        return None
    embeddings = scorer.embed(windows)
    centre = embeddings[bad].mean(axis=0, dtype=np.float64)
    apart = _distance(embeddings, centre)
    radius = float(np.quantile(apart[normal], NEAR_SHARE)) if normal.any() else float(apart[bad].max())
    high = HIGH_SHARE * float(np.median(max_iowait(windows)[bad]))
    return Trouble(centre, radius, high, int(bad.sum()))


def place(scorer: Scorer, chart: PcaMap, trouble: Trouble | None, windows: Windows) -> Placement:
    """Score windows and put them on the map."""
    both = getattr(scorer, "embed_and_score", None)  # a network that is still being trained has no such shortcut
    embeddings, scores = both(windows) if both is not None else (scorer.embed(windows), scorer.score(windows))
    points = np.asarray(chart.transform(embeddings), dtype=np.float64)  # (windows, 2)
    return Placement(
        score=np.asarray(scores, dtype=np.float64),
        x=points[:, 0],
        y=points[:, 1],
        max_iowait=max_iowait(windows),
        bad_io_distance=None if trouble is None else trouble.distance(embeddings),
        embedding=embeddings,
    )


def diagnose(
    job_ids: Sequence[str | None],
    job_types: Sequence[str],
    nodes: Sequence[str],
    cpus: Sequence[int],
    distance: Floats,
    iowait: Floats,
    trouble: Trouble,
) -> Diagnosis:
    """Who suffers from what Bad IO suffers from, without being it; all sequences have one entry per window."""
    types = np.asarray(job_types, dtype=np.str_)
    rows: list[int] = np.flatnonzero(~np.isin(types, NO_SUSPECTS) & np.isfinite(distance)).tolist()
    near = trouble.holds(distance, iowait)
    owners: dict[tuple[str, str, int], list[int]] = {}
    for row in rows:
        job_id = job_ids[row] or ""
        owners.setdefault((job_id, nodes[row], -1 if job_id else cpus[row]), []).append(row)
    suspects = [
        Suspect(
            job_id=job_id,
            job_type=str(types[those[0]]),
            node=node,
            cpus=tuple(sorted({cpus[row] for row in those if near[row]})),
            windows=len(those),
            near=int(near[those].sum()),
            nearest=float(distance[those].min()),
            max_iowait=float(iowait[those].max()),
        )
        for (job_id, node, _), those in owners.items()
        if near[those].any()
    ]
    suspects.sort(key=lambda suspect: (-suspect.near, suspect.nearest, suspect.node, suspect.job_id))
    examined = [row for row in rows if types[row] == NP] or rows
    return Diagnosis(
        windows=len(rows),
        near=int(near[rows].sum()),
        radius=trouble.radius,
        high_iowait=trouble.high_iowait,
        rank_correlation=rank_correlation(distance[examined], iowait[examined]),
        suspects=tuple(suspects),
    )


def rank_correlation(first: Floats, second: Floats) -> float | None:
    """Spearman's: the correlation of the ranks, ties at their mean; None where either does not vary."""
    if first.size < 3 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return None
    return float(np.corrcoef(_ranks(first), _ranks(second))[0, 1])


def _ranks(values: Floats) -> Floats:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[inverse], dtype=np.float64)


def _distance(embeddings: Embeddings, centre: Floats) -> Floats:
    return np.asarray(np.linalg.norm(embeddings.astype(np.float64) - centre, axis=1))
