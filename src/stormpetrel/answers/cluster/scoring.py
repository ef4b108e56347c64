"""Score the buckets that the model in use has not seen, and tell its alarms.

Site + Viewer -> score_events -> EventScoring.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from stormpetrel.answers.cluster.alarms import alarms_of
from stormpetrel.answers.schemas.events import EventScoring, ScoredAlarm
from stormpetrel.answers.viewer import MANAGE
from stormpetrel.lifecycle.event_models import load_event_model
from stormpetrel.lifecycle.event_scoring import score_new_buckets

if TYPE_CHECKING:
    from stormpetrel.answers.schemas.cluster import ClusterAlarm
    from stormpetrel.answers.viewer import Viewer
    from stormpetrel.store.site import Site


def score_events(
    site: Site,
    viewer: Viewer,
    *,
    last: int | None = None,
    progress: Callable[[float, str], None] = lambda _share, _step: None,
) -> EventScoring:
    """Append the scores of new buckets; ModelError where there is no model yet. `last` is how many alarms are wanted."""
    viewer.require(MANAGE)
    used = load_event_model(site)
    done = score_new_buckets(site, used, progress=progress)
    rows = site.event_scores.read(model=used.name, version=used.version).sort("bucket_start").collect()
    alarms = alarms_of(rows, site.outages.list(), zone=site.settings.site.time_zone, in_full=True)
    newest = rows.row(-1, named=True) if rows.height else {}
    return EventScoring(
        model=used.name,
        version=used.version,
        threshold=newest.get("threshold", used.threshold),
        scored=done.scored,
        alarms=done.alarms,
        buckets=rows.height,
        newest=newest.get("bucket_start"),
        newest_score=newest.get("score"),
        newest_alarm=bool(newest.get("alarm")),
        episodes=[_scored(alarm) for alarm in (alarms if last is None else alarms[-last:])],
        episodes_in_all=len(alarms),
    )


def _scored(alarm: ClusterAlarm) -> ScoredAlarm:
    return ScoredAlarm(
        start=alarm.start,
        end=alarm.end,
        score=alarm.score,
        findings=alarm.findings,
        labels=alarm.labels,
        threshold=alarm.threshold,
    )
