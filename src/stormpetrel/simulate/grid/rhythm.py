"""What is asked of a simulated grid: groups with their rhythm, campaigns, deadlines, holidays; maintenance; users' mistakes.

GridSpec -> maintenances, submissions (hours, groups), mistakes (hours, groups). Everything here is normal operation. Which
numbers come from where: docs/events-simulated.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from stormpetrel.records.arrays import Floats, Ints
from stormpetrel.records.event_series import HOUR_S, EventSeries
from stormpetrel.simulate.grid.spec import GridSpec, wander

RUN_HOURS: Final = np.array([0.4, 3.0, 11.0])  # mean run of short, middle and long jobs
_RUN_MIX: Final = np.array([4.5, 4.0, 1.5])  # how many of each a group has, on average (out of ten)
_HALF_YEAR_H: Final = 4368
DRAIN_HOURS: Final = 5  # no job starts before a maintenance
REFILL_HOURS: Final = 4  # until the slots are full again after it


@dataclass(frozen=True, slots=True)
class Maintenance:
    """A scheduled one, as places in the series: drained from `first`, nothing runs from `down` to before `up`, full at `last`."""

    first: int
    down: int
    up: int
    last: int


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """Those who submit, and how."""

    weight: Floats  # (groups,) share of the work
    run_mix: Floats  # (groups, run classes) share of short, middle and long jobs
    cluster_jobs: Floats  # (groups,) jobs that are handed in at once
    by_people: Floats  # (groups,) 1: all of it in working hours, 0: robots that never sleep
    peak_hour: Floats  # (groups,) by the clock on the wall
    growth: Floats  # (groups,) logarithm of the growth in half a year
    fail_share: Floats  # (groups,) of the jobs that end


@dataclass(frozen=True, slots=True, eq=False)
class Mistakes:
    """What batches with a mistake in them add, (hours, groups) each: a nuisance, not an outage."""

    submit: Ints
    execute: Ints
    terminated: Ints  # all of these fail fast
    held: Ints
    release: Ints
    removed: Ints  # taken out of the queue by their owner
    aborted: Ints  # held ones that their owner gives up


def groups_of(spec: GridSpec) -> Groups:
    """The groups of a grid: a few large ones and some small, each of its own kind."""
    rng, number = spec.stream("groups"), spec.groups
    weight = 1 / (np.arange(number) + 1.5) * np.exp(rng.normal(0, 0.3, number))
    return Groups(
        weight=weight / weight.sum(),
        run_mix=rng.dirichlet(_RUN_MIX * 3, number),
        cluster_jobs=np.exp(rng.uniform(np.log(8), np.log(120), number)),
        by_people=rng.uniform(0.1, 0.8, number),
        peak_hour=rng.normal(14.5, 1.5, number),
        growth=rng.normal(0.12, 0.3, number),
        fail_share=rng.beta(2, 20, number),
    )


def maintenances(spec: GridSpec) -> list[Maintenance]:
    """Every few weeks on a working day, announced; one that the span would cut is left out."""
    if not spec.maintenance_weeks:
        return []
    rng, windows = spec.stream("calendar"), []
    week = spec.maintenance_weeks * rng.uniform(0.3, 1.0)
    while week * 168 < spec.hours:
        day = int(week * 7) // 7 * 7 + int(rng.choice([1, 2, 3]))
        down = day * 24 + int(rng.integers(6, 10)) - int(spec.start.timestamp() // HOUR_S + 72) % 168  # weeks begin on Monday
        up = down + int(rng.integers(6, 13))
        if down >= DRAIN_HOURS and up + REFILL_HOURS <= spec.hours:
            windows.append(Maintenance(down - DRAIN_HOURS, down, up, up + REFILL_HOURS))
        week += spec.maintenance_weeks * rng.uniform(0.8, 1.2)
    return windows


def submissions(spec: GridSpec, groups: Groups, windows: list[Maintenance]) -> Ints:
    """(hours, groups) jobs handed in, in clusters: they scatter far more than chance."""
    rng = spec.stream("demand")
    busy = _rhythm(spec, groups) * _history(spec, groups, rng) * _holidays(spec, groups)
    busy /= busy.mean(axis=0)
    for window in windows:
        busy[window.first : window.down] *= 0.8  # it was announced
        busy[window.down : window.up] *= 0.3
        busy[window.up : window.last] *= 1.3
    busy *= np.exp(0.35 * wander(rng, busy.shape, 5.0) + 0.22 * wander(rng, busy.shape, 60.0) - 0.085)
    share_of_hours = groups.weight / (groups.run_mix @ RUN_HOURS)  # jobs that keep a group's share of the slots busy
    expected = spec.load * spec.slots * share_of_hours * busy
    clusters = rng.poisson(expected / groups.cluster_jobs)
    jobs: Ints = rng.poisson(np.where(clusters > 0, rng.gamma(np.maximum(clusters, 1), groups.cluster_jobs), 0.0))
    return jobs


def mistakes(spec: GridSpec, windows: list[Maintenance]) -> Mistakes:
    """Batches that go wrong: one group's jobs are held, or fail at once, or are taken back; not while nothing runs."""
    rng, shape = spec.stream("mistakes"), (spec.hours, spec.groups)
    result = Mistakes(*(np.zeros(shape, dtype=np.int64) for _ in range(7)))
    size = spec.slots / 19_000
    for _ in range(rng.poisson(spec.hours / 168 * spec.mistakes_per_week)):
        hour = int(rng.integers(0, spec.hours))
        group, jobs = int(rng.integers(0, spec.groups)), np.exp(rng.uniform(np.log(120), np.log(2500))) * size
        spread = rng.dirichlet(np.ones(int(rng.integers(1, 5))))
        later = hour + len(spread) + int(rng.integers(1, 14))  # when somebody has noticed
        kind = rng.random()
        if kind < 0.45:
            _put(result.submit, hour, group, jobs * np.ones(1))
            for column in (result.execute, result.held):
                _put(column, hour, group, jobs * spread)
            _put(
                result.aborted if rng.random() < 0.5 else result.release, later, group, jobs * rng.uniform(0.6, 1.0) * np.ones(1)
            )
        elif kind < 0.75:
            for column in (result.submit, result.execute, result.terminated):
                _put(column, hour, group, jobs * spread)
        else:
            _put(result.removed, hour, group, jobs * np.ones(1))
    columns = (result.submit, result.execute, result.terminated, result.held, result.release, result.removed, result.aborted)
    for window in windows:
        for column in columns:
            column[window.first : window.last] = 0
    return result


