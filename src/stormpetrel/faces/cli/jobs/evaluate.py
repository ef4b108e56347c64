"""`stormpetrel jobs evaluate`: how good the forecasts would have been, and the seed's Table I.

`stormpetrel jobs evaluate --needs` and `--wait`: how good allocations and forecasts of the wait would have been.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import polars as pl
import typer
from rich.console import Console

from stormpetrel.answers.schemas.job_evaluation import (
    AllocationFigures,
    EvaluationQuestion,
    FirstDaysEvaluation,
    FirstPeriod,
    ForecastFigures,
    JobEvaluation,
    NeedsEvaluation,
    NeedsQuestion,
    PublishedEvaluation,
    Recalibrated,
    TableOneLine,
    WaitEvaluation,
    WaitQuestion,
    WeekFigures,
)
from stormpetrel.answers.studies.first_days import evaluate_first_days
from stormpetrel.answers.studies.job_evaluation import (
    JobInput,
    evaluate_forecasts,
    evaluate_needs,
    evaluate_published,
    evaluate_waits,
    table_line,
)
from stormpetrel.answers.studies.many_logs import LogReading, evaluate_logs
from stormpetrel.config import JobsSection
from stormpetrel.engine import Engine
from stormpetrel.errors import UsageError
from stormpetrel.faces.cli.heavy_work import engine_of
from stormpetrel.faces.cli.jobs.input import ALL_MOMENTS, At, Files, moments_of, read_input, with_states
from stormpetrel.faces.cli.options import (
    Drop,
    EngineName,
    Failed,
    Fields,
    Format,
    Json,
    KeepResults,
    Plot,
    Seed,
    SinceDay,
    Workers,
)
from stormpetrel.faces.cli.output import emit, plain
from stormpetrel.faces.cli.progress import share_spinner, step_spinner
from stormpetrel.faces.cli.site import parse_day
from stormpetrel.figures.answer_rows import frame_of
from stormpetrel.figures.page import write_figures
from stormpetrel.figures.quality import (
    confidence_figure,
    importance_figure,
    precision_recall_figure,
    quality_over_time_figure,
    reliability_figure,
    roc_figure,
    threshold_figure,
)
from stormpetrel.jobs.exam.evaluation import MODEL, Evaluation, MomentResult, split_quality
from stormpetrel.jobs.exam.seed_protocol import SEED_TABLE_ONE, TableOne
from stormpetrel.jobs.features import FeatureMatrix
from stormpetrel.jobs.needs.past_use import RESOURCES
from stormpetrel.jobs.prior.first_days import DAYS, STARTS
from stormpetrel.private_files import writing_private
from stormpetrel.records.spreadsheet import without_formulas

_SAMPLE: Final = 2000
_SOME_DAYS: Final = re.compile(r"\d{1,3}(?:,\d{1,3})*", re.ASCII)
_FORECASTERS: Final = {"user_rate": "user's rate so far", "prior": "prior", "blend": "prior and own", "own": "own alone"}
_LABELS: Final = {
    "request": "users' requests",
    "max_of_last": "max of last × 1.2",
    "tovar": "Tovar, first allocation",
    "witt": "Witt, 95th percentile",
    "last_20_same_shape": "last 20, same shape",
}


def evaluate(
    context: typer.Context,
    files: Files = None,
    format_name: Format = None,
    fields: Fields = None,
    at: At = ALL_MOMENTS,
    failed: Failed = None,
    drop: Drop = None,
    since: SinceDay = None,
    protocol: Annotated[
        str, typer.Option("--protocol", help="time: one cut at 80 %; rolling: five cuts; seed: Table I.")
    ] = "time",
    refit: Annotated[bool, typer.Option("--refit", help="Also refit every week, against one fit.")] = False,
    table_one: Annotated[
        bool, typer.Option("--table-one", help="Also Table I with what is known at the first moment, split by time.")
    ] = False,
    recalibrate: Annotated[
        bool, typer.Option("--recalibrate", help="Also correct risks and flags online, by jobs that had ended before.")
    ] = False,
    missed_cost: Annotated[
        float | None, typer.Option("--missed-cost", min=0, help="Wrong flags that one missed failure is worth; 0: best F1.")
    ] = None,
    flags_per_day: Annotated[
        float | None, typer.Option("--flags-per-day", min=0, help="Budget of flags a day; 0: as many as usual.")
    ] = None,
    needs: Annotated[
        str | None, typer.Option("--needs", help="Evaluate recommended requests instead: memory, time, cpus, gpus or gpu_memory.")
    ] = None,
    rows: Annotated[
        Path | None, typer.Option("--rows", help="With --needs: write one line per judged job to this CSV file.")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Evaluate forecasts of waits instead.")] = False,
    new_site: Annotated[
        bool, typer.Option("--first-days", help="Evaluate a new site's first days instead: the prior on logs it has not seen.")
    ] = False,
    each: Annotated[bool, typer.Option("--each", help="Judge each file by itself, not all as one log.")] = False,
    keep: KeepResults = None,
    starts: Annotated[int, typer.Option("--starts", min=1, help="With --first-days: starting days drawn of each log.")] = STARTS,
    seed: Seed = 0,
    workers: Workers = None,
    engine: EngineName = None,
    plot: Plot = None,
    as_json: Json = False,
) -> None:
    """Evaluate how good the forecasts would have been, compared with trivial rules; nothing from the future is used."""
    if protocol not in ("time", "rolling", "seed"):
        raise UsageError(f"Unknown protocol {protocol!r}.", hint="Known: time, rolling, seed.")
    recalibrate = recalibrate or missed_cost is not None or flags_per_day is not None
    if recalibrate and protocol == "seed":
        raise UsageError("The published protocol has no order of time to recalibrate in.", hint="Use --protocol time or rolling.")
    check_options(needs, rows, wait=wait, protocol=protocol)
    question = {"protocol": protocol, "table_one": table_one, "refit": refit, "seed": seed}
    question |= {"recalibrate": recalibrate, "missed_cost": missed_cost, "flags_per_day": flags_per_day}
    if each or keep is not None:
        if not (each and files) or protocol == "seed" or needs is not None or wait or new_site or plot is not None:
            raise UsageError(
                "--each and --keep are about the forecasts of several logs.", hint="Name them: jobs evaluate --each FILE…"
            )
        names = tuple(name.strip() for name in fields.split(",")) if fields else None
        first = parse_day(since, "--since") if since else None
        reading = LogReading(with_states(JobsSection(), failed, drop), format_name, names, first)
        _evaluate_each(files, at, question, reading, keep, engine_of(context, engine, workers), as_json=as_json)
        return
    if new_site:
        days, files = _days_among(files)
        read = partial(read_input, context, format_name=format_name, fields=fields, failed=failed, drop=drop, since=since)
        inputs = {Path(file).name: read([file], quiet=as_json) for file in files or ()} or {"site": read(None, quiet=as_json)}
        _evaluate_first_days(inputs, seed, (starts, days), engine_of(context, engine, workers), as_json=as_json)
        return
    data = read_input(
        context, files, format_name=format_name, fields=fields, failed=failed, drop=drop, since=since, quiet=as_json
    )
    if needs is not None:
        about = {"resource": needs, "protocol": protocol, "seed": seed}
        show_needs(data, NeedsQuestion.model_validate(about), rows, as_json=as_json)
    elif wait:
        show_waits(data, WaitQuestion.model_validate({"protocol": protocol, "seed": seed}), as_json=as_json)
    elif protocol == "seed":
        _evaluate_published(data, seed, engine_of(context, engine, workers), plot, as_json=as_json)
    else:
        _evaluate_outcomes(data, at, question, plot, engine_of(context, engine, workers), as_json=as_json)


def _evaluate_each(
    files: Sequence[str],
    at: str,
    options: dict[str, object],
    reading: LogReading,
    keep: Path | None,
    engine: Engine,
    *,
    as_json: bool,
) -> None:
    question = EvaluationQuestion.model_validate({"moments": [str(moment) for moment in moments_of(at)], **options})
    with share_spinner(quiet=as_json) as progress:
        answers = evaluate_logs([Path(file) for file in files], question, reading, engine=engine, keep=keep, progress=progress)

    def text(out: Console) -> None:
        for name, answer in answers.items():
            out.print(f"\n{plain(name)}")
            _print_evaluation(out, answer)

    emit({name: _without_unasked(answer, refit=question.refit) for name, answer in answers.items()}, text, as_json=as_json)


def _evaluate_outcomes(
    data: JobInput, at: str, options: dict[str, object], plot: Path | None, engine: Engine, *, as_json: bool
) -> None:
    question = EvaluationQuestion.model_validate({"moments": [str(moment) for moment in moments_of(at)], **options})
    with step_spinner(quiet=as_json) as progress:
        answer, evaluation = evaluate_forecasts(data, question, progress=progress, engine=engine)

    def text(out: Console) -> None:
        _print_evaluation(out, answer)
        if question.table_one:
            _print_tables(out, answer.table1, f"Table I with what is known at {question.moments[0]}")
        if answer.refit is not None:
            _print_weeks(out, answer.refit)

    emit(
        _without_unasked(answer, refit=question.refit),
        text,
        as_json=as_json,
        plot=plot,
        draw=lambda path: _draw_evaluation(path, evaluation, answer.refit),
    )


def _without_unasked(answer: JobEvaluation, *, refit: bool) -> dict[str, Any]:
    """Return the answer without what nobody asked for."""
    content = answer.model_dump(mode="json", exclude=None if refit else {"refit"})
    for figures in content["at"].values():
        if figures["recalibrated"] is None:
            del figures["recalibrated"]
    return content


def _evaluate_published(data: JobInput, seed: int, engine: Engine, plot: Path | None, *, as_json: bool) -> None:
    with step_spinner(quiet=as_json) as progress:
        answer, tables = evaluate_published(data, seed=seed, engine=engine, progress=progress)
    emit(
        answer,
        lambda out: _print_published(out, answer),
        as_json=as_json,
        plot=plot,
        draw=lambda path: _draw_published(path, list(tables.values())),
    )


def _days_among(files: list[str] | None) -> tuple[tuple[int, ...], list[str] | None]:
    """The days that follow --first-days (`1,3,10`; all where none do), and the files: both are words without an option."""
    word_of_days = next((word for word in files or () if _SOME_DAYS.fullmatch(word) and not Path(word).exists()), None)
    if word_of_days is None:
        return DAYS, files
    days = tuple(int(day) for day in word_of_days.split(","))
    if unknown := [day for day in days if day not in DAYS]:
        known = ",".join(f"{day}" for day in DAYS)
        raise UsageError(f"The first {unknown[0]} days are not judged.", hint=f"Name some of {known}, or none for all of them.")
    return days, [word for word in files or () if word is not word_of_days]


def _evaluate_first_days(
    inputs: dict[str, JobInput], seed: int, periods: tuple[int, tuple[int, ...]], engine: Engine, *, as_json: bool
) -> None:
    starts, days = periods
    with step_spinner(quiet=as_json) as progress:
        answer = evaluate_first_days(inputs, seed=seed, starts=starts, progress=progress, engine=engine)
    logs = [log.model_copy(update={"periods": [period for period in log.periods if period.days in days]}) for log in answer.logs]
    answer = answer.model_copy(update={"logs": logs})
    printed = answer.model_dump(mode="json")
    if len(logs) == 1:
        printed["first_days"] = {f"{period.days}": _by_forecaster(period) for period in logs[0].periods}
    emit(printed, lambda out: _print_first_days(out, answer), as_json=as_json)


def _by_forecaster(period: FirstPeriod) -> dict[str, dict[str, float]]:
    """The figures of a period by who forecast."""
    return {name: {"roc_auc": period.roc_auc[name], "log_loss": period.log_loss[name]} for name in period.roc_auc}


def _print_first_days(out: Console, answer: FirstDaysEvaluation) -> None:
    out.print(f"A site that knows nothing of its past, at submission; the prior: {answer.prior}. Means over starting days.")
    for log in answer.logs:
        out.print(f"\n{plain(log.log)}: {log.jobs:,} jobs, {log.failures:,} failed")
        out.print(f"  {'first days':<12}{'starts':>7}{'jobs':>9}" + "".join(f"{label:>20}" for label in _FORECASTERS.values()))
        for period in log.periods:
            cells = (f"{period.roc_auc[name]:.3f} / {period.log_loss[name]:.3f}" for name in _FORECASTERS)
            line = "".join(f"{cell:>20}" for cell in cells)
            out.print(f"  {period.days:<12}{period.starts:>7}{period.jobs:>9,}{line}")
    out.print("\nROC area / log loss in nats.")
    for note in answer.notes:
        out.print(plain(note))


def _print_published(out: Console, answer: PublishedEvaluation) -> None:
    if answer.optimistic is not None:
        out.print(plain(answer.optimistic.why))
    _print_tables(
        out, answer.table1, "Table I, with columns that are known only when a job has ended (run time, CPU time): not a forecast"
    )
    out.print("\nAs published, on another log (random split)")
    for row in SEED_TABLE_ONE.values():
        out.print(f"  {row.title:<34}{_table_line(table_line(row, 'random'), None)}")


def _print_tables(out: Console, lines: Sequence[TableOneLine], title: str) -> None:
    out.print(f"\n{title}.")
    out.print("Precision, recall and F1 are of failed / completed jobs, on the test part; accuracy in training in brackets.")
    learnt = {(line.split, line.model): line for line in lines if line.part == "train"}
    for split in dict.fromkeys(line.split for line in lines):
        out.print(f"\n{'At random, 80 : 20' if split == 'random' else 'By time, the last 20 %'}")
        out.print(f"  {'model':<34}{'precision':>13}{'recall':>13}{'F1':>13}{'accuracy':>16}{'ROC':>7}")
        for line in lines:
            if line.split == split and line.part == "test":
                out.print(f"  {line.title:<34}{_table_line(line, learnt.get((split, line.model)))}")


def _table_line(row: TableOneLine, learnt: TableOneLine | None) -> str:
    pairs = [(getattr(row, f"{name}_failed"), getattr(row, f"{name}_completed")) for name in ("precision", "recall", "f1")]
    numbers = "".join(f"{f'{bad:.2f} / {good:.2f}':>13}" for bad, good in pairs)
    trained = f" ({learnt.accuracy:.3f})" if learnt is not None else ""
    area = f"{row.roc_auc:7.3f}" if row.roc_auc is not None else "      –"
    return f"{numbers}{f'{row.accuracy:.3f}{trained}':>16}{area}"


def _print_evaluation(out: Console, answer: JobEvaluation) -> None:
    split, early = answer.split, answer.optimistic
    apart = f" ({split.never_started:,} more never started)" if split.never_started else ""
    out.print(
        f"{split.usable:,} ended jobs{apart}, {split.failed_share:.1%} failed; {split.protocol} split, "
        f"{len(split.cuts)} cut{'s' if len(split.cuts) > 1 else ''}, {sum(split.n_test):,} jobs judged"
    )
    if early:
        out.print(plain(early.why))
    for moment, result in answer.at.items():
        out.print(f"\nAt {moment}: {result.model.n_test:,} jobs")
        out.print(f"  {'':<22}{'ROC':>7}{'PR':>7}{'F1':>7}{'prec.':>7}{'recall':>7}{'Brier':>8}{'ECE':>7}")
        rows = {"stormpetrel": result.model, **result.baselines}
        names = {"last_outcome": "user's last outcome", "user_rate": "user's failure rate", "xgboost": "untuned XGBoost"}
        for name, figures in rows.items():
            out.print(f"  {names.get(name, name):<22}{_figures(figures)}")
        if result.recalibrated is not None:
            _print_recalibrated(out, result.recalibrated)
        for earlier, figures in result.same_jobs.items():
            out.print(f"  {'same jobs, at ' + earlier:<22}{_figures(figures)}")
        for outcome, figures in result.outcomes.items():
            out.print(f"  {'outcome ' + outcome:<22}{_figures(figures)}")
        skill, slope = result.calibration.brier_skill, result.calibration.reliability_slope
        if skill is not None and slope is not None:
            out.print(f"  Brier skill against the user's rate {skill:.3f}; reliability slope {slope:.2f}")
    for note in answer.notes:
        if early and note == early.why:
            continue  # it stands above
        out.print(f"\nnote: {plain(note)}")


def _print_recalibrated(out: Console, figures: Recalibrated) -> None:
    """Print the corrected forecasts in the columns of the others, and both working points."""
    budget, ece = figures.flags_per_day, "–" if figures.ece is None else f"{figures.ece:.3f}"
    numbers = "".join(f"{number:7.3f}" for number in (figures.f1, figures.precision, figures.recall))
    out.print(f"  {'recalibrated online':<22}{'':>14}{numbers}{'':>8}{ece:>7}")
    spent = "".join(f"{number:7.3f}" for number in (budget.f1, budget.precision, budget.recall))
    out.print(f"  {'  by flags a day':<22}{'':>14}{spent}   {budget.promised:,.0f} promised, {budget.realised:,.1f} made")


def _figures(figures: ForecastFigures) -> str:
    names = (("roc_auc", 7), ("pr_auc", 7), ("f1", 7), ("precision", 7), ("recall", 7), ("brier", 8), ("ece", 7))
    return "".join(f"{'–':>{width}}" if figures[name] is None else f"{figures[name]:{width}.3f}" for name, width in names)


def _print_weeks(out: Console, weeks: Sequence[WeekFigures]) -> None:
    out.print(f"\nRefitted every week, against one fit ({len(weeks) - 1} weeks)")
    out.print(f"  {'week from':<22}{'jobs':>8}{'failed':>8}{'ROC once':>10}{'weekly':>8}{'PR once':>10}{'weekly':>8}")
    for week in weeks:
        areas = (week.roc_once, week.roc_weekly, week.pr_once, week.pr_weekly)
        once, weekly, pr_once, pr_weekly = ("–" if area is None else f"{area:.3f}" for area in areas)
        out.print(f"  {week.begin:<22}{week.jobs:>8,}{week.failed:>8,}{once:>10}{weekly:>8}{pr_once:>10}{pr_weekly:>8}")


def _draw_published(path: Path, tables: Sequence[TableOne]) -> None:
    figures = [
        roc_figure({row.title: table.forecasts[row.model] for row in table.rows if row.part == "test"}) for table in tables
    ]
    figures.append(confidence_figure(*tables[0].forecasts["xgboost_active_learning"]))
    write_figures(path, "Table I and its figures", figures)


def _sample(evaluation: Evaluation, result: MomentResult) -> FeatureMatrix:
    """Return the last test jobs of a moment: enough for a mean."""
    return evaluation.labelled.features[result.moment].rows(result.rows[-_SAMPLE:])


def _draw_evaluation(path: Path, evaluation: Evaluation, weeks: Sequence[WeekFigures] | None) -> None:
    figures = []
    for moment, result in evaluation.at.items():
        named = {f"{name}, at {moment}": (result.truth, result.probability(name)) for name in result.forecasts}
        ours = f"{MODEL}, at {moment}"
        figures += [roc_figure(named), precision_recall_figure(named), reliability_figure({ours: named[ours]})]
        figures += [confidence_figure(*named[ours]), threshold_figure(*named[ours], chosen=result.models[-1].threshold)]
        figures.append(importance_figure(result.models[-1].importance(_sample(evaluation, result))))
        figures.append(quality_over_time_figure(split_quality(evaluation, moment)))
    if weeks is not None:
        begun = (
            frame_of(weeks)
            .filter(pl.col("begin") != "all")
            .with_columns(time=pl.col("begin").str.to_datetime("%Y-%m-%dT%H:%M:%SZ"))
        )
        figures += [
            quality_over_time_figure(begun.select("time", roc_auc=f"roc_{name}", pr_auc=f"pr_{name}"))
            for name in ("once", "weekly")
        ]
    write_figures(path, "How good the forecasts would have been", figures)


def check_options(needs: str | None, rows: Path | None, *, wait: bool, protocol: str) -> None:
    """Refuse combinations that mean nothing; UsageError."""
    if needs is not None and needs not in RESOURCES:
        raise UsageError(f"Unknown resource {needs!r} for --needs.", hint=f"Known: {', '.join(RESOURCES)}.")
    if rows is not None and needs is None:
        raise UsageError("--rows writes what --needs judged.", hint="Add --needs memory, --needs time or --needs cpus.")
    if needs is not None and wait:
        raise UsageError("--needs and --wait are two evaluations.", hint="Ask for one at a time.")
    if (needs is not None or wait) and protocol == "seed":
        raise UsageError("--protocol seed is Table I alone.", hint="Use --protocol time or rolling.")


def show_needs(data: JobInput, question: NeedsQuestion, rows: Path | None, *, as_json: bool) -> None:
    """Evaluate allocations of one resource, print the figures, and write the judged jobs to `rows`."""
    with step_spinner(quiet=as_json) as progress:
        answer, judged = evaluate_needs(data, question, progress=progress)
    if rows is not None:
        _write_rows(judged, rows)
    emit(answer, lambda out: _print_needs(out, answer), as_json=as_json)


def show_waits(data: JobInput, question: WaitQuestion, *, as_json: bool) -> None:
    """Evaluate forecasts of the wait and print the figures."""
    with step_spinner(quiet=as_json) as progress:
        answer = evaluate_waits(data, question, progress=progress)
    emit(answer, lambda out: _print_waits(out, answer), as_json=as_json)


def _write_rows(judged: pl.DataFrame, path: Path) -> None:
    with writing_private(path) as file:
        without_formulas(judged).write_csv(file)


def _print_needs(out: Console, answer: NeedsEvaluation) -> None:
    for resource, figures in answer.needs.items():
        out.print(f"What jobs would have been given of {resource}: {figures.model.n:,} jobs judged")
        out.print(f"  {'':<26}{'too little':>12}{'wasted ÷ used':>16}")
        rows: dict[str, AllocationFigures] = {"stormpetrel": figures.model, **figures.baselines}
        for name, each in rows.items():
            share = "–" if each.under_share is None else f"{each.under_share:.1%}"
            waste = "–" if each.waste_ratio is None else f"{each.waste_ratio:.3f}"
            out.print(f"  {_LABELS.get(name, name):<26}{share:>12}{waste:>16}")
        enough = ", ".join(f"{name} {share:.1%}" for name, share in figures.model.coverage.items())
        out.print(f"  Jobs that used no more than each quantile: {enough}")
    for note in answer.notes:
        out.print(f"\nnote: {plain(note)}")


def _print_waits(out: Console, answer: WaitEvaluation) -> None:
    figures = answer.wait
    out.print(f"How long jobs were told to wait: {figures.model.n:,} jobs judged (pinball loss in seconds, lower is better)")
    out.print(f"  {'':<26}{'pinball p50':>13}{'p90':>10}{'within p50':>13}{'p90':>9}")
    for name, each in {"stormpetrel": figures.model, **figures.baselines}.items():
        loss = f"{each.pinball_50:>13,.0f}{each.pinball_90:>10,.0f}"
        out.print(f"  {_LABELS.get(name, name):<26}{loss}{each.coverage_50:>13.1%}{each.coverage_90:>9.1%}")
