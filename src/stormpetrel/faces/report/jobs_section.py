"""The jobs in the report: every table and figure of the published study from this site's data, and what goes beyond it.

JobInput -> jobs_sections -> Section. A section whose data are missing says so in a sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal

from stormpetrel.answers.schemas.job_evaluation import EvaluationQuestion, JobEvaluation
from stormpetrel.answers.schemas.job_studies import ProfileQuestion, ProfileStudy
from stormpetrel.answers.studies import job_studies
from stormpetrel.answers.studies.job_evaluation import evaluate_forecasts, published_table
from stormpetrel.errors import StormpetrelError, UsageError
from stormpetrel.faces.report import forecast_blocks, job_tables, jobs_figures
from stormpetrel.faces.report.blocks import Block, Column, Paragraph, Section, SideBySide, Table, showing
from stormpetrel.jobs.exam.evaluation import Evaluation
from stormpetrel.jobs.exam.seed_protocol import TableOne
from stormpetrel.jobs.moments import Moment
from stormpetrel.jobs.optimism import optimism

if TYPE_CHECKING:
    from stormpetrel.answers.studies.job_evaluation import JobInput

QUICK_JOBS: Final = 20_000  # the latest ones, in a quick report
# What the sections show of the published study, by title; an item that a section lacks has its reason there.
_ITEMS: Final = {
    "At a glance": ("hpe-fig-14", "generator-fig-1"),
    "How jobs end": ("hpe-fig-2",),
    "Kinds of jobs": ("hpe-fig-3", "hpe-fig-4", "hpe-fig-5", "hpe-fig-6", "hpe-fig-7", "hpe-fig-8"),
    "What goes together with failing": ("hpe-fig-9",),
    "The published protocol": ("hpe-table-1", "hpe-fig-10", "hpe-fig-11"),
    "Forecasts that see only the past": ("hpe-fig-12", "hpe-fig-15", "hpe-fig-16"),
}
_MISSING: Final = {"Forecasts that see only the past": {"hpe-fig-16": "none of the jobs that forecasts are judged on failed"}}
_TREND_GROUPS: Final = ("user", "application", "node")
_WASTE_GROUPS: Final = ("outcome", "user", "application")
_LEFT_OUT: Final = "Left out: it is in no published study and takes a minute or more. To see it: stormpetrel report --all."


class _Jobs:
    """The studies of one log, each worked out when the first section asks for it."""

    def __init__(self, data: JobInput, step: job_studies.Progress, *, quick: bool, complete: bool, seed: int) -> None:
        self.data = data
        self.quick = quick
        self.complete = complete
        self.seed = seed
        self.step = step

    @cached_property
    def latest(self) -> JobInput:
        """The jobs that forecasts are made of."""
        jobs = self.data.jobs.sort("submit_time", maintain_order=True)
        return replace(self.data, jobs=jobs.tail(QUICK_JOBS) if self.quick else jobs, notes=())

    @cached_property
    def fitted(self) -> job_studies.FittedProfiles:
        self.step("profiles")
        return job_studies.fit_profiles(self.data, ProfileQuestion(seed=self.seed))

    @cached_property
    def profiles(self) -> ProfileStudy:
        return job_studies.profile_study(self.data, fitted=self.fitted)

    @cached_property
    def evaluated(self) -> tuple[JobEvaluation, Evaluation]:
        """Every moment that there are enough jobs for; the notes say which are not judged."""
        return evaluate_forecasts(self.latest, EvaluationQuestion(), progress=self.step)

    def table_one(self, split: Literal["random", "time"]) -> TableOne:
        """The published models, and our further ones in a complete report."""
        return published_table(
            self.latest, split, seed=self.seed, quick=not self.complete, progress=lambda text: self.step(f"Table I, {text}")
        )


def jobs_sections(
    data: JobInput,
    *,
    quick: bool = False,
    complete: bool = False,
    seed: int = 0,
    progress: job_studies.Progress = lambda _: None,
) -> list[Section]:
    """The sections about jobs, in the order of a reader's questions; those that take long only if it is to be `complete`."""
    jobs = _Jobs(data, progress, quick=quick, complete=complete, seed=seed)
    parts: tuple[tuple[str, str, Callable[[_Jobs], Sequence[Block]]], ...] = (
        (
            "At a glance",
            f"This log, next to the figures of the published study ({forecast_blocks.STUDY}).",
            _glance,
        ),
        ("How jobs end", "The states of the log and what each is counted as (Fig. 2 of the published study).", _labels),
        (
            "Kinds of jobs",
            "Jobs that are alike in size, run time and wait, found by a Gaussian mixture (Figs. 3 to 8). Profiles are numbered "
            "from the lightest to the heaviest; those of the published study are its own.",
            _profiles,
        ),
        (
            "What goes together with failing",
            "Correlations of the published study's columns with failing and with each other (Fig. 9). Its signs are turned: it "
            "codes Completed as 1, here a positive number means that more of it goes with more failures.",
            _correlations,
        ),
        (
            "The published protocol",
            "Table I and Figs. 10 and 11: columns that are known only at the end, and test jobs drawn at random among their "
            "neighbours. Next to them the same models on later jobs, and two one-line rules.",
            _published,
        ),
        (
            "Forecasts that see only the past",
            "What could have been known: at each moment only what had happened by then, learnt from jobs that had ended.",
            _forecasts,
        ),
        ("Which features earn their place", "What moves the forecast at submission, and what is lost without it.", _features),
        ("Trends", "Failure rates week by week, and whose has changed by more than chance.", _trends),
        ("What failed jobs cost", "Core-hours that failed jobs held, in sums that agree with the log to the second.", _waste),
        (
            "Cancelling early",
            "Replayed: every job that still runs after two minutes is cancelled if its forecast risk is above a threshold τ.",
            _policy,
        ),
    )
    return [_section(jobs, *part) for part in parts]


