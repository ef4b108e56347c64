"""`stormpetrel events show`: the queries, and what was counted, hour by hour; a gap is a gap and a zero is a zero."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated
from zoneinfo import ZoneInfo

import typer

from stormpetrel.answers.cluster.event_table import event_table
from stormpetrel.answers.schemas.events import EventRow, EventTable, EventTableQuestion
from stormpetrel.answers.viewer import LOCAL
from stormpetrel.faces.cli.options import Json, SinceTime, UntilTime
from stormpetrel.faces.cli.output import emit, plain
from stormpetrel.faces.cli.site import open_site, parse_site_time

_GAP = "gap"
_MOST_VALUES = 30  # sites, hosts, groups or nodes that people are shown


class Place(StrEnum):
    """What the counts can be split by."""

    SITE = "site"
    SUBMIT_HOST = "submit_host"
    GROUP = "group"
    NODE = "node"


def show(
    context: typer.Context,
    since: SinceTime = None,
    until: UntilTime = None,
    last: Annotated[
        int | None, typer.Option("--last", min=1, help="The last N buckets; 24 if nothing is named.", show_default=False)
    ] = None,
    by: Annotated[
        Place | None, typer.Option("--by", help="Instead of hours: the sums by place, the largest first.", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """Print the queries that count events, and the table: kinds as columns, gaps with their reason."""
    with open_site(context) as site:
        zone = site.settings.site.time_zone
        start, end = parse_site_time(since, zone, "--since"), parse_site_time(until, zone, "--until")
        question = EventTableQuestion(since=start, until=end, last=last, by=by.value if by else None)
        table = event_table(site, LOCAL, question)
    emit(table.model_dump(mode="json", by_alias=True), lambda _out: _print_answer(table), as_json=as_json)


def _print_answer(table: EventTable) -> None:
    """Print queries and table to standard output as they are, at any width: they are read by people and by grep."""
    _print_queries(table)
    if table.message:
        typer.echo(table.message)
    elif table.by:
        _print_places(table, table.by)
    else:
        _print_hours(table)


def _print_queries(table: EventTable) -> None:
    for source in table.queries:
        typer.echo(f"{plain(source.source)}: {plain(source.words)}")
        if source.query:
            typer.echo(f"{source.query['method']} {plain(source.query['path'])}")
            typer.echo(json.dumps(source.query["bodies"], indent=2, ensure_ascii=True))
    if table.queries:
        typer.echo("")


def _print_hours(table: EventTable) -> None:
    zone = ZoneInfo(table.zone)
    rows: list[tuple[str, list[str] | str]] = [(f"{row.time.astimezone(zone):%Y-%m-%d %H:%M}", _cells(row)) for row in table.rows]
    rows.append(("total", [f"{count:,}" for count in table.totals.values()]))
    _print_table([table.zone, *table.kinds], rows)
    for gap in table.gaps:
        if gap.start > table.rows[-1].time:
            typer.echo(
                f"{gap.start.astimezone(zone):%Y-%m-%d %H:%M} to {gap.end.astimezone(zone):%H:%M}: {_GAP}: {plain(gap.why)}"
            )
    unseen = sum(row.counts is None for row in table.rows)
    typer.echo(f"{len(table.rows):,} buckets of {table.bucket_s // 60} min, {unseen:,} of them gaps")
    if table.silent:
        typer.echo(f"none of: {', '.join(table.silent)}")


def _cells(row: EventRow) -> list[str] | str:
    return f"{_GAP}: {plain(row.gap or '')}" if row.counts is None else [f"{count:,}" for count in row.counts.values()]


def _print_places(table: EventTable, by: str) -> None:
    rows: list[tuple[str, list[str] | str]] = [
        (plain(place.value), [f"{count:,}" for count in place.counts.values()]) for place in table.places[:_MOST_VALUES]
    ]
    if not rows:
        typer.echo(f"No source knows the {by} of an event in this time.")
        return
    _print_table([by, *table.kinds], rows)
    if len(table.places) > _MOST_VALUES:
        typer.echo(f"(the first {_MOST_VALUES} of {len(table.places):,}; --json shows all)")


def _print_table(names: Sequence[str], rows: Sequence[tuple[str, list[str] | str]]) -> None:
    """Columns as narrow as their figures allow: a kind of three words takes three lines. A text takes a whole row."""
    heads = [[plain(names[0])], *(re.findall(r"[A-Z]?[^A-Z]+|[A-Z]+", plain(name)) or [plain(name)] for name in names[1:])]
    whole = [[first, *cells] for first, cells in rows if isinstance(cells, list)]
    columns = [list(column) for column in zip(*whole, strict=True)] or [[] for _ in names]
    widths = [max(map(len, [*head, *column])) for head, column in zip(heads, columns, strict=True)]
    widths[0] = max([widths[0], *(len(first) for first, _ in rows)])
    for line in range(max(map(len, heads))):
        parts = [head[line] if line < len(head) else "" for head in heads]
        typer.echo(_line(parts, widths))
    for first, cells in rows:
        typer.echo(f"{first:<{widths[0]}}  {cells}" if isinstance(cells, str) else _line([first, *cells], widths))


def _line(cells: list[str], widths: list[int]) -> str:
    figures = (f"{cell:>{width}}" for cell, width in zip(cells[1:], widths[1:], strict=True))
    return "  ".join([f"{cells[0]:<{widths[0]}}", *figures]).rstrip()
