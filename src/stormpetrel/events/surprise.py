"""From the surprises of many kinds in the last hours to one score.

normal scores (buckets, kinds) of calm training buckets -> fit_surprise -> SurpriseScale -> score.

A single wild hour of a single kind is daily life on a grid; an outage lasts, and bends several kinds against each other. So the
normal scores are remembered for a short and for a long while, each memory is measured against how calm operation scatters
(Mahalanobis), each distance against how often calm operation reaches it, and the larger of the two is the score: 2 is what one
calm bucket in a hundred exceeds. What else was tried, with figures: docs/log.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from stormpetrel.events.count_memory import lagged
from stormpetrel.records.event_series import HOUR_S

Floats = npt.NDArray[np.float64]
Truth = npt.NDArray[np.bool_]

MEMORY_HOURS: Final = (1.5, 6.0)  # after so long a surprise counts 1/e
_SHORT_BUCKETS: Final = 2.0  # where buckets are shorter than half an hour, a third memory of so many: silence shows at once
CUT: Final = 8.0  # memories end after so many times their length
LARGEST_SCORE: Final = 8.0  # of one kind in one bucket, before it is remembered
_TRIMMED: Final = 0.05  # share of the training buckets that may be outages which nobody has labelled
_ROUNDS: Final = 4
_SHRINK: Final = 0.001
_FEWEST_VARIANCE: Final = 0.25  # of that of independent normal scores: a rare kind must not decide alone
_UNSEEN: Final = (
    0.02  # below, a kind was hardly seen at all: nobody knows how it scatters, so it is taken to scatter as others do
)
_TAIL: Final = 0.9  # above this calm quantile the distances are taken as exponential
_KNOTS: Final = 65


@dataclass(frozen=True, slots=True, eq=False)
class MemoryScale:
    """How one memory of the surprises scatters in calm operation."""

    hours: float
    centre: Floats  # (kinds,)
    precision: Floats  # (kinds, kinds): inverse covariance
    knots: Floats  # (knots,) calm distances at even quantiles from 0 to _TAIL
    tail: float  # mean excess of calm distances above the last knot

    def distance(self, remembered: Floats) -> Floats:
        """(buckets,) how far from calm operation, whichever way."""
        off = remembered - self.centre  # (buckets, kinds)
        return np.asarray(np.sqrt(np.maximum(np.einsum("ij,jk,ik->i", off, self.precision, off), 0.0)), dtype=np.float64)

    def rarity(self, distance: Floats) -> Floats:
        """(buckets,) −log10 of the share of calm buckets that are at least so far."""
        share = np.interp(distance, self.knots, np.linspace(0.0, _TAIL, len(self.knots)))
        beyond = np.maximum(distance - self.knots[-1], 0.0) / self.tail
        return np.asarray(-np.log10(1.0 - share) + beyond / np.log(10.0), dtype=np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class SurpriseScale:
    """The memories; `score` says how rare the rarest of them is."""

    bucket_s: int
    memories: tuple[MemoryScale, ...]

    @property
    def history_buckets(self) -> int:
        """How many buckets before a bucket its score depends on."""
        return max(_length(one.hours, self.bucket_s) for one in self.memories)

    def score(self, scores: Floats) -> Floats:
        """(buckets,) from normal scores (buckets, kinds); NaN in them is no surprise."""
        rarities = [one.rarity(one.distance(remember(scores, one.hours, self.bucket_s))) for one in self.memories]
        return np.asarray(np.max(rarities, axis=0), dtype=np.float64)


def fit_surprise(scores: Floats, calm: Truth, bucket_s: int, hours: Sequence[float] = MEMORY_HOURS) -> SurpriseScale:
    """Learn how the memories of normal scores (buckets, kinds) scatter over calm buckets, of which there is one at least."""
    short = (_SHORT_BUCKETS * bucket_s / HOUR_S,) if bucket_s < HOUR_S / 2 else ()
    return SurpriseScale(bucket_s, tuple(_fit_memory(scores, calm, bucket_s, one) for one in (*short, *hours)))


def remember(scores: Floats, hours: float, bucket_s: int) -> Floats:
    """(buckets, kinds): exponentially weighted mean of the scores up to and with each bucket, over a fixed number of buckets."""
    from scipy.signal import lfilter

    known = np.clip(np.nan_to_num(scores), -LARGEST_SCORE, LARGEST_SCORE)
    keep = _keep(hours, bucket_s)
    length = _length(hours, bucket_s)
    entering = known - keep ** (length + 1) * lagged(known, length + 1)
    return np.asarray(lfilter([1.0 - keep], [1.0, -keep], entering, axis=0), dtype=np.float64)


def _fit_memory(scores: Floats, calm: Truth, bucket_s: int, hours: float) -> MemoryScale:
    remembered = remember(scores, hours, bucket_s)[calm]  # (calm buckets, kinds)
    kinds = scores.shape[1]
    keep = _keep(hours, bucket_s)
    usual = (1.0 - keep) / (1.0 + keep)  # variance of a memory of independent normal scores
    used = np.ones(len(remembered), dtype=np.bool_)
    scale = MemoryScale(hours, np.zeros(kinds), np.eye(kinds), np.zeros(1), 1.0)
    for _ in range(_ROUNDS):
        rows = remembered[used]
        covariance = np.atleast_2d(np.cov(rows.T)) if len(rows) > 1 else np.eye(kinds)
        spread = np.diag(covariance)
        least = np.where(spread < _UNSEEN * usual, usual, _FEWEST_VARIANCE * usual)
        covariance = covariance + np.diag(np.maximum(least - spread, 0.0) + _SHRINK * usual)
        scale = MemoryScale(hours, rows.mean(axis=0), np.asarray(np.linalg.inv(covariance), dtype=np.float64), np.zeros(1), 1.0)
        distance = scale.distance(remembered)
        used = distance <= np.quantile(distance, 1.0 - _TRIMMED)
    knots = np.quantile(distance, np.linspace(0.0, _TAIL, _KNOTS))
    beyond = distance[distance > knots[-1]]
    # Through the median: the farthest of the training buckets may be outages.
    tail = float(np.median(beyond - knots[-1]) / np.log(2.0)) if beyond.size else 0.0
    return MemoryScale(hours, scale.centre, scale.precision, knots, max(tail, 0.05))


def _keep(hours: float, bucket_s: int) -> float:
    """What is left of a surprise one bucket later."""
    return float(np.exp(-bucket_s / (hours * HOUR_S)))


def _length(hours: float, bucket_s: int) -> int:
    return int(np.ceil(CUT * hours * HOUR_S / bucket_s))
