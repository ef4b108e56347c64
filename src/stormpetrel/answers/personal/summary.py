"""One person's own page: how often the jobs failed beside people alike, their cost, what to change, the incidents.

LiveSite + Viewer + PersonalQuestion -> personal_summary -> PersonalSummary; Site + user -> summary_of_site, for a mail.
An administrator's own page has the own jobs only, as everybody's has.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

import polars as pl

from stormpetrel.answers.alarms.incidents import list_incidents
from stormpetrel.answers.history.day_book import DayBook, book_of_site, held_sums
from stormpetrel.answers.history.energy import basis_of, energy_of
from stormpetrel.answers.jobs.causes import cause_of
from stormpetrel.answers.jobs.judging import user_for
from stormpetrel.answers.jobs.one_job import advice_answer, advice_for, fitting_advice, script_line, useful_advice
from stormpetrel.answers.mail.job_mail import efficiency, says_something
from stormpetrel.answers.personal.choice import digest_choice
from stormpetrel.answers.personal.peers import FEWEST, PeerRate, compare
from stormpetrel.answers.schemas.alarms import IncidentQuestion
from stormpetrel.answers.schemas.personal import (
    PeerComparison,
    PersonalApplication,
    PersonalChange,
    PersonalQuestion,
    PersonalSummary,
    UsedShares,
)
from stormpetrel.answers.viewer import READ, Viewer
from stormpetrel.errors import UsageError
from stormpetrel.jobs.advice.kinds import find_kind
from stormpetrel.jobs.causes.cause import ended_near
from stormpetrel.jobs.history.keys import family
from stormpetrel.jobs.outcomes import failed
from stormpetrel.jobs.waste import UNKNOWN
from stormpetrel.records.jobs import JobRef

if TYPE_CHECKING:
    from stormpetrel.answers.live_site import LiveSite
    from stormpetrel.config import EnergySection
    from stormpetrel.store.site import Site

_HOUR_S: Final = 3600
_MOST_APPLICATIONS: Final = 8
_MOST_CHANGES: Final = 3
_MOST_INCIDENTS: Final = 20


def personal_summary(live: LiveSite, viewer: Viewer, question: PersonalQuestion | None = None) -> PersonalSummary:
    """Return a person's own page; AccessError where it is somebody else's, UsageError where nobody is logged in."""
    viewer.require(READ)
    wanted = question or PersonalQuestion()
    user, weeks = _user(live.site, viewer, wanted.user), int(wanted.weeks)
    book = live.boards.books.wait(live)
    kept = book.answer(("personal", user, weeks), lambda: _summary(live.site, book.value, user, weeks, live.now()))
    return kept.model_copy(update={"digest": digest_choice(live.site, _own(user))})  # which may have changed since


def summary_of_site(site: Site, user: str, *, weeks: int, now: datetime) -> PersonalSummary:
    """Return the same page of a user (named as in the tables) from a site that is not in memory."""
    return _summary(site, book_of_site(site), user, weeks, now)


def _user(site: Site, viewer: Viewer, requested: str | None) -> str:
    user = user_for(viewer, None if requested is None else site.user_in_tables(requested))
    if not user:
        raise UsageError(
            "Nobody is logged in, so there is nobody whose page this is.", hint="Name a user, or come through the Unix socket."
        )
    return user


def _own(user: str) -> Viewer:
    return Viewer(user, is_admin=False, scopes=frozenset({READ}))


def _summary(site: Site, book: DayBook, user: str, weeks: int, now: datetime) -> PersonalSummary:
    last = now.astimezone(ZoneInfo(site.settings.site.time_zone)).date()
    first = last - timedelta(weeks=weeks)
    days = book.days.filter(pl.col("day") > first, pl.col("day") <= last)
    own = days.filter(pl.col("user").cast(pl.String) == user)
    judged, judged_failed = (int(own[name].sum()) for name in ("judged", "judged_failed"))
    peers = compare(days, user)
    jobs = _recent(site, user, now - timedelta(weeks=weeks), now)
    applications = list(_applications(own, peers, book.energy))
    sums = own.select(held_sums()).row(0, named=True)
    energy = energy_of(sums, book.energy)
    return PersonalSummary(
        user=user,
        weeks=weeks,
        first=first,
        last=last,
        as_of=now,
        jobs=judged,
        failed_jobs=judged_failed,
        failed_share=judged_failed / judged if judged else None,
        peers=None if peers is None else _comparison(peers),
        core_hours=sums["core_seconds"] / _HOUR_S,
        lost_core_hours=sums["lost_core_seconds"] / _HOUR_S,
        kwh=energy["kwh"],
        lost_kwh=energy["lost_kwh"],
        lost_co2_kg=energy["lost_co2_kg"],
        energy=basis_of(sums, book.energy),
        used=UsedShares(**{name: efficiency(jobs).get(name) for name in ("cpu", "memory", "time")}),
        applications=applications[:_MOST_APPLICATIONS],
        changes=list(_changes(site, jobs, [line.application for line in applications if line.failed_jobs], now)),
        incidents=list_incidents(
            site, _own(user), IncidentQuestion(state="all", since=now - timedelta(weeks=weeks), limit=_MOST_INCIDENTS)
        ).incidents,
        digest=digest_choice(site, _own(user)),
        notes=[] if peers else [f"Fewer than {FEWEST} others ran enough jobs in this time, so there is nobody to compare with."],
    )


def _comparison(peers: PeerRate) -> PeerComparison:
    return PeerComparison(failed_share=peers.rate, fewest=peers.fewest, compared=peers.compared, levels=peers.levels)


def _applications(own: pl.DataFrame, peers: PeerRate | None, energy: EnergySection) -> Iterator[PersonalApplication]:
    sums = own.with_columns(pl.col("application").cast(pl.String)).group_by("application").agg(held_sums())
    known = peers.by_application if peers else {}
    for line in (
        sums.filter(pl.col("jobs") > 0)
        .sort("lost_core_seconds", "jobs", "application", descending=[True, True, False])
        .to_dicts()
    ):
        yield PersonalApplication(
            application=line["application"] or UNKNOWN,
            jobs=line["jobs"],
            failed_jobs=line["failed_jobs"],
            core_hours=line["core_seconds"] / _HOUR_S,
            lost_core_hours=line["lost_core_seconds"] / _HOUR_S,
            lost_kwh=energy_of(line, energy)["lost_kwh"],
            peers_failed_share=known.get(line["application"]),
        )


def _recent(site: Site, user: str, since: datetime, now: datetime) -> pl.DataFrame:
    """The user's jobs that ended since then, the latest last."""
    rows = site.jobs.read_jobs(until=now).filter((pl.col("user") == user) & (pl.col("end_time") > since)).collect()
    return rows.sort("end_time")


