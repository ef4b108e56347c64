"""`stormpetrel jobs evaluate`: how good the forecasts would have been, and the seed's Table I."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from stormpetrel.errors import UsageError
from stormpetrel.faces.cli.context import Json, Workers, console, plain, print_json
from stormpetrel.faces.cli.job_input import (
    ALL_MOMENTS,
    At,
    Drop,
    Failed,
    Fields,
    Files,
    Format,
    Plot,
    Since,
    moments_of,
    read_input,
    steps_shown,
)

if TYPE_CHECKING:
    import polars as pl

    from stormpetrel.answers.job_input import JobInput
    from stormpetrel.engine import Engine
    from stormpetrel.jobs.evaluation import Evaluation, MomentResult
    from stormpetrel.jobs.features import FeatureMatrix
    from stormpetrel.jobs.moments import Moment
    from stormpetrel.jobs.seed_protocol import TableOne
    from stormpetrel.jobs.training import LabelledJobs, TrainingSettings

_SAMPLE: Final = 2000
SPLITS: Final[tuple[Literal["random", "time"], ...]] = ("random", "time")


def evaluate(
    context: typer.Context,
    files: Files = None,
    format_name: Format = None,
    fields: Fields = None,
    at: At = ALL_MOMENTS,
    failed: Failed = None,
    drop: Drop = None,
    since: Since = None,
    protocol: Annotated[
        str, typer.Option("--protocol", help="time: one cut at 80 %; rolling: five cuts; seed: Table I.")
    ] = "time",
    refit: Annotated[bool, typer.Option("--refit", help="Also refit every week, against one fit.")] = False,
    table_one: Annotated[
        bool, typer.Option("--table-one", help="Also Table I with what is known at the first moment, split by time.")
    ] = False,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the trees.")] = 0,
    workers: Workers = 1,
    plot: Plot = None,
    as_json: Json = False,
) -> None:
    """Say how good the forecasts would have been, beside the trivial rules; with honest time."""
    if protocol not in ("time", "rolling", "seed"):
        raise UsageError(f"Unknown protocol {protocol!r}.", hint="Known: time, rolling, seed.")
    given = read_input(
        context.obj, files, format_name=format_name, fields=fields, failed=failed, drop=drop, since=since, quiet=as_json
    )
    if protocol == "seed":
        _evaluate_seed(given, seed, workers, plot, as_json=as_json)
        return
    from dataclasses import replace

    from stormpetrel.engine import Engine
    from stormpetrel.jobs.evaluation import evaluate as measure

    settings = replace(given.training(), seed=seed)
    moments, engine = moments_of(at), Engine(workers)
    with steps_shown(quiet=as_json) as progress:
        result = measure(given.jobs, settings, moments=moments, protocol=protocol, progress=progress, engine=engine)
        honest = _table_of_moment(result.labelled, moments[0], settings, progress, engine) if table_one else None
        weeks = _refitted(result.labelled, moments[0], settings, progress, engine) if refit else None
    answer = result.as_json()
    answer["notes"] += given.notes
    if honest is not None:
        answer["table1"] = honest.as_rows()
    if weeks is not None:
        answer["refit"] = weeks.to_dicts()
    if plot:
        _plot_evaluation(plot, result, weeks)
    if as_json:
        print_json(answer)
        return
    _show_evaluation(answer)
    if honest is not None:
        _show_tables([honest], f"Table I with what is known at {moments[0]}")
    if weeks is not None:
        _show_weeks(weeks)
    if plot:
        console().print(f"\nFigures: {plot}")


def _table_of_moment(
    log: LabelledJobs, moment: Moment, settings: TrainingSettings, progress: Callable[[str], None], engine: Engine
) -> TableOne:
    from stormpetrel.jobs.honest_table import honest_table

    return honest_table(log, moment, settings, progress=_in_split("time", progress), engine=engine)


def _refitted(
    log: LabelledJobs, moment: Moment, settings: TrainingSettings, progress: Callable[[str], None], engine: Engine
) -> pl.DataFrame:
    from stormpetrel.jobs.evaluation import refit_weekly, weekly_table

    return weekly_table(refit_weekly(log, moment, settings, progress=progress, engine=engine))


def _in_split(split: str, progress: Callable[[str], None]) -> Callable[[str, int, int], None]:
    return lambda name, done, of: progress(f"{split} split: {name} ({done} of {of})")


def _evaluate_seed(given: JobInput, seed: int, workers: int, plot: Path | None, *, as_json: bool) -> None:
    from stormpetrel.engine import Engine
    from stormpetrel.jobs.optimism import optimism
    from stormpetrel.jobs.seed_protocol import SEED_TABLE_ONE, SHORT_S, table_one

    tables = []
    began: dict[str, float] = {}
    with steps_shown(quiet=as_json) as progress:
        for split in SPLITS:
            table = table_one(
                given.jobs,
                failure_states=given.section.failure_states,
                dropped_states=given.section.dropped_states,
                split=split,
                seed=seed,
                shortest_s=SHORT_S,
                with_limit=True,
                progress=_in_split(split, progress),
                engine=Engine(workers),
            )
            tables.append(table)
            began |= {f"{split}.{name}": round(value, 3) for name, value in table.seconds.items()}
    rows = [row for table in tables for row in table.as_rows()]
    early = optimism(given.jobs)
    if plot:
        from stormpetrel.figures.page import write_figures
        from stormpetrel.figures.quality import confidence_figure, roc_figure

        random = tables[0]
        chosen = random.forecasts["xgboost_active_learning"]
        figures = [
            *(
                roc_figure({row.title: table.forecasts[row.model] for row in table.rows if row.part == "test"})
                for table in tables
            ),
            confidence_figure(*chosen),
        ]
        write_figures(plot, "Table I and its figures", figures)
    if as_json:
        split_json = {"protocol": "seed", "splits": ["random", "time"], "shortest_s": SHORT_S, "jobs": given.jobs.height}
        print_json(
            {
                "split": split_json,
                "at": {},
                "table1": rows,
                "seconds": began,
                "notes": list(given.notes),
                "optimistic": early and early.as_json(),
            }
        )
        return
    if early is not None:
        console().print(plain(early.sentence))
    _show_tables(tables, "Table I, with columns that are known only when a job has ended (run time, CPU time): not a forecast")
    out = console()
    out.print("\nAs published, on another log (random split)")
    for row in SEED_TABLE_ONE.values():
        out.print(f"  {row.title:<34}{_table_line(row, None)}")


def _show_tables(tables: Sequence[TableOne], title: str) -> None:
    out = console()
    out.print(f"\n{title}.")
    out.print("Precision, recall and F1 are of failed / completed jobs, on the test part; accuracy in training in brackets.")
    for table in tables:
        out.print(f"\n{'At random, 80 : 20' if table.split == 'random' else 'By time, the last 20 %'}")
        out.print(f"  {'model':<34}{'precision':>13}{'recall':>13}{'F1':>13}{'accuracy':>16}{'ROC':>7}")
        for row in table.rows:
            if row.part == "test":
                learnt = next((r for r in table.rows if r.model == row.model and r.part == "train"), None)
                out.print(f"  {row.title:<34}{_table_line(row, learnt)}")


def _table_line(row: Any, learnt: Any) -> str:
    pairs = [(getattr(row, f"{name}_failed"), getattr(row, f"{name}_completed")) for name in ("precision", "recall", "f1")]
    numbers = "".join(f"{f'{bad:.2f} / {good:.2f}':>13}" for bad, good in pairs)
    trained = f" ({learnt.accuracy:.3f})" if learnt is not None else ""
    area = f"{row.roc_auc:7.3f}" if row.roc_auc is not None else "      –"
    return f"{numbers}{f'{row.accuracy:.3f}{trained}':>16}{area}"


def _show_evaluation(answer: dict[str, Any]) -> None:
    out = console()
    split = answer["split"]
    apart = f" ({split['never_started']:,} more never started)" if split["never_started"] else ""
    out.print(
        f"{split['usable']:,} ended jobs{apart}, {split['failed_share']:.1%} failed; {split['protocol']} split, "
        f"{len(split['cuts'])} cut{'s' if len(split['cuts']) > 1 else ''}, {sum(split['n_test']):,} jobs judged"
    )
    if answer["optimistic"]:
        out.print(plain(answer["optimistic"]["why"]))
    for moment, result in answer["at"].items():
        out.print(f"\nAt {moment}: {result['model']['n_test']:,} jobs")
        out.print(f"  {'':<22}{'ROC':>7}{'PR':>7}{'F1':>7}{'prec.':>7}{'recall':>7}{'Brier':>8}{'ECE':>7}")
        rows = {"stormpetrel": result["model"], **result["baselines"]}
        names = {"last_outcome": "user's last outcome", "user_rate": "user's failure rate", "xgboost": "untuned XGBoost"}
        for name, figures in rows.items():
            out.print(f"  {names.get(name, name):<22}{_figures(figures)}")
        for earlier, figures in result["same_jobs"].items():
            out.print(f"  {'same jobs, at ' + earlier:<22}{_figures(figures)}")
        for outcome, figures in result["outcomes"].items():
            out.print(f"  {'outcome ' + outcome:<22}{_figures(figures)}")
        skill, slope = result["calibration"]["brier_skill"], result["calibration"]["reliability_slope"]
        if skill is not None and slope is not None:
            out.print(f"  Brier skill against the user's rate {skill:.3f}; reliability slope {slope:.2f}")
    for note in answer["notes"]:
        if answer["optimistic"] and note == answer["optimistic"]["why"]:
            continue  # it stands above
        out.print(f"\nnote: {plain(note)}")


def _figures(figures: dict[str, Any]) -> str:
    names = (("roc_auc", 7), ("pr_auc", 7), ("f1", 7), ("precision", 7), ("recall", 7), ("brier", 8), ("ece", 7))
    return "".join(f"{'–':>{width}}" if figures[name] is None else f"{figures[name]:{width}.3f}" for name, width in names)


def _show_weeks(weeks: pl.DataFrame) -> None:
    out = console()
    out.print(f"\nRefitted every week, against one fit ({weeks.height - 1} weeks)")
    out.print(f"  {'week from':<22}{'jobs':>8}{'failed':>8}{'ROC once':>10}{'weekly':>8}{'PR once':>10}{'weekly':>8}")
    for row in weeks.iter_rows(named=True):
        cells = (
            f"{row[name]:.3f}" if row[name] is not None else "–" for name in ("roc_once", "roc_weekly", "pr_once", "pr_weekly")
        )
        once, weekly, pr_once, pr_weekly = cells
        out.print(f"  {row['begin']:<22}{row['jobs']:>8,}{row['failed']:>8,}{once:>10}{weekly:>8}{pr_once:>10}{pr_weekly:>8}")


def _sample(result: Evaluation, found: MomentResult) -> FeatureMatrix:
    """The last test jobs of a moment: enough for a mean."""
    return result.labelled.features[found.moment].rows(found.rows[-_SAMPLE:])


def _plot_evaluation(path: Path, result: Evaluation, weeks: pl.DataFrame | None) -> None:
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
    from stormpetrel.jobs.evaluation import MODEL, split_quality

    figures = []
    for moment, found in result.at.items():
        named = {f"{name}, at {moment}": (found.truth, found.probability(name)) for name in found.forecasts}
        ours = f"{MODEL}, at {moment}"
        figures += [roc_figure(named), precision_recall_figure(named), reliability_figure({ours: named[ours]})]
        figures += [confidence_figure(*named[ours]), threshold_figure(*named[ours], chosen=found.models[-1].threshold)]
        figures.append(importance_figure(found.models[-1].importance(_sample(result, found))))
        figures.append(quality_over_time_figure(split_quality(result, moment)))
    if weeks is not None:
        import polars as pl

        begun = weeks.filter(pl.col("begin") != "all").with_columns(time=pl.col("begin").str.to_datetime("%Y-%m-%dT%H:%M:%SZ"))
        figures += [
            quality_over_time_figure(begun.select("time", roc_auc=f"roc_{name}", pr_auc=f"pr_{name}"))
            for name in ("once", "weekly")
        ]
    write_figures(path, "How good the forecasts would have been", figures)
