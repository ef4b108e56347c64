"""A grid that is not there: its events per hour, with outages on order, maintenance, and everything that only looks like trouble.

GridSpec -> simulate_grid -> SimulatedGrid: counts with labels and background, the outages, and where the events happened. Jobs
are handed in, wait, start while there are slots, and end, so that the kinds hang together as they do on a real grid.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final, NamedTuple

import numpy as np

from stormpetrel.records.arrays import Floats, Ints
from stormpetrel.records.event_series import HOUR_S, MAINTENANCE, EventSeries
from stormpetrel.records.outages import Outage, OutageKind
from stormpetrel.simulate.grid.outages import SIMULATED, PlannedOutage, inject, outages_of, plan_outages
from stormpetrel.simulate.grid.places import PlacedCounts, split_over_places
from stormpetrel.simulate.grid.rhythm import (
    RUN_HOURS,
    Groups,
    Maintenance,
    Mistakes,
    clock,
    groups_of,
    maintenances,
    mistakes,
    submissions,
)  # fmt: skip
from stormpetrel.simulate.grid.spec import ALL_KINDS, GridSpec, wander

__all__ = ["GridSpec", "SimulatedGrid", "simulate_grid"]

BACKGROUND: Final = ("queued", "running", "utilisation")
_ENDS_IN_AN_HOUR: Final = 1 - np.exp(-1 / RUN_HOURS)  # (run classes,)
# Started at any time within the hour and over before its end.
_ENDS_AT_ONCE: Final = 1 - RUN_HOURS * _ENDS_IN_AN_HOUR  # (run classes,)
_OPPORTUNISTIC: Final = 0.25  # share of the slots that their owners may take back
_PATIENCE_H: Final = 12.0  # people hold back when the queue is longer than so many hours of work
_FORGETS: Final = 0.85  # an hour after an outage so much of what it did to queue and slots is left
_WARM_UP_HOURS: Final = 48  # the grid is full when we begin to look


@dataclass(frozen=True, slots=True, eq=False)
class SimulatedGrid:
    """What happened on the grid, hour by hour."""

    spec: GridSpec
    series: EventSeries  # labelled, with background
    calm: EventSeries  # the same grid as it would have been without outages
    plan: list[PlannedOutage]
    outages: list[Outage]  # and maintenances, in the order of time
    by_group: Ints  # (hours, kinds, groups) calm

    def places(self, first: int, last: int) -> dict[str, PlacedCounts]:
        """Where the events of the hours from `first` to before `last` happened: place -> (values, (hours, kinds, values)).

        The counts of a place sum to the counts of the series, except that nobody knows a node for a job that waits: Submit and
        JobRelease have no site and no node.
        """
        return split_over_places(self.spec, self.series.counts, self.by_group, self.plan, first, last)


class _Weather(NamedTuple):
    """What happens to running jobs, per running job and hour, (hours, 1) each."""

    evicted: Floats
    exception: Floats
    cut_off: Floats
    not_found: Floats  # share of the cut-off ones that do not come back
    held: Floats
    aborted: Floats
    capacity: Floats
    most_starts: Floats


class _Walk(NamedTuple):
    """The queue and the slots, walked through hour by hour; (hours, groups) unless stated otherwise."""

    submitted: Ints
    started: Ints
    ended: Ints
    short: Ints  # those of the ended that were short jobs
    lost: Ints
    removed: Ints
    released: Ints
    waiting: Ints
    running: Ints


def simulate_grid(spec: GridSpec) -> SimulatedGrid:
    """A grid with its outages, from a seed."""
    longer = replace(spec, hours=spec.hours + _WARM_UP_HOURS, start=spec.start - timedelta(hours=_WARM_UP_HOURS))
    groups, windows = groups_of(longer), _later(maintenances(spec))
    wrong = mistakes(longer, windows)
    weather = _weather(longer, windows)
    walk = _walk(longer, groups, weather, submissions(longer, groups, windows), wrong)
    columns = _events(longer, groups, weather, walk, wrong)
    by_group = np.stack([columns[kind] for kind in spec.kinds], axis=1)[_WARM_UP_HOURS:]  # (hours, kinds, groups)
    calm = _calm_series(spec, by_group, walk, windows)
    plan = plan_outages(
        spec.hours, per_week=spec.outages_per_week, seed=spec.seed, types=spec.outage_types, avoid=_announced(calm)
    )
    series = _with_background(spec, calm, inject(calm, plan))
    outages = [*outages_of(series, plan), *_as_outages(series, maintenances(spec))]
    return SimulatedGrid(spec, series, calm, plan, sorted(outages, key=lambda outage: outage.start), by_group)


def _later(windows: list[Maintenance]) -> list[Maintenance]:
    shift = _WARM_UP_HOURS
    return [Maintenance(window.first + shift, window.down + shift, window.up + shift, window.last + shift) for window in windows]


def _weather(spec: GridSpec, windows: list[Maintenance]) -> _Weather:
    """How the grid treats running jobs: small chances that wander, with blips that are nobody's outage."""
    rng, shape = spec.stream("weather"), (spec.hours, 1)
    evicted = 0.03 * _OPPORTUNISTIC * np.exp(0.4 * wander(rng, shape, 10.0)) * _blips(spec, rng, 2.0, 3, (2.5, 6.0))
    line = _blips(spec, rng, 3.0, 2, (2.0, 5.0))
    cut_off = 0.002 * np.exp(0.5 * wander(rng, shape, 4.0)) * rng.gamma(6, 1 / 6, shape) * line
    exception = 0.0015 * np.exp(0.35 * wander(rng, shape, 8.0)) * rng.gamma(8, 1 / 8, shape) * np.sqrt(line)
    owners = 1 / (1 + np.exp(-1.5 - wander(rng, shape, 30.0)))  # share of the opportunistic slots that we have
    capacity = spec.slots * (1 - _OPPORTUNISTIC * (1 - owners))
    most_starts = np.full(shape, 0.8 * spec.slots)
    for window in windows:
        most_starts[window.first : window.up] = 0
        most_starts[window.up : window.last] *= np.linspace(0.2, 0.7, window.last - window.up)[:, None]
        capacity[window.down : window.up] = 0
        evicted[window.down : window.up] = 1.0  # what still runs is thrown out
        cut_off[window.down : window.up] = exception[window.down : window.up] = 0.0
    return _Weather(
        evicted,
        exception,
        cut_off,
        not_found=np.clip(rng.beta(3, 20, shape), 0.01, 0.9),
        held=0.0035 * np.exp(0.3 * wander(rng, shape, 12.0)),
        aborted=0.0015 * np.exp(0.4 * wander(rng, shape, 6.0)),
        capacity=capacity,
        most_starts=most_starts,
    )


