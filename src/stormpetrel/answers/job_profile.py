"""The profile of a job: what kind of job it is, in words, and where its figures stand among jobs of that kind.

LiveSite + one-row job frame -> profile_of -> ProfileComparison.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

import polars as pl

from stormpetrel.answers.json_values import json_value
from stormpetrel.records.doubts import trusted

if TYPE_CHECKING:
    from stormpetrel.answers.live_site import LiveSite, SiteMemory
    from stormpetrel.jobs.profiles import JobProfiles

FIGURES: Final = ("cpus", "nodes", "req_mem_bytes", "max_rss_bytes", "time_limit_s", "elapsed_s", "wait_s")
_LATEST: Final = 50_000  # submissions that a job is compared with
_FEWEST: Final = 5  # jobs below which quartiles would tell of single ones
_KEEP_S: Final = 300.0
_GIB: Final = 2**30


@dataclass(frozen=True, slots=True)
class ProfileFigure:
    """One figure of a job beside the quartiles of jobs with the same profile; None where nobody knows it."""

    name: str
    value: float | None
    low: float | None
    median: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class ProfileComparison:
    """The profile of a job; `jobs` counts the jobs it is compared with, `failed_share` (0 to 1) is theirs."""

    profile: int
    words: str
    jobs: int
    failed_share: float | None
    figures: tuple[ProfileFigure, ...]

    def as_json(self) -> dict[str, Any]:
        """For other programs."""
        figures = {
            one.name: {"value": json_value(one.value), "low": one.low, "median": one.median, "high": one.high}
            for one in self.figures
        }
        words = {"profile": self.profile, "words": self.words, "jobs": self.jobs, "failed_share": self.failed_share}
        return {**words, "figures": figures}


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
    figures = [
        ProfileFigure(name, _number(values[name]), *(_number(like.get(f"{name}_{part}")) for part in ("low", "median", "high")))
        for name in FIGURES
    ]
    words = predictor.profiles.describe(int(number))
    return ProfileComparison(int(number), words, like.get("jobs", 0), like.get("failed_share"), tuple(figures))


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
        *(one.cast(pl.Float64) for one in sizes),
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
