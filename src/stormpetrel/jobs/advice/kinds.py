"""Kinds of jobs: the past jobs that a request can be compared with, and how much each of them needed.

one-row job frame + past jobs -> `Kind`: the last comparable jobs -> `Need`: what they requested, used and ran out of.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from math import comb
from typing import Any, Final

import numpy as np
import polars as pl

from stormpetrel.jobs.history.keys import families, families_of_few, family
from stormpetrel.jobs.outcomes import COMPLETED, NEVER_STARTED, outcome
from stormpetrel.records.arrays import Flags, Floats
from stormpetrel.records.doubts import trusted
from stormpetrel.records.jobs import KEY, never_started
from stormpetrel.records.times import UTC_TIME

Row = dict[str, Any]

SAME_NAME: Final = "same user, name and size"
SAME_SIZE: Final = "same user, application and size"
SAME_APPLICATION: Final = "same user and application"
OTHER_USERS: Final = "same application, other users"
ANY_APPLICATION: Final = "same user and size"

LAST: Final = 50  # recent jobs count more: older ones do not count at all
FEWEST: Final = 5  # jobs below which a kind is not known
_FEWEST_THAT_TRIED: Final = 2  # jobs that must have completed with more before more is proposed
ABOUT: Final = 0.8  # of a request, up to its inverse: about as much
_NEAR: Final = 4.0  # times too little: jobs that requested far more are of another size, and set no example if others do
_OFTEN: Final = 0.1  # share that ran out among at least `FEWEST` similar requests: more is needed
_MOSTLY: Final = 0.5  # the same with fewer similar requests
_MUCH_MORE: Final = 0.2  # difference of two failure shares that is worth moving a job for
_UNLIKELY: Final = 0.01
# The family of a job costs a few regular expressions, so only the end of a long log is looked through for it.
OWN_CONSIDERED: Final = 5_000
OTHERS_CONSIDERED: Final = 20_000
_FAMILY_COLUMNS: Final = ("job_name", "script_path", "work_dir", "extra")
COLUMNS: Final = (
    *KEY, *_FAMILY_COLUMNS, "user", "partition", "qos", "start_time", "end_time", "state", "exit_code", "exit_signal",
    "failed_step_exit_code", "failed_step_exit_signal", "time_limit_s", "elapsed_s", "req_cpus", "cpus", "req_nodes", "nodes",
    "req_gpus", "gpus", "req_mem_bytes", "mem_bytes", "max_rss_bytes", "cpu_time_s", "busy_gpus", "quality",
)  # fmt: skip
_SIGKILL: Final = 9
_KILLED_EXIT_CODES: Final = (128 + _SIGKILL, _SIGKILL)  # as a shell tells it, and as sacct before 26.05 prints that
_MEMORY_FULL: Final = 0.95  # share of its memory that a job which was killed must have used to look like an out-of-memory kill


@dataclass(frozen=True, slots=True)
class Kind:
    """Comparable past jobs, the most recent first; `relatives` are those of the same application in any size."""

    name: str
    jobs: pl.DataFrame
    relatives: pl.DataFrame

    @property
    def known(self) -> bool:
        """Whether there are enough jobs to say anything."""
        return self.jobs.height >= FEWEST


@dataclass(frozen=True, slots=True)
class Need:
    """How much of one resource past jobs requested and used; NaN where the log does not tell.

    `enough` is what would surely have done for a job that completed. A job that ran out needed more than it requested.
    """

    asked: Floats
    used: Floats
    enough: Floats
    completed: Flags
    ran_out: Flags

    @property
    def wall(self) -> float:
        """The most that a job had when it ran out; 0 where none did."""
        had = np.fmax(self.asked, self.used)[self.ran_out]
        return float(np.max(had[~np.isnan(had)], initial=0.0))

    def tried(self, amount: float) -> Flags:
        """Which jobs completed with more than an amount, and more than anything that ran out."""
        return self.completed & (self.asked > max(amount, self.wall)) & ~np.isnan(self.enough)

    def smallest_enough(self, amount: float, ladder: tuple[float, ...], step: float) -> float | None:
        """The smallest friendly value above an amount and above every shortage that jobs which had more show to be enough.

        Friendly is what stands on the ladder, and what those jobs requested in whole steps.
        """
        tried = self.tried(amount)
        if tried.sum() < _FEWEST_THAT_TRIED:
            return None
        near = self.asked <= _NEAR * max(amount, self.wall)
        near = near if (tried & near).sum() >= _FEWEST_THAT_TRIED else np.ones_like(near)
        target = max(upper(self.enough[tried & near]), upper(self.enough[self.completed & near]))
        had = self.asked[tried & np.isfinite(self.asked)]  # without those that had no limit
        asked_for = had[had % step == 0].tolist()
        return min((value for value in (*ladder, *asked_for) if value > max(amount, self.wall) and value >= target), default=None)

    def needed_more(self, amount: float) -> Flags:
        """Which jobs certainly needed more than an amount."""
        return (self.ran_out & (self.asked >= amount)) | (self.used > amount)

    def similar(self, amount: float) -> Flags:
        """Which jobs requested about as much: who asks for more or less than that mostly knows why."""
        return (self.asked >= ABOUT * amount) & (self.asked <= amount / ABOUT)

    def too_little(self, amount: float) -> bool:
        """Whether an amount is likely too little: judged by jobs that requested about as much, by all where there are none."""
        similar = self.similar(amount)
        judges = similar if similar.sum() >= _FEWEST_THAT_TRIED else np.ones_like(similar)
        share = float(np.mean(self.needed_more(amount)[judges])) if judges.size else 0.0
        return share >= (_OFTEN if similar.sum() >= FEWEST else _MOSTLY)


@dataclass(frozen=True, slots=True)
class BetterPlace:
    """A partition or QOS where jobs of a kind failed much less often than where they are now."""

    name: str
    failed_here: int
    jobs_here: int
    failed_there: int
    jobs_there: int


def find_kind(request: pl.DataFrame, past: pl.DataFrame | pl.LazyFrame, *, now: datetime) -> Kind:
    """The narrowest kind with enough jobs that ended before `now`; the fullest one where none has enough."""
    row = prepared_request(request)
    nothing = prepared(request.clear())
    fullest = Kind(SAME_SIZE, nothing, nothing)
    for kind in _kinds(row, ended_before(past, now)):
        if kind.known:
            return kind
        # Jobs of other applications are a last resort, and no reason to say that this one is known a little.
        if kind.name != ANY_APPLICATION or row["family"] is None:
            fullest = max(fullest, kind, key=lambda candidate: candidate.jobs.height)
    return fullest


def ended_before(past: pl.DataFrame | pl.LazyFrame, now: datetime) -> pl.LazyFrame:
    """The jobs that had ended by then: nothing that came later may speak."""
    return past.lazy().filter(pl.col("end_time") < now)


def prepared_request(request: pl.DataFrame) -> Row:
    """A request as a plain row, with its family and its size."""
    few = families_of_few(request)
    if few is None or request["quality"].item() is not None:
        return trusted(request.select(*COLUMNS)).with_columns(family(), *_size()).row(0, named=True)
    columns = request.row(0, named=True)  # a query takes ten times as long
    row = {name: columns[name] for name in COLUMNS}
    memory = next((value for value in (row["req_mem_bytes"], row["mem_bytes"]) if value is not None and value > 0), None)
    sizes = {
        f"size_{name}": row[name] if row[f"req_{name}"] is None else row[f"req_{name}"] for name in ("cpus", "nodes", "gpus")
    }
    return {**row, "family": few[0], **sizes, "asked_mem": memory}


def prepared(jobs: pl.DataFrame) -> pl.DataFrame:
    """Jobs that ran to an end, the most recent first, with `family`, `outcome`, `size_cpus`, `size_nodes` and `asked_mem`.

    Values that a rule of data quality doubts are null: nothing is said from them.
    """
    verdict = pl.when(probably_out_of_memory()).then(pl.lit("OUT_OF_MEMORY")).otherwise(outcome())
    known = trusted(jobs[list(COLUMNS)])
    return (
        known.with_columns(families(known), verdict.alias("outcome"), *_size())
        .filter((pl.col("outcome") != NEVER_STARTED).fill_null(False))
        .sort("end_time", "job_id", descending=True, nulls_last=True)
    )


@cache
def probably_out_of_memory() -> pl.Expr:
    """Whether a job that is recorded as FAILED was killed with its memory full, short of its time limit."""
    killed = (
        (pl.col("exit_signal") == _SIGKILL)
        | (pl.col("failed_step_exit_signal") == _SIGKILL)
        | pl.col("exit_code").is_in(_KILLED_EXIT_CODES)
        | pl.col("failed_step_exit_code").is_in(_KILLED_EXIT_CODES)
    )
    full = pl.col("max_rss_bytes") >= _MEMORY_FULL * requested_memory()
    return ((outcome() == "FAILED") & killed & full).fill_null(False)


@cache
def requested_memory() -> pl.Expr:
    """Memory of the whole job in bytes; null for 0, which asks Slurm for whatever the node has."""
    known = [pl.when(pl.col(name) > 0).then(pl.col(name)) for name in ("req_mem_bytes", "mem_bytes")]
    return pl.coalesce(*known)


def memory_need(jobs: pl.DataFrame, head_room: float) -> Need:
    """Memory in bytes.

    The record holds the largest task only, sampled now and then: a lower bound of what the job needed. A job has at most as many
    tasks as CPUs, and one that completed had enough with what it requested: these are the upper bounds.
    """
    requested = floats(jobs["asked_mem"])
    largest_task = floats(jobs["max_rss_bytes"])
    completed, ran_out = _ends(jobs, "OUT_OF_MEMORY")
    enough = np.fmin(requested, head_room * largest_task * floats(jobs["size_cpus"]))
    return Need(requested, largest_task, np.where(completed, enough, np.nan), completed, ran_out)


def time_need(jobs: pl.DataFrame, head_room: float) -> Need:
    """Run time in seconds; a job without a limit requested all the time there is."""
    completed, ran_out = _ends(jobs, "TIMEOUT")
    elapsed = floats(jobs["elapsed_s"])
    limit = floats(jobs["time_limit_s"])
    requested = np.where(completed & np.isnan(limit), np.inf, limit)
    return Need(requested, elapsed, np.where(completed, head_room * elapsed, np.nan), completed, ran_out)


def longest_limits(past: pl.DataFrame | pl.LazyFrame, *, now: datetime) -> dict[str, float]:
    """The longest time limit in seconds that a job ever ran with in each partition; what never started may ask for anything."""
    limits = (
        ended_before(past, now)
        .filter(~never_started())
        .group_by("partition")
        .agg(pl.col("time_limit_s").max())
        .drop_nulls()
        .collect()
    )
    return dict(zip(limits["partition"].to_list(), limits["time_limit_s"].to_list(), strict=True))


def better_places(jobs: pl.DataFrame, column: str, here: str | None) -> list[BetterPlace]:
    """Where jobs failed much less than here, by more than chance explains, the best place first."""
    names = jobs[column].to_list()
    all_jobs = Counter(names)
    all_failed = Counter(name for name, end in zip(names, jobs["outcome"].to_list(), strict=True) if end not in (None, COMPLETED))
    if here is None or all_jobs[here] < FEWEST:
        return []
    jobs_here, failed_here = all_jobs[here], all_failed[here]
    shares = {name: all_failed[name] / count for name, count in all_jobs.items() if name is not None and count >= FEWEST}
    better = [name for name, share in shares.items() if share <= shares[here] - _MUCH_MORE]
    better.sort(key=lambda name: (shares[name], -all_jobs[name], name))
    places = [BetterPlace(name, failed_here, jobs_here, all_failed[name], all_jobs[name]) for name in better]
    return [place for place in places if _chance(place) * len(places) < _UNLIKELY]  # Bonferroni: every place is one more try


def same_size(jobs: pl.DataFrame, row: Row) -> pl.DataFrame:
    """The jobs of a request's size: a smaller request is proposed from these only, since smaller jobs need less."""
    return rows_with(jobs, size_nodes=row["size_nodes"], size_cpus=row["size_cpus"])


