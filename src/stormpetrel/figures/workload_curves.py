"""What a figure of workloads is drawn from: for each column its distribution in every workload, thinned to what the eye sees.

name -> Workload (the real one first) -> columns_of, picture_of -> Picture. Plotly and matplotlib draw the same ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from stormpetrel.synth.workload import ARRAY, KNOWN, SUBMIT, WAIT, WHO, Workload

Numbers = npt.NDArray[np.float64]
Workloads = Mapping[str, Workload]
Kind = Literal["values", "ranks", "shares"]

INTERVAL: Final = "interval_s"
MOST_POINTS: Final = 400  # of a line: no step of it is off by more than 1 in 400
MOST_COLUMNS: Final = 24
MOST_CATEGORIES: Final = 12
OTHERS: Final = "all others"
_LOG_FROM: Final = 100.0  # values that reach from below 1 to this are shown on a logarithmic axis
_COLUMN_LABELS: Final = {
    INTERVAL: "interval between submissions (s)",
    "runtime_s": "run time (s)",
    "time_limit_s": "time limit (s)",
    "wait_s": "wait (s)",
    "cores": "cores",
    "nodes": "nodes",
    "gpus": "GPUs",
    "mem_bytes": "memory (bytes)",
    "partition": "partition",
    "qos": "quality of service",
    "state": "outcome",
    "user": "users, most active first",
    "group": "groups, most active first",
    "account": "accounts, most active first",
}
_FIRST: Final = (INTERVAL, "runtime_s", "cores")  # what the definition of the scorecard names, in its order
_NEVER: Final = (SUBMIT, ARRAY)  # numbers of the log's own that say nothing by themselves


@dataclass(frozen=True, slots=True)
class Curve:
    """The points of one workload's line or bars; of bars `x` counts the categories."""

    x: Numbers
    y: Numbers


@dataclass(frozen=True, slots=True)
class Picture:
    """One column of several workloads: `values` and `ranks` are lines of shares that rise to 1, `shares` are bars.

    Names of people and projects are new in every synthetic log and cannot be compared: there the share of the jobs is drawn that
    the most active ones make up (`ranks`).
    """

    column: str
    words: str
    kind: Kind
    log_axis: bool
    curves: dict[str, Curve]
    categories: tuple[str, ...] = ()


def columns_of(workloads: Workloads, *, most: int = MOST_COLUMNS) -> tuple[str, ...]:
    """The columns of the first workload in the order in which they are shown: interval, run time, cores, then the others."""
    never = _NEVER if all(WAIT in log.jobs.columns for log in workloads.values()) else (*_NEVER, WAIT)  # a wait is not learnt
    names = [name for name in next(iter(workloads.values())).jobs.columns if name not in never]
    first = [name for name in _FIRST if name in (INTERVAL, *names)]
    known = [name for name in KNOWN if name in names and name not in first]
    own = [name for name in names if name not in KNOWN]
    return tuple([*first, *known, *own][:most])


def column_label(column: str) -> str:
    """What a column is, with its unit; the name of a log's own column is hostile text."""
    return _COLUMN_LABELS.get(column, column)


def picture_of(column: str, workloads: Workloads) -> Picture:
    """How the values of a column are distributed in each workload that has it."""
    columns = {
        name: series for name, series_of_log in workloads.items() if (series := _series(series_of_log, column)) is not None
    }
    if column in WHO:
        return Picture(column, column_label(column), "ranks", True, {name: _ranks(series) for name, series in columns.items()})
    if any(not series.dtype.is_numeric() for series in columns.values()):
        return _shares(column, {name: series.cast(pl.String) for name, series in columns.items()})
    values = {name: series.cast(pl.Float64).drop_nulls().drop_nans().to_numpy() for name, series in columns.items()}
    log_axis = _wants_log(list(values.values()))
    curves = {
        name: _from_zero(rising(np.maximum(series_of_log, 1.0) if log_axis else series_of_log))
        for name, series_of_log in values.items()
    }
    return Picture(column, column_label(column), "values", log_axis, curves)


def rising(values: Numbers, most: int = MOST_POINTS) -> Curve:
    """The share of values up to each value, as steps: at most about `most` of them.

    >>> rising(np.array([3.0, 1.0, 1.0, 2.0])).y.tolist()
    [0.5, 0.75, 1.0]
    """
    if not values.size:
        return Curve(np.zeros(0), np.zeros(0))
    distinct, counts = np.unique(values, return_counts=True)  # (distinct,), (distinct,)
    share = np.cumsum(counts) / values.size
    if distinct.size > most:
        places = np.unique(np.searchsorted(share, np.linspace(0.0, 1.0, most)).clip(0, distinct.size - 1))
        distinct, share = distinct[places], share[places]
    return Curve(distinct, share)


def _from_zero(curve: Curve) -> Curve:
    """The same with the step at its smallest value, which is often the most common one."""
    return Curve(np.concatenate([curve.x[:1], curve.x]), np.concatenate([curve.y[:1] * 0.0, curve.y]))


def _series(workload: Workload, column: str) -> pl.Series | None:
    if column == INTERVAL:
        return pl.Series(INTERVAL, workload.interval_s())
    return workload.jobs[column] if column in workload.jobs.columns else None


def _wants_log(values: list[Numbers]) -> bool:
    """Whether an axis should be logarithmic: nothing below zero, and large numbers. Less than 1 then stands at 1."""
    filled = [series for series in values if series.size]
    return bool(filled) and min(series.min() for series in filled) >= 0 and max(series.max() for series in filled) >= _LOG_FROM


def _ranks(names: pl.Series) -> Curve:
    """The share of the jobs that the first, the first two, the first three … names make up."""
    counts = np.sort(names.drop_nulls().value_counts()["count"].to_numpy())[::-1].astype(np.float64)
    if not counts.size:
        return Curve(np.zeros(0), np.zeros(0))
    share = np.cumsum(counts) / counts.sum()
    places = np.unique(np.geomspace(1, counts.size, MOST_POINTS).round().astype(np.int64)) - 1
    return Curve((places + 1).astype(np.float64), share[places])


def _shares(column: str, texts: dict[str, pl.Series]) -> Picture:
    """The share of the jobs in each of the most common categories of the first workload, and of all others together."""
    counted = {
        name: {str(value): int(count) for value, count in series.drop_nulls().value_counts(sort=True).iter_rows()}
        for name, series in texts.items()
    }
    order = {value: None for counts in counted.values() for value in counts}  # the first workload's own order leads
    shown = tuple(order)[:MOST_CATEGORIES]
    curves = {}
    for name, counts in counted.items():
        total = max(1, sum(counts.values()))
        heights = [counts.get(value, 0) / total for value in shown]
        if len(order) > len(shown):
            heights.append(1.0 - sum(heights))
        curves[name] = Curve(np.arange(len(heights), dtype=np.float64), np.array(heights))
    categories = (*shown, OTHERS) if len(order) > len(shown) else shown
    return Picture(column, column_label(column), "shares", False, curves, categories)
