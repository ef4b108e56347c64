"""Capacity of a site: load by week, growth, and when the queue will hurt.

LiveSite -> CAPACITY_BOARDS.look -> LoadRecord; + Viewer + cores -> capacity_answer -> CapacityAnswer. The load of all is
everybody's; what groups ask for is for administrators.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

import polars as pl

from stormpetrel.answers.background import Background
from stormpetrel.answers.overview import again
from stormpetrel.answers.viewer import READ
from stormpetrel.events.capacity import GROUP_PLAN_SCHEMA, CapacityPlan, plan_capacity
from stormpetrel.events.capacity_words import headline, reasons
from stormpetrel.events.job_loads import NEEDED
from stormpetrel.events.load_trend import FEWEST_WEEKS
from stormpetrel.events.load_weeks import MOST_WEEKS, WEEK, LoadRecord, load_of_counts, load_of_jobs
from stormpetrel.store.event_series import series_of

if TYPE_CHECKING:
    from stormpetrel.answers.background import Made
    from stormpetrel.answers.live_site import LiveSite
    from stormpetrel.answers.viewer import Viewer
    from stormpetrel.store.site import Site

_REST_S: Final = 300.0  # weeks do not change by the minute
_SPAN: Final = (MOST_WEEKS + 2) * WEEK
_KINDS: Final = ("Submit", "Execute", "JobTerminated")


@dataclass(frozen=True, slots=True, eq=False)
class CapacityBoard:
    """The past of a site as capacity planning sees it, and what it was read from."""

    record: LoadRecord
    tables: tuple[Any, ...]


@dataclass(frozen=True, slots=True, eq=False)
class CapacityAnswer:
    """What a viewer sees of the plan."""

    plan: CapacityPlan
    headline: str
    reasons: tuple[str, ...]  # what the headline rests on, a sentence each
    groups: pl.DataFrame  # GROUP_PLAN_SCHEMA; empty for those who are no administrators
    as_of: datetime
    in_full: bool  # whether groups are told


def make_capacity_board(live: LiveSite, key: str, before: CapacityBoard | None) -> CapacityBoard:
    """The board of a site; the one before where nothing has changed."""
    del key
    if before is not None and before.tables == read_from(live.site):
        return before
    return again(lambda: read_board(live.site))


CAPACITY_BOARDS: Final = Background(make_capacity_board, rest_s=_REST_S, most=1, always=True)


def capacity(live: LiveSite, viewer: Viewer, *, cores: float | None = None) -> CapacityAnswer:
    """The plan as this viewer may see it; waits where it is still being worked out."""
    viewer.require(READ)
    return capacity_answer(live, CAPACITY_BOARDS.wait(live), viewer, cores=cores)


def capacity_answer(live: LiveSite, made: Made[CapacityBoard], viewer: Viewer, *, cores: float | None = None) -> CapacityAnswer:
    """The same out of a board that is there already."""
    viewer.require(READ)
    key = ("capacity", viewer.is_admin, cores)
    return made.answer(key, lambda: answer_of(live.site, made.value.record, cores=cores, in_full=viewer.is_admin, as_of=made.at))


def answer_of(
    site: Site, record: LoadRecord, *, cores: float | None = None, in_full: bool, as_of: datetime | None = None
) -> CapacityAnswer:
    """What there is to say about a record; groups are told `in_full` only."""
    plan = plan_capacity(record, cores=cores)
    moment = as_of or site.now()
    today = moment.astimezone(ZoneInfo(site.settings.site.time_zone)).date()
    groups = plan.groups if in_full else pl.DataFrame(schema=GROUP_PLAN_SCHEMA)
    return CapacityAnswer(plan, headline(plan), tuple(reasons(plan, today=today)), groups, moment, in_full)


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
    rows = site.jobs.read_jobs(since=since, until=now + timedelta(seconds=1)).select(NEEDED).collect()
    return load_of_jobs(rows, now=now, zone=site.settings.site.time_zone)


def _of_counts(site: Site) -> LoadRecord:
    bucket_s = site.settings.events.bucket_minutes * 60
    last = site.event_counts.read(bucket_s=bucket_s).select(pl.col("bucket_start").max()).collect().item()
    since = last - _SPAN if isinstance(last, datetime) else None
    series = series_of(site, since=since, kinds=_KINDS)
    rows = site.event_counts.read(since=since, places=True, bucket_s=bucket_s)
    submitted = rows.filter(pl.col("kind") == _KINDS[0], pl.col("place") == "group")
    groups = submitted.group_by("bucket_start", group=pl.col("value")).agg(pl.col("count").sum()).collect()
    return load_of_counts(series, groups)
