"""Outages of a grid, as changes of its hourly counts: five kinds of trouble, each mild, moderate or severe.

calm counts (hours, kinds) -> an outage -> counts of the same shape: the first rows are the outage, the last AFTERMATH_HOURS what
it leaves behind. An outage acts through the kinds that it is given, and on nothing else. Numbers: docs/events-simulated.md.
hours -> plan_outages -> PlannedOutage …, evenly over types and severities; (series, plan) -> inject -> the series with outages,
labelled.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from importlib import import_module
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from stormpetrel.errors import UsageError
from stormpetrel.records.arrays import Floats
from stormpetrel.records.event_series import ANOMALY, HOUR_S, EventSeries
from stormpetrel.records.outages import Outage, OutageKind

OutageFunction = Callable[[Floats, tuple[str, ...], str, int], Floats]

AFTERMATH_HOURS: Final = 6  # the backlog that follows an outage
# The share of an hour's jobs that an outage touches, drawn evenly between the two.
SEVERITIES: Final[dict[str, tuple[float, float]]] = {"mild": (0.15, 0.30), "moderate": (0.40, 0.65), "severe": (0.80, 0.97)}
# How many times the usual number of disconnected jobs a storm has.
_STORM: Final = {"mild": (5.0, 10.0), "moderate": (10.0, 25.0), "severe": (25.0, 50.0)}
# Of the jobs on nodes that collapse, those whose loss is reported while it lasts; the others hang until the nodes are restarted.
_REPORTED: Final = {"mild": (0.02, 0.10), "moderate": (0.10, 0.30), "severe": (0.30, 0.70)}
_BACKLOG: Final = np.array([0.38, 0.24, 0.16, 0.11, 0.07, 0.04])  # how what was held up comes back after the end, hour by hour
_PLUG_IN: Final = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)


def node_collapse(counts: Floats, kinds: tuple[str, ...], severity: str, seed: int) -> Floats:
    """Nodes collapse with what runs on them: fewer ends and starts, lost jobs, and a rush when they come back."""
    window = _Window(counts, kinds, severity, seed)
    rng, lost = window.rng, window.running_jobs() * window.share
    reported = lost * rng.uniform(*_REPORTED[severity])
    at_first = window.fading(rng.uniform(0.7, 2.0))  # leases run out one after the other
    later = np.concatenate([[0.0], at_first[:-1]]) * 0.6 + at_first * 0.4  # a lease is 40 minutes
    lines, exceptions = rng.uniform(0.3, 0.6), rng.uniform(0.15, 0.35)
    window.thin("JobTerminated", window.touched)
    window.thin("JobImageSize", window.touched)
    idle = window.thin("Execute", window.touched)
    window.add("JobDisconnected", reported * lines * at_first)
    window.add("JobReconnectFailed", reported * lines * later)
    window.add("ShadowException", reported * exceptions * at_first)
    window.add("JobEvicted", reported * (1 - lines - exceptions) * later)
    window.add("NodeFailed", reported * 0.6 * at_first)
    window.add("JobFailed", reported * 0.4 * at_first)
    hanging = (lost - reported) * rng.uniform(0.05, 0.3)  # jobs thrown out by the restart of their node
    window.add("JobEvicted", hanging * rng.uniform(0.1, 0.5) * window.after(1))
    window.add("Execute", idle.sum() * rng.uniform(0.3, 0.8) * window.after(0) + hanging * window.after(1))
    return window.counts()


def submit_unresponsive(counts: Floats, kinds: tuple[str, ...], severity: str, seed: int) -> Floats:
    """A submit service stops to answer: nothing comes in, the queue runs dry, and afterwards everybody submits at once."""
    window = _Window(counts, kinds, severity, seed)
    rng = window.rng
    queue_h, run_h = rng.uniform(1.0, 6.0), rng.uniform(1.0, 4.0)
    held_back = window.thin("Submit", window.touched)
    for by_users in ("JobAborted", "JobRelease"):
        window.thin(by_users, window.touched * 0.9)
    window.thin("JobHeld", window.touched * 0.4)  # most are held by the system
    since = np.arange(len(window.touched))
    dry = window.touched * (1 - np.exp(-since / queue_h))
    window.thin("Execute", dry)
    fewer_ends = window.touched * (1 - np.exp(-since / (queue_h + run_h)))
    for kind in ("JobTerminated", "JobFailed", "JobFailedFast"):
        window.thin(kind, fewer_ends)
    window.thin("JobImageSize", fewer_ends * 0.7)
    back = held_back.sum() * rng.uniform(0.4, 0.9)
    window.add("Submit", back * window.after(0))
    window.add("Execute", back * rng.uniform(0.4, 0.8) * window.after(0))
    return window.counts()


def disconnect_storm(counts: Floats, kinds: tuple[str, ...], severity: str, seed: int) -> Floats:
    """Jobs lose the line to their submit host and find it again, over and over; some do not."""
    window = _Window(counts, kinds, severity, seed)
    rng, strength = window.rng, window.touched / window.share
    times, reconnected = rng.uniform(*_STORM[severity]), rng.uniform(0.5, 0.92)
    if window.has("JobDisconnected"):
        cut = max(window.level("JobDisconnected"), 1.0) * (times - 1) * strength
        later = 0.7 * cut + 0.3 * np.concatenate([[0.0], cut[:-1]])
        window.add("JobDisconnected", cut)
        window.add("JobReconnected", later * reconnected)
        window.add("JobReconnectFailed", later * (1 - reconnected))
        window.add("ShadowException", window.level("ShadowException") * (times - 1) * rng.uniform(0.05, 0.25) * strength)
        window.add("Execute", later * (1 - reconnected))  # they start again
    else:  # a job log does not tell of lines: what it sees are jobs that did not survive, and nodes that are given none
        died = window.level("JobTerminated") * window.touched * rng.uniform(0.08, 0.3)
        window.add("JobFailed", died)
        window.add("NodeFailed", died * rng.uniform(0.0, 0.1))
        window.thin("Execute", window.touched * rng.uniform(0.1, 0.4))
    window.thin("JobTerminated", window.touched * rng.uniform(0.05, 0.3))  # work waits for the line
    return window.counts()


def black_hole(counts: Floats, kinds: tuple[str, ...], severity: str, seed: int) -> Floats:
    """A node fails whatever it gets within seconds and is free again at once: it swallows the queue."""
    window = _Window(counts, kinds, severity, seed)
    rng, swallowed = window.rng, np.minimum(window.touched, 0.88)
    queue = np.exp(-np.arange(len(swallowed)) / rng.uniform(6.0, 30.0))  # what waits becomes less
    # Of (usual + extra) starts the node gets `swallowed`.
    extra = window.level("Execute", "JobTerminated") * swallowed / (1 - swallowed) * queue
    for kind in ("Execute", "JobTerminated"):
        window.add(kind, extra, same=True)
    for kind in ("JobFailed", "JobFailedFast"):
        window.add(kind, extra * rng.uniform(0.85, 1.0), same=True)
    given_up = extra * rng.uniform(0.01, 0.05)  # held after too many tries
    window.add("JobHeld", np.concatenate([[0.0], given_up[:-1]]))
    window.add("JobHeld", given_up.sum() * 0.3 * window.after(0))
    window.add("JobRelease", given_up.sum() * rng.uniform(0.2, 0.8) * window.after(1))
    return window.counts()


def slow_storage(counts: Floats, kinds: tuple[str, ...], severity: str, seed: int) -> Floats:
    """Storage answers slower and slower: jobs do not end, slots do not free, and time limits begin to strike."""
    window = _Window(counts, kinds, severity, seed)
    rng, since = window.rng, np.arange(len(window.touched))
    onset = 1 - np.exp(-(since + 0.5) / rng.uniform(0.7, 3.0))
    slow = window.touched * onset
    stuck = window.thin("JobTerminated", slow)
    window.thin("Execute", np.concatenate([[0.0], slow[:-1]]) * rng.uniform(0.7, 0.95))
    overdue = window.level("JobTerminated") * slow * (1 - np.exp(-since / 2.0)) * rng.uniform(0.02, 0.08)
    window.add("JobHeld", overdue * rng.uniform(0.4, 0.8))
    window.add("JobAborted", overdue * rng.uniform(0.2, 0.6))
    window.add("JobTimedOut", overdue)
    window.add("JobFailed", overdue * rng.uniform(0.2, 0.6))
    freed = stuck.sum() * rng.uniform(0.4, 0.9)
    window.add("JobTerminated", freed * window.after(0))
    window.add("Execute", freed * rng.uniform(0.5, 0.9) * window.after(0))
    return window.counts()


OUTAGES: Final[dict[str, OutageFunction]] = {
    "node_collapse": node_collapse,
    "submit_unresponsive": submit_unresponsive,
    "disconnect_storm": disconnect_storm,
    "black_hole": black_hole,
    "slow_storage": slow_storage,
}


def load_outage(name: str) -> OutageFunction:
    """An outage of others, named as MODULE:FUNCTION; whatever it returns is checked each time."""
    if not _PLUG_IN.fullmatch(name):
        raise UsageError(f"'{name[:80]}' names no outage.", hint="Write MODULE:FUNCTION, such as my_outages:cooling_failure.")
    module_name, function_name = name.split(":")
    try:
        function = getattr(import_module(module_name), function_name)
    except Exception as error:  # whatever a foreign module does while it is read
        reason = f"{type(error).__name__}: {error}"
        raise UsageError(f"The outage {name} cannot be loaded ({reason}).", hint="Is its folder in PYTHONPATH?") from error
    if not callable(function):
        raise UsageError(f"The outage {name} is no function.")
    return _checked(name, function)


def _checked(name: str, function: Callable[..., Any]) -> OutageFunction:
    def outage(counts: Floats, kinds: tuple[str, ...], severity: str, seed: int) -> Floats:
        try:
            changed = np.asarray(function(counts.copy(), kinds, severity, seed), dtype=np.float64)
        except Exception as error:  # whatever a foreign function does
            raise UsageError(f"The outage {name} failed ({type(error).__name__}: {error}).") from error
        if changed.shape != counts.shape:
            raise UsageError(f"The outage {name} returned counts of shape {changed.shape}, not {counts.shape}.")
        if not np.isfinite(changed).all() or (changed < 0).any() or (changed != np.rint(changed)).any():
            raise UsageError(f"The outage {name} returned counts that are not whole numbers of zero or more.")
        return changed

    return outage


class _Window:
    """The counts while an outage lasts and after it, and how strongly each hour is touched."""

    def __init__(self, counts: Floats, kinds: tuple[str, ...], severity: str, seed: int) -> None:
        if severity not in SEVERITIES:
            raise UsageError(f"Unknown severity '{severity}'. Known: {', '.join(SEVERITIES)}.")
        if counts.ndim != 2 or counts.shape[1] != len(kinds) or len(counts) <= AFTERMATH_HOURS:
            raise UsageError(f"An outage needs counts of at least {AFTERMATH_HOURS + 1} hours, with one column per kind.")
        self.rng = np.random.default_rng([seed, list(SEVERITIES).index(severity)])
        self.hours = len(counts) - AFTERMATH_HOURS
        self.share = float(self.rng.uniform(*SEVERITIES[severity]))
        self._calm = np.rint(counts).astype(np.int64)  # (rows, kinds)
        self._counts = self._calm.copy()
        self._kinds = kinds
        # (rows,): no hour is touched like the next, and neither the beginning nor the end is at the full hour.
        uneven = np.exp(self.rng.normal(0, 0.15, self.hours))
        uneven[0] *= self.rng.uniform(0.3, 1.0)
        if self.hours > 1:
            uneven[-1] *= self.rng.uniform(0.3, 1.0)
        self.touched = np.concatenate([np.minimum(self.share * uneven, 0.98), np.zeros(AFTERMATH_HOURS)])

    def has(self, kind: str) -> bool:
        """Whether the counts have a column of this kind."""
        return kind in self._kinds

    def level(self, *kinds: str) -> float:
        """How many an hour there usually are of the first of these kinds that the counts have."""
        known = [kind for kind in kinds if kind in self._kinds]
        return float(self._calm[:, self._kinds.index(known[0])].mean()) if known else 0.0

    def running_jobs(self) -> float:
        """About how many jobs run: what ends in an hour, times how long a job runs (which counts do not tell: a guess)."""
        return self.level("JobTerminated", "Execute") * float(self.rng.uniform(1.5, 4.0))

    def fading(self, hours: float) -> Floats:
        """(rows,) weights that sum to one and fade from the beginning of the outage on, not much beyond its end."""
        weights = np.exp(-np.arange(len(self.touched)) / hours)
        weights[self.hours + 2 :] = 0
        faded: Floats = weights / weights.sum()
        return faded

    def after(self, delay_hours: int) -> Floats:
        """(rows,) weights that sum to one, from so many hours after the end on."""
        weights = np.zeros(len(self.touched))
        rest = AFTERMATH_HOURS - delay_hours
        weights[self.hours + delay_hours :] = _BACKLOG[:rest] / _BACKLOG[:rest].sum()
        return weights

    def thin(self, kind: str, gone: Floats) -> npt.NDArray[np.int64]:
        """Take each event away with the chance of its hour; returns how many went."""
        if kind not in self._kinds:
            return np.zeros(len(gone), dtype=np.int64)
        column = self._kinds.index(kind)
        kept = self.rng.binomial(self._counts[:, column], np.clip(1 - gone, 0, 1))
        went: npt.NDArray[np.int64] = self._counts[:, column] - kept
        self._counts[:, column] = kept
        return went

    def add(self, kind: str, more: Floats, *, same: bool = False) -> None:
        """Add about so many events an hour; counts of trouble scatter more than chance, unless they are the `same` jobs."""
        if kind in self._kinds:
            scatter = 1.0 if same else self.rng.gamma(6.0, 1 / 6.0, len(more))
            self._counts[:, self._kinds.index(kind)] += self.rng.poisson(np.maximum(more, 0) * scatter)

    def counts(self) -> Floats:
        """(rows, kinds) the counts as they have become."""
        return self._counts.astype(np.float64)


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
    return sorted(plan, key=lambda outage: outage.first)


def inject(series: EventSeries, plan: Sequence[PlannedOutage], outages: Mapping[str, OutageFunction] = OUTAGES) -> EventSeries:
    """The series as it would be with these outages; their hours are labelled ANOMALY, the aftermath keeps its label.

    Gaps stay gaps, and a kind that the series hardly ever has stays as it is.
    """
    if series.bucket_s != HOUR_S:
        raise UsageError(f"Outages are made for counts per hour; these have buckets of {series.bucket_s} s.")
    counts, label = series.counts.copy(), series.label.copy()
    live = np.flatnonzero(live_kinds(series))
    kinds = tuple(series.kinds[place] for place in live)
    for outage in plan:
        if outage.outage_type not in outages:
            raise UsageError(f"Unknown outage '{outage.outage_type}'. Known: {', '.join(outages)}.")
        if outage.first < 0 or outage.hours < 1 or outage.last + AFTERMATH_HOURS > len(series):
            raise UsageError(f"The outage at hour {outage.first} and its aftermath do not lie within the {len(series)} hours.")
        rows = np.arange(outage.first, outage.last + AFTERMATH_HOURS)
        before = counts[np.ix_(rows, live)]
        changed = outages[outage.outage_type](np.nan_to_num(before), kinds, outage.severity, outage.seed)
        counts[np.ix_(rows, live)] = np.where(np.isnan(before), np.nan, changed)
        label[outage.first : outage.last] = ANOMALY
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
            start=series.moment(planned.first),
            end=series.moment(planned.last - 1) + step,
            kind=OutageKind.OUTAGE,
            title=f"{planned.outage_type.replace('_', ' ')} ({planned.severity})",
            source=SIMULATED,
            uid=f"outage-{planned.first}",
            outage_type=planned.outage_type,
            severity=planned.severity,
        )
        for planned in plan
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