def same_nodes(jobs: pl.DataFrame, row: Row) -> pl.DataFrame:
    """The jobs on as many nodes: memory is that of the whole job, so others cannot be compared."""
    return rows_with(jobs, size_nodes=row["size_nodes"])


def rows_with(jobs: pl.DataFrame, **values: object) -> pl.DataFrame:
    """The few jobs that have these values, None included; a query would take several times as long."""
    rows = zip(*(jobs[name].to_list() for name in values), strict=True)
    wanted = tuple(values.values())
    chosen = [at for at, row in enumerate(rows) if row == wanted]
    return jobs if len(chosen) == jobs.height else jobs[chosen]


def upper(values: Floats) -> float:
    """The 95th percentile of the known values, itself one of them; 0 of none."""
    known = values[~np.isnan(values)]
    return float(np.quantile(known, 0.95, method="higher")) if known.size else 0.0


def floats(column: pl.Series) -> Floats:
    """A column of numbers, NaN for null."""
    return column.cast(pl.Float64).to_numpy()


def _chance(place: BetterPlace) -> float:
    """Fisher's exact test, one-sided: how likely as many failures fall here if the place does not matter."""
    failures = place.failed_here + place.failed_there
    here = range(place.failed_here, min(failures, place.jobs_here) + 1)
    ways = sum(comb(place.jobs_here, count) * comb(place.jobs_there, failures - count) for count in here)
    return ways / comb(place.jobs_here + place.jobs_there, failures)