def _section(jobs: _Jobs, title: str, intro: str, build: Callable[[_Jobs], Sequence[Block]]) -> Section:
    jobs.step(title.lower())
    try:
        return Section(title, intro, tuple(build(jobs)), dict(_MISSING.get(title, {})))
    except StormpetrelError as error:
        text = f"This log cannot tell: {error.what}"
        return Section(title, intro, (Paragraph(text),), dict.fromkeys(_ITEMS.get(title, ()), text))


def _glance(jobs: _Jobs) -> Sequence[Block]:
    data = jobs.data
    job_studies.refuse_empty(data)
    shares = job_tables.label_shares(jobs.profiles)
    first, last = data.jobs["submit_time"].min(), data.jobs["submit_time"].max()
    rows: list[tuple[str, str, str]] = [
        ("jobs", f"{data.jobs.height:,}", "over 300,000"),
        ("users", f"{data.jobs['user'].drop_nulls().n_unique():,}", "–"),
        ("first and last submission", f"{str(first)[:10]} to {str(last)[:10]}", "2022-10 to 2023-09"),
        ("completed", f"{100 * shares['Completed']:.1f} %", f"{100 * forecast_blocks.COMPLETED_SHARE:.0f} %"),
        ("failed", f"{100 * shares['Failed']:.1f} %", f"{100 * forecast_blocks.FAILED_SHARE:.0f} %"),
        ("neither (cancelled, not counted, not ended)", f"{100 * shares['Other']:.1f} %", "–"),
        ("never started, in none of these", f"{job_tables.never_started_count(jobs.profiles):,} jobs", "–"),
        ("kinds of jobs (K at the elbow)", f"{jobs.profiles.k}", f"{forecast_blocks.PROFILES}"),
    ]
    blocks: list[Block] = []
    rows += _glance_areas(jobs, blocks)
    columns = (Column(""), Column("this log", ""), Column("published", ""))
    counted = f"Counted as a failure: {', '.join(data.section.failure_states)}."
    dropped = f" Left out: {', '.join(data.section.dropped_states)}." if data.section.dropped_states else ""
    early = optimism(data.jobs)
    notes = data.notes if early is None else (early.sentence, *data.notes)
    figures = Table("Figures", columns, tuple(rows), counted + dropped)
    return [figures, *blocks, *map(Paragraph, notes), showing(job_tables.newest_jobs_table(data.jobs), *_ITEMS["At a glance"])]


def _glance_areas(jobs: _Jobs, blocks: list[Block]) -> list[tuple[str, str, str]]:
    """Areas under the ROC curve, where there is a forecast."""
    try:
        figures = jobs.evaluated[0].at
    except StormpetrelError as error:
        blocks.append(Paragraph(f"There is no forecast: {error.what}"))
        return []
    labels = {"submit": "at submission", "start": "at the start", "2min": "two minutes in"}
    return [
        (f"ROC AUC {labels[moment]}, later jobs", _digits(values.model.roc_auc), f"{forecast_blocks.ROC_AUC} (random jobs)")
        for moment, values in figures.items()
    ]


def _labels(jobs: _Jobs) -> Sequence[Block]:
    shares = job_tables.label_shares(jobs.profiles)
    published = {"Completed": forecast_blocks.COMPLETED_SHARE, "Failed": forecast_blocks.FAILED_SHARE}
    published["Failed of both"] = forecast_blocks.FAILED_SHARE
    rows = tuple((name, 100 * share, 100 * published[name] if name in published else None) for name, share in shares.items())
    columns = (Column("label"), Column("this log (%)", ".1f"), Column("published (%)", ".0f"))
    compared = Table("Fig. 2: labels", columns, rows, "Failed of both: among Completed and Failed alone.")
    tables = SideBySide((compared, job_tables.states_table(jobs.profiles)))
    drawing = showing(jobs_figures.labels_drawing(jobs.profiles), "hpe-fig-2")
    return [drawing, tables, job_tables.preparation_table(jobs.profiles)]


