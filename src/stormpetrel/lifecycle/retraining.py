"""Retraining: a new model takes the place of the one in use only if it is better on the same recent, unseen jobs.

Site -> retrain -> Retrained. A candidate is trained on what was known at a cut; candidate and current model then judge the jobs
submitted after it, which neither has seen. Only if the candidate is better is the same training repeated on everything up to now.
A moment that has no model yet gets one as soon as there are enough jobs: that replaces nothing, and is not compared.
compare gives the difference of the log losses of both and its interval, jobs of a group resampled together.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

import numpy as np
import polars as pl

from stormpetrel.engine import Progress as ShareProgress
from stormpetrel.errors import ModelError, ModelVersionError, NotEnoughJobsError
from stormpetrel.jobs.features import matrix_of
from stormpetrel.jobs.history.history import event_times
from stormpetrel.jobs.moments import MOMENT_LABELS, MOMENTS, Moment
from stormpetrel.jobs.predictor import JobPredictor, known_by
from stormpetrel.jobs.profiles import JobProfiles
from stormpetrel.jobs.training import LabelledJobs, Progress, TrainingSettings, counted_failed, label_jobs, silent
from stormpetrel.learn.metrics import Truth, expected_calibration_error, pr_auc
from stormpetrel.lifecycle.contests.decision import (
    LEVEL,
    difference_of,
    level_for,
    night_engine,
    span_name,
    spans_of,
    worse_groups,
)
from stormpetrel.lifecycle.family import operator
from stormpetrel.lifecycle.job_models import (
    FAMILY,
    JOBS,
    FittedModels,
    about_training,
    enter_job_models,
    fit_job_models,
    fit_labelled,
    lacking_moments,
    load_fitted,
    other_models,
    training_settings,
)
from stormpetrel.lifecycle.job_telemetry import FEWEST_JOBS, with_telemetry
from stormpetrel.lifecycle.training_needs import training_needs
from stormpetrel.records.arrays import Floats
from stormpetrel.records.jobs import never_started
from stormpetrel.records.states import FINISHED
from stormpetrel.store.registry.models import ModelVersion, Training
from stormpetrel.store.site import Site

_SMALLEST_RISK: Final = 1e-6  # no forecast is surer than this: one surprise must not decide everything


@dataclass(frozen=True, slots=True)
class Comparison:
    """A candidate against the model in use at one moment, on the same jobs; lower log loss is better."""

    moment: str
    jobs: int
    failed: int
    log_loss: float
    log_loss_current: float
    difference_low: float  # interval of: log loss of the candidate − that of the model in use
    difference_high: float
    pr_auc: float | None
    pr_auc_current: float | None
    ece: float = 0.0
    ece_current: float = 0.0
    large_groups: int = 0  # users with many judged jobs
    worse_groups: int = 0  # those of them for whom the candidate is worse beyond noise; who they are is nobody's business
    learn_days: float = 0.0  # the span that the candidate learnt from; 0: everything

    @property
    def better(self) -> bool:
        """Whether the candidate is better beyond noise."""
        return self.difference_high < 0

    @property
    def worse(self) -> bool:
        """Whether the candidate is worse beyond noise."""
        return self.difference_low > 0

    def words(self) -> str:
        """The figures in words."""
        loss = f"log loss {_decimals(self.log_loss, 3)} against {_decimals(self.log_loss_current, 3)}"
        loss += f", calibration error {_decimals(self.ece, 3)} against {_decimals(self.ece_current, 3)}"
        if self.pr_auc is None or self.pr_auc_current is None:
            return loss
        return f"PR area {_decimals(self.pr_auc, 2)} against {_decimals(self.pr_auc_current, 2)}, {loss}"


def compare(
    candidate: FittedModels,
    current: FittedModels,
    jobs: pl.DataFrame,
    *,
    cut: datetime,
    now: datetime,
    settings: TrainingSettings,
    level: float = LEVEL,
    fewest_of_group: int = 50,
) -> list[Comparison]:
    """Both on the jobs submitted after the cut and ended by now, at each moment that both know, in the order of a job's life.

    `level` is that of the intervals, higher where several candidates are looked at; users with `fewest_of_group` judged jobs or
    more are large groups.
    """
    new, old = (forecasts_after(fitted, jobs, cut=cut, now=now) for fitted in (candidate, current))
    truth = new.select(counted_failed(settings), "user", day=pl.col("submit_time").dt.truncate("1d"))
    comparisons = []
    for moment in (str(moment) for moment in MOMENTS):
        if moment in new.columns and moment in old.columns:
            rows = truth.with_columns(new=new[moment], old=old[moment]).drop_nulls(["failed", "new", "old"])
            if rows.height:
                comparisons.append(_compared(moment, rows, level, fewest_of_group, settings.learn_days))
    if not comparisons:
        raise NotEnoughJobsError("there is no job that both the candidate and the model in use could judge.")
    return comparisons


def forecasts_after(fitted: FittedModels, jobs: pl.DataFrame, *, cut: datetime, now: datetime) -> pl.DataFrame:
    """The jobs submitted after the cut, with a column per moment: the risk as it would have been shown, null if never.

    On the path of the live loop: history as it was known at the cut, then moved on event by event.
    """
    predictor = JobPredictor(fitted.models, fitted.profiles, jobs, now=cut)
    open_then = pl.col("end_time").is_null() | (pl.col("end_time") >= cut)
    later = jobs.filter(open_then).sort("submit_time", "job_id", "array_task", maintain_order=True)
    happened = event_times(later)
    done = happened < cut.timestamp()
    done[:, 0] |= happened[:, 0] == cut.timestamp()  # at equal times submissions are known, and nothing else
    profiled = predictor.profiled(later)
    history, zone = predictor.history, predictor.time_zone
    advanced = history.advance(profiled, done, since=cut.timestamp(), until=now.timestamp(), moments=MOMENTS)
    submitted_later = (later["submit_time"] > cut).to_numpy()
    columns = []
    for column, moment in enumerate(MOMENTS):
        if moment in fitted.models:
            rows = np.flatnonzero(submitted_later & advanced.due[:, column])
            features = matrix_of(profiled, advanced.readings, history, moment, time_zone=zone).rows(rows)
            risks = np.full(later.height, np.nan)
            risks[rows] = fitted.models[moment].risk(features)
            columns.append(pl.Series(str(moment), risks).fill_nan(None))
    return later.with_columns(columns).filter(submitted_later)


def _compared(moment: str, rows: pl.DataFrame, level: float, fewest: int, learn_days: float) -> Comparison:
    truth, new, old = (rows[name].to_numpy() for name in ("failed", "new", "old"))
    loss, loss_current = _log_losses(truth, new), _log_losses(truth, old)
    # One user's jobs of one day stand or fall together: they are drawn together.
    group = rows.select(pl.struct("user", "day").rank("dense") - 1).to_series().to_numpy()
    difference = difference_of(loss - loss_current, group, level=level)
    worse, large = worse_groups(loss - loss_current, rows["user"].fill_null("").to_numpy(), group, fewest=fewest)
    return Comparison(
        moment=moment,
        jobs=rows.height,
        failed=int(truth.sum()),
        log_loss=float(loss.mean()),
        log_loss_current=float(loss_current.mean()),
        difference_low=difference.low,
        difference_high=difference.high,
        pr_auc=pr_auc(truth, new),
        pr_auc_current=pr_auc(truth, old),
        ece=expected_calibration_error(truth, new),
        ece_current=expected_calibration_error(truth, old),
        large_groups=large,
        worse_groups=len(worse),
        learn_days=learn_days,
    )


def _log_losses(truth: Truth, risk: Floats) -> Floats:
    sure = np.clip(risk, _SMALLEST_RISK, 1 - _SMALLEST_RISK)
    return -np.log(np.where(truth, sure, 1 - sure))


def _decimals(value: float, places: int) -> str:
    """A share without its leading zero: .61."""
    return f"{value:.{places}f}".removeprefix("0")


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
    return max((_examined_until(training) for training in site.models.trainings(FAMILY)), default=None)


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
        jobs = with_telemetry(self.site, jobs, fewest=FEWEST_JOBS)
        try:
            in_use = load_fitted(self.site, current)
            if new := self._new_moments(current):
                return self._put_in_use(_new_text(new), current, jobs, moments=new)
            cut = self._cut(jobs, current)
            if isinstance(cut, str):
                return Retrained(promoted=False, why=cut, previous=current.name)
            candidate, compared = self._best_candidate(in_use, jobs, cut)
        except NotEnoughJobsError:
            raise
        except ModelError as error:  # damaged, or of another release that knew other columns: whatever is new is better
            return self._put_in_use(f"{current.name} can no longer be used: {error.what}", current, jobs)
        return self._decide(candidate, current, jobs, cut, compared)

    def _best_candidate(
        self, in_use: FittedModels, jobs: pl.DataFrame, cut: datetime
    ) -> tuple[FittedModels, Sequence[Comparison]]:
        """Of the candidates of each span (the last day, the last week, everything) the one with the lowest log loss.

        One that has too few jobs to learn from does not compete. As many candidates, as much wider the intervals.
        """
        wanted = self.site.settings.nightly
        known = known_by(jobs, cut)
        able = training_needs(self.site, self.settings, until=cut, jobs=known).able(MOMENTS)
        labelled = label_jobs(with_telemetry(self.site, known, fewest=FEWEST_JOBS), self.settings, able) if able else None
        needs = training_needs(self.site, self.settings, until=cut, jobs=known)
        able = needs.able(MOMENTS)
        if not able:
            raise needs.refusal(needs.missing(MOMENTS))
        labelled = label_jobs(with_telemetry(self.site, known, fewest=FEWEST_JOBS), self.settings, able)
        spans, first_end = list(spans_of(wanted.learn_days, cut)), _first_end(known)
        judge = partial(compare, cut=cut, now=self.now, level=level_for(len(spans)), fewest_of_group=wanted.group_rows)
        work = _Challenge(self.settings, able, labelled, about_training(self.site, cut) | {"answers": 0}, in_use, jobs, judge)
        # One that reaches back to the first job is the same as everything.
        entrants = [days for days, since in spans if since is None or since > first_end]
        results = night_engine(self.site).map(
            work, entrants, name=_candidate_name, progress=lambda _share, text: self.progress(text)
        )
        candidates, refusals = [], ["there are too few jobs to learn from."]
        for result in results:
            if isinstance(result, str):
                refusals.append(result)
            else:
                candidates.append(result)
        if not candidates:
            raise NotEnoughJobsError(refusals[-1])
        return min(candidates, key=lambda pair: pair[1][0].log_loss)

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
        about = {f"{FAMILY}-{comparison.moment}": {"comparison": {**asdict(comparison), **with_whom}} for comparison in compared}
        first, worse = compared[0], next((comparison for comparison in compared if comparison.worse), None)
        on = f"on {first.jobs:,} jobs of the last {_span(self.now - cut)}"
        days, unfair = first.learn_days, next((comparison for comparison in compared if comparison.worse_groups), None)
        learnt = "" if not days else f"learnt from {span_name(days)}, "
        if first.better and worse is None and unfair is None:
            put = replace(self, settings=replace(self.settings, learn_days=days))
            return put._put_in_use(f"{learnt}better {on}: {first.words()}", current, jobs, about, compared)
        deciding = worse or (unfair if first.better and unfair else first)
        problem = "worse" if worse else "not clearly better"
        if deciding is unfair and unfair is not None and not worse:
            problem = (
                f"worse for {unfair.worse_groups} of {unfair.large_groups} users with many jobs, although better on the whole,"
            )
        why = f"{learnt}{problem} at '{deciding.moment}' {on}: {deciding.words()}"
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


@dataclass(frozen=True, slots=True, eq=False)
class _Challenge:
    """Fits the candidate of a span, and compares it with the model in use; in words why not, where there are too few jobs.

    It needs no site: what it reads goes to the worker with it, and the models come back.
    """

    settings: TrainingSettings
    moments: tuple[Moment, ...]
    labelled: LabelledJobs
    about: Mapping[str, Any]
    in_use: FittedModels
    jobs: pl.DataFrame
    judge: Callable[..., list[Comparison]]

    def __call__(self, days: float, progress: ShareProgress) -> tuple[FittedModels, list[Comparison]] | str:
        settings = replace(self.settings, learn_days=days)
        try:
            candidate = fit_labelled(self.labelled, self.moments, settings, self.about, progress=lambda text: progress(0.0, text))
            progress(0.9, "comparing it with the model in use")
            return candidate, self.judge(candidate, self.in_use, self.jobs, settings=settings)
        except NotEnoughJobsError as error:
            return error.what


def _candidate_name(days: float) -> str:
    return f"a candidate of {span_name(days)}"


def _judged(truth: Truth) -> int:
    """How many of the latest jobs to judge on: a fifth, or as many as it takes to have enough failed ones and others."""
    from_the_end = truth[::-1]
    enough = (np.cumsum(from_the_end) >= FEWEST_OF_A_CLASS) & (np.cumsum(~from_the_end) >= FEWEST_OF_A_CLASS)
    if not enough.any():
        return truth.size + 1
    return max(int(np.argmax(enough)) + 1, int(np.ceil(JUDGED_SHARE * truth.size)))


def _first_end(jobs: pl.DataFrame) -> datetime:
    first = jobs["end_time"].min()
    return first if isinstance(first, datetime) else datetime.max.replace(tzinfo=UTC)


def _new_text(moments: Collection[Moment]) -> str:
    return f"the first model {' and '.join(MOMENT_LABELS[moment] for moment in moments)}; the others stay as they are"


def _examined_until(training: Training) -> datetime:
    """A candidate that was not put in use had been trained up to a cut, but later jobs were looked at as well."""
    compared = [model.about["comparison"] for model in training.models if "comparison" in model.about]
    judged = [datetime.fromisoformat(str(comparison["until"])) for comparison in compared]
    return max([training.trained_until, *judged])


def _minute(moment: datetime | None) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC" if moment else "never"


def _span(span: timedelta) -> str:
    hours = span.total_seconds() / 3600
    return f"{hours:.0f} hours" if hours < 48 else f"{hours / 24:.0f} days"
