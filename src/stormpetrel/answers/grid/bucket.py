"""One bucket of the grid: what was wrong in it, how each kind of event stood against its forecast, and where it happened.

LiveSite + Viewer + BucketQuestion -> grid_bucket -> GridBucketDetail. Sites and submit hosts are everybody's, groups and nodes
are for administrators.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, Literal

import numpy as np
import polars as pl

from stormpetrel.answers.grid.alarms import overlapping
from stormpetrel.answers.grid.grid import bucket_findings, outage_of
from stormpetrel.answers.grid.words import places_seen
from stormpetrel.answers.schemas.grid import BucketQuestion, GridBucketDetail, GridKind, GridPlaces
from stormpetrel.answers.viewer import READ
from stormpetrel.errors import NotThereError

if TYPE_CHECKING:
    from stormpetrel.answers.background import Made
    from stormpetrel.answers.grid.board import GridBoard
    from stormpetrel.answers.live_site import LiveSite
    from stormpetrel.answers.viewer import Viewer

USUAL: Final = timedelta(days=7)  # what is usual somewhere is what happened there in the week before
MOST_BARS: Final = 8  # places that are drawn; the others are one bar
OTHERS: Final = "all others"


def grid_bucket(
    live: LiveSite, viewer: Viewer, question: BucketQuestion, *, board: Made[GridBoard] | None = None
) -> GridBucketDetail:
    """The bucket that a moment lies in, out of a board that is there already, or else of one that is waited for."""
    viewer.require(READ)
    latest = board or live.boards.grid.wait(live).value
    grid, in_full = latest.value, viewer.is_admin
    place = grid.place_of(question.at)
    if place is None:
        raise NotThereError("There are no counts of that time.", hint="Choose a time from the figures above.")
    kinds = _kinds(grid, place)
    kind = question.kind if question.kind in grid.series.kinds else kinds[0].kind
    return latest.answer(("bucket", in_full, place, kind), lambda: _detail(live, grid, place, kind, kinds, in_full=in_full))


def _kinds(board: GridBoard, place: int) -> list[GridKind]:
    """Every kind of a bucket, the most surprising first, then the most frequent."""
    arrays = board.arrays
    tables = (arrays.series.counts, arrays.expected, arrays.low, arrays.high, arrays.surprise)
    kinds = []
    for kind, *numbers in zip(board.series.kinds, *(_values(table[place]) for table in tables), strict=True):
        count, expected, low, high, surprise = numbers
        kinds.append(
            GridKind(
                kind=kind, count=count, expected=expected, low=low, high=high, surprise=surprise,
                outside=_outside(count, low, high),
            )
        )  # fmt: skip
    return sorted(kinds, key=lambda kind: (-abs(kind.surprise or 0.0), -(kind.count or 0.0)))


def _outside(count: float | None, low: float | None, high: float | None) -> Literal["above", "below"] | None:
    if count is None or low is None or high is None or low <= count <= high:
        return None
    return "above" if count > high else "below"


def _detail(live: LiveSite, board: GridBoard, place: int, kind: str, kinds: list[GridKind], *, in_full: bool) -> GridBucketDetail:
    start, end = board.series.moment(place), board.series.moment(place) + board.bucket
    score, threshold = _values(np.array([board.arrays.score[place], board.arrays.threshold[place]]))
    is_gap = bool(board.series.is_gap[place])
    return GridBucketDetail(
        start=start,
        end=end,
        earlier=start - board.bucket if place > 0 else None,
        later=end if place < len(board.series) - 1 else None,
        gap=_gap(board, start, end, in_full=in_full) if is_gap else None,
        score=score,
        threshold=threshold,
        alarm=bool(board.arrays.alarm[place]),
        findings=bucket_findings(board, place, live.settings.site.time_zone, in_full=in_full),
        kinds=kinds,
        kind=kind,
        where={} if is_gap else _where(live, board, place, next(one for one in kinds if one.kind == kind), in_full=in_full),
        outages=[outage_of(board, one, live.now()) for one in overlapping(board.outages, start, end)],
    )


def _gap(board: GridBoard, start: datetime, end: datetime, *, in_full: bool) -> str:
    reasons = dict.fromkeys(gap.why for gap in board.gaps if gap.start < end and gap.end > start)
    return "; ".join(reasons) if in_full else ""


def _where(live: LiveSite, board: GridBoard, place: int, kind: GridKind, *, in_full: bool) -> dict[str, GridPlaces]:
    """The counts of a kind at each place, beside those of the week before; sorts of places that no source names are left out."""
    start = board.series.moment(place)
    near = live.site.event_counts.read(
        since=start - USUAL, until=start + board.bucket, places=True, bucket_s=board.series.bucket_s
    )
    now = pl.col("bucket_start") == start
    sums = (
        near.filter(pl.col("kind") == kind.kind, pl.col("place").is_in(places_seen(in_full=in_full)))
        .group_by("place", "value")
        .agg(now=pl.col("count").filter(now).sum().cast(pl.Float64), before=pl.col("count").filter(~now).sum().cast(pl.Float64))
        .collect()
    )
    first = max(0, place - round(USUAL / board.bucket))
    seen_before = int((~board.series.is_gap[first:place]).sum())  # buckets
    bars = {
        sort: _bars(sums.filter(pl.col("place") == sort), kind.expected, seen_before) for sort in places_seen(in_full=in_full)
    }
    return {sort: places for sort, places in bars.items() if places.names}


def _bars(sums: pl.DataFrame, expected: float | None, buckets_before: int) -> GridPlaces:
    """Counts beside what is usual: a place's share of the week before, of what was expected now or of the mean before."""
    total = float(sums["before"].sum())
    of = expected if expected is not None else total / max(1, buckets_before)
    usual = pl.col("before") / total * of if total else pl.lit(0.0)
    ranked = sums.with_columns(usual=usual).sort(
        (pl.col("now") - pl.col("usual")).abs(), "now", "value", descending=[True, True, False]
    )
    shown, rest = ranked.head(MOST_BARS), ranked.slice(MOST_BARS)
    names, counts, before = (shown[name].to_list() for name in ("value", "now", "usual"))
    if rest.height:
        names, counts, before = [*names, OTHERS], [*counts, rest["now"].sum()], [*before, rest["usual"].sum()]
    return GridPlaces(names=names, counts=counts, usual=before)


def _values(row: np.ndarray[tuple[int], np.dtype[np.float64]]) -> list[float | None]:
    return [None if value != value else value for value in row.tolist()]
