"""The demo's site: three months of a small simulated cluster up to a busy afternoon, and a month beyond, with one sick node.
Soon after that moment, within the hour, a second node falls sick, so that a watch has something to tell.

The site lives by a clock of its own, which begins at that afternoon whenever the demo is started: at night and on Sundays the
simulated users sleep, and somebody who tries the demo then would see an empty cluster.

folder -> record_demo -> a feed, and the commands `sacct`, `sbatch` and `scancel` that show it and change it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import polars as pl

from stormpetrel.records.clock import fixed_clock
from stormpetrel.simulate.cluster import simulate
from stormpetrel.simulate.coming_fault import plan_fault
from stormpetrel.simulate.feed import record_feed, write_fake_sacct
from stormpetrel.simulate.spec import DAY_S, ClusterSpec, Fault
from stormpetrel.simulate.submitting import write_fake_sbatch, write_fake_scancel

CLUSTER: Final = "demo"
SEED: Final = 1
PAST_DAYS: Final = 90
COMING_DAYS: Final = 30
_SICK_NODE: Final = 16
_TUESDAY: Final = 1
_AFTERNOON: Final = timedelta(hours=16, minutes=30)
_FALLS_SICK: Final = timedelta(minutes=20)  # after `now`; at the usual pace a third of a minute, in which the watch has started


def demo_now(wall: datetime) -> datetime:
    """The moment at which the demo begins: 16:30 UTC on the last Tuesday that was over, as seen from the clock on the wall."""
    midnight = wall.replace(hour=0, minute=0, second=0, microsecond=0)
    days_back = (midnight.weekday() - _TUESDAY) % 7 or 7
    return midnight - timedelta(days=days_back) + _AFTERNOON


def demo_spec(now: datetime) -> ClusterSpec:
    """The cluster of the demo: it began `PAST_DAYS` ago at midnight; one node has been sick for five days."""
    start = (now - timedelta(days=PAST_DAYS)).replace(hour=0, minute=0, second=0, microsecond=0)
    sick = Fault(_SICK_NODE, (PAST_DAYS - 5) * DAY_S, (PAST_DAYS + COMING_DAYS) * DAY_S)
    span = PAST_DAYS + COMING_DAYS
    return ClusterSpec(name=CLUSTER, nodes=24, days=span, load=0.55, start=start, faults=(sick,), seed=SEED)


def record_demo(folder: Path, now: datetime, progress: Callable[[int], None]) -> Path:
    """Simulate the site and keep it as a feed whose clock stands at `now` until it is set going; the path of its `sacct`."""

    def counted(frames: Iterator[pl.DataFrame]) -> Iterator[pl.DataFrame]:
        done = 0
        for frame in frames:
            done += frame.height
            progress(done)
            yield frame

    past = demo_spec(now)
    coming = plan_fault(past, int((now + _FALLS_SICK - past.start).total_seconds()))
    spec = replace(past, faults=(*past.faults, coming.fault))
    record_feed(counted(simulate(spec, chunk=5_000, more=coming.submissions)), folder, fixed_clock(now), spec=spec)
    write_fake_sbatch(folder)
    write_fake_scancel(folder)
    return write_fake_sacct(folder)
