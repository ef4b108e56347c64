"""What is done once a day: train again where there is a reason to, delete old models and old jobs, compact the tables.

Site -> run_nightly -> Nightly. By cron, or by the watch in a process of its own. Site -> retrain_events -> one sentence: the
event model is trained at first, when a week has passed, and when the labels have changed. With few known outages nobody can
tell which of two models is better, so the new one takes over; `models rollback events` goes back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from stormpetrel.engine import Progress, no_progress
from stormpetrel.errors import ModelError, ModelOutdatedError
from stormpetrel.lifecycle.event_models import EVENTS, FAMILY
from stormpetrel.lifecycle.families import OUTDATED, retrain_outdated
from stormpetrel.lifecycle.frozen_spans import halting_incident, learning_labels
from stormpetrel.lifecycle.retraining import Retrained, retrain
from stormpetrel.records.outages import Outage
from stormpetrel.store.registry.models import Training
from stormpetrel.store.site import Site
from stormpetrel.store.upkeep.upkeep import Compacted, compact, retain


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
    """Train → delete → compact, one after the other; killed half-way, what is in use stays in use.

    With `alarms.halt_training` nothing is trained while a confirmed incident is open.
    """
    halted = halting_incident(site)
    jobs, events, outdated = _halted(site, halted) if halted is not None else _trained(site, progress)
    progress("upkeep")
    keep_days = site.settings.store.keep_days
    deleted = retain(site, keep_days) if keep_days else 0
    return Nightly(jobs, events, tuple(outdated), deleted, tuple(site.models.prune()), tuple(compact(site)))


def _trained(site: Site, progress: Callable[[str], None]) -> tuple[Retrained, str | None, list[str]]:
    """What came of the trainings of jobs, events, and of models that an earlier version had saved."""
    jobs = retrain(site, now=site.now(), progress=progress)
    events = retrain_events(site, now=site.now(), progress=lambda _share, message: progress(f"events: {message}"))
    return jobs, events, retrain_outdated(site, progress=lambda _share, message: progress(message))


def _halted(site: Site, incident: int) -> tuple[Retrained, str | None, list[str]]:
    """Nothing was trained, and why."""
    why = f"not trained: incident {incident} is confirmed and not over, and alarms.halt_training is set"
    return Retrained(promoted=False, why=why), why if site.event_counts.sources() else None, []


EVERY: Final = timedelta(days=7)


def retrain_events(site: Site, *, now: datetime, progress: Progress = no_progress) -> str | None:
    """Train the site's event model again if there is a reason to; what came of it, None where the site has no event counts."""
    if not site.event_counts.sources():
        return None
    current = site.models.current_training(FAMILY)
    problem = EVENTS.format_problem(site, current) if current else None
    outdated = isinstance(problem, ModelOutdatedError)
    if problem is not None and not outdated:  # a newer version is at work here: it is not for us to replace its model
        return f"not trained: {problem.what}"
    why = OUTDATED if outdated else reason_to_train(current, learning_labels(site), now)
    if why is None:
        return f"{current.name} stays in use" if current else None
    try:
        sort = EVENTS.sort_of(current) if outdated and current else None
        training = EVENTS.train(site, sort, why=why, progress=progress)
    except ModelError as error:
        return f"not trained: {error.what}"
    return f"{training.name} is in use now: {why}"


def reason_to_train(current: Training | None, outages: list[Outage], now: datetime) -> str | None:
    """Why a new model is wanted; None where the one in use is as good as a new one would be."""
    if current is None:
        return "the first model"
    created = datetime.fromisoformat(current.created)
    if now - created >= EVERY:
        return "a week has passed since the last training"
    known = int(current.models[0].about.get("labels", 0))
    ended = sum(1 for outage in outages if outage.end is not None)
    return f"{ended} spans are labelled, {known} were at the last training" if ended != known else None
