"""`stormpetrel events label`: which times were an outage, which maintenance, and which were normal after all."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from stormpetrel.answers.cluster import outage_labels as labels
from stormpetrel.answers.schemas.events import LabelQuestion, NewLabel, OutageLabel, OutageLabels
from stormpetrel.answers.schemas.ingest import EventIngest
from stormpetrel.answers.viewer import LOCAL
from stormpetrel.errors import UsageError
from stormpetrel.faces.cli.ingest.events import print_notes
from stormpetrel.faces.cli.options import Json
from stormpetrel.faces.cli.output import emit, format_time, plain
from stormpetrel.faces.cli.site import open_site
from stormpetrel.records.outages import BY_HAND, OutageKind

_EXAMPLE = 'For example: stormpetrel events label "2026-01-31 14:00" 3h --title "storage away"'


def label(
    context: typer.Context,
    start: Annotated[
        str | None,
        typer.Argument(help='When it began, in the site\'s zone: "2026-01-31 14:00"; or now.', show_default=False),
    ] = None,
    end: Annotated[
        str | None,
        typer.Argument(help="When it ended, or how long it lasted: 3h, 90m, 2d; without it, it is open.", show_default=False),
    ] = None,
    kind: Annotated[
        OutageKind | None,
        typer.Option(
            "--kind", help="What it is; outage if left out. With --file: of entries that do not name theirs.", show_default=False
        ),
    ] = None,
    title: Annotated[str, typer.Option("--title", help="What happened, in a few words.", show_default=False)] = "",
    file: Annotated[
        Path | None,
        typer.Option("--file", help="Read a CSV, iCalendar or downtime file of incidents instead.", show_default=False),
    ] = None,
    grafana: Annotated[bool, typer.Option("--grafana", help="Read Grafana's annotations instead.")] = False,
    since: Annotated[
        str | None, typer.Option("--since", help="With --grafana, --file, --list: from this time on.", show_default=False)
    ] = None,
    show_list: Annotated[bool, typer.Option("--list", help="List what is labelled.")] = False,
    remove: Annotated[
        str | None, typer.Option("--remove", metavar="UID", help="Remove a label; --list shows its UID.", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """Label an outage, a maintenance or a normal time: by hand, from a file of incidents, or from Grafana."""
    ways = {"START": start, "--file": file, "--grafana": grafana, "--list": show_list, "--remove": remove}
    _check_options([name for name, value in ways.items() if value], since=since, title=title, kind=kind)
    with open_site(context) as site:
        zone = site.settings.site.time_zone
        if start is not None:
            new = NewLabel(start=start, end=end, kind=(kind or OutageKind.OUTAGE).value, title=title)
            _emit_kept(labels.label_outage(site, LOCAL, new), zone, as_json=as_json)
        elif remove is not None:
            _emit_removed(labels.remove_label(site, LOCAL, remove), zone, as_json=as_json)
        elif show_list:
            _emit_list(labels.outage_labels(site, LOCAL, LabelQuestion(since=since)), zone, as_json=as_json)
        elif file is not None:
            _emit_report(labels.label_from_file(site, LOCAL, file, kind=kind, since=since), as_json=as_json)
        else:
            _emit_report(labels.label_from_grafana(site, LOCAL, since=since), as_json=as_json)


def _check_options(ways: list[str], *, since: str | None, title: str, kind: OutageKind | None) -> None:
    if len(ways) != 1:
        both = f"{' and '.join(ways)} do not go together." if ways else "Nothing says what to label."
        raise UsageError(both, hint=f"Use START, --file FILE, --grafana, --list or --remove UID. {_EXAMPLE}")
    (way,) = ways
    misplaced = {
        "--since": since is not None and way in ("START", "--remove"),
        "--title": bool(title) and way != "START",
        "--kind": kind is not None and way not in ("START", "--file"),
    }
    for option, wrong in misplaced.items():
        if wrong:
            raise UsageError(f"{option} has no meaning with {way}.", hint=f"Leave it out. {_EXAMPLE}")


def _emit_kept(outage: OutageLabel, zone: str, *, as_json: bool) -> None:
    lines = [f"{plain(outage.uid)}: {_outage_text(outage, zone)}"]
    if outage.end is None:
        lines.append(f"It stays open until you label its end: {_how_to_end(outage)}")
    emit(
        outage.model_dump(mode="json", by_alias=True),
        "\n".join(lines),
        as_json=as_json,
        next_step="stormpetrel events train learns from it, if it is older than the newest quarter of the counts",
    )


def _emit_removed(outage: OutageLabel, zone: str, *, as_json: bool) -> None:
    lines = [f"Removed: {_outage_text(outage, zone)}"]
    if outage.source != BY_HAND:
        lines.append(f"It comes back when {plain(outage.source)} is read again, unless it is deleted there too.")
    emit({"removed": outage.model_dump(mode="json", by_alias=True)}, "\n".join(lines), as_json=as_json)


def _emit_list(labels: OutageLabels, zone: str, *, as_json: bool) -> None:
    lines = [f"{_outage_text(outage, zone)}  [{plain(outage.source)}/{plain(outage.uid)}]" for outage in labels.outages]
    lines.append(f"{len(lines):,} labels, times in {zone}" if lines else f"Nothing is labelled. {_EXAMPLE}")
    emit(labels.model_dump(mode="json", by_alias=True), "\n".join(lines), as_json=as_json)


def _emit_report(report: EventIngest, *, as_json: bool) -> None:
    emit(report, lambda out: _print_report(out, report), as_json=as_json)


def _print_report(out: Console, report: EventIngest) -> None:
    out.print(f"{plain(report.source)}: {report.read:,} outages and maintenances read")
    out.print(f"  {report.kept:,} new · {report.known:,} known already · {report.changed:,} changed or gone")
    print_notes(out, report)


def _how_to_end(outage: OutageLabel) -> str:
    kind = "" if outage.kind == OutageKind.OUTAGE else f" --kind {outage.kind}"
    title = f" --title {shlex.quote(plain(outage.title))}" if outage.title else ""
    return f"stormpetrel events label {outage.start.isoformat()} now{kind}{title}"


def _outage_text(outage: OutageLabel, zone: str) -> str:
    end = format_time(outage.end, zone) if outage.end else "it lasts        "
    return f"{format_time(outage.start, zone)} to {end}  {outage.kind:<11}  {plain(outage.title)}".rstrip()
