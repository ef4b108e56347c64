"""`stormpetrel events show`: what was asked, and what was counted, hour by hour; a gap is a gap and a zero is a zero."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any
from zoneinfo import ZoneInfo

import typer

from stormpetrel.errors import UsageError
from stormpetrel.faces.cli.context import Context, Json, plain, print_json
from stormpetrel.faces.cli.event_queries import queries_of

if TYPE_CHECKING:
    from stormpetrel.records.event_series import EventSeries
    from stormpetrel.store.event_gaps import EventGap
    from stormpetrel.store.site import Site

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
    since: Annotated[
        str | None, typer.Option("--since", help="From this time on, in the site's zone: 2026-01-31T14:00.", show_default=False)
    ] = None,
    until: Annotated[str | None, typer.Option("--until", help="Before this time.", show_default=False)] = None,
    last: Annotated[
        int | None, typer.Option("--last", min=1, help="The last N buckets; 24 if nothing is said.", show_default=False)
    ] = None,
    by: Annotated[
        Place | None, typer.Option("--by", help="Instead of hours: the sums by place, the largest first.", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """Print what is asked to count events, and the table: kinds as columns, gaps with their reason."""
    chosen: Context = context.obj
    with chosen.open_site() as site:
        start, end = _moment(since, site, "--since"), _moment(until, site, "--until")
        if start and end and start >= end:
            raise UsageError("--since is not before --until.", hint="Name the earlier moment with --since.")
        table = _table_of(site, start, end, last)
        nothing = _why_nothing(site)
        where = _by_place(site, table, by) if by else []
        queries = queries_of(site, table.start, table.end)
    if as_json:
        print_json({**table.as_dict(), **({"by": by.value, "places": where} if by else {}), "queries": queries})
        return
    _print_queries(queries)
    if not len(table.series):
        typer.echo(nothing)
    elif by:
        _print_places(table, by, where)
    else:
        _print_hours(table)


def _why_nothing(site: Site) -> str:
    """What to say where there is no bucket to show."""
    from datetime import datetime as moment

    seen = site.event_counts.seen()
    first, last = seen["first"].min(), seen["last"].max()
    if isinstance(first, moment) and isinstance(last, moment):
        return f"No bucket of this time was seen whole. Counts reach from {first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} UTC."
    if site.event_counts.sources():
        return "Events were read, and no bucket of time was seen whole: the log begins and ends within one. Read more of it."
    return "Nothing has been counted yet. Take in events: stormpetrel ingest events --live"


@dataclass(frozen=True, slots=True)
class _Table:
    """The buckets to show, with the kinds that occur in them."""

    series: EventSeries
    gaps: list[EventGap]
    start: datetime
    end: datetime
    silent: tuple[str, ...]  # kinds that the models see, and that do not occur

    def why(self, place: int) -> str:
        """Why a bucket was not seen whole."""
        begin = self.series.moment(place)
        return next((gap.why for gap in self.gaps if gap.start <= begin < gap.end), "not read")

    def as_dict(self) -> dict[str, Any]:
        """The table as `--json` prints it; counts are null at a gap."""
        series, is_gap = self.series, self.series.is_gap
        rows = [
            {
                "time": series.moment(place).isoformat(),
                "gap": self.why(place) if is_gap[place] else None,
                "counts": None if is_gap[place] else {kind: int(n) for kind, n in zip(series.kinds, row, strict=True)},
            }
            for place, row in enumerate(series.counts)
        ]
        totals = {kind: int(n) for kind, n in zip(series.kinds, series.counts[~is_gap].sum(axis=0), strict=True)}
        return {
            "bucket_s": series.bucket_s,
            "kinds": list(series.kinds),
            "rows": rows,
            "totals": totals,
            "gaps": [gap.as_dict() for gap in self.gaps],
        }


def _table_of(site: Site, since: datetime | None, until: datetime | None, last: int | None) -> _Table:
    import polars as pl

    from stormpetrel.records.events import COVERED
    from stormpetrel.store.event_series import series_of

    series = series_of(site, since=since, until=until)
    wanted = last or (24 if since is None and until is None else len(series))
    first = max(0, len(series) - wanted)
    if not len(series):
        now = site.now()
        return _Table(series, [], since or now - timedelta(days=1), until or now, ())
    start, end = series.moment(first), series.moment(len(series) - 1) + timedelta(seconds=series.bucket_s)
    rows = site.event_counts.read(since=start, until=end, bucket_s=series.bucket_s).filter(pl.col("kind") != COVERED)
    found = set(rows.select(pl.col("kind").unique()).collect().to_series())
    kinds = (*(kind for kind in series.kinds if kind in found), *sorted(found - set(series.kinds))) or series.kinds
    # What was not seen behind the last bucket belongs to the table unless somebody asked for an earlier end.
    gaps = site.event_counts.gaps(bucket_s=series.bucket_s, since=start, until=until or max(end, site.now()))
    silent = tuple(kind for kind in series.kinds if kind not in kinds)
    return _Table(series_of(site, since=start, until=end, kinds=kinds), gaps, start, end, silent)


def _by_place(site: Site, table: _Table, by: Place) -> list[dict[str, Any]]:
    """The sums over all buckets by the values of a place, most events first."""
    import polars as pl

    rows = site.event_counts.read(since=table.start, until=table.end, places=True, bucket_s=table.series.bucket_s)
    sums = rows.filter(pl.col("place") == by.value).group_by("value", "kind").agg(pl.col("count").sum()).collect()
    counts: dict[str, dict[str, int]] = {}
    for value, kind, count in sums.sort("kind").iter_rows():
        counts.setdefault(value, {})[kind] = count
    ranked = sorted(counts.items(), key=lambda item: (-sum(item[1].values()), item[0]))
    return [{"value": value, "counts": {kind: told.get(kind, 0) for kind in table.series.kinds}} for value, told in ranked]


def _moment(text: str | None, site: Site, option: str) -> datetime | None:
    """A time of the command line, in the site's zone unless it has one of its own."""
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text.strip())
        zoned = moment if moment.tzinfo else moment.replace(tzinfo=ZoneInfo(site.settings.site.time_zone))
        return zoned.astimezone(UTC)
    except (ValueError, OverflowError):
        raise UsageError(f"{option} {text!r} is not a time.", hint="Write it as 2026-01-31T14:00.") from None