def _profiles(jobs: _Jobs) -> Sequence[Block]:
    study = jobs.profiles
    blocks: list[Block] = [
        SideBySide((showing(jobs_figures.elbow_drawing(study), "hpe-fig-3"), job_tables.elbow_table(study))),
        Paragraph(f"{job_tables.why_k(study)} The published study found its elbow at K = {forecast_blocks.PROFILES} (Fig. 3)."),
        job_tables.profile_descriptions(study),
    ]
    drawings = jobs_figures.composition_drawings(study)
    own_tables = (showing(own, f"hpe-fig-{number}") for number, own in enumerate(job_tables.profile_tables(study), 4))
    resources, *others = zip(own_tables, forecast_blocks.PROFILE_TABLES, strict=True)
    blocks += resources  # too wide to stand side by side
    for own, published in others:
        blocks.append(SideBySide((own, published)))
        blocks += [drawings[own.title]] if own.title in drawings else []
    return blocks


def _correlations(jobs: _Jobs) -> Sequence[Block]:
    study = job_studies.column_study(jobs.data, fitted=jobs.fitted, seed=jobs.seed)
    heat = showing(jobs_figures.heat_drawing(study.matrix, "Pearson's r; blank where a column is constant.", 640), "hpe-fig-9")
    rows = [
        (f"{line.feature} and failing", line.pearson, forecast_blocks.CORRELATIONS.get(line.feature))
        for line in study.correlations
    ]
    rows += [
        ("cpu and mem_bytes", study.cpu_and_memory, forecast_blocks.CPU_AND_MEMORY),
        ("user_id and profile", study.user_and_profile, forecast_blocks.USER_AND_PROFILE),
    ]
    columns = (Column("columns"), Column("this log, r", "+.2f"), Column("published, r", "+.2f"))
    note = "A user_id is a number by order of the name: its correlation depends on that order, here as in the published study."
    return [heat, Table("Fig. 9 in numbers", columns, tuple(rows), note)]


def _published(jobs: _Jobs) -> Sequence[Block]:
    tables = {"random": jobs.table_one("random")}
    notes: list[Block] = []
    try:
        tables["time"] = jobs.table_one("time")
    except UsageError as error:
        notes.append(Paragraph(f"Later jobs cannot be judged: {error.what}"))
    table = showing(forecast_blocks.table_one_table(tables), "hpe-table-1")
    return [table, *notes, *forecast_blocks.seed_drawings(tables["random"])]


def _forecasts(jobs: _Jobs) -> Sequence[Block]:
    answer, evaluation = jobs.evaluated
    waterfall = forecast_blocks.waterfall_drawing(evaluation)
    return [
        *map(Paragraph, answer.notes),
        forecast_blocks.quality_table(answer),
        *forecast_blocks.forecast_drawings(evaluation),
        showing(forecast_blocks.latest_table(evaluation), "hpe-fig-12", "hpe-fig-15"),
        *([showing(waterfall, "hpe-fig-16")] if waterfall else []),
    ]


def _features(jobs: _Jobs) -> Sequence[Block]:
    evaluation = jobs.evaluated[1]
    judged = evaluation.at[Moment.SUBMIT].models[-1] if Moment.SUBMIT in evaluation.at else None
    study = job_studies.study_features(
        evaluation.labelled, Moment.SUBMIT, with_ablation=jobs.complete, judged=judged, seed=jobs.seed, progress=jobs.step
    )
    tables = (job_tables.ablation_table(study), job_tables.verdict_table(study))
    shown: list[Block] = [table for table in tables if table is not None]
    return [*jobs_figures.feature_drawings(study), job_tables.correlation_table(study), *(shown or [Paragraph(_LEFT_OUT)])]


def _trends(jobs: _Jobs) -> Sequence[Block]:
    blocks: list[Block] = []
    for by in _TREND_GROUPS:
        study = job_studies.trend_study(jobs.data, by)
        if not study.trend:
            blocks.append(Paragraph(f"By {by}: none is known with enough jobs that ended (20)."))
            continue
        sentences = tuple((mover.sentence,) for mover in study.movers[:12]) or (("Nobody, by more than chance.",),)
        blocks += [*jobs_figures.trend_drawings(study), Table(f"Who changed in the last week, by {by}", (Column(""),), sentences)]
    return blocks


def _waste(jobs: _Jobs) -> Sequence[Block]:
    studies = {by: job_studies.waste_study(jobs.data, by) for by in _WASTE_GROUPS}
    by_outcome = studies["outcome"]
    blocks: list[Block] = [
        *map(Paragraph, job_tables.waste_text(by_outcome)),
        jobs_figures.waste_drawings(jobs.data, by_outcome)[0],
    ]
    for by, study in studies.items():
        if job_tables.has_known_groups(study):
            blocks.append(job_tables.waste_table(study, top=15))
        else:
            blocks.append(Paragraph(f"By {by}: the log does not tell it."))
    return blocks


def _policy(jobs: _Jobs) -> Sequence[Block]:
    if not jobs.complete:
        return [Paragraph(_LEFT_OUT)]
    replay, curve = job_studies.policy_replay(jobs.latest, progress=jobs.step)
    return [job_tables.policy_table(replay), *jobs_figures.policy_drawings(replay, curve)]


def _digits(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
