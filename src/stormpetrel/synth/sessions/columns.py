"""A workload's columns as arrays of numbers, and back.

Workload -> encode -> Coding (what is remembered) and Encoded (a row per job); numbers of requests, states, … -> decode -> frame.

What a job asks for (queue, sizes, limit, …) is one thing, drawn as a whole: a request that the site has seen, never one that
it would refuse. What becomes of it (state, run time, numbers of the log's own) is drawn after it. Names are not remembered.
Workload -> usable -> the columns that can be learnt, in the types of a workload; its notes state what was left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from stormpetrel.records.arrays import Floats
from stormpetrel.records.states import JobState
from stormpetrel.synth.workload import ARRAY, KNOWN, SIZES, STATE, SUBMIT, TIMES, WHERE, WHO, Workload

LIMIT: Final = "time_limit_s"
RUNTIME: Final = "runtime_s"
_TOO_MUCH: Final = 1e18  # bytes, cores or seconds
INNER: Final = ("_at", "_who", "_session", "_request")  # columns that the generator adds to a log's own
_FEWEST_COUNTED: Final = 50  # jobs from which on a column can be seen to count them
_IN_ORDER: Final = 0.99  # rank correlation with the time of submission from which on it does


def usable(workload: Workload) -> Workload:
    """The workload in the order of its submissions; numbers that are none are missing, unknown columns are numbers or texts."""
    jobs = workload.jobs.filter(pl.col(SUBMIT).is_not_null()).sort(SUBMIT, maintain_order=True)
    jobs, amounts = _amounts(jobs)
    jobs, own = _own(jobs)
    jobs, overruns = _overruns_are_timeouts(jobs)
    return Workload(jobs, workload.has_clock, (*workload.notes, *amounts, *own, *overruns))


def _amounts(jobs: pl.DataFrame) -> tuple[pl.DataFrame, list[str]]:
    """Sizes and times without those that are negative, endless or not a number."""
    notes = []
    for name in (*SIZES, *TIMES):
        if name not in jobs.columns:
            continue
        good = (jobs[name] >= 0) & (jobs[name] < _TOO_MUCH)
        if bool(good.all()):
            continue
        jobs = jobs.with_columns(pl.when(good).then(name).alias(name))
        notes.append(f"{int((~good).sum()):,} values of '{name}' are negative or beyond all measure; they count as missing.")
    return jobs, notes


def _own(jobs: pl.DataFrame) -> tuple[pl.DataFrame, list[str]]:
    """Columns of the log's own as Int64, Float64 or String; those that can be neither, or that number the jobs, left out."""
    notes = []
    for name in [name for name in jobs.columns if name not in KNOWN]:
        column, why = _own_column(jobs[name])
        if column is None:
            notes.append(f"Column '{name}' is left out: {why}.")
            jobs = jobs.drop(name)
        else:
            jobs = jobs.with_columns(column)
    return jobs, notes


def _own_column(column: pl.Series) -> tuple[pl.Series | None, str]:
    if not column.name.strip() or column.name in INNER:
        return None, "its name cannot be kept"
    if column.dtype.is_numeric():
        numbers = column.cast(pl.Int64 if column.dtype.is_integer() else pl.Float64, strict=False)
        numbers = numbers.set(~numbers.is_finite(), None)
        return (None, "it numbers the jobs, or tells their time") if _counts_jobs(numbers) else (numbers, "")
    if column.dtype.is_nested() or column.dtype.is_temporal() or column.dtype in (pl.Binary, pl.Object):
        return None, "it holds neither numbers nor texts"
    return column.cast(pl.String), ""


def _counts_jobs(numbers: pl.Series) -> bool:
    """Whether each job has a number of its own and later jobs have larger ones."""
    known = numbers.drop_nulls()
    if len(known) < _FEWEST_COUNTED or known.n_unique() < len(known):
        return False
    ranks = pl.DataFrame({"rank": known.rank(), "row": pl.Series(range(len(known)), dtype=pl.Float64)})
    return bool(ranks.select(pl.corr("rank", "row")).item() > _IN_ORDER)


def _overruns_are_timeouts(jobs: pl.DataFrame) -> tuple[pl.DataFrame, list[str]]:
    """Jobs that ran beyond their limit are time-outs, whatever the log calls them (schedulers grant some seconds)."""
    if not {LIMIT, RUNTIME, STATE} <= set(jobs.columns):
        return jobs, []
    over = (pl.col(RUNTIME) > pl.col(LIMIT)).fill_null(False) & pl.col(STATE).ne_missing(JobState.TIMEOUT.value)
    count = jobs.select(over.sum()).item()
    if not count:
        return jobs, []
    named = jobs.with_columns(pl.when(over).then(pl.lit(JobState.TIMEOUT.value)).otherwise(STATE).alias(STATE))
    return named, [f"{count:,} {'job' if count == 1 else 'jobs'} ran beyond the limit under another state: learnt as time-outs."]


