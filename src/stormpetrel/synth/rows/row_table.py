"""A workload as a table of rows without order, which is what the row-wise generators learn, and its way back.

Workload -> learn_rows -> RowLayout + Table; Table -> RowLayout.jobs -> frame of new jobs. The names of users never
enter the layout.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
import polars as pl

from stormpetrel.records.arrays import Floats
from stormpetrel.records.times import UTC_TIME
from stormpetrel.synth.workload import ARRAY, KNOWN, STATE, SUBMIT, WAIT, WHO, Workload

Codes = npt.NDArray[np.int64]

INTERVAL: Final = "interval_s"
ALONE, NEXT_OF_ARRAY, FIRST_OF_ARRAY = range(3)

_MOST_CATEGORIES: Final = 100  # of a column that are distinguished; the rest is one category, and drawn from by its shares
_LEAST_JOBS: Final = 10  # of a user whose jobs are learnt as those of one user; the others are one category
_KEEPS_LIMIT: Final = 0.99  # of the jobs that did not time out: from here on the log's run times keep to the limit
_DIGITS: Final = 6


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Rows: numbers, and categories as codes 0 … size - 1."""

    numbers: dict[str, Floats]  # name -> (rows,)
    codes: dict[str, Codes]  # name -> (rows,)
    sizes: dict[str, int]

    @property
    def height(self) -> int:
        """How many rows."""
        return len(next(iter([*self.numbers.values(), *self.codes.values()])))

    def take(self, rows: Codes) -> Table:
        """Some of its rows."""
        return Table(
            {name: values[rows] for name, values in self.numbers.items()},
            {name: codes[rows] for name, codes in self.codes.items()},
            self.sizes,
        )


@dataclass(frozen=True, slots=True)
class NumberColumn:
    """A column of numbers: its range, how many digits it is written with (None: all), and what share of it is missing."""

    name: str
    low: float
    high: float
    digits: int | None
    missing: bool = False

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low <= self.high):
            raise ValueError(f"the range of {self.name[:40]!r} makes no sense")

    def allowed(self, values: Floats) -> Floats:
        """The values within the range seen, rounded as the log rounds."""
        clipped = np.clip(np.nan_to_num(values, nan=self.low), self.low, self.high)
        return clipped if self.digits is None else np.clip(np.round(clipped, self.digits), self.low, self.high)


@dataclass(frozen=True, slots=True)
class CategoryColumn:
    """Categories: the values that are distinguished, and those drawn from by their weights where the code says "another"."""

    name: str
    values: tuple[str | None, ...]
    others: tuple[str, ...] = ()
    weights: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        texts = (*self.values, *self.others)
        if len(self.others) != len(self.weights) or not all(isinstance(text, str | None) for text in texts):
            raise ValueError(f"the categories of {self.name[:40]!r} make no sense")

    @property
    def size(self) -> int:
        """How many codes it has."""
        return len(self.values) + bool(self.others)

    def texts(self, codes: Codes, rng: np.random.Generator) -> pl.Series:
        """The text of each code."""
        named = len(self.values)
        if self.others:
            share = np.array(self.weights)
            drawn = named + rng.choice(len(self.others), size=len(codes), p=share / share.sum())
            codes = np.where(codes < named, codes, drawn)
        return pl.Series(self.name, [*self.values, *self.others], dtype=pl.String).gather(codes)


@dataclass(slots=True)
class Clock:
    """Where a stream of batches stands: the time of the last submission and the number of the last array."""

    time_s: float
    array: int = 0
    begun: bool = False


