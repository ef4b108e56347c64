"""Whether thresholds travel: risks corrected online, on every public log and with its failure rate halved and doubled.

STORMPETREL_DATA=… python -m benchmarks.jobs_recalibration [--only kth,theta,supercloud,mira,thetagpu,curie] [--seeds 3]

Protocol `time`, at submission. The judged part is taken as it is, and thinned at random until half (twice) as many of its
jobs fail: failed jobs are left out for half the rate, others for twice. `judged`: only what is judged is thinned, the users'
histories are not. `log`: the jobs left out never were. Beside the corrected forecasts stand the fixed threshold and "as the
user's last job", and the calibration error that risks which are exactly right would have with so few jobs. Constants of the
recalibration were looked at on kth, theta and supercloud only. Writes benchmarks/results/jobs_recalibration.json.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stormpetrel.errors import NotEnoughJobsError
from stormpetrel.jobs.exam.baselines import last_outcome
from stormpetrel.jobs.exam.evaluation import PROFILE_SHARE
from stormpetrel.jobs.model import JobOutcomeModel
from stormpetrel.jobs.moments import Moment
from stormpetrel.jobs.training import LabelledJobs, TrainingSettings, fit_risk_at, label_jobs
from stormpetrel.learn.metrics import best_f1_threshold, expected_calibration_error, judge, scores_at
from stormpetrel.learn.splits import INNER_CUTS, TIME_CUT, splits_at
from stormpetrel.learn.threads import wait_politely
from stormpetrel.learn.working_point import Costs, Stream, walk
from stormpetrel.sources.formats import ReadOptions
from stormpetrel.sources.reading import read_log

wait_politely()  # before XGBoost is first imported
RESULT: Final = Path(__file__).parent / "results" / "jobs_recalibration.json"
ALCF: Final = TrainingSettings(("FAILED", "TIMEOUT", "CANCELLED"))
SINCE_2023: Final = datetime(2023, 1, 1, tzinfo=UTC)
HIGHEST: Final = 0.9  # a rate that cannot be doubled is raised to this
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Log:
    """A public log, and what counts as a failure in it."""

    file: str
    settings: TrainingSettings = ALCF
    format_name: str | None = None
    since: datetime | None = None


LOGS: Final = {
    "kth": Log("jobs/KTH-SP2-1996-2.1-cln.swf.gz", TrainingSettings(("FAILED",))),
    "theta": Log("jobs/theta.csv.gz", since=SINCE_2023, format_name="lumos"),
    "supercloud": Log("jobs/mit_supercloud_sample.csv.gz", TrainingSettings(), "supercloud"),
    "mira": Log("jobs/mira.csv.gz", format_name="lumos"),
    "thetagpu": Log("jobs/thetagpu.csv.gz", since=SINCE_2023, format_name="lumos"),
    "curie": Log("jobs/CEA-Curie-2011-2.1-cln.swf.gz", TrainingSettings(("FAILED",), ("CANCELLED",))),
}


@dataclass(frozen=True)
class Judged:
    """Jobs that are judged: forecasts, outcomes and times, and whether the user's last job had failed."""

    stream: Stream
    last: NDArray[np.float64]

    def take(self, which: Mask) -> Judged:
        """Return some of them."""
        return Judged(self.stream.take(which), self.last[which])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(LOGS), help="logs, separated by commas")
    parser.add_argument(
        "--seeds", type=int, default=3, help="of the thinning of judged jobs; the log itself is thinned by seed 0"
    )
    given = parser.parse_args()
    results: dict[str, Any] = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    for name in given.only.split(","):
        began = time.monotonic()
        results[name] = measure(LOGS[name], given.seeds)
        results[name]["seconds"] = round(time.monotonic() - began, 1)
        RESULT.write_text(json.dumps(results, indent=1) + "\n")
        show(name, results[name])


def measure(log: Log, seeds: int) -> dict[str, Any]:
    """Every variant of one log; the model is fitted once, for thinning changes nothing before the cut."""
    path = str(Path(os.environ["STORMPETREL_DATA"]) / log.file)
    jobs = read_log([path], log.format_name, ReadOptions()).jobs
    if log.since is not None:
        jobs = jobs.filter(pl.col("submit_time") >= log.since)
    labelled = label_jobs(jobs, log.settings, [Moment.SUBMIT], profiles_from=PROFILE_SHARE)
    (split,) = splits_at((TIME_CUT,), labelled.submit, labelled.end, labelled.usable)
    model = fit_risk_at(labelled, Moment.SUBMIT, split.train, log.settings)
    before = slices(labelled, split.train, log.settings)
    threshold = best_f1_threshold(before.failed, before.forecast)
    variants: dict[str, list[dict[str, Any]]] = {}
    for variant, judged in thinned(labelled, split.test, model, log.settings, seeds):
        variants.setdefault(variant, []).append(figures(judged, before, threshold))
    return {"jobs": jobs.height, "variants": {name: over_seeds(parts) for name, parts in variants.items()}}


