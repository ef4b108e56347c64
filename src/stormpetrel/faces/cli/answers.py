"""`stormpetrel check` and `stormpetrel why`: one screen each."""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stormpetrel.faces.cli.context import Context, Json, LogOdds, console, plain, print_json

if TYPE_CHECKING:
    from rich.console import Console

    from stormpetrel.answers.schemas.job import JobWhy, Waiting
    from stormpetrel.answers.schemas.predictions import Advice, ClusterFit, ScriptAnswer, Verdict

_SHOWN_REASONS = 5
_BAR = 30
ABOVE = 3  # exit code: the risk is above --fail-above
CANNOT_RUN = 4  # exit code: the cluster cannot run the script as it stands


def check(
    context: typer.Context,
    script: Annotated[Path, typer.Argument(help="A job script (#SBATCH, #PBS) or an HTCondor submit file.")],
    user: Annotated[
        str | None, typer.Option("--user", help="Whose job it will be; you, if left out.", show_default=False)
    ] = None,
    kind: Annotated[
        str | None, typer.Option("--kind", help="slurm, pbs or condor; found from the file if left out.", show_default=False)
    ] = None,
    fail_above: Annotated[
        float | None,
        typer.Option("--fail-above", min=0, max=1, help="Exit with 3 if the risk is above this.", show_default=False),
    ] = None,
    log_odds: LogOdds = False,
    as_json: Json = False,
) -> None:
    """Say before a job is submitted whether the cluster can run it, how likely it is to fail, why, and what to change."""
    from stormpetrel.answers.jobs.check import check_request
    from stormpetrel.answers.viewer import LOCAL
    from stormpetrel.sources.job_script import read_job_script

    request = read_job_script(script, kind=kind)
    chosen: Context = context.obj
    with chosen.open_site() as site:
        answer = check_request(site, LOCAL, request, user=user or getpass.getuser(), folder=str(Path.cwd()), now=site.now())
    if as_json:
        print_json(answer.model_dump(mode="json"))
    else:
        _show_check(answer, log_odds=log_odds)
    if answer.cluster is not None and answer.cluster.can_run is False:
        raise typer.Exit(CANNOT_RUN)
    if fail_above is not None and answer.risk is not None and answer.risk > fail_above:
        raise typer.Exit(ABOVE)


def why(
    context: typer.Context,
    job_id: Annotated[str, typer.Argument(help="12345, or 12345_7 for a task of an array.")],
    log_odds: LogOdds = False,
    as_json: Json = False,
) -> None:
    """Say what happened to a job, what would have been said in time, and what to change."""
    from stormpetrel.answers.jobs.why import explain_job
    from stormpetrel.answers.viewer import LOCAL

    chosen: Context = context.obj
    with chosen.open_site() as site:
        answer = explain_job(site, LOCAL, job_id, now=site.now())
    if as_json:
        print_json(answer.model_dump(mode="json"))
    else:
        _show_why(answer, log_odds=log_odds)


def _show_check(answer: ScriptAnswer, *, log_odds: bool) -> None:
    out = console()
    out.print(f"{plain(answer.script)} asks for {_request_words(answer.request)}")
    for warning in answer.warnings:
        out.print(f"  warning: {plain(warning)}")
    if answer.cluster is not None:
        _show_fit(out, answer.cluster)
    if answer.verdict is not None:
        out.print()
        show_verdict(out, answer.verdict, log_odds=log_odds)
    for note in answer.notes:
        out.print(f"  {plain(note)}")
    _show_advice(out, answer.advice)
    if not answer.advice:
        out.print("\nAdvice: none. Past jobs support no change of this request.")


def _show_why(answer: JobWhy, *, log_odds: bool) -> None:
    from stormpetrel.jobs.prediction_words import percent

    out = console()
    _show_job(out, answer)
    if answer.waiting is not None:
        _show_waiting(out, answer.waiting)
    if answer.at:
        out.print("\nThe risk of failing as today's model sees it, from what was known")
        for verdict in answer.at.values():
            flagged = "  flagged" if verdict.flagged else ""
            out.print(f"  at {verdict.moment:<7}{_bar(verdict.risk)} {percent(verdict.risk)}{flagged}")
        latest = list(answer.at.values())[-1]
        out.print(f"\nAt '{latest.moment}':")
        show_verdict(out, latest, log_odds=log_odds)
    for note in answer.notes:
        out.print(f"  {plain(note)}")
    if answer.next is not None:
        out.print(f"\nNext time: {plain(answer.next.sentence)}")
        if answer.next.line:
            out.print(f"    write: {plain(answer.next.line)}")
        for evidence in answer.next.evidence:
            out.print(f"    {plain(evidence)}")
    _show_advice(out, answer.advice)


