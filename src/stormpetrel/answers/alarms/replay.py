"""What the watch would have reported about the site's own past.

Site + Viewer + ReplayQuestion -> replay_alarms -> ReplayAnswer; ReplayFiles -> site_of_files -> Site, for files alone. A user
sees the incidents of his own jobs, without the names of others; pages are counted over what he sees.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final
from zoneinfo import available_timezones

from stormpetrel.alarms.grouping import seen_by_user
from stormpetrel.alarms.titles import title
from stormpetrel.answers.schemas.alarms import IncidentLine, IncidentSubject, ReplayAnswer, ReplayFiles, ReplayQuestion
from stormpetrel.answers.schemas.ingest import JobFiles
from stormpetrel.answers.site.ingest import Bar, ingest_event_files, ingest_job_files
from stormpetrel.answers.viewer import LOCAL, READ
from stormpetrel.config import settings_from
from stormpetrel.engine import no_progress
from stormpetrel.errors import StoreBusyError, StormpetrelError, UsageError
from stormpetrel.store.site import create_site
from stormpetrel.watch.past.replay import pages_per_week, replay

if TYPE_CHECKING:
    from stormpetrel.answers.viewer import Viewer
    from stormpetrel.records.incidents import Incident
    from stormpetrel.store.site import Site


_TURN: Final = threading.Lock()  # months of records are read: one replay at a time in a process that serves others as well


def replay_alarms(
    site: Site,
    viewer: Viewer,
    question: ReplayQuestion | None = None,
    *,
    progress: Callable[[float, str], None] = lambda _share, _text: None,
) -> ReplayAnswer:
    """Return the incidents that this viewer may see, as a watch would have raised them; nothing is written.

    StoreBusyError where another replay is under way in this process.
    """
    viewer.require(READ)
    wanted = question or ReplayQuestion()
    if wanted.since and wanted.until and wanted.since >= wanted.until:
        raise UsageError("The end of the replay is not after its beginning.", hint="Name a later --until, or an earlier --since.")
    if not _TURN.acquire(blocking=False):
        raise StoreBusyError("Another replay is under way.", hint="Try again in a minute.")
    try:
        past = replay(site, since=wanted.since, until=wanted.until, models=wanted.models, progress=progress)
    finally:
        _TURN.release()
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


@contextmanager
def site_of_files(files: ReplayFiles, *, bar: Bar) -> Iterator[Site]:
    """Make a site of files alone, which is gone afterwards; what is wrong with a file is raised."""
    if files.time_zone not in available_timezones():
        raise UsageError(f"{files.time_zone[:80]!r} is no time zone.", hint="Name one such as Europe/Berlin.")
    with TemporaryDirectory(prefix="stormpetrel-") as folder:
        settings = settings_from({"site": {"time_zone": files.time_zone}})
        with create_site(Path(folder) / "site", settings) as site:
            if files.jobs:
                named = JobFiles(files=files.jobs, format=files.format, fields=files.fields, year=files.year)
                read = ingest_job_files(site, LOCAL, named, bar=bar)
                if read.problems:
                    raise read.problems[-1]
            if files.events:
                paths = [Path(name) for name in files.events]
                counted = ingest_event_files(site, LOCAL, paths, format_name=files.format, year=files.year, progress=no_progress)
                if counted.problems:
                    raise StormpetrelError(counted.problems[-1])
            yield site


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
        like=incident.like,
        returns=len(incident.reopened_at),
    )