def slices(labelled: LabelledJobs, train: Mask, settings: TrainingSettings) -> Stream:
    """Out-of-time forecasts inside the training part."""
    parts = []
    for inner in splits_at(INNER_CUTS, labelled.submit, labelled.end, train):
        try:
            model = fit_risk_at(labelled, Moment.SUBMIT, inner.train, settings)
        except NotEnoughJobsError:
            continue
        parts.append(judged_jobs(labelled, inner.test, model).stream)
    empty = Stream(np.empty(0), np.empty(0, dtype=bool), np.empty(0), np.empty(0))  # a log whose first half has one outcome only
    return Stream(*(np.concatenate([getattr(part, name) for part in (empty, *parts)]) for name in Stream.__slots__))


def judged_jobs(labelled: LabelledJobs, which: Mask, model: JobOutcomeModel) -> Judged:
    rows = labelled.features[Moment.SUBMIT].rows(which)
    stream = Stream(model.risk(rows).astype(np.float64), labelled.failed[which], labelled.submit[which], labelled.end[which])
    return Judged(stream, last_outcome(rows, labelled.failed[which], rows))


def thinned(
    labelled: LabelledJobs, test: Mask, model: JobOutcomeModel, settings: TrainingSettings, seeds: int
) -> Iterator[tuple[str, Judged]]:
    """The judged jobs as they are, and thinned to half and to twice the failure rate."""
    whole = judged_jobs(labelled, test, model)
    yield "as it is", whole
    rate = float(labelled.failed[test].mean())
    for word, wanted in (("halved", rate / 2), ("doubled", min(2 * rate, HIGHEST))):
        for seed in range(seeds):
            left = keep(labelled.failed, test, wanted, seed)
            yield f"judged {word}", whole.take(left[test])
            if seed == 0:
                again = label_jobs(labelled.jobs.filter(left | ~test), settings, [Moment.SUBMIT], profiles=labelled.profiles)
                yield f"log {word}", judged_jobs(again, again.usable & (again.submit >= labelled.submit[test].min()), model)


def keep(failed: Mask, judged: Mask, wanted: float, seed: int) -> Mask:
    """Which of the judged rows stay so that this share of them fails."""
    bad, good = int((judged & failed).sum()), int((judged & ~failed).sum())
    drawn = np.random.default_rng(seed).random(failed.size)
    if wanted < bad / (bad + good):
        return judged & (~failed | (drawn < wanted * good / ((1 - wanted) * bad)))
    return judged & (failed | (drawn < bad * (1 - wanted) / (wanted * good)))


def figures(judged: Judged, before: Stream, threshold: float) -> dict[str, Any]:
    stream = judged.stream
    fixed = judge(stream.failed, stream.forecast, threshold=threshold, n_train=0)
    walked = walk(stream, before, Costs())
    corrected: dict[str, Any] = walked.figures(stream.failed)
    last = scores_at(stream.failed, judged.last, 0.5)[2]
    flags = corrected["flags_per_day"]
    return {
        "jobs": stream.failed.size,
        "failed_share": fixed.failed_share,
        "pr_auc": fixed.pr_auc,
        "fixed": {"f1": fixed.f1, "precision": fixed.precision, "recall": fixed.recall, "ece": fixed.ece},
        "recalibrated": corrected,
        "last_outcome_f1": last,
        "ece_of_exact_risks": exact_ece(walked.probability),
        "holds": corrected["f1"] >= last - 0.01 and corrected["ece"] <= 0.05 and flags["realised"] <= 1.5 * flags["promised"],
    }


def exact_ece(probability: NDArray[np.float64], draws: int = 10) -> float:
    """The calibration error that these risks have where each is exactly right: what so few jobs cannot tell."""
    rng = np.random.default_rng(0)
    return float(
        np.mean([expected_calibration_error(rng.random(probability.size) < probability, probability) for _ in range(draws)])
    )


def over_seeds(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """One variant over seeds: the mean of each figure, and whether every seed holds."""
    first = parts[0]
    merged: dict[str, Any] = {}
    for name, value in first.items():
        several = [part[name] for part in parts]
        if isinstance(value, dict):
            merged[name] = over_seeds(several)
        elif isinstance(value, bool):
            merged[name] = all(several)
        else:
            merged[name] = float(np.mean(several))
    return merged


def show(name: str, result: dict[str, Any]) -> None:
    print(
        f"{name}: {result['jobs']:,} jobs, {result['seconds']:.0f} s; "
        "F1 of the last outcome | fixed F1, ECE | online F1, ECE (exact)"
    )
    for variant, found in result["variants"].items():
        fixed, online = found["fixed"], found["recalibrated"]
        flags = online["flags_per_day"]
        print(
            f"  {variant:<15}{found['failed_share']:6.3f} failed |{found['last_outcome_f1']:6.3f} |{fixed['f1']:6.3f}"
            f"{fixed['ece']:6.3f} |{online['f1']:6.3f}{online['ece']:6.3f} ({found['ece_of_exact_risks']:.3f}) | flags a day "
            f"{flags['promised']:.0f} promised, {flags['realised']:.1f} made{'' if found['holds'] else '   does not hold'}",
            flush=True,
        )


if __name__ == "__main__":
    main()
