"""What a simulated grid is made of: its size, its span, its kinds of events, and the random streams that it draws from."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import numpy as np

from stormpetrel.errors import UsageError
from stormpetrel.records.arrays import Floats
from stormpetrel.records.event_series import HOUR_S
from stormpetrel.simulate.grid.outages import OUTAGES

# HTCondor's kinds as in records/events.py (SEED_KINDS), written out: that module needs Polars, and this one also runs without.
GRID_KINDS: Final = (
    "Submit", "Execute", "JobEvicted", "JobTerminated", "JobImageSize", "ShadowException", "JobAborted", "JobHeld", "JobRelease",
    "RemoteError", "JobDisconnected", "JobReconnected", "JobReconnectFailed",
)  # fmt: skip
FAILURE_KINDS: Final = ("JobFailed", "JobFailedFast")  # ours: counted in addition to JobTerminated, where requested
ALL_KINDS: Final = (*GRID_KINDS, *FAILURE_KINDS)
_STREAMS: Final = ("groups", "calendar", "demand", "mistakes", "weather", "jobs", "outages", "places", "log")


@dataclass(frozen=True, slots=True)
class GridSpec:
    """A grid that is not there. The same spec gives the same counts."""

    hours: int = 4368
    seed: int = 0
    start: datetime = datetime(2025, 1, 6, tzinfo=UTC)
    hosts: int = 4  # submit hosts
    sites: int = 12
    groups: int = 8
    nodes: int = 400
    slots: int = 19_000
    load: float = 0.76  # share of the slots that the groups ask for on average
    outages_per_week: float = 1.5
    outage_types: tuple[str, ...] = tuple(OUTAGES)
    maintenance_weeks: float = 5.0  # from one scheduled maintenance to the next; 0 for none
    mistakes_per_week: float = 3.0  # batches that a user gets wrong
    kinds: tuple[str, ...] = GRID_KINDS
    zone: str = "UTC"  # by which people work

    def __post_init__(self) -> None:
        sizes = {name: getattr(self, name) for name in ("hours", "hosts", "sites", "groups", "nodes", "slots")}
        if small := [name for name, value in sizes.items() if value < 1]:
            raise UsageError(f"A simulated grid needs at least one of: {', '.join(small)}.")
        if self.nodes < self.sites:
            raise UsageError(f"{self.sites} sites need at least as many nodes, not {self.nodes}.")
        if self.seed < 0 or self.load <= 0 or min(self.outages_per_week, self.maintenance_weeks, self.mistakes_per_week) < 0:
            raise UsageError("A simulated grid needs a seed and rates of zero or more, and a load above zero.")
        if self.start.tzinfo is None or self.start.timestamp() % HOUR_S:
            raise UsageError("A simulated grid starts at a full hour with a time zone.")
        if unknown := [kind for kind in self.kinds if kind not in ALL_KINDS]:
            raise UsageError(f"The simulated grid does not know the kind '{unknown[0]}'. Known: {', '.join(ALL_KINDS)}.")

    def stream(self, name: str, part: int = 0) -> np.random.Generator:
        """A generator for one part of the grid: what one part draws depends on no other."""
        return np.random.default_rng([self.seed, _STREAMS.index(name), part])


def wander(rng: np.random.Generator, shape: tuple[int, int], memory_hours: float) -> Floats:
    """(hours, columns) numbers of mean zero and spread one that forget within about so many hours."""
    kept = float(np.exp(-1 / memory_hours))
    height = rng.standard_normal(shape)
    height[1:] *= np.sqrt(1 - kept**2)
    # height[i] += kept * height[i - 1] for all i, in as many passes as the memory has binary digits.
    reach = 1
    while reach < shape[0] and kept**reach > 1e-4:
        height[reach:] += kept**reach * height[:-reach]
        reach *= 2
    return height
