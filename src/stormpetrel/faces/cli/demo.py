"""`stormpetrel demo`: a simulated site, read through the same door as a real one."""

from __future__ import annotations

import shlex
import shutil
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stormpetrel.errors import UsageError
from stormpetrel.faces.cli.context import Json, console, plain, print_json, progress_bar

if TYPE_CHECKING:
    import polars as pl
    from rich.console import Console

    from stormpetrel.store.ingest import IngestReport
    from stormpetrel.store.site import Site
    from stormpetrel.store.summary import SiteSummary

_BAR = 40
_EXAMPLE = "job.sh"
_LAST = 200
_SHOWN = 5
_FEED = "feed"


def demo(
    folder: Annotated[Path, typer.Argument(help="Folder of the demo site.")] = Path("stormpetrel-demo"),
    serve: Annotated[bool, typer.Option("--serve/--no-serve", help="Serve the dashboard afterwards (not there yet).")] = True,
    as_json: Json = False,
) -> None:
    """Simulate a small cluster, ingest it live, learn from it, and say which of its jobs are at risk. Run again, it goes on."""
    from stormpetrel.faces.cli.ingest import print_report
    from stormpetrel.faces.predictions import predict_jobs
    from stormpetrel.store.summary import summarise

    del serve  # there is nothing to serve yet; the option is there so that scripts can say --no-serve
    with _open_or_create(folder) as site:
        if not (site.folder / _FEED / "sacct").exists():
            _record(site, quiet=as_json)
        report = _ingest_live(site, quiet=as_json)
        summary = summarise(site.jobs.read_jobs(), site.settings.jobs.failure_states)
        _train(site, quiet=as_json)
        at_risk = predict_jobs(site, moment=None, last=_LAST, now=site.now())
        owner = _write_example(site, folder / _EXAMPLE)
    if as_json:
        print_json({"site": str(folder), "ingest": report.as_dict(), "summary": _as_json(summary), "judged": at_risk.height})
        return
    out = console()
    print_report(out, "the simulated cluster", report)
    print_summary(out, summary)
    _print_risks(out, at_risk)
    _print_next(out, folder, at_risk, owner)


def _open_or_create(folder: Path) -> Site:
    from datetime import UTC, datetime

    from stormpetrel.config import SITE_FILE, settings_from
    from stormpetrel.simulate.demo_site import CLUSTER, demo_spec
    from stormpetrel.store.site import create_site, open_site

    if (folder / SITE_FILE).exists():
        site = open_site(folder)
        if (site.settings.site.name, site.settings.site.cluster) != (CLUSTER, CLUSTER):
            site.close()
            raise UsageError(f"{folder} is a real site, not the demo's.", hint="Name another folder: stormpetrel demo NEWDIR")
        return site
    slurm = {
        "sacct": str(folder.resolve() / _FEED / "sacct"),
        "since": f"{demo_spec(datetime.now(UTC)).start:%Y-%m-%d}",
        "chunk_days": 31.0,
        "pause_s": 0.0,
    }
    return create_site(folder, settings_from({"site": {"name": CLUSTER, "cluster": CLUSTER}, "slurm": slurm}))


def _record(site: Site, *, quiet: bool) -> None:
    from stormpetrel.simulate.demo_site import record_demo

    with progress_bar("simulating three months", 0, shown=not quiet) as progress:
        record_demo(site.folder / _FEED, site.now(), lambda jobs: progress(0, jobs))


def _train(site: Site, *, quiet: bool) -> None:
    """Train once; later runs use what is there."""
    from stormpetrel.faces.cli.job_input import steps_shown
    from stormpetrel.jobs.moments import Moment
    from stormpetrel.lifecycle.job_models import model_name, train_job_models

    if not any(entry.current for entry in site.models.versions(model_name(Moment.TWO_MINUTES))):
        with steps_shown(quiet=quiet) as progress:
            train_job_models(site, progress=progress)


