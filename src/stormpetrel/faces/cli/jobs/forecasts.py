"""`stormpetrel jobs train | predict | explain | advise`: the models of a site, and what they forecast."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from stormpetrel.answers.jobs.one_job import ENOUGH_REASONS
from stormpetrel.answers.jobs.predictions import predict_jobs
from stormpetrel.answers.jobs.why import explain_job
from stormpetrel.answers.schemas.predictions import Advice, JobForecasts, Reason, Verdict
from stormpetrel.answers.schemas.registry import TrainingReceipt
from stormpetrel.answers.site.registry import train_jobs
from stormpetrel.answers.viewer import LOCAL
from stormpetrel.errors import UsageError
from stormpetrel.faces.cli.heavy_work import engine_of
from stormpetrel.faces.cli.jobs.input import ALL_MOMENTS, At, moments_of
from stormpetrel.faces.cli.options import EngineName, JobId, Json, LogOdds, Plot, Workers
from stormpetrel.faces.cli.output import emit, plain
from stormpetrel.faces.cli.progress import step_spinner
from stormpetrel.faces.cli.site import open_site
from stormpetrel.figures.page import write_figures
from stormpetrel.figures.waterfall import waterfall_figure
from stormpetrel.jobs.prediction_text import failure_text, percent, reason_text, verdict_text


def train(
    context: typer.Context,
    at: At = ALL_MOMENTS,
    answers: Annotated[
        bool | None,
        typer.Option(
            "--answers/--no-answers",
            help="Whether administrators' answers on single jobs (alarms ask) count; jobs.answers if left out.",
            show_default=False,
        ),
    ] = None,
    workers: Workers = None,
    engine: EngineName = None,
    as_json: Json = False,
) -> None:
    """Train a model of each moment that there are enough jobs for, on all jobs of the site, and make them current.

    Workers build the features where there are half a million jobs or more; the fit itself takes the cores of this machine.
    """
    place = engine_of(context, engine, workers)
    with open_site(context, to_write=True) as site, step_spinner(quiet=as_json) as progress:
        receipt = train_jobs(site, LOCAL, moments_of(at), answers=answers, engine=place, progress=progress)
    emit([model.model_dump(mode="json") for model in receipt.models], lambda out: _print_training(out, receipt), as_json=as_json)


def _print_training(out: Console, receipt: TrainingReceipt) -> None:
    entries = receipt.models
    for entry in entries:
        if "n_train" in entry.about:
            figures = f"{entry.about['n_train']:,} jobs, {entry.about['failed_share']:.1%} failed; flags from a risk of "
            out.print(f"{entry.name} version {entry.version}: {figures}{entry.about['threshold']:.0%} on")
    early = next((entry.about["optimistic"]["why"] for entry in entries if entry.about.get("optimistic")), None)
    if early:
        out.print(f"note: {plain(early)}")
    for missing in receipt.missing:
        out.print(f"There is {plain(missing)}.")
    out.print("How good they are: stormpetrel jobs evaluate. Use them: stormpetrel check job.sh")


def predict(
    context: typer.Context,
    at: Annotated[
        str | None, typer.Option("--at", help="submit, start or 2min; each job's latest moment if left out.", show_default=False)
    ] = None,
    last: Annotated[
        int | None,
        typer.Option(
            "--last", min=1, help="The last N submitted jobs, ended or not; jobs not yet ended if left out.", show_default=False
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Forecast which pending and running jobs will fail, highest risk first."""
    with open_site(context) as site:
        moment = moments_of(at)[0] if at else None
        answer = predict_jobs(site, LOCAL, moment=moment, last=last, now=site.now())
    emit(
        [forecast.model_dump(mode="json") for forecast in answer.forecasts],
        lambda out: _print_forecasts(out, answer),
        as_json=as_json,
    )


