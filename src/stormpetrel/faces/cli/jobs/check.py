"""`stormpetrel check` and `stormpetrel why`: the risk of a job, its reasons, and advice, on one screen."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from stormpetrel_client.sbatch import split_words

from stormpetrel.answers.jobs.check import check_request
from stormpetrel.answers.jobs.why import explain_job
from stormpetrel.answers.schemas.job import JobCause, JobWhy, Waiting
from stormpetrel.answers.schemas.predictions import Advice, ClusterFit, NeedOutlook, ScriptAnswer, Verdict, WaitOutlook
from stormpetrel.answers.viewer import LOCAL
from stormpetrel.errors import UsageError
from stormpetrel.faces.cli.options import JobId, Json, LogOdds
from stormpetrel.faces.cli.output import emit, plain
from stormpetrel.faces.cli.site import open_site
from stormpetrel.jobs.advice.text import effect_text, job_facts, need_texts, wait_texts
from stormpetrel.jobs.prediction_text import percent, reason_text, verdict_text
from stormpetrel.jobs.reasons import span
from stormpetrel.records.units import format_memory
from stormpetrel.sources.scripts.job_script import JobRequest, parse_job_script, read_job_input, read_job_script

_SHOWN_REASONS = 5
_BAR = 30
ABOVE = 3  # exit code: the risk is above --fail-above
CANNOT_RUN = 4  # exit code: the cluster cannot run the script as it stands


def check(
    context: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[OPTIONS OF SBATCH] [SCRIPT]",
            help="A job script, or an HTCondor submit file; - or none: standard input; options as for sbatch before it.",
            show_default=False,
        ),
    ] = None,
    user: Annotated[
        str | None, typer.Option("--user", help="Whose job it will be; you, if left out.", show_default=False)
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option("--kind", help="slurm, pbs, lsf or condor; detected from the file if left out.", show_default=False),
    ] = None,
    fail_above: Annotated[
        float | None,
        typer.Option("--fail-above", min=0, max=1, help="Exit with 3 if the risk is above this.", show_default=False),
    ] = None,
    log_odds: LogOdds = False,
    as_json: Json = False,
) -> None:
    """Check a job script before it is submitted: can the cluster run it, how likely is it to fail, why, and what to change."""
    request = _request(words or [], kind)
    with open_site(context) as site:
        answer = check_request(site, LOCAL, request, user=user or getpass.getuser(), folder=str(Path.cwd()), now=site.now())
    emit(answer.model_dump(mode="json"), lambda out: _print_check(out, answer, log_odds=log_odds), as_json=as_json)
    if answer.cluster is not None and answer.cluster.can_run is False:
        raise typer.Exit(CANNOT_RUN)
    if fail_above is not None and answer.risk is not None and answer.risk > fail_above:
        raise typer.Exit(ABOVE)


def _request(words: list[str], kind: str | None) -> JobRequest:
    """Return what the words after `check` ask for: a script, options of sbatch before it, or a wrapped command."""
    options, script, wrap, after = split_words(words)
    if late := next((word for word in after if word.startswith("-")), None):
        typer.echo(f"note: {plain(late)} stands after the script, which gets it itself; sbatch's options go first.", err=True)
    if wrap is not None:
        return parse_job_script(f"#!/bin/sh\n{wrap}\n", name="wrap", kind="slurm", arguments=options)
    if script == "-" or (script is None and not sys.stdin.isatty()):
        return read_job_input(sys.stdin.buffer, kind=kind, arguments=options)
    if script is None:
        raise UsageError("Which script?", hint="stormpetrel check job.sh, or as for sbatch: stormpetrel check -t 5 job.sh")
    return read_job_script(Path(script), kind=kind, arguments=options)


def why(
    context: typer.Context,
    job_id: JobId,
    log_odds: LogOdds = False,
    as_json: Json = False,
) -> None:
    """Explain what happened to a job, what was known in time, and what to change."""
    with open_site(context) as site:
        answer = explain_job(site, LOCAL, job_id, now=site.now())
    emit(answer.model_dump(mode="json"), lambda out: print_why(out, answer, log_odds=log_odds), as_json=as_json)


def _print_check(out: Console, answer: ScriptAnswer, *, log_odds: bool) -> None:
    out.print(f"{plain(answer.script)} requests {_request_text(answer.request)}")
    for warning in answer.warnings:
        out.print(f"  warning: {plain(warning)}")
    if answer.cluster is not None:
        _print_fit(out, answer.cluster)
    if answer.verdict is not None:
        out.print()
        _print_verdict(out, answer.verdict, log_odds=log_odds)
    for note in answer.notes:
        out.print(f"  {plain(note)}")
    if answer.components:
        out.print()
    for component in answer.components:
        risk = f", {percent(component.risk)} of such jobs fail" if component.risk is not None else ""
        cannot = ", CANNOT RUN as it stands" if component.can_run is False else ""
        out.print(f"Component {component.number}: {_request_text(component.request)}{risk}{cannot}")
    _print_outlook(out, answer.needs, answer.wait)
    _print_advice(out, answer.advice)
    if not answer.advice:
        out.print("\nAdvice: none. Past jobs support no change of this request.")


def print_why(out: Console, answer: JobWhy, *, log_odds: bool = False) -> None:
    """Print what happened to a job, its risk at each moment, and what to change."""
    _print_job(out, answer)
    if answer.waiting is not None:
        _print_waiting(out, answer.waiting)
    if answer.cause is not None:
        _print_cause(out, answer.cause)
    for remedy in answer.remedies:
        out.print(f"  {plain(remedy.sentence)}")
    if answer.at:
        out.print("\nThe risk of failing as today's model sees it, from what was known")
        for verdict in answer.at.values():
            flagged = "  flagged" if verdict.flagged else ""
            out.print(f"  at {verdict.moment:<7}{_bar(verdict.risk)} {percent(verdict.risk)}{flagged}")
        latest = list(answer.at.values())[-1]
        out.print(f"\nAt '{latest.moment}':")
        _print_verdict(out, latest, log_odds=log_odds)
    for note in answer.notes:
        out.print(f"  {plain(note)}")
    if answer.next is not None:
        out.print(f"\nNext time: {plain(answer.next.sentence)}")
        if answer.next.line:
            out.print(f"    write: {plain(answer.next.line)}")
        for evidence in answer.next.evidence:
            out.print(f"    {plain(evidence)}")
    _print_outlook(out, answer.needs, answer.wait)
    _print_advice(out, answer.advice)


def _print_fit(out: Console, fit: ClusterFit) -> None:
    """Print what the cluster cannot run, and what it could run later; one line where all is well."""
    if fit.can_run is False:
        out.print("\nThe cluster cannot run it as submitted:")
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


def _print_waiting(out: Console, waiting: Waiting) -> None:
    out.print(f"  {plain(waiting.sentence)} In the scheduler's words: {plain(waiting.reason)}")
    if waiting.change:
        out.print(f"    {plain(waiting.change)}")
    if waiting.command:
        out.print(f"    {plain(waiting.command)}")


def _print_cause(out: Console, cause: JobCause) -> None:
    out.print(f"  {plain(cause.sentence)} {plain(cause.change)}")
    for evidence in cause.evidence:
        out.print(f"    {plain(evidence)}")


def _print_job(out: Console, answer: JobWhy) -> None:
    job: dict[str, Any] = answer.job
    name = f"{job['job_id']}" + (f"_{job['array_task']}" if job.get("array_task") is not None else "")
    user = plain(job.get("user") or "unknown user")
    out.print(f"Job {name} ({plain(job.get('job_name') or 'no name')}) of {user}: {job['state']}")
    facts = job_facts(job, never_started=answer.never_started)
    if facts:
        out.print(f"  {plain(', '.join(facts))}")


def _print_verdict(out: Console, verdict: Verdict, *, log_odds: bool = False) -> None:
    """Print a risk with the likeliest failure and the strongest reasons."""
    out.print(f"  {_bar(verdict.risk)} {verdict_text(verdict)}")
    if verdict.profile:
        out.print(f"  It is one of the {plain(verdict.profile)}.")
    out.print(f"  What raises ▲ and lowers ▽ it most, from the {percent(verdict.base_risk)} of the average job on:")
    for reason in verdict.reasons[:_SHOWN_REASONS]:
        out.print(f"  {'▲' if reason.contribution > 0 else '▽'} {plain(reason_text(reason, log_odds=log_odds))}")


def _print_outlook(out: Console, needs: Mapping[str, NeedOutlook] | None, wait: WaitOutlook | None) -> None:
    """Print what a job will need and when it will start."""
    lines = [*need_texts(needs), *wait_texts(wait)]
    if lines:
        out.print()
    for line in lines:
        out.print(f"  {plain(line)}")


def _print_advice(out: Console, advice: list[Advice]) -> None:
    for number, piece in enumerate(advice, 1):
        says_nothing = piece.column is None and not piece.evidence and not piece.experiment
        what = "Advice: none yet." if says_nothing else f"{'Experiment' if piece.experiment else 'Advice'} {number}:"
        out.print(f"\n{what} {plain(piece.sentence)}")
        for line in (piece.line, piece.mem_update):
            if line:
                out.print(f"    write: {plain(line)}")
        effect = effect_text(piece)
        if effect is not None:
            out.print(f"    {effect}")
        for evidence in piece.evidence:
            out.print(f"    {plain(evidence)}")


def _bar(risk: float) -> str:
    filled = round(risk * _BAR)
    return "█" * filled + "·" * (_BAR - filled)


_REQUESTED = {"req_nodes": "nodes", "req_cpus": "CPUs", "req_gpus": "GPUs", "array_tasks": "array tasks"}


def _request_text(columns: dict[str, Any]) -> str:
    """Return what a script requests, in one line."""
    parts = [f"{plain(str(columns[name]))} {noun}" for name, noun in _REQUESTED.items() if columns.get(name) is not None]
    if columns.get("req_mem_bytes"):
        parts.append(format_memory(columns["req_mem_bytes"]))
    if columns.get("time_limit_s"):
        parts.append(span(columns["time_limit_s"]))
    if columns.get("partition"):
        parts.append(f"partition {plain(str(columns['partition']))}")
    return ", ".join(parts) or "nothing; the defaults of the site apply"
