"""One bucket of the cluster: what was wrong in it, how each kind of event stood against its forecast, and where it happened.

LiveSite + Viewer + BucketQuestion -> cluster_bucket -> ClusterBucketDetail. Sites and submit hosts are shown to
all, groups and nodes to administrators.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, Literal

import numpy as np
import polars as pl

from stormpetrel.answers.cluster.alarms import overlapping, places_seen
from stormpetrel.answers.cluster.cluster import bucket_findings, outage_of
from stormpetrel.answers.schemas.cluster import BucketQuestion, ClusterBucketDetail, ClusterKind, ClusterPlaces
from stormpetrel.answers.viewer import READ
from stormpetrel.errors import NotThereError

if TYPE_CHECKING:
    from stormpetrel.answers.background import Snapshot
    from stormpetrel.answers.cluster.board import ClusterBoard
    from stormpetrel.answers.live_site import LiveSite
    from stormpetrel.answers.viewer import Viewer

USUAL: Final = timedelta(days=7)  # what is usual somewhere is what happened there in the week before
MOST_BARS: Final = 8  # places that are drawn; the others are one bar
OTHERS: Final = "all others"


def cluster_bucket(
    live: LiveSite, viewer: Viewer, question: BucketQuestion, *, board: Snapshot[ClusterBoard] | None = None
) -> ClusterBucketDetail:
    """The bucket that a moment lies in, out of a board that is there already, or else of one that is waited for."""
    viewer.require(READ)
    latest = board or live.boards.cluster.wait(live).value
    cluster, in_full = latest.value, viewer.is_admin
    place = cluster.place_of(question.at)
    if place is None:
        raise NotThereError("There are no counts of that time.", hint="Choose a time from the figures above.")
    kinds = _kinds(cluster, place)
    kind = question.kind if question.kind in cluster.series.kinds else kinds[0].kind
    return latest.answer(("bucket", in_full, place, kind), lambda: _detail(live, cluster, place, kind, kinds, in_full=in_full))


def _kinds(board: ClusterBoard, place: int) -> list[ClusterKind]:
    """Every kind of a bucket, the most surprising first, then the most frequent."""
    arrays = board.arrays
    tables = (arrays.series.counts, arrays.expected, arrays.low, arrays.high, arrays.surprise)
    kinds = []
    for kind, *numbers in zip(board.series.kinds, *(_values(table[place]) for table in tables), strict=True):
        count, expected, low, high, surprise = numbers
        kinds.append(
            ClusterKind(
                kind=kind, count=count, expected=expected, low=low, high=high, surprise=surprise,
                outside=_outside(count, low, high),
            )
        )  # fmt: skip
    return sorted(kinds, key=lambda kind: (-abs(kind.surprise or 0.0), -(kind.count or 0.0)))


def _outside(count: float | None, low: float | None, high: float | None) -> Literal["above", "below"] | None:
    if count is None or low is None or high is None or low <= count <= high:
        return None
    return "above" if count > high else "below"


def _detail(
    live: LiveSite, board: ClusterBoard, place: int, kind: str, kinds: list[ClusterKind], *, in_full: bool
) -> ClusterBucketDetail:
    start, end = board.series.moment(place), board.series.moment(place) + board.bucket
    score, threshold = _values(np.array([board.arrays.score[place], board.arrays.threshold[place]]))
    is_gap = bool(board.series.is_gap[place])
    return ClusterBucketDetail(
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
        where={} if is_gap else _where(live, board, place, next(item for item in kinds if item.kind == kind), in_full=in_full),
        outages=[outage_of(board, item, live.now()) for item in overlapping(board.outages, start, end)],
    )


def _gap(board: ClusterBoard, start: datetime, end: datetime, *, in_full: bool) -> str:
    reasons = dict.fromkeys(gap.why for gap in board.gaps if gap.start < end and gap.end > start)
    return "; ".join(reasons) if in_full else ""


def _where(live: LiveSite, board: ClusterBoard, place: int, kind: ClusterKind, *, in_full: bool) -> dict[str, ClusterPlaces]:
    """The counts of a kind at each place, next to those of the week before; sorts of places that no source names are left out."""
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


def _bars(sums: pl.DataFrame, expected: float | None, buckets_before: int) -> ClusterPlaces:
    """Counts next to what is usual: a place's share of the week before, of what was expected now or of the mean before."""
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
    return ClusterPlaces(names=names, counts=counts, usual=before)


def _values(row: np.ndarray[tuple[int], np.dtype[np.float64]]) -> list[float | None]:
    return [None if value != value else value for value in row.tolist()]
