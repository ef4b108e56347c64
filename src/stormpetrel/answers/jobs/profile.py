"""The profile of a job: what kind of job it is, in words, and where its figures stand among jobs of that kind.

LiveSite + one-row job frame -> profile_of -> ProfileComparison.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

import polars as pl

from stormpetrel.answers.schemas.job import ProfileComparison, ProfileFigure
from stormpetrel.records.doubts import trusted

if TYPE_CHECKING:
    from stormpetrel.answers.live_site import LiveSite, SiteMemory
    from stormpetrel.jobs.profiles import JobProfiles

FIGURES: Final = ("cpus", "nodes", "req_mem_bytes", "max_rss_bytes", "time_limit_s", "elapsed_s", "wait_s")
_LATEST: Final = 50_000  # submissions that a job is compared with
_FEWEST: Final = 5  # jobs below which quartiles would tell of single ones
_KEEP_S: Final = 300.0
_GIB: Final = 2**30


def profile_of(live: LiveSite, job: pl.DataFrame) -> ProfileComparison | None:
    """The profile of one job (a frame of one row); None where its request says too little. Needs a model."""
    predictor = live.predictor()
    stand_in = dict(predictor.history.stand_in or {})
    number = _assigned(job, predictor.profiles, stand_in).item()
    if number is None:
        return None
    table = _QUARTILES.table(live, predictor.profiles, stand_in).filter(pl.col("profile") == number)
    like = table.row(0, named=True) if table.height else {}
    values = job.select(_figures()).row(0, named=True)
    quartiles = {name: {part: _number(like.get(f"{name}_{part}")) for part in ("low", "median", "high")} for name in FIGURES}
    return ProfileComparison(
        profile=int(number),
        words=predictor.profiles.describe(int(number)),
        jobs=like.get("jobs", 0),
        failed_share=like.get("failed_share"),
        figures={name: ProfileFigure(value=_number(values[name]), **quartiles[name]) for name in FIGURES},
    )


class _Quartiles:
    """The figures of each profile, out of the latest jobs that ended; counted anew every five minutes."""

    def __init__(self) -> None:
        self._kept: WeakKeyDictionary[SiteMemory, tuple[JobProfiles, float, pl.DataFrame]] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def table(self, live: LiveSite, profiles: JobProfiles, stand_in: Mapping[str, str]) -> pl.DataFrame:
        with self._lock:
            known = self._kept.get(live.memory)
            if known is None or known[0] is not profiles or time.monotonic() - known[1] > _KEEP_S:
                jobs = live.overview.frame.head(_LATEST).filter(pl.col("failed").is_not_null())
                known = profiles, time.monotonic(), _quartiles(jobs.with_columns(profile=_assigned(jobs, profiles, stand_in)))
                self._kept[live.memory] = known
            return known[2]


_QUARTILES: Final = _Quartiles()


def _quartiles(jobs: pl.DataFrame) -> pl.DataFrame:
    parts = {"low": 0.25, "median": 0.5, "high": 0.75}
    quantiles = [
        pl.when(pl.col(name).count() >= _FEWEST).then(pl.col(name).quantile(share, "linear")).alias(f"{name}_{part}")
        for name in FIGURES
        for part, share in parts.items()
    ]
    rows = trusted(jobs).select("profile", "failed", *_figures())
    counts = (pl.len().alias("jobs"), pl.when(pl.len() >= _FEWEST).then(pl.col("failed").mean()).alias("failed_share"))
    return rows.group_by("profile").agg(*counts, *quantiles)


def _figures() -> list[pl.Expr]:
    wait = (pl.col("start_time") - pl.col("submit_time")).dt.total_microseconds() / 1e6
    sizes = [pl.coalesce("cpus", "req_cpus").alias("cpus"), pl.coalesce("nodes", "req_nodes").alias("nodes")]
    return [
        *(size.cast(pl.Float64) for size in sizes),
        pl.col("req_mem_bytes", "max_rss_bytes", "time_limit_s", "elapsed_s").cast(pl.Float64),
        wait.alias("wait_s"),
    ]


def _assigned(jobs: pl.DataFrame, profiles: JobProfiles, stand_in: Mapping[str, str]) -> pl.Series:
    """The profile of each request, as `jobs.request_profiles` assigns it."""
    request = jobs.select(
        req_cpu=pl.col(stand_in.get("asked_cpus", "req_cpus")).cast(pl.Float64),
        req_node=pl.col(stand_in.get("asked_nodes", "req_nodes")).cast(pl.Float64),
        req_mem_gb=pl.col("req_mem_bytes") / _GIB,
        time_limit_s="time_limit_s",
    )
    return profiles.assign(request)


def _number(value: Any) -> float | None:
    return None if value is None else float(value)
