"""The nightly contest of event models: who sees more of the outages in recent counts, within the same budget of alarms.

Site -> contest_events -> FamilyNight. Judged by recall at the budget: of the outages that people have labelled in the judged
part, or, where these are few, of outages injected into it by several seeds. Each model's threshold comes from its own calm
counts, which the judged part does not contain. An event model needs three weeks to know a week from another: spans of a day
or a week do not compete, only the last eight weeks and everything. The winner is trained again on everything up to now.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from importlib.util import find_spec
from operator import itemgetter
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from stormpetrel.config import EventsSection
from stormpetrel.engine import Progress, no_progress
from stormpetrel.errors import ModelError, ModelOutdatedError, UsageError
from stormpetrel.events.alarm_budget import episodes
from stormpetrel.events.contract import EventModel
from stormpetrel.events.event_metrics import TestOutage, outages_in
from stormpetrel.lifecycle.contests.decision import FamilyNight, difference_of, level_for, night_engine, worse_groups
from stormpetrel.lifecycle.event_models import (
    EVENTS,
    FAMILY,
    EventModelInUse,
    fit_event_model,
    newest_weeks,
    train_event_model,
    useful_series,
)
from stormpetrel.lifecycle.family import operator
from stormpetrel.lifecycle.frozen_spans import learning_labels, learning_series
from stormpetrel.records.event_series import HOUR_S, WEEK_S, EventSeries
from stormpetrel.simulate.grid.outages import inject, plan_outages
from stormpetrel.store.registry.models import Training
from stormpetrel.store.site import Site

NIGHTLY: Final = "nightly"  # what stands in the audit trail
JUDGED: Final = timedelta(days=7)
RECENT_WEEKS: Final = 8
PLANS: Final = 10  # of injected outages, each with a seed of its own
PER_WEEK: Final = 4.0  # injected outages
FEWEST_LABELLED: Final = 10  # outages that people labelled in the judged part; with fewer, some are injected
FEWEST_OF_TYPE: Final = 10
_MORE_FALSE_ALARMS: Final = 2  # than the champion or the budget allow, in the judged part


@dataclass(frozen=True, slots=True, eq=False)
class Watched:
    """What a model would have raised: which outages it caught, and episodes of false alarm in the untouched counts."""

    caught: NDArray[np.bool_]
    false_alarms: int

    def figures(self) -> dict[str, Any]:
        """As the registry and JSON keep them."""
        return {"recall": float(self.caught.mean()), "outages": int(self.caught.size), "false_alarms": self.false_alarms}


def contest_events(site: Site, *, now: datetime, user: str | None = None, progress: Progress = no_progress) -> FamilyNight | None:
    """Train challengers on the counts before the last week, and put one in use that sees more; None without event counts."""
    if not site.event_counts.sources():
        return None
    current = site.models.current_training(FAMILY)
    before = current.name if current else None
    problem = EVENTS.format_problem(site, current) if current else None
    outdated = isinstance(problem, ModelOutdatedError)
    if problem is not None and not outdated:  # a newer version is at work here: it is not for us to replace its model
        return FamilyNight(FAMILY, False, f"not trained: {problem.what}", previous=before)
    work = _Contest(site, user or operator(), progress)
    try:
        if current is None or outdated:
            return work.first(current)
        return work.run(current, now)
    except (ModelError, UsageError) as error:
        return FamilyNight(FAMILY, False, f"not trained: {error.what}", previous=before)


@dataclass(frozen=True, slots=True)
class _Contest:
    site: Site
    user: str
    progress: Progress

    def first(self, current: Training | None) -> FamilyNight:
        """Train without a comparison: there is nothing that could be compared with."""
        sort = EVENTS.sort_of(current) if current else None
        why = f"{current.name} was saved by an earlier version" if current else "the first model"
        training = train_event_model(self.site, sort, why=why, user=self.user, progress=self.progress)
        return FamilyNight(FAMILY, True, why, training.name, current.name if current else None)

    def run(self, current: Training, now: datetime) -> FamilyNight:
        """Enough new counts? → challengers → judged beside the champion → trained on everything, or left at that."""
        champion = EVENTS.read(self.site, current)
        series = useful_series(learning_series(self.site)).of_kinds(champion.kinds)
        if not self._has_reason(current, now):
            why = "not trained: it is less than a day old, and nobody has labelled anything since"
            return FamilyNight(FAMILY, False, why, previous=current.name)
        cut = len(series) - round(JUDGED.total_seconds() / series.bucket_s)
        plans, is_labelled = _plans(series, cut)
        own = _watched(champion.model, champion.threshold, series, cut, plans)
        whole_s = cut * series.bucket_s
        entrants = [entrant for entrant in self._challengers(champion) if entrant[2] * WEEK_S < whole_s]  # else: no more weeks
        fit = _Challenge(self.site.settings.events, series, cut, plans)
        results = list(night_engine(self.site).map(fit, entrants, name=itemgetter(0), progress=self.progress))
        names = [entrant for entrant, result in zip(entrants, results, strict=True) if result is not None]
        watched = [result for result in results if result is not None]
        if not names:
            return FamilyNight(FAMILY, False, "not trained: too few weeks before the last one", previous=current.name)
        return self._decide(current, own, names, watched, plans, "labelled" if is_labelled else "injected")

    def _has_reason(self, current: Training, now: datetime) -> bool:
        """A day has passed since the last training of events, in use or not, or labels have changed."""
        last = max(datetime.fromisoformat(training.created) for training in self.site.models.trainings(FAMILY))
        ended = sum(1 for outage in learning_labels(self.site) if outage.end is not None)
        return now - last >= timedelta(days=1) or ended != int(current.models[0].about.get("labels", 0))

    def _challengers(self, champion: EventModelInUse) -> Iterator[tuple[str, str, int]]:
        own = champion.name.removeprefix(f"{FAMILY}-")
        for sort in dict.fromkeys([own, *self.site.settings.nightly.event_models]):
            if sort == "supervised" and find_spec("torch") is None:
                continue
            for weeks in (0, RECENT_WEEKS):
                yield f"{sort}, {f'{weeks} weeks' if weeks else 'everything'}", sort, weeks

    def _decide(
        self,
        current: Training,
        own: Watched,
        names: Sequence[tuple[str, str, int]],
        watched: Sequence[Watched],
        plans: Sequence[tuple[EventSeries, Sequence[TestOutage]]],
        which: str,
    ) -> FamilyNight:
        """The challenger that catches most, if it is better beyond noise, no less calm, and worse on no kind of outage."""
        figures = tuple(
            {"name": name, **result.figures(), "champion": own.figures()}
            for (name, _, _), result in zip(names, watched, strict=True)
        )
        best = max(range(len(names)), key=lambda number: (watched[number].caught.mean(), -watched[number].false_alarms))
        (name, sort, weeks), result = names[best], watched[best]
        types = [outage.outage_type for _, outages in plans for outage in outages]
        place = np.arange(len(types))
        missed = own.caught.astype(np.float64) - result.caught
        difference = difference_of(missed, place, level=level_for(len(names)))
        budget = self.site.settings.events.alarms_per_week
        reason = None if difference.better else "not clearly better"
        if result.false_alarms > max(own.false_alarms, budget) + _MORE_FALSE_ALARMS:
            reason = f"{result.false_alarms} false alarms in the judged week against {own.false_alarms}"
        worse, _ = worse_groups(missed, types, place, fewest=FEWEST_OF_TYPE)
        if reason is None and worse:
            reason = f"better on the whole, worse at {', '.join(worse[:3])}"
        figures_text = (
            f"{result.caught.mean():.0%} of {len(types)} {which} outages of the last week caught against {own.caught.mean():.0%}"
        )
        why = f"{name}: {reason or 'better'}: {figures_text}, {result.false_alarms} false alarms against {own.false_alarms}"
        if result.caught.mean() < own.caught.mean():  # nothing that anybody would want to look at
            return FamilyNight(FAMILY, False, why, previous=current.name, challengers=figures)
        about = {"comparison": {**figures[best], "with": current.name, "difference": difference.as_dict()}}
        training = train_event_model(
            self.site, sort, weeks=weeks, why=why, about=about, promote=False, action=NIGHTLY, progress=self.progress
        )
        if reason is None:
            with self.site.state.writer_lock():
                now_current = self.site.models.current_training(FAMILY)
                if now_current is not None and now_current.name == current.name:  # nobody decided while we trained
                    self.site.models.promote_training(training.name, user=self.user, action=NIGHTLY)
                    return FamilyNight(FAMILY, True, why, training.name, current.name, figures)
            why = f"{why}; but another was put in use meanwhile"
        return FamilyNight(FAMILY, False, why, training.name, current.name, figures)


@dataclass(frozen=True, slots=True, eq=False)
class _Challenge:
    """Trains a challenger before the judged part, and tells what it would have raised there; None where it cannot be trained."""

    section: EventsSection
    series: EventSeries
    cut: int
    plans: Sequence[tuple[EventSeries, Sequence[TestOutage]]]

    def __call__(self, entrant: tuple[str, str, int], progress: Progress) -> Watched | None:
        _, sort, weeks = entrant
        learnt = newest_weeks(self.series.take(0, self.cut), weeks)
        try:
            model = fit_event_model(self.section, learnt, sort=sort, progress=progress)
        except ModelError:
            return None
        return _watched(model.model, model.threshold, self.series.of_kinds(model.kinds), self.cut, self.plans)


def _plans(series: EventSeries, cut: int) -> tuple[list[tuple[EventSeries, Sequence[TestOutage]]], bool]:
    """The series with outages in its judged part, and where they are: labelled ones, or injected by several seeds."""
    labelled = [
        TestOutage(outage.first - cut, outage.last - cut, outage.outage_type, outage.severity)
        for outage in outages_in(series)
        if outage.first >= cut
    ]
    if len(labelled) >= FEWEST_LABELLED:
        return [(series, labelled)], True
    if series.bucket_s != HOUR_S:
        raise UsageError("outages can be injected into counts per hour only, and too few are labelled to compare by.")
    late = series.take(cut, len(series))
    plans: list[tuple[EventSeries, Sequence[TestOutage]]] = []
    for seed in range(PLANS):
        plan = plan_outages(len(late), per_week=PER_WEEK, seed=seed, avoid=late.is_gap)
        outages = [TestOutage(each.first, each.last - 1, each.outage_type, each.severity) for each in plan]
        plans.append((_joined(series, cut, inject(late, plan)), outages))
    return plans, False


def _joined(series: EventSeries, cut: int, late: EventSeries) -> EventSeries:
    """The series with another judged part."""
    counts, label = series.counts.copy(), series.label.copy()
    counts[cut:], label[cut:] = late.counts, late.label
    return replace(series, counts=counts, label=label)


def _watched(
    model: EventModel,
    threshold: float,
    series: EventSeries,
    cut: int,
    plans: Sequence[tuple[EventSeries, Sequence[TestOutage]]],
) -> Watched:
    caught = []
    for changed, outages in plans:
        alarm = np.nan_to_num(model.score(changed.of_kinds(series.kinds).unlabelled())[cut:], nan=-np.inf) > threshold
        caught += [bool(alarm[outage.first : outage.last + 1].any()) for outage in outages]
    calm = np.nan_to_num(model.score(series.unlabelled())[cut:], nan=-np.inf) > threshold
    return Watched(np.array(caught, dtype=bool), len(episodes(calm, series.bucket_s)))
