"""Models of the grid's events: train one on a site's counts, enter it in the registry, load it, score what is new.

Site -> train_event_model -> registry -> load_event_model -> EventModelInUse -> score_new_buckets -> event_scores. A model that
gives scores only is trained together with a forecaster, which says what was expected and why there is an alarm.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, cast

import numpy as np

from stormpetrel import __version__
from stormpetrel.config import EventsSection
from stormpetrel.engine import Progress, no_progress
from stormpetrel.errors import ModelError, ModelFormatError
from stormpetrel.events.alarm_budget import threshold_for
from stormpetrel.events.choose import DEFAULT, FORECAST, RETIRED, load, make
from stormpetrel.events.contract import EventModel, Forecaster, SavedModel
from stormpetrel.events.counts.forecast import calm_for_training
from stormpetrel.events.counts.saving import COMBINED_KIND, FORECAST_KIND
from stormpetrel.events.counts.saving import FORMAT_VERSION as COUNT_FORMAT
from stormpetrel.events.recurrent.lstm import FORMAT_VERSION as RECURRENT_FORMAT
from stormpetrel.learn.family import BY_HAND, Role, Unit
from stormpetrel.lifecycle.contests.decision import Stopwatch
from stormpetrel.lifecycle.family import SiteFamily, TrainingRequest, incomplete_entry, operator
from stormpetrel.lifecycle.frozen_spans import learning_labels, learning_series
from stormpetrel.records.event_series import ANOMALY, WEEK_S, EventSeries
from stormpetrel.records.model_families import ModelFamily, how_to_train
from stormpetrel.store.registry.models import ModelVersion, NewModel, Training
from stormpetrel.store.site import Site

FAMILY: Final = ModelFamily.EVENTS
CALM_SHARE: Final = 0.25  # the newest part of the series: not learnt from, it says where the threshold lies
LEAST_WEEKS: Final = 3.0  # of seen buckets: a week to forecast from, two to learn and to set the threshold on
_FORECAST_NAME: Final = f"{FAMILY}-{FORECAST}"


@dataclass(frozen=True, slots=True, eq=False)
class EventModelInUse:
    """The model that raises alarms, the one that says what was expected, and the score from which there is an alarm."""

    model: SavedModel
    forecaster: Forecaster
    kinds: tuple[str, ...]
    bucket_s: int
    threshold: float  # that was chosen at the training; that of a day is learnt from the weeks before it
    name: str
    version: int
    per_week: float = 1.0  # alarms that calm operation may raise
    trained_until_s: int = 0  # Unix seconds: the first bucket that was not learnt from

    @property
    def label(self) -> str:
        """Name and version, as findings and tables name a model."""
        return f"{self.name}/{self.version}"

    @property
    def history_buckets(self) -> int:
        """How many buckets before a bucket its score and its forecast depend on."""
        return max(self.model.history_buckets, self.forecaster.history_buckets)


def train_event_model(
    site: Site,
    name: str | None = None,
    *,
    seed: int = 0,
    weeks: int = 0,
    why: str = BY_HAND,
    user: str | None = None,
    action: str = "events train",
    about: Mapping[str, Any] | None = None,
    promote: bool = True,
    until: datetime | None = None,
    progress: Progress = no_progress,
) -> Training:
    """Train a model on the site's counts, save it and make it current; a training that is killed changes nothing.

    `weeks` learns from the newest of them only, 0 from everything; `about` is kept with the figures; without `promote` the model
    in use stays so; `until` leaves later counts out.
    """
    progress(0.0, "reading counts")
    watch, version = Stopwatch(), site.event_counts.table.version()
    series, labels = newest_weeks(useful_series(learning_series(site, until=until)), weeks), learning_labels(site)
    chosen = _chosen(site.settings.events, name)
    cut, model, forecaster, alarm_about = _fitted(site.settings.events, series, chosen, seed, progress)
    learnt = series.take(0, cut)
    kept = {
        **(about or {}),
        **alarm_about,
        "kinds": list(series.kinds),
        "bucket_s": series.bucket_s,
        "buckets": int((~learnt.is_gap).sum()),
        "labelled_outage_buckets": int((learnt.label == ANOMALY).sum()),
        "labels": sum(1 for outage in labels if outage.end is not None),
        "labels_newer": sum(1 for outage in labels if outage.start >= series.moment(cut)),
        "table_version": version,
        "trained_until": series.moment(cut - 1).isoformat(),
        "seed": seed,
        "weeks": weeks,
        "until": series.moment(len(series) - 1).isoformat(),
        "since": series.moment(0).isoformat(),
        "settings": {"sequence": _sequence(site.settings.events), "calm_share": CALM_SHARE},
        "why": why,
        "code_version": __version__,
        "compute": watch.read().as_dict(),
    }
    models = {f"{FAMILY}-{chosen}": NewModel(model.save, kept)}
    if forecaster is not None:
        models[_FORECAST_NAME] = NewModel(forecaster.save, {**kept, "role": "forecast"})
    return site.models.add_together(models, promoted_by=(user or operator()) if promote else None, action=action)


def refit_event_models(site: Site, sort: str, about: Mapping[str, Any]) -> dict[str, SavedModel]:
    """The models that a training made, fitted again from what its record says, by name; nothing is saved."""
    until = datetime.fromisoformat(str(about["until"])) + timedelta(seconds=int(about["bucket_s"]))
    series = newest_weeks(useful_series(learning_series(site, until=until)), int(about.get("weeks", 0)))
    _, model, forecaster, _ = _fitted(site.settings.events, series, sort, int(about.get("seed", 0)), no_progress)
    return {f"{FAMILY}-{sort}": model} | ({} if forecaster is None else {_FORECAST_NAME: forecaster})


def newest_weeks(series: EventSeries, weeks: int) -> EventSeries:
    """The newest weeks of a series; everything where that is 0, or no more."""
    return series.take(max(0, len(series) - weeks * WEEK_S // series.bucket_s), len(series)) if weeks else series


def fit_event_model(
    section: EventsSection, series: EventSeries, *, sort: str | None = None, seed: int = 0, progress: Progress = no_progress
) -> EventModelInUse:
    """The model that a training on this series would make, not saved; ModelError where the series is too short."""
    series = useful_series(series)
    chosen = _chosen(section, sort)
    cut, model, forecaster, about = _fitted(section, series, chosen, seed, progress)
    return EventModelInUse(
        model,
        cast(Any, forecaster or model),
        series.kinds,
        series.bucket_s,
        about["threshold"],
        f"{FAMILY}-{chosen}",
        0,
        per_week=about["alarms_per_week"],
        trained_until_s=round(series.moment(cut - 1).timestamp()) + series.bucket_s,
    )


def _fitted(
    section: EventsSection, series: EventSeries, chosen: str, seed: int, progress: Progress
) -> tuple[int, SavedModel, SavedModel | None, dict[str, Any]]:
    """How many buckets were learnt from, the model, a forecaster for one that is none, and the threshold."""
    cut = round((1 - CALM_SHARE) * len(series))
    learnt = series.take(0, cut)
    model = make(chosen, seed=seed, sequence=_sequence(section)).fit(learnt, progress=progress)
    progress(0.9, "setting the threshold")
    about = _alarm_about(model, series, cut, section.alarms_per_week)
    if hasattr(model, "forecast"):
        return cut, model, None, about
    return cut, model, make(FORECAST, seed=seed, sequence=_sequence(section)).fit(learnt), about


def useful_series(series: EventSeries) -> EventSeries:
    """The series from its first seen bucket on, without kinds that never happened; ModelError where it is too short."""
    seen = np.flatnonzero(~series.is_gap)
    weeks = seen.size * series.bucket_s / 604_800
    if weeks < LEAST_WEEKS:
        raise ModelError(
            f"The site has {weeks:.1f} weeks of event counts; {LEAST_WEEKS:g} are needed to know a week from another.",
            hint="Take in more: stormpetrel ingest events --live (events.since says from when), or FILEs",
        )
    series = series.take(int(seen[0]), len(series))
    happened = tuple(kind for kind, total in zip(series.kinds, np.nansum(series.counts, axis=0), strict=True) if total > 0)
    if not happened:
        raise ModelError(
            "None of the kinds that the models look at has ever happened.", hint="Check events.kinds: stormpetrel events show"
        )
    return series.of_kinds(happened)


def _chosen(section: EventsSection, name: str | None) -> str:
    """The model that is asked for; `auto` is the best measured, which does with labels or without."""
    wanted = name or section.model
    return DEFAULT if wanted == "auto" else wanted


def _sequence(section: EventsSection) -> int:
    return max(2, round(section.sequence_hours * 60 / section.bucket_minutes))


def _alarm_about(model: EventModel, series: EventSeries, cut: int, per_week: float) -> dict[str, Any]:
    """The threshold, from the calm buckets of the newest part, which the model has not learnt from."""
    scores = model.score(series)[cut:]
    calm = ~np.isnan(scores) & calm_for_training(series)[cut:]
    if not calm.any():
        raise ModelError(
            "The newest quarter of the counts has no calm bucket to set the threshold on.",
            hint="Take in more counts, or check the labels: stormpetrel events label --list",
        )
    return {
        "threshold": threshold_for(scores, calm, series.bucket_s, per_week),
        "alarms_per_week": per_week,
        "calm_buckets": int(calm.sum()),
    }


def load_event_model(site: Site) -> EventModelInUse:
    """The event model in use; ModelError says how to make one where there is none."""
    return EVENTS.load(site)


class EventFamily(SiteFamily[EventModelInUse]):
    """Models of event counts: the one that raises alarms and, where it cannot say what was expected, a forecaster with it."""

    name = ModelFamily.EVENTS
    unit = Unit.BUCKETS
    metrics = ("threshold", "alarms_per_week", "calm_buckets")
    taken_up_by_watch = True

    def train_and_enter(self, site: Site, request: TrainingRequest) -> str:
        """Train the model that is named, or that of site.toml."""
        return train_event_model(site, request.sort, why=request.why, user=request.user, progress=request.progress).name

    def sort_of(self, training: Training) -> str:
        """The sort of the model that raises alarms; the default in place of one that this version no longer has."""
        sort = super().sort_of(training)
        return DEFAULT if sort in RETIRED else sort

    def formats(self) -> Mapping[str, int]:
        """Those of counts and of recurrent networks."""
        return {
            FORECAST_KIND: COUNT_FORMAT,
            COMBINED_KIND: COUNT_FORMAT,
            "events-supervised": RECURRENT_FORMAT,
        }

    def read(self, site: Site, training: Training) -> EventModelInUse:
        """The model and its forecaster."""
        entry = next((model for model in training.models if self.role_of(model) is Role.MODEL), training.models[0])
        about = entry.about
        try:
            kinds, bucket_s, threshold = tuple(map(str, about["kinds"])), int(about["bucket_s"]), float(about["threshold"])
            per_week = float(about["alarms_per_week"])
            last = datetime.fromisoformat(about["trained_until"])
        except (KeyError, TypeError, ValueError):
            raise incomplete_entry(training) from None
        model = load(site.models.verified_folder(entry.name, entry.version))
        forecast_entry = training.model(_FORECAST_NAME)
        forecaster: Any = (
            model if forecast_entry is None else load(site.models.verified_folder(forecast_entry.name, forecast_entry.version))
        )
        if not hasattr(forecaster, "forecast"):
            raise ModelFormatError(f"{training.name} has no model that says what was expected.", hint=how_to_train(FAMILY))
        until_s = round(last.timestamp()) + bucket_s
        return EventModelInUse(
            model, forecaster, kinds, bucket_s, threshold, entry.name, entry.version, per_week=per_week, trained_until_s=until_s
        )

    def rows_of(self, about: Mapping[str, Any]) -> int:
        """Buckets that were seen."""
        return int(about.get("buckets", 0))

    def summary_of(self, model: ModelVersion) -> str:
        """Buckets, and what the model does with them."""
        about = model.about
        if not {"buckets", "bucket_s", "threshold"} <= set(about):
            return ""
        if self.role_of(model) is Role.BESIDE:
            does = "says what is expected"
        else:
            does = f"alarms from a score of {about['threshold']:.3g} on"
        return f"{about['buckets']:,} buckets of {about['bucket_s'] // 60} min; {does}"


EVENTS: Final = EventFamily()
