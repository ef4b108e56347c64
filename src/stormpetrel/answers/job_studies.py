"""Studies of a job log: what the study commands print and the report draws, worked out once.

JobInput -> profile_study, feature_study, waste_study, policy_replay -> one dataclass each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import polars as pl

from stormpetrel.errors import NotEnoughJobsError
from stormpetrel.jobs import feature_study as features
from stormpetrel.jobs.cancel_policy import CancelCurve, CancelPoint, cancel_curve, policy_at
from stormpetrel.jobs.features import group_of
from stormpetrel.jobs.groups import GroupLimits
from stormpetrel.jobs.moments import Moment
from stormpetrel.jobs.preparation import PreparationSettings, Prepared, label_distribution, prepare
from stormpetrel.jobs.profiles import END, SUBMIT, JobProfiles
from stormpetrel.jobs.waste import Reconciliation, check_ledger, core_seconds, elapsed_seconds, ledger, reconcile

if TYPE_CHECKING:
    from stormpetrel.answers.job_input import JobInput
    from stormpetrel.config import JobsSection
    from stormpetrel.jobs.evaluation import Evaluation
    from stormpetrel.jobs.training import LabelledJobs

Progress = Callable[[str], None]
_EARLIER_SHARE: Final = 0.6  # of the splits: the threshold is chosen on them


@dataclass(frozen=True, slots=True)
class ProfileStudy:
    """The profiles of a log, with everything that led to them; `profiled` is the prepared frame with `profile`."""

    prepared: Prepared
    labels: pl.DataFrame
    model: JobProfiles
    profiled: pl.DataFrame
    limits: GroupLimits


@dataclass(frozen=True, slots=True)
class FeatureStudy:
    """What each feature of one moment is worth; `ablated` and `verdicts` are None where no model was fitted without groups."""

    moment: Moment
    jobs: int
    correlated: features.Correlations
    important: pl.DataFrame
    ablated: features.Ablation | None
    verdicts: pl.DataFrame | None


@dataclass(frozen=True, slots=True)
class WasteStudy:
    """What failed jobs cost, per group, with the totals it reconciles with; `dropped` jobs are in neither."""

    by: str
    groups: pl.DataFrame
    reconciled: Reconciliation
    dropped: int


@dataclass(frozen=True, slots=True)
class PolicyReplay:
    """Cancelling two minutes in, replayed: τ chosen on the earlier splits, judged on the later ones.

    `judged` has every threshold of the later splits; its own best is hindsight.
    """

    tau: float
    chosen: CancelCurve
    judged: CancelCurve
    at_tau: CancelPoint
    splits_chosen: int
    splits_judged: int


def profile_study(
    data: JobInput, *, columns: Literal["end", "submit"] = "end", method: Literal["gmm", "kmeans"] = "gmm", seed: int = 0
) -> ProfileStudy:
    """Prepare the jobs, find their profiles and assign each job to one."""
    refuse_empty(data)
    settings = _preparation(data, allocation_as_request=columns == "submit")
    prepared = prepare(data.jobs, settings)
    if not prepared.frame.height:
        raise NotEnoughJobsError(
            f"None of the {data.jobs.height:,} jobs is left after preparation.", hint="Lower jobs.min_run_s, or set jobs.missing."
        )
    model = JobProfiles(END if columns == "end" else SUBMIT, method).fit(prepared.frame, seed)
    profiled = prepared.frame.with_columns(model.assign(prepared.frame))
    labels = label_distribution(_counted(data), data.section.failure_states)
    return ProfileStudy(prepared, labels, model, profiled, group_limits(data))


def with_profile(data: JobInput, study: ProfileStudy | None = None) -> pl.DataFrame:
    """The jobs with the profile of each, also of those that preparation leaves out."""
    study = study or profile_study(data)
    everyone = prepare(
        data.jobs, PreparationSettings(time_zone=data.time_zone, keep_never_started=True), medians=study.prepared.medians
    )
    return data.jobs.with_columns(study.model.assign(everyone.frame))


def feature_study(
    labelled: LabelledJobs, moment: Moment, *, with_ablation: bool = True, seed: int = 0, progress: Progress = lambda _: None
) -> FeatureStudy:
    """Correlations, importance and, unless it is left out, ablation by group, of the usable jobs in order of submission."""
    matrix, rows = labelled.features[moment], labelled.reached(moment)
    x, y = matrix.values[rows], labelled.failed[rows]
    if y.all() or not y.any():
        raise NotEnoughJobsError(
            f"{y.size:,} ended jobs reached '{moment}', {int(y.sum()):,} of them failed: features are judged by both outcomes.",
            hint="Take a longer log, or say with --failed and --drop which states count.",
        )
    progress("correlations")
    correlated = features.correlations(x, matrix.names, y, seed=seed)
    progress("importance")
    important = features.importance(x, matrix.names, y, seed=seed)
    if not with_ablation:
        return FeatureStudy(moment, y.size, correlated, important, None, None)
    groups = {name: group_of(name) for name in matrix.names}

    def told(group: str, done: int, total: int) -> None:
        progress(f"without {group} ({done} of {total})" if group else "verdicts")

    ablated = features.ablation(x, matrix.names, groups, y, seed=seed, progress=told)
    verdicts = features.which_to_keep(correlated, important, ablated, groups)
    return FeatureStudy(moment, y.size, correlated, important, ablated, verdicts)


def waste_study(data: JobInput, by: str, *, profiles: ProfileStudy | None = None) -> WasteStudy:
    """The ledger by one breakdown, checked against the log's own totals to the core-second."""
    refuse_empty(data)
    counted = _counted(data, with_profile(data, profiles) if by == "profile" else None)
    states, zone = data.section.failure_states, data.time_zone
    reconciled = reconcile(counted, by=[by], failure_states=states, time_zone=zone)
    check_ledger(reconciled)
    groups = ledger(counted, by=[by], failure_states=states, time_zone=zone)
    return WasteStudy(by, groups, reconciled, data.jobs.height - counted.height)