@dataclass(frozen=True, slots=True)
class RowLayout:
    """How rows of a table become jobs."""

    columns: tuple[str, ...]  # of the frames, in their order
    numbers: tuple[NumberColumn, ...]
    categories: tuple[CategoryColumn, ...]
    constants: dict[str, Any]
    dtypes: dict[str, str] = field(default_factory=dict)  # of columns of the log's own
    arrays: bool = False
    keeps_limit: bool = False
    start_s: float = 0.0
    span_s: float = 0.0
    jobs_seen: int = 0

    def record(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)

    @classmethod
    def of_record(cls, record: dict[str, Any]) -> Self:
        """From JSON; KeyError, TypeError or ValueError where it is not one."""
        layout = cls(
            columns=tuple(str(name) for name in record["columns"]),
            numbers=tuple(NumberColumn(**column) for column in record["numbers"]),
            categories=tuple(CategoryColumn(**{key: _tuple(value) for key, value in it.items()}) for it in record["categories"]),
            **{name: record[name] for name in ("constants", "dtypes", "arrays", "keeps_limit", "start_s", "span_s", "jobs_seen")},
        )
        if not (math.isfinite(layout.start_s) and math.isfinite(layout.span_s) and isinstance(layout.jobs_seen, int)):
            raise ValueError("its times make no sense")
        return layout

    def jobs(self, table: Table, rng: np.random.Generator, clock: Clock) -> pl.DataFrame:
        """New jobs of the rows of a table, in their order; `clock` moves on."""
        drawn = {column.name: self._number(column, table) for column in self.numbers}
        drawn |= {it.name: it.texts(table.codes[it.name], rng) for it in self.categories}
        drawn |= {name: self._constant(name, value, table.height) for name, value in self.constants.items()}
        drawn[SUBMIT] = _times(drawn.pop(INTERVAL).to_numpy(), clock)
        if self.arrays:
            drawn[ARRAY] = _array_numbers(table.codes[ARRAY], clock)
        frame = pl.DataFrame(drawn).select(self.columns)
        return _within_limit(frame) if self.keeps_limit else frame

    def _number(self, column: NumberColumn, table: Table) -> pl.Series:
        series = pl.Series(column.name, column.allowed(table.numbers[column.name]))
        if column.missing:
            series = series.set(pl.Series(table.codes[missing_name(column.name)] == 1), None)
        return series if column.name == INTERVAL else series.cast(self._dtype(column.name))

    def _constant(self, name: str, value: Any, rows: int) -> pl.Series:
        return pl.Series(name, [value], dtype=pl.Float64 if name == INTERVAL else self._dtype(name)).new_from_index(0, rows)

    def _dtype(self, name: str) -> pl.DataType | type[pl.DataType]:
        own: dict[str, type[pl.DataType]] = {"Int64": pl.Int64, "Float64": pl.Float64, "String": pl.String}
        return KNOWN[name] if name in KNOWN else own[self.dtypes[name]]


def missing_name(name: str) -> str:
    """The name of the category that says whether a number is missing."""
    return f"{name} is missing"


def learn_rows(workload: Workload, rng: np.random.Generator) -> tuple[RowLayout, Table]:
    """The layout of a workload's rows and the rows themselves: every job but the first, with the interval before it."""
    jobs, submit = workload.jobs[1:], workload.submit_s()
    learnt = _LearntColumns()
    learnt.add_number(pl.Series(INTERVAL, np.diff(submit)), rng)
    columns = tuple(name for name in workload.jobs.columns if name != WAIT)
    for name in columns:
        if name == ARRAY:
            learnt.add_codes(ARRAY, _array_codes(jobs[ARRAY]), 3)
        elif jobs[name].dtype == pl.String:
            learnt.add_category(jobs[name])
        elif name != SUBMIT:
            learnt.add_number(jobs[name], rng)
    layout = RowLayout(
        columns=columns,
        numbers=tuple(learnt.numbers),
        categories=tuple(learnt.categories),
        constants=learnt.constants,
        dtypes={name: str(jobs[name].dtype) for name in workload.own_columns},
        arrays=ARRAY in columns,
        keeps_limit=_log_keeps_limit(jobs),
        start_s=float(submit[0]),
        span_s=float(submit[-1] - submit[0]),
        jobs_seen=workload.height,
    )
    return layout, Table(learnt.values, learnt.codes, learnt.sizes)


class _LearntColumns:
    """What learn_rows has found so far."""

    def __init__(self) -> None:
        self.numbers: list[NumberColumn] = []
        self.categories: list[CategoryColumn] = []
        self.constants: dict[str, Any] = {}
        self.values: dict[str, Floats] = {}
        self.codes: dict[str, Codes] = {}
        self.sizes: dict[str, int] = {}

    def add_number(self, series: pl.Series, rng: np.random.Generator) -> None:
        values = series.cast(pl.Float64).fill_null(np.nan).to_numpy()
        there = np.isfinite(values)
        seen = values[there]
        if not len(seen):
            self.constants[series.name] = None
            return
        if seen.min() == seen.max() and there.all():
            self.constants[series.name] = series[0]
            return
        column = NumberColumn(series.name, float(seen.min()), float(seen.max()), _digits(seen), not bool(there.all()))
        self.numbers.append(column)
        # A missing number gets the value of some other row, so that it does not bend the distribution of those that are there.
        self.values[series.name] = np.where(there, values, rng.choice(seen, len(values)))
        if column.missing:
            self.add_codes(missing_name(series.name), (~there).astype(np.int64), 2)

    def add_category(self, series: pl.Series) -> None:
        column, codes = _categories(series)
        if column.size == 1 and not column.others:
            self.constants[series.name] = column.values[0]
            return
        self.categories.append(column)
        self.add_codes(series.name, codes, column.size)

    def add_codes(self, name: str, codes: Codes, size: int) -> None:
        self.codes[name], self.sizes[name] = codes, size


