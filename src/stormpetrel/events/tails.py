"""Tails of counts: how surprising a count is, where so many were expected with such a spread.

count, mean, dispersion -> tail probabilities, signed surprises, normal scores, the band of calm counts.

The count is negative binomial: variance = mean + dispersion × mean². Half of the probability of the count itself is in either
tail (mid-p), so that the surprises of rare kinds are spread as those of frequent ones. Everything is done in logarithms: a
count a thousand times too large has a surprise, not an infinity.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

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
