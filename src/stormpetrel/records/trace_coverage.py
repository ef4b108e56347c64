"""Which nodes are judged in a window of CPU traces when there is no time for all of them, and how that is written down.

SamplingPlan -> includes(node, window); what judging a window took -> next_plan -> the SamplingPlan of the one after it. A plan
depends on its row of TRACE_COVERAGE_SCHEMA alone, so that whoever goes on after a kill judges the same nodes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final
from zlib import crc32

import polars as pl

from stormpetrel.records.traces import LIVE

TRACE_COVERAGE_SCHEMA: Final = pl.Schema(
    {
        "cluster": pl.String(),
        "window_start": pl.Datetime("us", "UTC"),
        "window_s": pl.Float32(),
        "every": pl.Int32(),  # each node is judged in every so many windows; 1: in all
        "nodes": pl.Int32(),  # that the server had samples of
        "judged": pl.Int32(),  # of them
        "skipped": pl.Int32(),  # and not: nothing is known of them in this window
        "passed_over": pl.Int32(),  # whole windows between this one and the next that is judged
        "lag_s": pl.Float64(),  # from the end of the window until it was scored
        "load": pl.Float64(),  # seconds that reading and scoring took, of each second that the window lasts
        "next_every": pl.Int32(),  # the same for the next window
        "next_calm": pl.Int32(),
        "next_first": pl.List(pl.String()),  # nodes that are judged in it in any case
    }
)

NEIGHBOURS: Final = 8  # nodes with successive numbers that are judged in the same windows: jobs mostly run on such
_TURNS_OF_A_SHARD: Final = 8  # one after the other, so that a rotation is as even within a shard
HIGHEST_LOAD: Final = 0.8  # from which on a watch that is behind does not catch up in any useful time
MORE_TIME: Final = "Give the watch more cores, or raise traces.window_s or the scrape interval."
_AIM: Final = 0.5  # the load that a longer rotation aims at
_SPARE: Final = 0.6  # with twice as many nodes the load would be at most this: the rotation can be shorter
_CALM_WINDOWS: Final = 3  # in a row, before it is
_NUMBER: Final = re.compile(r"(\d+)\D*$")


@dataclass(frozen=True, slots=True)
class SamplingPlan:
    """Which nodes are judged in a window: every node in every so many windows, and `first` in any case."""

    every: int = 1
    first: frozenset[str] = frozenset()
    calm: int = 0  # windows in a row that left time for twice as many nodes

    def includes(self, node: str, window: int) -> bool:
        """Whether a node is judged in the window of this number (its start, divided by its length)."""
        return self.every == 1 or node in self.first or is_due(node, window, self.every)


def is_due(node: str, window: int, every: int) -> bool:
    """Whether it is a node's turn in the rotation: in one of any `every` windows one after the other."""
    return _turn(node) % every == window % every


def in_shard(node: str, shard: str) -> bool:
    """Whether a node is in a shard such as `2/8`, the second of eight; 64 successive nodes are in one. Empty: every node is."""
    if not shard:
        return True
    number, shards = (int(text) for text in shard.split("/"))
    return _turn(node) // _TURNS_OF_A_SHARD % shards == number - 1


@lru_cache(maxsize=1 << 17)
def _turn(node: str) -> int:
    """A number that eight neighbours (n016 to n023) share, and the eight after them have one more."""
    number = _NUMBER.search(node)
    if number is None:
        return crc32(node.encode())
    return crc32(node[: number.start()].encode()) + int(number[1]) // NEIGHBOURS


def next_plan(plan: SamplingPlan, *, load: float, lag_windows: float, longest: int, least: int = 1) -> SamplingPlan:
    """Return the plan of the next window, without the nodes that come first.

    Parameters
    ----------
    load
        Seconds that this window took to read and score, divided by its length.
    lag_windows
        From its end until it was scored, divided by its length.
    longest
        A node is judged at least in every so many windows; the rotation is a power of two up to it.
    least
        The rotation that there must be for want of memory, whatever the time; a power of two.
    """
    most = 1 << max(0, longest.bit_length() - 1)
    following = _by_time(plan, load, lag_windows, most)
    return following if following.every >= least else SamplingPlan(min(most, least))


def rotation_of(threads: int, most_threads: int) -> int:
    """Return the rotation, a power of two, in which no more than so many threads are read in a window."""
    return 1 << max(0, math.ceil(math.log2(max(1, threads) / most_threads)))


def _by_time(plan: SamplingPlan, load: float, lag_windows: float, most: int) -> SamplingPlan:
    if lag_windows > 1 and load > HIGHEST_LOAD:
        growth = 1 << max(1, math.ceil(math.log2(load / _AIM)))
        return SamplingPlan(min(most, plan.every * growth))
    if plan.every == 1 or lag_windows > 1 or 2 * load > _SPARE:
        return SamplingPlan(min(most, plan.every))
    if plan.calm + 1 < _CALM_WINDOWS:
        return SamplingPlan(min(most, plan.every), calm=plan.calm + 1)
    return SamplingPlan(min(most, plan.every // 2))


def chosen_first(incidents: Iterable[str], unusual: Iterable[str], *, nodes: int, every: int) -> frozenset[str]:
    """Return the nodes that are judged whose turn or not: of incidents, then unusual ones, in this order.

    At most as many as have their turn in a window, so that a cluster of which every node is unusual is still sampled.
    """
    room = max(NEIGHBOURS, nodes // max(1, every))
    return frozenset(list(dict.fromkeys([*incidents, *unusual]))[:room])


def drawn_in_turn(rows: pl.DataFrame, coverage: pl.DataFrame) -> pl.DataFrame:
    """Leave out of rows (trace, node, window_start) those of nodes that were judged besides their turn.

    They were judged because they were unusual: what is calm must not be learnt from them. `coverage` is of TRACE_COVERAGE_SCHEMA.
    """
    sampled = coverage.filter(pl.col("every") > 1).select("window_start", "window_s", "every")
    if not sampled.height or not rows.height:
        return rows
    live = pl.lit(LIVE).alias("trace")
    keys = rows.select("trace", "node", "window_start").unique().join(sampled.with_columns(live), on=["trace", "window_start"])
    number = (pl.col("window_start").dt.epoch("us") / 1e6 / pl.col("window_s")).round().cast(pl.Int64)
    besides = [
        (trace, node, start)
        for trace, node, start, window, every in keys.select(
            "trace", "node", "window_start", number.alias("number"), "every"
        ).iter_rows()
        if not is_due(node, window, every)
    ]
    names = ["trace", "node", "window_start"]
    schema = {name: rows.schema[name] for name in names}
    return rows.join(pl.DataFrame(besides, schema=schema, orient="row"), on=names, how="anti", maintain_order="left")


def coverage_text(every: int, window_s: float) -> str:
    """Sentence on what is judged while the watch is behind."""
    return (
        f"CPU traces are judged in part: each node in one of {every} windows ({every * window_s:.0f} s), because there is no "
        "time for all of them, or no room (traces.most_threads). Nodes that are unusual are judged in each."
    )
