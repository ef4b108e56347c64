"""Studies of a job log: what the study commands print and the report draws, worked out once. A study needs no site, and no
viewer: whoever has the log may read all of it.

JobInput + question -> profile_study, feature_study, column_study, trend_study, waste_study, policy_replay -> one model each.
For figures alone: weekly_ledger (a frame), and the curve of a PolicyReplay.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl
import polars.selectors as cs

from stormpetrel.answers.history.energy import basis_of, energy_of, power_of
from stormpetrel.answers.schemas.history import Mover, PolicyPoint, TrendPoint, WasteGroup, WasteTotal
from stormpetrel.answers.schemas.job_studies import (
    Bic,
    ChosenOn,
    ColumnStudy,
    CorrelationMatrix,
    Distortion,
    FeatureAblation,
    FeatureCorrelation,
    FeatureImportance,
    FeatureStudy,
    FeatureVerdict,
    GroupAblation,
    JudgedOn,
    PolicyReplay,
    ProfileLimits,
    ProfileQuestion,
    ProfileResources,
    ProfileStudy,
    ProfileSummary,
    RequestedPoint,
    StateShare,
    TrendStudy,
    WasteStudy,
)
from stormpetrel.engine import ONE_PROCESS, Engine
from stormpetrel.errors import NotEnoughJobsError, UsageError
from stormpetrel.jobs.cancel_policy import CancelCurve, cancel_curve, policy_at
from stormpetrel.jobs.changes import named_work, work_changes
from stormpetrel.jobs.exam import feature_study as features
from stormpetrel.jobs.exam.evaluation import PROFILE_SHARE, evaluate
from stormpetrel.jobs.exam.seed_protocol import seed_columns
from stormpetrel.jobs.features import group_of
from stormpetrel.jobs.held.core_seconds import core_seconds, elapsed_seconds
from stormpetrel.jobs.moments import Moment
from stormpetrel.jobs.outcomes import failed
from stormpetrel.jobs.preparation import PreparationSettings, Prepared, label_distribution, prepare
from stormpetrel.jobs.profiles import END, SUBMIT, JobProfiles, ProfileTables
from stormpetrel.jobs.training import label_jobs
from stormpetrel.jobs.trends import failure_trend, movers, trend_of_counts
from stormpetrel.jobs.waste import check_ledger, ledger, reconcile
from stormpetrel.lifecycle.changes import change_texts
from stormpetrel.lifecycle.job_models import limits_of, preparation_of
from stormpetrel.records.jobs import never_started

if TYPE_CHECKING:
    from stormpetrel.answers.studies.job_evaluation import JobInput
    from stormpetrel.jobs.exam.evaluation import Evaluation
    from stormpetrel.jobs.model import JobOutcomeModel
    from stormpetrel.jobs.training import LabelledJobs

Progress = Callable[[str], None]
_EARLIER_SHARE: Final = 0.6  # of the splits: the threshold is chosen on them
_MATRIX_FEATURES: Final = 18  # as many as a heat map can name
_MATRIX_COLUMNS: Final = 20
_FEW_JOBS: Final = 5_000  # drawn where no ablation needs more: ranks and SHAP values of so many are settled
_TEXT_OF_OLD: Final = {"application": "family"}  # how `--by` and `--json` call it, which other programs read


@dataclass(frozen=True, slots=True)
class FittedProfiles:
    """The model of a log's profiles and the jobs it was fitted to: what other studies divide the log by."""

    prepared: Prepared
    model: JobProfiles


def fit_profiles(data: JobInput, question: ProfileQuestion = ProfileQuestion()) -> FittedProfiles:
    """Prepare the jobs and find their profiles."""
    refuse_empty(data)
    settings = preparation_of(data.section, data.time_zone, allocation_as_request=question.columns == "submit")
    prepared = prepare(data.jobs, settings)
    if not prepared.frame.height:
        raise NotEnoughJobsError(
            f"None of the {data.jobs.height:,} jobs is left after preparation.", hint="Lower jobs.min_run_s, or set jobs.missing."
        )
    columns = END if question.columns == "end" else SUBMIT
    return FittedProfiles(prepared, JobProfiles(columns, question.method).fit(prepared.frame, question.seed))


