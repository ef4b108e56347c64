"""Every score of the exam, for others to judge: one row per window, scorer and fault in a CSV file.

ScoredWindows -> ScoreFile.write -> level,trace,node,start_s,fault,severity,scorer,score. Threads are named node/cpu and jobs
node:id; untouched windows have an empty fault. The file appears when it is whole.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self

import polars as pl

from stormpetrel.errors import UsageError
from stormpetrel.private_files import writing_private
from stormpetrel.records.spreadsheet import without_formulas
from stormpetrel.traces.exam.study import ScoredWindows

COLUMNS: Final = ("level", "trace", "node", "start_s", "fault", "severity", "scorer", "score")


class ScoreFile:
    """A CSV file that grows with the exam."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows = 0
        self._open = ExitStack()
        self._file: IO[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            self._file = self._open.enter_context(writing_private(self.path))
        except OSError as error:
            raise UsageError(
                f"{self.path} cannot be written: {error.strerror}.", hint="Name a file in a folder of yours."
            ) from None
        self._file.write((",".join(COLUMNS) + "\n").encode())
        return self

    def write(self, scores: ScoredWindows) -> None:
        """Add the scores of one scorer."""
        assert self._file is not None
        frame = pl.DataFrame(
            {
                "level": pl.Series([scores.level] * len(scores.score), dtype=pl.String),
                "trace": pl.Series(scores.trace, dtype=pl.String),
                "node": pl.Series(scores.node, dtype=pl.String),
                "start_s": scores.start_s,
                "fault": pl.Series([scores.fault or None] * len(scores.score), dtype=pl.String),
                "severity": pl.Series([scores.severity or None] * len(scores.score), dtype=pl.String),
                "scorer": pl.Series([scores.scorer] * len(scores.score), dtype=pl.String),
                "score": scores.score,
            }
        ).filter(pl.col("score").is_finite())
        without_formulas(frame).write_csv(self._file, include_header=False)
        self.rows += frame.height

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._open.__exit__(kind, error, trace)
