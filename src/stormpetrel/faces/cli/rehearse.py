"""`stormpetrel rehearse`: what this site would see of faults, before anybody relies on it."""

from __future__ import annotations

import signal
import threading
from typing import Annotated

import typer
from rich.console import Console

from stormpetrel.answers.alarms.rehearsal import delay_text, rehearse_live, rehearse_site
from stormpetrel.answers.schemas.alarms import MOST_FAULTS, RehearsalAnswer, RehearsalQuestion, RehearsedFault
from stormpetrel.answers.viewer import LOCAL
from stormpetrel.errors import UsageError
from stormpetrel.faces.cli.heavy_work import engine_of
from stormpetrel.faces.cli.options import EngineName, Json, KeepResults, Seed, SinceTime, UntilTime, Workers
from stormpetrel.faces.cli.output import console, emit, format_time, plain, show_table
from stormpetrel.faces.cli.progress import share_spinner
from stormpetrel.faces.cli.site import open_site, parse_site_time
from stormpetrel.faces.report.blocks import Column, Table
from stormpetrel.rehearse.site.shadow import ShadowPace
from stormpetrel.store.site import Site


def rehearse(
    context: typer.Context,
    kinds: Annotated[
        list[str] | None,
        typer.Option("--kind", help="Only this kind of fault or outage; may be repeated.", show_default=False),
    ] = None,
    severities: Annotated[
        list[str] | None,
        typer.Option("--severity", help="Only mild, moderate or severe faults; may be repeated.", show_default=False),
    ] = None,
    number: Annotated[int, typer.Option("-n", min=1, max=MOST_FAULTS, help="Faults of each kind and severity.")] = 3,
    seed: Seed = 0,
    since: SinceTime = None,
    until: UntilTime = None,
    no_models: Annotated[
        bool, typer.Option("--no-models", help="Rules only: no event model is trained, which is faster.")
    ] = False,
    live: Annotated[
        bool,
        typer.Option("--live", help="Inject faults into a copy of the live data as the watch reads them; until Ctrl-C."),
    ] = False,
    poll: Annotated[
        float | None, typer.Option("--poll", min=0.2, help="With --live: seconds between two polls.", show_default=False)
    ] = None,
    steps: Annotated[
        int | None, typer.Option("--steps", min=1, help="With --live: stop after this many polls.", show_default=False)
    ] = None,
    workers: Workers = None,
    engine: EngineName = None,
    keep: KeepResults = None,
    as_json: Json = False,
) -> None:
    """Inject faults into a copy of the site's own history: which ones the watch would detect, and how late."""
    if not live and (poll or steps):
        raise UsageError("--poll and --steps need --live.", hint="Add --live.")
    if live and (since or until or no_models):
        raise UsageError("--since, --until and --no-models are about the past.", hint="Leave them out, or leave out --live.")
    if live and (engine or workers or keep):
        raise UsageError("--live is one walk: --engine, --workers and --keep do not help it.", hint="Leave them out.")
    with open_site(context) as site:
        zone = site.settings.site.time_zone
        question = RehearsalQuestion(
            kinds=kinds or [],
            severities=severities or [],
            n=number,
            seed=seed,
            since=parse_site_time(since, zone, "--since"),
            until=parse_site_time(until, zone, "--until"),
            models=not no_models,
        )
        if live:
            answer = _rehearse_live(site, question, ShadowPace(poll or site.settings.watch.poll_s, steps), quiet=as_json)
        else:
            with share_spinner(quiet=as_json) as progress:
                place = engine_of(context, engine, workers)
                answer = rehearse_site(site, LOCAL, question, progress=progress, engine=place, keep=keep)
    emit(answer, lambda out: print_rehearsal(out, answer, zone), as_json=as_json)


def _rehearse_live(site: Site, question: RehearsalQuestion, pace: ShadowPace, *, quiet: bool) -> RehearsalAnswer:
    """Rehearse beside the live stream until Ctrl-C, or until systemd says so."""
    out = console(error=True)

    def tell(answer: RehearsalAnswer) -> None:
        if not quiet:
            faults = sum(cell.n for cells in answer.faults.values() for cell in cells.values())
            out.print(f"{faults} faults so far, {len(answer.holes)} holes; the page Rehearsal shows them.")

    stop = threading.Event()
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        return rehearse_live(site, LOCAL, question, pace, stop=stop, note=tell)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def print_rehearsal(out: Console, answer: RehearsalAnswer, zone: str) -> None:
    """Print what a rehearsal came to: a table, the holes, the false pages."""
    rows = [_row(kind, severity, cell) for kind, cells in answer.faults.items() for severity, cell in cells.items()]
    if rows:
        headings = ("Fault", "Severity", "Faults", "Seen", "after", "Sent", "after")
        columns = tuple(Column(name, None if place < 2 else "") for place, name in enumerate(headings))
        show_table(
            out, Table(f"Faults put into a copy of the {'live stream' if answer.live else 'history'}", columns, tuple(rows))
        )
    if answer.holes:
        out.print("Holes:")
        for hole in answer.holes:
            out.print(f"  {plain(hole)}")
    elif rows:
        out.print("No hole: every tested kind of fault was detected in at least half of the trials.")
    if answer.false_pages_per_week is not None:
        promised = f"; the budget is {answer.promised_pages_per_week:g}" if answer.promised_pages_per_week else ""
        out.print(f"False pages: {answer.false_pages_per_week:.2g} a week without any fault{promised}.")
    for note in answer.notes:
        out.print(plain(note))
    if answer.since and answer.until:
        span = f"{format_time(answer.since, zone)} to {format_time(answer.until, zone)} ({plain(zone)})"
        how = "Beside the live stream, " if answer.live else f"{answer.walks} walks through "
        out.print(f"{how}{span}, seed {answer.seed}, {answer.seconds:.0f} s; the site was only read.")


def _row(kind: str, severity: str, cell: RehearsedFault) -> tuple[str, ...]:
    paged = "–" if cell.paged is None else f"{100 * cell.paged:.0f} %"
    return (
        kind.replace("_", " "), severity, str(cell.n), f"{100 * cell.recall:.0f} %", delay_text(cell.delay_s), paged,
        delay_text(cell.paged_delay_s),
    )  # fmt: skip