def profile_study(
    data: JobInput, question: ProfileQuestion = ProfileQuestion(), *, fitted: FittedProfiles | None = None
) -> ProfileStudy:
    """Return the profiles of a log, with everything that led to them; `fitted` where they were found before."""
    fitted = fitted or fit_profiles(data, question)
    prepared, model, limits = fitted.prepared, fitted.model, limits_of(data.section)
    tables = ProfileTables.of(prepared.frame.with_columns(model.assign(prepared.frame)), limits)
    labels = label_distribution(_counted(data), data.section.failure_states)
    return ProfileStudy(
        preparation=prepared.counts,
        absent=list(prepared.absent),
        labels=[StateShare(**row) for row in _rows(labels)],
        k=model.k_,
        k_elbow=model.k_elbow_,
        k_bic=model.k_bic_,
        elbow=[Distortion(**row) for row in _rows(model.elbow_)],
        columns=list(model.columns_used_),
        left_out=model.left_out_,
        profiles=[ProfileSummary(profile=place, words=model.describe(place)) for place in range(model.k_)],
        resources=[ProfileResources(**row) for row in _rows(tables.resources)],
        duration=_rows(tables.duration),
        activity=_rows(tables.activity),
        status=_rows(tables.status),
        type=_rows(tables.types),
        bic=[Bic(**row) for row in _rows(model.bic_)],
        limits=ProfileLimits(
            short_below_s=limits.short_below_s,
            long_above_s=limits.long_above_s,
            new_below_jobs=limits.new_below_jobs,
            frequent_from_jobs=limits.frequent_from_jobs,
            mem_factor=limits.mem_factor,
        ),
    )


def with_profile(data: JobInput, fitted: FittedProfiles | None = None) -> pl.DataFrame:
    """Return the jobs with the profile of each, also of those that preparation leaves out."""
    fitted = fitted or fit_profiles(data)
    settings = PreparationSettings(time_zone=data.time_zone, keep_never_started=True)
    everyone = prepare(data.jobs, settings, medians=fitted.prepared.medians)
    return data.jobs.with_columns(fitted.model.assign(everyone.frame))


def feature_study(
    data: JobInput, moment: Moment, *, progress: Progress = lambda _: None, engine: Engine = ONE_PROCESS
) -> FeatureStudy:
    """Return what each feature of a moment is worth, with profiles as an evaluation and the report make them.

    They come from jobs before those that the ablation is judged on. Each group that is left out is one item of the engine.
    """
    refuse_empty(data)
    labelled = label_jobs(data.jobs, data.training(), [moment], profiles_from=PROFILE_SHARE)
    return study_features(labelled, moment, progress=progress, engine=engine)


def study_features(
    labelled: LabelledJobs,
    moment: Moment,
    *,
    with_ablation: bool = True,
    judged: JobOutcomeModel | None = None,
    seed: int = 0,
    progress: Progress = lambda _: None,
    engine: Engine = ONE_PROCESS,
) -> FeatureStudy:
    """Return the same of jobs that are labelled already, in order of submission; ablation, the long part, may be left out.

    Without it, the importance may be that of a model that was judged already, and Spearman's ρ is taken over fewer jobs.
    """
    matrix, rows = labelled.features[moment], labelled.reached(moment)
    x, y = matrix.values[rows], labelled.failed[rows]
    if y.all() or not y.any():
        raise NotEnoughJobsError(
            f"{y.size:,} ended jobs reached '{moment}', {int(y.sum()):,} of them failed: features are judged by both outcomes.",
            hint="Take a longer log, or say with --failed and --drop which states count.",
        )
    progress("correlations")
    correlated = features.correlations(x, matrix.names, y, sample=20_000 if with_ablation else _FEW_JOBS, seed=seed)
    progress("importance")
    if judged is None or with_ablation:
        important = features.importance(x, matrix.names, y, seed=seed)
    else:
        some = np.sort(np.random.default_rng(seed).permutation(np.flatnonzero(rows))[:_FEW_JOBS])
        important = judged.importance(matrix.rows(some)).rename({"gain": "total_gain"})
    ablation, verdicts = None, None
    if with_ablation:
        groups = {name: group_of(name) for name in matrix.names}

        def show(group: str, done: int, total: int) -> None:
            progress(f"left out: {group} ({done} of {total})" if group else "verdicts")

        ablated = features.ablation(x, matrix.names, groups, y, seed=seed, progress=show, engine=engine)
        ablation = FeatureAblation(
            roc_auc=ablated.roc_auc, pr_auc=ablated.pr_auc, groups=[GroupAblation(**row) for row in _rows(ablated.groups)]
        )
        kept = features.which_to_keep(correlated, important, ablated, groups)
        verdicts = [FeatureVerdict(**row) for row in _rows(kept)]
    return FeatureStudy(
        at=str(moment),
        jobs=y.size,
        correlations=[FeatureCorrelation(**row) for row in _rows(correlated.table)],
        importance=[FeatureImportance(**row) for row in _rows(important)],
        ablation=ablation,
        verdicts=verdicts,
        matrix=matrix_of(correlated, _MATRIX_FEATURES),
    )


