"""`stormpetrel jobs`: train, predict, explain, advise; its other verbs are in `jobs_evaluate` and `jobs_study`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from stormpetrel.errors import UsageError
from stormpetrel.faces.cli import jobs_evaluate, jobs_study
from stormpetrel.faces.cli.context import Context, Json, LogOdds, console, plain, print_json
from stormpetrel.faces.cli.job_input import ALL_MOMENTS, At, Plot, moments_of, steps_shown

if TYPE_CHECKING:
    from stormpetrel.answers.schemas.predictions import Reason

app = typer.Typer(help="Which jobs will fail, why, and what to ask for instead.", no_args_is_help=True, rich_markup_mode=None)


@app.command("train")
def train(context: typer.Context, at: At = ALL_MOMENTS, as_json: Json = False) -> None:
    """Train a model of each moment that there are enough jobs for, on all jobs of the site, and make them current."""
    from stormpetrel.answers.site.training import train_jobs
    from stormpetrel.answers.viewer import LOCAL

    chosen: Context = context.obj
    with chosen.open_site(to_write=True) as site, steps_shown(quiet=as_json) as progress:
        receipt = train_jobs(site, LOCAL, moments_of(at), progress=progress)
    if as_json:
        print_json([model.model_dump(mode="json") for model in receipt.models])
        return
    out, entries = console(), receipt.models
    for entry in entries:
        if "n_train" in entry.about:
            figures = f"{entry.about['n_train']:,} jobs, {entry.about['failed_share']:.1%} failed; flags from a risk of "
            out.print(f"{entry.name} version {entry.version}: {figures}{entry.about['threshold']:.0%} on")
    early = next((entry.about["optimistic"]["why"] for entry in entries if entry.about.get("optimistic")), None)
    if early:
        out.print(f"note: {plain(early)}")
    for words in receipt.missing:
        out.print(f"There is {plain(words)}.")
    out.print("How good they are: stormpetrel jobs evaluate. Ask them: stormpetrel check job.sh")


@app.command("predict")
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
    """Say of the jobs that wait or run now how likely they are to fail, most likely first."""
    from stormpetrel.answers.jobs.predictions import predict_jobs
    from stormpetrel.answers.viewer import LOCAL

    chosen: Context = context.obj
    with chosen.open_site() as site:
        moment = moments_of(at)[0] if at else None
        forecasts = predict_jobs(site, LOCAL, moment=moment, last=last, now=site.now()).forecasts
    if as_json:
        print_json([forecast.model_dump(mode="json") for forecast in forecasts])
        return
    out = console()
    if not forecasts:
        out.print("No job waits or runs. Take in the latest (stormpetrel ingest jobs --live), or ask for --last 20.")
        return
    from stormpetrel.jobs.prediction_words import failure_words, percent

    out.print(f"  {'job':<14}{'user':<14}{'start':<21}{'at':<8}{'risk of failing':>15}")
    for job in forecasts:
        start = f"{job.start_time:%Y-%m-%d %H:%M:%S}" if job.start_time else "waiting"
        out.print(
            f"  {plain(job.job):<14}{plain(job.user or '?')[:13]:<14}{start:<21}{job.at:<8}"
            f"{percent(job.risk):>15}  {'flagged; ' if job.flagged else ''}{failure_words(job.likeliest)}"
            f"{'' if job.known else '  (new here: I do not know)'}"
        )


@app.command("explain")
def explain(
    context: typer.Context,
    job_id: Annotated[str, typer.Argument(help="12345, or 12345_7 for a task of an array.")],
    at: Annotated[
        str | None, typer.Option("--at", help="submit, start or 2min; the latest if left out.", show_default=False)
    ] = None,
    top: Annotated[int, typer.Option("--top", min=1, help="How many reasons to show.")] = 15,
    plot: Plot = None,
    log_odds: LogOdds = False,
    as_json: Json = False,
) -> None:
    """Rank what speaks for and against a failure of one job (exact TreeSHAP), as list and waterfall."""
    from stormpetrel.answers.jobs.one_job import ENOUGH_REASONS
    from stormpetrel.answers.jobs.why import explain_job
    from stormpetrel.answers.viewer import LOCAL

    chosen: Context = context.obj
    with chosen.open_site() as site:
        answer = explain_job(site, LOCAL, job_id, now=site.now(), most_reasons=None)
    verdicts = [verdict for moment, verdict in answer.at.items() if at is None or moment in moments_of(at)]
    if not verdicts:
        raise UsageError(f"Job {job_id} cannot be explained at {at or 'any moment'}. {' '.join(answer.notes)}".strip())
    verdict = verdicts[-1]
    if plot:
        from stormpetrel.figures.page import write_figures
        from stormpetrel.figures.waterfall import waterfall_figure

        named = [(reason.words, reason.contribution) for reason in verdict.reasons]
        figure = waterfall_figure(named, verdict.base or 0.0, verdict.risk, top=top, log_odds=log_odds)
        write_figures(plot, f"Job {job_id}: why", [figure])
    if as_json:
        dump = verdict.model_dump(mode="json", exclude={"moment"})
        print_json({"job": job_id, "at": verdict.moment, **dump, "reasons": dump["reasons"][:ENOUGH_REASONS]})
        return
    from stormpetrel.jobs.prediction_words import percent, reason_words, verdict_words

    out = console()
    out.print(f"Job {plain(job_id)}, at {verdict.moment}: {verdict_words(verdict)}")
    start = f"{verdict.base or 0.0:+.2f} log-odds" if log_odds else percent(verdict.base_risk)
    out.print(f"  {start}: the average job")
    for reason in (*verdict.reasons[:top], _everything_else(verdict.reasons[top:])):
        out.print(f"  {plain(reason_words(reason, log_odds=log_odds))}")


def _everything_else(rest: Sequence[Reason]) -> Reason:
    from stormpetrel.answers.schemas.predictions import Reason

    contribution, points = sum(reason.contribution for reason in rest), sum(reason.points for reason in rest)
    words = f"everything else ({len(rest)} more)"
    return Reason(feature="", words=words, contribution=contribution, value=None, points=points)


@app.command("advise")
def advise(
    context: typer.Context, job_id: Annotated[str, typer.Argument(help="A job to be submitted again.")], as_json: Json = False
) -> None:
    """Say what to ask for when a job is submitted again, with the past jobs that speak for it."""
    from stormpetrel.answers.jobs.why import explain_job
    from stormpetrel.answers.viewer import LOCAL

    chosen: Context = context.obj
    with chosen.open_site() as site:
        answer = explain_job(site, LOCAL, job_id, now=site.now())
    pieces = [*([answer.next] if answer.next else []), *answer.advice]
    if as_json:
        print_json([piece.model_dump(mode="json") for piece in pieces])
        return
    out = console()
    if not pieces:
        out.print("Past jobs support no change of this request.")
    for number, piece in enumerate(pieces, 1):
        out.print(f"{number}. {plain(piece.sentence)}")
        for evidence in piece.evidence:
            out.print(f"   {plain(evidence)}")


app.command("evaluate")(jobs_evaluate.evaluate)
jobs_study.register(app)
