"""Past use: what jobs like this one used of memory, time, CPUs or GPUs, from the moments they ended on.

job frame + Resource -> UseTable (used, request, whether it was cut off) -> PastUse.sweep -> readings per job at its submission.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stormpetrel.jobs.history.entities import FEW, EntityCodes, grown
from stormpetrel.jobs.history.history import event_times
from stormpetrel.jobs.history.keys import Space, key_columns, request_of_few, stand_ins, whole_numbers, with_request
from stormpetrel.jobs.outcomes import NEVER_STARTED, outcome
from stormpetrel.records.arrays import Flags, Floats, Matrix
from stormpetrel.records.doubts import trusted

MEMORY: Final = "memory"
TIME: Final = "time"
CPUS: Final = "cpus"
GPUS: Final = "gpus"
GPU_MEMORY: Final = "gpu_memory"
RESOURCES: Final = (MEMORY, TIME, CPUS, GPUS, GPU_MEMORY)
# The widest first. `hint` is what the log says about a job's input: Nextflow's tag, or the arguments of its command line.
_SHAPE: Final = ("asked_cpus", "asked_nodes", "asked_gpus", "limit_key", "request_key")
SPACES: Final = (
    Space("site", "all jobs of the cluster", ("cluster",), None),
    Space("user", "this user's jobs", ("user",), "site"),
    Space("family", "jobs of this application", ("family",), "site"),
    Space("hint", "jobs with this input", ("user", "hint"), "site"),
    Space("user_limit", "this user's jobs with this request", ("user", "request_key"), "user"),
    Space("user_family", "this user's jobs of this application", ("user", "family"), "user"),
    Space("user_shape", "this user's jobs that ask for the same", ("user", *_SHAPE), "user"),
    Space("name", "this user's jobs of this name", ("user", "job_name"), "user_family"),
    Space(
        "retry", "this user's runs of the same job",
        ("user", "job_name", "family", "work_dir", "partition", *_SHAPE),
        "user_shape",
    ),
)  # fmt: skip
SPACE_NAMES: Final = tuple(space.name for space in SPACES)
NARROWEST_FIRST: Final = ("retry", "name", "user_shape", "user_family", "user_limit", "family", "user", "site")
_SHORTEST_S: Final = 1.0
_SHORTEST_FOR_CPUS_S: Final = 60.0  # shorter runs say little about how well their CPUs were used
_FEWEST_BUSY: Final = 0.01
_SHORTAGES: Final = {TIME: "TIMEOUT", MEMORY: "OUT_OF_MEMORY"}
_REQUEST_COLUMNS: Final = {
    TIME: ("time_limit_s",),
    MEMORY: ("req_mem_bytes", "mem_bytes"),
    CPUS: ("req_cpus", "cpus"),
    GPUS: ("req_gpus", "gpus"),
    GPU_MEMORY: ("req_gpus", "gpus"),  # nobody asks for memory of GPUs, but for GPUs
}
_HINTS: Final = ("tag", "input", "sample")  # fields of `extra` that name a job's input


@dataclass(frozen=True, slots=True)
class UseTable:
    """What each job of a frame requested and used of one resource, as a whole (bytes, seconds, a number); NaN: nobody says."""

    used: Floats
    request: Floats
    cut_off: Flags  # ran into its limit: it needed more than it used
    ended: Flags  # ran, and came to an end of its own or at its limit: its use can be judged
    run_s: Floats
    cores: Floats

    @property
    def judged(self) -> Flags:
        """Which jobs tell how much was needed."""
        return self.ended & (self.used > 0)

    def rows(self, which: NDArray[Any]) -> UseTable:
        """The same of some jobs."""
        return UseTable(*(getattr(self, f.name)[which] for f in fields(self)))

    def weight(self, resource: str) -> Floats:
        """What a unit of the resource is multiplied with to be waste: cores for time, run time for all else."""
        return self.cores if resource == TIME else self.run_s


def use_table(jobs: pl.DataFrame, resource: str) -> UseTable:
    """Read requests and use of one resource out of a job frame."""
    tasks = pl.when(pl.col("source") == "swf").then(pl.coalesce("cpus", "req_cpus")).otherwise(pl.coalesce("nodes", "req_nodes"))
    columns = trusted(jobs).select(
        "elapsed_s",
        limit="time_limit_s",
        memory=pl.coalesce("req_mem_bytes", "mem_bytes").cast(pl.Float64),
        # Accounting tells the largest task: one per node in most jobs; an SWF log tells memory per processor.
        rss=pl.col("max_rss_bytes").cast(pl.Float64) * tasks.fill_null(1).clip(1),
        cores=pl.coalesce("cpus", "req_cpus", "nodes", "req_nodes").cast(pl.Float64).fill_null(1.0).clip(1.0),
        requested_cpus=pl.coalesce("req_cpus", "cpus").cast(pl.Float64).fill_null(np.nan),
        cpu_time_s=pl.col("cpu_time_s").cast(pl.Float64).fill_null(np.nan),
        requested_gpus=pl.coalesce("req_gpus", "gpus").cast(pl.Float64),
        busy_gpus=pl.col("busy_gpus").fill_null(np.nan),
        gpu_memory=pl.col("gpu_mem_bytes").cast(pl.Float64).fill_null(np.nan),
        outcome=outcome(),
        state="state",
    )
    ended = columns["outcome"].is_in(["COMPLETED", "FAILED", "TIMEOUT", "OUT_OF_MEMORY"]) | (columns["state"] == "UNKNOWN")
    run = columns["elapsed_s"].to_numpy()
    limit = _positive(columns["limit"])
    if resource == TIME:
        used, request, smallest, at_limit = run, limit, _SHORTEST_S, 0.999
    elif resource == CPUS:
        # CPUs that were busy on average; who keeps all of them busy might use more.
        busy = columns["cpu_time_s"].to_numpy() / np.where(run >= _SHORTEST_FOR_CPUS_S, run, np.nan)
        used, request, smallest, at_limit = busy, columns["requested_cpus"].to_numpy(), _FEWEST_BUSY, 0.98
    elif resource == GPUS:
        # GPUs that were busy at most; 0 of a job that had some is known, and a need of none.
        request, smallest, at_limit = _positive(columns["requested_gpus"]), _FEWEST_BUSY, 0.98
        busy = np.where(np.isnan(request), np.nan, np.maximum(columns["busy_gpus"].to_numpy(), _FEWEST_BUSY))
        used = np.fmin(busy, request)
        used = np.where(np.isnan(busy), np.nan, used)
    elif resource == GPU_MEMORY:
        used, request = columns["gpu_memory"].to_numpy(), np.full(jobs.height, np.nan)
        smallest, at_limit = 1.0, np.inf
    else:
        used, request, smallest, at_limit = columns["rss"].to_numpy(), _positive(columns["memory"]), 1.0, np.inf
    used = np.where(used > 0, np.maximum(used, smallest), np.nan)
    with np.errstate(invalid="ignore"):
        cut_off = used >= at_limit * request
    if resource in _SHORTAGES:
        cut_off |= (columns["outcome"] == _SHORTAGES[resource]).fill_null(False).to_numpy()
    return UseTable(
        used=used,
        request=request,
        cut_off=cut_off,
        ended=ended.fill_null(False).to_numpy() & (columns["outcome"] != NEVER_STARTED).fill_null(True).to_numpy(),
        run_s=np.nan_to_num(run) if (run > 0).any() else np.ones(run.size),  # a table without run times: each counts alike
        cores=columns["cores"].to_numpy(),
    )


def _positive(values: pl.Series) -> Floats:
    numbers = values.cast(pl.Float64).to_numpy()
    return np.where(numbers > 0, numbers, np.nan)


@dataclass
class PastUse:
    """What has been used of one resource so far, per user, application, name, request and input."""

    resource: str
    stand_in: dict[str, str] | None = None
    _entities: EntityCodes = field(default_factory=lambda: EntityCodes(SPACES))

    def __post_init__(self) -> None:
        from stormpetrel.jobs.needs.past_use_kernel import empty_rows

        self._rows: tuple[Any, ...] = empty_rows()  # logs of use, of use ÷ request, cut off, state

    def sweep(
        self, jobs: pl.DataFrame, table: UseTable, wanted: Flags | None = None, events: NDArray[np.float64] | None = None
    ) -> Matrix:
        """Take in these jobs' submissions, starts and ends in the order of time; the readings of each at its submission.

        What a job used counts from its end on; (job, space × reading). Of jobs that are not `wanted` nothing is read: NaN. With
        `events` (submission, start, end of each job, Unix seconds) only those that are not NaN are taken in.
        """
        from stormpetrel.jobs.needs.past_use_kernel import END, N_READINGS, START, SUBMIT, sweep

        if self.stand_in is None:
            self.stand_in = stand_ins(jobs)
        codes = self._code_matrix(jobs, take_in=True)
        starts = event_times(jobs)[:, 1]
        times = event_times(jobs)[:, [0, 1, 3]] if events is None else events  # submission, start, end
        job, kind = np.nonzero(~np.isnan(times))
        order = np.lexsort((kind, times[job, kind]))
        out = np.full((jobs.height, len(SPACES) * N_READINGS), np.nan, np.float32)
        with np.errstate(invalid="ignore", divide="ignore"):
            log_use = np.where(table.judged, np.log(table.used), np.nan)
        kinds = np.array([SUBMIT, START, END], np.int8)[kind[order]]
        used, shares, cut_off, state = self._rows
        sweep(
            kinds, job[order], times[job, kind][order], codes, starts, log_use, np.log(table.request), table.cut_off,
            used, shares, cut_off, state, np.ones(jobs.height, bool) if wanted is None else wanted, out,
        )  # fmt: skip
        return out

    def read(self, jobs: pl.DataFrame, now: Sequence[float] | Floats) -> Matrix:
        """The readings of these jobs, each at its own `now` (Unix seconds); nothing is taken in."""
        from stormpetrel.jobs.needs.past_use_kernel import N_READINGS, read_jobs

        if jobs.height <= FEW:
            codes = self._entities.of_few(_keys_of_few(jobs, self.stand_in or {}, self.resource))
        else:
            codes = self._code_matrix(jobs, take_in=False)
        out = np.full((jobs.height, len(SPACES) * N_READINGS), np.nan, np.float32)
        used, shares, cut_off, state = self._rows
        read_jobs(codes, np.asarray(now, np.float64), used, shares, cut_off, state, out)
        return out

    def to_arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        """Everything that it remembers, as plain arrays."""
        rows = {f"{prefix}.rows.{number}": array[: self._entities.count] for number, array in enumerate(self._rows)}
        return rows | self._entities.to_arrays(prefix)

    def restore(self, arrays: Mapping[str, NDArray[Any]], prefix: str) -> None:
        """Remember what `to_arrays` has written; KeyError or ValueError where something lacks."""
        from stormpetrel.jobs.needs.past_use_kernel import empty_rows

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
        codes = self._entities.of(_with_keys(jobs, self.stand_in or {}, self.resource), take_in=take_in)
        self._rows = tuple(grown(self._rows, self._entities.count, (0.0, np.nan, 0.0, 0.0)))
        return codes


def request_table(jobs: pl.DataFrame, resource: str) -> UseTable:
    """The table of a few jobs of which only the request counts: what they used is unknown."""

    def first(*names: str) -> Floats:
        rows = zip(*(jobs[name].to_list() for name in names), strict=True)
        return np.array([next((value for value in row if value is not None), None) for row in rows], np.float64)

    request = first(*_REQUEST_COLUMNS[resource])
    if resource == GPU_MEMORY:
        request = np.full(jobs.height, np.nan)
    elif resource != CPUS:
        request = np.where(request > 0, request, np.nan)
    unknown, no = np.full(jobs.height, np.nan), np.zeros(jobs.height, bool)
    cores = np.fmax(first("cpus", "req_cpus", "nodes", "req_nodes"), 1.0)
    return UseTable(unknown, request, no, no, np.zeros(jobs.height), cores)


def _keys_of_few(jobs: pl.DataFrame, stand_in: dict[str, str], resource: str) -> dict[str, list[Any]]:
    """What `_with_keys` says of a few jobs, without a query."""
    values = request_of_few(jobs, stand_in, [name for name in key_columns(SPACES) if name not in ("request_key", "hint")])
    requests = zip(*(jobs[name].to_list() for name in _REQUEST_COLUMNS[resource]), strict=True)
    values["request_key"] = whole_numbers([next((value for value in row if value is not None), None) for row in requests])
    more = [row or {} for row in jobs["extra"].to_list()]
    hints = [next((each[name] for name in _HINTS if each.get(name) is not None), None) for each in more]
    values["hint"] = [None if hint in ("", "-") else hint for hint in hints]
    return values


def _with_keys(jobs: pl.DataFrame, stand_in: dict[str, str], resource: str) -> pl.DataFrame:
    frame = with_request(jobs, stand_in)
    requested = pl.coalesce(*_REQUEST_COLUMNS[resource])
    hints = [pl.col("extra").map.get(name) for name in _HINTS] if jobs["extra"].null_count() < jobs.height else []
    hint = pl.coalesce(pl.lit(None, dtype=pl.String), *hints)
    return frame.with_columns(
        request_key=requested.round().cast(pl.Int64, strict=False), hint=pl.when(~hint.is_in(["", "-"])).then(hint)
    )
