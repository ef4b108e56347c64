"""The event counts of a site and their scores, kept in memory; read anew only where something has changed.

LiveSite.boards.cluster.peek -> ClusterBoard: one row per bucket of time, oldest first, for all kinds of events.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from stormpetrel.answers.background import Background, Snapshot
from stormpetrel.answers.overview.overview import again
from stormpetrel.events.alarm_budget import episodes
from stormpetrel.records.event_series import EventSeries
from stormpetrel.records.events import COVERED, EVENT_SCORE_SCHEMA
from stormpetrel.records.outages import Outage
from stormpetrel.store.events.series import chosen_kinds, series_of

if TYPE_CHECKING:
    from stormpetrel.answers.live_site import LiveSite
    from stormpetrel.store.events.gaps import EventGap
    from stormpetrel.store.site import Site

FAMILY: Final = "events"  # of the registry
MOST_KINDS: Final = 30  # rows of a figure; a hostile log may have any number
MOST_BUCKETS: Final = 120_000  # that are kept in memory, the latest: thirteen years of hours, twelve weeks of minutes
_REST_S: Final = 15.0
_BANDS: Final = ("expected", "low", "high", "surprise")

Numbers = npt.NDArray[np.float64]


class ClusterLack(StrEnum):
    """Why there is nothing to judge: the first step that has not been done."""

    EVENTS = "events"
    MODEL = "model"
    SCORES = "scores"


@dataclass(frozen=True, slots=True, eq=False)
class ClusterArrays:
    """Counts and scores with one row per bucket of `series`, for figures.

    They stay arrays next to the answers: a figure thins ten thousands of buckets and thirty kinds to a few thousand points, which
    takes milliseconds as arrays and seconds as models.
    """

    series: EventSeries
    score: Numbers  # (buckets,), NaN where there is none
    threshold: Numbers  # (buckets,)
    alarm: npt.NDArray[np.bool_]  # (buckets,)
    expected: Numbers  # (buckets, kinds), NaN where nothing was forecast
    low: Numbers
    high: Numbers
    surprise: Numbers

    def between(self, start: datetime | None, end: datetime | None) -> ClusterArrays:
        """The buckets from a moment to before another, both beginnings of buckets; none where one of them is None."""
        if start is None or end is None:
            return self.take(0, 0)
        first, last = (round((edge.timestamp() - int(self.series.start_s[0])) / self.series.bucket_s) for edge in (start, end))
        return self.take(first, last)

    def take(self, first: int, last: int) -> ClusterArrays:
        """The buckets from `first` to before `last`."""
        names = ("score", "threshold", "alarm", *_BANDS)
        return ClusterArrays(self.series.take(first, last), **{name: getattr(self, name)[first:last] for name in names})


@dataclass(frozen=True, slots=True, eq=False)
class ClusterBoard:
    """Counts, scores, outages and gaps of a site."""

    arrays: ClusterArrays
    latest: datetime | None  # end of the latest bucket that was seen whole
    alarms: pl.DataFrame  # EVENT_SCORE_SCHEMA: the buckets of alarm
    alarm_now: tuple[int, int] | None  # first and last bucket of the alarm that is on; None: there is none
    why: Mapping[int, str]  # bucket -> findings as JSON, where something was wrong
    outages: tuple[Outage, ...]  # in the order of their beginning
    gaps: tuple[EventGap, ...]  # their reasons may name hosts and paths: for administrators
    lack: ClusterLack | None  # None: nothing is lacking
    model: str
    model_version: int
    tables: tuple[Any, ...]  # what it was read from

    @property
    def series(self) -> EventSeries:
        """The counts."""
        return self.arrays.series

    @property
    def bucket(self) -> timedelta:
        """How long a bucket is."""
        return timedelta(seconds=self.series.bucket_s)

    def place_of(self, moment: datetime) -> int | None:
        """Which bucket a moment lies in; None where there is none."""
        if not len(self.series):
            return None
        place = int((moment.timestamp() - int(self.series.start_s[0])) // self.series.bucket_s)
        return place if 0 <= place < len(self.series) else None


def build_cluster_board(live: LiveSite, key: str, before: Snapshot[ClusterBoard] | None) -> Snapshot[ClusterBoard]:
    """The board of a site; the one before, with all answers out of it, where nothing has changed."""
    del key
    if before is not None and before.value.tables == read_from(live.site):
        return before
    return Snapshot(again(lambda: read_board(live.site)), live.version, live.now())


def cluster_background() -> Background[Snapshot[ClusterBoard]]:
    """The work on the events of one site."""
    return Background(build_cluster_board, rest_s=_REST_S, most=1, always=True)


def stamp_of(board: Snapshot[ClusterBoard]) -> str:
    """What changes with the board."""
    return f"{hash(board.value.tables)} {board.at.isoformat()}"


def read_from(site: Site) -> tuple[Any, ...]:
    """What a board of now would be read from."""
    counts = site.event_counts
    written = (counts.table, counts.reasons.table, site.event_scores.table, site.event_background.table)
    return (*(table.version() for table in written), _model_in_use(site), tuple(site.outages.list()))


def read_board(site: Site) -> ClusterBoard:
    """Counts, scores, outages and gaps of the latest time, put next to each other."""
    tables = read_from(site)
    series = _counts(site)
    rows = _scores(site, series)
    series = series.of_kinds(_kinds(series, rows))
    model, version = (rows["model"].item(0), rows["model_version"].item(0)) if rows.height else ("", 0)
    rows = _within(series, rows)
    arrays = _aligned(series, rows)
    return ClusterBoard(
        arrays=arrays,
        latest=_latest(series),
        alarm_now=_alarm_now(arrays),
        alarms=rows.filter(pl.col("alarm")).sort("bucket_start").drop("place"),
        why=dict(rows.filter(pl.col("why").str.len_bytes() > 2).select("place", "why").iter_rows()),
        outages=tables[-1],
        gaps=_gaps(site, series),
        lack=_lack(site, series, judged=bool(model)),
        model=model,
        model_version=version,
        tables=tables,
    )


def _counts(site: Site) -> EventSeries:
    """The counts of the latest time: the kinds that models see, as far as they happened, then the most frequent others."""
    bucket_s = site.settings.events.bucket_minutes * 60
    rows = site.event_counts.read(bucket_s=bucket_s)
    sums = rows.group_by("kind").agg(pl.col("count").sum(), last=pl.col("bucket_start").max()).collect()
    last = sums["last"].max()
    since = last - timedelta(seconds=bucket_s * (MOST_BUCKETS - 1)) if isinstance(last, datetime) else None
    happened = sums.filter(pl.col("kind") != COVERED).sort("count", "kind", descending=[True, False])["kind"].to_list()
    seen = [kind for kind in chosen_kinds(site.settings, happened) if kind in set(happened)]
    return series_of(site, since=since, kinds=list(dict.fromkeys([*seen, *happened]))[:MOST_KINDS])


def _scores(site: Site, series: EventSeries) -> pl.DataFrame:
    """What the model in use says, or where it has said nothing yet the one that spoke last; EVENT_SCORE_SCHEMA."""
    if not len(series):
        return pl.DataFrame(schema=EVENT_SCORE_SCHEMA)
    rows = site.event_scores.read(since=series.moment(0)).filter(pl.col("bucket_s") == series.bucket_s)
    versions = rows.group_by("model", "model_version").agg(said=pl.col("said_at").max()).collect()
    if versions.is_empty():
        return pl.DataFrame(schema=EVENT_SCORE_SCHEMA)
    in_use = _model_in_use(site)
    model, version, _ = max(versions.iter_rows(), key=lambda row: ((row[0], row[1]) == in_use, row[2], row[1]))
    return rows.filter(pl.col("model") == model, pl.col("model_version") == version).collect()


def _kinds(series: EventSeries, rows: pl.DataFrame) -> tuple[str, ...]:
    """The kinds of the model, then the others that happened."""
    judged = rows["kinds"].explode().drop_nulls().unique(maintain_order=True).to_list() if rows.height else []
    return tuple(dict.fromkeys([*judged, *series.kinds]))


def _within(series: EventSeries, rows: pl.DataFrame) -> pl.DataFrame:
    """The scores of buckets that the series has, with their `place` in it."""
    start_s = int(series.start_s[0]) if len(series) else 0
    place = ((pl.col("bucket_start").dt.epoch("s") - start_s) // series.bucket_s).alias("place")
    return rows.with_columns(place).filter(pl.col("place").is_between(0, len(series) - 1))


def _aligned(series: EventSeries, rows: pl.DataFrame) -> ClusterArrays:
    """The scores as arrays next to the counts."""
    size, kinds = len(series), len(series.kinds)
    arrays: dict[str, Any] = {name: np.full(size, np.nan) for name in ("score", "threshold")}
    arrays |= {"alarm": np.zeros(size, dtype=np.bool_), **{name: np.full((size, kinds), np.nan) for name in _BANDS}}
    if not rows.height:
        return ClusterArrays(series, **arrays)
    at = rows["place"].to_numpy()
    for name in ("score", "threshold"):
        arrays[name][at] = rows[name].fill_null(np.nan).to_numpy()
    arrays["alarm"][at] = rows["alarm"].fill_null(False).to_numpy()
    columns = pl.col("kinds").replace_strict(list(series.kinds), list(range(kinds)), return_dtype=pl.Int64)
    for name in _BANDS:
        forecast = rows.filter(pl.col(name).list.len() == pl.col("kinds").list.len())  # null where nothing was forecast
        cells = forecast.select("place", "kinds", name).explode("kinds", name).with_columns(columns)
        arrays[name][cells["place"].to_numpy(), cells["kinds"].to_numpy()] = cells[name].fill_null(np.nan).to_numpy()
    return ClusterArrays(series, **arrays)


def _latest(series: EventSeries) -> datetime | None:
    seen = np.flatnonzero(~series.is_gap)
    return series.moment(int(seen[-1])) + timedelta(seconds=series.bucket_s) if seen.size else None


def _alarm_now(arrays: ClusterArrays) -> tuple[int, int] | None:
    """The last alarm, if it reaches to the latest bucket that was judged."""
    judged = np.flatnonzero(~np.isnan(arrays.score) | arrays.alarm)
    runs = episodes(arrays.alarm, arrays.series.bucket_s)
    return runs[-1] if runs and runs[-1][1] == judged[-1] else None


def _gaps(site: Site, series: EventSeries) -> tuple[EventGap, ...]:
    """The stretches that were not seen whole, with the reasons that sources gave."""
    if not len(series):
        return ()
    return tuple(site.event_counts.gaps(bucket_s=series.bucket_s, since=series.moment(0)))


def _lack(site: Site, series: EventSeries, *, judged: bool) -> ClusterLack | None:
    if not len(series) or series.is_gap.all():
        return ClusterLack.EVENTS
    if judged:
        return None
    return ClusterLack.MODEL if _model_in_use(site)[1] is None else ClusterLack.SCORES


def _model_in_use(site: Site) -> tuple[str, int | None]:
    """Name and version of the model that raises alarms; no version where there is none."""
    training = site.models.current_training(FAMILY)
    if training is None:
        return "", None
    entry = next((model for model in training.models if model.about.get("role") != "forecast"), training.models[0])
    return entry.name, entry.version
