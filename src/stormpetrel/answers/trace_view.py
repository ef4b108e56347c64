"""One window and what the model makes of it, beside the other threads of its job and its node at the same moment.

LiveSite + Viewer + key of a window -> trace_view -> TraceView. Of other threads a user sees those of the own jobs.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

import polars as pl

from stormpetrel.answers.node_board import BOARDS, NodeBoard
from stormpetrel.answers.nodes import find_window, window_key, windows_seen
from stormpetrel.answers.overview import again
from stormpetrel.answers.viewer import READ
from stormpetrel.errors import NotThereError, StormpetrelError
from stormpetrel.records.traces import MODES, Rates
from stormpetrel.records.window_frames import WINDOW_KEY, windows_of

if TYPE_CHECKING:
    from stormpetrel.answers.background import Made
    from stormpetrel.answers.live_site import LiveSite
    from stormpetrel.answers.viewer import Viewer
    from stormpetrel.lifecycle.trace_models import TraceModel

MOST_THREADS: Final = 128  # that are drawn beside each other
_TOLD: Final = ("key", "node", "cpu", "kind", "job_id", "ref", "score", "flagged", "max_iowait")


@dataclass(frozen=True, slots=True)
class TraceView:
    """A window of one thread, and its neighbours.

    `threads` has key, node, cpu, kind, job_id, ref, score, flagged, max_iowait, same_job and chosen, those of its job
    first, then the rest of its node; `original` and `reconstruction` are in the same order.
    """

    window: dict[str, Any]
    step_s: float
    threads: pl.DataFrame
    original: Rates  # (threads, steps, 4)
    reconstruction: Rates | None  # (threads, steps, 4); None where it cannot be had
    problem: StormpetrelError | None  # why it cannot
    of_threads: int  # how many there are in all
    threshold: float | None = None  # above which windows are flagged now; None: nothing is

    @property
    def is_judged(self) -> bool:
        """Whether the window was held against a threshold: not before there was one, nor where its thread changed hands."""
        return bool(self.window["flagged"]) or (self.threshold is not None and self.window["score"] <= self.threshold)

    @property
    def place(self) -> int:
        """Which of the threads is the chosen one."""
        return int(self.threads["chosen"].arg_max() or 0)

    @property
    def job_threads(self) -> int:
        """How many of the threads shown are of the same job, itself included."""
        return int(self.threads["same_job"].sum())

    def as_json(self) -> dict[str, Any]:
        """For other programs."""
        rows = self.threads.select(*_TOLD, "same_job").iter_rows(named=True)
        return {
            "window_start": self.window["window_start"].isoformat(),
            "step_s": self.step_s,
            "modes": list(MODES),
            "of_threads": self.of_threads,
            "problem": None if self.problem is None else str(self.problem),
            "threads": [{**row, **self._traces(place)} for place, row in enumerate(rows)],
        }

    def _traces(self, place: int) -> dict[str, Any]:
        """Of one thread, a list per mode."""
        made = None if self.reconstruction is None else self.reconstruction[place].T.tolist()
        return {"original": self.original[place].T.tolist(), "reconstruction": made}


def trace_view(live: LiveSite, viewer: Viewer, key: str) -> TraceView:
    """A window by its key, as this viewer may see it."""
    viewer.require(READ)
    made = BOARDS.latest(live).value
    window = find_window(made, viewer, key)
    beside = _beside(windows_seen(made, viewer), window, key)
    kept = again(lambda: _kept(live, window, beside["node"].unique().to_list()))
    if not kept.filter(pl.col("node") == window["node"], pl.col("cpu") == window["cpu"]).height:
        raise NotThereError("The window itself is no longer kept, only its score.", hint="Choose a later one.")
    return _view(live, made, window, beside, kept)


def _view(live: LiveSite, made: Made[NodeBoard], window: dict[str, Any], beside: pl.DataFrame, kept: pl.DataFrame) -> TraceView:
    found = beside.join(kept.with_row_index("row").select("node", "cpu", "row"), on=["node", "cpu"], maintain_order="left")
    threads = found.filter((pl.int_range(pl.len()) < MOST_THREADS) | pl.col("chosen"))
    windows = windows_of(kept)  # with the threads of others: a network that looks at neighbours needs all of them
    order = threads["row"].to_numpy()
    reconstruction, problem = None, None
    try:
        reconstruction = model_of(live, made.value).scorer.reconstruct(windows)[order]
    except StormpetrelError as error:
        problem = error
    return TraceView(
        window=window,
        step_s=windows.step_s,
        threads=threads.drop("row"),
        original=windows.rates[order],
        reconstruction=reconstruction,
        problem=problem,
        of_threads=found.height,
        threshold=made.value.threshold,
    )


def _beside(seen: pl.DataFrame, window: dict[str, Any], key: str) -> pl.DataFrame:
    """The scored windows of the same moment: of the same node, and of the same job on others."""
    moment = (pl.col("window_start") == window["window_start"]) & (pl.col("trace") == window["trace"])
    same_job = (pl.col("job_id") == pl.lit(window["job_id"], dtype=pl.String)).fill_null(False)
    rows = seen.filter(moment, pl.col("cluster") == window["cluster"]).with_columns(window_key(), same_job=same_job)
    near = rows.filter(pl.col("same_job") | (pl.col("node") == window["node"])).with_columns(chosen=pl.col("key") == key)
    here = pl.col("node") == window["node"]
    ordered = near.sort("same_job", here, "node", "cpu", descending=[True, True, False, False])
    return ordered.select(*_TOLD, "same_job", "chosen")


def _kept(live: LiveSite, window: dict[str, Any], nodes: list[str]) -> pl.DataFrame:
    """The windows themselves, of these nodes at that moment, everybody's."""
    start = window["window_start"]
    rows = live.site.cpu_windows.read(
        since=start, until=start + timedelta(seconds=1), nodes=[*nodes], traces=[window["trace"]]
    ).filter(pl.col("window_start") == start, pl.col("cluster") == window["cluster"])
    found = rows.collect().unique(WINDOW_KEY, keep="last").sort("node", "cpu")
    length = (pl.col("user").list.len() * pl.col("step_s") - window["window_s"]).abs() < 0.5 * pl.col("step_s")
    return found.filter(length)  # one model sees windows of one length


class _Models:
    """The network of each site, loaded once per version."""

    def __init__(self) -> None:
        self._kept: WeakKeyDictionary[LiveSite, tuple[tuple[Any, ...], TraceModel]] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def get(self, live: LiveSite, tables: tuple[Any, ...]) -> TraceModel:
        from stormpetrel.lifecycle.trace_models import load_trace_model

        with self._lock:
            known = self._kept.get(live)
            if known is None or known[0] != tables[2:]:
                known = tables[2:], load_trace_model(live.site)
                self._kept[live] = known
            return known[1]


_MODELS: Final = _Models()


def model_of(live: LiveSite, board: NodeBoard) -> TraceModel:
    """The model in use, by which windows are drawn once more."""
    return _MODELS.get(live, board.tables)