def _kinds(row: Row, ended: pl.LazyFrame) -> Iterator[Kind]:
    """The kinds from the narrowest to the widest, each looked up only when the ones before it did not do."""
    # Collected first: whether a job ran is asked of the user's own jobs, not of all.
    of_user = ended.filter(pl.col("user") == pl.lit(row["user"])).select(*COLUMNS).collect()
    own = prepared(_latest(of_user.lazy(), OWN_CONSIDERED))
    same_size = _same_size(row)
    same_family = (pl.col("family") == pl.lit(row["family"])).fill_null(False)
    relatives = own.filter(same_family)
    same_name = (pl.col("job_name") == pl.lit(row["job_name"])).fill_null(False)
    namesakes = relatives.filter(same_name)
    yield kind_of(SAME_NAME, namesakes.filter(same_size), namesakes)
    yield kind_of(SAME_SIZE, relatives.filter(same_size), relatives)
    yield kind_of(SAME_APPLICATION, relatives, relatives)
    if row["family"] is not None:
        others = ended if row["user"] is None else ended.filter(pl.col("user").ne_missing(row["user"]))
        latest = _latest(others, OTHERS_CONSIDERED)
        theirs = prepared(latest.filter(families(latest) == row["family"]))
        yield kind_of(OTHER_USERS, theirs, theirs)
    if row["size_cpus"] is not None or row["size_nodes"] is not None:
        yield kind_of(ANY_APPLICATION, own.filter(same_size), own.clear())


