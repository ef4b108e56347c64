"""Waste of a site: what failed jobs held, by whom and by what, and what cancelling early would have saved.

LiveSite + Viewer -> waste -> WasteAnswer (it adds up); -> cancel_policy -> PolicyAnswer, from what was said two minutes in.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from stormpetrel.answers.background import scope_of
from stormpetrel.answers.day_book import BOOKS, SUMS, DayBook
from stormpetrel.answers.settled import SETTLED, Settled
from stormpetrel.answers.viewer import READ
from stormpetrel.errors import UsageError
from stormpetrel.jobs.cancel_policy import MOST_POINTS, CancelCurve, CancelPoint, cancel_curve, policy_at
from stormpetrel.jobs.waste import UNKNOWN, Reconciliation, Totals, check_ledger, ledger_of_sums

if TYPE_CHECKING:
    from stormpetrel.answers.background import Made
    from stormpetrel.answers.live_site import LiveSite
    from stormpetrel.answers.viewer import Viewer

WASTE_GROUPS: Final = ("user", "account", "application", "partition", "profile", "outcome", "week")
HOUR_S: Final = 3600


@dataclass(frozen=True, slots=True)
class WasteAnswer:
    """The ledger by one breakdown, the weeks by outcome, and the totals of the job table that it was checked against."""

    by: str
    groups: pl.DataFrame
    weeks: pl.DataFrame
    reconciled: Reconciliation
    first: date | None
    last: date | None
    words: dict[str, str]  # a group's meaning, where its name does not tell it: profiles
    as_of: datetime
    own_only: bool

    @property
    def total(self) -> Totals:
        """What all counted jobs sum up to, straight from the job table."""
        return self.reconciled.total

    def as_json(self) -> dict[str, Any]:
        """For other programs."""
        return {
            "by": self.by,
            "as_of": self.as_of.isoformat(),
            "own_only": self.own_only,
            "first": None if self.first is None else self.first.isoformat(),
            "last": None if self.last is None else self.last.isoformat(),
            "groups": self.groups.to_dicts(),
            "total": asdict(self.total),
            "uncounted": dict(self.reconciled.uncounted),
        }


@dataclass(frozen=True, slots=True)
class PolicyAnswer:
    """Cancelling two minutes in, replayed on what was forecast then; `curve` has every threshold."""

    curve: CancelCurve
    first: datetime | None
    last: datetime | None
    as_of: datetime
    own_only: bool

    def at(self, tau: float) -> CancelPoint:
        """What one threshold would have done, exactly."""
        return policy_at(self.curve, tau)

    def drawn(self) -> CancelCurve:
        """The curve with as many points as a figure can show."""
        step = max(1, -(-self.curve.points.height // MOST_POINTS))
        ends = pl.concat([self.curve.points.gather_every(step), self.curve.points.tail(1)])
        return replace(self.curve, points=ends.unique("tau", maintain_order=True))

    def as_json(self) -> dict[str, Any]:
        """For other programs: the drawn points and the best of all."""
        return {
            "as_of": self.as_of.isoformat(),
            "own_only": self.own_only,
            "jobs": self.curve.jobs,
            "failed_jobs": self.curve.failed_jobs,
            "ended_before": self.curve.ended_before,
            "best": asdict(self.curve.best),
            "points": self.drawn().points.to_dicts(),
        }


def waste(live: LiveSite, viewer: Viewer, *, by: str = "user", weeks: int | None = None) -> WasteAnswer:
    """The ledger of what the viewer may see, of jobs that ended in the last so many weeks or ever."""
    viewer.require(READ)
    return waste_answer(BOOKS.wait(live), viewer, by=by, weeks=weeks)


def waste_answer(made: Made[DayBook], viewer: Viewer, *, by: str = "user", weeks: int | None = None) -> WasteAnswer:
    """The same out of a book that is there already."""
    viewer.require(READ)
    if by not in WASTE_GROUPS:
        raise UsageError(f"Unknown breakdown '{by}'.", hint=f"Known: {', '.join(WASTE_GROUPS)}.")
    if weeks is not None and not 1 <= weeks <= 5200:
        raise UsageError(f"Waste over {weeks} weeks cannot be told.", hint="Give 1 or more, or leave it out for all.")
    return made.answer(("waste", scope_of(viewer), by, weeks), lambda: _answer(made, viewer, by, weeks))


def _answer(made: Made[DayBook], viewer: Viewer, by: str, weeks: int | None) -> WasteAnswer:
    book = _since(made.value.seen_by(viewer), weeks)
    lines = book.days.with_columns(week=pl.col("day").dt.strftime("%G-W%V"))
    groups = _ledger(lines, [by])
    reconciled = _reconciled(book, by, groups)
    check_ledger(reconciled)
    days = book.days["day"].drop_nulls()
    first, last = (days.min(), days.max()) if len(days) else (None, None)
    return WasteAnswer(
        by=by,
        groups=groups,
        weeks=_ledger(lines, ["week", "outcome"]),
        reconciled=reconciled,
        first=first if isinstance(first, date) else None,
        last=last if isinstance(last, date) else None,
        words=book.profile_words() if by == "profile" else {},
        as_of=made.at,
        own_only=not viewer.is_admin,
    )


def cancel_policy(live: LiveSite, viewer: Viewer, *, wrong_kill_price: float = 1.0) -> PolicyAnswer:
    """What each threshold would have done to the ended jobs of the viewer that had a forecast two minutes in."""
    viewer.require(READ)
    return policy_answer(SETTLED.wait(live), viewer, wrong_kill_price=wrong_kill_price)


def policy_answer(made: Made[Settled], viewer: Viewer, *, wrong_kill_price: float = 1.0) -> PolicyAnswer:
    """The same out of settled predictions that are there already."""
    viewer.require(READ)
    price = wrong_kill_price
    return made.answer(("policy", scope_of(viewer), price), lambda: _policy(made, viewer, price))


def _policy(made: Made[Settled], viewer: Viewer, price: float) -> PolicyAnswer:
    rows = made.value.frame.filter((pl.col("moment") == "2min") & viewer.sees())
    times = rows["moment_time"]
    first, last = times.min(), times.max()
    return PolicyAnswer(
        curve=cancel_curve(rows, wrong_kill_price=price, most_points=None),
        first=first if isinstance(first, datetime) else None,
        last=last if isinstance(last, datetime) else None,
        as_of=made.at,
        own_only=not viewer.is_admin,
    )


def policy_words(point: CancelPoint, tau: float) -> str:
    """One threshold in a sentence: what it stops, what it saves, and whom it hurts."""
    if point.cancelled == 0:
        return f"At {100 * tau:.0f} %: no job would have been cancelled."
    saved, lost = point.saved_core_seconds / HOUR_S, (point.wrong_core_seconds + point.redo_core_seconds) / HOUR_S
    stopped = f"{point.cancelled:,} {'job' if point.cancelled == 1 else 'jobs'} cancelled"
    saving = f"{saved:,.0f} core hours saved"
    if point.wrong_kills == 0:
        return f"At {100 * tau:.0f} %: {stopped}, {saving}, none of them would have completed."
    return f"At {100 * tau:.0f} %: {stopped}, {saving}, {point.wrong_kills:,} would have completed ({lost:,.0f} core hours lost)."


def _since(book: DayBook, weeks: int | None) -> DayBook:
    """The part of the book that ended in the last so many weeks, counted back from the Monday of the last one."""
    last = book.days["day"].max()
    if weeks is None or not isinstance(last, date):
        return book
    first = last - timedelta(days=last.weekday()) - timedelta(weeks=weeks - 1)
    recent = pl.col("day") >= first
    return replace(
        book,
        days=book.days.filter(recent),
        nodes=book.nodes.filter(recent),
        totals=book.totals.filter(recent),
        uncounted=book.uncounted.filter(recent),
    )


def _ledger(lines: pl.DataFrame, by: list[str]) -> pl.DataFrame:
    """`jobs.waste.ledger` out of sums."""
    names = [_named(name) for name in by]
    return ledger_of_sums(lines.filter(pl.col("jobs") > 0).group_by(names).agg(pl.col(SUMS).sum()), by)


def _named(name: str) -> pl.Expr:
    text = pl.col(name).cast(pl.String)
    return pl.when(text != "").then(text).otherwise(pl.lit(UNKNOWN)).alias(name)


def _reconciled(book: DayBook, by: str, groups: pl.DataFrame) -> Reconciliation:
    reasons = book.uncounted.group_by("reason").agg(pl.col("jobs").sum()).sort("jobs", "reason", descending=[True, False])
    return Reconciliation(
        rows=int(book.totals["rows"].sum()),
        total=Totals(*book.totals.select(pl.col(SUMS).sum()).row(0)),
        uncounted=dict(reasons.iter_rows()),
        breakdowns={by: Totals(*groups.select(pl.col(SUMS).sum()).row(0))},
    )
