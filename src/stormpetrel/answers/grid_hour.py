"""One bucket of the grid: what was wrong in it, how each kind of event stood against its forecast, and where it happened.

GridBoard + Viewer + moment + kind -> bucket_view -> BucketView. Sites and submit hosts are everybody's, groups and nodes are for
administrators.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

import numpy as np
import polars as pl

from stormpetrel.answers.grid_words import finding_words, places_seen
from stormpetrel.answers.viewer import READ
from stormpetrel.errors import NotThereError
from stormpetrel.records.outages import Outage

if TYPE_CHECKING:
    from stormpetrel.answers.background import Made
    from stormpetrel.answers.grid_board import GridBoard
    from stormpetrel.answers.live_site import LiveSite
    from stormpetrel.answers.viewer import Viewer

USUAL: Final = timedelta(days=7)  # what is usual somewhere is what happened there in the week before
MOST_BARS: Final = 8  # places that are drawn; the others are one bar
OTHERS: Final = "all others"


@dataclass(frozen=True, slots=True)
class KindLine:
    """One kind of event in a bucket, against its forecast; None where there is none."""

    kind: str
    count: float | None
    expected: float | None
    low: float | None
    high: float | None
    surprise: float | None

    @property
    def is_outside(self) -> bool:
        """Whether the count lies outside of the band."""
        known = self.count is not None and self.low is not None and self.high is not None
        return known and not (self.low <= self.count <= self.high)  # type: ignore[operator]


@dataclass(frozen=True, slots=True)
class PlaceBars:
    """A kind's count at each site, host, group or node, beside what is usual there; the largest change first."""

    names: tuple[str, ...]
    counts: tuple[float, ...]
    usual: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class BucketView:
    """Everything about one bucket."""

    place: int  # on the board
    start: datetime
    end: datetime
    gap: str | None  # None: it was seen whole; else why it was not, as far as the viewer may know
    score: float | None
    threshold: float | None
    alarm: bool
    findings: tuple[str, ...]
    lines: tuple[KindLine, ...]  # the most surprising first
    kind: str  # the one whose places are told
    where: dict[str, PlaceBars]  # by sort of place; those that the sources do not tell are not there
    outages: tuple[Outage, ...]


def bucket_view(live: LiveSite, made: Made[GridBoard], viewer: Viewer, moment: datetime, kind: str = "") -> BucketView:
    """The bucket that a moment lies in; the most surprising kind where none of these is named."""
    viewer.require(READ)
    board = made.value
    place = board.place_of(moment)
    if place is None:
        raise NotThereError("There are no counts of that time.", hint="Choose a time from the figures above.")
    lines = kind_lines(board, place)
    chosen = kind if kind in board.series.kinds else lines[0].kind
    return made.answer(("bucket", viewer.is_admin, place, chosen), lambda: _view(live, board, viewer, place, chosen, lines))


def kind_lines(board: GridBoard, place: int) -> tuple[KindLine, ...]:
    """Every kind of a bucket, the most surprising first, then the most frequent."""
    tables = (board.series.counts, board.expected, board.low, board.high, board.surprise)
    rows = zip(board.series.kinds, *(_values(table[place]) for table in tables), strict=True)
    return tuple(sorted((KindLine(*row) for row in rows), key=lambda line: (-abs(line.surprise or 0.0), -(line.count or 0.0))))


def _view(live: LiveSite, board: GridBoard, viewer: Viewer, place: int, kind: str, lines: tuple[KindLine, ...]) -> BucketView:
    start = board.series.moment(place)
    end = start + board.bucket
    in_full, zone = viewer.is_admin, live.settings.site.time_zone
    score, threshold = _values(np.array([board.score[place], board.threshold[place]]))
    expected = next((line.expected for line in lines if line.kind == kind), None)
    is_gap = bool(board.series.is_gap[place])
    where = (
        {}
        if is_gap
        else _where(_near(live, board, place, kind), start, places_seen(in_full=in_full), expected, _seen_before(board, place))
    )
    return BucketView(
        place=place,
        start=start,
        end=end,
        gap=_gap(board, viewer, start, end) if is_gap else None,
        score=score,
        threshold=threshold,
        alarm=bool(board.alarm[place]),
        findings=finding_words(board.why.get(place, ""), now=end - timedelta(seconds=1), zone=zone, in_full=in_full),
        lines=lines,
        kind=kind,
        where=where,
        outages=tuple(one for one in board.outages if one.start < end and (one.end is None or one.end > start)),
    )


def _gap(board: GridBoard, viewer: Viewer, start: datetime, end: datetime) -> str:
    if not viewer.is_admin:
        return ""
    return "; ".join(dict.fromkeys(gap.why for gap in board.gaps if gap.start < end and gap.end > start))


def _near(live: LiveSite, board: GridBoard, place: int, kind: str) -> pl.DataFrame:
    """The counts of a kind by place, of a bucket and of the week before it."""
    start = board.series.moment(place)
    rows = live.site.event_counts.read(
        since=start - USUAL, until=start + board.bucket, places=True, bucket_s=board.series.bucket_s
    )
    return rows.filter(pl.col("kind") == kind, pl.col("place") != "").select("bucket_start", "place", "value", "count").collect()


def _seen_before(board: GridBoard, place: int) -> int:
    """How many buckets of the week before were seen whole."""
    first = max(0, place - round(USUAL / board.bucket))
    return int((~board.series.is_gap[first:place]).sum())


def _where(
    rows: pl.DataFrame, start: datetime, places: tuple[str, ...], expected: float | None, buckets_before: int
) -> dict[str, PlaceBars]:
    now = pl.col("bucket_start") == start
    sums = rows.group_by("place", "value").agg(
        now=pl.col("count").filter(now).sum().cast(pl.Float64), before=pl.col("count").filter(~now).sum().cast(pl.Float64)
    )
    found = {place: _bars(sums.filter(pl.col("place") == place), expected, buckets_before) for place in places}
    return {place: bars for place, bars in found.items() if bars.names}


def _bars(sums: pl.DataFrame, expected: float | None, buckets_before: int) -> PlaceBars:
    """Counts beside what is usual: a place's share of the week before, of what was expected now or of the mean before."""
    total = float(sums["before"].sum())
    of = expected if expected is not None else total / max(1, buckets_before)
    usual = pl.col("before") / total * of if total else pl.lit(0.0)
    ranked = sums.with_columns(usual=usual).sort(
        (pl.col("now") - pl.col("usual")).abs(), "now", "value", descending=[True, True, False]
    )
    shown, rest = ranked.head(MOST_BARS), ranked.slice(MOST_BARS)
    columns = [shown[name].to_list() for name in ("value", "now", "usual")]
    if rest.height:
        columns = [[*column, one] for column, one in zip(columns, (OTHERS, rest["now"].sum(), rest["usual"].sum()), strict=True)]
    names, counts, before = (tuple(column) for column in columns)
    return PlaceBars(names, counts, before)


def _values(row: np.ndarray[tuple[int], np.dtype[np.float64]]) -> list[float | None]:
    return [None if value != value else value for value in row.tolist()]