def matrix_of(correlated: features.Correlations, top: int) -> CorrelationMatrix:
    """Return the correlations of the outcome and the `top` features that vary with it most, null for constants."""
    names, values = correlated.top(top)
    return CorrelationMatrix(names=list(names), r=[[None if np.isnan(r) else r for r in row] for row in values.tolist()])


def column_study(data: JobInput, *, fitted: FittedProfiles, seed: int = 0) -> ColumnStudy:
    """Return the correlations of the published study's columns (Fig. 9) of the jobs that ended; UsageError where none vary."""
    refuse_empty(data)
    section, profiled = data.section, with_profile(data, fitted)
    columns = seed_columns(profiled).with_columns(
        profiled["profile"], profiled.select(failed(section.failure_states, section.dropped_states)).to_series()
    )
    judged = columns.drop_nulls("failed")
    if judged["failed"].n_unique() < 2:
        raise UsageError(f"its {judged.height:,} ended jobs all have the same outcome.")
    values = judged.drop("failed").cast(pl.Float32)
    correlated = features.correlations(
        values.to_numpy().astype(np.float32), values.columns, judged["failed"].to_numpy(), seed=seed
    )
    matrix = matrix_of(correlated, _MATRIX_COLUMNS)
    if len(matrix.names) == 1:
        raise UsageError("no column of it varies together with the outcome.")
    return ColumnStudy(
        correlations=[FeatureCorrelation(**row) for row in _rows(correlated.table)],
        matrix=matrix,
        cpu_and_memory=_pair(correlated, "cpu", "mem_bytes"),
        user_and_profile=_pair(correlated, "user_id", "profile"),
    )


def _pair(correlated: features.Correlations, first: str, second: str) -> float | None:
    value = float(correlated.matrix[correlated.names.index(first), correlated.names.index(second)])
    return None if np.isnan(value) else value


def trend_study(data: JobInput, by: str, every: str = "1w", *, top: int = 10) -> TrendStudy:
    """Return the failure rates of the `top` groups with the most failures, and the movers among all groups."""
    refuse_empty(data)
    jobs = _counted(data, with_profile(data) if by == "profile" else None)
    states = data.section.failure_states
    everyone = failure_trend(jobs, by=by, every=every, failure_states=states, time_zone=data.time_zone, top=None)
    shown = trend_of_counts(everyone.select("group", "period", "jobs", "failed"), by=by, every=every, top=top)
    return TrendStudy(
        by=_TEXT_OF_OLD.get(by, by),
        every=every,
        never_started=int(data.jobs.select(never_started().sum()).item()),
        trend=[TrendPoint(**row) for row in shown.iter_rows(named=True)],
        movers=[Mover(**row) for row in movers(everyone).iter_rows(named=True)],
        changes=_changes(data),
    )


