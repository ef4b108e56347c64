"""Why an alarm: which kinds of events, by how much against what was expected, since when, and where.

EventSeries + Forecast + counts by place -> findings_at -> Findings, the most surprising first.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import numpy as np
import polars as pl

from stormpetrel.events.contract import Forecast
from stormpetrel.events.finding import Finding, FindingKind
from stormpetrel.events.why_words import amount_words, place_words, shown_name, since_words
from stormpetrel.records.event_series import EventSeries
from stormpetrel.records.events import COVERED, OTHER_VALUES, WHOLE

NOTABLE: Final = 3.0  # surprise of a kind that is named: one in a thousand
STILL: Final = 1.3  # the trouble goes on backwards while a bucket is at least one in twenty
MOST_KINDS: Final = 5
REFERENCE: Final = timedelta(days=7)  # what is usual somewhere is what happened there in the week before
_HOLES: Final = 1  # so many calm buckets or gaps do not end a trouble
_CONCENTRATED: Final = 0.6  # share of the change that one place must have to be named
_ABOVE_USUAL: Final = 0.25  # and by how much that exceeds its usual share
_SPECIFIC_FIRST: Final = ("node", "submit_host", "site", "group")  # all of PLACES: of two that say the same, the narrower
_SAME: Final = 0.05
_SILENT_BELOW: Final = 20.0  # no event at all is worth a word where so many were expected


@dataclass(frozen=True, slots=True)
class _Trouble:
    """One kind, from when to when, how many came and how many were expected."""

    kind: str
    first: int
    count: float
    expected: float
    surprise: float


def findings_at(series: EventSeries, forecast: Forecast, at: int, counts: pl.DataFrame) -> list[Finding]:
    """What is wrong at a bucket; `counts` are COUNT_SCHEMA rows that reach from REFERENCE before the trouble to the bucket."""
    silence = _silence(series, forecast, at)
    if silence is not None:
        return [silence]
    troubles = [_trouble(series, forecast, at, place) for place in _notable(forecast, at)]
    findings = [_explained(series, one, at, counts) for one in troubles]
    return findings + _new_kinds(series, at, counts)


def _notable(forecast: Forecast, at: int) -> list[int]:
    """The kinds that surprise at a bucket, the most surprising first; the largest one where none is notable by itself."""
    size = np.nan_to_num(np.abs(forecast.surprise[at]), nan=0.0)  # (kinds,)
    order = np.argsort(-size, kind="stable")[:MOST_KINDS]
    found = [int(place) for place in order if size[place] >= NOTABLE]
    return found or [int(place) for place in order[:1] if size[place] >= STILL]


def _trouble(series: EventSeries, forecast: Forecast, at: int, place: int) -> _Trouble:
    """How far back a kind has been off in the same direction, and what that comes to."""
    surprise = forecast.surprise[: at + 1, place]  # (buckets up to now,)
    sign = np.sign(surprise[at])
    first, holes = at, 0
    for bucket in range(at - 1, -1, -1):
        if sign * surprise[bucket] >= STILL:
            first, holes = bucket, 0
        else:
            holes += 1
            if holes > _HOLES:
                break
    kind = forecast.kinds[place]
    counted = series.counts[first : at + 1, series.kinds.index(kind)]
    expected = forecast.expected[first : at + 1, place]
    both = ~np.isnan(counted) & ~np.isnan(expected)
    return _Trouble(kind, first, float(counted[both].sum()), float(expected[both].sum()), float(surprise[at]))


def _explained(series: EventSeries, trouble: _Trouble, at: int, counts: pl.DataFrame) -> Finding:
    more = trouble.surprise > 0
    since = series.moment(trouble.first)
    place, value, share = concentration(counts, trouble.kind, series, first=trouble.first, last=at, expected=trouble.expected)
    where = place_words(place, value, share, missing=not more)
    words = f"{shown_name(trouble.kind)} {amount_words(trouble.count, trouble.expected)} "
    words += since_words(since, _now(series, at), series.zone)
    return Finding(
        FindingKind.MORE if more else FindingKind.FEWER,
        words + (f", {where}" if where else ""),
        event_kind=trouble.kind,
        count=trouble.count,
        expected=trouble.expected,
        since=since,
        place=place,
        value=value,
        share=share,
        surprise=trouble.surprise,
    )


def concentration(
    counts: pl.DataFrame, kind: str, series: EventSeries, *, first: int, last: int, expected: float
) -> tuple[str, str, float]:
    """The place that has most of a kind's change over some buckets: (place, value, share); empty where it is spread out.

    The change of a place is what came there less what usually comes there, as the week before shows it.
    """
    start, end = series.moment(first), series.moment(last)
    rows = counts.filter(pl.col("kind") == kind, pl.col("place") != WHOLE, pl.col("bucket_start") <= end)
    span = series.counts[first : last + 1]
    usual_from = max(0, first - round(REFERENCE.total_seconds() / series.bucket_s))
    buckets_now = int((~np.isnan(span).any(axis=1)).sum())
    buckets_before = int((~series.is_gap[usual_from:first]).sum())
    rows = rows.filter(pl.col("bucket_start") >= series.moment(usual_from))
    best = ("", "", 0.0)
    for place in _SPECIFIC_FIRST:
        found = _change_at(rows.filter(pl.col("place") == place), start, buckets_now, buckets_before, expected)
        if found is not None and found[1] > best[2] + _SAME:
            best = (place, *found)
    return best


def _change_at(
    rows: pl.DataFrame, start: datetime, buckets_now: int, buckets_before: int, expected: float
) -> tuple[str, float] | None:
    """The value with most of the change at one sort of place, and its share, if that is worth a word."""
    now = pl.col("bucket_start") >= start
    by_value = rows.group_by("value").agg(
        now=pl.col("count").filter(now).sum().cast(pl.Float64), before=pl.col("count").filter(~now).sum().cast(pl.Float64)
    )
    if by_value.height < 2 or not buckets_now:
        return None
    before = by_value["before"].to_numpy()
    share_before = before / before.sum() if before.sum() > 0 and buckets_before else np.zeros(before.size)
    change = by_value["now"].to_numpy() - share_before * expected  # (values,)
    total = change.sum()
    if total == 0:
        return None
    share = np.where(by_value["value"].to_numpy() == OTHER_VALUES, -np.inf, change / total)
    top = int(np.argmax(share))
    if share[top] < _CONCENTRATED or share[top] - share_before[top] < _ABOVE_USUAL:
        return None
    return str(by_value["value"][top]), float(min(1.0, share[top]))


def _silence(series: EventSeries, forecast: Forecast, at: int) -> Finding | None:
    """No event of any kind where many were expected."""
    expected = float(np.nansum(forecast.expected[at]))
    if np.isnan(series.counts[at]).any() or series.counts[at].sum() > 0 or expected < _SILENT_BELOW:
        return None
    first = at
    while first > 0 and series.counts[first - 1].sum() == 0:
        first -= 1
    since = series.moment(first)
    words = (
        f"No event of any kind {since_words(since, _now(series, at), series.zone)}, {expected:,.0f} expected in the last bucket: "
        "the grid stands still, or its events are not collected"
    )
    return Finding(
        FindingKind.SILENCE, words, expected=expected, since=since, surprise=-float(np.nanmax(np.abs(forecast.surprise[at])))
    )


def _new_kinds(series: EventSeries, at: int, counts: pl.DataFrame) -> list[Finding]:
    """Kinds that the models do not look at and that the time before has never seen."""
    moment = pl.lit(series.moment(at)).cast(pl.Datetime("us", "UTC"))
    whole = counts.filter(pl.col("place") == WHOLE, pl.col("kind") != COVERED, ~pl.col("kind").is_in(list(series.kinds)))
    by_kind = whole.group_by("kind", maintain_order=True).agg(
        now=pl.col("count").filter(pl.col("bucket_start") == moment).sum(),
        before=pl.col("count").filter(pl.col("bucket_start") < moment).sum(),
    )
    fresh = by_kind.filter(pl.col("now") > 0, pl.col("before") == 0).sort("now", descending=True)
    since = series.moment(at)
    return [
        Finding(
            FindingKind.NEW_KIND,
            f"{shown_name(kind)}, a kind never seen before, {count:,} times {since_words(since, _now(series, at), series.zone)}",
            event_kind=kind,
            count=float(count),
            since=since,
        )
        for kind, count in fresh.select("kind", "now").head(MOST_KINDS).iter_rows()
    ]


def _now(series: EventSeries, at: int) -> datetime:
    """The last second of a bucket: what ends at midnight is still of today."""
    return series.moment(at) + timedelta(seconds=series.bucket_s - 1)
