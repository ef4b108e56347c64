"""Features: one matrix per moment, out of the request, the calendar, the history and, later on, the start.

job frame + readings of the history -> FeatureMatrix. Every column of the request and of the start passes the guard of `moments`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stormpetrel.jobs.history.history import History, Matrix, Readings
from stormpetrel.jobs.history.keys import SIMILAR, with_request
from stormpetrel.jobs.moments import TELEMETRY_PREFIX, Moment, refuse_leaks, refuse_other_rows

TELEMETRY_GROUP: Final = "telemetry"  # prefix of the features that come from CPU traces of the first two minutes
_OPTIONAL_GROUPS: Final = frozenset((TELEMETRY_GROUP, *(space.name for space in SIMILAR)))


@dataclass(frozen=True, slots=True)
class FeatureMatrix:
    """What a model sees at one moment: float32, NaN for unknown; one row per job of the frame it was made from."""

    moment: Moment
    names: tuple[str, ...]
    values: Matrix

    def rows(self, which: NDArray[np.bool_] | NDArray[np.int64]) -> FeatureMatrix:
        """The same features of some of the jobs."""
        return FeatureMatrix(self.moment, self.names, self.values[which])

    def aligned(self, names: tuple[str, ...]) -> FeatureMatrix:
        """The same with the telemetry and the similar names that a model knows: what is missing is unknown, the rest left out.

        Whether a job has telemetry depends on where it ran and which trace model was in use, and whether similar names count on
        what the site allows now; other features must agree.
        """
        if self.names == names or _always_there(self.names) != _always_there(names):
            return self
        place = {name: column for column, name in enumerate(self.names)}
        values = np.full((len(self.values), len(names)), np.nan, dtype=np.float32)
        for column, name in enumerate(names):
            if name in place:
                values[:, column] = self.values[:, place[name]]
        return FeatureMatrix(self.moment, names, values)


@lru_cache
def request_features(time_zone: str) -> tuple[pl.Expr, ...]:
    """What the user asks for, and when: known at submission."""
    cpus = pl.col("asked_cpus").cast(pl.Float64)
    nodes = pl.col("asked_nodes").cast(pl.Float64)
    memory = pl.col("req_mem_bytes").cast(pl.Float64)
    limit = pl.col("time_limit_s")
    local = pl.col("submit_time").dt.convert_time_zone(time_zone)
    return (
        cpus.log1p().alias("request.cpus"),
        nodes.log1p().alias("request.nodes"),
        pl.col("asked_gpus").cast(pl.Float64).log1p().alias("request.gpus"),
        memory.log1p().alias("request.memory"),
        limit.log1p().alias("request.time_limit"),
        (memory / cpus).log1p().alias("request.memory_per_cpu"),
        (cpus * limit).log1p().alias("request.cpu_time"),
        (limit % 3600.0 == 0).cast(pl.Float64).alias("request.limit_in_whole_hours"),
        pl.col("profile").cast(pl.Float64).alias("request.profile"),
        pl.col("array_task").is_not_null().cast(pl.Float64).alias("request.is_array"),
        pl.col("array_task").cast(pl.Float64).alias("request.array_task"),
        local.dt.hour().cast(pl.Float64).alias("calendar.hour"),
        local.dt.weekday().cast(pl.Float64).alias("calendar.day_of_week"),
    )


def start_features() -> list[pl.Expr]:
    """What the start adds: the wait, and what the job was given."""
    wait = (pl.col("start_time") - pl.col("submit_time")).dt.total_microseconds().cast(pl.Float64) / 1e6
    return [
        wait.clip(lower_bound=0.0).log1p().alias("start.wait"),
        pl.col("cpus").cast(pl.Float64).log1p().alias("start.cpus"),
        pl.col("nodes").cast(pl.Float64).log1p().alias("start.nodes"),
        (pl.col("cpus") / pl.col("asked_cpus")).cast(pl.Float64).alias("start.cpus_to_asked"),
    ]


def telemetry_features(jobs: pl.DataFrame) -> list[pl.Expr]:
    """Whatever the first two minutes of telemetry added to the frame, in columns named `telemetry_…`."""
    return [
        pl.col(name).cast(pl.Float64).alias(f"telemetry.{name.removeprefix(TELEMETRY_PREFIX)}")
        for name in jobs.columns
        if name.startswith(TELEMETRY_PREFIX)
    ]


def features_at(
    jobs: pl.DataFrame, history: History, moments: Collection[Moment], *, time_zone: str = "UTC", extra: Sequence[pl.Expr] = ()
) -> Mapping[Moment, FeatureMatrix]:
    """The feature matrix of each moment; the history takes these jobs in on the way. `extra` features pass the guard, too."""
    for moment in moments:
        refuse_leaks(_own(jobs, moment, time_zone, extra), moment)
    refuse_other_rows(extra, jobs)
    readings = history.sweep(jobs, moments)
    frame = with_request(jobs, history.stand_in or {})
    return {moment: _matrix(frame, readings, moment, time_zone, extra) for moment in moments}


def features_now(
    jobs: pl.DataFrame, history: History, moment: Moment, now: NDArray[np.float64], *, time_zone: str = "UTC"
) -> FeatureMatrix:
    """The feature matrix of jobs as they stand, each at its own `now` (Unix seconds); the history stays as it is."""
    return _matrix(with_request(jobs, history.stand_in or {}), history.read(jobs, moment, now), moment, time_zone, ())


def matrix_of(jobs: pl.DataFrame, readings: Readings, history: History, moment: Moment, *, time_zone: str) -> FeatureMatrix:
    """The feature matrix of one moment out of readings that were made before."""
    return _matrix(with_request(jobs, history.stand_in or {}), readings, moment, time_zone, ())


def _matrix(frame: pl.DataFrame, readings: Readings, moment: Moment, time_zone: str, extra: Sequence[pl.Expr]) -> FeatureMatrix:
    from stormpetrel.jobs.history.kernel import NODE_READINGS, SIMILARITY

    plain = frame.select([feature.cast(pl.Float32) for feature in _own(frame, moment, time_zone, extra)])
    names = [*plain.columns, *(f"similarity.{name}" for name in SIMILARITY), *readings.names]
    numbers = plain.to_numpy()
    parts = [np.where(np.isinf(numbers), np.float32(np.nan), numbers), readings.similarity, readings.at[moment]]
    if moment is not Moment.SUBMIT:
        names += [f"nodes.{name}" for name in NODE_READINGS]
        parts.append(readings.nodes[moment])
    values = np.concatenate(parts, axis=1, dtype=np.float32)
    values = np.concatenate([values, _limit_margins(values, names)], axis=1)
    names += [name for name, run in _MARGINS if run in names]
    return FeatureMatrix(moment, tuple(names), values)


def _own(frame: pl.DataFrame, moment: Moment, time_zone: str, extra: Sequence[pl.Expr]) -> list[pl.Expr]:
    """What is computed from the job itself: everything here has passed the guard."""
    own = [*request_features(time_zone), *extra]
    if moment is not Moment.SUBMIT:
        own += start_features()
    if moment is Moment.TWO_MINUTES:
        own += telemetry_features(frame)
    return own


# How the run times of jobs like this one compare with the limit that this one asks for (difference of logs).
_MARGINS: Final = tuple(
    (f"{space}.run_to_this_limit", f"{space}.typical_run")
    for space in ("user", "family", "user_family", "user_shape", "retry", *(space.name for space in SIMILAR))
)


def _limit_margins(values: Matrix, names: Sequence[str]) -> Matrix:
    limit = values[:, names.index("request.time_limit")]
    return np.stack([values[:, names.index(run)] - limit for _, run in _MARGINS if run in names], axis=1)


def _always_there(names: tuple[str, ...]) -> list[str]:
    return [name for name in names if group_of(name) not in _OPTIONAL_GROUPS]


def group_of(feature: str) -> str:
    """The group that a feature belongs to, such as `request`, `user` or `retry`."""
    return feature.partition(".")[0]