def kind_of(name: str, jobs: pl.DataFrame, relatives: pl.DataFrame) -> Kind:
    """A kind out of prepared jobs, the most recent first: as many of them as count."""
    return Kind(name, jobs.head(LAST), relatives.head(4 * LAST))


def _same_size(row: Row) -> pl.Expr:
    return pl.col("size_cpus").eq_missing(row["size_cpus"]) & pl.col("size_nodes").eq_missing(row["size_nodes"])


def _latest(ended: pl.LazyFrame, count: int) -> pl.DataFrame:
    """The last jobs that ended after they had run; an array that was cancelled in the queue must not take their place."""
    ended = ended.filter(~never_started())
    # One column tells how far back to go: carrying all of them through `top_k` takes four times as long on a million jobs.
    since = ended.select(pl.col("end_time").top_k(count).min()).collect().item()
    recent = ended.filter(pl.col("end_time") >= pl.lit(since, dtype=UTC_TIME))
    return recent.select(*COLUMNS).head(2 * count).collect()


@cache
def _size() -> tuple[pl.Expr, ...]:
    return (
        pl.coalesce("req_cpus", "cpus").alias("size_cpus"),
        pl.coalesce("req_nodes", "nodes").alias("size_nodes"),
        pl.coalesce("req_gpus", "gpus").alias("size_gpus"),
        requested_memory().alias("asked_mem"),
    )


def _ends(jobs: pl.DataFrame, shortage: str) -> tuple[Flags, Flags]:
    ends = jobs["outcome"]
    return (ends == COMPLETED).to_numpy().astype(np.bool_), (ends == shortage).to_numpy().astype(np.bool_)
