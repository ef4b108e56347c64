"""Retraining: a new model takes the place of the one in use only if it is better on the same recent, unseen jobs.

Site -> retrain -> Retrained. A candidate is trained on what was known at a cut; candidate and current model then judge the jobs
submitted after it, which neither has seen. Only if the candidate is better is the same training repeated on everything up to now.
A moment that has no model yet gets one as soon as there are enough jobs: that replaces nothing, and is not compared.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import numpy as np
import polars as pl

from stormpetrel.errors import ModelError, ModelVersionError, NotEnoughJobsError
from stormpetrel.jobs.enough import counted_failed
from stormpetrel.jobs.moments import MOMENT_WORDS, MOMENTS, Moment
from stormpetrel.jobs.predictor import known_by
from stormpetrel.jobs.profiles import JobProfiles
from stormpetrel.jobs.training import Progress, TrainingSettings, silent
from stormpetrel.learn.metrics import Truth
from stormpetrel.lifecycle.comparison import Comparison, compare
from stormpetrel.lifecycle.family import operator
from stormpetrel.lifecycle.job_models import (
    FAMILY,
    JOBS,
    FittedModels,
    enter_job_models,
    fit_job_models,
    lacking_moments,
    load_fitted,
    other_models,
    training_settings,
)
from stormpetrel.lifecycle.training_needs import training_needs
from stormpetrel.records.jobs import never_started
from stormpetrel.records.states import FINISHED
from stormpetrel.store.models import ModelVersion, Training
from stormpetrel.store.site import Site

JUDGED_SHARE: Final = 0.2  # of the jobs since the training of the model in use, the latest: to judge both models on
MOST_JUDGED: Final = 0.5  # a candidate that has hardly seen more than the model in use says nothing
FEWEST_OF_A_CLASS: Final = 50  # failed jobs, and others, among the judged ones
RETRAIN: Final = "retrain"  # what stands in the audit trail


@dataclass(frozen=True, slots=True)
class Retrained:
    """What a retraining came to."""

    promoted: bool
    why: str  # one sentence for people
    training: str | None = None  # what was entered in the registry, current or not
    previous: str | None = None  # what was in use before
    comparisons: tuple[Comparison, ...] = ()


def retrain(
    site: Site,
    *,
    now: datetime,
    progress: Progress = silent,
    user: str | None = None,
    settings: TrainingSettings | None = None,
) -> Retrained:
    """Train on what has ended since the last time, and put the new models in use if they are better.

    StoreBusyError at once where another retraining runs. Killed at any moment it has changed nothing: models are entered and
    made current in one transaction at the very end.
    """
    with site.state.sole("training"):
        work = _Retraining(site, now, progress, user or operator(), settings or training_settings(site.settings))
        try:
            return work.run()
        except NotEnoughJobsError as error:
            return Retrained(promoted=False, why=f"not trained: {error.what}")


def last_attempt(site: Site) -> datetime | None:
    """Up to when the last training looked at jobs, whether it was put in use or not; None where there was none."""
    return max((_looked_until(training) for training in site.models.trainings(FAMILY)), default=None)


def ended_since(site: Site, since: datetime | None, *, until: datetime) -> int:
    """How many jobs that ran have ended in a span of time; cheap."""
    ended = pl.col("state").is_in([str(state) for state in FINISHED]) & (pl.col("end_time") <= until) & ~never_started()
    if since is not None:
        ended &= pl.col("end_time") > since
    return int(site.jobs.read_jobs().filter(ended).select(pl.len()).collect().item())


@dataclass(frozen=True, slots=True)
class _Retraining:
    """One retraining: its site, its moment, and how to train."""

    site: Site
    now: datetime
    progress: Progress
    user: str
    settings: TrainingSettings

    def run(self) -> Retrained:
        """Enough new jobs? → a candidate → compared with the model in use → trained on everything, or left at that."""
        current = self.site.models.current_training(FAMILY)
        if current is None:
            return self._put_in_use("the first model of this site")
        problem = JOBS.format_problem(self.site, current)
        if isinstance(problem, ModelVersionError):  # a newer version is at work here: it is not for us to replace its model
            return Retrained(promoted=False, why=f"not trained: {problem.what}", previous=current.name)
        idle = None if problem or self._new_moments(current) else self._too_early()
        if idle:
            return Retrained(promoted=False, why=idle, previous=current.name)
        jobs = known_by(self.site.jobs.read_jobs(until=self.now).collect(), self.now)
        try:
            in_use = load_fitted(self.site, current)
            if new := self._new_moments(current):
                return self._put_in_use(_new_words(new), current, jobs, moments=new)
            cut = self._cut(jobs, current)
            if isinstance(cut, str):
                return Retrained(promoted=False, why=cut, previous=current.name)
            self.progress("a candidate")
            candidate = fit_job_models(self.site, until=cut, jobs=jobs, settings=self.settings, progress=self.progress)
            self.progress("comparing it with the model in use")
            compared = compare(candidate, in_use, jobs, cut=cut, now=self.now, settings=self.settings)
        except NotEnoughJobsError:
            raise
        except ModelError as error:  # damaged, or of another release that knew other columns: whatever is new is better
            return self._put_in_use(f"{current.name} can no longer be used: {error.what}", current, jobs)
        return self._decide(candidate, current, jobs, cut, compared)

    def _new_moments(self, current: Training) -> tuple[Moment, ...]:
        """Moments that have no model yet and enough jobs for one."""
        lacking = lacking_moments(current)
        return training_needs(self.site, self.settings, until=self.now).able(lacking) if lacking else ()

    def _too_early(self) -> str | None:
        last = last_attempt(self.site)
        ended, wanted = ended_since(self.site, last, until=self.now), self.site.settings.watch.retrain_min_jobs
        if ended >= wanted:
            return None
        how_many = f"only {ended:,} jobs have" if ended > 1 else "one job has" if ended else "no job has"
        return f"not trained: {how_many} ended since the last training ({_minute(last)}); watch.retrain_min_jobs is {wanted:,}"

    def _cut(self, jobs: pl.DataFrame, current: Training) -> datetime | str:
        """Between the jobs to learn from and those to judge on, all of them new to the model in use; or why there is none."""
        new = jobs.filter(pl.col("submit_time") > current.trained_until).sort("submit_time")
        new = new.select("submit_time", counted_failed(self.settings)).drop_nulls()
        truth = new["failed"].to_numpy()
        judged = _judged(truth)
        if judged > MOST_JUDGED * truth.size:
            need = int(FEWEST_OF_A_CLASS / MOST_JUDGED)
            return (
                f"not trained: too few jobs to tell which model is better. Of {truth.size:,} submitted since "
                f"{_minute(current.trained_until)} and over, {int(truth.sum()):,} failed; about {need} failed and {need} others "
                "are needed"
            )
        first = new["submit_time"][truth.size - judged]
        assert isinstance(first, datetime)
        return first - timedelta(microseconds=1)

    def _decide(
        self, candidate: FittedModels, current: Training, jobs: pl.DataFrame, cut: datetime, compared: Sequence[Comparison]
    ) -> Retrained:
        with_whom = {"with": current.name, "since": cut.isoformat(), "until": self.now.isoformat()}
        about = {f"{FAMILY}-{one.moment}": {"comparison": {**asdict(one), **with_whom}} for one in compared}
        first, worse = compared[0], next((one for one in compared if one.worse), None)
        on = f"on {first.jobs:,} jobs of the last {_span(self.now - cut)}"
        if first.better and worse is None:
            return self._put_in_use(f"better {on}: {first.words()}", current, jobs, about, compared)
        deciding = worse or first
        why = f"{'worse' if worse else 'not clearly better'} at '{deciding.moment}' {on}: {deciding.words()}"
        entered = enter_job_models(self.site, candidate, why=why, about=about)
        return Retrained(False, why, entered.name, current.name, tuple(compared))

    def _put_in_use(
        self,
        why: str,
        current: Training | None = None,
        jobs: pl.DataFrame | None = None,
        about: Mapping[str, Mapping[str, Any]] | None = None,
        compared: Sequence[Comparison] = (),
        moments: Collection[Moment] = MOMENTS,
    ) -> Retrained:
        """Train these moments on everything that is known now, and make it current; models of others stay in use."""
        self.progress("on everything up to now")
        profiles, carried = self._kept(current, jobs, moments)
        fitted = fit_job_models(
            self.site, moments, until=self.now, jobs=jobs, settings=self.settings, profiles=profiles, progress=self.progress
        )
        self.progress("saving")
        before = current.name if current else None
        with self.site.state.writer_lock():
            now_current = self.site.models.current_training(FAMILY)
            if now_current is not None and now_current.name != before:  # somebody decided while we trained
                why = f"{why}; but {now_current.name} was put in use meanwhile"
                entered = enter_job_models(self.site, fitted, why=why, about=about, carried=carried)
                return Retrained(False, entered.why, entered.name, now_current.name, tuple(compared))
            entered = enter_job_models(
                self.site, fitted, why=why, about=about, carried=carried, promoted_by=self.user, action=RETRAIN
            )
        return Retrained(True, entered.why, entered.name, before, tuple(compared))

    def _kept(
        self, current: Training | None, jobs: pl.DataFrame | None, moments: Collection[Moment]
    ) -> tuple[JobProfiles | None, list[ModelVersion]]:
        """Models in use of moments that are not trained now, or for which too few jobs are left; and the profiles they read."""
        able = training_needs(self.site, self.settings, until=self.now, jobs=jobs).able(moments)
        carried = other_models(current, able)
        if current is None or not carried or not able:
            return None, []
        try:
            return load_fitted(self.site, current).profiles, carried
        except ModelError:  # they cannot be read any more: nothing of them is worth keeping
            return None, []


def _judged(truth: Truth) -> int:
    """How many of the latest jobs to judge on: a fifth, or as many as it takes to have enough failed ones and others."""
    from_the_end = truth[::-1]
    enough = (np.cumsum(from_the_end) >= FEWEST_OF_A_CLASS) & (np.cumsum(~from_the_end) >= FEWEST_OF_A_CLASS)
    if not enough.any():
        return truth.size + 1
    return max(int(np.argmax(enough)) + 1, int(np.ceil(JUDGED_SHARE * truth.size)))


def _new_words(moments: Collection[Moment]) -> str:
    return f"the first model {' and '.join(MOMENT_WORDS[moment] for moment in moments)}; the others stay as they are"


def _looked_until(training: Training) -> datetime:
    """A candidate that was not put in use had been trained up to a cut, but later jobs were looked at as well."""
    compared = [model.about["comparison"] for model in training.models if "comparison" in model.about]
    judged = [datetime.fromisoformat(str(comparison["until"])) for comparison in compared]
    return max([training.trained_until, *judged])


def _minute(moment: datetime | None) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC" if moment else "never"


def _span(span: timedelta) -> str:
    hours = span.total_seconds() / 3600
    return f"{hours:.0f} hours" if hours < 48 else f"{hours / 24:.0f} days"