def weekly_ledger(data: JobInput) -> pl.DataFrame:
    """The ledger by week and outcome, for the figure of the weeks."""
    return ledger(_counted(data), by=["week", "outcome"], failure_states=data.section.failure_states, time_zone=data.time_zone)


def trend_of(
    data: JobInput, by: str, every: str = "1w", *, top: int | None = 10, profiles: ProfileStudy | None = None
) -> pl.DataFrame:
    """Failure rates per group and period of the jobs that count."""
    from stormpetrel.jobs.trends import failure_trend

    refuse_empty(data)
    jobs = _counted(data, with_profile(data, profiles) if by == "profile" else None)
    return failure_trend(jobs, by=by, every=every, failure_states=data.section.failure_states, time_zone=data.time_zone, top=top)


def policy_replay(evaluation: Evaluation, *, wrong_kill_price: float = 1.0) -> PolicyReplay:
    """Replay the policy on the forecasts of a rolling evaluation at two minutes, which saw only what came before each job."""
    result = evaluation.at[Moment.TWO_MINUTES]
    splits = len(evaluation.splits)
    if splits < 2:
        raise NotEnoughJobsError(
            "Only one stretch of this log can be forecast, so no threshold can be chosen on an earlier one.",
            hint="Take a longer log.",
        )
    earlier = max(1, round(_EARLIER_SHARE * splits))
    frame = (
        evaluation.labelled.jobs[result.rows]
        .select(core_seconds(), elapsed_seconds().alias("elapsed_s"))
        .with_columns(
            pl.Series("risk", result.probability()), pl.Series("failed", result.truth), pl.Series("split", result.split_of)
        )
    )
    chosen = cancel_curve(frame.filter(pl.col("split") < earlier), wrong_kill_price=wrong_kill_price)
    judged = cancel_curve(frame.filter(pl.col("split") >= earlier), wrong_kill_price=wrong_kill_price, most_points=None)
    return PolicyReplay(
        tau=chosen.best.tau,
        chosen=chosen,
        judged=judged,
        at_tau=policy_at(judged, chosen.best.tau),
        splits_chosen=earlier,
        splits_judged=splits - earlier,
    )


def group_limits(data: JobInput) -> GroupLimits:
    """The limits of the site's groups."""
    return limits_of(data.section)


def limits_of(section: JobsSection) -> GroupLimits:
    """The same out of the settings alone."""
    return GroupLimits(
        short_below_s=section.short_below_s,
        long_above_s=section.long_above_s,
        new_below_jobs=section.new_below_jobs,
        frequent_from_jobs=section.frequent_from_jobs,
        mem_factor=section.memory_factor,
    )


def refuse_empty(data: JobInput) -> None:
    """Raise where there is no job to study."""
    if not data.jobs.height:
        raise NotEnoughJobsError("There are no jobs to study.", hint="Name other files, or an earlier day with --since.")


def _counted(data: JobInput, jobs: pl.DataFrame | None = None) -> pl.DataFrame:
    """The jobs without those in states that are left out."""
    frame = data.jobs if jobs is None else jobs
    dropped = data.section.dropped_states
    return frame.filter(~pl.col("state").is_in(dropped).fill_null(False)) if dropped else frame


def _preparation(data: JobInput, *, allocation_as_request: bool) -> PreparationSettings:
    section = data.section
    return PreparationSettings(
        missing=section.missing,
        min_run_s=section.min_run_s or None,
        time_zone=data.time_zone,
        failure_states=tuple(section.failure_states),
        dropped_states=tuple(section.dropped_states),
        allocation_as_request=allocation_as_request,
    )
