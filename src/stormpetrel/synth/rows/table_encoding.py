"""Mode-specific normalisation: a number as the mode it belongs to and its place within it; a category as itself.

Table -> TableEncoding.learn -> encode -> Encoded (places, modes) -> decode -> Table. The modes are those of a variational
Gaussian mixture (Xu et al. 2019, section 4.2), of the logarithm where a column spans decades, and values that many rows share: a
value with a mode of its own is given back exactly.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from stormpetrel.records.arrays import Floats
from stormpetrel.synth.rows.row_table import Codes, Table

Places = npt.NDArray[np.float32]

_MODES: Final = 10
_LEAST_WEIGHT: Final = 0.005  # of a mode, as in the paper
_WIDTHS: Final = 4.0  # standard deviations that the place -1 … 1 spans on either side, as in the paper
_FITTED_ROWS: Final = 5_000  # a mixture of 20,000 looks the same and takes four times as long
_SHARED: Final = 0.01  # of the rows: from here on a value is a mode of its own
_MOST_SHARED: Final = 30
_DECADES: Final = 100.0  # times the median: from here on the largest value makes a column one of decades
_MOST_SEEN: Final = 2000  # different values; a column with fewer gives back only these


@dataclass(frozen=True, slots=True, eq=False)
class NumberModes:
    """The modes of one column: first the values of their own, then those of the mixture."""

    shared: Floats  # (values,)
    means: Floats  # (components,)
    widths: Floats  # (components,)
    shares: Floats  # (components,)
    decades: bool
    seen: Floats | None  # (values,), rising

    @property
    def size(self) -> int:
        """How many modes."""
        return len(self.shared) + len(self.means)

    @classmethod
    def of_normal_scores(cls) -> Self:
        """The modes of a standard normal column: ten of equal mass."""
        from scipy.special import ndtri

        means = ndtri((np.arange(_MODES) + 0.5) / _MODES)
        widths = np.maximum(np.gradient(means) / 2, 0.1)
        return cls(np.empty(0), means, widths, np.full(_MODES, 1 / _MODES), decades=False, seen=None)

    @classmethod
    def learn(cls, column: Floats, rng: np.random.Generator) -> Self:
        """The modes of a column without missing values."""
        values, counts = np.unique(column, return_counts=True)
        many = np.argsort(-counts, kind="stable")[:_MOST_SHARED]
        own = np.sort(values[many[counts[many] >= _SHARED * len(column)]])
        rest = column[~np.isin(column, own)]
        decades = bool(values[0] >= 0 and values[-1] > _DECADES * max(np.median(column), 1e-9))
        means, widths, shares = _mixture(np.log1p(rest) if decades else rest, rng)
        return cls(own, means, widths, shares, decades, values if len(values) <= _MOST_SEEN else None)

    def encode(self, column: Floats, rng: np.random.Generator) -> tuple[Places, Codes]:
        """The place within its mode and the mode of each value; a mode of the mixture is drawn by its likelihood."""
        own = np.minimum(np.searchsorted(self.shared, column), max(len(self.shared) - 1, 0))
        is_own = self.shared[own] == column if len(self.shared) else np.zeros(len(column), dtype=bool)
        mode, place = own.copy(), np.zeros(len(column), dtype=np.float32)
        if len(self.means):
            drawn = self._component(column[~is_own], rng)
            place[~is_own] = (self._scale(column[~is_own]) - self.means[drawn]) / (_WIDTHS * self.widths[drawn])
            mode[~is_own] = len(self.shared) + drawn
        return np.clip(place, -0.99, 0.99), mode

    def decode(self, place: Places, mode: Codes) -> Floats:
        """The value of each place and mode."""
        of_mixture = mode >= len(self.shared)
        value = np.empty(len(mode))
        value[~of_mixture] = self.shared[mode[~of_mixture]]
        component = mode[of_mixture] - len(self.shared)
        scaled = self.means[component] + _WIDTHS * self.widths[component] * place[of_mixture].astype(np.float64)
        value[of_mixture] = np.expm1(np.minimum(scaled, 700.0)) if self.decades else scaled
        if self.seen is not None:
            value[of_mixture] = nearest(self.seen, value[of_mixture])
        return value

    def record(self) -> dict[str, Any]:
        """As JSON."""
        arrays = {name: getattr(self, name).tolist() for name in ("shared", "means", "widths", "shares")}
        return {**arrays, "decades": self.decades, "seen": None if self.seen is None else self.seen.tolist()}

    @classmethod
    def of_record(cls, record: dict[str, Any]) -> Self:
        """From JSON; ValueError where it is not one."""
        arrays = {name: np.asarray(record[name], dtype=np.float64) for name in ("shared", "means", "widths", "shares")}
        seen = None if record["seen"] is None else np.asarray(record["seen"], dtype=np.float64)
        everything = [*arrays.values(), *([] if seen is None else [seen])]
        if any(array.ndim != 1 or not np.isfinite(array).all() for array in everything) or (seen is not None and not len(seen)):
            raise ValueError("the modes of a column are damaged")
        if len({len(arrays[name]) for name in ("means", "widths", "shares")}) != 1:
            raise ValueError("the modes of a column do not fit each other")
        return cls(**arrays, decades=bool(record["decades"]), seen=seen)

    def _scale(self, column: Floats) -> Floats:
        return np.log1p(np.maximum(column, 0.0)) if self.decades else column

    def _component(self, column: Floats, rng: np.random.Generator) -> Codes:
        away = (self._scale(column)[:, None] - self.means) / self.widths  # (rows, components)
        likelihood = np.log(self.shares) - np.log(self.widths) - away**2 / 2
        drawn: Codes = np.argmax(likelihood + rng.gumbel(size=likelihood.shape), axis=1)
        return drawn


@dataclass(frozen=True, slots=True, eq=False)
class Encoded:
    """Rows as a network sees them: places of the numbers, then the mode of each number and the code of each category."""

    places: Places  # (rows, numbers), -1 … 1
    modes: Codes  # (rows, numbers + categories)


@dataclass(frozen=True, slots=True, eq=False)
class TableEncoding:
    """The encoding of a table: numbers first, then categories."""

    numbers: dict[str, NumberModes]
    categories: dict[str, int]

    @classmethod
    def learn(cls, table: Table, rng: np.random.Generator) -> Self:
        """The encoding of a table."""
        return cls({name: NumberModes.learn(values, rng) for name, values in table.numbers.items()}, dict(table.sizes))

    @classmethod
    def of_normal_scores(cls, table: Table) -> Self:
        """The encoding of a table whose numbers are normal scores."""
        return cls({name: NumberModes.of_normal_scores() for name in table.numbers}, dict(table.sizes))

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many modes each number and how many codes each category has."""
        return (*(modes.size for modes in self.numbers.values()), *self.categories.values())

    def encode(self, table: Table, rng: np.random.Generator) -> Encoded:
        """The rows of a table."""
        pairs = [modes.encode(table.numbers[name], rng) for name, modes in self.numbers.items()]
        places = np.stack([place for place, _ in pairs], axis=1) if pairs else np.empty((table.height, 0), dtype=np.float32)
        modes = [*(mode for _, mode in pairs), *(table.codes[name] for name in self.categories)]
        return Encoded(places, np.stack(modes, axis=1))

    def decode(self, rows: Encoded) -> Table:
        """The table of some rows."""
        columns = enumerate(self.numbers.items())
        numbers = {name: modes.decode(rows.places[:, at], rows.modes[:, at]) for at, (name, modes) in columns}
        codes = {name: rows.modes[:, len(numbers) + place] for place, name in enumerate(self.categories)}
        return Table(numbers, codes, self.categories)

    def record(self) -> dict[str, Any]:
        """As JSON."""
        return {"numbers": {name: modes.record() for name, modes in self.numbers.items()}, "categories": self.categories}

    @classmethod
    def of_record(cls, record: dict[str, Any]) -> Self:
        """From JSON; KeyError, TypeError or ValueError where it is not one."""
        numbers = {str(name): NumberModes.of_record(saved) for name, saved in record["numbers"].items()}
        return cls(numbers, {str(name): int(size) for name, size in record["categories"].items()})


