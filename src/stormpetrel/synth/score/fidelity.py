"""How alike two workloads are, column by column and in the order of their jobs.

real and synthetic Workload -> fidelity -> Fidelity. A figure that cannot be had is None, with a note that says why.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import polars as pl

from stormpetrel.records.arrays import Floats
from stormpetrel.synth.workload import ARRAY, SUBMIT, WHO, Workload

INTERVAL: Final = "interval_s"
RUNTIME: Final = "runtime_s"
CORES: Final = "cores"
MAIN_COLUMNS: Final = (INTERVAL, RUNTIME, CORES)  # in every scorecard, with or without a value
LAGS: Final = 50
HOUR_S: Final = 3600.0
HOURS_OF_WEEK: Final = 168
# 1970 began on a Thursday: so many hours of its week were over.
_HOURS_BEFORE_1970: Final = 72
_MISSING_MATTERS: Final = 0.01  # difference in the share of empty cells from which on a note says so


@dataclass(frozen=True, slots=True)
class Distance:
    """How far two columns of numbers are apart: Kolmogorov–Smirnov (0 to 1) and Wasserstein-1 (in the column's unit)."""

    ks: float | None
    w1: float | None

    def as_dict(self) -> dict[str, float | None]:
        """As a plain dictionary, for JSON."""
        return {"ks": self.ks, "w1": self.w1}


@dataclass(frozen=True, slots=True)
class CategoryDistance:
    """Total variation of the shares of a column's values: 0 is equal, 1 is nothing in common.

    Shares are compared value by value (`by` is "name"). The names of users, groups and accounts are always new: of them the
    largest share is compared with the largest, the second with the second, and so on (`by` is "rank").
    """

    tv: float | None
    by: str = "name"

    def as_dict(self) -> dict[str, float | str | None]:
        """As a plain dictionary, for JSON."""
        return {"tv": self.tv, "by": self.by}


@dataclass(frozen=True, slots=True)
class Pair:
    """One figure of both workloads."""

    real: float | None
    synthetic: float | None

    @property
    def ratio(self) -> float | None:
        """Synthetic ÷ real; None where either is missing or the real one is zero."""
        return None if self.real is None or self.synthetic is None or self.real == 0 else self.synthetic / self.real

    @property
    def error(self) -> float | None:
        """Synthetic − real."""
        return None if self.real is None or self.synthetic is None else self.synthetic - self.real

    def as_dict(self) -> dict[str, float | None]:
        """As a plain dictionary, for JSON."""
        return {"real": self.real, "synthetic": self.synthetic}


@dataclass(frozen=True, slots=True)
class Fidelity:
    """How alike two workloads are.

    `lag1` is the autocorrelation of log(1 + interval) at lag 1 and `acf_mae` the mean absolute difference of the two at lags 1
    to 50; `dispersion` is variance ÷ mean of the hourly counts, empty hours included; `hour_profile_tv` is the total variation
    between the shares of the 168 hours of the week; `same_user_share` is the share of jobs from the user of the job before.
    """

    columns: dict[str, Distance]
    categories: dict[str, CategoryDistance]
    lag1: Pair
    acf_mae: float | None
    dispersion: Pair
    hour_profile_tv: float | None
    same_user_share: Pair
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """As a plain dictionary, for JSON; without the notes, which the scorecard collects."""
        return {
            "columns": {name: distance.as_dict() for name, distance in self.columns.items()},
            "categories": {name: distance.as_dict() for name, distance in self.categories.items()},
            "lag1": self.lag1.as_dict(),
            "acf_mae": self.acf_mae,
            "dispersion": self.dispersion.as_dict(),
            "hour_profile_tv": self.hour_profile_tv,
            "same_user_share": self.same_user_share.as_dict(),
        }


def fidelity(real: Workload, synthetic: Workload) -> Fidelity:
    """Compare two workloads."""
    correlation = autocorrelation(real.interval_s(), LAGS), autocorrelation(synthetic.interval_s(), LAGS)  # (lags,) each
    result = Fidelity(
        columns={name: _distance(real, synthetic, name) for name in number_columns(real, synthetic)},
        categories={name: _category_distance(real, synthetic, name) for name in _category_columns(real, synthetic)},
        lag1=Pair(_finite(correlation[0][0]), _finite(correlation[1][0])),
        acf_mae=_finite(float(np.mean(np.abs(correlation[0] - correlation[1])))),
        dispersion=Pair(dispersion(real.submit_s()), dispersion(synthetic.submit_s())),
        hour_profile_tv=_variation(hour_of_week(real), hour_of_week(synthetic)),
        same_user_share=Pair(same_user_share(real), same_user_share(synthetic)),
    )
    return replace(result, notes=tuple(_notes(real, synthetic, result)))


def number_columns(real: Workload, synthetic: Workload) -> tuple[str, ...]:
    """Columns of numbers to compare: interval, run time and cores always, then the others that both have."""
    both = [name for name in _shared(real, synthetic) if _is_number(real, name) and _is_number(synthetic, name)]
    return (*MAIN_COLUMNS, *(name for name in both if name not in MAIN_COLUMNS))


def numbers(workload: Workload, column: str) -> Floats:
    """The finite values of a column of numbers, `interval_s` among them; empty where there is none."""
    if column == INTERVAL:
        values = workload.interval_s()
    elif column in workload.jobs.columns and _is_number(workload, column):
        values = workload.jobs[column].drop_nulls().cast(pl.Float64).to_numpy()
    else:
        return np.empty(0)
    return values[np.isfinite(values)]


def cdf(workload: Workload, column: str) -> tuple[Floats, Floats]:
    """The distribution of a column: its distinct values, rising, and the share of jobs at or below each."""
    values, counts = np.unique(numbers(workload, column), return_counts=True)
    return values, np.cumsum(counts) / max(1, counts.sum())


def autocorrelation(intervals: Floats, lags: int = LAGS) -> Floats:
    """(lags,) autocorrelation of log(1 + interval) at lags 1 to `lags`; NaN where there are too few, or all are the same."""
    logs = np.log1p(np.maximum(intervals, 0.0))
    centred = logs - logs.mean() if logs.size else logs  # (jobs - 1,)
    power = float(centred @ centred)
    if power <= 1e-12 * max(1, logs.size):
        return np.full(lags, np.nan)
    # A lag that leaves fewer than two pairs says nothing.
    return np.array([centred[lag:] @ centred[:-lag] / power if lag + 2 <= logs.size else np.nan for lag in range(1, lags + 1)])


def dispersion(submit_s: Floats) -> float | None:
    """Variance ÷ mean of the hourly counts from the first submission to the last, hours without a job included."""
    if not submit_s.size:
        return None
    hours = np.floor((submit_s - submit_s.min()) / HOUR_S)
    span = float(hours.max()) + 1.0
    if span < 2:
        return None
    # Empty hours need no row of their own, so that one stray date costs no memory.
    counts = np.unique(hours, return_counts=True)[1].astype(np.float64)
    mean = submit_s.size / span
    return float((np.sum(counts**2) / span - mean**2) / mean)


def hour_of_week(workload: Workload) -> Floats:
    """(168,) share of the jobs submitted in each hour of the week, from Monday 00:00 UTC."""
    hours = np.floor(workload.submit_s() / HOUR_S).astype(np.int64) + _HOURS_BEFORE_1970
    counts = np.bincount(hours % HOURS_OF_WEEK, minlength=HOURS_OF_WEEK)
    return counts / max(1, workload.height)


def same_user(workload: Workload) -> Floats | None:
    """(jobs - 1,) 1 where a job comes from the user of the job before, 0 where not, NaN without a name; None without users."""
    if "user" not in workload.jobs.columns:
        return None
    user = workload.jobs["user"]
    return (user.slice(1) == user.slice(0, max(0, len(user) - 1))).cast(pl.Float64).to_numpy().astype(np.float64)


def same_user_share(workload: Workload) -> float | None:
    """The share of jobs that come from the user of the job before; None without users."""
    same = same_user(workload)
    known = np.empty(0) if same is None else same[np.isfinite(same)]
    return float(known.mean()) if known.size else None


def kolmogorov_smirnov(first: Floats, other: Floats) -> float | None:
    """The largest gap between the two distributions; None where one has no value."""
    if not first.size or not other.size:
        return None
    first, other = np.sort(first), np.sort(other)
    at = np.concatenate([first, other])
    return float(np.max(np.abs(_share_below(first, at) - _share_below(other, at))))


def wasserstein(first: Floats, other: Floats) -> float | None:
    """How far a value has to be moved on average to make one distribution of the other; None where one has no value."""
    if not first.size or not other.size:
        return None
    first, other = np.sort(first), np.sort(other)
    at = np.sort(np.concatenate([first, other]))
    gap = np.abs(_share_below(first, at[:-1]) - _share_below(other, at[:-1]))
    return float(gap @ np.diff(at))


def _share_below(values: Floats, at: Floats) -> Floats:
    return np.searchsorted(values, at, side="right") / values.size


def _distance(real: Workload, synthetic: Workload, column: str) -> Distance:
    first, other = numbers(real, column), numbers(synthetic, column)
    return Distance(kolmogorov_smirnov(first, other), wasserstein(first, other))


def _shared(real: Workload, synthetic: Workload) -> tuple[str, ...]:
    """Columns of both that can be compared; the number of an array is a name."""
    return tuple(name for name in real.jobs.columns if name in synthetic.jobs.columns and name not in (SUBMIT, ARRAY))


def _is_number(workload: Workload, column: str) -> bool:
    return workload.jobs[column].dtype.is_numeric()


def _category_columns(real: Workload, synthetic: Workload) -> tuple[str, ...]:
    shared = _shared(real, synthetic)
    return tuple(name for name in shared if not _is_number(real, name) and not _is_number(synthetic, name))


def _category_distance(real: Workload, synthetic: Workload, column: str) -> CategoryDistance:
    first, other = _shares(real.jobs[column]), _shares(synthetic.jobs[column])
    if column not in WHO:
        values = sorted(first.keys() | other.keys())
        return CategoryDistance(
            _variation(*(np.array([shares.get(value, 0.0) for value in values]) for shares in (first, other)))
        )
    ranked = [np.sort(np.array(list(shares.values()), dtype=np.float64))[::-1] for shares in (first, other)]
    most = max(map(len, ranked))
    return CategoryDistance(_variation(*(np.pad(shares, (0, most - shares.size)) for shares in ranked)), "rank")


def _shares(column: pl.Series) -> dict[str, float]:
    counts = column.drop_nulls().cast(pl.String).value_counts()
    shares = counts["count"].to_numpy() / max(1, int(counts["count"].sum()))
    return dict(zip(counts[column.name].to_list(), shares.tolist(), strict=True))


def _variation(first: Floats, other: Floats) -> float | None:
    """Total variation of two sets of shares; None where one is empty."""
    return float(np.abs(first - other).sum() / 2) if first.sum() > 0 and other.sum() > 0 else None


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _notes(real: Workload, synthetic: Workload, result: Fidelity) -> Iterator[str]:
    """What a reader has to know about figures that are missing or weak."""
    if min(real.height, synthetic.height) < LAGS + 3:
        yield f"acf_mae needs {LAGS + 3} jobs on each side; the real part has {real.height}, the synthetic {synthetic.height}."
    elif result.acf_mae is None:
        yield "All intervals of one side are the same: it has no autocorrelation (lag1, acf_mae)."
    if result.dispersion.real is None or result.dispersion.synthetic is None:
        yield "One side lasts less than an hour: it has no dispersion."
    if result.same_user_share.real is None or result.same_user_share.synthetic is None:
        yield "One side has no users: same_user_share is left out, and so is that column of the C2ST."
    if not (real.has_clock and synthetic.has_clock):
        yield "One side has intervals only and no dates: its hours of day and of week are counted from an arbitrary Monday."
    yield from _column_notes(real, synthetic)


def _column_notes(real: Workload, synthetic: Workload) -> Iterator[str]:
    for side, here, there in (("real", real, synthetic), ("synthetic", synthetic, real)):
        alone = [name for name in here.jobs.columns if name not in there.jobs.columns and name not in (ARRAY, "wait_s")]
        if alone:
            yield f"Only the {side} jobs have {', '.join(alone)}: not compared."
    for name in _shared(real, synthetic):
        if _is_number(real, name) != _is_number(synthetic, name):
            yield f"'{name}' is a number on one side and text on the other: not compared."
        elif abs(_missing(real, name) - _missing(synthetic, name)) > _MISSING_MATTERS:
            shares = f"{_missing(real, name):.1%} of the real and {_missing(synthetic, name):.1%} of the synthetic jobs"
            yield f"'{name}' is empty in {shares}."


def _missing(workload: Workload, column: str) -> float:
    return workload.jobs[column].null_count() / max(1, workload.height)
