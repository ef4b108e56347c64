"""What the watch would have told about the site's own past.

Site + Viewer + ReplayQuestion -> replay_alarms -> ReplayAnswer. A user sees the incidents of his own jobs, without the
names of others; pages are counted over what he sees.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from stormpetrel.alarms.grouping import seen_by_user
from stormpetrel.alarms.titles import title
from stormpetrel.answers.schemas.alarms import IncidentLine, IncidentSubject, ReplayAnswer, ReplayQuestion
from stormpetrel.answers.viewer import READ
from stormpetrel.errors import UsageError
from stormpetrel.watch.replay import pages_per_week, replay

if TYPE_CHECKING:
    from stormpetrel.answers.viewer import Viewer
    from stormpetrel.records.incidents import Incident
    from stormpetrel.store.site import Site


def replay_alarms(
    site: Site,
    viewer: Viewer,
    question: ReplayQuestion | None = None,
    *,
    progress: Callable[[float, str], None] = lambda _share, _words: None,
) -> ReplayAnswer:
    """Return the incidents that this viewer may see, as a watch would have raised them; nothing is written."""
    viewer.require(READ)
    asked = question or ReplayQuestion()
    if asked.since and asked.until and asked.since >= asked.until:
        raise UsageError("The end of the replay is not after its beginning.", hint="Name a later --until, or an earlier --since.")
    past = replay(site, since=asked.since, until=asked.until, models=asked.models, progress=progress)
    zone = site.settings.site.time_zone
    shown = [part for incident in past.incidents if (part := visible(incident, viewer)) is not None]
    return ReplayAnswer(
        incidents=[incident_line(incident, zone) for incident in shown],
        pages_per_week=pages_per_week(shown, past.weeks),
        weeks=past.weeks,
        since=past.since,
        until=past.until,
        first=past.recorded[0],
        last=past.recorded[1],
        zone=zone,
        jobs=past.looked_at.jobs,
        buckets=past.looked_at.buckets,
        partial_buckets=past.looked_at.partial_buckets,
        event_models=past.looked_at.models,
        has_traces=past.looked_at.has_traces,
    )


def visible(incident: Incident, viewer: Viewer) -> Incident | None:
    """Return what this viewer may see of an incident; None: nothing."""
    viewer.require(READ)
    return incident if viewer.is_admin else seen_by_user(incident, viewer.user)


def incident_line(incident: Incident, zone: str) -> IncidentLine:
    """Return an incident as programs get it; times in its title are of this zone."""
    return IncidentLine(
        id=incident.id,
        severity=incident.severity.value,
        state=incident.state.value,
        kinds=[kind.value for kind in incident.kinds],
        families=list(incident.families),
        subjects=[IncidentSubject(kind=subject.kind.value, name=subject.name) for subject in incident.subjects],
        since=incident.since,
        until=incident.until,
        raised_at=incident.known_at,
        blame=incident.blame.value,
        verdict=None if incident.verdict is None else incident.verdict.value,
        late=incident.late,
        title=title(incident, zone),
        page=incident.page,
        returns=len(incident.reopened_at),
    )
