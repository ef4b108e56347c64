"""The budget of a live site: thresholds from its own incidents, and from a replay of what came before its first watch.

Site + now -> DailyBudgets.current -> PageBudget. What a day's thresholds are learnt from is noted in the state before anything is
judged by them: a watch that starts again, on that day, decides as the one before would have, and replays nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from typing import Final

from pydantic import TypeAdapter, ValidationError

from stormpetrel.alarms.acts import with_acts
from stormpetrel.alarms.budget import HISTORY, SHORTEST, PageBudget
from stormpetrel.errors import StormpetrelError
from stormpetrel.records.findings import Finding
from stormpetrel.records.incidents import Incident, Verdict
from stormpetrel.store.site import Site
from stormpetrel.watch.past.replay import recorded_span, replay

NAME: Final = "budget"  # under which it is kept, beside what the watchers need to go on
_BEGAN: Final = "alarms_began"  # when incidents were first raised live


@dataclass(frozen=True, slots=True)
class BudgetHistory:
    """What the thresholds of one day (UTC) are learnt from; `since` is when it began."""

    day: date
    since: datetime
    past: tuple[Incident, ...]  # those of the replay have negative numbers


_HISTORY: Final = TypeAdapter(BudgetHistory)


class DayBudget(PageBudget):
    """A budget whose thresholds are those of one day: what is raised meanwhile counts from the next day on."""

    def note(self, opening: tuple[int, int], finding: Finding, *, by_rule: bool) -> None:
        """Remember nothing: the incident itself is kept, and looked at when the day is over."""


class DailyBudgets:
    """Learns the budget of one site, day by day; asked by the threads of all watchers, one at a time."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._lock = threading.Lock()
        self._learning: threading.Thread | None = None
        self._history: BudgetHistory | None = None
        self._budget: PageBudget | None = None

    def is_ready(self, now: datetime) -> bool:
        """Whether the first history is known; where it is not, it is learnt from the past beside the loop, once."""
        if self._learning is not None and self._learning.is_alive():
            return False
        if self._history is not None or not self._site.settings.alarms.pages_per_week or self._kept() is not None:
            return True
        self._learning = threading.Thread(target=self._learn, args=(now,), name=NAME, daemon=True)
        self._learning.start()
        return False

    def _learn(self, now: datetime) -> None:
        with suppress(StormpetrelError):  # it is tried again, and told then
            self._history_of(now)

    def current(self, now: datetime) -> PageBudget | None:
        """Return the budget of a day, as it was when the day's first findings were judged; None where nothing is promised."""
        per_week = self._site.settings.alarms.pages_per_week
        if not per_week:
            return None
        history = self._history_of(now)
        if self._budget is None:
            self._budget = _day_budget(per_week, history, self._site.incidents.list(resolved_after=now - HISTORY))
        return self._budget

    def go_back(self) -> None:
        """Begin again at what is committed: what was decided last was not."""
        with self._lock:
            self._history = self._budget = None

    def _history_of(self, now: datetime) -> BudgetHistory:
        day = now.astimezone(UTC).date()
        with self._lock:
            if self._history is None or self._history.day != day:
                kept = self._kept()
                if kept is None or kept.day != day:
                    kept = site_history(self._site, now, before=kept)
                    body = _HISTORY.dump_json(kept).decode()
                    self._site.incidents.commit([], watcher=NAME, watcher_state=body, now=now)
                self._history, self._budget = kept, None
            return self._history

    def _kept(self) -> BudgetHistory | None:
        body = self._site.incidents.watcher_state(NAME)
        try:
            return _HISTORY.validate_json(body) if body else None
        except ValidationError:  # of another version: it is learnt anew
            return None


def site_history(site: Site, now: datetime, *, before: BudgetHistory | None = None) -> BudgetHistory:
    """Return what thresholds are learnt from at a moment: incidents so far, and what a replay of earlier records raises.

    `before` is the history of an earlier day, which has replayed already, if there was enough to replay. Incidents that people
    confirmed are no part of calm history, and are left out.
    """
    began = _began(site, now)
    if before is None or before.since == began:
        since, replayed = _replayed(site, began)
    else:
        since, replayed = (
            before.since,
            [incident for incident in before.past if incident.id < 0 and incident.raised_at >= now - HISTORY],
        )
    live = site.incidents.list(resolved_after=now - HISTORY)
    acts = site.incidents.acts(incident.id for incident in live)
    calm = [incident for incident in live if with_acts(incident, acts[incident.id]).verdict != Verdict.CONFIRMED]
    return BudgetHistory(now.astimezone(UTC).date(), since, tuple(_without_jobs(incident) for incident in [*replayed, *calm]))


def _day_budget(per_week: float, history: BudgetHistory, live: Sequence[Incident]) -> PageBudget:
    """The budget of a day, with the pages that were sent since it began."""
    budget = DayBudget(per_week, history.since, history.past)
    counted = {incident.id: incident.paged_at for incident in history.past}
    for paged_at in sorted(at for incident in live for at in incident.paged_at if at not in counted.get(incident.id, ())):
        budget.sent(paged_at)
    return budget


def _replayed(site: Site, began: datetime) -> tuple[datetime, list[Incident]]:
    """What the records of jobs from before the first watch would have raised, with numbers of their own, and since when."""
    first, _ = recorded_span(site)
    start = max(first, began - HISTORY) if first else began
    if began - start < SHORTEST:  # too short to learn anything from
        return began, []
    past = replay(site, since=start, until=began, count_jobs=False)
    return start, [replace(incident, id=-incident.id, paged_at=()) for incident in past.incidents]


def _without_jobs(incident: Incident) -> Incident:
    return replace(incident, findings=tuple(replace(finding, jobs=(), users=()) for finding in incident.findings))


def _began(site: Site, now: datetime) -> datetime:
    """When incidents were first raised live: noted at the first time."""
    text = site.state.fact(_BEGAN)
    if not text:
        text = now.astimezone(UTC).isoformat()
        site.state.set_fact(_BEGAN, text)
    return datetime.fromisoformat(text)
