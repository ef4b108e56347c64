"""Nodes of a site: what the models of CPU traces say about each of them, and about every window of every thread.

LiveSite + Viewer + NodesQuestion -> nodes -> Nodes; for the page, node_drawing -> NodeDrawing. Users see windows of their own
jobs, administrators all.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from stormpetrel.answers.background import scope_of
from stormpetrel.answers.nodes.board import NodeBoard
from stormpetrel.answers.schemas.nodes import NodeNames, NodeRow, Nodes, NodesQuestion, ScoredWindow
from stormpetrel.answers.viewer import READ
from stormpetrel.errors import NotThereError
from stormpetrel.records.traces import MIXED
from stormpetrel.records.window_frames import COUNTED, FLAGGED
from stormpetrel.traces.shipped import NAME as SHIPPED

if TYPE_CHECKING:
    from stormpetrel.answers.background import Snapshot
    from stormpetrel.answers.live_site import LiveSite
    from stormpetrel.answers.viewer import Viewer

MOST_POINTS: Final = 3_000  # on the map
MOST_NODES: Final = 40  # on the heat map
MOST_KINDS: Final = 10  # colours that can still be distinguished
OTHER_JOBS: Final = "other jobs"
_SPANS: Final = {"hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(days=7)}
_MOST_COLUMNS: Final = 96
_GAP_WINDOWS: Final = 20  # windows in a row that are missing make a gap
_BINS_S: Final = (60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, 86_400, 604_800, 2_592_000)
_SEED: Final = 7


@dataclass(frozen=True, slots=True)
class Heat:
    """Nodes over time: the highest score of any thread, NaN where none was scored."""

    nodes: tuple[str, ...]
    starts: tuple[datetime, ...]  # of the columns, UTC
    bin_s: int
    skips: bool  # columns in which no node was scored are left out: campaigns lie days apart
    worst: npt.NDArray[np.float64]  # (nodes, columns)
    of_nodes: int  # how many there are in all


@dataclass(frozen=True, slots=True)
class NodeDrawing:
    """What the page of nodes draws next to the answer: thousands of cells and points, as arrays that a figure takes as they are.

    `nodes` and `heat` compare all nodes of the span, campaign and job type, also where one node or a time is chosen. `points` are
    windows to be drawn, every flagged one and others at random: columns of TRACE_SCORE_SCHEMA, kind, job_name, user, ref and key.
    """

    nodes: tuple[NodeRow, ...]  # the worst first
    heat: Heat
    points: pl.DataFrame


def nodes(live: LiveSite, viewer: Viewer, question: NodesQuestion | None = None) -> Nodes:
    """The nodes as this viewer may see them; waits where the scores are still being read."""
    viewer.require(READ)
    return node_answer(live.boards.nodes.wait(live).value, viewer, question or NodesQuestion())


def node_answer(board: Snapshot[NodeBoard], viewer: Viewer, question: NodesQuestion) -> Nodes:
    """The same out of a board that is there already."""
    viewer.require(READ)
    return board.answer(("nodes", scope_of(viewer), question), lambda: _answer(board, viewer, question))


def node_drawing(board: Snapshot[NodeBoard], viewer: Viewer, question: NodesQuestion) -> NodeDrawing:
    """What is drawn of the same windows."""
    viewer.require(READ)
    return board.answer(("drawing of nodes", scope_of(viewer), question), lambda: _drawing(board, viewer, question))


def node_names(board: Snapshot[NodeBoard], viewer: Viewer) -> NodeNames:
    """The nodes, campaigns and job types that this viewer can choose from."""
    viewer.require(READ)
    return board.answer(("names of nodes", scope_of(viewer)), lambda: _names(windows_seen(board, viewer)))


def windows_seen(board: Snapshot[NodeBoard], viewer: Viewer) -> pl.DataFrame:
    """The scored windows that a viewer may see: all, or those of the own jobs."""
    viewer.require(READ)
    return board.answer(("windows", scope_of(viewer)), lambda: board.value.windows.filter(viewer.sees()))


def find_window(board: Snapshot[NodeBoard], viewer: Viewer, key: str) -> dict[str, Any]:
    """One window by its key; one that is not there and one of somebody else give the same error."""
    viewer.require(READ)
    cpu, _, rest = key.partition("-")
    start, _, _ = rest.partition("-")
    seen = windows_seen(board, viewer)
    matches = seen.clear()
    if cpu.isdecimal() and start.isdecimal() and len(cpu) < 9 and len(start) < 18:  # the key as text is made for a few rows only
        moment = pl.col("window_start").dt.epoch("us") == int(start)
        matches = seen.filter((pl.col("cpu") == int(cpu)) & moment).with_columns(window_key()).filter(pl.col("key") == key)
    if matches.is_empty():
        raise NotThereError("There is no such window that you may see.", hint="Choose one from the table of windows.")
    return matches.row(0, named=True)


def window_key() -> pl.Expr:
    """What a window is called in a link: `12-1763200000000000-node3-live-cluster`."""
    start = pl.col("window_start").dt.epoch("us")
    return pl.concat_str(pl.col("cpu"), start, pl.col("node", "trace", "cluster"), separator="-").alias("key")


def _answer(board: Snapshot[NodeBoard], viewer: Viewer, question: NodesQuestion) -> Nodes:
    state, seen = board.value, windows_seen(board, viewer)
    chosen = seen.filter(*_around(seen, question), *_chosen(question))
    ranked = chosen.select("score", row=pl.int_range(pl.len())).filter(chosen["job_type"] != MIXED)  # two columns, not all
    worst = chosen[ranked.top_k(question.limit, by="score")["row"]].with_columns(window_key())
    first = chosen["window_start"].min()
    rows = _nodes(chosen)
    return Nodes(
        as_of=board.at,
        own_only=not viewer.is_admin,
        lack=state.lack,
        model=state.model,
        model_version=state.model_version,
        shipped=state.model == SHIPPED,
        threshold=state.threshold,
        promise=state.promise,
        near=state.near,
        windows=int(chosen.select(COUNTED.sum()).item()),
        flagged=int(chosen.select(FLAGGED).item()),
        threads=sum(row.threads for row in rows),
        first=first if isinstance(first, datetime) else None,
        last=_end(chosen),
        latest=_end(seen),
        left_out=state.left_out if viewer.is_admin else 0,
        nodes=rows,
        worst=[ScoredWindow.model_validate(row) for row in worst.iter_rows(named=True)],
    )


def _drawing(board: Snapshot[NodeBoard], viewer: Viewer, question: NodesQuestion) -> NodeDrawing:
    seen = windows_seen(board, viewer)
    around, chosen = seen.filter(*_around(seen, question)), _chosen(question)
    rows = _nodes(around) if chosen else node_answer(board, viewer, question).nodes
    points = _few_kinds(sampled(around.filter(*chosen) if chosen else around)).with_columns(window_key())
    return NodeDrawing(tuple(rows), _heat(around), points)


def sampled(windows: pl.DataFrame, most: int = MOST_POINTS) -> pl.DataFrame:
    """At most so many windows: every flagged one (the worst, where these are too many), and of the others some at random."""
    if windows.height <= most:
        return windows
    flagged = windows.filter(pl.col("flagged")).top_k(most, by="score")
    calm = windows.filter(~pl.col("flagged"))
    return pl.concat([calm.sample(min(calm.height, most - flagged.height), seed=_SEED), flagged])


def _around(seen: pl.DataFrame, question: NodesQuestion) -> list[pl.Expr]:
    """Which windows are of the span, the campaign and the job type: those that nodes are compared by."""
    wanted = [pl.lit(True)]
    if question.campaign is not None:
        wanted.append(pl.col("trace") == question.campaign)
    if question.job_type is not None:
        wanted.append(pl.col("kind") == question.job_type)
    length = _SPANS.get(question.span)
    latest = None if length is None else seen.select(pl.col("window_start").filter(*wanted).max()).item()
    return wanted if latest is None else [*wanted, pl.col("window_start") > latest - length]


def _chosen(question: NodesQuestion) -> list[pl.Expr]:
    """Which of these are of the node and the time; empty where none is chosen."""
    wanted = []
    if question.node is not None:
        wanted.append(pl.col("node") == question.node)
    if question.since is not None:
        wanted.append(pl.col("window_start") >= question.since)
    if question.until is not None:
        wanted.append(pl.col("window_start") < question.until)
    return wanted


# A window in which the thread changed hands counts for a node only where it has no other.
WORST_SCORE: Final = pl.coalesce(pl.col("score").filter(pl.col("job_type") != MIXED).max(), pl.col("score").max())


def _nodes(windows: pl.DataFrame) -> list[NodeRow]:
    """The nodes of these windows, those with the most flagged ones first."""
    worst = pl.when(pl.col("job_type") != MIXED).then(pl.col("score")).otherwise(-1.0).arg_max()
    at_once = windows.group_by("node", "trace", "window_start").agg(
        threads=COUNTED.sum()
    )  # rows may stand for threads without one
    most = at_once.group_by("node").agg(pl.col("threads").max().alias("at_once"))
    sums = windows.group_by("node").agg(
        pl.col("cpu").n_unique().alias("threads"),
        COUNTED.sum().alias("windows"),
        FLAGGED.alias("flagged"),
        WORST_SCORE.alias("worst"),
        *(pl.col(name).get(worst) for name in ("kind", "job_id", "ref")),
    )
    threads = pl.max_horizontal(pl.col("threads").cast(pl.Int64), "at_once").alias("threads")
    whole = sums.join(most, on="node").with_columns(threads).drop("at_once")
    ordered = whole.sort("flagged", "worst", "node", descending=[True, True, False])
    return [NodeRow.model_validate(row) for row in ordered.iter_rows(named=True)]


def _heat(windows: pl.DataFrame) -> Heat:
    """The highest score per node and stretch of time; where there are many nodes, those with the most flagged windows."""
    if windows.is_empty():
        return Heat((), (), 0, False, np.zeros((0, 0)), 0)
    bin_s, skips = _columns(windows)
    number = (pl.col("window_start").dt.epoch("us") // (bin_s * 1_000_000)).alias("number")
    cells = windows.group_by("node", number).agg(WORST_SCORE.alias("score"), FLAGGED.alias("flagged"))
    sums = cells.group_by("node").agg(pl.col("flagged").sum(), pl.col("score").max())
    names = sums.sort("flagged", "score", "node", descending=[True, True, False])["node"].head(MOST_NODES).sort()
    numbers = cells["number"].unique().sort()
    columns = numbers if skips else pl.int_range(numbers[0], numbers[-1] + 1, eager=True).alias("number")
    shown = cells.join(names.to_frame().with_row_index("row"), on="node")
    shown = shown.join(columns.to_frame().with_row_index("column"), on="number")
    worst = np.full((names.len(), columns.len()), np.nan)
    worst[shown["row"].to_numpy(), shown["column"].to_numpy()] = shown["score"].to_numpy()
    starts = tuple(datetime.fromtimestamp(number * bin_s, UTC) for number in columns)
    return Heat(tuple(names), starts, bin_s, skips, worst, sums.height)


def _columns(windows: pl.DataFrame) -> tuple[int, bool]:
    """The width of a column in seconds, and whether those in which nothing was scored are to be left out."""
    window_s = max(1, round(float(windows["window_s"].max() or 1)))  # type: ignore[arg-type]
    starts = windows["window_start"].unique().sort().dt.epoch("s")
    steps = starts.diff().drop_nulls()
    length_s, empty_s = int(steps.sum()), int(steps.filter(steps > _GAP_WINDOWS * window_s).sum())
    skips = empty_s > length_s / 2
    return _bin_s(length_s - empty_s if skips else length_s, window_s), skips


def _bin_s(length_s: float, window_s: int) -> int:
    """The width of a column: a window, or so many seconds that all fit on a screen."""
    fitting = (width for width in (window_s, *_BINS_S) if width >= window_s and length_s / width < _MOST_COLUMNS)
    return next(fitting, int(length_s / _MOST_COLUMNS) + 1)


def _few_kinds(points: pl.DataFrame) -> pl.DataFrame:
    """The kinds that are there most often under their names, the rest as one: there are no more colours."""
    if points["kind"].n_unique() <= MOST_KINDS:
        return points
    common = points["kind"].value_counts().sort("count", "kind", descending=[True, False])["kind"].head(MOST_KINDS - 1)
    return points.with_columns(kind=pl.when(pl.col("kind").is_in(common.implode())).then("kind").otherwise(pl.lit(OTHER_JOBS)))


def _names(seen: pl.DataFrame) -> NodeNames:
    node, campaign, job_type = (seen[name].unique().sort().to_list() for name in ("node", "trace", "kind"))
    return NodeNames(node=node, campaign=campaign, job_type=job_type)


def _end(windows: pl.DataFrame) -> datetime | None:
    if windows.is_empty():
        return None
    last = windows.row(int(windows["window_start"].arg_max() or 0), named=True)
    end: datetime = last["window_start"] + timedelta(seconds=float(last["window_s"]))
    return end
