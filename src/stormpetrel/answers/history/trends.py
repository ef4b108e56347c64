"""Trends of a site: how often the jobs of each user, account, application, node, profile or partition fail over time.

LiveSite + Viewer + TrendsQuestion -> trends -> Trends. Users see the trends of their own jobs, administrators those of all.

What is new at a site: applications, users and accounts that came in the last week, and load that grows.

Site + Viewer -> site_changes -> sentences, for administrators: they name people.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

import polars as pl

from stormpetrel.answers.background import scope_of
from stormpetrel.answers.history.day_book import DayBook
from stormpetrel.answers.schemas.history import Mover, TrendPoint, Trends, TrendsQuestion
from stormpetrel.answers.viewer import READ
from stormpetrel.jobs.trends import check_trend, movers, trend_of_counts
from stormpetrel.jobs.waste import UNKNOWN
from stormpetrel.lifecycle.changes import change_texts, changes_at

if TYPE_CHECKING:
    from stormpetrel.answers.background import Snapshot
    from stormpetrel.answers.live_site import LiveSite
    from stormpetrel.answers.viewer import Viewer
    from stormpetrel.store.site import Site

PERIODS: Final = {"1d": "day", "1w": "week", "1mo": "month"}  # those that faces offer; others can be requested
MIN_JOBS: Final = 20  # fewer make no rate
_JOBS: Final = pl.col("judged").sum().cast(pl.Int64).alias("jobs")
_FAILED: Final = pl.col("judged_failed").sum().cast(pl.Int64).alias("failed")


@dataclass(frozen=True, slots=True)
class TrendFrames:
    """Failure rates over time as frames: a page draws and sorts every group, thousands of them; an answer has the top ones.

    `trend` has the groups that are shown, `movers` every group whose rate in the last period is not what it was, with a sentence;
    `groups` has all that have enough jobs, those with the most failures first: group, jobs, failed, rate, and last_jobs,
    last_failed, last_rate of the last period; `overall` is the rate of all jobs, per period.
    """

    question: TrendsQuestion
    trend: pl.DataFrame
    movers: pl.DataFrame
    overall: pl.DataFrame
    groups: pl.DataFrame
    never_started: int  # jobs that were over before they ran in the same span: in no rate
    words: dict[str, str]  # a group's meaning, where its name does not tell it: profiles
    as_of: datetime
    own_only: bool

    @property
    def jobs(self) -> int:
        """How many ended jobs are behind it."""
        return int(self.overall["jobs"].sum())

    @property
    def failed(self) -> int:
        """How many of them failed."""
        return int(self.overall["failed"].sum())


def trends(live: LiveSite, viewer: Viewer, question: TrendsQuestion | None = None) -> Trends:
    """Return the trends of what the viewer may see: the groups with the most failures, or one, and whose rate has changed."""
    viewer.require(READ)
    book, question = live.boards.books.wait(live), question or TrendsQuestion()
    return book.answer(("trends", scope_of(viewer), question), lambda: _answer(trend_frames(book, viewer, question)))


def trend_frames(book: Snapshot[DayBook], viewer: Viewer, question: TrendsQuestion) -> TrendFrames:
    """Return what an answer and a page are made of, out of a book that is there already."""
    viewer.require(READ)
    return book.answer(("trend frames", scope_of(viewer), question), lambda: _frames(book, viewer, question))


def _answer(frames: TrendFrames) -> Trends:
    question = frames.question
    return Trends(
        by=question.by,
        every=question.every,
        group=question.group,
        as_of=frames.as_of,
        own_only=frames.own_only,
        jobs=frames.jobs,
        failed=frames.failed,
        never_started=frames.never_started,
        trend=[TrendPoint(**row) for row in frames.trend.iter_rows(named=True)],
        movers=[Mover(**row) for row in frames.movers.iter_rows(named=True)],
    )


def _frames(latest: Snapshot[DayBook], viewer: Viewer, question: TrendsQuestion) -> TrendFrames:
    by, every, group = question.by, question.every, question.group
    book = latest.value.seen_by(viewer)
    overall = _overall(_periods(book.days, every, question.last, by=()), every)
    counts = _counts(book, by, every, question.last)
    whole = trend_of_counts(counts, by=by, every=every, top=None, min_jobs=MIN_JOBS)
    if group is None:
        shown = trend_of_counts(counts, by=by, every=every, top=question.top, min_jobs=MIN_JOBS)
    else:
        shown = trend_of_counts(counts.filter(pl.col("group") == group), by=by, every=every, top=None, min_jobs=1)
    return TrendFrames(
        question=question,
        trend=shown,
        movers=movers(whole),
        overall=overall,
        groups=_groups(whole),
        never_started=_never_started(book, by, group, overall),
        words=book.profile_descriptions() if by == "profile" else {},
        as_of=latest.at,
        own_only=not viewer.is_admin,
    )


def group_names(book: Snapshot[DayBook], viewer: Viewer, *, by: str, most: int) -> list[str]:
    """Return the groups that the viewer may see, those with the most failures first."""
    viewer.require(READ)
    check_trend(by, "1w")
    return book.answer(("groups", scope_of(viewer), by, most), lambda: _names(book.value.seen_by(viewer), by, most))


def _names(book: DayBook, by: str, most: int) -> list[str]:
    lines = (book.nodes if by == "node" else book.days).filter(pl.col("judged") > 0)
    sums = lines.group_by(pl.col(by).cast(pl.String).alias("group")).agg(pl.col("judged", "judged_failed").sum())
    named = sums.filter((pl.col("group") != "") & (pl.col("group") != UNKNOWN))
    return named.sort("judged_failed", "judged", "group", descending=[True, True, False])["group"].head(most).to_list()


def _counts(book: DayBook, by: str, every: str, last: int | None) -> pl.DataFrame:
    """`jobs` and `failed` per `group` and `period`."""
    lines = _periods(book.nodes if by == "node" else book.days, every, last, by=(by,))
    name = pl.col(by).cast(pl.String)
    summed = lines.group_by(by, "period").agg(_JOBS, _FAILED)
    return summed.select(pl.when(name != "").then(name).otherwise(pl.lit(UNKNOWN)).alias("group"), "period", "jobs", "failed")


def _never_started(book: DayBook, by: str, group: str | None, overall: pl.DataFrame) -> int:
    """How many jobs (of one group) were over before they ran, since the first period that is shown."""
    if by == "node":  # they had none
        return 0
    lines = book.days if group is None else book.days.filter(pl.col(by).cast(pl.String) == group)
    since = overall["period"].min()
    recent = lines if since is None else lines.filter(pl.col("day") >= since)
    return int(recent["never_started"].sum())


def _periods(lines: pl.DataFrame, every: str, last: int | None, *, by: tuple[str, ...]) -> pl.DataFrame:
    """The lines that a trend counts, each with its period, of the last so many periods; of a large site they are millions."""
    counted = lines.select(*by, "day", "judged", "judged_failed").filter(pl.col("judged") > 0)
    dated = counted.with_columns(period=pl.col("day").dt.truncate(every)).drop("day")
    if last is None or dated.is_empty():
        return dated
    return dated.filter(pl.col("period") > pl.col("period").max().dt.offset_by(_times(every, -last)))


def _times(every: str, number: int) -> str:
    """A period so many times: ("1w", -26) -> "-26w"."""
    count = int("".join(letter for letter in every if letter.isdigit()))
    return f"{number * count}{every.lstrip('0123456789')}"


def _overall(lines: pl.DataFrame, every: str) -> pl.DataFrame:
    sums = lines.group_by("period").agg(_JOBS, _FAILED)
    named = sums.with_columns(group=pl.lit("all jobs"))
    return trend_of_counts(named, by="all", every=every, top=None, min_jobs=1)


def _groups(trend: pl.DataFrame) -> pl.DataFrame:
    last = pl.col("period") == pl.col("period").max()
    latest = trend.filter(last).select("group", last_jobs="jobs", last_failed="failed", last_rate="rate")
    sums = trend.group_by("group").agg(pl.col("jobs", "failed").sum()).with_columns(rate=pl.col("failed") / pl.col("jobs"))
    return sums.join(latest, on="group", how="left").sort("failed", "jobs", "group", descending=[True, True, False])


def site_changes(site: Site, viewer: Viewer) -> list[str]:
    """Return what has changed by now, a sentence each; nothing to who is no administrator."""
    viewer.require(READ)
    return change_texts(changes_at(site, site.now())) if viewer.is_admin else []
