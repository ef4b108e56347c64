"""How surprising counts are: the tails of each kind, and over all kinds and the last hours together.

count, mean, dispersion -> tail probabilities, signed surprises, normal scores, the band of calm counts. Normal scores of a
series -> fit_surprise -> SurpriseScale -> one score per bucket.

A count is negative binomial: variance = mean + dispersion × mean². Half of the probability of the count itself is in either tail
(mid-p), so that the surprises of rare kinds are spread as those of frequent ones. Everything is computed in logarithms: a count a
thousand times too large has a surprise, not an infinity.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from stormpetrel.events.counts.memory import lagged
from stormpetrel.records.arrays import Floats
from stormpetrel.records.event_series import HOUR_S

SMALLEST_MEAN: Final = 1e-6
SMALLEST_DISPERSION: Final = 1e-6
LARGEST_DISPERSION: Final = 1e4
BAND: Final = 0.99
_LOG_10: Final = float(np.log(10.0))
_LOG_2: Final = float(np.log(2.0))
_SMALL: Final = 1e-4
_DEEP: Final = 1e-250  # below, a tail is summed in logarithms


def log_tails(count: Floats, mean: Floats, dispersion: Floats) -> tuple[Floats, Floats]:
    """Natural logarithms of the mid-p probabilities of at least so many, and of at most so many; NaN where the count is."""
    from scipy.special import betainc, gammaln

    count, mean, dispersion = np.broadcast_arrays(count, mean, dispersion)
    upper_log, lower_log = np.full(count.shape, np.nan), np.full(count.shape, np.nan)
    known = np.isfinite(count) & np.isfinite(mean)
    k = np.maximum(count[known], 0.0)
    m = np.maximum(mean[known], SMALLEST_MEAN)
    r = 1.0 / np.clip(dispersion[known], SMALLEST_DISPERSION, LARGEST_DISPERSION)
    log_mass = gammaln(k + r) - gammaln(r) - gammaln(k + 1.0) - r * np.log1p(m / r) - k * np.log1p(r / m)  # of the count itself
    mass = np.exp(log_mass)
    upper = betainc(k + 1.0, r, m / (r + m)) + 0.5 * mass
    lower = 1.0 - upper
    few = lower < _SMALL  # where the difference has lost its digits
    lower[few] = 0.5 * mass[few] + np.where(k[few] >= 1.0, betainc(r[few], np.maximum(k[few], 1.0), (r / (r + m))[few]), 0.0)
    upper_log[known] = _log_or_sum(upper, log_mass, (k + r) / (k + 1.0) * m / (r + m))
    lower_log[known] = _log_or_sum(lower, log_mass, k / np.maximum(k + r - 1.0, 1e-12) * (r + m) / m)
    return upper_log, lower_log


def signed_surprise(count: Floats, mean: Floats, dispersion: Floats) -> Floats:
    """Sign of count − mean × −log10 of the two-sided tail: 3 is one in a thousand, 0 is what was expected."""
    upper, lower = log_tails(count, mean, dispersion)
    with np.errstate(invalid="ignore"):
        tail = np.where(count >= mean, upper, lower)
        surprise: Floats = np.where(count >= mean, 1.0, -1.0) * np.maximum(0.0, -(tail + _LOG_2) / _LOG_10)
    return surprise


def normal_scores(count: Floats, mean: Floats, dispersion: Floats) -> Floats:
    """What a normal variable would be that is as surprising: above zero for more than expected; NaN where the count is."""
    from scipy.special import ndtri_exp

    upper, lower = log_tails(count, mean, dispersion)
    with np.errstate(invalid="ignore"):
        score: Floats = np.where(upper < lower, -ndtri_exp(upper), ndtri_exp(lower))
    return score


def calm_band(mean: Floats, dispersion: Floats, share: float = BAND) -> tuple[Floats, Floats]:
    """The counts between which this share of calm counts lies, both ends included."""
    from scipy.stats import nbinom

    low, high = np.full(mean.shape, np.nan), np.full(mean.shape, np.nan)
    known = np.isfinite(mean)
    m = np.maximum(mean[known], SMALLEST_MEAN)
    r = 1.0 / np.clip(np.broadcast_to(dispersion, mean.shape)[known], SMALLEST_DISPERSION, LARGEST_DISPERSION)
    low[known] = nbinom.ppf((1.0 - share) / 2, r, r / (r + m))
    high[known] = nbinom.ppf((1.0 + share) / 2, r, r / (r + m))
    return low, high


def _log_or_sum(tail: Floats, log_mass: Floats, next_term: Floats) -> Floats:
    """Logarithm of a tail; deep in it, where terms fall by nearly the same factor from one to the next, of a geometric sum."""
    deep = tail <= _DEEP
    logs = np.log(np.where(deep, 1.0, np.minimum(tail, 1.0)))
    factor = np.minimum(next_term[deep], 1.0 - 1e-12)
    logs[deep] = log_mass[deep] + np.log(0.5 + factor / (1.0 - factor))
    return np.asarray(logs, dtype=np.float64)


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
        return max(_length(memory.hours, self.bucket_s) for memory in self.memories)

    def score(self, scores: Floats) -> Floats:
        """(buckets,) from normal scores (buckets, kinds); NaN in them is no surprise."""
        rarities = [memory.rarity(memory.distance(remember(scores, memory.hours, self.bucket_s))) for memory in self.memories]
        return np.asarray(np.max(rarities, axis=0), dtype=np.float64)


def fit_surprise(scores: Floats, calm: Truth, bucket_s: int, hours: Sequence[float] = MEMORY_HOURS) -> SurpriseScale:
    """Learn how the memories of normal scores (buckets, kinds) scatter over calm buckets, of which there is one at least."""
    short = (_SHORT_BUCKETS * bucket_s / HOUR_S,) if bucket_s < HOUR_S / 2 else ()
    return SurpriseScale(bucket_s, tuple(_fit_memory(scores, calm, bucket_s, memory_hours) for memory_hours in (*short, *hours)))


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
