"""The demo's site: three months of a small simulated cluster, up to now and a week beyond, with one sick node.

folder -> record_demo -> a feed that goes on in real time, and the `sacct` command that shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import polars as pl

from stormpetrel.simulate.cluster import simulate
from stormpetrel.simulate.feed import record_feed, running_clock, write_fake_sacct
from stormpetrel.simulate.spec import DAY_S, ClusterSpec, Fault

CLUSTER: Final = "demo"
SEED: Final = 1
PAST_DAYS: Final = 90
COMING_DAYS: Final = 7
_SICK_NODE: Final = 16


def demo_spec(now: datetime) -> ClusterSpec:
    """The cluster of the demo: it began `PAST_DAYS` ago at midnight; one node has been sick for five days."""
    start = (now - timedelta(days=PAST_DAYS)).replace(hour=0, minute=0, second=0, microsecond=0)
    sick = Fault(_SICK_NODE, (PAST_DAYS - 5) * DAY_S, (PAST_DAYS + COMING_DAYS) * DAY_S)
    span = PAST_DAYS + COMING_DAYS
    return ClusterSpec(name=CLUSTER, nodes=24, days=span, load=0.5, start=start, faults=(sick,), seed=SEED)


def record_demo(folder: Path, now: datetime, progress: Callable[[int], None]) -> Path:
    """Simulate the site and keep it as a feed that runs in real time; the path of its `sacct`."""

    def counted(frames: Iterator[pl.DataFrame]) -> Iterator[pl.DataFrame]:
        done = 0
        for frame in frames:
            done += frame.height
            progress(done)
            yield frame

    record_feed(counted(simulate(demo_spec(now), chunk=5_000)), folder, running_clock(now))
    return write_fake_sacct(folder)
