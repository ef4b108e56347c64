"""Counts, background and labels of a site as the models see them.

Site -> series_of -> EventSeries: from the first bucket that was seen whole to the last, gaps as NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from stormpetrel.config import Settings
from stormpetrel.records.event_series import ANOMALY, MAINTENANCE, NORMAL, UNLABELLED, Counts, EventSeries, Labels
from stormpetrel.records.events import COVERED, JOB_RECORD_KINDS, SEED_KINDS
from stormpetrel.records.outages import Outage, OutageKind
from stormpetrel.store.events.gaps import coverage_of, place_of
from stormpetrel.store.site import Site

# In this order each is painted over the one before: where an outage and a maintenance meet, it is an outage.
_PAINTED: Final = ((OutageKind.NORMAL, NORMAL), (OutageKind.MAINTENANCE, MAINTENANCE), (OutageKind.OUTAGE, ANOMALY))


def series_of(
    site: Site,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    kinds: Sequence[str] | None = None,
    outages: Sequence[Outage] | None = None,
) -> EventSeries:
    """The site's events as one series of the buckets that `events.bucket_minutes` asks for; empty where nothing was seen.

    `since` and `until` cut it; `kinds` chooses the columns (by default as `chosen_kinds` says); `outages` are the labels, by
    default those of the site. Whether a bucket was seen whole
    is asked of all sources and all time, so that a part of a series is the same as that part of the whole.
    """
    bucket_s = site.settings.events.bucket_minutes * 60
    rows = site.event_counts.read(bucket_s=bucket_s).select("source", "bucket_start", "kind", "count").collect()
    labels = site.outages.list() if outages is None else outages
    return series_from(site, rows, labels, now=site.now(), since=since, until=until, kinds=kinds)


def series_from(
    site: Site,
    rows: pl.DataFrame,
    outages: Sequence[Outage],
    *,
    now: datetime,
    since: datetime | None = None,
    until: datetime | None = None,
    kinds: Sequence[str] | None = None,
) -> EventSeries:
    """The same of these counts (source, bucket_start, kind, count of the whole, marks included) and outages, as seen at `now`."""
    bucket_s = site.settings.events.bucket_minutes * 60
    is_mark = rows["kind"] == COVERED
    coverage = coverage_of(rows.filter(is_mark).select("source", "bucket_start"), bucket_s)
    over = now - timedelta(seconds=bucket_s - 1)  # a clock that was ahead once has marked what is not over yet
    inside = _inside(coverage.start_s, since, over if until is None else min(until, over))
    start_s, whole = coverage.start_s[inside], coverage.whole[inside]
    counted = rows.filter(~is_mark)
    columns = tuple(str(kind) for kind in (chosen_kinds(site.settings, counted["kind"].unique()) if kinds is None else kinds))
    counts = _as_matrix(counted.rename({"kind": "name", "count": "value"}), start_s, bucket_s, columns, missing=0.0)
    counts[~whole] = np.nan
    names, background = _background(site, start_s, bucket_s)
    return EventSeries(
        start_s=start_s,
        bucket_s=bucket_s,
        kinds=columns,
        counts=counts,
        label=labels_of(outages, start_s, bucket_s, now=now),
        background=background,
        background_names=names,
        zone=site.settings.site.time_zone,
    )


def chosen_kinds(settings: Settings, kinds: Sequence[str] | pl.Series) -> tuple[str, ...]:
    """The kinds that the models see: `events.kinds`; else HTCondor's 13, those of job records, or whatever was found."""
    if settings.events.kinds:
        return tuple(settings.events.kinds)
    there = set(kinds)
    if not there or there & (set(SEED_KINDS) - set(JOB_RECORD_KINDS)):
        return tuple(str(kind) for kind in SEED_KINDS)
    if there & set(JOB_RECORD_KINDS):
        return tuple(str(kind) for kind in JOB_RECORD_KINDS)
    return tuple(sorted(there))


def labels_of(outages: Sequence[Outage], start_s: npt.NDArray[np.int64], bucket_s: int, *, now: datetime) -> Labels:
    """(buckets,) what people and calendars say of each bucket that an outage, maintenance or all-clear touches.

    The others are NORMAL where somebody labels, and UNLABELLED where nobody does: a calendar of maintenance alone says nothing of
    the rest.
    """
    labelled = any(outage.kind is not OutageKind.MAINTENANCE for outage in outages)
    label = np.full(start_s.size, NORMAL if labelled else UNLABELLED, dtype=np.int8)
    for kind, number in _PAINTED:
        for outage in outages:
            if outage.kind is kind:
                begin, end = outage.start.timestamp(), (outage.end or max(now, outage.start)).timestamp()
                # What has no length still touches the bucket it lies in.
                label[(start_s + bucket_s > begin) & ((start_s < end) | (start_s <= begin))] = number
    return label


def background_names(settings: Settings) -> tuple[str, ...]:
    """The names of the background that site.toml asks for, in its order."""
    targets = (*settings.graphite.targets, *settings.prometheus.background)
    return tuple(dict.fromkeys(name.partition("=")[0].strip() for name in targets))


def _background(site: Site, start_s: npt.NDArray[np.int64], bucket_s: int) -> tuple[tuple[str, ...], Counts]:
    """Names and (buckets, names) values; names that are in the table but no longer in site.toml are left out."""
    names = background_names(site.settings)
    if not start_s.size or not names:
        return names, np.empty((start_s.size, len(names)))
    first = datetime.fromtimestamp(int(start_s[0]), UTC)
    last = datetime.fromtimestamp(int(start_s[-1]), UTC) + timedelta(seconds=bucket_s)
    rows = site.event_background.read(since=first, until=last, bucket_s=bucket_s).select(
        "source", "bucket_start", "name", "value"
    )
    return names, _as_matrix(rows.collect(), start_s, bucket_s, names, missing=np.nan)


def _as_matrix(
    rows: pl.DataFrame, start_s: npt.NDArray[np.int64], bucket_s: int, names: tuple[str, ...], *, missing: float
) -> Counts:
    """Rows of bucket_start, name and value as (buckets, names); several sources of the same name are added up."""
    matrix = np.full((start_s.size, len(names)), missing)
    if not matrix.size or not rows.height:
        return matrix
    # Days may begin at another zone's midnight: what lies in the same bucket is added up, wherever its edge is.
    first_s = int(start_s[0])
    begin_s = rows["bucket_start"].dt.epoch("s").to_numpy()
    rows = rows.with_columns(bucket=pl.Series(place_of(begin_s, bucket_s, first_s % bucket_s) - first_s // bucket_s))
    if np.unique(begin_s % bucket_s).size > 1:  # a source that cuts its days elsewhere than before is counted once
        rows = rows.filter(pl.col("bucket_start") == pl.col("bucket_start").max().over("source", "bucket"))
    sums = rows.filter(pl.col("name").is_in(names)).group_by("bucket", "name").agg(pl.col("value").sum())
    row = sums["bucket"].to_numpy()
    column = sums["name"].replace_strict(list(names), list(range(len(names))), return_dtype=pl.Int64).to_numpy()
    inside = (row >= 0) & (row < start_s.size)
    matrix[row[inside], column[inside]] = sums["value"].to_numpy()[inside]
    return matrix


def _inside(start_s: npt.NDArray[np.int64], since: datetime | None, until: datetime | None) -> npt.NDArray[np.bool_]:
    inside = np.ones(start_s.size, np.bool_)
    if since is not None:
        inside &= start_s >= since.timestamp()
    if until is not None:
        inside &= start_s < until.timestamp()
    return inside
