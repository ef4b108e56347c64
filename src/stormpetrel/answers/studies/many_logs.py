"""The evaluation of many job logs, each by itself: a log is an item of the engine, read by the worker that judges it.

files, EvaluationQuestion -> evaluate_logs -> JobEvaluation by file, in the order of the files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from stormpetrel import __version__
from stormpetrel.answers.schemas.job_evaluation import EvaluationQuestion, JobEvaluation
from stormpetrel.answers.studies.job_evaluation import evaluate_forecasts, jobs_of_files
from stormpetrel.config import JobsSection
from stormpetrel.engine import ONE_PROCESS, Engine, KeptResults, Progress, no_progress
from stormpetrel.engine.codecs import JsonCodec
from stormpetrel.errors import NotThereError


@dataclass(frozen=True, slots=True)
class LogReading:
    """How the logs are read, and what counts as what in them."""

    section: JobsSection
    format_name: str | None = None
    fields: tuple[str, ...] | None = None
    since: datetime | None = None


def evaluate_logs(
    files: Sequence[Path],
    question: EvaluationQuestion,
    reading: LogReading,
    *,
    engine: Engine = ONE_PROCESS,
    keep: Path | None = None,
    progress: Progress = no_progress,
) -> dict[str, JobEvaluation]:
    """Judge the forecasts on each of the logs; with `keep`, those whose results lie there are not judged again.

    Each worker reads its log by its path. The name of a log in `keep` has a digest of its content: one that grew is judged anew.
    """
    missing = [file for file in files if not file.is_file()]
    if missing:
        raise NotThereError(f"There is no file {missing[0]}.", hint="Name job logs.")
    paths = list(dict.fromkeys(file.resolve() for file in files))
    digests = {path: _digest(path) for path in paths} if keep else {}
    run = {
        "study": "jobs evaluate",
        "version": __version__,
        "question": question.model_dump(mode="json"),
        "section": reading.section.model_dump(mode="json"),
        "reading": [reading.format_name, reading.fields, None if reading.since is None else reading.since.isoformat()],
    }
    kept = None if keep is None else KeptResults(keep, run, JsonCodec[JobEvaluation](JobEvaluation))
    results = engine.map(
        _EvaluateLog(question, reading),
        paths,
        name=lambda path: f"{path} ({digests[path][:8]})" if digests else str(path),
        progress=progress,
        kept=kept,
    )
    return {str(path): result for path, result in zip(paths, results, strict=True)}


@dataclass(frozen=True, slots=True)
class _EvaluateLog:
    """Reads a log and judges the forecasts on it."""

    question: EvaluationQuestion
    reading: LogReading

    def __call__(self, path: Path, progress: Progress) -> JobEvaluation:
        progress(0.0, "reading")
        reading = self.reading
        data = replace(jobs_of_files([str(path)], reading.format_name, reading.fields), section=reading.section)
        if reading.since is not None:
            data = data.since(reading.since)
        return evaluate_forecasts(data, self.question, progress=lambda text: progress(0.5, text))[0]


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
