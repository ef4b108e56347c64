"""Whether a person wants the weekly digest by mail: asked for and given up by that person alone.

Site + Viewer -> digest_choice -> DigestChoice; + DigestAct -> choose_digest -> the same. Site + now -> appointed_time: when
digests were due last.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

from stormpetrel.answers.mail.spool import address_of
from stormpetrel.answers.schemas.personal import DigestChoice
from stormpetrel.answers.viewer import READ, WRITE
from stormpetrel.errors import UsageError

if TYPE_CHECKING:
    from stormpetrel.answers.schemas.personal import DigestAct
    from stormpetrel.answers.viewer import Viewer
    from stormpetrel.store.site import Site

_DAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_WEEK: Final = timedelta(weeks=1)


def digest_choice(site: Site, viewer: Viewer) -> DigestChoice:
    """Return whether the viewer gets the digest, where to, and when the next one is due."""
    viewer.require(READ)
    kept, possible = site.digests.of_user(viewer.user), is_possible(site)
    due = next_time(site, site.now()) if possible and kept is not None else None
    return DigestChoice(wanted=kept is not None, possible=possible, address=kept.address if kept else None, next=due)


def choose_digest(site: Site, viewer: Viewer, act: DigestAct) -> DigestChoice:
    """Keep whether the viewer wants the digest; UsageError where this site sends none, or not to such an address."""
    viewer.require(WRITE)
    if not viewer.user:
        raise UsageError("Nobody is logged in, so there is nobody to write to.", hint="Come through the Unix socket, or log in.")
    if not act.wanted:
        if site.digests.withdraw(viewer.user):
            site.audit.record(viewer.user, "digest ended")
        return digest_choice(site, _reading(viewer))
    if not is_possible(site):
        raise UsageError("This site sends no digests.", hint="Administrators: set mail.route and mail.digest_day in site.toml.")
    address = address_of(act.address or viewer.user, site.settings.mail)
    if not address:
        raise UsageError(
            "Mail of this site does not go to such an address.", hint="Name one plain address of a domain it allows."
        )
    now = site.now()
    site.digests.choose(viewer.user, address, now=now, last=appointed_time(site, now))
    site.audit.record(viewer.user, "digest wanted")
    return digest_choice(site, _reading(viewer))


def is_possible(site: Site) -> bool:
    """Whether this site sends digests."""
    return bool(site.settings.mail.route and site.settings.mail.digest_day)


def appointed_time(site: Site, now: datetime) -> datetime:
    """The last moment at which digests were due: the site's weekday and hour, in its time zone."""
    settings, local = site.settings.mail, now.astimezone(ZoneInfo(site.settings.site.time_zone))
    day = local.date() - timedelta(days=(local.weekday() - _DAYS.index(settings.digest_day)) % 7)
    moment = _at(site, day.year, day.month, day.day)
    return moment if moment <= now else _at(site, *(day - _WEEK).timetuple()[:3])


def next_time(site: Site, now: datetime) -> datetime:
    """The next moment at which digests are due."""
    day = appointed_time(site, now).astimezone(ZoneInfo(site.settings.site.time_zone)).date() + _WEEK
    return _at(site, day.year, day.month, day.day)


def _at(site: Site, year: int, month: int, day: int) -> datetime:
    return datetime(year, month, day, site.settings.mail.digest_hour, tzinfo=ZoneInfo(site.settings.site.time_zone))


def _reading(viewer: Viewer) -> Viewer:
    """Who has just said what he wants may be told what that was, whatever the scopes."""
    return replace(viewer, scopes=viewer.scopes | {READ})
