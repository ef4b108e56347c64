"""The live stream of a site: its current models over its history, as they stand now.

Site -> open_stream -> JobStream, which `watch` moves on and judges with, and which `serve` only keeps current.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from stormpetrel.errors import ModelError
from stormpetrel.jobs.moments import MOMENTS, Moment
from stormpetrel.jobs.prior.shipped import PRIOR_VERSION
from stormpetrel.jobs.stream import LOOKBACK, JobStream
from stormpetrel.lifecycle.history_snapshot import carry_history, unsettled
from stormpetrel.lifecycle.job_models import PROFILES, load_models, model_name, uses_prior
from stormpetrel.store.registry.models import ModelVersion
from stormpetrel.store.site import Site

_MARGIN = timedelta(days=32)  # predictions are kept by the month of submission


def current_versions(site: Site) -> dict[str, int]:
    """Which version of each job model is in use; changes when one is promoted or rolled back. The prior's is below zero."""
    names = {PROFILES, *(model_name(moment) for moment in MOMENTS)}
    own = {entry.name: entry.version for entry in site.models.versions() if entry.current and entry.name in names}
    if site.settings.jobs.prior and not own.keys() - {PROFILES}:
        return {model_name(moment): PRIOR_VERSION for moment in MOMENTS}
    return own


def open_stream(site: Site, *, horizon: datetime, began: datetime | None = None, remember: bool = True) -> JobStream:
    """A stream that has taken in everything up to the horizon; with `remember` it knows what was predicted before."""
    models = [moment for moment in MOMENTS if model_name(moment) in current_versions(site)]
    if not models:
        raise ModelError("The site has no job model yet.", hint="Train one: stormpetrel jobs train")
    predictor = load_models(site, moments=models)
    cut = carry_history(site, predictor, until=horizon)
    stream = JobStream(predictor, horizon=horizon, began=began, began_at=_added_later(site))
    predicted = None
    if remember:
        columns = ["cluster", "job_id", "array_task", "submit_time", "restart", "moment"]
        predicted = site.predictions.read(since=horizon - LOOKBACK - _MARGIN).select(columns).collect()
    stream.recall(unsettled(site, cut, until=horizon), predicted, cut=cut)
    return stream


def first_horizon(site: Site, now: datetime) -> datetime:
    """Where a first watch begins: where the training of the model in use ended, but not longer ago than is worth replaying.

    With the prior it begins now: what was before is history that the prior reads.
    """
    if uses_prior(site):
        return now
    trained = _in_use(site).about.get("trained_until")
    earliest = now - timedelta(days=site.settings.watch.replay_days)
    return now if not trained else min(now, max(earliest, datetime.fromisoformat(str(trained))))


def _added_later(site: Site) -> dict[Moment, datetime]:
    """Of moments that got their first model after others: up to when it had learnt. It says nothing about what was before."""
    oldest: dict[Moment, datetime] = {}
    for moment in MOMENTS:
        ends = [version.about.get("trained_until") for version in site.models.versions(model_name(moment))]
        if ends and all(ends):  # earlier releases did not note it
            oldest[moment] = min(datetime.fromisoformat(str(until)) for until in ends)
    return {moment: until for moment, until in oldest.items() if until > min(oldest.values())}


def _in_use(site: Site) -> ModelVersion:
    """The model in use of the earliest moment that has one; ModelError where there is none."""
    in_use = site.models.in_use()
    first = next((model_name(moment) for moment in MOMENTS if model_name(moment) in in_use), model_name(Moment.SUBMIT))
    return in_use.get(first) or site.models.current(first)
