"""What each job asked of the cluster: when, for how many core-hours, and how long it waited; and what all of them held each hour.

job frame -> rows_of -> one row per job; -> hours_in_use -> cores per hour.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

Floats = npt.NDArray[np.float64]

NEEDED: Final = (
    "submit_time", "eligible_time", "start_time", "end_time", "elapsed_s", "time_limit_s", "cpus", "req_cpus", "nodes",
    "req_nodes", "account", "group", "partition",
)  # fmt: skip
UNKNOWN: Final = "(unknown)"
_GROUPS: Final = ("account", "group", "partition")  # the first that the log tells
_HOUR_S: Final = 3600
_MOST_CORES: Final = 10_000_000  # beyond is a damaged field
_LOST: Final = timedelta(weeks=8)  # a job that has not ended by then has ended, and nobody told us
_LONGEST_LAG: Final = timedelta(weeks=3)
_MOST_ENDED: Final = 0.9  # of the core-hours


def rows_of(jobs: pl.DataFrame, *, now: datetime) -> tuple[pl.DataFrame, str]:
    """Each job's submission, cores, core-hours, asked core-hours, wait and span on the cluster; and by what it is grouped."""
    grouped_by = next((name for name in _GROUPS if jobs[name].drop_nulls().len()), "")
    submit, start, end = (pl.col(f"{name}_time") for name in ("submit", "start", "end"))
    cores = pl.coalesce("cpus", "req_cpus", "nodes", "req_nodes", 1).clip(0, _MOST_CORES).cast(pl.Float64)
    since = pl.max_horizontal("submit_time", "eligible_time")
    still = end.is_null() & (submit > now - _LOST)
    run_s = pl.coalesce("elapsed_s", (end - start).dt.total_seconds(fractional=True)).clip(lower_bound=0.0)
    so_far_s = pl.lit(now).sub(start).dt.total_seconds(fractional=True).clip(lower_bound=0.0)
    rows = jobs.filter(submit.is_not_null(), submit <= now).select(
        submit=submit,
        since=since,
        cores=cores,
        group=pl.col(grouped_by) if grouped_by else pl.lit(UNKNOWN),
        started=start,
        ended=end,
        still=still,
        limit_s=pl.col("time_limit_s"),
        run_s=pl.when(end.is_not_null() & start.is_not_null()).then(run_s),
        so_far_s=pl.when(still).then(so_far_s.fill_null(0.0)),
        wait_s=pl.when(start.is_not_null() | still)
        .then((pl.coalesce(start, pl.lit(now)) - since).dt.total_seconds(fractional=True).clip(lower_bound=0.0))
        .cast(pl.Float64),
    )
    held_s = pl.coalesce("run_s", pl.when("still").then(_expected_s(rows)), pl.lit(0.0))
    return (
        rows.with_columns(
            core_hours=pl.col("cores") * held_s / _HOUR_S,
            asked=pl.col("cores") * pl.col("limit_s") / _HOUR_S,
            held_until=pl.col("started") + pl.duration(microseconds=(pl.coalesce("run_s", "so_far_s", 0.0) * 1e6).cast(pl.Int64)),
        ),
        grouped_by,
    )


def seen_until(rows: pl.DataFrame, *, now: datetime) -> datetime | None:
    """Up to when every submission is known; None where there is none.

    A log that tells of jobs only once they have ended lacks those that still run: nine tenths of the core-hours have ended within
    some time, and so much of the end is not used.
    """
    latest = rows["submit"].max()
    if not isinstance(latest, datetime):
        return None
    if rows["still"].any():
        return min(latest, now)
    ended = rows.select("ended", "core_hours", lag=pl.col("ended") - pl.col("submit")).filter(
        pl.col("ended").is_not_null(), pl.col("core_hours") > 0
    )
    last_end = ended["ended"].max()
    if not isinstance(last_end, datetime):
        return latest
    lags = ended.group_by(pl.col("lag").dt.total_hours()).agg(pl.col("core_hours").sum()).sort("lag")
    share = lags["core_hours"].cum_sum() / lags["core_hours"].sum()
    lag = timedelta(hours=int(lags["lag"][int((share < _MOST_ENDED).sum())]) + 1)
    return min(latest, last_end - max(min(lag, _LONGEST_LAG), timedelta(0)))


def hours_in_use(rows: pl.DataFrame, begin: datetime, end: datetime) -> Floats:
    """(hours,) cores that were held, on average over each hour from `begin` to before `end`."""
    hours = int((end - begin).total_seconds()) // _HOUR_S
    held = rows.filter(pl.col("started").is_not_null(), pl.col("held_until") > begin, pl.col("started") < end)
    cores, origin = held["cores"].to_numpy(), begin.timestamp()
    edges = np.zeros(hours + 1)  # core-hours held before each edge of the hours
    for name, sign in (("started", 1.0), ("held_until", -1.0)):
        moment = np.clip((held[name].dt.epoch("us").to_numpy() / 1e6 - origin) / _HOUR_S, 0, hours)  # (jobs,) in hours
        place = np.minimum(moment.astype(np.int64), hours - 1)
        rest = np.bincount(place, cores * (place + 1 - moment), minlength=hours)  # of the hour that it begins or ends in
        whole = np.bincount(place, cores, minlength=hours)  # of each hour after it
        edges[1:] += sign * np.cumsum(rest + np.concatenate([[0.0], np.cumsum(whole)[:-1]]))
    in_use: Floats = np.maximum(np.diff(edges), 0.0)
    return in_use


def week_places(moments: pl.Series, edges_s: npt.NDArray[np.float64]) -> pl.Series:
    """Which of the weeks between these edges (Unix seconds) each moment lies in; null where none."""
    seconds = moments.dt.epoch("s").fill_null(-1).to_numpy()
    places = pl.Series(np.searchsorted(edges_s, seconds, side="right") - 1)
    return places.set((places < 0) | (places >= edges_s.size - 1), None)


def _expected_s(rows: pl.DataFrame) -> pl.Expr:
    """How long a job that has not ended will have run: by its limit as others used theirs, else as long as the mean."""
    run = rows.filter(pl.col("run_s").is_not_null())
    limited = run.filter(pl.col("limit_s") > 0)
    share = float(limited["run_s"].sum()) / float(limited["limit_s"].sum()) if limited.height else 1.0
    mean = float(run.select(pl.col("run_s").mean().fill_null(0.0)).item())
    return pl.max_horizontal("so_far_s", pl.coalesce(pl.col("limit_s") * min(1.0, share), pl.lit(mean)))