def _put(column: Ints, hour: int, group: int, jobs: Floats) -> None:
    end = min(hour + len(jobs), len(column))
    if hour < end:
        column[hour:end, group] += np.rint(jobs[: end - hour]).astype(np.int64)


def _rhythm(spec: GridSpec, groups: Groups) -> Floats:
    """(hours, groups) the week by the clock on the wall: people come in the morning and stay away at weekends."""
    hour_of_week = clock(spec).bucket_of_week()
    hour, weekend = hour_of_week % 24, hour_of_week >= 120
    distance = 2 * np.pi * (hour[:, None] + 0.5 - groups.peak_hour) / 24
    people = np.exp(1.5 * (np.cos(distance) - 1)) * np.where(weekend, 0.35, 1.0)[:, None] + 0.05
    robots = np.where(weekend, 0.95, 1.0)[:, None]
    shape: Floats = groups.by_people * people / people.mean(axis=0) + (1 - groups.by_people) * robots
    return shape


def _history(spec: GridSpec, groups: Groups, rng: np.random.Generator) -> Floats:
    """(hours, groups) growth or decline, production campaigns that begin and end, deadlines of all."""
    hours = np.arange(spec.hours)[:, None]
    level = np.exp(groups.growth * (hours / _HALF_YEAR_H - 0.5))  # (hours, groups)
    for group in range(spec.groups):
        for _ in range(rng.poisson(spec.hours / (21 * 24))):
            first, days, more = rng.integers(0, spec.hours), rng.uniform(1.5, 10), rng.uniform(1.4, 3.0)
            level[first : first + int(days * 24), group] *= more
    for _ in range(rng.poisson(spec.hours / (60 * 24))):
        before_h = rng.uniform(0, spec.hours) - np.arange(spec.hours)  # until the deadline
        rush = 1 + rng.uniform(0.2, 0.8) * np.exp(-before_h / (4 * 24)) * (before_h >= 0)
        rest = 1 - rng.uniform(0.1, 0.4) * ((before_h < 0) & (before_h > -4 * 24))
        level *= (rush * rest)[:, None]
    return level


def _holidays(spec: GridSpec, groups: Groups) -> Floats:
    """(hours, groups) a Monday or a Friday every some weeks on which the people stay at home."""
    rng = spec.stream("calendar", 1)
    there = np.ones((spec.hours, spec.groups))
    day = (clock(spec).start_s // 86_400 + 3) % 7  # 0 is Monday
    free_days = [hour for hour in range(0, spec.hours, 24) if day[hour] in (0, 4) and rng.random() < 0.12]
    for hour in free_days:
        there[hour : hour + 24] *= 1 - 0.65 * groups.by_people
    return there


def clock(spec: GridSpec) -> EventSeries:
    """The hours of the grid, without counts."""
    start_s = int(spec.start.timestamp()) + HOUR_S * np.arange(spec.hours, dtype=np.int64)
    return EventSeries(start_s, HOUR_S, (), np.empty((spec.hours, 0)), np.zeros(spec.hours, dtype=np.int8), zone=spec.zone)
