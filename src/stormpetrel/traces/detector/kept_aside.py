"""Kept aside: how odd calm windows look to levels that were learnt from other times, as the windows of the next campaign will be.

statistics, layout -> keep_aside -> KeptAside. Time is cut into blocks, at pauses first; each block is judged by levels that were
learnt from the others, but for the one that its past reaches into. Where too little would be left to learn from, that one teaches
as well, and a window whose past lies in it is left out: its past would look calmer than it is, and the window odder. Where there
is too little time even for that, ten short blocks are taken as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from stormpetrel.records.arrays import Floats
from stormpetrel.traces.detector.layout import LOOK_BACK, Layout, Past, is_after_a_pause
from stormpetrel.traces.detector.node_level import NodeLevel
from stormpetrel.traces.detector.statistics import top_mean
from stormpetrel.traces.detector.thread_level import ThreadLevel

Mask = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.intp]
Features = Callable[[ThreadLevel, Floats], Floats]  # of nodes, by a thread level and the past of threads
# The margins of all node groups by trees that learn from some of them, by levels and the past of threads.
Margins = Callable[[ThreadLevel, NodeLevel, Floats, Mask], Floats]

_MOMENTS: Final = 3 * LOOK_BACK  # of a block at least: a third of them has a past in the block before
_SHORT_MOMENTS: Final = LOOK_BACK  # where that makes one block only: no past reaches farther than into the block before
_MOST_BLOCKS: Final = 8
_SHORT_BLOCKS: Final = 10
_NEW_SHARE: Final = 0.0625  # of a node's threads: one that shows what was never seen is enough
_FEWEST: Final = 40  # node windows whose past lies in their own block


@dataclass(frozen=True, slots=True, eq=False)
class KeptAside:
    """Surprises of calm windows by levels that had not seen them; NaN where a window tells nothing."""

    thread: Floats  # (windows,)
    node_features: Floats  # (node groups,)
    node_top: Floats  # (node groups,) of the oddest threads
    node_contrast: Floats  # (node groups,) of trees that learnt from the other blocks
    node_new: Floats  # (node groups,) of the threads that show most of what no other block has shown
    thread_usual: Floats  # (2,) mean log distance with and without a past
    node_usual: Floats  # (2,)


def keep_aside(
    statistics: Floats,
    layout: Layout,
    features: Features,
    margins: Margins,
    window_s: float,
    seed: int,
    top_share: float,
    *,
    by_hour: bool = False,
    with_peers: bool = True,
) -> KeptAside:
    """Judge every block of time by levels that were learnt from the others.

    Parameters
    ----------
    statistics
        Of each window, (windows, statistics).
    features
        What the node level looks at, by the thread level of a block.
    margins
        What trees say of node groups that learnt from the groups named.
    top_share
        Of a node's threads, the oddest.
    by_hour, with_peers
        Whether the time of day, and the other nodes of a job, are looked at.
    """
    block, is_apart = time_blocks(layout.node_start_s, window_s)
    left_out = _left_out(block, layout)
    whole = _not_learnt(layout.node_past, block, left_out)
    if not is_apart or whole.sum() < _FEWEST:
        block, whole = short_blocks(layout.node_start_s), np.ones(layout.nodes, dtype=bool)
        left_out = {number: {number} for number in np.unique(block).tolist()}
        is_apart = False
    of_thread = np.where(layout.node >= 0, block[np.maximum(layout.node, 0)], -1)
    thread, novelty, node = np.full(len(layout.node), np.nan), np.zeros(len(layout.node)), np.full(layout.nodes, np.nan)
    contrast = np.full(layout.nodes, np.nan)
    for kept in np.unique(block):
        unseen = list(left_out[int(kept)])
        learn = layout.counted & ~np.isin(of_thread, unseen)
        level = ThreadLevel.fit(statistics, layout, learn if learn.any() else layout.counted, seed, by_hour=by_hour)
        away = level.away(statistics, layout)
        past = level.past(away, layout)
        thread[of_thread == kept] = level.distance.log_distance(level.left(away, past, layout))[of_thread == kept]
        novelty[of_thread == kept] = level.novelty(statistics[of_thread == kept])
        seen = features(level, past)
        others = ~np.isin(block, unseen)
        others = others if others.any() else ~others
        nodes = NodeLevel.fit(seen, layout, others, by_hour=by_hour, with_peers=with_peers)
        contrast[block == kept] = margins(level, nodes, past, others)[block == kept]
        left = nodes.left(seen, nodes.expected(seen, layout))
        node[block == kept] = nodes.distance.log_distance(left / nodes.spread(left, layout))[block == kept]
    apart = _not_learnt(layout.thread_past, of_thread, left_out) if is_apart else np.ones(len(thread), dtype=bool)
    threads = apart & layout.counted
    usual, node_usual = _usual(thread, layout.thread_past, threads), _usual(node, layout.node_past, whole)
    surprise = _less_own(thread, usual, layout.thread_past, ThreadLevel.own_surprise_of)
    of_node = _less_own(node, node_usual, layout.node_past, NodeLevel.own_surprise_of)
    top = top_mean(np.nan_to_num(surprise), layout.node, layout.nodes, top_share)
    new = node_novelty(novelty, layout)
    empty = np.isnan(top) | ~whole
    of_node, top, contrast, new = (np.where(empty, np.nan, values) for values in (of_node, top, contrast, new))
    return KeptAside(np.where(threads, surprise, np.nan), of_node, top, contrast, new, usual, node_usual)


def node_novelty(novelty: Floats, layout: Layout) -> Floats:
    """The novelty of each node group: that of the few threads that show most of it."""
    return top_mean(novelty, layout.node, layout.nodes, _NEW_SHARE)


def time_blocks(start_s: Floats, window_s: float) -> tuple[Numbers, bool]:
    """The block of time that each start lies in, and whether there are two or more.

    Blocks begin at pauses, over which no past reaches, and long spans between them are cut into blocks of three pasts or more; a
    single span that is too short for that into blocks of one past or more.
    """
    block, blocks = _blocks(start_s, window_s, _MOMENTS)
    if blocks < 2:
        block, blocks = _blocks(start_s, window_s, _SHORT_MOMENTS)
    return block, blocks > 1


def _blocks(start_s: Floats, window_s: float, fewest: int) -> tuple[Numbers, int]:
    """Blocks of so many moments at least, and how many there are."""
    moments, place = np.unique(start_s, return_inverse=True)
    span = np.concatenate([[0], np.cumsum(is_after_a_pause(moments, window_s))]) if moments.size else moments
    block, blocks = np.zeros(moments.size, dtype=np.intp), 0
    for number in np.unique(span):
        rows = np.flatnonzero(span == number)
        pieces = max(1, rows.size // fewest)
        block[rows] = blocks + np.arange(rows.size) * pieces // rows.size
        blocks += pieces
    if blocks > _MOST_BLOCKS:
        block, blocks = block * _MOST_BLOCKS // blocks, _MOST_BLOCKS
    return block[place.ravel()], blocks


def short_blocks(start_s: Floats) -> Numbers:
    """Which of ten blocks of time each start lies in; as many different moments in each."""
    moments, place = np.unique(start_s, return_inverse=True)
    return np.asarray(place.ravel() * min(_SHORT_BLOCKS, moments.size) // max(1, moments.size))


def _left_out(block: Numbers, layout: Layout) -> dict[int, set[int]]:
    """For each block, the blocks that nothing is learnt from to judge it: itself, and those that its past reaches into.

    Where that leaves too little to learn from, itself alone.
    """
    reached = block[np.maximum(layout.node_past.rows, 0)]
    blocks = {}
    for number in np.unique(block).tolist():
        rows = block == number
        seen = {number, *reached[rows][layout.node_past.rows[rows] >= 0].tolist()}
        blocks[number] = seen if (~np.isin(block, list(seen))).sum() >= _FEWEST else {number}
    return blocks


def _not_learnt(past: Past, block: Numbers, left_out: Mapping[int, set[int]]) -> Mask:
    """Which rows have no past, or one in blocks only that nothing was learnt from to judge them."""
    reached = block[np.maximum(past.rows, 0)]
    apart = np.zeros(len(block), dtype=bool)
    for number, unseen in left_out.items():
        rows = block == number
        apart[rows] = ((past.rows[rows] < 0) | np.isin(reached[rows], list(unseen))).all(axis=1)
    return apart


def _usual(distance: Floats, past: Past, rows: Mask) -> Floats:
    known = np.isfinite(distance) & rows
    fallback = float(distance[known].mean()) if known.any() else 0.0
    parts = (distance[known & some] for some in (past.known, ~past.known))
    return np.array([part.mean() if part.size else fallback for part in parts])


def _less_own(distance: Floats, usual: Floats, past: Past, own: Callable[[Floats, Past], Floats]) -> Floats:
    surprise = np.nan_to_num(distance - np.where(past.known, usual[0], usual[1]))
    return np.where(np.isnan(distance), np.nan, surprise - own(surprise, past))
