"""The demo's site: three months of a small simulated cluster, up to now and a month beyond, with one sick node.

folder -> record_demo -> a feed, and the commands `sacct`, `sbatch` and `scancel` that show it and change it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import polars as pl

from stormpetrel.simulate.cluster import simulate
from stormpetrel.simulate.feed import fixed_clock, record_feed, write_fake_sacct
from stormpetrel.simulate.spec import DAY_S, ClusterSpec, Fault
from stormpetrel.simulate.submitting import write_fake_sbatch, write_fake_scancel

CLUSTER: Final = "demo"
SEED: Final = 1
PAST_DAYS: Final = 90
COMING_DAYS: Final = 30
_SICK_NODE: Final = 16


def demo_spec(now: datetime) -> ClusterSpec:
    """The cluster of the demo: it began `PAST_DAYS` ago at midnight; one node has been sick for five days."""
    start = (now - timedelta(days=PAST_DAYS)).replace(hour=0, minute=0, second=0, microsecond=0)
    sick = Fault(_SICK_NODE, (PAST_DAYS - 5) * DAY_S, (PAST_DAYS + COMING_DAYS) * DAY_S)
    span = PAST_DAYS + COMING_DAYS
    return ClusterSpec(name=CLUSTER, nodes=24, days=span, load=0.5, start=start, faults=(sick,), seed=SEED)


def record_demo(folder: Path, now: datetime, progress: Callable[[int], None]) -> Path:
    """Simulate the site and keep it as a feed whose clock stands at `now` until it is set going; the path of its `sacct`."""

    def counted(frames: Iterator[pl.DataFrame]) -> Iterator[pl.DataFrame]:
        done = 0
        for frame in frames:
            done += frame.height
            progress(done)
            yield frame

    spec = demo_spec(now)
    record_feed(counted(simulate(spec, chunk=5_000)), folder, fixed_clock(now), spec=spec)
    write_fake_sbatch(folder)
    write_fake_scancel(folder)
    return write_fake_sacct(folder)
