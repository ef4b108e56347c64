"""Rows of the log, drawn again with replacement and in any order: the trivial baseline, and no way to share a log.

Workload -> fit -> RowBootstrap -> batches -> frames.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from stormpetrel.engine import Progress
from stormpetrel.errors import ModelError
from stormpetrel.synth.rows.row_generator import RowGenerator
from stormpetrel.synth.rows.row_table import Table


class RowBootstrap(RowGenerator):
    """Real rows in random order: every column and every dependence within a row is right, and nothing between rows."""

    name = "rows"

    def _fit_table(self, table: Table, progress: Progress) -> None:
        self.table_ = table
        progress(1.0, "rows read")

    def _draw(self, rows: int, rng: np.random.Generator) -> Table:
        return self.table_.take(rng.integers(self.table_.height, size=rows))

    def _files(self) -> dict[str, bytes]:
        raise ModelError(
            "The generator 'rows' holds the log's own rows and is never saved.",
            hint="Use it in synth evaluate and synth compare; save the default generator instead.",
        )

    def _restore(self, record: dict[str, Any], files: Mapping[str, bytes]) -> None:
        raise ValueError("rows are never saved")
