"""The predictor: models of all moments over one history, for jobs as they stand now.

past jobs + models -> JobPredictor; job frame -> risk, outcomes, reasons.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stormpetrel.errors import ModelError
from stormpetrel.jobs.features import FeatureMatrix, features_now
from stormpetrel.jobs.history.history import History, in_order
from stormpetrel.jobs.model import JobOutcomeModel
from stormpetrel.jobs.moments import TWO_MINUTES_S, Moment
from stormpetrel.jobs.outcomes import OUTCOMES
from stormpetrel.jobs.profiles import JobProfiles, with_profile
from stormpetrel.jobs.reasons import Reason, count_reasons, reasons, risk_at
from stormpetrel.records.states import UNFINISHED


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on one job at one moment."""

    moment: Moment
    risk: float
    flagged: bool
    threshold: float  # from which a risk is flagged
    known: bool
    outcomes: Mapping[str, float]
    reasons: tuple[Reason, ...]
    base: float  # log-odds before anything is known; NaN where no reasons were requested
    profile: str | None  # in words
    failures: tuple[str, ...] = OUTCOMES  # which of the outcomes are failures
    more_reasons: int = 0  # weaker ones, that were not asked for

    @property
    def likeliest(self) -> str | None:
        """The outcome that a failure would most likely be; None where the model cannot tell them apart."""
        failed = [name for name in self.outcomes if name in self.failures]
        return max(failed, key=lambda name: self.outcomes[name]) if failed else None

    @property
    def base_risk(self) -> float:
        """The risk before anything is known about the job: that of the average job; NaN where no reasons were requested."""
        return risk_at(self.base)


