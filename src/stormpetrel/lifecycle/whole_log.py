"""What all pieces of a log share: the kinds of requests in it, and which allocated column stands in for a missing request.

LazyFrame of a site's jobs -> request_profiles, stand_ins_of; only the columns and rows that they need are read.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

import polars as pl

from stormpetrel.jobs.history.history import in_order
from stormpetrel.jobs.history.keys import SIZES
from stormpetrel.jobs.predictor import known_by
from stormpetrel.jobs.preparation import WORDS
from stormpetrel.jobs.profiles import JobProfiles, fit_request_profiles
from stormpetrel.jobs.training import TrainingSettings
from stormpetrel.records.jobs import KEY

_PROFILE_ROWS: Final = 2_000_000  # the latest: what kinds of requests there are
# What profiles are made of and described by: of two million jobs every further column costs tens of megabytes.
_PROFILE_COLUMNS: Final = tuple(
    dict.fromkeys(
        (
            *KEY, *WORDS, "uid", "gid", "state", "start_time", "end_time", "elapsed_s", "quality", "cpus", "nodes", "gpus",
            "mem_bytes", "req_cpus", "req_nodes", "req_gpus", "req_mem_bytes", "time_limit_s", "alloc_tres", "req_tres",
        )
    )
)  # fmt: skip


def request_profiles(jobs: pl.LazyFrame, until: datetime, settings: TrainingSettings) -> JobProfiles:
    """The kinds of requests among the latest jobs."""
    since = jobs.select(pl.col("submit_time").top_k(_PROFILE_ROWS).min()).collect().item()
    latest = in_order(known_by(jobs.filter(pl.col("submit_time") >= since).select(_PROFILE_COLUMNS).collect(), until))
    return fit_request_profiles(latest, failure_states=settings.failure_states, seed=settings.seed)


def stand_ins_of(jobs: pl.LazyFrame) -> dict[str, str]:
    """Which allocated column stands in for a request that no job has: as `keys.stand_ins`, without reading the rows."""
    names = [name for pair in SIZES.values() for name in pair]
    counts = jobs.select(pl.col(names).count()).collect().row(0, named=True)
    return {size: allocated for size, (requested, allocated) in SIZES.items() if not counts[requested] and counts[allocated]}
