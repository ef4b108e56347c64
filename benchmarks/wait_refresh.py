"""What to tell a job that has waited for a while: how three ways of asking the same model again did on jobs that still waited.

STORMPETREL_DATA=… python -m benchmarks.wait_refresh [kth thetagpu …]     writes benchmarks/results/wait_refresh.json

One model, trained at 80 % of a log on what was known then. Of up to 700 later jobs that waited longer than ten minutes, an hour
and four hours (drawn with seed 0), the p50 and p90 of the whole wait as told at that age: `as submitted`: the forecast of their
submission, of those that wait longer; `as submitted now`: their age, and the forecast for a job that is submitted now.
"""

from __future__ import annotations

import json
import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from benchmarks.jobs_needs import LOGS
from stormpetrel.answers.studies.job_evaluation import jobs_of_files
from stormpetrel.jobs.wait.evaluation import judge
from stormpetrel.jobs.wait.model import QUANTILES, WaitModel
from stormpetrel.jobs.wait.training import QueueLog, WaitTraining, last_of_shape, queue_log

RESULT: Final = Path(__file__).parent / "results" / "wait_refresh.json"
AGES_S: Final = (600.0, 3600.0, 14400.0)
MOST: Final = 700
_NEW_ID: Final = 10_000_000


def given_its_age(model: WaitModel, values: NDArray[np.float32], age_s: float) -> NDArray[np.float64]:
    """The quantiles of those that wait longer than an age."""
    forecast = model.forecast(values)
    out = np.empty((len(values), len(QUANTILES)))
    for row, below in enumerate(forecast.below):
        past = float(np.interp(np.log1p(age_s), forecast.steps, below, left=0.0))
        levels = [past + level * (1.0 - past) for level in model.levels_]
        out[row] = np.maximum(np.expm1(np.interp(levels, below, forecast.steps)), age_s)
    return out


def again(log: QueueLog, rows: NDArray[np.int64], age_s: float) -> tuple[QueueLog, NDArray[np.int64]]:
    """The log with a copy of each of some jobs that is submitted when they have that age and leaves at once; where these are."""
    nothing = [pl.lit(None, dtype=log.jobs.schema[name]).alias(name) for name in ("start_time", "elapsed_s")]
    later = pl.col("submit_time") + timedelta(seconds=age_s)
    copies = log.jobs[rows].with_columns(
        *nothing, submit_time=later, state=pl.lit("CANCELLED"), job_id=pl.col("job_id") + _NEW_ID
    )
    copies = copies.with_columns(end_time=pl.col("submit_time") + timedelta(seconds=1))
    both = queue_log(pl.concat([log.jobs, copies]))
    at = {job: place for place, job in enumerate(both.jobs["job_id"].to_list())}
    return both, np.array([at[job + _NEW_ID] for job in log.jobs[rows]["job_id"].to_list()])


def judge_log(jobs: pl.DataFrame) -> dict[str, Any]:
    """Figures of each way at each age."""
    log = queue_log(jobs)
    training = WaitTraining(log)
    warm, cut = (float(np.quantile(log.table.submit, share)) for share in (0.7, 0.8))
    training.fit_at(warm)
    training.advance(cut)
    model, wait_s, rng = training.fit_at(cut), log.table.wait_s, np.random.default_rng(0)
    answer: dict[str, Any] = {}
    for age_s in AGES_S:
        rows = np.flatnonzero((log.table.submit >= cut) & (wait_s > age_s))
        if rows.size < 50:
            continue
        rows = np.sort(rng.choice(rows, min(MOST, rows.size), replace=False))
        both, at = again(log, rows, age_s)
        now = age_s + model.quantiles(both.features[at], last_of_shape(both.readings[at]), model.levels_)
        ways = {"as submitted": given_its_age(model, log.features[rows], age_s), "as submitted now": now}
        answer[f"{age_s:.0f} s"] = {name: judge(quantiles, wait_s[rows]).as_json() for name, quantiles in ways.items()}
    return answer


def main() -> None:
    results: dict[str, Any] = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    for name in sys.argv[1:] or ["kth", "thetagpu"]:
        file, *options = LOGS[name]
        data = jobs_of_files([str(Path(os.environ["STORMPETREL_DATA"]) / file)], options[1] if options else None)
        results[name] = judge_log(data.jobs.sort("submit_time", maintain_order=True))
        RESULT.write_text(json.dumps(results, indent=1) + "\n")
        print(name, json.dumps(results[name], indent=1), flush=True)


if __name__ == "__main__":
    main()