Codes = npt.NDArray[np.int64]

OTHER: Final = "other"
PREFIXES: Final = {"user": "user", "group": "group", "account": "project"}
ABSENT: Final = -1.0  # feature of a value that is null
_FEW_VALUES: Final = 200  # different numbers up to which a column of the log's own is part of the request
_NOTHING: Final = "_nothing"  # the only column of the requests of a log in which nothing is asked for
_LARGEST_FEATURE: Final = 1e30  # trees compare 32-bit numbers
_LARGEST_WHOLE: Final = 2.0**63 - 1024  # the largest float that is an Int64


@dataclass(frozen=True, slots=True, eq=False)
class Coding:
    """What is remembered of the columns: the requests seen, the states, which numbers are whole. No name of a person."""

    requests: pl.DataFrame  # one row per request: partition, sizes, limit, columns of the log's own
    states: tuple[str | None, ...]
    numbers: tuple[str, ...]  # columns of the log's own that are drawn with the outcome
    dtypes: dict[str, str]  # "Int64", "Float64" or "String" of the columns of the log's own
    has_runtime: bool
    whole_runtime: bool
    columns: tuple[str, ...]  # of a frame that is made, in order
    prefixes: dict[str, str]  # what new names of users, groups and accounts begin with

    def limits(self) -> Floats:
        """(requests,) seconds; NaN without a limit."""
        if LIMIT not in self.requests.columns:
            return np.full(self.requests.height, np.nan)
        return self.requests[LIMIT].to_numpy().astype(np.float64)

    def sizes(self) -> Floats:
        """(requests,) cores, or nodes where a log has no cores; zeros without both."""
        known = [name for name in ("cores", "nodes") if name in self.requests.columns]
        if not known:
            return np.zeros(self.requests.height)
        return self.requests[known[0]].fill_null(0).to_numpy().astype(np.float64)

    def gpus(self) -> npt.NDArray[np.bool_]:
        """(requests,) whether it asks for a GPU."""
        if "gpus" not in self.requests.columns:
            return np.zeros(self.requests.height, dtype=bool)
        return self.requests["gpus"].fill_null(0).to_numpy() > 0

    def features(self) -> npt.NDArray[np.float32]:
        """(requests, columns that differ) numbers as they are, texts by their place in the alphabet."""
        columns = [_feature(self.requests[name]) for name in self.requests.columns if self.requests[name].n_unique() > 1]
        if not columns:
            return np.zeros((self.requests.height, 0), np.float32)
        return np.clip(np.column_stack(columns), -_LARGEST_FEATURE, _LARGEST_FEATURE).astype(np.float32)

    def decode(self, request: Codes, state: Codes, runtime: Floats, numbers: Floats) -> pl.DataFrame:
        """Frame of the attributes of new jobs."""
        frame = self.requests[request]
        if self.states:
            frame = frame.with_columns(pl.Series(STATE, list(self.states), dtype=pl.String).gather(state).alias(STATE))
        if self.has_runtime:
            frame = frame.with_columns(pl.Series(RUNTIME, runtime, dtype=pl.Float64).fill_nan(None))
        for position, name in enumerate(self.numbers):
            column = pl.Series(name, numbers[:, position], dtype=pl.Float64).fill_nan(None)
            whole = self.dtypes[name] == "Int64"
            frame = frame.with_columns(column.round().clip(-_LARGEST_WHOLE, _LARGEST_WHOLE).cast(pl.Int64) if whole else column)
        return frame


@dataclass(frozen=True, slots=True, eq=False)
class Encoded:
    """One row per job: who, what was requested, what came of it."""

    submit_s: Floats
    user: Codes  # 0 is the user with most jobs
    users: int
    nameless: int  # the code of jobs without a user; -1 where all have one
    place: Codes  # number of the (group, account) pair
    places: pl.DataFrame  # (group, account) as small numbers: the names are not kept
    request: Codes
    state: Codes
    runtime: Floats  # NaN where unknown
    numbers: Floats  # (jobs, columns)


