"""The queue as it was: who waited and ran when each job was submitted, and how long others had waited.

job frame -> QueueState.sweep -> readings per job; `read` gives those of a request now.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import reduce
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stormpetrel.jobs.history.entities import FEW, EntityCodes, grown
from stormpetrel.jobs.history.history import event_times
from stormpetrel.jobs.history.keys import Space, key_columns, request_of_few, stand_ins, with_request
from stormpetrel.records.arrays import Floats, Matrix
from stormpetrel.records.times import hours_of, weekdays_of

_SHAPE: Final = ("asked_cpus", "asked_nodes", "asked_gpus", "limit_key")
SPACES: Final = (
    Space("site", "all jobs of the cluster", ("cluster",), None),
    Space("partition", "jobs in this partition", ("partition", "qos"), "site"),
    Space("user", "this user's jobs", ("user",), "site"),
    Space("account", "jobs of this account", ("account",), "site"),
    Space("size", "jobs of about this size", ("partition", "size_class"), "site"),
    Space("shape", "jobs that ask for the same", ("partition", *_SHAPE), "size"),
    Space("user_shape", "this user's jobs that ask for the same", ("user", *_SHAPE), "shape"),
)  # fmt: skip
SPACE_NAMES: Final = tuple(space.name for space in SPACES)
_USUAL_LIMIT_S: Final = 86400.0  # of a job without a limit: most sites' default
REQUEST_FEATURES: Final = ("cores", "nodes", "gpus", "memory", "limit", "typical_run", "hour", "weekday", "at_once")


def feature_names() -> tuple[str, ...]:
    """The names of the columns of `queue_features`."""
    from stormpetrel.jobs.wait.queue_kernel import READINGS

    return (*(f"{space}.{reading}" for space in SPACE_NAMES for reading in READINGS), *REQUEST_FEATURES)


@dataclass(frozen=True, slots=True)
class WaitTable:
    """When each job of a frame was submitted, started and ended (Unix seconds, NaN: not yet), and what it asked for."""

    submit: Floats
    start: Floats
    end: Floats
    cores: Floats
    limit_s: Floats

    @property
    def wait_s(self) -> Floats:
        """How long each job waited; NaN where it has not started."""
        return np.maximum(self.start - self.submit, 0.0)

    def rows(self, which: NDArray[Any]) -> WaitTable:
        """The same of some jobs."""
        return WaitTable(*(getattr(self, each.name)[which] for each in fields(self)))


def wait_table(jobs: pl.DataFrame) -> WaitTable:
    """Read submissions, starts and requests out of a job frame; a rerun's wait is not known: it bears its first submission."""
    times = event_times(jobs)
    numbers = jobs.select(
        cores=pl.coalesce("req_cpus", "cpus", "req_nodes", "nodes").cast(pl.Float64).fill_null(1.0).clip(1.0),
        limit=pl.col("time_limit_s").fill_null(_USUAL_LIMIT_S).clip(1.0),
    )
    return WaitTable(times[:, 0], times[:, 1], times[:, 3], numbers["cores"].to_numpy(), numbers["limit"].to_numpy())


@dataclass
class QueueState:
    """Who waits and runs, and how long jobs have waited, per partition, user, account and shape of request."""

    stand_in: dict[str, str] | None = None
    _entities: EntityCodes = field(default_factory=lambda: EntityCodes(SPACES))

    def __post_init__(self) -> None:
        from stormpetrel.jobs.wait.queue_kernel import empty_rows

        self._rows: tuple[Any, ...] = empty_rows()  # logs of waits, state

    def sweep(
        self,
        jobs: pl.DataFrame,
        table: WaitTable,
        run_s: Floats,
        wanted: NDArray[np.bool_] | None = None,
        events: NDArray[np.float64] | None = None,
    ) -> Matrix:
        """Take in these jobs' submissions, starts and ends in the order of time; the readings of each at its submission.

        `run_s` is how long each is expected to run, as far as was known when it was submitted. Of jobs that are not `wanted`
        nothing is read: NaN. With `events` (submission, start, end of each job) only those that are not NaN are taken in.
        """
        from stormpetrel.jobs.wait.queue_kernel import END, N_READINGS, START, SUBMIT, sweep

        if self.stand_in is None:
            self.stand_in = stand_ins(jobs)
        codes = self._code_matrix(jobs, take_in=True)
        times = np.stack([table.submit, table.start, table.end], axis=1) if events is None else events
        job, kind = np.nonzero(~np.isnan(times))
        order = np.lexsort((kind, times[job, kind]))
        kinds = np.array([SUBMIT, START, END], np.int8)[kind[order]]
        out = np.full((jobs.height, len(SPACES) * N_READINGS), np.nan, np.float32)
        sweep(
            kinds, job[order], times[job, kind][order], codes, table.submit, table.start, table.cores, table.limit_s,
            np.fmin(run_s, table.limit_s), self._rows[0], self._rows[1],
            np.ones(jobs.height, bool) if wanted is None else wanted, out,
        )  # fmt: skip
        return out

    def read(self, jobs: pl.DataFrame, now: float) -> Matrix:
        """The readings of these jobs at `now` (Unix seconds); nothing is taken in."""
        from stormpetrel.jobs.wait.queue_kernel import N_READINGS, read_jobs

        few = jobs.height <= FEW
        codes = self._entities.of_few(_keys_of_few(jobs, self.stand_in or {})) if few else self._code_matrix(jobs, take_in=False)
        out = np.full((jobs.height, len(SPACES) * N_READINGS), np.nan, np.float32)
        waits, state = self._rows
        read_jobs(codes, now, waits, state, out)
        return out

    def to_arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        """Everything that it remembers, as plain arrays."""
        rows = {f"{prefix}.rows.{number}": array[: self._entities.count] for number, array in enumerate(self._rows)}
        return rows | self._entities.to_arrays(prefix)

    def restore(self, arrays: Mapping[str, NDArray[Any]], prefix: str) -> None:
        """Remember what `to_arrays` has written; KeyError or ValueError where something lacks."""
        from stormpetrel.jobs.wait.queue_kernel import empty_rows

        self._entities.restore(arrays, prefix)
        rows: list[NDArray[Any]] = []
        empty_arrays: tuple[NDArray[Any], ...] = empty_rows(0)
        for number, empty in enumerate(empty_arrays):
            array = np.require(arrays[f"{prefix}.rows.{number}"], requirements=["C", "W"])
            if array.dtype != empty.dtype or array.shape != (self._entities.count, *empty.shape[1:]):
                raise ValueError("its rows are not those of its keys")
            rows.append(array)
        self._rows = tuple(rows)

    def _code_matrix(self, jobs: pl.DataFrame, *, take_in: bool) -> NDArray[np.int64]:
        codes = self._entities.of(_with_keys(jobs, self.stand_in or {}), take_in=take_in)
        self._rows = tuple(grown(self._rows, self._entities.count, (0.0, 0.0)))
        return codes


