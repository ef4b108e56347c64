"""How good the forecasts of a log's jobs would have been; needs no site, and whoever has the log may read all of it.

JobInput + EvaluationQuestion -> evaluate_forecasts -> JobEvaluation; evaluate_published -> PublishedEvaluation. With each comes
what figures are drawn from: the forecasts of every test job, which no answer holds.

How good allocations and forecasts of the wait would have been on a log; needs no site.

JobInput + NeedsQuestion -> evaluate_needs -> NeedsEvaluation and the rows of the judged jobs;
JobInput + WaitQuestion -> evaluate_waits -> WaitEvaluation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Final, Literal

import polars as pl

from stormpetrel.answers.schemas.history import Optimism
from stormpetrel.answers.schemas.job_evaluation import (
    JobEvaluation,
    NeedsEvaluation,
    NeedsQuestion,
    PublishedEvaluation,
    PublishedSplit,
    TableOneLine,
    WaitEvaluation,
    WaitQuestion,
    WeekFigures,
)
from stormpetrel.config import EnergySection, Settings
from stormpetrel.engine import ONE_PROCESS, Engine
from stormpetrel.errors import NotEnoughJobsError
from stormpetrel.jobs.exam.evaluation import evaluate, refit_weekly, weekly_table
from stormpetrel.jobs.exam.seed_models import RECIPES
from stormpetrel.jobs.exam.seed_protocol import SEED_TABLE_ONE, SHORT_S, honest_table, table_one
from stormpetrel.jobs.moments import Moment
from stormpetrel.jobs.needs import evaluation as needs_evaluation
from stormpetrel.jobs.optimism import optimism
from stormpetrel.jobs.wait import evaluation as wait_evaluation
from stormpetrel.learn.working_point import Costs
from stormpetrel.lifecycle.job_models import training_of
from stormpetrel.lifecycle.job_telemetry import FEWEST_JOBS, with_telemetry
from stormpetrel.sources.formats import ReadOptions
from stormpetrel.sources.reading import read_log

if TYPE_CHECKING:
    from stormpetrel.answers.schemas.job_evaluation import EvaluationQuestion
    from stormpetrel.answers.viewer import Viewer
    from stormpetrel.config import JobsSection
    from stormpetrel.jobs.exam.evaluation import Evaluation
    from stormpetrel.jobs.exam.seed_protocol import TableOne, TableOneRow
    from stormpetrel.jobs.training import TrainingSettings
    from stormpetrel.store.site import Site


@dataclass(frozen=True, slots=True)
class JobInput:
    """The jobs to work on, and what counts as what."""

    jobs: pl.DataFrame
    section: JobsSection
    time_zone: str
    notes: tuple[str, ...] = ()
    energy: EnergySection = field(default_factory=EnergySection)

    def since(self, moment: datetime) -> JobInput:
        """The same without jobs that were submitted before."""
        return replace(self, jobs=self.jobs.filter(pl.col("submit_time") >= moment))

    def training(self) -> TrainingSettings:
        """The same as the settings of a training."""
        return training_of(self.section, self.time_zone)


def jobs_of_site(site: Site, viewer: Viewer) -> JobInput:
    """Return the jobs of a site that the viewer may see, with its settings; NotEnoughJobsError where there are none."""
    visible = viewer.sees()
    jobs = site.jobs.read_jobs().filter(visible).collect()
    if not jobs.height:
        raise NotEnoughJobsError("The site has no jobs yet.", hint="Run: stormpetrel ingest jobs --live, or name files.")
    section = site.settings.jobs.model_copy(update={"similar_names": site.settings.allows_similar_names})
    measured = with_telemetry(site, jobs, fewest=FEWEST_JOBS)
    return JobInput(measured, section, site.settings.site.time_zone, energy=site.settings.energy)


def jobs_of_files(
    files: Sequence[str],
    format_name: str | None = None,
    fields: Sequence[str] | None = None,
    *,
    progress: Callable[[int, int], None] = lambda _done, _count: None,
) -> JobInput:
    """Return the jobs of log files, with the settings that a site begins with; notes say what was refused."""
    log = read_log(files, format_name, ReadOptions(fields=fields), progress=progress)
    refused = (f"{count:,} records were refused: {rule}" for rule, count in log.refused.items())
    settings = Settings()
    return JobInput(log.jobs, settings.jobs, settings.site.time_zone, (*log.notes, *refused), settings.energy)


Progress = Callable[[str], None]
SPLITS: Final[tuple[Literal["random", "time"], ...]] = ("random", "time")


def evaluate_forecasts(
    data: JobInput, question: EvaluationQuestion, *, progress: Progress = lambda _: None, engine: Engine = ONE_PROCESS
) -> tuple[JobEvaluation, Evaluation]:
    """Judge the model and the trivial rules at each moment; Table I and weekly refits are those of the first moment."""
    settings = replace(data.training(), seed=question.seed)
    moments = [Moment(moment) for moment in question.moments]
    evaluation = evaluate(
        data.jobs,
        settings,
        moments=moments,
        protocol=question.protocol,
        recalibrate=_costs(data.section, question) if question.recalibrate else None,
        progress=progress,
        engine=engine,
    )
    labelled, first = evaluation.labelled, moments[0]
    table = weeks = None
    if question.table_one:
        table = honest_table(labelled, first, settings, progress=_in_split("time", progress), engine=engine)
    if question.refit:
        weeks = weekly_table(refit_weekly(labelled, first, settings, progress=progress, engine=engine))
    answer = evaluation_answer(evaluation)
    added = {
        "notes": [*answer.notes, *data.notes],
        "table1": [] if table is None else table_lines(table),
        "refit": None if weeks is None else [WeekFigures(**row) for row in weeks.iter_rows(named=True)],
    }
    return answer.model_copy(update=added), evaluation


def _costs(section: JobsSection, question: EvaluationQuestion) -> Costs:
    """What wrong flags and missed failures cost: as asked, or as the settings say."""
    missed = section.missed_cost if question.missed_cost is None else question.missed_cost
    return Costs(missed, section.flags_per_day if question.flags_per_day is None else question.flags_per_day)


def evaluation_answer(evaluation: Evaluation) -> JobEvaluation:
    """Return the figures of an evaluation."""
    return JobEvaluation.model_validate(evaluation.as_json())


def evaluate_published(
    data: JobInput, *, seed: int = 0, engine: Engine = ONE_PROCESS, progress: Progress = lambda _: None
) -> tuple[PublishedEvaluation, dict[Literal["random", "time"], TableOne]]:
    """Fill Table I by the published protocol, with test jobs drawn at random and with later ones."""
    tables = {split: published_table(data, split, seed=seed, engine=engine, progress=progress) for split in SPLITS}
    early = optimism(data.jobs)
    answer = PublishedEvaluation(
        split=PublishedSplit(protocol="seed", splits=list(SPLITS), shortest_s=SHORT_S, jobs=data.jobs.height),
        at={},
        table1=[line for table in tables.values() for line in table_lines(table)],
        seconds={f"{split}.{name}": round(took, 3) for split, table in tables.items() for name, took in table.seconds.items()},
        notes=list(data.notes),
        optimistic=None if early is None else Optimism(**early.as_json()),
    )
    return answer, tables


def published_table(
    data: JobInput,
    split: Literal["random", "time"],
    *,
    seed: int = 0,
    quick: bool = False,
    engine: Engine = ONE_PROCESS,
    progress: Progress = lambda _: None,
) -> TableOne:
    """Fill one half of Table I: jobs of two minutes and more, the published columns and the limit; `quick`: published models."""
    return table_one(
        data.jobs,
        failure_states=data.section.failure_states,
        dropped_states=data.section.dropped_states,
        split=split,
        seed=seed,
        recipes=tuple(SEED_TABLE_ONE if quick else RECIPES),
        shortest_s=SHORT_S,
        with_limit=True,
        progress=_in_split(split, progress),
        engine=engine,
    )


def table_lines(table: TableOne) -> list[TableOneLine]:
    """Return the lines of one table, in their order."""
    return [table_line(row, table.split) for row in table.rows]


def table_line(row: TableOneRow, split: str) -> TableOneLine:
    """Return one line of a table, or of the published one."""
    return TableOneLine(
        split=split,
        model=row.model,
        title=row.title,
        part=row.part,
        **{f"{score}_failed": value for score, value in row.failed._asdict().items()},
        **{f"{score}_completed": value for score, value in row.completed._asdict().items()},
        accuracy=row.accuracy,
        roc_auc=row.roc_auc,
        jobs=row.jobs,
    )


def _in_split(split: str, progress: Progress) -> Callable[[str, int, int], None]:
    return lambda name, done, of: progress(f"{split} split: {name} ({done} of {of})")


def evaluate_needs(
    data: JobInput, question: NeedsQuestion, *, progress: Progress = lambda _: None
) -> tuple[NeedsEvaluation, pl.DataFrame]:
    """Judge what each job would have been given; with it one row per judged job: job, given, used, request, run_s, cores."""
    result = needs_evaluation.evaluate_needs(
        data.jobs, question.resource, protocol=question.protocol, seed=question.seed, progress=progress
    )
    answer = NeedsEvaluation.model_validate(result.as_json())
    return answer.model_copy(update={"notes": [*answer.notes, *data.notes]}), result.rows


def evaluate_waits(data: JobInput, question: WaitQuestion, *, progress: Progress = lambda _: None) -> WaitEvaluation:
    """Judge the p50 and p90 of the wait that each job would have been told at its submission."""
    result = wait_evaluation.evaluate_waits(data.jobs, protocol=question.protocol, seed=question.seed, progress=progress)
    return WaitEvaluation.model_validate(result.as_json())
