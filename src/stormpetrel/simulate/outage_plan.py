"""When outages happen: a plan of them, evenly over types and severities, and the series that comes of it.

hours -> plan_outages -> PlannedOutage … ; (series, plan) -> inject -> series with outages, labelled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

import numpy as np
import numpy.typing as npt

from stormpetrel.errors import UsageError
from stormpetrel.records.event_series import ANOMALY, HOUR_S, EventSeries
from stormpetrel.records.outages import Outage, OutageKind
from stormpetrel.simulate.grid_outages import AFTERMATH_HOURS, OUTAGES, SEVERITIES, OutageFunction

LONGEST_HOURS: Final = 24
GAP_HOURS: Final = 12  # at least so long from the end of one to the beginning of the next
SIMULATED: Final = "simulated"  # the source of an outage that was ordered
_LIVE_SHARE: Final = 0.01  # a kind seen in fewer of the hours is none that an outage may act through: it would give itself away
_STREAM: Final = 71  # plans draw from a stream of their own


@dataclass(frozen=True, slots=True)
class PlannedOutage:
    """An outage on order: its hours are places in the series."""

    first: int
    hours: int
    outage_type: str
    severity: str
    seed: int

    @property
    def last(self) -> int:
        """The first hour after it."""
        return self.first + self.hours


def plan_outages(
    hours: int,
    *,
    per_week: float,
    seed: int,
    types: Sequence[str] = tuple(OUTAGES),
    avoid: npt.NDArray[np.bool_] | None = None,
) -> list[PlannedOutage]:
    """Outages in the order of time, 1 to 24 h long; types, severities and lengths are spread evenly and then shuffled.

    An outage and its aftermath lie within the hours and touch none that `avoid` (hours,) marks.
    """
    if hours < 1 or per_week < 0 or seed < 0 or not types:
        raise UsageError("A plan of outages needs hours, a rate of zero or more, a seed of zero or more, and a type.")
    number = round(hours / 168 * per_week)
    rng = np.random.default_rng([seed, _STREAM])
    lengths = np.exp((rng.permutation(number) + rng.random(number)) / max(number, 1) * np.log(LONGEST_HOURS + 1)).astype(int)
    kinds = _evenly(number, tuple(types), rng)
    seeds = rng.integers(0, 2**31, number)
    firsts = _room_for(lengths, hours, avoid, rng)
    plan = [
        PlannedOutage(int(first), int(length), outage_type, severity, int(own))
        for first, length, (outage_type, severity), own in zip(firsts, lengths, kinds, seeds, strict=True)
    ]
    return sorted(plan, key=lambda one: one.first)


def inject(series: EventSeries, plan: Sequence[PlannedOutage], outages: Mapping[str, OutageFunction] = OUTAGES) -> EventSeries:
    """The series as it would be with these outages; their hours are labelled ANOMALY, the aftermath keeps its label.

    Gaps stay gaps, and a kind that the series hardly ever has stays as it is.
    """
    if series.bucket_s != HOUR_S:
        raise UsageError(f"Outages are made for counts per hour; these have buckets of {series.bucket_s} s.")
    counts, label = series.counts.copy(), series.label.copy()
    live = np.flatnonzero(live_kinds(series))
    kinds = tuple(series.kinds[place] for place in live)
    for one in plan:
        if one.outage_type not in outages:
            raise UsageError(f"Unknown outage '{one.outage_type}'. Known: {', '.join(outages)}.")
        if one.first < 0 or one.hours < 1 or one.last + AFTERMATH_HOURS > len(series):
            raise UsageError(f"The outage at hour {one.first} and its aftermath do not lie within the {len(series)} hours.")
        rows = np.arange(one.first, one.last + AFTERMATH_HOURS)
        before = counts[np.ix_(rows, live)]
        changed = outages[one.outage_type](np.nan_to_num(before), kinds, one.severity, one.seed)
        counts[np.ix_(rows, live)] = np.where(np.isnan(before), np.nan, changed)
        label[one.first : one.last] = ANOMALY
    return replace(series, counts=counts, label=label)


def live_kinds(series: EventSeries) -> npt.NDArray[np.bool_]:
    """(kinds,) the kinds that the series has in at least one hour of a hundred."""
    seen = series.counts[~series.is_gap]
    return np.asarray((seen > 0).mean(axis=0) >= _LIVE_SHARE if len(seen) else np.zeros(len(series.kinds)), dtype=np.bool_)


def outages_of(series: EventSeries, plan: Sequence[PlannedOutage]) -> list[Outage]:
    """The planned outages as spans of time, as a site would list them."""
    step = timedelta(seconds=series.bucket_s)
    return [
        Outage(
            start=series.moment(one.first),
            end=series.moment(one.last - 1) + step,
            kind=OutageKind.OUTAGE,
            title=f"{one.outage_type.replace('_', ' ')} ({one.severity})",
            source=SIMULATED,
            uid=f"outage-{one.first}",
            outage_type=one.outage_type,
            severity=one.severity,
        )
        for one in plan
    ]


def _evenly(number: int, types: tuple[str, ...], rng: np.random.Generator) -> list[tuple[str, str]]:
    """Every type with every severity equally often, as far as the number allows, in any order."""
    names, levels = rng.permutation(len(types)), rng.permutation(len(SEVERITIES))
    severities = tuple(SEVERITIES)
    pairs = [
        (types[names[turn % len(types)]], severities[levels[(turn % len(types) + turn // len(types)) % len(severities)]])
        for turn in range(number)
    ]
    return [pairs[place] for place in rng.permutation(number)]


def _room_for(
    lengths: npt.NDArray[np.int64], hours: int, avoid: npt.NDArray[np.bool_] | None, rng: np.random.Generator
) -> npt.NDArray[np.int64]:
    """(outages,) where each begins: drawn evenly from the hours at which there is room; the longest choose first."""
    forbidden = np.zeros(hours, dtype=bool) if avoid is None else np.asarray(avoid, dtype=bool)
    if forbidden.shape != (hours,):
        raise UsageError(f"'avoid' has {forbidden.size} hours, the plan {hours}.")
    taken = np.zeros(hours, dtype=bool)  # outages that have their place, and the gap after each
    firsts = np.zeros(len(lengths), dtype=np.int64)
    for place in np.argsort(-lengths, kind="stable"):
        length = int(lengths[place])
        free = _free_starts(forbidden, length + AFTERMATH_HOURS, hours, length) & _free_starts(
            taken, length + GAP_HOURS, hours, length
        )
        starts = np.flatnonzero(free)
        if not len(starts):
            raise UsageError(f"{len(lengths)} outages do not fit into {hours} hours.", hint="Ask for fewer a week.")
        firsts[place] = rng.choice(starts)
        taken[firsts[place] : firsts[place] + length + GAP_HOURS] = True
    return firsts


def _free_starts(blocked: npt.NDArray[np.bool_], span: int, hours: int, length: int) -> npt.NDArray[np.bool_]:
    """(hours,) whether from this hour on a span is free; an outage and its aftermath end within the hours."""
    blocks = np.concatenate([[0], np.cumsum(blocked)])
    starts = np.arange(hours)
    inside = starts + length + AFTERMATH_HOURS <= hours
    return np.asarray(inside & (blocks[np.minimum(starts + span, hours)] == blocks[starts]), dtype=np.bool_)
