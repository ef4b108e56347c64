"""`stormpetrel doctor`: what is wrong with the site, and what to do."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from stormpetrel.faces.cli.context import Context, Json, console, plain, print_json

_MARKS = {"ok": "✓", "warning": "!", "problem": "✗"}


def doctor(
    context: typer.Context,
    deep: Annotated[
        bool, typer.Option("--deep", help="Also read every file of every table and model against its digest.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Check the site and say what is wrong and what to do; exit code 1 if there is a problem."""
    from stormpetrel.store.doctor import before_opening, examine, summary, worst

    chosen: Context = context.obj
    findings = before_opening(chosen.folder())
    if not findings:  # opening the site would make anew, and empty, what is missing
        with chosen.open_site() as site:
            findings = examine(site, deep=deep)
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
