"""When the model of events is trained again: at first, when a week has passed, and when the labels have changed.

Site -> retrain_events -> one sentence. Nobody can say which of two models is better where few outages are known, so that the new
one takes over: it has seen more. `models rollback events` goes back.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from stormpetrel.engine import Progress, no_progress
from stormpetrel.errors import ModelError, ModelOutdatedError
from stormpetrel.lifecycle.event_models import EVENTS, FAMILY
from stormpetrel.lifecycle.readable import OUTDATED
from stormpetrel.records.outages import Outage
from stormpetrel.store.models import Training
from stormpetrel.store.site import Site

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
    why = OUTDATED if outdated else reason_to_train(current, site.outages.list(), now)
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