def _print_forecasts(out: Console, answer: JobForecasts) -> None:
    if not answer.forecasts:
        out.print("No job is pending or running. Read the latest (stormpetrel ingest jobs --live), or add --last 20.")
        return
    out.print(f"  {'job':<14}{'user':<14}{'start':<21}{'at':<8}{'risk of failing':>15}")
    for job in answer.forecasts:
        start = f"{job.start_time:%Y-%m-%d %H:%M:%S}" if job.start_time else "waiting"
        out.print(
            f"  {plain(job.job):<14}{plain(job.user or '?')[:13]:<14}{start:<21}{job.at:<8}"
            f"{percent(job.risk):>15}  {'flagged; ' if job.flagged else ''}{failure_text(job.likeliest)}"
            f"{'' if job.known else '  (new here: I do not know)'}"
        )
    for note in answer.notes:
        out.print(note)


def explain(
    context: typer.Context,
    job_id: JobId,
    at: Annotated[
        str | None, typer.Option("--at", help="submit, start or 2min; the latest if left out.", show_default=False)
    ] = None,
    top: Annotated[int, typer.Option("--top", min=1, help="How many reasons to show.")] = 15,
    plot: Plot = None,
    log_odds: LogOdds = False,
    as_json: Json = False,
) -> None:
    """Rank what raises and lowers the risk of one job (exact TreeSHAP), as list and waterfall."""
    with open_site(context) as site:
        answer = explain_job(site, LOCAL, job_id, now=site.now(), most_reasons=None)
    verdicts = [verdict for moment, verdict in answer.at.items() if at is None or moment in moments_of(at)]
    if not verdicts:
        raise UsageError(f"Job {job_id} cannot be explained at {at or 'any moment'}. {' '.join(answer.notes)}".strip())
    verdict = verdicts[-1]
    dump = verdict.model_dump(mode="json", exclude={"moment"})
    emit(
        {"job": job_id, "at": verdict.moment, **dump, "reasons": dump["reasons"][:ENOUGH_REASONS]},
        lambda out: _print_explanation(out, job_id, verdict, top=top, log_odds=log_odds),
        as_json=as_json,
        plot=plot,
        draw=lambda path: _draw_waterfall(path, job_id, verdict, top=top, log_odds=log_odds),
    )


def _draw_waterfall(path: Path, job_id: str, verdict: Verdict, *, top: int, log_odds: bool) -> None:
    named = [(reason.words, reason.contribution) for reason in verdict.reasons]
    figure = waterfall_figure(named, verdict.base or 0.0, verdict.risk, top=top, log_odds=log_odds)
    write_figures(path, f"Job {job_id}: why", [figure])


def _print_explanation(out: Console, job_id: str, verdict: Verdict, *, top: int, log_odds: bool) -> None:
    out.print(f"Job {plain(job_id)}, at {verdict.moment}: {verdict_text(verdict)}")
    start = f"{verdict.base or 0.0:+.2f} log-odds" if log_odds else percent(verdict.base_risk)
    out.print(f"  {start}: the average job")
    for reason in (*verdict.reasons[:top], _everything_else(verdict.reasons[top:])):
        out.print(f"  {plain(reason_text(reason, log_odds=log_odds))}")


def _everything_else(rest: Sequence[Reason]) -> Reason:
    contribution, points = sum(reason.contribution for reason in rest), sum(reason.points for reason in rest)
    label = f"everything else ({len(rest)} more)"
    return Reason(feature="", words=label, contribution=contribution, value=None, points=points)


def advise(
    context: typer.Context, job_id: Annotated[str, typer.Argument(help="A job to be submitted again.")], as_json: Json = False
) -> None:
    """Advise what to request when a job is submitted again, with the past jobs that support it."""
    with open_site(context) as site:
        answer = explain_job(site, LOCAL, job_id, now=site.now())
    pieces = [*([answer.next] if answer.next else []), *answer.advice]
    emit([piece.model_dump(mode="json") for piece in pieces], lambda out: _print_advice(out, pieces), as_json=as_json)


def _print_advice(out: Console, pieces: Sequence[Advice]) -> None:
    if not pieces:
        out.print("Past jobs support no change of this request.")
    for number, piece in enumerate(pieces, 1):
        out.print(f"{number}. {plain(piece.sentence)}")
        for evidence in piece.evidence:
            out.print(f"   {plain(evidence)}")
