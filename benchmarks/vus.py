"""VUS-PR: how well a score tells ranges of anomalous samples, with no threshold and with tolerance at their borders.

labels (0 or 1), scores (higher is more abnormal) -> vus_pr -> 0 to 1. The volume under the surface of range-based precision and
recall (Paparrizos et al., PVLDB 15, 2022): labels fall off around each range over a buffer, as the square root; recall counts how
many ranges were seen at all; the area is averaged over buffers from 0 to `buffer` samples. A random score gives about the share
of anomalous samples.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

BUFFER: Final = 100  # samples, the longest
BUFFERS: Final = 11  # from 0 to the longest, evenly
THRESHOLDS: Final = 250  # as published


def vus_pr(labels: NDArray[np.bool_], scores: Floats, *, buffer: int = BUFFER, buffers: int = BUFFERS) -> float | None:
    """The mean over buffers of the area under range-based precision and recall; None without a range, or with nothing else."""
    if not labels.any() or labels.all():
        return None
    lengths = np.unique(np.linspace(0, buffer, buffers).round().astype(int))
    return float(np.mean([range_pr_area(labels, scores, int(length)) for length in lengths]))


def range_pr_area(labels: NDArray[np.bool_], scores: Floats, buffer: int) -> float:
    """The area under range-based precision and recall with one buffer (samples)."""
    soft = soft_labels(labels, buffer)
    wide = _ranges(soft > 0)
    positives = (soft.sum() + labels.sum()) / 2  # as published: between the soft and the hard count
    ordered = -np.sort(-scores)
    places = np.linspace(0, len(scores) - 1, min(THRESHOLDS, len(scores))).astype(int)
    recall, area = 0.0, 0.0
    for threshold in ordered[places]:
        flagged = scores >= threshold
        hits = float(soft[flagged].sum())
        counts = np.concatenate([[0], np.cumsum(flagged)])
        seen = sum(counts[last] > counts[first] for first, last in wide) / len(wide)
        now = min(1.0, hits / positives) * seen
        area += (now - recall) * hits / float(flagged.sum())
        recall = now
    return area


def soft_labels(labels: NDArray[np.bool_], buffer: int) -> Floats:
    """Labels that fall off around each range: the square root of 1 − distance ÷ buffer, up to half a buffer away."""
    soft = labels.astype(np.float64)
    reach = buffer // 2
    for first, last in _ranges(labels):
        for away in range(1, reach + 1):
            value = np.sqrt(1 - away / buffer)
            for place in (first - away, last - 1 + away):
                if 0 <= place < len(soft):
                    soft[place] += value
    return np.minimum(soft, 1.0)


def _ranges(labels: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """First and one past the last sample of each range."""
    edges = np.flatnonzero(np.diff(np.r_[False, labels, False]))
    return [(int(first), int(last)) for first, last in zip(edges[::2], edges[1::2], strict=True)]
