"""One window and what the model makes of it, next to the other threads of its job and its node at the same moment.

LiveSite + Viewer + key of a window -> window_traces -> WindowTraces. Of other threads a user sees those of the own jobs.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from stormpetrel.answers.nodes.board import NodeBoard
from stormpetrel.answers.nodes.nodes import find_window, window_key, windows_seen
from stormpetrel.answers.overview.overview import again
from stormpetrel.answers.schemas.base import Problem
from stormpetrel.answers.schemas.nodes import ScoredWindow, ThreadTrace, WindowTraces
from stormpetrel.answers.viewer import READ
from stormpetrel.errors import NotThereError, StormpetrelError
from stormpetrel.records.traces import MODES, Rates
from stormpetrel.records.window_frames import WINDOW_KEY, windows_of

if TYPE_CHECKING:
    from stormpetrel.answers.live_site import LiveSite
    from stormpetrel.answers.viewer import Viewer
    from stormpetrel.lifecycle.trace_models import TraceModel

MOST_THREADS: Final = 128  # that are drawn next to each other
_THREAD: Final = ("key", "node", "cpu", "kind", "job_id", "ref", "score", "flagged", "max_iowait")


def window_traces(live: LiveSite, viewer: Viewer, key: str) -> WindowTraces:
    """A window by its key, as this viewer may see it, with the threads of its job first, then the rest of its node."""
    viewer.require(READ)
    board = live.boards.nodes.latest(live).value
    window = find_window(board, viewer, key)
    neighbours = _neighbours(windows_seen(board, viewer), window, key)
    kept = again(lambda: _kept(live, window, neighbours["node"].unique().to_list()))
    if not kept.filter(pl.col("node") == window["node"], pl.col("cpu") == window["cpu"]).height:
        raise NotThereError("The window itself is no longer kept, only its score.", hint="Choose a later one.")
    return _answer(live, board.value, window, neighbours, kept)


def model_of(live: LiveSite, board: NodeBoard) -> TraceModel:
    """The model in use, by which windows are drawn once more."""
    return board.network.load(live.site)


def _answer(
    live: LiveSite, board: NodeBoard, window: dict[str, Any], neighbours: pl.DataFrame, kept: pl.DataFrame
) -> WindowTraces:
    matches = neighbours.join(kept.with_row_index("row").select("node", "cpu", "row"), on=["node", "cpu"], maintain_order="left")
    shown = matches.filter((pl.int_range(pl.len()) < MOST_THREADS) | pl.col("chosen"))
    windows = windows_of(kept)  # with the threads of others: a network that looks at neighbours needs all of them
    order = shown["row"].to_numpy()
    reconstruction, error = None, None
    try:
        reconstruction = model_of(live, board).scorer.reconstruct(windows)[order]
    except StormpetrelError as problem:
        error = problem
    return WindowTraces(
        window_start=window["window_start"],
        window=ScoredWindow.model_validate(window),
        judged=window["flagged"] or (board.threshold is not None and window["score"] <= board.threshold),
        step_s=windows.step_s,
        modes=list(MODES),
        of_threads=matches.height,
        problem=None if error is None else str(error),
        error=None if error is None else Problem(what=error.what, hint=error.hint),
        threads=_threads(shown.select(*_THREAD, "same_job"), windows.rates[order], reconstruction),
    )


def _threads(rows: pl.DataFrame, original: Rates, reconstruction: Rates | None) -> list[ThreadTrace]:
    """One thread for each row; the traces are (threads, steps, 4). A hundred thousand numbers out of arrays are not checked."""
    measured = original.transpose(0, 2, 1).tolist()  # (threads, 4, steps)
    drawn = [None] * len(measured) if reconstruction is None else reconstruction.transpose(0, 2, 1).tolist()
    threads = zip(rows.iter_rows(named=True), measured, drawn, strict=True)
    return [ThreadTrace.model_construct(**row, original=before, reconstruction=after) for row, before, after in threads]


def _neighbours(seen: pl.DataFrame, window: dict[str, Any], key: str) -> pl.DataFrame:
    """The scored windows of the same moment: of the same node, and of the same job on others."""
    moment = (pl.col("window_start") == window["window_start"]) & (pl.col("trace") == window["trace"])
    same_job = (pl.col("job_id") == pl.lit(window["job_id"], dtype=pl.String)).fill_null(False)
    rows = seen.filter(moment, pl.col("cluster") == window["cluster"]).with_columns(window_key(), same_job=same_job)
    near = rows.filter(pl.col("same_job") | (pl.col("node") == window["node"])).with_columns(chosen=pl.col("key") == key)
    here = pl.col("node") == window["node"]
    ordered = near.sort("same_job", here, "node", "cpu", descending=[True, True, False, False])
    return ordered.select(*_THREAD, "same_job", "chosen")


def _kept(live: LiveSite, window: dict[str, Any], nodes: list[str]) -> pl.DataFrame:
    """The windows themselves, of these nodes at that moment, everybody's."""
    start = window["window_start"]
    rows = live.site.cpu_windows.read(
        since=start, until=start + timedelta(seconds=1), nodes=[*nodes], traces=[window["trace"]]
    ).filter(pl.col("window_start") == start, pl.col("cluster") == window["cluster"])
    windows = rows.collect().unique(WINDOW_KEY, keep="last").sort("node", "cpu")
    length = (pl.col("user").list.len() * pl.col("step_s") - window["window_s"]).abs() < 0.5 * pl.col("step_s")
    return windows.filter(length)  # one model sees windows of one length