def _blips(spec: GridSpec, rng: np.random.Generator, per_week: float, longest: int, times: tuple[float, float]) -> Floats:
    """(hours, 1) a factor that is one, and for an hour or some more."""
    factor = np.ones((spec.hours, 1))
    for _ in range(rng.poisson(spec.hours / 168 * per_week)):
        first = int(rng.integers(0, spec.hours))
        hours = slice(first, first + int(rng.integers(1, longest + 1)))
        factor[hours] = np.maximum(factor[hours], rng.uniform(*times))
    return factor


def _walk(spec: GridSpec, groups: Groups, weather: _Weather, submit: Ints, wrong: Mistakes) -> _Walk:
    """Hour after hour: jobs end, are lost, come in, are taken back, and start while slots are free."""
    rng = spec.stream("jobs")
    leaves = np.minimum(
        weather.evicted + weather.exception + weather.cut_off * weather.not_found + weather.held + weather.aborted, 1
    )
    again = 1 - (weather.held + weather.aborted)[:, 0] / leaves[:, 0]  # share of the lost that waits once more
    waking = 0.02 + 0.1 * np.exp(1.5 * (np.cos(2 * np.pi * (clock(spec).bucket_of_week() % 24 - 14.5) / 24) - 1))
    running = np.rint(0.7 * spec.slots * groups.weight[:, None] * _share_of_slots(groups)).astype(np.int64)  # (groups, classes)
    waiting = np.zeros(spec.groups, dtype=np.int64)
    on_hold = np.zeros(spec.groups, dtype=np.int64)
    walk = _Walk(*(np.zeros((spec.hours, spec.groups), dtype=np.int64) for _ in _Walk._fields))
    longest = _PATIENCE_H * spec.slots / float(groups.weight @ (groups.run_mix @ RUN_HOURS))
    capacity, most_starts = weather.capacity[:, 0], weather.most_starts[:, 0]
    for hour in range(spec.hours):
        ended = rng.binomial(running, _ENDS_IN_AN_HOUR)  # (groups, classes)
        lost = rng.binomial(running - ended, leaves[hour])
        running -= ended + lost
        lost_of = lost.sum(axis=1)
        back = np.rint(lost_of * again[hour]).astype(np.int64)
        released = rng.binomial(on_hold, waking[hour])
        on_hold += np.minimum(lost_of - back, 400) - released
        came = submit[hour]
        if (queue := int(waiting.sum())) > longest:
            came = rng.binomial(came, longest / queue)
        waiting += came + back + released // 2 + wrong.release[hour]  # the other half was given up
        gone = rng.binomial(waiting, 0.12 * waking[hour])
        gone += np.minimum(waiting - gone, wrong.removed[hour])
        waiting -= gone
        queue = max(int(waiting.sum()), 1)
        room = max(min(capacity[hour] - running.sum(), most_starts[hour], 0.94 * queue), 0.0)  # the newest wait for a cycle
        started = np.floor(waiting * (room / queue)).astype(np.int64)
        waiting -= started
        by_class = rng.multinomial(started, groups.run_mix)  # (groups, classes)
        at_once = rng.binomial(by_class, _ENDS_AT_ONCE)
        running += by_class - at_once
        ended += at_once
        walk.submitted[hour], walk.started[hour], walk.ended[hour] = came, started, ended.sum(axis=1)
        walk.short[hour], walk.lost[hour], walk.removed[hour] = ended[:, 0], lost_of, gone + released - released // 2
        walk.released[hour], walk.waiting[hour], walk.running[hour] = released // 2, waiting, running.sum(axis=1)
    return walk


