"""`stormpetrel events label`: what was an outage, what maintenance, and what was none of it after all."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from zoneinfo import ZoneInfo

import typer

from stormpetrel.errors import NotThereError, SettingsError, UsageError
from stormpetrel.faces.cli.context import Context, Json, console, plain, print_json
from stormpetrel.records.outages import BY_HAND, Outage, OutageKind

if TYPE_CHECKING:
    from stormpetrel.ingest.event_report import EventReport
    from stormpetrel.store.site import Site

_EXAMPLE = 'For example: stormpetrel events label "2026-01-31 14:00" 3h --title "storage away"'


def label(
    context: typer.Context,
    start: Annotated[
        str | None,
        typer.Argument(help='When it began, in the site\'s zone: "2026-01-31 14:00"; or now.', show_default=False),
    ] = None,
    end: Annotated[
        str | None,
        typer.Argument(help="When it ended, or how long it lasted: 3h, 90m, 2d; left out: it lasts.", show_default=False),
    ] = None,
    kind: Annotated[
        OutageKind | None,
        typer.Option(
            "--kind", help="What it is; outage if left out. With --file: of entries that do not say.", show_default=False
        ),
    ] = None,
    title: Annotated[str, typer.Option("--title", help="What happened, in a few words.", show_default=False)] = "",
    file: Annotated[
        Path | None, typer.Option("--file", help="Read a CSV or iCalendar file of incidents instead.", show_default=False)
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
    """Say what was an outage, a maintenance or normal: by hand, from a file of incidents, or from Grafana."""
    ways = {"START": start, "--file": file, "--grafana": grafana, "--list": show_list, "--remove": remove}
    _check_words([name for name, value in ways.items() if value], since=since, title=title, kind=kind)
    chosen: Context = context.obj
    with chosen.open_site() as site:
        if start is not None:
            _tell_kept(_by_hand(site, start, end, kind or OutageKind.OUTAGE, title), _zone(site), as_json=as_json)
        elif remove is not None:
            _tell_removed(_removed(site, remove), _zone(site), as_json=as_json)
        elif show_list:
            _tell_list(site.outages.list(since=_since(site, since)), _zone(site), as_json=as_json)
        else:
            _tell_report(_from_file(site, file, kind, since) if file else _from_grafana(site, since), as_json=as_json)


def _check_words(ways: list[str], *, since: str | None, title: str, kind: OutageKind | None) -> None:
    if len(ways) != 1:
        both = f"{' and '.join(ways)} do not go together." if ways else "Nothing says what to label."
        raise UsageError(both, hint=f"Give START, --file FILE, --grafana, --list or --remove UID. {_EXAMPLE}")
    (way,) = ways
    misplaced = {
        "--since": since is not None and way in ("START", "--remove"),
        "--title": bool(title) and way != "START",
        "--kind": kind is not None and way not in ("START", "--file"),
    }
    for option, wrong in misplaced.items():
        if wrong:
            raise UsageError(f"{option} has no meaning with {way}.", hint=f"Leave it out. {_EXAMPLE}")


def _by_hand(site: Site, start: str, end: str | None, kind: OutageKind, title: str) -> Outage:
    """Keep what somebody says at the command line; said again with an END, it ends there."""
    from stormpetrel.sources.incident_times import check_span, end_of, moment_of

    zone, now = _zone(site), site.now()
    # To the minute, so that it can be said again with an END.
    began = now.replace(second=0, microsecond=0) if start == "now" else moment_of(start, zone, what="START")
    if end is None and kind is OutageKind.NORMAL:
        raise UsageError("Normal until when?", hint="Give END: normal is what somebody has looked at.")
    try:
        ended = now if end == "now" else end_of(end, began, zone, what="END") if end is not None else None
    except UsageError as error:
        raise UsageError(error.what, hint="A date and its time are one word: put them in quotes. Or say 3h, 90m, 2d.") from None
    check_span(began, ended, kind, now=now)
    return site.outages.add(Outage(began, ended, kind, title, BY_HAND))


def _from_file(site: Site, file: Path, kind: OutageKind | None, since: str | None) -> EventReport:
    from stormpetrel.ingest.events import ingest_outages
    from stormpetrel.sources.incident_files import incident_file

    source = incident_file(file, zone=_zone(site), now=site.now(), kind=kind)
    first, last = source.span
    return ingest_outages(site, source, start=_since(site, since) or first, end=last)


def _from_grafana(site: Site, since: str | None) -> EventReport:
    from stormpetrel.ingest.events import ingest_outages
    from stormpetrel.sources.grafana import GrafanaOutages

    if not site.settings.grafana.url:
        raise SettingsError("Nothing says where Grafana is.", hint="Set grafana.url to https://host:3000 in site.toml.")
    return ingest_outages(site, GrafanaOutages(site.settings.grafana, now=site.now()), start=_since(site, since))


def _removed(site: Site, uid: str) -> Outage:
    """Remove the label of a uid; where two sources have the same, `SOURCE/UID` tells them apart."""
    found = [one for one in site.outages.list() if uid in (one.uid, f"{one.source}/{one.uid}")]
    if not found:
        raise NotThereError(f"There is no label {plain(uid)[:200]!r}.", hint="List them: stormpetrel events label --list")
    if len(found) > 1:
        names = ", ".join(f"{one.source}/{one.uid}" for one in found[:5])
        raise UsageError(f"{len(found)} labels have the UID {plain(uid)!r}.", hint=f"Say which: {plain(names)}")
    return site.outages.remove(found[0].source, found[0].uid)


def _since(site: Site, text: str | None) -> datetime | None:
    from stormpetrel.sources.incident_times import moment_of

    return moment_of(text, _zone(site), what="--since") if text is not None else None


def _zone(site: Site) -> str:
    return site.settings.site.time_zone


def as_dict(outage: Outage) -> dict[str, Any]:
    """A label for programs."""
    end = outage.end.isoformat() if outage.end else None
    told = {"kind": str(outage.kind), "from": outage.start.isoformat(), "to": end}
    return {"source": outage.source, "uid": outage.uid, **told, "title": outage.title}


def _tell_kept(outage: Outage, zone: str, *, as_json: bool) -> None:
    if as_json:
        print_json(as_dict(outage))
        return
    out = console()
    out.print(f"{plain(outage.uid)}: {_words(outage, zone)}")
    if outage.end is None:
        out.print(f"It lasts until you say when it ended: {_how_to_end(outage)}")
    out.print("Next: stormpetrel events train learns from it, if it is older than the newest quarter of the counts")


def _tell_removed(outage: Outage, zone: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"removed": as_dict(outage)})
        return
    out = console()
    out.print(f"Removed: {_words(outage, zone)}")
    if outage.source != BY_HAND:
        out.print(f"It comes back when {plain(outage.source)} is read again, unless it is deleted there too.")


def _tell_list(outages: Sequence[Outage], zone: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"outages": [as_dict(one) for one in outages]})
        return
    out = console()
    for one in outages:
        out.print(f"{_words(one, zone)}  [{plain(one.source)}/{plain(one.uid)}]")
    out.print(f"{len(outages):,} labels, times in {zone}" if outages else f"Nothing is labelled. {_EXAMPLE}")


def _tell_report(report: EventReport, *, as_json: bool) -> None:
    if as_json:
        print_json(report.as_dict())
        return
    out = console()
    out.print(f"{plain(report.source)}: {report.read:,} outages and maintenances read")
    out.print(f"  {report.kept:,} new · {report.known:,} known already · {report.changed:,} changed or gone")
    for note in report.notes:
        out.print(f"  note: {plain(note)}")


def _how_to_end(outage: Outage) -> str:
    kind = "" if outage.kind is OutageKind.OUTAGE else f" --kind {outage.kind}"
    title = f" --title {shlex.quote(plain(outage.title))}" if outage.title else ""
    return f"stormpetrel events label {outage.start.isoformat()} now{kind}{title}"


def _words(outage: Outage, zone: str) -> str:
    place = ZoneInfo(zone)
    end = f"{outage.end.astimezone(place):%Y-%m-%d %H:%M}" if outage.end else "it lasts        "
    return f"{outage.start.astimezone(place):%Y-%m-%d %H:%M} to {end}  {outage.kind:<11}  {plain(outage.title)}".rstrip()