class JobPredictor:
    """Models and history together; the history is empty where no `past` is passed."""

    def __init__(
        self,
        models: Mapping[Moment, JobOutcomeModel],
        profiles: JobProfiles,
        past: pl.DataFrame | None = None,
        *,
        now: datetime | None = None,
        threshold: float = 0.0,
        versions: Mapping[Moment, int] | None = None,
    ) -> None:
        self.models = models
        self.versions = dict(versions or {})  # of the models, in the registry they came from
        self.profiles = profiles
        self._descriptions: dict[int, str] = {}  # of profiles, once they have been requested
        self._threshold = threshold
        self.thresholds: dict[Moment, float] = {}  # that settled predictions have moved, in place of the models' own
        self.flags_left: dict[Moment, int] = {}  # of this day's budget; a moment that is not in it has none
        about = next(iter(models.values())).metadata
        self.time_zone = str(about.get("time_zone", "UTC"))
        self.history = History(
            failure_states=tuple(about.get("failure_states", ())) or History().failure_states,
            dropped_states=tuple(about.get("dropped_states", ())),
            stand_in=dict(about.get("stand_in", {})),
            similar_names=bool(about.get("similar_names", False)),
        )
        if past is not None and now is not None:
            self.history.sweep(self.profiled(in_order(known_by(past, now))))

    @property
    def is_prior(self) -> bool:
        """Whether general experience speaks, and no model of this site."""
        return any(version < 0 for version in self.versions.values())

    def profiled(self, jobs: pl.DataFrame) -> pl.DataFrame:
        """The jobs with the profile of their request."""
        return with_profile(jobs, self.profiles, dict(self.history.stand_in or {}))

    def features(self, jobs: pl.DataFrame, moment: Moment, now: datetime) -> FeatureMatrix:
        """What is known about these jobs now."""
        return self._features(self.profiled(jobs), moment, now)

    def _features(self, profiled: pl.DataFrame, moment: Moment, now: datetime) -> FeatureMatrix:
        at = np.full(profiled.height, now.timestamp())
        return features_now(profiled, self.history, moment, at, time_zone=self.time_zone)

    def risk(self, jobs: pl.DataFrame, moment: Moment, now: datetime) -> NDArray[np.float64]:
        """The probability that each of these jobs fails."""
        return self._model(moment).risk(self.features(jobs, moment, now))

    def threshold_at(self, moment: Moment) -> float:
        """The risk from which a job is flagged."""
        return self._threshold or self.thresholds.get(moment) or self._model(moment).threshold

    def flags_of(self, moment: Moment, risks: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Which of these jobs are flagged; where a budget is nearly spent, the riskiest of them, and it is less afterwards."""
        flagged = risks >= self.threshold_at(moment)
        if moment not in self.flags_left or not flagged.any():
            return np.asarray(flagged)
        order = np.argsort(-np.where(flagged, risks, -np.inf), kind="stable")[: self.flags_left[moment]]
        within = np.zeros(risks.size, dtype=bool)
        within[order] = True
        flagged &= within
        self.flags_left[moment] -= int(flagged.sum())
        return np.asarray(flagged)

    def judge(self, job: pl.DataFrame, moment: Moment, now: datetime, *, top: int | None = None) -> Verdict:
        """Everything about one job (a frame of one row); with `top` so many reasons only."""
        return self.judge_many(job, moment, now, top=top)[0]

    def judge_many(
        self, jobs: pl.DataFrame, moment: Moment, now: datetime, *, explain: bool = True, top: int | None = None
    ) -> list[Verdict]:
        """The verdicts on these jobs; reasons cost most: they may be left out, or so many of the strongest be enough (`top`)."""
        profiled = self.profiled(jobs)
        return self.verdicts(self._features(profiled, moment, now), profiled["profile"], moment, explain=explain, top=top)

    def verdicts(
        self, features: FeatureMatrix, profiles: pl.Series, moment: Moment, *, explain: bool = True, top: int | None = None
    ) -> list[Verdict]:
        """Return the verdicts on jobs of which the features at a moment, and the profiles, are known."""
        model = self._model(moment)
        predicted = model.predict_proba(features)
        explained = model.explain(features) if explain else None
        more = 0 if explained is None or top is None else max(0, count_reasons(explained.names) - top)
        threshold = self.threshold_at(moment)
        kinds = [name for name in OUTCOMES if f"p_{name}" in predicted.columns]
        return [
            Verdict(
                moment=moment,
                risk=row["risk"],
                flagged=row["risk"] >= threshold,
                threshold=threshold,
                known=row["known"],
                outcomes={name: row[f"p_{name}"] for name in kinds},
                reasons=tuple(reasons(explained, features, job, top=top)) if explained else (),
                base=explained.base if explained else float("nan"),
                profile=self._profile_text(profile),
                failures=model.failure_outcomes_,
                more_reasons=more,
            )
            for job, (row, profile) in enumerate(zip(predicted.iter_rows(named=True), profiles, strict=True))
        ]

    def empty_history(self) -> History:
        """Return a history that has seen nothing yet, and counts what the models were taught to count."""
        taught = self.history
        stand_in = dict(taught.stand_in or {})
        return History(taught.failure_states, taught.dropped_states, stand_in=stand_in, similar_names=taught.similar_names)

    def _profile_text(self, profile: int | None) -> str | None:
        if profile is not None and profile not in self._descriptions:
            self._descriptions[profile] = self.profiles.describe(profile)
        return None if profile is None else self._descriptions[profile]

    def _model(self, moment: Moment) -> JobOutcomeModel:
        if moment not in self.models:
            raise ModelError(f"There is no model for '{moment}'.", hint="Train it: stormpetrel jobs train")
        return self.models[moment]


def known_by(past: pl.DataFrame, now: datetime) -> pl.DataFrame:
    """Jobs as they were known at `now`: those submitted later are gone, those that ended later still ran."""
    later = pl.col("end_time") >= now  # at equal times nobody knows yet, as in the sweep
    later_start = pl.col("start_time") >= now
    return past.filter(pl.col("submit_time") <= now).with_columns(
        state=pl.when(later).then(pl.lit("RUNNING")).otherwise("state"),
        end_time=pl.when(~later).then("end_time"),
        elapsed_s=pl.when(~later).then("elapsed_s"),
        start_time=pl.when(~later_start).then("start_time"),
    )


def moment_of(job: dict[str, object], now: datetime) -> Moment:
    """The latest moment that a job has seen by now."""
    start = job.get("start_time")
    if not isinstance(start, datetime) or start > now:
        return Moment.SUBMIT
    two_minutes = start + timedelta(seconds=TWO_MINUTES_S)
    end = job.get("end_time")
    over = end if isinstance(end, datetime) and str(job.get("state")) not in {str(s) for s in UNFINISHED} else now
    return Moment.TWO_MINUTES if two_minutes < min(over, now) or over == now >= two_minutes else Moment.START


def time_of(job: dict[str, object], moment: Moment) -> datetime:
    """When a job saw a moment."""
    submit, start = job["submit_time"], job.get("start_time")
    assert isinstance(submit, datetime)
    if moment is Moment.SUBMIT or not isinstance(start, datetime):
        return submit.astimezone(UTC)
    return start + timedelta(seconds=TWO_MINUTES_S if moment is Moment.TWO_MINUTES else 0.0)
