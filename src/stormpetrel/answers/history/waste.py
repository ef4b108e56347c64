"""Waste of a site: what failed jobs held, by whom and by what, and what cancelling early would have saved.

LiveSite + Viewer + WasteQuestion -> waste -> Waste (it adds up); + PolicyQuestion -> cancel_policy -> CancelPolicy, from what was
said two minutes in.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from datetime import date, timedelta
from typing import TYPE_CHECKING, Final

import polars as pl

from stormpetrel.answers.background import scope_of
from stormpetrel.answers.history.day_book import DayBook, held_sums
from stormpetrel.answers.history.energy import basis_of, energy_of
from stormpetrel.answers.history.settled import Settled
from stormpetrel.answers.schemas.history import (
    CancelPolicy,
    PolicyPoint,
    PolicyQuestion,
    Waste,
    WasteGroup,
    WasteQuestion,
    WasteTotal,
)
from stormpetrel.answers.viewer import READ
from stormpetrel.jobs.cancel_policy import MOST_POINTS, CancelCurve, cancel_curve, policy_at
from stormpetrel.jobs.waste import SUMS, UNKNOWN, Reconciliation, Totals, check_ledger, ledger_of_sums

if TYPE_CHECKING:
    from stormpetrel.answers.background import Snapshot
    from stormpetrel.answers.live_site import LiveSite
    from stormpetrel.answers.viewer import Viewer

HOUR_S: Final = 3600


def waste(live: LiveSite, viewer: Viewer, question: WasteQuestion | None = None) -> Waste:
    """Return the ledger of what the viewer may see, the largest loss first; waits where it is still being worked out."""
    viewer.require(READ)
    return waste_answer(live.boards.books.wait(live), viewer, question or WasteQuestion())


def waste_answer(book: Snapshot[DayBook], viewer: Viewer, question: WasteQuestion) -> Waste:
    """Return the same out of a book that is there already."""
    viewer.require(READ)
    return book.answer(("waste", scope_of(viewer), question), lambda: _waste(book, viewer, question))


def _waste(latest: Snapshot[DayBook], viewer: Viewer, question: WasteQuestion) -> Waste:
    by, book = question.by, _since(latest.value.seen_by(viewer), question.weeks)
    groups = _ledger(book, [by])
    reconciled = _reconciled(book, by, groups)
    check_ledger(reconciled)
    days = book.days["day"].drop_nulls()
    first, last = (days.min(), days.max()) if len(days) else (None, None)
    energy, total = latest.value.energy, asdict(reconciled.total)
    return Waste(
        by=by,
        as_of=latest.at,
        own_only=not viewer.is_admin,
        first=first if isinstance(first, date) else None,
        last=last if isinstance(last, date) else None,
        groups=[WasteGroup(**row, **energy_of(row, energy)) for row in groups.rename({by: "group"}).iter_rows(named=True)],
        total=WasteTotal(**total, **energy_of(total, energy)),
        uncounted=reconciled.uncounted,
        words=book.profile_descriptions() if by == "profile" else {},
        energy=basis_of(total, energy),
    )


def waste_weeks(book: Snapshot[DayBook], viewer: Viewer, question: WasteQuestion) -> pl.DataFrame:
    """Return the ledger by week and outcome, the largest loss first: a frame, for it is only drawn, and years are long."""
    viewer.require(READ)
    key = ("waste by week", scope_of(viewer), question.weeks)
    return book.answer(key, lambda: _ledger(_since(book.value.seen_by(viewer), question.weeks), ["week", "outcome"]))


def cancel_policy(live: LiveSite, viewer: Viewer, question: PolicyQuestion | None = None) -> CancelPolicy:
    """Return what each threshold would have done to the ended jobs of the viewer that had a forecast two minutes in."""
    viewer.require(READ)
    return policy_answer(live.boards.settled.wait(live), viewer, question or PolicyQuestion())


def policy_answer(settled: Snapshot[Settled], viewer: Viewer, question: PolicyQuestion) -> CancelPolicy:
    """Return the same out of settled predictions that are there already."""
    viewer.require(READ)
    key = ("policy", scope_of(viewer), question.price)
    policy = settled.answer(key, lambda: _policy(_curve(settled, viewer, question.price), settled, viewer))
    if question.threshold is None:
        return policy
    return policy.model_copy(update={"at": policy_point(settled, viewer, question.threshold, price=question.price)})


def policy_point(settled: Snapshot[Settled], viewer: Viewer, threshold: float, *, price: float = 1.0) -> PolicyPoint:
    """Return what one threshold would have done, exactly: a figure's points are only some of those there are."""
    viewer.require(READ)
    return PolicyPoint(**asdict(policy_at(_curve(settled, viewer, price), threshold)))


def _curve(settled: Snapshot[Settled], viewer: Viewer, price: float) -> CancelCurve:
    """Every threshold of the forecasts two minutes in that the viewer may see, worked out once."""

    def replay() -> CancelCurve:
        rows = settled.value.frame.filter((pl.col("moment") == "2min") & viewer.sees())
        return cancel_curve(rows, wrong_kill_price=price, most_points=None)

    return settled.answer(("cancel curve", scope_of(viewer), price), replay)


def _policy(curve: CancelCurve, settled: Snapshot[Settled], viewer: Viewer) -> CancelPolicy:
    """The curve with as many points as a figure can show, both ends among them."""
    step = max(1, -(-curve.points.height // MOST_POINTS))
    points = pl.concat([curve.points.gather_every(step), curve.points.tail(1)]).unique("tau", maintain_order=True)
    return CancelPolicy(
        as_of=settled.at,
        own_only=not viewer.is_admin,
        jobs=curve.jobs,
        failed_jobs=curve.failed_jobs,
        ended_before=curve.ended_before,
        best=PolicyPoint(**asdict(curve.best)),
        at=None,
        points=[PolicyPoint(**row) for row in points.iter_rows(named=True)],
        wrong_kill_price=curve.wrong_kill_price,
        cancel_at_s=curve.cancel_at_s,
    )


def policy_text(point: PolicyPoint, tau: float) -> str:
    """Return what one threshold does in a sentence: what it stops, what it saves, and whom it hurts."""
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


def _ledger(book: DayBook, by: list[str]) -> pl.DataFrame:
    """`jobs.waste.ledger` out of sums."""
    lines, names = book.days.with_columns(week=pl.col("day").dt.strftime("%G-W%V")), [_named(name) for name in by]
    return ledger_of_sums(
        lines.filter(pl.col("jobs") > 0).group_by(names).agg(column.cast(pl.Int64) for column in held_sums()), by
    )


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
