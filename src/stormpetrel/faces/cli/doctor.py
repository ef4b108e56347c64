"""`stormpetrel doctor`: what is wrong with the site, and what to do."""

from __future__ import annotations

from dataclasses import asdict

import typer

from stormpetrel.faces.cli.context import Context, Json, console, plain, print_json

_MARKS = {"ok": "✓", "warning": "!", "problem": "✗"}


def doctor(context: typer.Context, as_json: Json = False) -> None:
    """Check the site and say what is wrong and what to do; exit code 1 if there is a problem."""
    from stormpetrel.store.doctor import examine, worst

    chosen: Context = context.obj
    with chosen.open_site() as site:
        findings = examine(site)
    if as_json:
        print_json({"worst": worst(findings), "findings": [asdict(finding) for finding in findings]})
    else:
        out = console()
        for finding in findings:
            out.print(f"{_MARKS[finding.level]} {finding.check}: {plain(finding.what)}")
            if finding.hint:
                out.print(f"    {plain(finding.hint)}")
        problems = sum(finding.level == "problem" for finding in findings)
        out.print(f"\n{problems} problem{'' if problems == 1 else 's'}." if problems else "\nNo problems.")
    if worst(findings) == "problem":
        raise typer.Exit(1)
