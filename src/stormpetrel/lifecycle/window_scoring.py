"""What a trace model says of windows: one frame of them at a time, here or in a worker.

TraceModel, frame of CPU_WINDOW_SCHEMA -> score_frame -> frame of TRACE_SCORE_SCHEMA.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
import polars as pl

from stormpetrel.engine import Progress
from stormpetrel.lifecycle.trace_learning import rows_by_length
from stormpetrel.private_files import write_private
from stormpetrel.records.traces import MIXED_JOB
from stormpetrel.records.window_frames import TRACE_SCORE_SCHEMA, WINDOW_KEY, float_lists, windows_of
from stormpetrel.traces.diagnosis import place
from stormpetrel.traces.networks.fitting_windows import FittingScorer

if TYPE_CHECKING:
    from stormpetrel.lifecycle.trace_models import TraceModel
    from stormpetrel.traces.networks.architecture import Scorer


_NO_SCORER: Final = cast("Scorer", None)  # it is made anew from the files where it arrives


class WindowScorer:
    """Scores windows with a model; sent to a worker, it takes the files of the model along, which are loaded there once."""

    def __init__(self, model: TraceModel, folder: Path | None) -> None:
        self.model = model
        self._folder = folder

    def __call__(self, rows: pl.DataFrame, _progress: Progress) -> pl.DataFrame | None:
        """The scores of the rows, in their order; None where there are none."""
        return score_frame(self.model, rows) if rows.height else None

    def __reduce__(self) -> tuple[Any, ...]:
        assert self._folder is not None
        files = {path.name: path.read_bytes() for path in self._folder.iterdir()}
        return _sent_scorer, (replace(self.model, scorer=_NO_SCORER, detector=None, hierarchy=None), files)


def _sent_scorer(model: TraceModel, files: Mapping[str, bytes]) -> WindowScorer:
    """The same in another process."""
    from stormpetrel.traces.networks.runtime import TraceScorer

    with TemporaryDirectory(prefix="stormpetrel-") as folder:
        for name, content in files.items():
            write_private(Path(folder) / name, content)
        scorer = FittingScorer(TraceScorer.load(Path(folder)), model.step_s)
    return WindowScorer(replace(model, scorer=scorer), None)


def score_frame(model: TraceModel, rows: pl.DataFrame) -> pl.DataFrame:
    """What a model says of windows of CPU_WINDOW_SCHEMA, as a frame of TRACE_SCORE_SCHEMA, in the order of the rows."""
    numbered = rows.with_row_index("_row")
    parts = [_scores_of_length(model, part) for part in rows_by_length(numbered)]
    return pl.concat(parts).sort("_row").drop("_row")


def _scores_of_length(model: TraceModel, rows: pl.DataFrame) -> pl.DataFrame:
    windows = windows_of(rows)
    placed = place(model.scorer, model.map, model.bad_io, windows)
    threshold = np.inf if model.threshold is None else model.threshold
    distance = pl.lit(None, dtype=pl.Float32) if placed.bad_io_distance is None else pl.Series(placed.bad_io_distance)
    region = pl.Series(model.regions.names_of(placed.embedding).name.tolist(), dtype=pl.String)
    return rows.select(
        "_row",
        *WINDOW_KEY,
        "split",
        "job_id",
        "job_type",
        window_s=pl.lit(windows.window_s, dtype=pl.Float32),
        model=pl.lit(model.name),
        model_version=pl.lit(model.version, dtype=pl.Int64),
        score=pl.Series(placed.score),
        # A thread that changed hands is unlike anything learnt, and everybody knows why.
        flagged=pl.Series((placed.score > threshold) & (windows.job != MIXED_JOB)),
        x=pl.Series(placed.x),
        y=pl.Series(placed.y),
        max_iowait=pl.Series(placed.max_iowait),
        bad_io_distance=distance,
        stands_for=pl.lit(None, dtype=pl.Int32),
        region=region.replace("", None),
        embedding=float_lists(placed.embedding),
    ).cast({name: dtype for name, dtype in TRACE_SCORE_SCHEMA.items()})  # noqa: C416  a Schema is refused beside `_row`
