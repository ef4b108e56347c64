"""The weekly digest by mail: who wants it gets one when it is due, however often the watch was killed and started in between.

Site + now -> queue_digests -> mail in the state; user -> digest_values -> the values of its template, made when it is sent.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import polars as pl

from stormpetrel.answers.history.energy import lost_text
from stormpetrel.answers.personal.choice import appointed_time, is_possible
from stormpetrel.answers.personal.summary import summary_of_site
from stormpetrel.store.mails import MailKind, QueuedMail

if TYPE_CHECKING:
    from stormpetrel.answers.schemas.personal import PersonalSummary
    from stormpetrel.store.site import Site


def queue_digests(site: Site, now: datetime) -> int:
    """Queue what is due; how many. Of weeks that were missed only the last is told, of one without ended jobs nothing."""
    if not is_possible(site):
        return 0
    appointed, queued = appointed_time(site, now), 0
    for wanted in site.digests.due(appointed):
        whose = hashlib.sha256(wanted.user.encode()).hexdigest()[:40]
        key = f"digest {appointed.astimezone(UTC):%Y-%m-%dT%H:%M} {whose}"
        mail = QueuedMail(key, MailKind.DIGEST, wanted.address, wanted.user, key, now)
        queued += site.digests.queue(wanted.user, appointed, mail if _has_week(site, wanted.user, now) else None)
    return queued


def _has_week(site: Site, user: str, now: datetime) -> bool:
    """Whether a job of a user has ended in the last week."""
    jobs = site.jobs.read_jobs(until=now).filter((pl.col("user") == user) & (pl.col("end_time") > now - timedelta(weeks=1)))
    return jobs.select("end_time").head(1).collect().height > 0


def digest_values(site: Site, user: str, now: datetime) -> dict[str, str]:
    """Return what the digest of the last week says to a user."""
    summary = summary_of_site(site, user, weeks=1, now=now)
    url = site.settings.notify.public_url.rstrip("/")
    return {
        "user": summary.user,
        "site": site.settings.site.name,
        "first": f"{summary.first:%d %b}",
        "last": f"{summary.last:%d %b %Y}",
        "jobs": f"{summary.jobs:,}",
        "failed": f"{summary.failed_jobs:,}",
        "failures": "\n".join(failure_lines(summary)),
        "waste": "\n".join(waste_lines(summary)),
        "next": "\n".join(change_lines(summary)),
        "incidents": "\n".join(incident_lines(summary)),
        "link": f"{url}/me" if url else "",
        "stop": "stormpetrel digest off" + (f", or {url}/me" if url else ""),
    }


def failure_lines(summary: PersonalSummary) -> Iterator[str]:
    """How often the jobs failed, beside people alike."""
    if not summary.jobs:
        yield "None of your jobs ended in this time."
        return
    share = 100 * (summary.failed_share or 0.0)
    yield f"{summary.jobs:,} of your jobs ended, {summary.failed_jobs:,} of them failed ({share:.0f} %)."
    if summary.peers is not None:
        yield f"Of others with the same mix of groups and applications {100 * summary.peers.failed_share:.0f} % failed."


def waste_lines(summary: PersonalSummary) -> Iterator[str]:
    """What the failed jobs held, and how well requests were used."""
    if not summary.jobs:
        return
    yield f"Your failed jobs held {summary.lost_core_hours:,.1f} of your {summary.core_hours:,.1f} core hours."
    if summary.energy is not None and summary.kwh:
        text = lost_text(summary.lost_kwh or 0.0, summary.kwh, summary.lost_co2_kg, summary.energy.known)
        yield f"Of energy that is {text}."
    words = {"cpu": "of the cores' time", "memory": "of the memory", "time": "of the time limits"}
    used = [f"{100 * share:.0f} % {words[name]}" for name, share in summary.used if share is not None]
    if used:
        yield f"You used {', '.join(used)} that you asked for."


def change_lines(summary: PersonalSummary) -> Iterator[str]:
    """What to change, an application each."""
    if summary.changes:
        yield "What to change:"
    for change in summary.changes:
        text = " ".join(filter(None, [change.why, change.sentence]))
        yield f"  {change.application} (job {change.job}, {change.state}): {text}"
        if change.line:
            yield f"      {change.line}"


def incident_lines(summary: PersonalSummary) -> Iterator[str]:
    """The incidents, a line each."""
    if summary.incidents:
        yield "Incidents that concerned your jobs:"
    for incident in summary.incidents:
        yield f"  {incident.since:%d %b %H:%M}  {incident.title} ({incident.state})"
