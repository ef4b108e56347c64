"""Which jobs to ask about: uncertainty × density, as `alarms ask` chooses, against random choice and uncertainty alone.

STORMPETREL_DATA=… python -m benchmarks.jobs_active [--only kth,theta,mira] [--seeds 10] -> benchmarks/results/jobs_active.json

Of a public log the jobs of the first 80 % (by submission) are the pool, the rest are judged, 4,000 of each drawn by lot. At first
100 jobs drawn by lot are answered; then ten at a time are chosen and answered, 20 times. The model is the same each time
(XGBoost, 50 trees of depth 4, on what is known at submission, history as of then). Printed is the area under precision over
recall on the judged jobs, mean and standard deviation over seeds, after 100, 200 and 300 answers. Answers are what the log says.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from stormpetrel.answers.studies.job_evaluation import jobs_of_files
from stormpetrel.jobs.active_learning import failure_probability, informativeness, region_density
from stormpetrel.jobs.exam.resampling import Truth
from stormpetrel.jobs.moments import Moment
from stormpetrel.jobs.training import label_jobs
from stormpetrel.learn.lean_imports import classifier_class
from stormpetrel.learn.metrics import pr_auc
from stormpetrel.records.arrays import Floats, Matrix

RESULTS: Final = Path(__file__).parent / "results" / "jobs_active.json"
LOGS: Final = {
    "kth": ("KTH-SP2-1996-2.1-cln.swf.gz", None, ("FAILED",), None),
    "theta": ("theta.csv.gz", "lumos", ("FAILED", "TIMEOUT", "CANCELLED"), datetime(2023, 1, 1, tzinfo=UTC)),
    "mira": ("mira.csv.gz", "lumos", ("FAILED", "TIMEOUT", "CANCELLED"), None),
}
START, AT_ONCE, ROUNDS = 100, 10, 20
SHOWN: Final = (100, 200, 300)
MOST_POOL, MOST_JUDGED = 4_000, 4_000
Choose = Callable[[Floats, Floats, np.random.Generator], Floats]
STRATEGIES: Final[dict[str, Choose]] = {
    "random": lambda probability, _density, rng: rng.random(probability.size),
    "uncertainty": lambda probability, _density, _rng: informativeness(probability, np.ones_like(probability)),
    "uncertainty_x_density": lambda probability, density, _rng: informativeness(probability, density),
}


def log_of(name: str, data: Path) -> tuple[Matrix, Truth, Matrix, Truth]:
    """Pool and judged jobs of a log: features at submission and whether each failed."""
    file, form, failed, since = LOGS[name]
    read = jobs_of_files([str(data / "jobs" / file)], form)
    read = read.since(since) if since else read
    settings = replace(read.training(), failure_states=failed)
    labelled = label_jobs(read.jobs, settings, [Moment.SUBMIT])
    rows = np.flatnonzero(labelled.reached(Moment.SUBMIT))
    values = np.asarray(labelled.features[Moment.SUBMIT].values, dtype=np.float32)
    cut = int(0.8 * rows.size)
    pool, judged = rows[:cut], rows[cut:]
    pool = np.sort(np.random.default_rng(0).permutation(pool)[:MOST_POOL])
    judged = np.sort(np.random.default_rng(1).permutation(judged)[:MOST_JUDGED])
    return values[pool], labelled.failed[pool], values[judged], labelled.failed[judged]


def curve(pool: Matrix, truth: Truth, judged: Matrix, judged_truth: Truth, density: Floats, name: str, seed: int) -> list[float]:
    """PR area after each number of answers that is shown."""
    rng = np.random.default_rng([seed, 7])
    chosen = np.zeros(truth.size, dtype=bool)
    chosen[rng.permutation(truth.size)[:START]] = True
    areas = []
    for _ in range(ROUNDS + 1):
        model = classifier_class()(
            n_estimators=50, max_depth=4, learning_rate=0.1, tree_method="hist", n_jobs=1, random_state=seed
        )
        model.fit(pool[chosen], truth[chosen])
        if int(chosen.sum()) in SHOWN:
            areas.append(float(pr_auc(judged_truth, failure_probability(model, judged)) or 0.0))
        rest = np.flatnonzero(~chosen)
        worth = STRATEGIES[name](failure_probability(model, pool[rest]), density[rest], rng)
        chosen[rest[np.argsort(-worth, kind="stable")[:AT_ONCE]]] = True
    return areas


def measured(name: str, data: Path, seeds: int) -> dict[str, Any]:
    """One log: each way of choosing, over seeds."""
    pool, truth, judged, judged_truth = log_of(name, data)
    density = region_density(pool, 0)
    answer: dict[str, Any] = {"pool": int(truth.size), "judged": int(judged_truth.size), "failed_share": float(truth.mean())}
    for strategy in STRATEGIES:
        areas: npt.NDArray[np.float64] = np.array(
            [curve(pool, truth, judged, judged_truth, density, strategy, seed) for seed in range(seeds)]
        )
        answer[strategy] = {
            str(count): {"mean": round(statistics.fmean(of), 3), "std": round(statistics.pstdev(of), 3), "n": seeds}
            for count, of in zip(SHOWN, areas.T.tolist(), strict=True)
        }
        print(name, strategy, {count: figures["mean"] for count, figures in answer[strategy].items()}, flush=True)
    return answer


def main() -> None:
    """Run the logs, print the figures, write them down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(LOGS))
    parser.add_argument("--seeds", type=int, default=10)
    options = parser.parse_args()
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in options.only.split(","):
        kept[name] = measured(name, Path(os.environ["STORMPETREL_DATA"]), options.seeds)
        RESULTS.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