def _share_of_slots(groups: Groups) -> Floats:
    """(groups, run classes) of a group's slots, those that each class of jobs holds."""
    held = groups.run_mix * RUN_HOURS
    share: Floats = held / held.sum(axis=1, keepdims=True)
    return share


def _events(spec: GridSpec, groups: Groups, weather: _Weather, walk: _Walk, wrong: Mistakes) -> dict[str, Ints]:
    """(hours, groups) of each kind."""
    rng = spec.stream("jobs", 1)
    # What became of the lost ones: (hours, groups, 5).
    causes = np.stack(
        [weather.evicted, weather.exception, weather.cut_off * weather.not_found, weather.held, weather.aborted], axis=2
    )
    fates = rng.multinomial(walk.lost, causes / causes.sum(axis=2, keepdims=True))
    evicted, exception, not_found, held, aborted = np.moveaxis(fates, 2, 0)
    came_back = rng.poisson(walk.running * weather.cut_off * (1 - weather.not_found))
    slow = rng.binomial(came_back, 0.15)  # found again only in the next hour
    reconnected = came_back - slow
    reconnected[1:] += slow[:-1]
    noise = np.exp(0.05 * wander(rng, walk.running.shape, 12.0))
    failed = rng.binomial(walk.ended, np.clip(groups.fail_share * np.exp(0.4 * wander(rng, walk.ended.shape, 10.0)), 0, 0.8))
    fast = rng.binomial(np.minimum(failed, walk.short), 0.12)
    return dict(
        zip(
            ALL_KINDS,
            (
                walk.submitted + wrong.submit,
                walk.started + wrong.execute,
                evicted,
                walk.ended + wrong.terminated,
                rng.poisson(walk.running * 0.55 * noise * rng.gamma(60, 1 / 60, walk.running.shape)),
                exception,
                aborted + walk.removed + wrong.aborted,
                held + wrong.held,
                walk.released + wrong.release,
                rng.poisson(walk.running * 1.2e-4 * rng.gamma(1.2, 1 / 1.2, walk.running.shape)),
                came_back + not_found,
                reconnected,
                not_found,
                failed + wrong.terminated,
                fast + wrong.terminated,
            ),
            strict=True,
        )
    )


def _calm_series(spec: GridSpec, by_group: Ints, walk: _Walk, windows: list[Maintenance]) -> EventSeries:
    hours = clock(spec)
    label = np.zeros(spec.hours, dtype=np.int8)
    for window in windows:
        label[window.first - _WARM_UP_HOURS : window.last - _WARM_UP_HOURS] = MAINTENANCE
    queued, running = (column[_WARM_UP_HOURS:].sum(axis=1).astype(np.float64) for column in (walk.waiting, walk.running))
    return replace(
        hours,
        kinds=spec.kinds,
        counts=by_group.sum(axis=2).astype(np.float64),
        label=label,
        background=np.stack([queued, running, running / spec.slots], axis=1),
        background_names=BACKGROUND,
    )


def _announced(series: EventSeries) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """(hours,) maintenance, and half a day around it: no outage is planned there."""
    near = np.convolve(series.label == MAINTENANCE, np.ones(25))[12:-12] > 0.5
    return np.asarray(near, dtype=np.bool_)


def _with_background(spec: GridSpec, calm: EventSeries, series: EventSeries) -> EventSeries:
    """Queue and slots as the outages change them: what did not start waits, what was lost runs no more; both are forgotten."""
    change = dict(zip(series.kinds, (series.counts - calm.counts).T, strict=True))
    zero = np.zeros(len(series))
    started = change.get("Execute", zero)
    lost = sum((change.get(kind, zero) for kind in ("JobEvicted", "ShadowException", "JobReconnectFailed")), zero)
    into_slots = started - change.get("JobTerminated", zero) - lost
    into_queue = change.get("Submit", zero) - started + lost
    moved = np.zeros((len(series), 2))
    for hour, both in enumerate(zip(into_queue, into_slots, strict=True)):
        before = moved[hour - 1] if hour else np.zeros(2)
        moved[hour] = before * _FORGETS + both
    queued = np.maximum(calm.background[:, 0] + np.rint(moved[:, 0]), 0)
    running = np.clip(calm.background[:, 1] + np.rint(moved[:, 1]), 0, spec.slots)
    return replace(series, background=np.stack([queued, running, running / spec.slots], axis=1))


def _as_outages(series: EventSeries, windows: list[Maintenance]) -> list[Outage]:
    step = timedelta(seconds=HOUR_S)
    return [
        Outage(
            start=series.moment(window.first),
            end=series.moment(window.last - 1) + step,
            kind=OutageKind.MAINTENANCE,
            title="scheduled maintenance",
            source=SIMULATED,
            uid=f"maintenance-{window.first}",
        )
        for window in windows
    ]
