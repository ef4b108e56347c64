"""What `stormpetrel demo` prints: the site at a glance, who is at risk, what to try next."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from stormpetrel.answers.schemas.predictions import JobForecast
from stormpetrel.faces.cli.demo.models import DemoAlarms
from stormpetrel.faces.cli.output import plain
from stormpetrel.jobs.prediction_text import percent
from stormpetrel.lifecycle.trace_models import Scored
from stormpetrel.store.summary import SiteSummary

_BAR = 40
_SHOWN = 5
_ALARMS = 3


def print_risks(out: Console, at_risk: Sequence[JobForecast]) -> None:
    """The latest jobs that are most likely to fail, and what became of them."""
    out.print(f"\n  of the last {len(at_risk)} jobs the most likely to fail, from what was known while they waited or ran")
    out.print("  (the model has learnt from what was known a week ago: it has never seen these jobs)")
    for job in at_risk[:_SHOWN]:
        out.print(
            f"    {plain(job.job):<10}{plain(job.user or '?'):<14}{percent(job.risk):>4} risk of failing   it is {job.state} now"
        )


def print_traces(out: Console, scored: Scored | None) -> None:
    """Print the scores of the CPU traces, or what is missing for them."""
    if scored is None:
        out.print("\n  Without the extra 'scoring' the page Nodes and traces stays empty: pip install 'stormpetrel[scoring]'")
    elif scored.scored:
        out.print(f"\n  CPU traces: {scored.flagged:,} of {scored.scored:,} windows are not what threads normally do")
        if scored.shipped:
            out.print("  (by the shipped encoder, which was not trained on this site: training one needs the extra 'traces')")


def print_summary(out: Console, summary: SiteSummary) -> None:
    """A site at a glance, with a bar per week."""
    if not summary.jobs or summary.first is None or summary.last is None:
        out.print("There are no jobs in this site yet.")
        return
    failed = sum(week.failed for week in summary.weeks)
    out.print()
    out.print(f"{summary.jobs:,} jobs of {summary.users} users, {summary.first:%d %B %Y} to {summary.last:%d %B %Y}")
    share = failed / max(1, summary.jobs - summary.never_started)
    out.print(f"  {share:.1%} failed, and took {summary.core_hours_failed:,.0f} of {summary.core_hours:,.0f} core hours")
    if summary.wait_median_s is not None and summary.wait_p90_s is not None:
        waits = f"half of them waited less than {_span(summary.wait_median_s)}, one in ten more than {_span(summary.wait_p90_s)}"
        out.print(f"  {waits}")
    out.print()
    out.print("  jobs per week  (█ went well, ░ failed)")
    most = max((week.jobs for week in summary.weeks), default=1)
    for week in summary.weeks:
        bad = round(week.failed / most * _BAR)
        good = round(week.jobs / most * _BAR) - bad
        out.print(f"  {week.monday:%d %b} {'█' * good}{'░' * bad} {week.jobs:,}")
    for node, bad, ended in summary.worst_nodes:
        out.print(f"\n  Check node {plain(node)}: {bad:,} of its last {ended:,} jobs failed.")


def print_alarms(out: Console, alarms: DemoAlarms | None) -> None:
    """Print the alarms of the last week about the cluster as a whole."""
    if alarms is None:
        return
    shown = alarms.episodes[-_ALARMS:]
    which = f"; the newest {len(shown)}" if len(alarms.episodes) > len(shown) else ""
    counts = f"{alarms.hours:,} hours scored, {len(alarms.episodes):,} alarms in the last week{which}"
    out.print(f"\n  The cluster as a whole: {counts}.")
    for alarm in shown:
        finding = alarm.findings[0] if alarm.findings else "the kinds of events together are unusual"
        out.print(f"    {alarm.start:%Y-%m-%d %H:%M}  {plain(finding)}")


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


def print_next(out: Console, folder: Path, at_risk: Sequence[JobForecast], example: Path, owner: str) -> None:
    """Commands to try on the site."""
    program = _program()
    site = f"{program} --site {shlex.quote(str(folder))}"
    out.print("\nNext, try:")
    if at_risk:
        out.print(f"  {site} why {at_risk[0].job}      # what happened to it, and what to request instead")
    script = shlex.quote(str(example))
    out.print(f"  {site} check {script} --user {shlex.quote(owner)}      # a script, before it is submitted")
    out.print(f"  {site} traces diagnose      # which jobs wait for files the way bad I/O does")
    out.print(f"  {site} events score      # alarms of the cluster as a whole: what, since when, where")
    out.print(f"  {site} top      # incidents, jobs at risk, jobs and sources on one page of the terminal; q leaves it")
    out.print(f"  {site} report -o {shlex.quote(str(folder / 'report.html'))}      # everything, as one page; about a minute")
    for query in _QUERIES:
        out.print(f"  {site} sql '{query}'")
    submit = f"{shlex.quote(str(folder / 'feed' / 'sbatch'))} --user {shlex.quote(owner)} {script}"
    out.print(f"  {submit}      # submit it to the simulated cluster")
    out.print(f"  {site} watch      # judge every job as it comes")
    out.print(f"  {site} serve      # the dashboard and the API")
    out.print(f"  {site} doctor")
    out.print(f"  {program} init mysite            # a site of your own")


def print_coming(out: Console, folder: Path) -> None:
    """What will happen within two minutes, and what to do about it."""
    site = f"{_program()} --site {shlex.quote(str(folder))}"
    out.print(
        "\nWithin two minutes a healthy node begins to lose every job that it gets. It becomes an incident, and a message arrives"
    )
    out.print("here, as for what else is wrong: a line 'Message: …' with a link. Answer it by its number N, in another terminal:")
    out.print(f"  {site} alarms show N      # evidence, lost jobs, what is suspected")
    out.print(
        f"  {site} alarms confirm N      # it is one: it is acknowledged from then on, and a message follows when it is over"
    )
    out.print(f"  {site} alarms dismiss N      # it is none: it is over, and a message says so\n")


def _program() -> str:
    return "stormpetrel" if shutil.which("stormpetrel") else shlex.quote(sys.argv[0])


def summary_json(summary: SiteSummary) -> dict[str, object]:
    """A site at a glance, for other programs."""
    values = asdict(summary)
    values["first"], values["last"] = (moment.isoformat() if moment else None for moment in (summary.first, summary.last))
    values["weeks"] = [{"monday": f"{week.monday:%Y-%m-%d}", "jobs": week.jobs, "failed": week.failed} for week in summary.weeks]
    return values
