"""What was asked of a cluster week by week, how much of it was in use hour by hour, and how long people waited.

job frames -> load_of_pieces -> LoadRecord; EventSeries -> load_of_counts -> LoadRecord. The load is what was handed in, by the
week of submission: what runs can never be more than there is, what is requested can. Weeks begin on Monday by the clock on the
wall.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from typing import Any, Final, Self
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import polars as pl

from stormpetrel.records.arrays import Floats, Ints
from stormpetrel.records.event_series import EventSeries

NEEDED: Final = (
    "submit_time", "eligible_time", "start_time", "end_time", "elapsed_s", "time_limit_s", "cpus", "req_cpus", "nodes",
    "req_nodes", "account", "group", "partition",
)  # fmt: skip
UNKNOWN: Final = "(unknown)"
_GROUPS: Final = ("account", "group", "partition")  # the first that the log tells
_HOUR_S: Final = 3600
_MOST_CORES: Final = 10_000_000  # beyond is a damaged field
_LOST: Final = timedelta(weeks=8)  # a job that has not ended by then has ended, and its end was not recorded
_LONGEST_LAG: Final = timedelta(weeks=3)
_MOST_ENDED: Final = 0.9  # of the core-hours


@dataclass(frozen=True, slots=True)
class LogFacts:
    """What only all jobs of a log tell together.

    `until` is up to when every submission is known (None: there is none). A job that goes on will have run for `limit_share` of
    its limit, as others do, else for the mean `run_s`.
    """

    grouped_by: str
    first: datetime | None
    until: datetime | None
    limit_share: float
    run_s: float

    @classmethod
    def of(cls, pieces: Iterable[pl.DataFrame], *, now: datetime) -> Self:
        """The facts of the jobs of all pieces.

        A log that tells of jobs only once they have ended lacks those that still run: nine tenths of the core-hours have ended
        within some time, and so much of the end is not used.
        """
        grouped: set[str] = set()
        parts, ends = [], []
        for jobs in pieces:
            grouped |= {name for name in _GROUPS if jobs[name].drop_nulls().len()}
            rows = _rows_of(jobs, now=now)
            limited = pl.col("run_s").is_not_null() & (pl.col("limit_s") > 0)
            parts.append(
                rows.select(
                    first=pl.col("submit").min(), latest=pl.col("submit").max(), still=pl.col("still").any(),
                    run_s=pl.col("run_s").sum(), runs=pl.col("run_s").count(),
                    limited_run_s=pl.col("run_s").filter(limited).sum(), limit_s=pl.col("limit_s").filter(limited).sum(),
                    limited=limited.sum(),
                )
            )  # fmt: skip
            hours = pl.col("cores") * pl.col("run_s").fill_null(0.0) / _HOUR_S
            ended = rows.select("ended", lag=(pl.col("ended") - pl.col("submit")).dt.total_hours(), core_hours=hours)
            ended = ended.filter(pl.col("ended").is_not_null(), pl.col("core_hours") > 0)
            ends.append(ended.group_by("lag").agg(pl.col("core_hours").sum(), pl.col("ended").max()))
        if not parts:
            return cls("", None, None, 1.0, 0.0)
        whole = pl.concat(parts)
        sums = whole.select(pl.col("run_s", "runs", "limited_run_s", "limit_s", "limited").sum()).row(0, named=True)
        first, latest = whole["first"].min(), whole["latest"].max()
        return cls(
            grouped_by=next((name for name in _GROUPS if name in grouped), ""),
            first=first if isinstance(first, datetime) else None,
            until=_seen_until(latest, has_open=bool(whole["still"].any()), ends=pl.concat(ends), now=now),
            limit_share=min(1.0, sums["limited_run_s"] / sums["limit_s"]) if sums["limited"] else 1.0,
            run_s=sums["run_s"] / sums["runs"] if sums["runs"] else 0.0,
        )


def _rows_of(jobs: pl.DataFrame, *, now: datetime, grouped_by: str = "") -> pl.DataFrame:
    """Each job's submission, cores, wait and span on the cluster."""
    submit, start, end = (pl.col(f"{name}_time") for name in ("submit", "start", "end"))
    cores = pl.coalesce("cpus", "req_cpus", "nodes", "req_nodes", 1).clip(0, _MOST_CORES).cast(pl.Float64)
    since = pl.max_horizontal("submit_time", "eligible_time")
    still = end.is_null() & (submit > now - _LOST)
    run_s = pl.coalesce("elapsed_s", (end - start).dt.total_seconds(fractional=True)).clip(lower_bound=0.0)
    so_far_s = pl.lit(now).sub(start).dt.total_seconds(fractional=True).clip(lower_bound=0.0)
    return jobs.filter(submit.is_not_null(), submit <= now).select(
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


def rows_of(jobs: pl.DataFrame, facts: LogFacts, *, now: datetime) -> pl.DataFrame:
    """Each job's submission, group, cores, core-hours, asked core-hours, wait and span on the cluster."""
    expected_s = pl.max_horizontal("so_far_s", pl.coalesce(pl.col("limit_s") * facts.limit_share, pl.lit(facts.run_s)))
    held_s = pl.coalesce("run_s", pl.when("still").then(expected_s), pl.lit(0.0))
    return _rows_of(jobs, now=now, grouped_by=facts.grouped_by).with_columns(
        core_hours=pl.col("cores") * held_s / _HOUR_S,
        asked=pl.col("cores") * pl.col("limit_s") / _HOUR_S,
        held_until=pl.col("started") + pl.duration(microseconds=(pl.coalesce("run_s", "so_far_s", 0.0) * 1e6).cast(pl.Int64)),
    )


def _seen_until(latest: Any, *, has_open: bool, ends: pl.DataFrame, now: datetime) -> datetime | None:
    """Up to when every submission is known; `ends`: core-hours and last end of jobs by the hours from submission to end."""
    if not isinstance(latest, datetime):
        return None
    if has_open:
        return min(latest, now)
    last_end = ends["ended"].max()
    if not isinstance(last_end, datetime):
        return latest
    lags = ends.group_by("lag").agg(pl.col("core_hours").sum()).sort("lag")
    share = lags["core_hours"].cum_sum() / lags["core_hours"].sum()
    lag = timedelta(hours=int(lags["lag"][int((share < _MOST_ENDED).sum())]) + 1)
    return min(latest, last_end - max(min(lag, _LONGEST_LAG), timedelta(0)))


def core_hours_held(rows: pl.DataFrame, begin: datetime, end: datetime) -> Floats:
    """(hours + 1,) core-hours that were held from `begin` to each edge of the hours up to `end`."""
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
    return edges


def week_places(moments: pl.Series, edges_s: npt.NDArray[np.float64]) -> pl.Series:
    """Which of the weeks between these edges (Unix seconds) each moment lies in; null where none."""
    seconds = moments.dt.epoch("s").fill_null(-1).to_numpy()
    places = pl.Series(np.searchsorted(edges_s, seconds, side="right") - 1)
    return places.set((places < 0) | (places >= edges_s.size - 1), None)


MOST_WEEKS: Final = 104  # that are kept, the latest
WEEK_HOURS: Final = 168
LEAST_SEEN: Final = 0.5  # a week of which less was seen has no load
WEEK: Final = timedelta(days=7)
_KINDS: Final = {"jobs": "Submit", "started": "Execute", "ended": "JobTerminated"}
_WEEKS: Final = {"week": "submit", "started_week": "started", "ended_week": "ended"}
_UTILISATION: Final = ("utilisation", "utilization")

WEEK_SCHEMA: Final = pl.Schema(
    {
        "week": pl.Date(),  # its Monday
        "seen": pl.Float64(),  # share of the week of which there is data
        "load": pl.Float64(),  # what was handed in, scaled to a whole week; null where too little was seen
        "asked": pl.Float64(),  # core-hours by the time limits; null where they are not known
        "jobs": pl.Float64(),  # handed in
        "started": pl.Float64(),
        "ended": pl.Float64(),
        "wait_median_s": pl.Float64(),
        "wait_p90_s": pl.Float64(),
    }
)
GROUP_SCHEMA: Final = pl.Schema({"group": pl.String(), "week": pl.Date(), "load": pl.Float64()})


class LoadUnit(StrEnum):
    """What a load is counted in."""

    CORE_HOURS = "core-hours"
    SLOT_HOURS = "slot-hours"
    FULL_HOURS = "hours of the whole grid"  # utilisation is known, but not how many slots there are
    JOBS = "jobs"  # nothing is known of what they hold


@dataclass(frozen=True, slots=True, eq=False)
class LoadRecord:
    """The past of a cluster as capacity planning sees it; only weeks that are over."""

    unit: LoadUnit
    weeks: pl.DataFrame  # WEEK_SCHEMA, oldest first, without holes
    groups: pl.DataFrame  # GROUP_SCHEMA: the load of each group, scaled as the weeks are
    grouped_by: str  # account, group, …; "" where nobody tells
    hours: float  # length of a bucket of `in_use`
    in_use: Floats  # (buckets,) cores or slots that were held on average; NaN where nobody knows
    full: float | None  # cores or slots there are, where the source tells
    waited_in: Ints  # (waits,) the bucket in which somebody began to wait
    waited_s: Floats  # (waits,) how long
    waits_are_estimates: bool = False  # out of the length of the queue

    @property
    def known_weeks(self) -> int:
        """How many weeks have a load."""
        return int(self.weeks["load"].is_not_null().sum())

    @property
    def end(self) -> date | None:
        """The Monday after the last week."""
        last = self.weeks["week"].max()
        return last + WEEK if isinstance(last, date) else None


def load_of_pieces(pieces: Callable[[], Iterable[pl.DataFrame]], *, now: datetime, zone: str) -> LoadRecord:
    """The load out of pieces of a job frame, each with all jobs that were submitted in its weeks; they are gone through twice.

    Core-hours of jobs that have not ended are estimated from how others keep to their limits.
    """
    facts = LogFacts.of(pieces(), now=now)
    if facts.until is None or facts.first is None:
        return _nothing(LoadUnit.CORE_HOURS)
    weeks = _whole_weeks(facts.first, facts.until, zone)
    if not weeks:
        return _nothing(LoadUnit.CORE_HOURS)
    begin, end = midnight(weeks[0], zone), midnight(weeks[-1] + WEEK, zone)
    edges_s = np.array([midnight(week, zone).timestamp() for week in (*weeks, weeks[-1] + WEEK)])
    seen = pl.DataFrame({"week": weeks, "seen": [_share_seen(week, facts.first, zone) for week in weeks]})
    held = np.zeros(int((end - begin).total_seconds()) // _HOUR_S + 1)
    sums, groups, waited_in, waited_s = [], [], [], []
    events: dict[str, list[pl.DataFrame]] = {"started": [], "ended": []}
    for jobs in pieces():
        rows = rows_of(jobs, facts, now=now)
        rows = rows.with_columns(
            week_places(rows[name], edges_s).replace_strict(range(len(weeks)), weeks, return_dtype=pl.Date).alias(column)
            for column, name in _WEEKS.items()
        )
        held += core_hours_held(rows, begin, end)
        sums.append(_week_sums(rows))
        groups.append(rows.group_by("group", "week").agg(load=pl.col("core_hours").sum()))
        for name, counts in events.items():
            counts.append(rows.drop_nulls(f"{name}_week").group_by(pl.col(f"{name}_week").alias("week")).len(name))
        waits = rows.filter(pl.col("wait_s").is_not_null() & pl.col("since").is_between(begin, end, closed="left"))
        waited_in.append(((waits["since"].dt.epoch("s") - int(begin.timestamp())) // _HOUR_S).to_numpy().astype(np.int32))
        waited_s.append(waits["wait_s"].to_numpy().astype(np.float32))
    return LoadRecord(
        unit=LoadUnit.CORE_HOURS,
        weeks=_weeks_of_jobs(pl.concat(sums), {name: pl.concat(counts) for name, counts in events.items()}, seen),
        groups=_scaled_groups(pl.concat(groups).group_by("group", "week").agg(pl.col("load").sum()), seen),
        grouped_by=facts.grouped_by,
        hours=1.0,
        in_use=np.maximum(np.diff(held), 0.0),
        full=None,
        waited_in=np.concatenate(waited_in),
        waited_s=np.concatenate(waited_s),
    )


def load_of_counts(series: EventSeries, groups: pl.DataFrame | None = None) -> LoadRecord:
    """The load out of event counts, and of their background where it tells what is queued and running.

    `groups` are submissions: bucket_start, group, count.
    """
    if not len(series):
        return _nothing(LoadUnit.JOBS)
    bucket_h = series.bucket_s / _HOUR_S
    in_use, full, unit = _in_use(series)
    per_bucket = _buckets(series)
    of_a_job = _held_by_a_job(per_bucket["jobs"].to_numpy(), in_use, bucket_h) if unit is not LoadUnit.JOBS else 1.0
    if not np.isfinite(of_a_job):
        unit, of_a_job, in_use, full = LoadUnit.JOBS, 1.0, np.full(len(series), np.nan), None
    per_week = WEEK_HOURS / bucket_h
    sums = per_bucket.group_by("week").agg(
        (pl.col("jobs").is_not_nan().sum() / per_week).clip(0, 1).alias("seen"),
        pl.col(*_KINDS).fill_nan(None).sum(),
        wait_median_s=pl.col("wait_s").fill_nan(None).median(),
        wait_p90_s=pl.col("wait_s").fill_nan(None).quantile(0.9),
    )
    end = series.moment(len(series) - 1) + timedelta(seconds=series.bucket_s)
    weeks = _whole_weeks(series.moment(0), end, series.zone)
    if not weeks:
        return _nothing(unit)
    seen = pl.DataFrame({"week": weeks}, schema={"week": pl.Date}).join(sums, on="week", how="left").sort("week")
    seen = seen.with_columns(pl.col("seen").fill_null(0.0))
    waits = per_bucket["wait_s"].to_numpy()
    known = np.flatnonzero(np.isfinite(waits))
    return LoadRecord(
        unit=unit,
        weeks=_conform(seen.with_columns(load=_scaled(pl.col("jobs") * of_a_job))),
        groups=_groups_of_counts(groups, seen, of_a_job, series.zone),
        grouped_by="" if groups is None or groups.is_empty() else "group",
        hours=bucket_h,
        in_use=in_use,
        full=full,
        waited_in=known,
        waited_s=waits[known],
        waits_are_estimates=True,
    )


def _week_sums(rows: pl.DataFrame) -> pl.DataFrame:
    """What was handed in, by week."""
    return rows.group_by("week").agg(
        pl.len().cast(pl.Float64).alias("jobs"),
        load=pl.col("core_hours").sum(),
        asked=pl.when(pl.col("asked").is_not_null().any()).then(pl.col("asked").sum()),
        wait_median_s=pl.col("wait_s").median(),
        wait_p90_s=pl.col("wait_s").quantile(0.9),
    )


def _weeks_of_jobs(sums: pl.DataFrame, events: Mapping[str, pl.DataFrame], seen: pl.DataFrame) -> pl.DataFrame:
    joined = seen.join(sums.drop_nulls("week"), on="week", how="left")
    for name, counts in events.items():
        counted = counts.group_by("week").agg(pl.col(name).sum())
        joined = joined.join(counted, on="week", how="left").with_columns(pl.col(name).fill_null(0).cast(pl.Float64))
    # A week in which nobody handed in anything is one of which there is no record.
    joined = joined.with_columns(pl.when(pl.col("jobs") > 0).then("seen").otherwise(0.0).alias("seen"))
    return _conform(joined.with_columns(load=_scaled(pl.col("load")), jobs=pl.col("jobs").fill_null(0)).sort("week"))


def _scaled(load: pl.Expr) -> pl.Expr:
    """A load as it would be if the whole week had been seen."""
    return pl.when(pl.col("seen") >= LEAST_SEEN).then(load / pl.col("seen"))


def _scaled_groups(sums: pl.DataFrame, seen: pl.DataFrame) -> pl.DataFrame:
    named = pl.when(pl.col("group") != "").then("group").otherwise(pl.lit(UNKNOWN)).alias("group")
    scaled = sums.join(seen.select("week", "seen"), on="week").with_columns(load=_scaled(pl.col("load"))).drop_nulls("load")
    return scaled.select(named, "week", "load").group_by("group", "week").agg(pl.col("load").sum()).sort("group", "week")


def _groups_of_counts(groups: pl.DataFrame | None, seen: pl.DataFrame, of_a_job: float, zone: str) -> pl.DataFrame:
    if groups is None or groups.is_empty():
        return pl.DataFrame(schema=GROUP_SCHEMA)
    dated = groups.with_columns(week=week_of(pl.col("bucket_start"), zone))
    return _scaled_groups(dated.group_by("group", "week").agg(load=pl.col("count").sum() * of_a_job), seen)


def week_of(moment: pl.Expr, zone: str) -> pl.Expr:
    """The Monday of a time, by the clock on the wall."""
    return moment.dt.convert_time_zone(zone).dt.replace_time_zone(None).dt.truncate("1w").cast(pl.Date)


def _in_use(series: EventSeries) -> tuple[Floats, float | None, LoadUnit]:
    """(buckets,) slots in use, how many there are where that is known, and the unit of both."""
    running = _background(series, ("running",))
    busy = _background(series, _UTILISATION)
    if busy is not None and np.nanmax(busy) > 1.5:
        busy = busy / 100  # in per cent
    if running is not None:
        full = None
        if busy is not None:
            both = (busy > 0.05) & (running > 0)
            full = float(np.median(running[both] / busy[both])) if both.any() else None
        return running, full, LoadUnit.SLOT_HOURS
    if busy is not None:
        return busy, 1.0, LoadUnit.FULL_HOURS
    return np.full(len(series), np.nan), None, LoadUnit.JOBS


def _background(series: EventSeries, names: tuple[str, ...]) -> Floats | None:
    """(buckets,) a background by one of its names; None where there is none."""
    for place, name in enumerate(series.background_names):
        values = series.background[:, place]
        if name.strip().lower() in names and np.isfinite(values).any():
            return np.where(np.isfinite(values) & (values >= 0), values, np.nan)
    return None


def _held_by_a_job(submitted: Floats, in_use: Floats, bucket_h: float) -> float:
    """Slot-hours that one submission came to, over all of the time in which both are known; NaN where there was none."""
    both = np.isfinite(submitted) & np.isfinite(in_use)
    jobs = float(submitted[both].sum())
    return float(in_use[both].sum()) * bucket_h / jobs if jobs > 0 else float("nan")


def _buckets(series: EventSeries) -> pl.DataFrame:
    """One row per bucket: its week, its counts (NaN in a gap), and how long the queue would take at this bucket's pace."""
    counts = series.of_kinds(tuple(_KINDS.values())).counts  # (buckets, 3)
    columns: dict[str, Any] = {name: counts[:, place] for place, name in enumerate(_KINDS)}
    queued = _background(series, ("queued", "idle", "waiting"))
    waits = np.full(len(series), np.nan)
    if queued is not None:
        # Little's law: whoever comes now waits until as many have started as stand before him. A bucket is too short to tell the
        # pace, so a day is taken.
        pace = _of_a_day(columns["started"], series.buckets_per_day)
        waits = np.where(pace > 0, queued / np.where(pace > 0, pace, 1.0) * series.bucket_s, np.nan)
    start = pl.from_epoch(pl.Series(series.start_s), "s").dt.replace_time_zone("UTC")
    frame = pl.DataFrame({"start": start, **columns, "wait_s": waits})
    return frame.with_columns(week=week_of(pl.col("start"), series.zone))


def _of_a_day(values: Floats, buckets: int) -> Floats:
    """(buckets,) the mean over the day around each, of what was seen."""
    window = np.ones(min(buckets, values.size))
    known = np.isfinite(values)
    sums = np.convolve(np.where(known, values, 0.0), window, "same")
    mean: Floats = sums / np.maximum(np.convolve(known, window, "same"), 1)
    return mean


def _whole_weeks(first: datetime, until: datetime, zone: str) -> list[date]:
    """The Mondays of all weeks that are over, from that of the first moment on; the last two years of them."""
    place = ZoneInfo(zone)
    start, end = first.astimezone(place).date(), until.astimezone(place).date()
    last = end - timedelta(days=end.weekday())  # the week that is not over begins here
    monday = max(start - timedelta(days=start.weekday()), last - MOST_WEEKS * WEEK)
    return [monday + number * WEEK for number in range((last - monday).days // 7)]


def _share_seen(week: date, first: datetime, zone: str) -> float:
    """The share of a week that lies after the first moment."""
    return min(1.0, max(0.0, (midnight(week + WEEK, zone) - first) / WEEK))


def midnight(day: date, zone: str) -> datetime:
    """When a day begins by the clock on the wall of a zone."""
    return datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(zone)).astimezone(UTC)


def _conform(frame: pl.DataFrame) -> pl.DataFrame:
    columns = [
        pl.col(name).cast(dtype) if name in frame.columns else pl.lit(None, dtype=dtype).alias(name)
        for name, dtype in WEEK_SCHEMA.items()
    ]
    return frame.select(columns)


def _nothing(unit: LoadUnit) -> LoadRecord:
    return LoadRecord(
        unit, pl.DataFrame(schema=WEEK_SCHEMA), pl.DataFrame(schema=GROUP_SCHEMA), "", 1.0, np.empty(0), None,
        np.empty(0, np.int64), np.empty(0),
    )  # fmt: skip