def request_table(jobs: pl.DataFrame) -> WaitTable:
    """The table of a few jobs that have not started, of which only the request counts."""
    rows = zip(*(jobs[name].to_list() for name in ("req_cpus", "cpus", "req_nodes", "nodes")), strict=True)
    cores = [next((value for value in row if value is not None), 1) for row in rows]
    limits = [_USUAL_LIMIT_S if limit is None else limit for limit in jobs["time_limit_s"].to_list()]
    unknown = np.full(jobs.height, np.nan)
    return WaitTable(
        unknown, unknown, unknown, np.fmax(np.array(cores, np.float64), 1.0), np.maximum(np.array(limits, np.float64), 1.0)
    )


def _with_keys(jobs: pl.DataFrame, stand_in: Mapping[str, str]) -> pl.DataFrame:
    return with_request(jobs, stand_in).with_columns(_size_class())


def _keys_of_few(jobs: pl.DataFrame, stand_in: Mapping[str, str]) -> dict[str, list[Any]]:
    """What `_with_keys` says of a few jobs, without a query."""
    values = request_of_few(jobs, stand_in, [name for name in key_columns(SPACES) if name != "size_class"])
    amounts = zip(values["asked_cpus"], values["asked_nodes"], jobs["time_limit_s"].to_list(), strict=True)
    values["size_class"] = [
        f"{_power_of_two(nodes if cpus is None else cpus)}/{_power_of_two(limit)}" for cpus, nodes, limit in amounts
    ]
    return values


def _power_of_two(amount: float | None) -> str:
    """The same as `_size_class` says of one number."""
    if amount is None:
        return "-1.0"
    if not amount > 0:
        return "-inf" if amount == 0 else "NaN"
    return str(float(np.rint(math.log(amount) / math.log(2.0))))


def _size_class() -> pl.Expr:
    """Jobs of about the same size: as many CPUs or nodes and as long a limit, both to a factor of two."""
    size = pl.col("asked_cpus").fill_null(pl.col("asked_nodes")).cast(pl.Float64).log(2).round()
    span = pl.col("time_limit_s").log(2).round()
    return pl.concat_str(size.fill_null(-1), pl.lit("/"), span.fill_null(-1)).alias("size_class")


def queue_features(readings: Matrix, jobs: pl.DataFrame, table: WaitTable, run_s: Floats) -> Matrix:
    """The features of each job at its submission: the queue, and the request."""
    # Column by column, here and in `hours_of`: for one job the plan of a query would cost more than the work.
    amounts = [
        np.log1p(_first_known(jobs, *names))
        for names in (("req_nodes", "nodes"), ("req_gpus", "gpus"), ("req_mem_bytes", "mem_bytes"))
    ]
    hour, weekday = hours_of(jobs["submit_time"]), weekdays_of(jobs["submit_time"])
    at_once = (~np.isnan(_first_known(jobs, "array_task"))).astype(np.float64)
    own = [np.log(table.cores), *amounts, np.log(table.limit_s), np.log(run_s), hour, weekday, at_once]
    return np.concatenate([readings, np.stack(own, axis=1)], axis=1).astype(np.float32)


def _first_known(jobs: pl.DataFrame, *names: str) -> Floats:
    """Of each job the number in the first of these columns that tells one; NaN where none does."""
    columns = [jobs[name].cast(pl.Float64).to_numpy() for name in names]
    return reduce(lambda first, second: np.where(np.isnan(first), second, first), columns)