def nearest(rising: Floats, column: Floats) -> Floats:
    """The nearest of some rising values to each value of a column."""
    right = np.minimum(np.searchsorted(rising, column), len(rising) - 1)
    left = np.maximum(right - 1, 0)
    closer: Floats = np.where(column - rising[left] <= rising[right] - column, rising[left], rising[right])
    return closer


def _mixture(column: Floats, rng: np.random.Generator) -> tuple[Floats, Floats, Floats]:
    """Means, widths and shares of a variational Gaussian mixture that gives up the modes it does not need."""
    if len(column) > _FITTED_ROWS:
        column = rng.choice(column, _FITTED_ROWS, replace=False)
    distinct = len(np.unique(column))
    if distinct < 2:  # nothing, or one value too rare to be a mode of its own
        return np.unique(column), np.full(distinct, 1e-3), np.ones(distinct)
    from sklearn.mixture import BayesianGaussianMixture

    middle, spread = float(column.mean()), float(column.std()) or 1.0
    mixture = BayesianGaussianMixture(
        n_components=min(_MODES, distinct),
        weight_concentration_prior=0.001,
        max_iter=100,
        random_state=int(rng.integers(2**31)),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a mixture that has not quite settled is good enough
        mixture.fit(((column - middle) / spread)[:, None])
    kept = mixture.weights_ > _LEAST_WEIGHT
    widths = np.sqrt(mixture.covariances_.reshape(-1)[kept])
    return middle + spread * mixture.means_[kept, 0], spread * np.maximum(widths, 1e-6), mixture.weights_[kept]
