"""`stormpetrel doctor`: what is wrong with the site, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from stormpetrel.errors import StateLostError
from stormpetrel.faces.cli.context import Context, Json, console, plain, print_json

if TYPE_CHECKING:
    from stormpetrel.answers.schemas.health import DoctorReport

_MARKS = {"ok": "✓", "warning": "!", "problem": "✗"}


def doctor(
    context: typer.Context,
    deep: Annotated[
        bool, typer.Option("--deep", help="Also read every file of every table and model against its digest.")
    ] = False,
    repair: Annotated[
        bool, typer.Option("--repair", help="Rebuild what can be rebuilt of a state store that was lost or does not fit.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Check the site and say what is wrong and what to do; exit code 1 if there is a problem."""
    chosen: Context = context.obj
    if repair:
        _repair(chosen, as_json=as_json)
        return
    report = _report(chosen, deep=deep)
    if as_json:
        print_json(report.model_dump(mode="json"))
    else:
        out = console()
        for finding in report.findings:
            out.print(f"{_MARKS[finding.level]} {finding.check}: {plain(finding.what)}")
            if finding.hint:
                out.print(f"    {plain(finding.hint)}")
        out.print(f"\n{report.summary}")
    if report.worst == "problem":
        raise typer.Exit(1)


def _report(chosen: Context, *, deep: bool) -> DoctorReport:
    """What the doctor finds; a site without its state does not open, and that is a finding as well."""
    from stormpetrel.answers.site import doctor
    from stormpetrel.answers.viewer import LOCAL
    from stormpetrel.records.checks import Finding

    try:
        with chosen.open_site() as site:
            return doctor.doctor(site, LOCAL, deep=deep)
    except StateLostError as error:
        return doctor.report_of([Finding("problem", "state", error.what, error.hint)])


def _repair(chosen: Context, *, as_json: bool) -> None:
    from stormpetrel.answers.site.upkeep import repair_site
    from stormpetrel.answers.viewer import LOCAL

    report = repair_site(chosen.folder(), LOCAL)
    if as_json:
        print_json(report)
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
