"""What a synthetic workload gives away of the jobs it was made from.

synthetic, training and held-out Workload -> copies -> Copies: exact copies, nearest-record ratio, membership inference.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl

from stormpetrel.learn.metrics import roc_auc
from stormpetrel.records.arrays import Floats
from stormpetrel.synth.score.fidelity import INTERVAL
from stormpetrel.synth.workload import SUBMIT, Workload

MOST_QUERIES: Final = 5_000  # rows whose nearest record is looked for, of each side
FEWEST: Final = 20
WINDOW: Final = 3  # consecutive rows of the sequence attack
# A tree of many columns looks at nearly all records: 20,000 records of 60 columns took 27 s with it, 2 s by trying them all. With
# the 15 columns of a usual log, most of them alike, the tree is twice as fast.
_TREE_COLUMNS: Final = 16
_CELLS_AT_ONCE: Final = 4_000_000  # distances, 32 MB
_DECIMALS: Final = 3  # values that differ by less than a thousandth are the same: a text format may have rounded them


@dataclass(frozen=True, slots=True)
class Copies:
    """What a synthetic workload gives away.

    `exact` is the share of synthetic rows equal to some training row, `natural` that of held-out real rows: jobs repeat
    themselves. `nearest_record_ratio` is the median distance of a synthetic row to its nearest training row ÷ that of a
    held-out row; 1 is ideal, well below 1 is memorising. `membership_auc` is how well an attacker who has the synthetic jobs
    tells training rows from held-out ones: 0.5 is not at all.
    """

    exact: float | None = None
    natural: float | None = None
    nearest_record_ratio: float | None = None
    membership_auc: float | None = None
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """As a plain dictionary, for JSON; without the notes, which the scorecard collects."""
        return {
            "exact_copies": {"synthetic": self.exact, "natural": self.natural},
            "nearest_record_ratio": self.nearest_record_ratio,
            "membership_auc": self.membership_auc,
        }


def copies(synthetic: Workload, train: Workload, held_out: Workload, *, attack: bool = True, seed: int = 0) -> Copies:
    """Look for the training rows in a synthetic workload.

    *Exact copies*: equal in the interval to the job before and in every attribute that all three have (users and accounts have
    new names and are not looked at). *Nearest record*: Euclidean distance over the interval and all columns of numbers, each
    standardised by the training rows; at most 5,000 rows of each side ask, all training rows can answer. *Membership*: the
    score of a training or held-out row is its closeness to the nearest synthetic row, on the logarithms of the same columns;
    once for single rows and once for windows of three consecutive rows, and the attack that succeeds better counts. Without
    `attack` it is None.
    """
    sides = synthetic, train, held_out
    if min(side.height for side in sides) < FEWEST:
        return Copies(notes=(f"Copies are not looked for: training, held-out and synthetic part need {FEWEST} jobs each.",))
    rows = [_rows(side, _columns(sides)) for side in sides]
    known = rows[1].unique()
    exact, natural = (_share_in(side, known) for side in (rows[0], rows[2]))
    new, learnt, other = (_numbers(side) for side in rows)  # (jobs - 1, columns) each
    ratio = _nearest_ratio(new, learnt, other, seed)
    notes = () if ratio is not None else ("Most held-out rows repeat a training row: the nearest-record ratio has no scale.",)
    return Copies(exact, natural, ratio, _membership(new, learnt, other, seed) if attack else None, notes)


def _columns(sides: tuple[Workload, ...]) -> tuple[str, ...]:
    """Attributes that all sides have, as numbers in all or as text in all, and empty in none."""
    shared = [name for name in sides[0].attributes if all(name in side.jobs.columns for side in sides)]
    filled = [name for name in shared if all(side.jobs[name].null_count() < side.height for side in sides)]
    return tuple(name for name in filled if len({side.jobs[name].dtype.is_numeric() for side in sides}) == 1)


def _rows(workload: Workload, columns: tuple[str, ...]) -> pl.DataFrame:
    """The rows to compare, from the second job on: the first has no interval."""
    attributes = (
        pl.col(name).cast(pl.Float64).round(_DECIMALS) if workload.jobs[name].dtype.is_numeric() else pl.col(name).cast(pl.String)
        for name in columns
    )
    interval = (pl.col(SUBMIT).diff().dt.total_microseconds() / 1e6).round(_DECIMALS).alias(INTERVAL)
    return workload.jobs.select(interval, *attributes).slice(1)


def _share_in(rows: pl.DataFrame, known: pl.DataFrame) -> float:
    return rows.join(known, on=rows.columns, how="semi", nulls_equal=True).height / rows.height


def _numbers(rows: pl.DataFrame) -> Floats:
    """(rows, columns) the columns of numbers; NaN where a cell is empty."""
    return rows.select(pl.selectors.numeric()).to_numpy().astype(np.float64)


def _nearest_ratio(new: Floats, learnt: Floats, other: Floats, seed: int) -> float | None:
    new, learnt, other = _standardised(learnt, new, learnt, other)
    generator = np.random.default_rng(seed)
    synthetic, real = (_nearest(_some(side, generator), learnt) for side in (new, other))
    scale = float(np.median(real))
    return float(np.median(synthetic)) / scale if scale > 0 else None


def _membership(new: Floats, learnt: Floats, other: Floats, seed: int) -> float | None:
    """The area under the ROC of the better of the two attacks."""
    # An attacker would take logarithms: intervals and run times span six orders of magnitude.
    new, learnt, other = (np.sign(side) * np.log1p(np.abs(side)) for side in (new, learnt, other))
    sides = _standardised(learnt, new, learnt, other)
    areas = [_attack([_windows(side, length) for side in sides], seed) for length in (1, WINDOW)]
    return max((area for area in areas if area is not None), default=None)


def _attack(sides: list[Floats], seed: int) -> float | None:
    new, learnt, other = sides
    generator = np.random.default_rng(seed)
    members, strangers = (_some(side, generator) for side in (learnt, other))
    member = np.repeat([True, False], [len(members), len(strangers)])
    return roc_auc(member, -_nearest(np.concatenate([members, strangers]), new))


def _standardised(reference: Floats, *sides: Floats) -> list[Floats]:
    """Columns with mean 0 and deviation 1 in the reference; an empty cell is at the mean."""
    filled = np.maximum(1, np.isfinite(reference).sum(axis=0))  # (columns,)
    mean = np.nansum(reference, axis=0) / filled
    spread = np.sqrt(np.nansum((reference - mean) ** 2, axis=0) / filled)
    return [np.nan_to_num((side - mean) / np.where(spread > 0, spread, 1.0)) for side in sides]


def _windows(rows: Floats, length: int) -> Floats:
    """(rows - length + 1, columns × length) each row with those after it."""
    return np.hstack([rows[k : len(rows) - length + 1 + k] for k in range(length)])


def _some(rows: Floats, generator: np.random.Generator) -> Floats:
    return rows if len(rows) <= MOST_QUERIES else rows[np.sort(generator.choice(len(rows), MOST_QUERIES, replace=False))]


def _nearest(queries: Floats, records: Floats) -> Floats:
    """(asked,) the distance of each row to the nearest record."""
    records = np.unique(records, axis=0)
    if records.shape[1] > _TREE_COLUMNS:
        return _nearest_by_product(queries, records)
    from scipy.spatial import KDTree

    # Not balanced: splitting at the median is slow where many rows are the same.
    return np.asarray(KDTree(records, balanced_tree=False).query(queries)[0], dtype=np.float64)


def _nearest_by_product(queries: Floats, records: Floats) -> Floats:
    """The same by trying all records: |a - b|² = |a|² + |b|² - 2ab finds the nearest one, which is then measured."""
    half_length = (records**2).sum(axis=1) / 2  # (records,)
    step = max(1, _CELLS_AT_ONCE // len(records))
    chunks = (queries[first : first + step] for first in range(0, len(queries), step))
    nearest = np.concatenate([np.argmin(half_length - chunk @ records.T, axis=1) for chunk in chunks])  # (asked,)
    return np.asarray(np.linalg.norm(queries - records[nearest], axis=1), dtype=np.float64)