def encode(workload: Workload, *, fewest: int) -> tuple[Coding, Encoded, tuple[str, ...]]:
    """The arrays of a workload; unknown texts that are names, or that fewer than `fewest` jobs have, become 'other'."""
    jobs = workload.jobs
    own = [name for name in jobs.columns if name not in KNOWN]
    few = [name for name in own if jobs[name].dtype == pl.String or jobs[name].n_unique() <= _FEW_VALUES]
    numbers = tuple(name for name in own if name not in few)
    jobs, notes = _without_rare(jobs, [name for name in few if jobs[name].dtype == pl.String], fewest)
    request_columns = jobs.select(name for name in (*WHERE, *SIZES, LIMIT, *few) if name in jobs.columns)
    if ARRAY in jobs.columns:
        request_columns = request_columns.with_columns(jobs[ARRAY].is_not_null().alias(ARRAY))
    requests, request = _numbered(request_columns if request_columns.width else pl.DataFrame({_NOTHING: np.zeros(jobs.height)}))
    states, state = _numbered(jobs.select(STATE)) if STATE in jobs.columns else (None, np.zeros(jobs.height, np.int64))
    runtime = jobs[RUNTIME].to_numpy().astype(np.float64) if RUNTIME in jobs.columns else np.full(jobs.height, np.nan)
    user, users, nameless = _users(jobs)
    places, place = _places(jobs)
    coding = Coding(
        requests=requests,
        states=tuple(states[STATE].to_list()) if states is not None else (),
        numbers=numbers,
        dtypes={name: str(jobs[name].dtype) for name in own},
        has_runtime=RUNTIME in jobs.columns,
        whole_runtime=bool(np.all(np.mod(runtime[np.isfinite(runtime)], 1) == 0)),
        columns=tuple(name for name in jobs.columns if name != "wait_s"),
        prefixes={name: _new_prefix(jobs, name) for name in WHO},
    )
    own_numbers = [jobs[name].cast(pl.Float64).to_numpy() for name in numbers]
    matrix = np.column_stack(own_numbers) if own_numbers else np.zeros((jobs.height, 0))
    encoded = Encoded(workload.submit_s(), user, users, nameless, place, places, request, state, runtime, matrix)
    return coding, encoded, notes


def _without_rare(jobs: pl.DataFrame, texts: list[str], fewest: int) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """The frame with 'other' for texts that few jobs have, or that are the name of a user, a group or an account."""
    names = pl.concat([jobs[name] for name in WHO if name in jobs.columns] or [pl.Series(dtype=pl.String)]).unique()
    notes = []
    for name in texts:
        kept = (pl.len().over(name) >= fewest) & ~pl.col(name).is_in(names.implode())
        shown = jobs.select(pl.when(kept | pl.col(name).is_null()).then(name).otherwise(pl.lit(OTHER)).alias(name))
        lost = jobs[name].n_unique() - shown[name].n_unique()
        if lost > 0:
            notes.append(f"Column '{name}': {lost + 1:,} texts that are rare or names of users are '{OTHER}' now.")
        jobs = jobs.with_columns(shown)
    return jobs, tuple(notes)


def _numbered(frame: pl.DataFrame) -> tuple[pl.DataFrame, Codes]:
    """The different rows, the most common first, and the number of each row's."""
    keys = [f"key{position}" for position in range(frame.width)]  # a log's column may have any name
    plain = frame.rename(dict(zip(frame.columns, keys, strict=True)))
    distinct = plain.group_by(keys, maintain_order=True).len().sort("len", descending=True, maintain_order=True).drop("len")
    coded = plain.join(distinct.with_row_index("code"), on=keys, how="left", nulls_equal=True, maintain_order="left")
    return distinct.rename(dict(zip(keys, frame.columns, strict=True))), coded["code"].to_numpy().astype(np.int64)


def _users(jobs: pl.DataFrame) -> tuple[Codes, int, int]:
    if "user" not in jobs.columns:
        return np.zeros(jobs.height, np.int64), 1, 0
    distinct, codes = _numbered(jobs.select("user"))
    empty = distinct["user"].is_null()
    return codes, distinct.height, int(empty.arg_max() or 0) if bool(empty.any()) else -1


def _new_prefix(jobs: pl.DataFrame, column: str) -> str:
    """What new names begin with, so that none of them is a name of the log."""
    prefix = PREFIXES[column]
    while column in jobs.columns and jobs[column].str.contains(rf"^{prefix}\d+$").any():
        prefix = f"new{prefix}"
    return prefix


def _places(jobs: pl.DataFrame) -> tuple[pl.DataFrame, Codes]:
    """(group, account) pairs; each of the two as a number, 0 the most common."""
    coded: dict[str, Any] = {}
    for name in ("group", "account"):
        if name in jobs.columns:
            distinct, codes = _numbered(jobs.select(name))
            nothing = distinct[name].is_null().to_numpy()
            coded[name] = np.where(nothing[codes], -1, codes)
    if not coded:
        return pl.DataFrame({"group": [-1], "account": [-1]}), np.zeros(jobs.height, np.int64)
    frame = pl.DataFrame({name: coded.get(name, np.full(jobs.height, -1)) for name in ("group", "account")})
    return _numbered(frame.cast(pl.Int64))


def _feature(column: pl.Series) -> Floats:
    if column.dtype == pl.String:
        return column.rank("dense").fill_null(ABSENT).to_numpy().astype(np.float64)
    return column.cast(pl.Float64).fill_null(ABSENT).to_numpy()