def _changes(site: Site, jobs: pl.DataFrame, applications: list[str], now: datetime) -> Iterator[PersonalChange]:
    """Of the latest failed job of each application why it failed and what to ask for; those with nothing to say are left out."""
    is_bad = failed(site.settings.jobs.failure_states).fill_null(False)
    bad = jobs.filter(is_bad).with_columns(family())
    past = site.jobs.read_jobs(until=now)
    count = 0
    for application in applications:
        rows = bad.filter(pl.col("family") == application).tail(1).select(jobs.columns)
        if rows.is_empty() or count == _MOST_CHANGES:
            continue
        change = _change(site, rows, past, application, now)
        if change.why or change.sentence:
            count += 1
            yield change


def _change(site: Site, row: pl.DataFrame, past: pl.LazyFrame, application: str, now: datetime) -> PersonalChange:
    job = row.row(0, named=True)
    cause = cause_of(site, job, past.filter(ended_near(job)).collect())
    following, proposed = advice_for(row, past, now=now, kind=find_kind(row, past, now=now))
    advice = fitting_advice(useful_advice(site, proposed)[0], cause)
    pieces = (advice_answer(piece, script_line(job, piece)) for piece in (following, *advice) if piece is not None)
    piece = next(filter(says_something, pieces), None)
    ref = JobRef.of(job)
    return PersonalChange(
        application=application,
        job=ref.job,
        ref=str(ref),
        state=str(job["state"]),
        why="" if cause is None else cause.sentence,
        sentence=piece.sentence if piece else "" if cause is None else cause.change,
        line=piece.line if piece else None,
    )
