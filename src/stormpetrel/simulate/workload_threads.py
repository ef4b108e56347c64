"""Which threads of which nodes a job holds, from its record: cores are shared out as the recorded site shares them.

job frame with nodes -> held_threads -> HeldThreads of the jobs that run in a span of time. A record names the nodes of a job and
its cores, not which core is on which node: all jobs before it are gone through again, in the order in which they started.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl

from stormpetrel.records.nodes import expand_nodes
from stormpetrel.simulate.campaign_schedule import cpu_of_slot


@dataclass(frozen=True, slots=True)
class HeldThreads:
    """The threads that a job (a row of its frame) holds on one node, and from when to when (Unix seconds)."""

    job: int
    node: str
    cpus: tuple[int, ...]
    start_s: int
    end_s: int


def held_threads(jobs: pl.DataFrame, *, threads_per_node: int, since_s: int, until_s: int) -> list[HeldThreads]:
    """What the jobs hold that run between the two times, by job and node; no thread is held by two jobs at once."""
    free: defaultdict[str, list[int]] = defaultdict(lambda: list(range(threads_per_node)))  # slots in core order, lowest first
    ends: list[tuple[int, int, str, list[int]]] = []
    found: list[HeldThreads] = []
    for job, start_s, end_s, shares in _shared_out(jobs, threads_per_node, until_s):
        if end_s <= since_s:  # who is gone before the span holds nothing in it
            continue
        while ends and ends[0][0] <= start_s:
            _, _, node, slots = heapq.heappop(ends)
            free[node] = sorted(free[node] + slots)
        for node, cores in shares:
            slots, free[node] = free[node][:cores], free[node][cores:]
            heapq.heappush(ends, (end_s, len(found), node, slots))
            cpus = tuple(sorted(cpu_of_slot(slot, threads_per_node) for slot in slots))
            found.append(HeldThreads(job, node, cpus, start_s, end_s))
    return sorted(found, key=lambda one: (one.job, one.node))


def _shared_out(jobs: pl.DataFrame, threads_per_node: int, until_s: int) -> Iterator[tuple[int, int, int, list[tuple[str, int]]]]:
    """Row, start, end, and cores on each node of every job that ran, in the order of their starts.

    Of several nodes the emptiest is filled first: as workload_site.places gives them away.
    """
    facts = (
        jobs.with_row_index("_row")
        .filter(pl.col("start_time").is_not_null(), pl.col("end_time") > pl.col("start_time"), pl.col("node_list").is_not_null())
        .select(
            pl.col("_row").cast(pl.Int64),
            pl.col("start_time").dt.epoch("s").alias("start"),
            pl.col("end_time").dt.epoch("s").alias("end"),
            pl.coalesce("cpus", "req_cpus", pl.lit(1)).cast(pl.Int64).clip(1).alias("cores"),
            "node_list",
        )
        .filter(pl.col("start") < until_s)
        .sort("start", "_row")
    )
    nodes_of = {listed: expand_nodes(listed) for listed in facts["node_list"].unique()}
    free: defaultdict[str, int] = defaultdict(lambda: threads_per_node)
    ends: list[tuple[int, int, list[tuple[str, int]]]] = []
    for row, start_s, end_s, cores, listed in facts.iter_rows():
        while ends and ends[0][0] <= start_s:
            for node, taken in heapq.heappop(ends)[2]:
                free[node] += taken
        shares, left = [], cores
        for node in sorted(nodes_of[listed], key=lambda name: -free[name]):
            taken = min(free[node], left)
            if taken:
                shares.append((node, taken))
                free[node] -= taken
                left -= taken
        heapq.heappush(ends, (end_s, row, shares))
        yield row, start_s, end_s, shares


def drawn_nodes(held: list[HeldThreads], count: int, seed: int) -> list[str]:
    """So many of the nodes that work in the span, drawn by the seed, by name."""
    working = sorted({one.node for one in held})
    drawn = np.random.default_rng([seed, len(working)]).permutation(len(working))[:count]
    return sorted(working[place] for place in drawn.tolist())
