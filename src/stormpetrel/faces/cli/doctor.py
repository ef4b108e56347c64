"""`stormpetrel doctor`: what is wrong with the site, and what to do."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from stormpetrel.faces.cli.context import Context, Json, console, plain, print_json

_MARKS = {"ok": "✓", "warning": "!", "problem": "✗"}


def doctor(
    context: typer.Context,
    repair: Annotated[
        bool, typer.Option("--repair", help="Rebuild what can be rebuilt of a state store that was lost or does not fit.")
    ] = False,
    deep: Annotated[
        bool, typer.Option("--deep", help="Also read every file of every table and model against its digest.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Check the site and say what is wrong and what to do; exit code 1 if there is a problem."""
    from stormpetrel.lifecycle.readable import model_findings
    from stormpetrel.store.doctor import before_opening, examine, summary, worst

    chosen: Context = context.obj
    if repair:
        _repair(chosen, as_json=as_json)
        return
    findings = before_opening(chosen.folder())
    if not findings:  # opening the site would make anew, and empty, what is missing
        with chosen.open_site() as site:
            findings = [*examine(site, deep=deep), *model_findings(site)]
    if as_json:
        print_json({"worst": worst(findings), "findings": [asdict(finding) for finding in findings]})
    else:
        out = console()
        for finding in findings:
            out.print(f"{_MARKS[finding.level]} {finding.check}: {plain(finding.what)}")
            if finding.hint:
                out.print(f"    {plain(finding.hint)}")
        out.print(f"\n{summary(findings)}")
    if worst(findings) == "problem":
        raise typer.Exit(1)


def _repair(chosen: Context, *, as_json: bool) -> None:
    from stormpetrel.lifecycle.job_models import operator
    from stormpetrel.lifecycle.readable import problem_of
    from stormpetrel.store.repair import repair

    report = repair(chosen.folder(), problem_of=problem_of, user=operator())
    if as_json:
        print_json(report.as_dict())
        return
    out = console()
    for line in report.done:
        out.print(f"✓ {plain(line)}")
    for line in report.gone:
        out.print(f"! {plain(line)}")
    if report.rebuilt:
        out.print("\nIf there is a copy of the old state, put it back instead: it holds what is gone here.")
    elif not report.done:
        out.print("State and tables belong together; there was nothing to repair.")
