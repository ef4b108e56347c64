"""A Gaussian copula: every column as it is, every pair of columns by one correlation, no more.

Workload -> fit -> GaussianCopula -> batches -> frames. Ties and categories are stretches of ranks (Sklar 1959; Nelsen 2006,
2.9). A Marginal is a column of numbers as ranks between 0 and 1, and back (to_uniform, from_uniform), so that ties, minima and
rare values are kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np

from stormpetrel.engine import Progress
from stormpetrel.records.arrays import Floats
from stormpetrel.synth.rows.row_generator import RowGenerator
from stormpetrel.synth.rows.row_table import Table

_MOST_VALUES: Final = 2000  # that are distinguished; a column with more is a curve with as many steps
_EDGE: Final = 1e-6  # how near to 0 and 1 a rank may come: normal scores stay within ±4.8


@dataclass(frozen=True, slots=True, eq=False)
class Marginal:
    """The empirical distribution of a column.

    `values` rise. With `cumulative` each value is a step (its share of the rows ends there); without, the values are quantiles at
    equal distances, straight lines between them and steps where they repeat.
    """

    values: Floats  # (values,)
    cumulative: Floats | None  # (values,), the last is 1

    @classmethod
    def learn(cls, column: Floats) -> Self:
        """The distribution of a column without missing values."""
        values, counts = np.unique(column, return_counts=True)
        if len(values) <= _MOST_VALUES:
            return cls(values, np.cumsum(counts) / len(column))
        ordered = np.sort(column)
        places = np.round(np.linspace(0, len(ordered) - 1, _MOST_VALUES + 1)).astype(np.int64)
        return cls(ordered[places], None)

    def to_uniform(self, column: Floats, rng: np.random.Generator) -> Floats:
        """The rank of each value, anywhere within the stretch of its ties."""
        low, high = self._stretch(column)
        return np.clip(low + (high - low) * rng.random(len(column)), _EDGE, 1 - _EDGE)

    def middle(self, column: Floats) -> Floats:
        """The middle of the stretch of each value's ties."""
        low, high = self._stretch(column)
        return np.clip((low + high) / 2, _EDGE, 1 - _EDGE)

    def from_uniform(self, ranks: Floats) -> Floats:
        """The value at each rank."""
        if self.cumulative is None:
            return np.interp(ranks, np.linspace(0, 1, len(self.values)), self.values)
        return self.values[np.minimum(np.searchsorted(self.cumulative, ranks), len(self.values) - 1)]

    def record(self) -> dict[str, Any]:
        """As JSON."""
        return {"values": self.values.tolist(), "cumulative": None if self.cumulative is None else self.cumulative.tolist()}

    @classmethod
    def of_record(cls, record: dict[str, Any]) -> Self:
        """From JSON; ValueError where it is not one."""
        values = np.asarray(record["values"], dtype=np.float64)
        cumulative = None if record["cumulative"] is None else np.asarray(record["cumulative"], dtype=np.float64)
        if not len(values) or values.ndim != 1 or not np.isfinite(values).all() or (np.diff(values) < 0).any():
            raise ValueError("the values of a column do not rise")
        if cumulative is not None and cumulative.shape != values.shape:
            raise ValueError("the shares of a column do not fit its values")
        return cls(values, cumulative)

    def _stretch(self, column: Floats) -> tuple[Floats, Floats]:
        if self.cumulative is not None:
            place = np.clip(np.searchsorted(self.values, column), 0, len(self.values) - 1)
            return np.concatenate([[0.0], self.cumulative])[place], self.cumulative[place]
        steps = len(self.values) - 1
        first = np.searchsorted(self.values, column, side="left")
        last = np.searchsorted(self.values, column, side="right") - 1
        between = np.interp(column, self.values, np.arange(steps + 1))
        on_a_value = last >= first
        return np.where(on_a_value, first, between) / steps, np.where(on_a_value, last, between) / steps


def learn_marginals(table: Table) -> dict[str, Marginal]:
    """The marginal of every column of numbers."""
    return {name: Marginal.learn(values) for name, values in table.numbers.items()}


def to_normal(table: Table, marginals: dict[str, Marginal], rng: np.random.Generator) -> Table:
    """The table with its numbers as normal scores."""
    from scipy.special import ndtri

    scores = {name: ndtri(marginals[name].to_uniform(values, rng)) for name, values in table.numbers.items()}
    return Table(scores, table.codes, table.sizes)


def from_normal(table: Table, marginals: dict[str, Marginal]) -> Table:
    """The table with its normal scores as numbers."""
    from scipy.special import ndtr

    return Table({name: marginals[name].from_uniform(ndtr(z)) for name, z in table.numbers.items()}, table.codes, table.sizes)


class GaussianCopula(RowGenerator):
    """Correlated normal scores, each given back as a value of its column. Trained in a second; knows no cases."""

    name = "gaussian-copula"

    def _fit_table(self, table: Table, progress: Progress) -> None:
        from scipy.special import ndtri

        columns = {**table.numbers, **{name: codes.astype(np.float64) for name, codes in table.codes.items()}}
        self.marginals_ = {name: Marginal.learn(values) for name, values in columns.items()}
        self.sizes_ = dict(table.sizes)
        # Ties at the middle of their stretch: spread over it at random, they would hide how columns hang together.
        ranks = [self.marginals_[name].middle(values) for name, values in columns.items()]
        scores = ndtri(np.stack(ranks))  # (columns, rows)
        self.root_ = _root(np.atleast_2d(np.corrcoef(scores)))
        progress(1.0, "correlations learnt")

    def _draw(self, rows: int, rng: np.random.Generator) -> Table:
        from scipy.special import ndtr

        ranks = ndtr(rng.standard_normal((rows, len(self.root_))) @ self.root_.T)  # (rows, columns)
        numbers = {name: marginal.from_uniform(ranks[:, place]) for place, (name, marginal) in enumerate(self.marginals_.items())}
        codes = {name: numbers[name].astype(np.int64) for name in self.sizes_}
        return Table({name: values for name, values in numbers.items() if name not in codes}, codes, self.sizes_)

    def _record(self) -> dict[str, Any]:
        marginals = {name: marginal.record() for name, marginal in self.marginals_.items()}
        return {"marginals": marginals, "sizes": self.sizes_, "root": self.root_.tolist()}

    def _restore(self, record: dict[str, Any], files: Mapping[str, bytes]) -> None:
        self.marginals_ = {str(name): Marginal.of_record(saved) for name, saved in record["marginals"].items()}
        self.sizes_ = {str(name): int(size) for name, size in record["sizes"].items()}
        self.root_ = np.asarray(record["root"], dtype=np.float64)
        if self.root_.shape != (len(self.marginals_),) * 2 or not np.isfinite(self.root_).all():
            raise ValueError("its correlations do not fit its columns")


def _root(correlation: Floats) -> Floats:
    """A square root of a correlation matrix, also of one that rounding has made slightly indefinite."""
    values, vectors = np.linalg.eigh(correlation)
    root: Floats = vectors * np.sqrt(np.maximum(values, 0.0))  # (columns, columns)
    return root
