"""A small scheduler: which job type runs when on which threads, so that every campaign holds every type.

nodes, threads, length, seed -> place_jobs -> placements. A job takes a contiguous stretch of a node's cores, both threads of a
core first, and stays within a socket where it fits. The type that is furthest behind its share of the thread-time comes next;
idle threads are placed like a job, since a node full of work is the exception.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from stormpetrel.records.traces import BAD_IO, GOOD_IO, IDLE, NP, mpi

_SHORTEST_S: Final = 600.0
_GAP_S: Final = (5.0, 40.0)  # between two jobs on a thread: epilogue, prologue, the scheduler's own cycle
# type -> share of the thread-time, numbers of threads a job may have; every MPI size takes _MPI_SHARE
_SHARES: Final = {NP: (0.30, (1, 2, 4, 8)), BAD_IO: (0.14, (2, 4, 8)), GOOD_IO: (0.16, (2, 4, 8)), IDLE: (0.16, (1, 2, 4))}
_MPI_SHARE: Final = 0.12
_STREAM: Final = 0


@dataclass(frozen=True, slots=True)
class Placement:
    """A job on some threads of a node; seconds count from the start of the campaign."""

    job_type: str
    node: int
    cpus: tuple[int, ...]
    start_s: float
    end_s: float


def place_jobs(nodes: int, threads: int, length_s: float, mpi_sizes: tuple[int, ...], seed: int) -> list[Placement]:
    """Jobs of every type that fits on a node of so many threads, sorted by start, node and CPU."""
    return _Board(nodes, threads, length_s, mpi_sizes, np.random.default_rng([seed, _STREAM])).filled()


def cpu_of_slot(slot: int, threads: int) -> int:
    """The CPU number of a place in core order: 0 and 1 are the two threads of core 0, which are CPU 0 and CPU threads / 2."""
    return slot if threads % 2 else slot // 2 + (slot % 2) * (threads // 2)


class _Board:
    """The threads of the campaign and from when on each is free."""

    def __init__(self, nodes: int, threads: int, length_s: float, mpi_sizes: tuple[int, ...], rng: np.random.Generator) -> None:
        self.threads, self.length_s, self.rng = threads, length_s, rng
        self.free_s = np.zeros((nodes, threads))  # in core order
        sizes = [size for size in mpi_sizes if size <= threads]
        self.widths = {kind: [w for w in widths if w <= threads] or [1] for kind, (_, widths) in _SHARES.items()}
        self.widths |= {mpi(size): [size] for size in sizes}
        shares = {kind: share for kind, (share, _) in _SHARES.items()} | {mpi(size): _MPI_SHARE for size in sizes}
        whole = sum(shares.values())
        self.wanted_s = {kind: share / whole * nodes * threads * length_s for kind, share in shares.items()}
        self.placed_s = dict.fromkeys(shares, 0.0)
        smallest = sum(min(widths) for widths in self.widths.values())
        self.shortest_s = min(_SHORTEST_S, 0.6 * nodes * threads * length_s / smallest, length_s)

    def filled(self) -> list[Placement]:
        """Place jobs until no stretch of free threads is worth one."""
        placed: list[Placement] = []
        open_kinds = set(self.widths)
        while open_kinds:
            kind = self._most_behind(open_kinds)
            placement = self._place(kind)
            if placement is None:
                self.widths[kind].pop()  # no room for a job so wide; a narrower one may still fit
                open_kinds = {kind for kind in open_kinds if self.widths[kind]}
            elif kind != IDLE:
                placed.append(placement)
        ordered = sorted(placed, key=lambda slot: (slot.start_s, slot.node, slot.cpus))
        return [replace(slot, cpus=tuple(sorted(slot.cpus))) for slot in ordered]

    def _most_behind(self, kinds: set[str]) -> str:
        def behind(kind: str) -> float:
            return (self.wanted_s[kind] - self.placed_s[kind]) / self.wanted_s[kind]

        # Wide jobs come first among equals: they find no room once the narrow ones lie about.
        return max(sorted(kinds), key=lambda kind: (round(behind(kind), 1), min(self.widths[kind]), behind(kind)))

    def _place(self, kind: str) -> Placement | None:
        """Put one job where a stretch of threads is free first; None where what is left of the campaign is too short."""
        width = self._width(kind)
        node, slot, start_s = self._earliest(width)
        start_s += float(self.rng.uniform(*_GAP_S)) * min(1.0, self.length_s / 1800)
        left_s = self.length_s - start_s
        if left_s < min(self.shortest_s / 2, 0.9 * self.length_s):
            return None
        longest_s = float(np.clip((self.wanted_s[kind] - self.placed_s[kind]) / width, self.shortest_s, self.length_s))
        run_s = min(float(np.exp(self.rng.uniform(np.log(self.shortest_s), np.log(longest_s + 1e-6)))), left_s)
        if left_s - run_s < self.shortest_s / 4:
            run_s = left_s  # too little would be left for anything else
        slots = range(slot, slot + width)
        self.free_s[node, slots] = start_s + run_s
        self.placed_s[kind] += width * run_s
        cpus = tuple(cpu_of_slot(place, self.threads) for place in slots)
        return Placement(kind, node, cpus, start_s, start_s + run_s)

    def _width(self, kind: str) -> int:
        """A number of threads that does not overshoot the type's share by more than a job."""
        room_s = max(self.wanted_s[kind] - self.placed_s[kind], 0.0)
        fitting = [width for width in self.widths[kind] if width * self.shortest_s <= room_s]
        return int(self.rng.choice(fitting or self.widths[kind][:1]))

    def _earliest(self, width: int) -> tuple[int, int, float]:
        """Node, first slot and time of the stretch of threads that is free first; a random one among equals."""
        stretches = np.lib.stride_tricks.sliding_window_view(self.free_s, width, axis=1)
        free_s = stretches.max(axis=2)  # (nodes, first slots)
        firsts = np.arange(free_s.shape[1])
        socket = self.threads // 2
        straddles = (firsts // socket != (firsts + width - 1) // socket) if 0 < width <= socket else np.zeros(firsts.size, bool)
        odd = firsts % 2 == 1 if width > 1 and self.threads % 2 == 0 else np.zeros(firsts.size, bool)
        # Waiting time lost on the other threads counts too: else a wide job would leave holes everywhere.
        cost_s = free_s + 0.5 * (free_s - stretches.mean(axis=2)) + np.where(straddles | odd, np.inf, 0.0)
        best = np.flatnonzero(cost_s == cost_s.min())
        node, slot = divmod(int(self.rng.choice(best)), free_s.shape[1])
        return node, slot, float(free_s[node, slot])
