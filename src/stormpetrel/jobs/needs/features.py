"""Features of a need: past use of jobs like this one and its request, as logs relative to an anchor of its own.

readings of PastUse + UseTable -> Features. Two anchors, two views: what is typical of the narrowest group of past jobs that is
known (where the same work is run again), and the request (where users know better than their past).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from stormpetrel.jobs.needs.past_use import NARROWEST_FIRST, SPACE_NAMES, TIME, UseTable
from stormpetrel.records.arrays import Floats, Matrix
from stormpetrel.records.times import hours_of

HISTORY: Final = "history"
REQUEST: Final = "request"
ANCHORS: Final = (HISTORY, REQUEST)
_REQUEST_FEATURES: Final = ("request", "request_log", "cores_log", "limit_log", "hour", "anchor")
_FEWEST_FOR_ANCHOR: Final = 2  # ended jobs


@dataclass(frozen=True, slots=True)
class Features:
    """Feature values of jobs relative to an anchor (log of bytes or seconds; NaN where a job has none)."""

    values: Matrix
    anchor: Floats


def feature_names() -> tuple[str, ...]:
    """The names of the columns of `Features.values`."""
    from stormpetrel.jobs.needs.past_use_kernel import READINGS

    return (*(f"{space}.{reading}" for space in SPACE_NAMES for reading in READINGS), *_REQUEST_FEATURES)


def make_features(readings: Matrix, table: UseTable, jobs: pl.DataFrame, resource: str, anchor_name: str) -> Features:
    """The features of each job at its submission, seen from one anchor; the other stands in where that is not known."""
    from stormpetrel.jobs.needs.past_use_kernel import LEVELS, N_READINGS, READINGS

    request = np.log(table.request)
    typical = typical_use(readings)
    first, second = (typical, request) if anchor_name == HISTORY else (request, typical)
    anchor = np.where(np.isnan(first), second, first)
    values = readings.reshape(len(readings), len(SPACE_NAMES), N_READINGS).copy()
    values[:, :, LEVELS] -= anchor[:, None, None].astype(np.float32)
    if resource == TIME:
        values[:, :, READINGS.index("running_for")] -= anchor[:, None].astype(np.float32)
    limit = np.log1p(jobs["time_limit_s"].to_numpy())  # NaN for null
    hour = hours_of(jobs["submit_time"])
    own = np.stack([request - anchor, request, np.log(table.cores), limit, hour, anchor], axis=1)
    return Features(np.concatenate([values.reshape(len(readings), -1), own], axis=1).astype(np.float32), anchor)


def typical_use(readings: Matrix) -> Floats:
    """Log of the median use of the narrowest group of past jobs with at least two of them; NaN where there is none."""
    return narrowest(readings, "median", fewest=_FEWEST_FOR_ANCHOR)


def narrowest(readings: Matrix, reading: str, *, fewest: int = 1, down_to: str = NARROWEST_FIRST[-1]) -> Floats:
    """A reading of the narrowest group of past jobs with at least `fewest` ended ones; NaN where there is none.

    `down_to` is the widest group that counts.
    """
    from stormpetrel.jobs.needs.past_use_kernel import N_READINGS, READINGS

    out = np.full(len(readings), np.nan)
    for space in NARROWEST_FIRST[: NARROWEST_FIRST.index(down_to) + 1]:
        at = SPACE_NAMES.index(space) * N_READINGS
        known = np.isnan(out) & (readings[:, at] >= np.log1p(fewest) - 1e-6)
        out[known] = readings[known, at + READINGS.index(reading)]
        if not np.isnan(out).any():
            break
    return out