def _write_example(site: Site, path: Path) -> str:
    """A job script that asks for what the latest job that ran out of memory had asked for; returns whose job that was."""
    import polars as pl

    jobs = site.jobs.read_jobs().filter(pl.col("state") == "OUT_OF_MEMORY").sort("submit_time").tail(1).collect()
    job = jobs.row(0, named=True)
    minutes, gib = int(job["time_limit_s"] // 60), job["req_mem_bytes"] // 2**30
    asked = {"job-name": job["job_name"], "ntasks": job["req_cpus"], "mem": f"{gib}G", "time": minutes, "chdir": job["work_dir"]}
    lines = [f"#SBATCH --{option}={value}" for option, value in asked.items() if value is not None]
    path.write_text("\n".join(["#!/bin/bash", *lines, "srun ./my-program"]) + "\n", encoding="utf-8")
    return str(job["user"])


def _print_risks(out: Console, at_risk: pl.DataFrame) -> None:
    """The latest jobs that are most likely to fail, and what became of them."""
    out.print(f"\n  of the last {at_risk.height} jobs the most likely to fail, from what was known while they waited or ran")
    out.print("  (the model has learnt from these very jobs; how good it is on later ones: jobs evaluate)")
    for row in at_risk.head(_SHOWN).iter_rows(named=True):
        out.print(
            f"    {plain(row['job']):<10}{plain(row['user'] or '?'):<14}risk {row['risk']:>4.0%}   it is {row['state']} now"
        )


def _ingest_live(site: Site, *, quiet: bool) -> IngestReport:
    from stormpetrel.faces.cli.ingest import ingest_all, live_sources_of, total_of

    reports, problems = ingest_all(site, live_sources_of(site), quiet=quiet)
    if problems:
        raise problems[-1]
    return total_of(site, [report for _, report in reports])


def print_summary(out: Console, summary: SiteSummary) -> None:
    """A site at a glance, with a bar per week."""
    if not summary.jobs or summary.first is None or summary.last is None:
        out.print("There are no jobs in this site yet.")
        return
    failed = sum(week.failed for week in summary.weeks)
    out.print()
    out.print(f"{summary.jobs:,} jobs of {summary.users} users, {summary.first:%d %B %Y} to {summary.last:%d %B %Y}")
    out.print(
        f"  {failed / summary.jobs:.1%} failed, and took {summary.core_hours_failed:,.0f} of {summary.core_hours:,.0f} core hours"
    )
    if summary.wait_median_s is not None and summary.wait_p90_s is not None:
        waits = f"half of them waited less than {_span(summary.wait_median_s)}, one in ten more than {_span(summary.wait_p90_s)}"
        out.print(f"  {waits}")
    out.print()
    out.print("  jobs per week  (█ went well, ░ failed)")
    most = max(week.jobs for week in summary.weeks)
    for week in summary.weeks:
        bad = round(week.failed / most * _BAR)
        good = round(week.jobs / most * _BAR) - bad
        out.print(f"  {week.monday:%d %b} {'█' * good}{'░' * bad} {week.jobs:,}")
    for node, bad, ended in summary.worst_nodes:
        out.print(f"\n  Look at node {plain(node)}: {bad:,} of its last {ended:,} jobs failed.")


def _span(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


_QUERIES = (
    'select "user", count(*) jobs from jobs group by "user" order by jobs desc limit 5',
    "select state, count(*) n, sum(elapsed_s*cpus)/3600 core_hours from jobs group by state order by n desc",
)


def _print_next(out: Console, folder: Path, at_risk: pl.DataFrame, owner: str) -> None:
    program = "stormpetrel" if shutil.which("stormpetrel") else shlex.quote(sys.argv[0])
    site = f"{program} --site {shlex.quote(str(folder))}"
    out.print("\nNext, try:")
    if at_risk.height:
        out.print(f"  {site} why {at_risk['job'][0]}      # what happened to it, and what to ask for instead")
    example = shlex.quote(str(folder / _EXAMPLE))
    out.print(f"  {site} check {example} --user {shlex.quote(owner)}      # a script, before it is submitted")
    out.print(f"  {site} report -o {shlex.quote(str(folder / 'report.html'))}      # everything, as one page; takes some minutes")
    for query in _QUERIES:
        out.print(f"  {site} sql '{query}'")
    out.print(f"  {site} ingest jobs --live      # the cluster goes on: what has happened since")
    out.print(f"  {site} doctor")
    out.print(f"  {program} init mysite            # a site of your own")


def _as_json(summary: SiteSummary) -> dict[str, object]:
    values = asdict(summary)
    values["first"], values["last"] = (moment.isoformat() if moment else None for moment in (summary.first, summary.last))
    values["weeks"] = [{"monday": f"{week.monday:%Y-%m-%d}", "jobs": week.jobs, "failed": week.failed} for week in summary.weeks]
    return values
