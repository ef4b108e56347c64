"""How good allocations and forecasts of the wait would have been on a log; needs no site.

JobInput + NeedsQuestion -> evaluate_needs -> NeedsEvaluation and the rows of the judged jobs;
JobInput + WaitQuestion -> evaluate_waits -> WaitEvaluation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from stormpetrel.answers.schemas.job_needs import NeedsEvaluation, NeedsQuestion, WaitEvaluation, WaitQuestion

if TYPE_CHECKING:
    import polars as pl

    from stormpetrel.answers.studies.job_evaluation import JobInput

Progress = Callable[[str], None]


def evaluate_needs(
    data: JobInput, question: NeedsQuestion, *, progress: Progress = lambda _: None
) -> tuple[NeedsEvaluation, pl.DataFrame]:
    """Judge what each job would have been given; with it one row per judged job: job, given, used, request, run_s, cores."""
    from stormpetrel.jobs.needs import evaluation

    result = evaluation.evaluate_needs(
        data.jobs, question.resource, protocol=question.protocol, seed=question.seed, progress=progress
    )
    answer = NeedsEvaluation.model_validate(result.as_json())
    return answer.model_copy(update={"notes": [*answer.notes, *data.notes]}), result.rows


def evaluate_waits(data: JobInput, question: WaitQuestion, *, progress: Progress = lambda _: None) -> WaitEvaluation:
    """Judge the p50 and p90 of the wait that each job would have been told at its submission."""
    from stormpetrel.jobs.wait import evaluation

    result = evaluation.evaluate_waits(data.jobs, protocol=question.protocol, seed=question.seed, progress=progress)
    return WaitEvaluation.model_validate(result.as_json())
