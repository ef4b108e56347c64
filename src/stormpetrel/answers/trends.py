"""Trends of a site: how often the jobs of each user, account, application, node, profile or partition fail over time.

LiveSite + Viewer -> trends -> TrendAnswer. Users see the trends of their own jobs, administrators those of all.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from stormpetrel.answers.background import scope_of
from stormpetrel.answers.day_book import BOOKS, DayBook
from stormpetrel.answers.viewer import READ
from stormpetrel.errors import UsageError
from stormpetrel.jobs.trends import check_trend, movers, trend_of_counts
from stormpetrel.jobs.waste import UNKNOWN

if TYPE_CHECKING:
    from stormpetrel.answers.background import Made
    from stormpetrel.answers.live_site import LiveSite
    from stormpetrel.answers.viewer import Viewer

PERIODS: Final = {"1d": "day", "1w": "week", "1mo": "month"}  # those that faces offer; others can be asked for
MIN_JOBS: Final = 20  # fewer make no rate


@dataclass(frozen=True, slots=True)
class _Asked:
    by: str
    every: str
    group: str | None
    top: int | None
    last: int | None


@dataclass(frozen=True, slots=True)
class TrendAnswer:
    """Failure rates over time.

    `trend` has the groups that are shown, `movers` every group whose rate in the last period is not what it was, with a sentence;
    `groups` has all that have enough jobs, those with the most failures first: group, jobs, failed, rate, and last_jobs,
    last_failed, last_rate of the last period; `overall` is the rate of all jobs, per period.
    """

    by: str
    every: str
    group: str | None
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

    @property
    def span(self) -> tuple[date, date] | None:
        """First day of the first and of the last period."""
        return None if self.overall.is_empty() else (self.overall["period"].item(0), self.overall["period"].item(-1))

    def as_json(self) -> dict[str, Any]:
        """For other programs."""
        return {
            "by": self.by,
            "every": self.every,
            "group": self.group,
            "as_of": self.as_of.isoformat(),
            "own_only": self.own_only,
            "jobs": self.jobs,
            "failed": self.failed,
            "never_started": self.never_started,
            "trend": _dicts(self.trend),
            "movers": _dicts(self.movers),
        }


def trends(
    live: LiveSite,
    viewer: Viewer,
    *,
    by: str = "user",
    every: str = "1w",
    group: str | None = None,
    top: int | None = 10,
    last: int | None = None,
) -> TrendAnswer:
    """The trends of what the viewer may see: the `top` groups with the most failures, or one, over the `last` periods or all."""
    viewer.require(READ)
    return trend_answer(BOOKS.wait(live), viewer, by=by, every=every, group=group, top=top, last=last)


def trend_answer(
    made: Made[DayBook],
    viewer: Viewer,
    *,
    by: str = "user",
    every: str = "1w",
    group: str | None = None,
    top: int | None = 10,
    last: int | None = None,
) -> TrendAnswer:
    """The same out of a book that is there already."""
    viewer.require(READ)
    check_trend(by, every)
    if last is not None and last < 1:
        raise UsageError(f"A trend over {last} periods is none.", hint="Give 1 or more.")
    asked = _Asked(by, every, group, top, last)
    return made.answer(("trends", scope_of(viewer), asked), lambda: _answer(made, viewer, asked))


def _answer(made: Made[DayBook], viewer: Viewer, asked: _Asked) -> TrendAnswer:
    by, every, group = asked.by, asked.every, asked.group
    book = made.value.seen_by(viewer)
    overall = _overall(_periods(book.days, every, asked.last), every)
    counts = _counts(book, by, every, asked.last)
    whole = trend_of_counts(counts, by=by, every=every, top=None, min_jobs=MIN_JOBS)
    if group is None:
        shown = trend_of_counts(counts, by=by, every=every, top=asked.top, min_jobs=MIN_JOBS)
    else:
        shown = trend_of_counts(counts.filter(pl.col("group") == group), by=by, every=every, top=None, min_jobs=1)
    return TrendAnswer(
        by=by,
        every=every,
        group=group,
        trend=shown,
        movers=movers(whole),
        overall=overall,
        groups=_groups(whole),
        never_started=_never_started(book, by, group, overall),
        words=book.profile_words() if by == "profile" else {},
        as_of=made.at,
        own_only=not viewer.is_admin,
    )


def group_names(made: Made[DayBook], viewer: Viewer, *, by: str, most: int) -> list[str]:
    """The groups that the viewer may see, those with the most failures first."""
    viewer.require(READ)
    check_trend(by, "1w")
    return made.answer(("groups", scope_of(viewer), by, most), lambda: _names(made.value.seen_by(viewer), by, most))


def _names(book: DayBook, by: str, most: int) -> list[str]:
    lines = (book.nodes if by == "node" else book.days).filter(pl.col("judged") > 0)
    sums = lines.group_by(pl.col(by).cast(pl.String).alias("group")).agg(pl.col("judged", "judged_failed").sum())
    named = sums.filter((pl.col("group") != "") & (pl.col("group") != UNKNOWN))
    return named.sort("judged_failed", "judged", "group", descending=[True, True, False])["group"].head(most).to_list()


def _counts(book: DayBook, by: str, every: str, last: int | None) -> pl.DataFrame:
    """`jobs` and `failed` per `group` and `period`."""
    lines = _periods(book.nodes if by == "node" else book.days, every, last)
    name = pl.col(by).cast(pl.String)
    summed = lines.group_by(by, "period").agg(jobs=pl.col("judged").sum(), failed=pl.col("judged_failed").sum())
    return summed.select(pl.when(name != "").then(name).otherwise(pl.lit(UNKNOWN)).alias("group"), "period", "jobs", "failed")


def _never_started(book: DayBook, by: str, group: str | None, overall: pl.DataFrame) -> int:
    """How many jobs (of one group) were over before they ran, since the first period that is shown."""
    if by == "node":  # they had none
        return 0
    lines = book.days if group is None else book.days.filter(pl.col(by).cast(pl.String) == group)
    since = overall["period"].min()
    recent = lines if since is None else lines.filter(pl.col("day") >= since)
    return int(recent["never_started"].sum())


def _periods(lines: pl.DataFrame, every: str, last: int | None) -> pl.DataFrame:
    """The lines that a trend counts, each with its period, of the last so many periods."""
    dated = lines.filter(pl.col("judged") > 0).with_columns(period=pl.col("day").dt.truncate(every))
    if last is None or dated.is_empty():
        return dated
    return dated.filter(pl.col("period") > pl.col("period").max().dt.offset_by(_times(every, -last)))


def _times(every: str, number: int) -> str:
    """A period so many times: ("1w", -26) -> "-26w"."""
    count = int("".join(letter for letter in every if letter.isdigit()))
    return f"{number * count}{every.lstrip('0123456789')}"


def _overall(lines: pl.DataFrame, every: str) -> pl.DataFrame:
    sums = lines.group_by("period").agg(jobs=pl.col("judged").sum(), failed=pl.col("judged_failed").sum())
    named = sums.with_columns(group=pl.lit("all jobs"))
    return trend_of_counts(named, by="all", every=every, top=None, min_jobs=1)


def _groups(trend: pl.DataFrame) -> pl.DataFrame:
    last = pl.col("period") == pl.col("period").max()
    latest = trend.filter(last).select("group", last_jobs="jobs", last_failed="failed", last_rate="rate")
    sums = trend.group_by("group").agg(pl.col("jobs", "failed").sum()).with_columns(rate=pl.col("failed") / pl.col("jobs"))
    return sums.join(latest, on="group", how="left").sort("failed", "jobs", "group", descending=[True, True, False])


def _dicts(frame: pl.DataFrame) -> list[dict[str, Any]]:
    return frame.with_columns(pl.col("period").cast(pl.String)).to_dicts()