def _changes(data: JobInput) -> list[str]:
    """What is new at the end of a log, a sentence each."""
    last = data.jobs["submit_time"].max()
    if not isinstance(last, datetime):
        return []
    return change_texts(work_changes(named_work(data.jobs, tuple(data.section.failure_states)), last))


def waste_study(data: JobInput, by: str, *, policy: PolicyReplay | None = None) -> WasteStudy:
    """Return the ledger by one breakdown, the largest loss first, checked against the log's own totals to the core-second.

    `policy` is what `policy_replay` gave, where that was asked for.
    """
    refuse_empty(data)
    counted = _counted(data, with_profile(data) if by == "profile" else None)
    states, zone, power = data.section.failure_states, data.time_zone, power_of(data.energy)
    reconciled = reconcile(counted, by=[by], failure_states=states, time_zone=zone, power=power)
    check_ledger(reconciled)
    groups = ledger(counted, by=[by], failure_states=states, time_zone=zone, power=power).rename({by: "group"})
    total = asdict(reconciled.total)
    return WasteStudy(
        by=_TEXT_OF_OLD.get(by, by),
        groups=[WasteGroup(**row, **energy_of(row, data.energy)) for row in groups.iter_rows(named=True)],
        total=WasteTotal(**total, **energy_of(total, data.energy)),
        uncounted=reconciled.uncounted,
        dropped=data.jobs.height - counted.height,
        reconciled=True,  # check_ledger has raised otherwise
        energy=basis_of(total, data.energy),
        policy=policy,
    )


def weekly_ledger(data: JobInput) -> pl.DataFrame:
    """Return the ledger by week and outcome, the largest loss first: a frame, for it is only drawn, and years are long."""
    return ledger(
        _counted(data),
        by=["week", "outcome"],
        failure_states=data.section.failure_states,
        time_zone=data.time_zone,
        power=power_of(data.energy),
    )


def policy_replay(
    data: JobInput, *, tau: float | None = None, progress: Progress = lambda _: None
) -> tuple[PolicyReplay, CancelCurve]:
    """Forecast the jobs of a log as they came, and replay the policy; see `replay_policy`."""
    evaluation = evaluate(data.jobs, data.training(), moments=[Moment.TWO_MINUTES], protocol="rolling", progress=progress)
    return replay_policy(evaluation, tau=tau)


def replay_policy(
    evaluation: Evaluation, *, tau: float | None = None, wrong_kill_price: float = 1.0
) -> tuple[PolicyReplay, CancelCurve]:
    """Return the policy replayed on forecasts at two minutes, which saw only what came before each job, and its curve.

    The curve has every threshold of the later splits, tens of thousands on a large log: it is for a figure, and stays a frame.
    """
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
    best = PolicyPoint(**asdict(chosen.best))
    replay = PolicyReplay(
        chosen_on=ChosenOn(splits=earlier, jobs=chosen.jobs, best=best),
        judged_on=JudgedOn(splits=splits - earlier, jobs=judged.jobs, failed_jobs=judged.failed_jobs),
        tau=best.tau,
        at_tau=PolicyPoint(**asdict(policy_at(judged, best.tau))),
        hindsight=PolicyPoint(**asdict(judged.best)),
        wrong_kill_price=judged.wrong_kill_price,
        asked=None if tau is None else RequestedPoint(**asdict(policy_at(judged, tau)), asked_tau=tau),
    )
    return replay, judged


def refuse_empty(data: JobInput) -> None:
    """Raise where there is no job to study."""
    if not data.jobs.height:
        raise NotEnoughJobsError("There are no jobs to study.", hint="Name other files, or an earlier day with --since.")


def _counted(data: JobInput, jobs: pl.DataFrame | None = None) -> pl.DataFrame:
    """The jobs without those in states that are left out."""
    frame = data.jobs if jobs is None else jobs
    dropped = data.section.dropped_states
    return frame.filter(~pl.col("state").is_in(dropped).fill_null(False)) if dropped else frame


def _rows(frame: pl.DataFrame) -> list[dict[str, Any]]:
    """The rows of a frame, null for what is no number."""
    return frame.with_columns(cs.float().fill_nan(None)).to_dicts()
