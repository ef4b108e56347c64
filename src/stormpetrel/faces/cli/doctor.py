"""`stormpetrel doctor`: what is wrong with the site, and what to do about it.

`stormpetrel init`: detect the schedulers and servers of this machine, and create a site.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from stormpetrel.answers.schemas.administration import NewSite, RepairReceipt, SiteReceipt
from stormpetrel.answers.schemas.health import DoctorReport
from stormpetrel.answers.site import doctor as checks
from stormpetrel.answers.site.administration import make_site, repair_site
from stormpetrel.answers.viewer import LOCAL
from stormpetrel.errors import StateLostError
from stormpetrel.faces.cli.options import Json
from stormpetrel.faces.cli.output import emit, plain
from stormpetrel.faces.cli.site import open_site, site_folder
from stormpetrel.records.checks import Finding

_SIGNS = {"ok": "✓", "warning": "!", "problem": "✗"}
_FIELDS = (
    "JobID,JobIDRaw,Cluster,JobName,User,Account,Partition,QOS,Submit,Eligible,Start,End,Elapsed,State,ExitCode,Timelimit,ReqCPUS,"
    "AllocCPUS,NNodes,ReqMem,MaxRSS,TotalCPU,ReqTRES,AllocTRES,NodeList,WorkDir"
)


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
    """Check the site, and report what is wrong and what to do; exit code 1 if there is a problem."""
    if repair:
        _repair(context, as_json=as_json)
        return
    report = _report(context, deep=deep)
    emit(report.model_dump(mode="json"), lambda out: _print_findings(out, report), as_json=as_json)
    if report.worst == "problem":
        raise typer.Exit(1)


def _print_findings(out: Console, report: DoctorReport) -> None:
    for finding in report.findings:
        out.print(f"{_SIGNS[finding.level]} {finding.check}: {plain(finding.what)}")
        if finding.hint:
            out.print(f"    {plain(finding.hint)}")
    out.print(f"\n{report.summary}")


def _report(context: typer.Context, *, deep: bool) -> DoctorReport:
    """Return the findings; a site without its state does not open, and that is a finding as well."""
    try:
        with open_site(context) as site:
            return checks.doctor(site, LOCAL, deep=deep)
    except StateLostError as error:
        return checks.report_of([Finding("problem", "state", error.what, error.hint)])


def _repair(context: typer.Context, *, as_json: bool) -> None:
    report = repair_site(site_folder(context), LOCAL)
    emit(report, lambda out: _print_repairs(out, report), as_json=as_json)


def _print_repairs(out: Console, report: RepairReceipt) -> None:
    for line in report.done:
        out.print(f"✓ {plain(line)}")
    for line in report.gone:
        out.print(f"! {plain(line)}")
    if report.rebuilt:
        out.print("\nIf there is a copy of the old state, put it back instead: it holds what is gone here.")
    elif not report.done:
        out.print("State and tables belong together; there was nothing to repair.")


def init(
    folder: Annotated[Path, typer.Argument(help="A new folder for the site.", show_default=False)],
    time_zone: Annotated[
        str, typer.Option("--time-zone", help="Zone of the times that the scheduler prints.", show_default="that of this machine")
    ] = "",
    cluster: Annotated[
        str, typer.Option("--cluster", help="Cluster of records that do not name theirs.", show_default="detected from Slurm")
    ] = "",
    state_dir: Annotated[
        str, typer.Option("--state-dir", help="Local folder for state.db, if the site is on a network disk.", show_default=False)
    ] = "",
    as_json: Json = False,
) -> None:
    """Create a site: look for Slurm, HTCondor and Prometheus, write a commented site.toml; no questions."""
    receipt = make_site(folder, LOCAL, NewSite(time_zone=time_zone, cluster=cluster, state_dir=state_dir))
    emit(receipt, lambda out: _print_receipt(out, folder, receipt), as_json=as_json)


def _print_receipt(out: Console, folder: Path, receipt: SiteReceipt) -> None:
    out.print(f"{folder} is a site now; its settings are in {folder / 'site.toml'}. Found on this machine:")
    for line in receipt.found:
        out.print(f"  {line}")
    if receipt.time_zone != receipt.machine_time_zone:
        out.print(f"Times are read as {receipt.time_zone}.")
    out.print("\nNext:")
    site = f"stormpetrel --site {folder}"
    if receipt.has_slurm:
        out.print(f"  {site} ingest jobs --live")
    out.print(f"  {site} ingest jobs FILE   # sacct -P output, SWF, PBS, LSF, HTCondor, CSV; for sacct:")
    out.print(f"      sacct -a -D -P -S 2024-01-01 -o {_FIELDS} > jobs.txt")
    if receipt.event_log:
        out.print(f"  {site} ingest jobs {receipt.event_log}")
    out.print(f"  {site} doctor")