def _show_fit(out: Console, fit: ClusterFit) -> None:
    """What the cluster cannot run, and what it could run later; one line where all is well."""
    if fit.can_run is False:
        out.print("\nThe cluster cannot run it as it stands:")
    elif fit.problems:
        out.print("\nIt would have to wait:")
    elif fit.can_run:
        out.print("  It fits the cluster's partitions, nodes and limits.")
    for problem in fit.problems:
        out.print(f"  {'✕' if problem.never_runs else '·'} {plain(problem.words)} {plain(problem.change)}")
        if problem.line:
            out.print(f"    write: {plain(problem.line)}")
    if fit.note:
        out.print(f"  {plain(fit.note)}")


def _show_waiting(out: Console, waiting: Waiting) -> None:
    out.print(f"  {plain(waiting.sentence)} Slurm says: {plain(waiting.reason)}")
    if waiting.change:
        out.print(f"    {plain(waiting.change)}")
    if waiting.command:
        out.print(f"    {plain(waiting.command)}")


def _show_job(out: Console, answer: JobWhy) -> None:
    from stormpetrel.jobs.advice_words import job_facts

    job: dict[str, Any] = answer.job
    name = f"{job['job_id']}" + (f"_{job['array_task']}" if job.get("array_task") is not None else "")
    user = plain(job.get("user") or "unknown user")
    out.print(f"Job {name} ({plain(job.get('job_name') or 'no name')}) of {user}: {job['state']}")
    facts = job_facts(job, never_started=answer.never_started)
    if facts:
        out.print(f"  {plain(', '.join(facts))}")


def show_verdict(out: Console, verdict: Verdict, *, log_odds: bool = False) -> None:
    """A risk with what a failure would be, and its strongest reasons."""
    from stormpetrel.jobs.prediction_words import percent, reason_words, verdict_words

    out.print(f"  {_bar(verdict.risk)} {verdict_words(verdict)}")
    if verdict.profile:
        out.print(f"  It is one of the {plain(verdict.profile)}.")
    out.print(f"  What raises ▲ and lowers ▽ it most, from the {percent(verdict.base_risk)} of the average job on:")
    for reason in verdict.reasons[:_SHOWN_REASONS]:
        out.print(f"  {'▲' if reason.contribution > 0 else '▽'} {plain(reason_words(reason, log_odds=log_odds))}")


def _show_advice(out: Console, advice: list[Advice]) -> None:
    from stormpetrel.jobs.prediction_words import percent

    for number, piece in enumerate(advice, 1):
        out.print(f"\nAdvice {number}: {plain(piece.sentence)}")
        if piece.line:
            out.print(f"    write: {plain(piece.line)}")
        if piece.risk_before is not None and piece.risk_after is not None:
            change = f"{percent(piece.risk_before)} → {percent(piece.risk_after)}"
            falls = piece.risk_after < piece.risk_before - 0.005
            out.print(f"    risk {change}" if falls else f"    the model sees no difference ({change}); past jobs do:")
        for evidence in piece.evidence:
            out.print(f"    {plain(evidence)}")


def _bar(risk: float) -> str:
    filled = round(risk * _BAR)
    return "█" * filled + "·" * (_BAR - filled)


_ASKED = {"req_nodes": "nodes", "req_cpus": "CPUs", "req_gpus": "GPUs", "array_tasks": "array tasks"}


def _request_words(columns: dict[str, Any]) -> str:
    """What a script asks for, in one line."""
    from stormpetrel.jobs.reasons import span
    from stormpetrel.records.sizes import memory_words

    parts = [f"{plain(str(columns[name]))} {words}" for name, words in _ASKED.items() if columns.get(name) is not None]
    if columns.get("req_mem_bytes"):
        parts.append(memory_words(columns["req_mem_bytes"]))
    if columns.get("time_limit_s"):
        parts.append(span(columns["time_limit_s"]))
    if columns.get("partition"):
        parts.append(f"partition {plain(str(columns['partition']))}")
    return ", ".join(parts) or "nothing; the defaults of the site apply"
