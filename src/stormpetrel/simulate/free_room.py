"""Room that a recorded schedule leaves: where and when one more job fits without moving any other.

what every node holds when -> FreeRoom.earliest -> (start, nodes). The recording cannot give way, so the job fits in around what
runs and what is still to come, on nodes that nobody else has then; it shares a node where there are cores and memory for both.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from stormpetrel.simulate.spec import ClusterSpec


class Held(NamedTuple):
    """Cores and memory of one node that a job holds from `start_s` until `end_s`."""

    start_s: int
    end_s: int
    cores: int
    mem_mib: int


class FreeRoom:
    """The nodes of a cluster and what others hold of them."""

    def __init__(self, spec: ClusterSpec) -> None:
        self._cores, self._mem_mib = spec.cores_per_node, spec.mem_per_node_mib
        self._held: list[list[Held]] = [[] for _ in range(spec.nodes)]

    def take(self, nodes: Sequence[int], held: Held) -> None:
        """Note what a job holds of each of its nodes."""
        for node in nodes:
            self._held[node].append(held)

    def earliest(
        self, cores: int, mem_mib: int, nodes: int, *, after_s: int, run_s: int, avoid: Collection[int] = ()
    ) -> tuple[int, list[int]] | None:
        """When and where a job finds `nodes` nodes with room for all of `run_s` seconds; None if it never does.

        Of several nodes the fullest is taken, as the scheduler does.
        """
        allowed = [node for node in range(len(self._held)) if node not in avoid]
        gaps = {node: [gap for gap in self._gaps(node, cores, mem_mib, after_s) if gap[1] - gap[0] >= run_s] for node in allowed}
        for start in sorted({begin for spans in gaps.values() for begin, _ in spans}):
            fitting = [node for node, spans in gaps.items() if any(b <= start and start + run_s <= e for b, e in spans)]
            if len(fitting) >= nodes:
                return start, sorted(sorted(fitting, key=lambda node: self._free_cores(node, start))[:nodes])
        return None

    def _gaps(self, node: int, cores: int, mem_mib: int, after_s: int) -> Iterator[tuple[int, float]]:
        """From when until when there is room on a node; the last gap has no end."""
        changes = [(max(held.start_s, after_s), -held.cores, -held.mem_mib) for held in self._held[node] if held.end_s > after_s]
        changes += [(held.end_s, held.cores, held.mem_mib) for held in self._held[node] if held.end_s > after_s]
        free_cores, free_mib = self._cores, self._mem_mib
        begin: int | None = after_s if self._fits(free_cores, free_mib, cores, mem_mib) else None
        for moment, together in groupby(sorted(changes), key=lambda change: change[0]):
            for _, more_cores, more_mib in together:
                free_cores, free_mib = free_cores + more_cores, free_mib + more_mib
            fits = self._fits(free_cores, free_mib, cores, mem_mib)
            if begin is not None and not fits:
                yield begin, moment
                begin = None
            elif begin is None and fits:
                begin = moment
        if begin is not None:
            yield begin, math.inf

    def _free_cores(self, node: int, moment_s: int) -> int:
        return self._cores - sum(held.cores for held in self._held[node] if held.start_s <= moment_s < held.end_s)

    @staticmethod
    def _fits(free_cores: int, free_mib: int, cores: int, mem_mib: int) -> bool:
        return free_cores >= cores and free_mib >= mem_mib
