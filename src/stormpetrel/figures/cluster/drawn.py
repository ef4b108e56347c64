"""The figures of the cluster over a time: what page and report draw of its arrays, by the clock on the wall.

ClusterArrays + ClusterPeriod + zone -> score_over_time, counts_over_time, background_over_time. An axis of Plotly knows no zones.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import polars as pl

from stormpetrel.figures.cluster.background import background_figure
from stormpetrel.figures.cluster.counts import counts_figure, score_figure
from stormpetrel.figures.time_axis import ALARM, GAP, TimeSpan

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from stormpetrel.answers.cluster.board import ClusterArrays
    from stormpetrel.answers.schemas.cluster import ClusterPeriod


def score_over_time(arrays: ClusterArrays, period: ClusterPeriod, zone: str) -> Figure:
    """The score of each bucket against the threshold, with alarms, outages, maintenance and gaps."""
    spans = time_spans(period, zone)
    return score_figure(wall_times(arrays, zone), arrays.score, arrays.threshold, arrays.alarm, spans=spans)


def counts_over_time(arrays: ClusterArrays, period: ClusterPeriod, zone: str) -> Figure:
    """The count of each kind in each bucket, in the band in which 99 % of calm counts lie where there is a forecast."""
    forecast = has_forecast(arrays)
    return counts_figure(
        wall_times(arrays, zone),
        arrays.series.kinds,
        arrays.series.counts,
        low=arrays.low if forecast else None,
        high=arrays.high if forecast else None,
        alarm=arrays.alarm,
        spans=time_spans(period, zone),
    )


def background_over_time(arrays: ClusterArrays, period: ClusterPeriod, zone: str) -> tuple[Figure, list[str]] | None:
    """Queued jobs, slots and the like next to the alarms, and their names; None where there are none of this time."""
    series = arrays.series
    known = [place for place in range(len(series.background_names)) if np.isfinite(series.background[:, place]).any()]
    if not known:
        return None
    names = [series.background_names[place] for place in known]
    times, spans = wall_times(arrays, zone), time_spans(period, zone)
    return background_figure(times, names, series.background[:, known], spans=spans), names


def has_forecast(arrays: ClusterArrays) -> bool:
    """Whether there is a forecast for any bucket."""
    return not bool(np.isnan(arrays.low).all())


def wall_times(arrays: ClusterArrays, zone: str) -> npt.NDArray[np.datetime64]:
    """(buckets,) when each bucket begins, by the clock on the wall."""
    start_s = pl.Series(arrays.series.start_s)
    local = pl.from_epoch(start_s, "s").dt.replace_time_zone("UTC").dt.convert_time_zone(zone).dt.replace_time_zone(None)
    return local.to_numpy().astype("datetime64[s]")


def on_wall(moment: datetime, zone: str) -> datetime:
    """A moment as clocks of the site show it, without a zone."""
    return moment.astimezone(ZoneInfo(zone)).replace(tzinfo=None)


def time_spans(period: ClusterPeriod, zone: str) -> list[TimeSpan]:
    """Alarms, outages, maintenance and gaps of a time, cut to its buckets."""
    if period.start is None or period.end is None:
        return []
    spans = [(item.start, item.end, ALARM, item.findings[0] if item.findings else "") for item in period.alarms]
    spans += [(item.start, item.end or period.end, item.kind, item.title) for item in period.outages]
    spans += [(gap.start, gap.end, GAP, gap.why) for gap in period.gaps]
    return [
        TimeSpan(on_wall(max(start, period.start), zone), on_wall(min(end, period.end), zone), kind, text)
        for start, end, kind, text in spans
        if start < period.end and end > period.start
    ]