def _categories(series: pl.Series) -> tuple[CategoryColumn, Codes]:
    """The categories of a column, most frequent first; users, groups and accounts under new names."""
    personal = series.name in WHO
    counts = series.drop_nulls().value_counts(sort=True, name="n").sort("n", series.name, descending=[True, False])
    enough = counts["n"] >= (_LEAST_JOBS if personal else 1)
    named = min(_MOST_CATEGORIES, int(enough.sum()))
    texts, jobs = counts[series.name].to_list(), counts["n"].to_list()
    shown = [f"{series.name}{number + 1:04d}" for number in range(len(texts))] if personal else texts
    empty: tuple[None, ...] = (None,) if series.null_count() else ()
    column = CategoryColumn(
        series.name,
        values=(*shown[:named], *empty),
        others=tuple(shown[named:]),
        # How many jobs each of the small users had is theirs: it stays here.
        weights=tuple(1.0 if personal else float(n) for n in jobs[named:]),
    )
    code = {text: place if place < named else named + len(empty) for place, text in enumerate(texts)}
    codes = series.replace_strict(code, default=named, return_dtype=pl.Int64).fill_null(named)
    return column, codes.to_numpy().astype(np.int64)


def _digits(values: Floats) -> int | None:
    """How many digits after the point the values are written with; None where there is no such number."""
    fits = (np.allclose(values, np.round(values, digits), rtol=0, atol=1e-9) for digits in range(_DIGITS + 1))
    return next((digits for digits, fit in enumerate(fits) if fit), None)


def _log_keeps_limit(jobs: pl.DataFrame) -> bool:
    if not {"runtime_s", "time_limit_s"} <= set(jobs.columns):
        return False
    judged = jobs.filter(_not_timed_out(jobs)).select(kept=pl.col("runtime_s") <= pl.col("time_limit_s"))["kept"].drop_nulls()
    return len(judged) > 0 and float(judged.sum()) >= _KEEPS_LIMIT * len(judged)


def _within_limit(frame: pl.DataFrame) -> pl.DataFrame:
    over = _not_timed_out(frame) & (pl.col("runtime_s") > pl.col("time_limit_s"))
    return frame.with_columns(runtime_s=pl.when(over).then("time_limit_s").otherwise("runtime_s"))


def _not_timed_out(frame: pl.DataFrame) -> pl.Expr:
    return pl.col(STATE).ne_missing("TIMEOUT") if STATE in frame.columns else pl.lit(value=True)


def _times(interval_s: Floats, clock: Clock) -> pl.Series:
    """The times of submission; the first job of all comes at the start itself."""
    steps = np.maximum(interval_s, 0.0)
    if not clock.begun:
        steps[0], clock.begun = 0.0, True
    times = clock.time_s + np.cumsum(steps)
    clock.time_s = float(times[-1])
    return pl.Series(SUBMIT, np.round(times * 1e6).astype(np.int64)).cast(UTC_TIME)


def _array_codes(array: pl.Series) -> Codes:
    """Whether each job belongs to no array, to that of the job before it, or to another."""
    same = (array == array.shift(1)).fill_null(value=False).to_numpy()
    alone = array.is_null().to_numpy()
    return np.where(alone, ALONE, np.where(same, NEXT_OF_ARRAY, FIRST_OF_ARRAY)).astype(np.int64)


def _array_numbers(codes: Codes, clock: Clock) -> pl.Series:
    """New numbers of arrays; the next of an array right after a job of none begins a new one."""
    before = np.concatenate([[ALONE], codes[:-1]])
    begins = (codes == FIRST_OF_ARRAY) | ((codes == NEXT_OF_ARRAY) & (before == ALONE))
    numbers = clock.array + np.cumsum(begins)
    clock.array = int(numbers[-1])
    return pl.Series(ARRAY, numbers.astype(np.int64)).set(pl.Series(codes == ALONE), None)


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
