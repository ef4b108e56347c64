"""What verdicts have changed: how many alarms there were fewer since each of them.

Site + Viewer -> verdict_effects -> VerdictEffects. Of each incident that is not on the list it is asked whether it would be there
without one verdict, and without all of them. Nothing is estimated: incidents are kept whether they are listed or not.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

from stormpetrel.alarms.verdict_memory import DISMISSED, VerdictMemory
from stormpetrel.answers.schemas.verdicts import VerdictEffect, VerdictEffects
from stormpetrel.answers.viewer import READ
from stormpetrel.records.incidents import Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stormpetrel.answers.viewer import Viewer
    from stormpetrel.records.incidents import Incident, JudgedIncident
    from stormpetrel.store.site import Site

MOST_EFFECTS: Final = 5  # verdicts that are named, the newest that changed something
_MOST_WEIGHED: Final = 50  # dismissals that are asked one by one, the newest
_NAMED_DAYS: Final = timedelta(days=6)  # so long ago a day is called by its name


def verdict_effects(site: Site, viewer: Viewer) -> VerdictEffects:
    """Return what the verdicts that stand have changed so far; administrators only, for others it is empty."""
    viewer.require(READ)
    judged = site.incidents.judged() if viewer.is_admin else []
    if not judged:
        return VerdictEffects()
    first = min(one.act.at for one in judged)
    quiet = [incident for incident in site.incidents.list(resolved_after=first) if incident.like is not None]
    memory, zone = VerdictMemory(judged), site.settings.site.time_zone
    dismissed = [one for one in judged if one.verdict == Verdict.DISMISSED][-_MOST_WEIGHED:]
    effects = [_effect(one, _due_to(one, quiet, memory), site.now(), zone) for one in dismissed]
    telling = sorted((effect for effect in effects if effect.fewer_alarms), key=lambda effect: effect.at, reverse=True)
    return VerdictEffects(
        since=first,
        confirmed=sum(one.verdict == Verdict.CONFIRMED for one in judged),
        dismissed=sum(one.verdict == Verdict.DISMISSED for one in judged),
        fewer_alarms=sum(incident.is_quiet for incident in quiet),
        fewer_pages=sum(incident.held_back == DISMISSED for incident in quiet),
        words=_total_text([incident for incident in quiet if incident.is_quiet], first, site.now(), zone),
        verdicts=telling[:MOST_EFFECTS],
    )


def day_text(moment: datetime, now: datetime, zone: str) -> str:
    """Return a day as people call it: today, yesterday, on Tuesday, or on its date."""
    day, today = (at.astimezone(ZoneInfo(zone)).date() for at in (moment, now))
    if day == today:
        return "today"
    if day == today - timedelta(days=1):
        return "yesterday"
    return f"on {day:%A}" if timedelta(0) < today - day <= _NAMED_DAYS else f"on {day:%Y-%m-%d}"


def _due_to(judged: JudgedIncident, quiet: Sequence[Incident], memory: VerdictMemory) -> list[Incident]:
    """The incidents that are not on the list and would be there without one verdict, which was given before them."""
    later = [incident for incident in quiet if incident.is_quiet and judged.act.at <= incident.raised_at]
    others = memory.without(judged.incident.id) if later else memory
    return [incident for incident in later if others.like(incident.findings, incident.raised_at) is None]


def _effect(judged: JudgedIncident, fewer: Sequence[Incident], now: datetime, zone: str) -> VerdictEffect:
    count = len(fewer)
    word = f"{judged.act.user}'s" if judged.act.user else "the"
    when = day_text(judged.act.at, now, zone).removeprefix("on ")
    return VerdictEffect(
        incident=judged.incident.id,
        verdict=judged.verdict.value,
        user=judged.act.user,
        at=judged.act.at,
        fewer_alarms=count,
        fewer_pages=sum(incident.held_back == DISMISSED for incident in fewer),
        incidents=[incident.id for incident in fewer],
        words=f"since {word} word of {when} on incident {judged.incident.id}: {_alarms(count)}",
    )


def _total_text(quiet: Sequence[Incident], first: datetime, now: datetime, zone: str) -> str:
    return f"since the first verdict, {day_text(first, now, zone)}: {_alarms(len(quiet))}" if quiet else ""


def _alarms(count: int) -> str:
    return f"{count:,} fewer {'alarm' if count == 1 else 'alarms'}"
