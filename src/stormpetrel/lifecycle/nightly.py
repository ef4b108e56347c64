"""What is done once a day: train again where there is a reason to, delete old models and old jobs, compact the tables.

Site -> run_nightly -> Nightly. By cron, or by the watch in a process of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from stormpetrel.lifecycle.event_retraining import retrain_events
from stormpetrel.lifecycle.readable import retrain_outdated
from stormpetrel.lifecycle.retraining import Retrained, retrain
from stormpetrel.store.site import Site
from stormpetrel.store.upkeep import Compacted, compact, retain


@dataclass(frozen=True, slots=True)
class Nightly:
    """What a night came to."""

    jobs: Retrained
    events: str | None  # one sentence; None where the site has no event counts
    outdated: tuple[str, ...]  # a sentence for each model that an earlier version had saved
    deleted_jobs: int
    deleted_trainings: tuple[str, ...]
    compacted: tuple[Compacted, ...]


def run_nightly(site: Site, *, progress: Callable[[str], None]) -> Nightly:
    """Train → delete → compact, one after the other; killed half-way, what is in use stays in use."""
    jobs = retrain(site, now=site.now(), progress=progress)
    events = retrain_events(site, now=site.now(), progress=lambda _share, words: progress(f"events: {words}"))
    outdated = retrain_outdated(site, progress=lambda _share, words: progress(words))
    progress("upkeep")
    keep_days = site.settings.store.keep_days
    deleted = retain(site, keep_days) if keep_days else 0
    return Nightly(jobs, events, tuple(outdated), deleted, tuple(site.models.prune()), tuple(compact(site)))
