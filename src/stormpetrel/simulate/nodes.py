"""The nodes of the cluster: what is free on each, which one a job fits on, and when it will fit.

Nodes are kept in buckets by their number of free cores, so that the best fit (the fullest node with room) is found without
looking at all of them.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Collection, Sequence
from itertools import islice
from typing import Final

_WALK: Final = 2000  # running jobs looked at for a reservation before it falls back on the first node that empties
NOTHING: Final[frozenset[int]] = frozenset()


class Nodes:
    """Cores and memory of every node, who holds them, and until when at the latest."""

    def __init__(self, count: int, cores: int, mem_mib: int) -> None:
        self.count, self.cores, self.mem_mib = count, cores, mem_mib
        self.free_cores = [cores] * count
        self.free_mib = [mem_mib] * count
        self._buckets: list[set[int]] = [set() for _ in range(cores)] + [set(range(count))]
        self.held: list[dict[int, int]] = [{} for _ in range(count)]  # node -> {job: latest end}
        self.busy_until = [0] * count  # when everything that runs on the node will have ended, at the latest
        self._ends: list[tuple[int, int]] = []  # (latest end, job), sorted
        self._taken: dict[int, tuple[Sequence[int], int, int]] = {}  # job -> (nodes, cores, memory)

    @property
    def idle(self) -> set[int]:
        """The nodes with nothing on them."""
        return self._buckets[self.cores]

    def find(self, cores: int, nodes: int, mem_mib: int, avoid: Collection[int] = NOTHING) -> Sequence[int] | None:
        """Nodes that the job fits on now, none of them in `avoid`; None if there are not enough."""
        if nodes:
            if len(self.idle) < nodes:
                return None
            free = self.idle.difference(avoid) if avoid else self.idle
            return list(islice(free, nodes)) if len(free) >= nodes else None
        free_mib = self.free_mib
        for room in range(cores, self.cores + 1):
            for node in self._buckets[room]:
                if free_mib[node] >= mem_mib and node not in avoid:
                    return (node,)
        return None

    def fits_on(self, node: int, cores: int, mem_mib: int) -> bool:
        """Whether a job of one node fits on this one now."""
        return self.free_cores[node] >= cores and self.free_mib[node] >= mem_mib

    def take(self, job: int, nodes: Sequence[int], cores: int, mem_mib: int, latest_end: int) -> None:
        """Give the nodes to a job."""
        self._taken[job] = (nodes, cores, mem_mib)
        insort(self._ends, (latest_end, job))
        for node in nodes:
            self._move(node, self.free_cores[node] - cores)
            self.free_mib[node] -= mem_mib
            self.held[node][job] = latest_end
            if latest_end > self.busy_until[node]:
                self.busy_until[node] = latest_end

    def give_back(self, job: int) -> Sequence[int]:
        """Take the nodes back from a job; which ones they were."""
        nodes, cores, mem_mib = self._taken.pop(job)
        latest_end = self.held[nodes[0]][job]
        del self._ends[bisect_left(self._ends, (latest_end, job))]
        for node in nodes:
            self._move(node, self.free_cores[node] + cores)
            self.free_mib[node] += mem_mib
            held = self.held[node]
            del held[job]
            if latest_end == self.busy_until[node]:
                self.busy_until[node] = max(held.values(), default=0)
        return nodes

    def close(self, node: int, until_s: int) -> None:
        """Take an empty node out of service."""
        self._buckets[self.free_cores[node]].discard(node)
        self.free_cores[node] = -1
        self.busy_until[node] = until_s

    def open(self, node: int) -> None:
        """Put a node back into service."""
        self.free_cores[node] = self.cores
        self._buckets[self.cores].add(node)
        self.busy_until[node] = 0

    def reservation(self, cores: int, nodes: int, mem_mib: int) -> tuple[frozenset[int], int]:
        """The nodes a waiting job can count on, and from when at the latest."""
        if nodes:
            soonest = heapq.nsmallest(nodes, range(self.count), key=self.busy_until.__getitem__)
            return frozenset(soonest), max(self.busy_until[node] for node in soonest)
        free_cores, free_mib = dict[int, int](), dict[int, int]()
        for end, job in islice(self._ends, _WALK):
            held_nodes, held_cores, held_mib = self._taken[job]
            for node in held_nodes:
                free_cores[node] = free_cores.get(node, self.free_cores[node]) + held_cores
                free_mib[node] = free_mib.get(node, self.free_mib[node]) + held_mib
                if free_cores[node] >= cores and free_mib[node] >= mem_mib:
                    return frozenset((node,)), end
        node = min(range(self.count), key=self.busy_until.__getitem__)
        return frozenset((node,)), self.busy_until[node]

    def _move(self, node: int, free: int) -> None:
        self._buckets[self.free_cores[node]].discard(node)
        self.free_cores[node] = free
        self._buckets[free].add(node)
