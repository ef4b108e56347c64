"""`stormpetrel jobs evaluate --needs` and `--wait`: how good allocations and forecasts of the wait would have been."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import polars as pl
from rich.console import Console

from stormpetrel.answers.schemas.job_needs import AllocationFigures, NeedsEvaluation, NeedsQuestion, WaitEvaluation, WaitQuestion
from stormpetrel.answers.studies.job_evaluation import JobInput
from stormpetrel.answers.studies.job_needs import evaluate_needs, evaluate_waits
from stormpetrel.errors import UsageError
from stormpetrel.faces.cli.output import emit, plain
from stormpetrel.faces.cli.progress import step_spinner
from stormpetrel.private_files import writing_private
from stormpetrel.records.spreadsheet import without_formulas

RESOURCES: Final = ("memory", "time", "cpus")
_LABELS: Final = {
    "request": "users' requests",
    "max_of_last": "max of last × 1.2",
    "tovar": "Tovar, first allocation",
    "witt": "Witt, 95th percentile",
    "last_20_same_shape": "last 20, same shape",
}


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
