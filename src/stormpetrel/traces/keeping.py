"""What is kept of a moment that the watch has scored: all of it on a small site, a bounded part of it on a large one.

windows and scores of one moment, Quota -> kept_windows, kept_scores. A node's threads are kept together: an unusual thread is
compared with the others of its node, and a network that looks at neighbours can only learn from all of them. Rows of scores stand
for those that were left out, so that counts of windows and of flags stay exact, node by node.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

SAMPLE_SHARE: Final = 1 / 3  # of the windows that are kept: those of nodes drawn by lot, for the next training
SCORE_BYTES: Final = 32  # of a row of scores on the disk
_SEED: Final = 19
_DAY_S: Final = 86_400
_GROWTHS: Final = (2, 4, 16, 256)  # each row stands for so many times as many windows as the one above it
_MEGABYTE: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Quota:
    """How many windows, and how many rows of scores, are kept of one moment at most."""

    windows: int
    scores: int

    @classmethod
    def of_day(cls, *, windows_mb: float, scores_mb: float, window_s: float, steps: int) -> Quota:
        """That of megabytes a day; a window is three shares of four bytes for each of its steps, and a little for its names."""
        moments = _DAY_S / window_s
        window_bytes = 12 * steps + 32
        return cls(
            windows=max(1, math.floor(windows_mb * _MEGABYTE / moments / window_bytes)),
            scores=max(1, math.floor(scores_mb * _MEGABYTE / moments / SCORE_BYTES)),
        )

    def of_share(self, share: float) -> Quota:
        """That of a part of the nodes."""
        return Quota(max(1, math.ceil(share * self.windows)), max(1, math.ceil(share * self.scores)))


def kept_windows(scores: pl.DataFrame, most: int) -> pl.Series:
    """Which windows of a moment are kept, as a mask over the rows of their scores (node, cpu, window_start, flagged, score).

    All, where they are no more than `most`. Else a third of the room is for nodes drawn by lot, with all their threads, and the
    rest for flagged windows, highest first, and then for the other threads of their nodes, the node with most flags first.
    """
    if scores.height <= most:
        return pl.repeat(True, scores.height, eager=True)
    rows = scores.select("node", "cpu", "window_start", "flagged", "score").with_row_index("row")
    nodes = rows.group_by("node").agg(
        threads=pl.len(), flags=pl.col("flagged").sum(), highest=pl.col("score").max(), start=pl.col("window_start").max()
    )
    by_lot = nodes.sort(pl.struct("node", "start").hash(_SEED), "node")
    first = int(by_lot["threads"][0])
    drawn = _as_many(by_lot, max(math.floor(most * SAMPLE_SHARE), first if first <= most else 0))
    chosen = rows["node"].is_in(drawn.implode())
    room = most - int(chosen.sum())
    flagged = rows.filter(~chosen & pl.col("flagged")).top_k(room, by="score")["row"]
    chosen = chosen | rows["row"].is_in(flagged.implode())
    unusual = nodes.filter(pl.col("flags") > 0).select("node", "flags", "highest")
    unflagged = rows.filter(~chosen).group_by("node").agg(threads=pl.len()).join(unusual, on="node")
    whole = _as_many(unflagged.sort("flags", "highest", "node", descending=[True, True, False]), room - flagged.len())
    return (chosen | rows["node"].is_in(whole.implode())).rename("kept")


def kept_scores(scores: pl.DataFrame, kept: pl.Series, most: int) -> pl.DataFrame:
    """The rows of scores of a moment that are kept, each with how many windows it stands for; they add up to all of them.

    Those of windows that are kept stand for themselves, and so do flagged ones while these are not half of what there is room
    for. Of the others of a node and a job (of a node, where there are many jobs) the highest, the next, one of the next two, one
    of the next four, and so on, by lot: what is above any score is known best where it matters most.
    """
    alone = kept | scores["flagged"] if int((kept | scores["flagged"]).sum()) <= max(most // 2, int(kept.sum())) else kept
    if scores.height <= most:
        alone = pl.repeat(True, scores.height, eager=True)
    themselves = scores.filter(alone).with_columns(stands_for=pl.lit(1, dtype=pl.Int32))
    rest = scores.filter(~alone)
    room = most - themselves.height
    drawn = rest
    for by, growth in [(["node", "job_id", "job_type", "flagged"], 2), *((["node", "flagged"], growth) for growth in _GROWTHS)]:
        drawn = _drawn(rest, by, growth)
        if drawn.height <= room:
            break
    return pl.concat([themselves, drawn]).sort("trace", "window_start", "node", "cpu", maintain_order=True)


def _drawn(rows: pl.DataFrame, by: list[str], growth: int) -> pl.DataFrame:
    """One row of each stretch of ranks (0, 1, 2 to 3, 4 to 7, ... where they grow by two), with the length of the stretch."""
    if not rows.height:
        return rows
    ordered = rows.sort("node", "cpu", "window_start")
    place = ordered.select(pl.col("score").rank("ordinal", descending=True).over(by)).to_series().to_numpy() - 1
    ends = float(growth) ** np.arange(math.ceil(math.log(rows.height + 1, growth)) + 1)
    drawn = (
        ordered.with_columns(
            _stretch=pl.Series(np.searchsorted(ends, place, side="right")),
            _lot=pl.struct("node", "cpu", "window_start").hash(_SEED),
        )
        .sort("_lot", "node", "cpu")
        .group_by([*by, "_stretch"], maintain_order=True)
        .agg(pl.all().exclude("stands_for", "_lot").first(), stands_for=pl.len().cast(pl.Int32))
    )
    return drawn.select(rows.columns)


def _as_many(nodes: pl.DataFrame, room: int) -> pl.Series:
    """The first nodes, in this order, whose threads there is room for."""
    return nodes.filter(pl.col("threads").cum_sum() <= room)["node"]
