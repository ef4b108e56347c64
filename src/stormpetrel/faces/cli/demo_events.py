"""The events of `stormpetrel demo`: submissions, starts and ends counted per hour out of its jobs, a model, and its alarms."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from stormpetrel.answers.schemas.events import ScoredAlarm
    from stormpetrel.store.site import Site

_SHOWN: Final = timedelta(days=7)  # alarms of the last week are told


@dataclass(frozen=True, slots=True)
class DemoAlarms:
    """How many hours were looked at, and the alarms of the last week, oldest first."""

    hours: int
    episodes: list[ScoredAlarm]


def add_events(site: Site, *, quiet: bool) -> DemoAlarms | None:
    """Count the events of the site's jobs, train a model unless there is one, and score; None where there is nothing to learn."""
    from stormpetrel.answers.grid.scoring import score_events
    from stormpetrel.answers.viewer import LOCAL
    from stormpetrel.errors import ModelError
    from stormpetrel.faces.cli.trace_input import progress_shown
    from stormpetrel.ingest.events import ingest_live_events
    from stormpetrel.lifecycle.event_models import FAMILY, train_event_model

    with progress_shown(quiet=quiet) as progress:
        progress(0.0, "counting events")
        ingest_live_events(site)
        try:
            if site.models.current_training(FAMILY) is None:
                train_event_model(site, progress=progress)
            scoring = score_events(site, LOCAL, progress=progress)
        except ModelError:  # a site that has just begun
            return None
    return DemoAlarms(scoring.buckets, [alarm for alarm in scoring.episodes if alarm.end > site.now() - _SHOWN])
