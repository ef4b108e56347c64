"""The budget of a live site: thresholds from its own incidents, and from a replay of what came before its first watch.

Site -> site_budget -> PageBudget; BudgetLearning does so beside the loop, at the start and once a day.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from stormpetrel.alarms.acts import with_acts
from stormpetrel.alarms.budget import HISTORY, SHORTEST, PageBudget
from stormpetrel.records.incidents import Incident, Verdict
from stormpetrel.store.site import Site
from stormpetrel.watch.incident_keeper import IncidentKeeper
from stormpetrel.watch.replay import recorded_span, replay

_BEGAN: Final = "alarms_began"  # when incidents were first raised live
_DAY_S: Final = 86_400.0


class BudgetLearning:
    """Learns the budget of one site and hands it to its keeper; a step of the watch, in a thread of its own."""

    name = "budget"

    def __init__(self, site: Site, keeper: IncidentKeeper) -> None:
        self._site, self._keeper = site, keeper

    def step(self) -> float:
        """Learn it anew; return the seconds until the next time."""
        self._keeper.set_budget(site_budget(self._site, self._site.now()))
        return _DAY_S / self._site.pace()


def site_budget(site: Site, now: datetime) -> PageBudget | None:
    """Return the budget that the site's own history allows; None where the settings promise nothing.

    Incidents that people confirmed are no part of calm history, and are left out.
    """
    per_week = site.settings.alarms.pages_per_week
    if not per_week:
        return None
    began = _began(site, now)
    live = site.incidents.list(resolved_after=now - HISTORY)
    since, before = _replayed(site, began, now)
    acts = site.incidents.acts(incident.id for incident in live)
    calm = [one for one in live if with_acts(one, acts[one.id]).verdict != Verdict.CONFIRMED]
    return PageBudget(per_week, since, [*before, *calm])


def _replayed(site: Site, began: datetime, now: datetime) -> tuple[datetime, list[Incident]]:
    """What the records of jobs from before the first watch would have raised, with numbers of their own, and since when."""
    first, _ = recorded_span(site)
    start = max(first, now - HISTORY) if first else began
    if began - start < SHORTEST:  # too short to learn anything from
        return began, []
    past = replay(site, since=start, until=began, count_jobs=False)
    return start, [replace(one, id=-one.id, paged_at=()) for one in past.incidents]


def _began(site: Site, now: datetime) -> datetime:
    """When incidents were first raised live: noted at the first time."""
    text = site.state.fact(_BEGAN)
    if not text:
        text = now.astimezone(UTC).isoformat()
        site.state.set_fact(_BEGAN, text)
    return datetime.fromisoformat(text)