def _print_queries(queries: list[dict[str, Any]]) -> None:
    for one in queries:
        typer.echo(f"{plain(one['source'])}: {plain(one['words'])}")
        query = one.get("query")
        if query:
            typer.echo(f"{query['method']} {plain(query['path'])}")
            typer.echo(json.dumps(query["bodies"], indent=2, ensure_ascii=True))
    if queries:
        typer.echo("")


def _print_hours(table: _Table) -> None:
    series, zone = table.series, ZoneInfo(table.series.zone)
    times = [f"{series.moment(place).astimezone(zone):%Y-%m-%d %H:%M}" for place in range(len(series))]
    is_gap = series.is_gap
    cells: list[list[str] | str] = [
        f"{_GAP}: {plain(table.why(place))}" if is_gap[place] else [f"{int(n):,}" for n in row]
        for place, row in enumerate(series.counts)
    ]
    totals = [f"{int(n):,}" for n in series.counts[~is_gap].sum(axis=0)]
    _print_table([series.zone, *series.kinds], [*zip(times, cells, strict=True), ("total", totals)])
    unseen = int(is_gap.sum())
    for gap in table.gaps:
        if gap.start >= table.end:
            typer.echo(
                f"{gap.start.astimezone(zone):%Y-%m-%d %H:%M} to {gap.end.astimezone(zone):%H:%M}: {_GAP}: {plain(gap.why)}"
            )
    typer.echo(f"{len(series):,} buckets of {series.bucket_s // 60} min, {unseen:,} of them gaps")
    if table.silent:
        typer.echo(f"none of: {', '.join(table.silent)}")


def _print_places(table: _Table, by: Place, where: list[dict[str, Any]]) -> None:
    rows: list[tuple[str, list[str] | str]] = [
        (plain(one["value"]), [f"{count:,}" for count in one["counts"].values()]) for one in where[:_MOST_VALUES]
    ]
    if not rows:
        typer.echo(f"No source tells the {by.value} of an event in this time.")
        return
    _print_table([by.value, *table.series.kinds], rows)
    if len(where) > _MOST_VALUES:
        typer.echo(f"(the first {_MOST_VALUES} of {len(where):,}; --json shows all)")


def _print_table(names: Sequence[str], rows: Sequence[tuple[str, list[str] | str]]) -> None:
    """Columns as narrow as their figures allow: a kind of three words takes three lines. A text stands for a whole row."""
    heads = [[plain(names[0])], *(re.findall(r"[A-Z]?[^A-Z]+|[A-Z]+", plain(name)) or [plain(name)] for name in names[1:])]
    told = [[first, *cells] for first, cells in rows if isinstance(cells, list)]
    columns = [list(column) for column in zip(*told, strict=True)] or [[] for _ in names]
    widths = [max(map(len, [*head, *column])) for head, column in zip(heads, columns, strict=True)]
    widths[0] = max([widths[0], *(len(first) for first, _ in rows)])
    for line in range(max(map(len, heads))):
        words = [head[line] if line < len(head) else "" for head in heads]
        typer.echo(_line(words, widths))
    for first, cells in rows:
        typer.echo(f"{first:<{widths[0]}}  {cells}" if isinstance(cells, str) else _line([first, *cells], widths))


def _line(cells: list[str], widths: list[int]) -> str:
    figures = (f"{cell:>{width}}" for cell, width in zip(cells[1:], widths[1:], strict=True))
    return "  ".join([f"{cells[0]:<{widths[0]}}", *figures]).rstrip()
