"""Nodes that go down, and nodes that are sick: the part of fate that no user is to blame for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import NamedTuple

from stormpetrel.simulate.spec import DAY_S, ClusterSpec, Fault


class Outage(NamedTuple):
    """A node that is out of service for a while. Seconds from the start."""

    start_s: int
    until_s: int
    node: int


def random_outages(spec: ClusterSpec) -> Iterator[Outage]:
    """Outages one after the other, without end; at most as many as `node_failures_per_year` says on average."""
    if spec.node_failures_per_year <= 0:
        return
    rng = Random(f"{spec.seed}/outages")  # noqa: S311 - a simulation, not a secret
    per_second = spec.nodes * spec.node_failures_per_year / (365 * DAY_S)
    now = 0.0
    while True:
        now += rng.expovariate(per_second)
        yield Outage(int(now), int(now) + 600 + int(rng.lognormvariate(9.0, 1.0)), rng.randrange(spec.nodes))


class SickNodes:
    """Which nodes are sick when."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self._spans: dict[int, list[tuple[int, int]]] = {}
        for fault in faults:
            self._spans.setdefault(fault.node, []).append((fault.start_s, fault.until_s))

    def any(self, nodes: Sequence[int], now: int) -> bool:
        """Whether one of the nodes is sick at this moment."""
        if not self._spans:
            return False
        return any(start <= now < until for node in nodes for start, until in self._spans.get(node, ()))
