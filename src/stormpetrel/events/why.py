"""Why an alarm: which kinds of events, by how much against what was expected, since when, and where.

EventSeries + Forecast + counts by place -> findings_at -> Findings, the most surprising first.
Placed holds counts by kind and place for many small sums: an alarm needs a dozen of them, and the first scoring of a year has
hundreds of alarms.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from stormpetrel.events.contract import Forecast
from stormpetrel.events.finding import Finding, FindingKind, amount_text, place_text, shown_name, since_text
from stormpetrel.events.nodes_and_hosts import silence
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


def findings_at(series: EventSeries, forecast: Forecast, at: int, placed: Placed) -> list[Finding]:
    """What is wrong at a bucket; `placed` reaches from REFERENCE before the trouble to the bucket, or further."""
    silence = _silence(series, forecast, at)
    if silence is not None:
        return [silence]
    troubles = [_trouble(series, forecast, at, place) for place in _notable(forecast, at)]
    findings = [_explained(series, trouble, at, placed) for trouble in troubles]
    return findings + _new_kinds(series, at, placed)


def _notable(forecast: Forecast, at: int) -> list[int]:
    """The kinds that surprise at a bucket, the most surprising first; the largest one where none is notable by itself."""
    size = np.nan_to_num(np.abs(forecast.surprise[at]), nan=0.0)  # (kinds,)
    order = np.argsort(-size, kind="stable")[:MOST_KINDS]
    places = [int(place) for place in order if size[place] >= NOTABLE]
    return places or [int(place) for place in order[:1] if size[place] >= STILL]


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


def _explained(series: EventSeries, trouble: _Trouble, at: int, placed: Placed) -> Finding:
    more = trouble.surprise > 0
    since = series.moment(trouble.first)
    place, value, share = concentration(placed, trouble.kind, series, first=trouble.first, last=at, expected=trouble.expected)
    where = place_text(place, value, share, missing=not more)
    message = f"{shown_name(trouble.kind)} {amount_text(trouble.count, trouble.expected)} "
    message += since_text(since, _now(series, at), series.zone)
    return Finding(
        FindingKind.MORE if more else FindingKind.FEWER,
        message + (f", {where}" if where else ""),
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
    placed: Placed, kind: str, series: EventSeries, *, first: int, last: int, expected: float
) -> tuple[str, str, float]:
    """The place that has most of a kind's change over some buckets: (place, value, share); empty where it is spread out.

    The change of a place is what came there less what usually comes there, as the week before shows it.
    """
    begin_s = int(series.start_s[first])
    end_s = int(series.start_s[last]) + series.bucket_s
    usual_s = begin_s - round(REFERENCE.total_seconds())
    best = ("", "", 0.0)
    for place in _SPECIFIC_FIRST:
        values, now = placed.sums(kind, place, begin_s, end_s)
        _, before = placed.sums(kind, place, usual_s, begin_s)
        changes = _change_at(values, now, before, expected)
        if changes is not None and changes[1] > best[2] + _SAME:
            best = (place, *changes)
    return best


def _change_at(
    values: tuple[str, ...], now: npt.NDArray[np.float64], before: npt.NDArray[np.float64], expected: float
) -> tuple[str, float] | None:
    """The value with most of the change at one sort of place, and its share, if that is worth a word."""
    if int(((now > 0) | (before > 0)).sum()) < 2:
        return None
    share_before = before / before.sum() if before.sum() > 0 else np.zeros(before.size)
    change = now - share_before * expected  # (values,)
    total = change.sum()
    if total == 0:
        return None
    share = change / total
    share[[value == OTHER_VALUES for value in values]] = -np.inf
    top = int(np.argmax(share))
    if share[top] < _CONCENTRATED or share[top] - share_before[top] < _ABOVE_USUAL:
        return None
    return values[top], float(min(1.0, share[top]))


def _silence(series: EventSeries, forecast: Forecast, at: int) -> Finding | None:
    """No event of any kind where many were expected."""
    if np.isnan(series.counts[at]).any() or series.counts[at].sum() > 0:
        return None
    first = at
    while first > 0 and series.counts[first - 1].sum() == 0:
        first -= 1
    expected = float(np.nansum(forecast.expected[first : at + 1]))
    return None if expected < _SILENT_BELOW else silence(series, at, first, expected)


def _new_kinds(series: EventSeries, at: int, placed: Placed) -> list[Finding]:
    """Kinds that the models do not look at and that the time before has never seen."""
    since, begin_s = series.moment(at), int(series.start_s[at])
    fresh: dict[str, float] = {}
    for kind in placed.kinds():
        if kind not in series.kinds and not placed.sums(kind, WHOLE, 0, begin_s)[1].sum():
            fresh[kind] = float(placed.sums(kind, WHOLE, begin_s, begin_s + series.bucket_s)[1].sum())
    when = since_text(since, _now(series, at), series.zone)
    new_kinds = sorted(((count, kind) for kind, count in fresh.items() if count > 0), reverse=True)
    return [
        Finding(
            FindingKind.NEW_KIND,
            f"{shown_name(kind)}, a kind never seen before, {count:,.0f} times {when}",
            event_kind=kind,
            count=count,
            since=since,
        )
        for count, kind in new_kinds[:MOST_KINDS]
    ]


def _now(series: EventSeries, at: int) -> datetime:
    """The last second of a bucket: what ends at midnight is still of today."""
    return series.moment(at) + timedelta(seconds=series.bucket_s - 1)


@dataclass(frozen=True, slots=True, eq=False)
class _Column:
    """The rows of one kind at one sort of place, in the order of time."""

    start_s: npt.NDArray[np.int64]  # (rows,)
    value: npt.NDArray[np.int64]  # (rows,) which of `values`
    count: npt.NDArray[np.float64]  # (rows,)
    values: tuple[str, ...]

    def sums(self, since_s: int, until_s: int) -> npt.NDArray[np.float64]:
        """(values,) how many there were from one moment to before another."""
        first, last = np.searchsorted(self.start_s, (since_s, until_s))
        sums = np.bincount(self.value[first:last], weights=self.count[first:last], minlength=len(self.values))
        return sums.astype(np.float64)


class Placed:
    """The counts of some time, by kind and place."""

    def __init__(self, counts: pl.DataFrame) -> None:
        rows = counts.filter(pl.col("kind") != COVERED).sort("bucket_start")
        self._columns = {
            (str(kind), str(place)): _column(part)
            for (kind, place), part in rows.partition_by("kind", "place", as_dict=True).items()
        }

    def sums(self, kind: str, place: str, since_s: int, until_s: int) -> tuple[tuple[str, ...], npt.NDArray[np.float64]]:
        """The values at a sort of place, and (values,) how many events of a kind each had from one moment to before another."""
        column = self._columns.get((kind, place))
        return ((), np.empty(0)) if column is None else (column.values, column.sums(since_s, until_s))

    def kinds(self) -> list[str]:
        """The kinds that were counted over all places."""
        return sorted(kind for kind, place in self._columns if place == WHOLE)


def _column(part: pl.DataFrame) -> _Column:
    values = part["value"].unique().sort()
    numbers = part["value"].replace_strict(values, pl.Series(range(len(values))), return_dtype=pl.Int64)
    return _Column(
        part["bucket_start"].dt.epoch("s").to_numpy(),
        numbers.to_numpy(),
        part["count"].cast(pl.Float64).to_numpy(),
        tuple(values.to_list()),
    )
