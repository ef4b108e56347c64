"""Capacity of a site: load by week, growth, and when the queue will hurt.

LiveSite + Viewer + CapacityQuestion -> capacity -> Capacity; a process that answers once asks site_capacity with a Site. The load
of all is everybody's; what groups ask for is for administrators.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl

from stormpetrel.answers.background import Background
from stormpetrel.answers.overview.overview import again
from stormpetrel.answers.schemas.cluster import (
    Capacity,
    CapacityForecast,
    CapacityGroup,
    CapacityQuestion,
    CapacityWait,
    CapacityWeek,
)
from stormpetrel.answers.viewer import READ
from stormpetrel.events.capacity.capacity import CapacityPlan, plan_capacity
from stormpetrel.events.capacity.text import headline, reasons
from stormpetrel.events.capacity.trend import FEWEST_WEEKS
from stormpetrel.events.capacity.weeks import (
    MOST_WEEKS,
    NEEDED,
    WEEK,
    LoadRecord,
    load_of_counts,
    load_of_pieces,
    midnight,
    week_of,
)
from stormpetrel.store.events.series import series_of

if TYPE_CHECKING:
    from stormpetrel.answers.background import Snapshot
    from stormpetrel.answers.live_site import LiveSite
    from stormpetrel.answers.viewer import Viewer
    from stormpetrel.store.site import Site

_REST_S: Final = 300.0  # weeks do not change by the minute
_SPAN: Final = (MOST_WEEKS + 2) * WEEK
_PIECE_JOBS: Final = 100_000  # that are read at a time, a kilobyte each
_KINDS: Final = ("Submit", "Execute", "JobTerminated")


@dataclass(frozen=True, slots=True, eq=False)
class CapacityBoard:
    """The past of a site as capacity planning sees it, and the versions of the tables that it was read from."""

    record: LoadRecord
    tables: tuple[Any, ...]


def capacity(live: LiveSite, viewer: Viewer, question: CapacityQuestion | None = None) -> Capacity:
    """The plan as this viewer may see it; waits where it is still being worked out."""
    viewer.require(READ)
    return capacity_answer(live, live.boards.capacity.wait(live), viewer, question or CapacityQuestion())


def capacity_answer(live: LiveSite, board: Snapshot[CapacityBoard], viewer: Viewer, question: CapacityQuestion) -> Capacity:
    """The same out of a board that is there already."""
    viewer.require(READ)
    in_full, zone = viewer.is_admin, live.settings.site.time_zone
    return board.answer(
        ("capacity", in_full, question),
        lambda: capacity_of(board.value.record, question, in_full=in_full, as_of=board.at, zone=zone),
    )


def site_capacity(site: Site, viewer: Viewer, question: CapacityQuestion | None = None) -> Capacity:
    """The same read from the tables now, for a process that asks once."""
    viewer.require(READ)
    record, zone = read_board(site).record, site.settings.site.time_zone
    return capacity_of(record, question or CapacityQuestion(), in_full=viewer.is_admin, as_of=site.now(), zone=zone)


def capacity_of(record: LoadRecord, question: CapacityQuestion, *, in_full: bool, as_of: datetime, zone: str) -> Capacity:
    """The plan out of a record as of a moment of a time zone; groups are named `in_full` only."""
    plan = plan_capacity(record, cores=question.cores)
    hurts_from, earliest, latest = plan.hurts_from
    low, high = (None, None) if plan.trend is None else plan.trend.growth_range
    return Capacity(
        as_of=as_of,
        headline=headline(plan),
        reasons=reasons(plan, today=as_of.astimezone(ZoneInfo(zone)).date()),
        outlook=plan.outlook.value,
        unit=record.unit,
        capacity=plan.capacity,
        capacity_source=plan.capacity_source,
        utilisation=plan.utilisation,
        growth=None if plan.trend is None else plan.trend.growth,
        growth_low=low,
        growth_high=high,
        hurts_from=hurts_from,
        hurts_earliest=earliest,
        hurts_latest=latest,
        reached_share=None if plan.reach is None else plan.reach.share,
        knee=plan.knee.utilisation,
        knee_learnt=plan.knee.learnt,
        weeks=_weeks(plan),
        forecast=_forecast(plan),
        waits=_waits(plan),
        waits_are_estimates=record.waits_are_estimates,
        groups=[CapacityGroup(**row) for row in plan.groups.iter_rows(named=True)] if in_full else [],
        grouped_by=record.grouped_by,
        in_full=in_full,
    )


def capacity_background() -> Background[CapacityBoard]:
    """The work on the load of one site."""
    return Background(make_capacity_board, rest_s=_REST_S, most=1, always=True)


def make_capacity_board(live: LiveSite, key: str, before: CapacityBoard | None) -> CapacityBoard:
    """The board of a site; the one before where nothing has changed."""
    del key
    if before is not None and before.tables == read_from(live.site):
        return before
    return again(lambda: read_board(live.site))


def read_from(site: Site) -> tuple[Any, ...]:
    """What a board of now would be read from; a new day may have ended a week."""
    tables = (site.jobs.table, site.event_counts.table, site.event_background.table)
    return (*(table.version() for table in tables), site.now().date())


def read_board(site: Site) -> CapacityBoard:
    """The record of jobs where it is long enough for a trend, else that of jobs or event counts, whichever is longer."""
    tables = read_from(site)
    record = _of_jobs(site)
    if record.known_weeks < FEWEST_WEEKS:
        counted = _of_counts(site)
        record = counted if counted.known_weeks > record.known_weeks else record
    return CapacityBoard(record, tables)


def _of_jobs(site: Site) -> LoadRecord:
    now = site.now()
    latest = site.jobs.read_jobs(until=now).select(pl.col("submit_time").max()).collect().item()
    since = latest - _SPAN if isinstance(latest, datetime) else None
    zone, until = site.settings.site.time_zone, now + timedelta(seconds=1)
    spans = _spans_of_weeks(site, since, until, zone)
    return load_of_pieces(
        lambda: (site.jobs.read_jobs(since=begin, until=end).select(NEEDED).collect() for begin, end in spans), now=now, zone=zone
    )


def _spans_of_weeks(site: Site, since: datetime | None, until: datetime, zone: str) -> list[tuple[datetime | None, datetime]]:
    """Spans of submission of whole weeks with about as many jobs each: all of a large site would not fit in memory."""
    weeks = site.jobs.read_jobs(since=since, until=until).group_by(week=week_of(pl.col("submit_time"), zone)).len()
    begins: list[datetime | None] = []
    jobs = 0
    for week, count in weeks.sort("week").collect().iter_rows():
        if begins and jobs + count > _PIECE_JOBS:
            begins.append(midnight(week, zone))
            jobs = 0
        begins = begins or [since]
        jobs += count
    ends = [begin for begin in begins[1:] if begin is not None]
    return list(zip(begins, [*ends, until], strict=True)) if begins else []


def _of_counts(site: Site) -> LoadRecord:
    bucket_s = site.settings.events.bucket_minutes * 60
    last = site.event_counts.read(bucket_s=bucket_s).select(pl.col("bucket_start").max()).collect().item()
    since = last - _SPAN if isinstance(last, datetime) else None
    series = series_of(site, since=since, kinds=_KINDS)
    rows = site.event_counts.read(since=since, places=True, bucket_s=bucket_s)
    submitted = rows.filter(pl.col("kind") == _KINDS[0], pl.col("place") == "group")
    groups = submitted.group_by("bucket_start", group=pl.col("value")).agg(pl.col("count").sum()).collect()
    return load_of_counts(series, groups)


def _weeks(plan: CapacityPlan) -> list[CapacityWeek]:
    """The weeks that are over, oldest first, each with the trend from its first week on."""
    weeks, trend = plan.record.weeks, plan.trend
    line: list[float | None] = [None] * weeks.height
    if trend is not None:
        line[trend.first - 1 :] = trend.at(np.arange(trend.first, 1, dtype=np.float64)).tolist()
    return [CapacityWeek(**row, trend=height) for row, height in zip(weeks.iter_rows(named=True), line, strict=True)]


def _forecast(plan: CapacityPlan) -> list[CapacityForecast]:
    """The weeks to come, the next one first."""
    forecast, end = plan.forecast, plan.record.end
    if forecast is None or end is None:
        return []
    columns = zip(forecast.expected.tolist(), forecast.low.tolist(), forecast.high.tolist(), strict=True)
    return [
        CapacityForecast(week=end + number * WEEK, expected=expected, low=low, high=high)
        for number, (expected, low, high) in enumerate(columns)
    ]


def _waits(plan: CapacityPlan) -> list[CapacityWait]:
    """Waits by utilisation, the lowest first."""
    waits = plan.waits
    low, high = waits.low.round(4).tolist(), (waits.low + waits.width).round(4).tolist()
    columns = (low, high, waits.hours.tolist(), waits.median_s.tolist(), waits.p90_s.tolist())
    return [
        CapacityWait(from_utilisation=first, to_utilisation=last, hours=hours, median_s=median_s, p90_s=p90_s)
        for first, last, hours, median_s, p90_s in zip(*columns, strict=True)
    ]
