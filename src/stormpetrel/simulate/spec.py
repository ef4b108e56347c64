"""What a simulated site is asked to be: its size, its span of time, its load, its faults, its seed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from stormpetrel.errors import UsageError

MIB_PER_GIB: Final = 1024
DAY_S: Final = 86_400
_MAX_NODES: Final = 10_000


@dataclass(frozen=True, slots=True)
class Fault:
    """A node that is sick from `start_s` until `until_s` (seconds after the start): it fails what it gets within seconds."""

    node: int
    start_s: int
    until_s: int


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """A site to simulate; the defaults are a believable small one.

    `jobs` ends the simulation after so many submissions (resubmissions count), `days` after so much time; the first to come
    counts, and what was submitted until then is run to its end. `load` is the share of the cores that the users' work would keep
    busy if every job ran as long as it needs. `users` = 0 takes a number that fits the size. `node_failures_per_year` is for each
    node: it goes down with what runs on it, and comes back after some hours. `growth_per_year` .3 means 30 % more work each year.
    """

    name: str = "petrel"
    nodes: int = 32
    cores_per_node: int = 32
    mem_per_node_gib: int = 192
    users: int = 0
    jobs: int | None = None
    days: float | None = 90.0
    start: datetime = datetime(2024, 1, 1, tzinfo=UTC)
    load: float = 0.75
    growth_per_year: float = 0.1
    node_failures_per_year: float = 1.0
    faults: tuple[Fault, ...] = ()
    first_job_id: int = 100_001
    seed: int = 1

    def __post_init__(self) -> None:
        _check(1 <= self.nodes <= _MAX_NODES, f"nodes is {self.nodes}; it must lie between 1 and {_MAX_NODES:,}.")
        _check(self.cores_per_node >= 1, f"cores_per_node is {self.cores_per_node}; it must be at least 1.")
        _check(self.mem_per_node_gib >= 1, f"mem_per_node_gib is {self.mem_per_node_gib}; it must be at least 1.")
        _check(self.users >= 0, f"users is {self.users}; it must not be negative.")
        _check(self.load > 0, f"load is {self.load}; it must be above 0.")
        _check(self.start.tzinfo is not None, "start has no time zone; write datetime(2024, 1, 1, tzinfo=UTC).")
        _check(self.jobs is not None or self.days is not None, "Neither jobs nor days is given: the simulation would never end.")
        for fault in self.faults:
            _check(0 <= fault.node < self.nodes, f"A fault names node {fault.node}, but the nodes are 0 to {self.nodes - 1}.")

    @property
    def mem_per_node_mib(self) -> int:
        """Memory of a node in MiB, the unit the scheduler counts in."""
        return self.mem_per_node_gib * MIB_PER_GIB

    @property
    def start_unix_s(self) -> int:
        """The start in Unix seconds; all times inside the simulation count from here."""
        return int(self.start.timestamp())

    @property
    def user_count(self) -> int:
        """How many users there are: as given, or growing with the square root of the nodes."""
        return self.users or round(20 + 14 * self.nodes**0.5)


def _check(true: bool, message: str) -> None:
    if not true:
        raise UsageError(message, hint="Change it in the ClusterSpec.")
