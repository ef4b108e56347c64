"""Blocks about forecasts: the published study's protocol next to one that sees only the past.

TableOne, Evaluation -> tables and drawings.

The numbers of the published study, as tables to stand next to a site's own.

"Proactive Precision: Enhancing High-Performance Computing with Early Job Failure Detection": 300,000 jobs of a 1027-node
system, October 2022 to September 2023. Its Table I is in `jobs.seed_protocol`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from stormpetrel.faces.report.blocks import Block, Column, Drawing, SideBySide, Table
from stormpetrel.figures import quality
from stormpetrel.figures.waterfall import waterfall_figure
from stormpetrel.jobs.exam.seed_protocol import SEED_TABLE_ONE, TableOne, TableOneRow
from stormpetrel.jobs.reasons import reasons

if TYPE_CHECKING:
    from stormpetrel.answers.schemas.job_evaluation import JobEvaluation
    from stormpetrel.jobs.exam.evaluation import Evaluation, MomentResult

ACTIVE: Final = "xgboost_active_learning"
_NAMES: Final = {
    "model": "Stormpetrel", "last_outcome": "as the user's last job", "user_rate": "the user's rate so far",
    "xgboost": "untuned XGBoost",
}  # fmt: skip
_MOMENTS: Final = {"submit": "at submission", "start": "at the start", "2min": "two minutes in"}
_METRICS: Final = (
    ("roc_auc", "ROC AUC"), ("pr_auc", "PR AUC"), ("f1", "F1"), ("precision", "precision"), ("recall", "recall"),
    ("brier", "Brier"), ("ece", "ECE"),
)  # fmt: skip
STUDY: Final = "Proactive Precision: Enhancing High-Performance Computing with Early Job Failure Detection"
COMPLETED_SHARE: Final = 0.92
FAILED_SHARE: Final = 0.08
PROFILES: Final = 3
ROC_AUC: Final = 0.99
# With the state as Completed = 1, so that a negative one means: failing goes with more of it. Here the sign is turned.
CORRELATIONS: Final = {
    "user_id": 0.33, "run_time_s": 0.25, "submit_month": 0.29, "submit_week_of_year": 0.28, "cpu": 0.12, "mem_bytes": 0.12,
}  # fmt: skip
CPU_AND_MEMORY: Final = 1.00
USER_AND_PROFILE: Final = 0.77
_PROFILE: Final = Column("profile", "d")


def table_one_table(tables: dict[str, TableOne]) -> Table:
    """Table I: failed / completed of each model, as published, on this log by the same random split, and on later jobs."""
    rows: list[tuple[Any, ...]] = []
    some = next(iter(tables.values()))
    for row in some.rows:
        if row.part != "test":
            continue
        published = SEED_TABLE_ONE.get(row.model)
        if published is not None:
            rows.append((row.title, "published", *_scores(published), ROC_AUC if row.model == ACTIVE else None))
        for split, table in tables.items():
            own = table.row(row.model)
            rows.append((row.title, "random jobs" if split == "random" else "later jobs", *_scores(own), own.roc_auc))
    columns = (
        Column("model"), Column("judged on"), Column("precision, failed / completed", ""),
        Column("recall, failed / completed", ""), Column("F1, failed / completed", ""), Column("accuracy", ".2f"),
        Column("ROC AUC", ".3f"),
    )  # fmt: skip
    note = (
        "The columns include run time and CPU time, which are known only when a job has ended: these figures are for "
        "comparison, and no forecast can reach them. The rules need no model at all."
    )
    return Table("Table I, published and on this log", columns, tuple(rows), note)


def seed_drawings(table: TableOne) -> tuple[Block, ...]:
    """Figs. 10 and 11 by the published protocol."""
    shown = {row.title: table.forecasts[row.model] for row in table.rows if row.part == "test" and row.model in SEED_TABLE_ONE}
    blocks: list[Block] = [
        Drawing(
            quality.roc_figure(dict(shown)), f"Fig. 10 of the published study has an area of {ROC_AUC}.", 470, ("hpe-fig-10",)
        )
    ]
    if ACTIVE in table.forecasts:
        sure = quality.confidence_figure(*table.forecasts[ACTIVE])
        blocks.append(Drawing(sure, "Fig. 11, on this log: active learning, jobs drawn at random.", 470, ("hpe-fig-11",)))
    return (SideBySide(tuple(blocks)),)


def quality_table(answer: JobEvaluation) -> Table:
    """The model and the trivial baselines at each moment, on jobs submitted after everything that was learnt from."""
    rows = []
    for moment, figures in answer.at.items():
        judged = {"model": figures.model, **figures.baselines}
        for name, values in judged.items():
            rows.append((_MOMENTS[moment], _NAMES[name], *(values[metric] for metric, _ in _METRICS), values.n_test))
    columns = (Column("moment"), Column("forecast"), *(Column(title, ".3f") for _, title in _METRICS), Column("test jobs", ",d"))
    note = (
        "Learnt from the first 80 % of the log, judged on the rest; the threshold of F1, precision and recall was chosen inside "
        "the first part. Brier and ECE (calibration error): lower is better."
    )
    return Table("How good the forecasts are", columns, tuple(rows), note)


def forecast_drawings(evaluation: Evaluation) -> tuple[Block, ...]:
    """ROC, precision and recall, confidence, thresholds and reliability of the forecasts."""
    by_moment = {_MOMENTS[str(moment)]: (result.truth, result.probability()) for moment, result in evaluation.at.items()}
    first = next(iter(evaluation.at.values()))
    drawings = {
        f"{_NAMES[name]}, {_MOMENTS[str(first.moment)]}": (first.truth, first.probability(name))
        for name in ("user_rate", "xgboost")
    }
    last = list(evaluation.at.values())[-1]
    when = _MOMENTS[str(last.moment)]
    threshold = float(np.mean(last.forecasts["model"].thresholds))
    return (
        SideBySide(
            (
                Drawing(
                    quality.roc_figure({**by_moment, **drawings}),
                    "Fig. 10 with time in its place: no row of the future is seen.",
                    500,
                ),
                Drawing(quality.precision_recall_figure({**by_moment, **drawings}), height=500),
            )
        ),
        SideBySide(
            (
                Drawing(quality.confidence_figure(last.truth, last.probability()), f"Fig. 11 with time in its place, {when}."),
                Drawing(quality.threshold_figure(last.truth, last.probability(), chosen=threshold), f"The forecast {when}."),
            )
        ),
        Drawing(quality.reliability_figure(by_moment), "On the diagonal, of jobs with a risk of 30 % three in ten fail.", 480),
    )


def latest_table(evaluation: Evaluation, most: int = 12) -> Table:
    """The forecasts for the latest jobs, and what became of them."""
    result = next(iter(evaluation.at.values()))
    threshold = result.models[-1].threshold
    rows = result.rows[-most:]
    frame = evaluation.labelled.jobs[rows].select("job_id", "user", "submit_time", "state").rows()
    risks = result.probability()[-most:]
    shown = tuple(
        (job, user, f"{submit:%Y-%m-%d %H:%M}", 100 * risk, "flagged" if risk >= threshold else "", state)
        for (job, user, submit, state), risk in zip(frame, risks.tolist(), strict=True)
    )
    columns = (
        Column("job", "d"), Column("user"), Column("submitted (UTC)"), Column("risk of failing at submission (%)", ".1f"),
        Column("flagged"), Column("became"),
    )  # fmt: skip
    note = f"Jobs are flagged from a risk of {100 * threshold:.0f} % on."
    return Table("The latest jobs and what was forecast of them", columns, shown, note)


def waterfall_drawing(evaluation: Evaluation) -> Drawing | None:
    """Why the failed job with the highest risk had it; None where no job failed."""
    result = next(iter(evaluation.at.values()))
    if not result.truth.any():
        return None
    place = int(np.argmax(np.where(result.truth, result.probability(), -1.0)))
    return Drawing(_waterfall(evaluation, result, place), _job_text(evaluation, result, place), 640)


def _waterfall(evaluation: Evaluation, result: MomentResult, place: int) -> Any:
    model = result.models[int(result.split_of[place])]
    job = evaluation.labelled.features[result.moment].rows(result.rows[place : place + 1])
    explained = model.explain(job)
    contributions = [(reason.words, reason.contribution) for reason in reasons(explained, job)]
    return waterfall_figure(contributions, explained.base, float(model.risk(job)[0]))


def _job_text(evaluation: Evaluation, result: MomentResult, place: int) -> str:
    job = evaluation.labelled.jobs.row(int(result.rows[place]), named=True)
    owner, when = job["user"] or "an unknown user", _MOMENTS[str(result.moment)]
    return f"Fig. 16: job {job['job_id']} of {owner}, {when}; it became {job['state']}."


def _scores(row: TableOneRow) -> tuple[Any, ...]:
    return (
        *(f"{of_failed:.2f} / {of_completed:.2f}" for of_failed, of_completed in zip(row.failed, row.completed, strict=True)),
        row.accuracy,
    )


def _counts(title: str, unit: str, names: tuple[str, ...], *rows: tuple[int, ...]) -> Table:
    columns = (_PROFILE, *(Column(f"{name} ({unit})", ",d") for name in names))
    return Table(title, columns, tuple((place, *row) for place, row in enumerate(rows)))


PROFILE_TABLES: Final = (
    Table(
        "The published study, Fig. 4: resources (mean ± std)",
        (_PROFILE, Column("CPUs", ""), Column("memory (its unit)", ""), Column("run time (s)", ""), Column("wait time (s)", "")),
        (
            (0, "256.0 ± 0.0", "446.0 ± 0.0", "133 ± 20", "1 ± 3"),
            (1, "23,917.0 ± 46,280.2", "42,406.8 ± 81,721.5", "2,268 ± 6,100", "2,432 ± 8,777"),
            (2, "235.7 ± 68.0", "446.0 ± 1.9", "785 ± 1,652", "21 ± 18"),
        ),
    ),
    _counts(
        "The published study, Fig. 5: duration", "jobs", ("Long", "Medium", "Short"), (0, 0, 78983), (3583, 8571, 13071),
        (1727, 7800, 54391),
    ),
    _counts(
        "The published study, Fig. 6: user activity", "users", ("Frequent", "Infrequent", "New"), (0, 1, 0), (36, 37, 68),
        (12, 12, 21),
    ),
    _counts("The published study, Fig. 7: status", "jobs", ("Completed", "Failed"), (78949, 34), (17479, 7746), (58418, 5500)),
    _counts(
        "The published study, Fig. 8: type", "jobs", ("Balanced", "Compute", "Memory"), (78983, 0, 0), (25005, 60, 160),
        (63914, 0, 4),
    ),
)  # fmt: skip
