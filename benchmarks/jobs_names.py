"""Whether n-grams of job names and scripts help to forecast failures; writes benchmarks/results/jobs_names.json.

STORMPETREL_DATA=… python -m benchmarks.jobs_names [--seeds 10] [--logs xdmod,simulated]

Each name and script is cut into its three-letter pieces, which are counted in 64 columns (by a hash, so that no name is kept):
once with digits as they are, once with all digits alike. The risk at submission is fitted with these columns and without them on
the jobs before 80 % of the log, and judged on those after it. Logs: the sacct sample of xdmod, whose names are hashes (nothing
can be learnt of their pieces: a check against leaks), and simulated sites of 40 days, one per seed, whose names are application
and campaign. The families of applications (`user_family` and others) are among the features in all variants.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stormpetrel.jobs.features import FeatureMatrix
from stormpetrel.jobs.moments import Moment
from stormpetrel.jobs.training import LabelledJobs, TrainingSettings, fit_risk_at, label_jobs
from stormpetrel.learn.metrics import pr_auc, roc_auc
from stormpetrel.learn.splits import TIME_CUT, splits_at
from stormpetrel.simulate.cluster import simulate
from stormpetrel.simulate.spec import ClusterSpec
from stormpetrel.sources.formats import ReadOptions
from stormpetrel.sources.reading import read_log

RESULT: Final = Path(__file__).parent / "results" / "jobs_names.json"
XDMOD_FIELDS: Final = (
    "jobid,jobidraw,cluster,partition,qos,account,group,gid,user,uid,submit,eligible,start,end,elapsed,exitcode,state,nnodes,ncpus,"
    "reqcpus,reqmem,reqtres,alloctres,timelimit,nodelist,jobname"
)
BUCKETS: Final = 64
PIECE: Final = 3
DAYS: Final = 40
FIRST_SEED: Final = 41
VARIANTS: Final = ("without", "digits alike", "digits as they are")


def pieces(text: str, *, digits: bool) -> NDArray[np.float32]:
    """How many three-letter pieces of a text fall into each bucket."""
    plain = text.lower() if digits else re.sub(r"\d+", "#", text.lower())
    counts = np.zeros(BUCKETS, np.float32)
    for at in range(len(plain) + 1):
        counts[zlib.crc32(f"^{plain}$"[at : at + PIECE].encode()) % BUCKETS] += 1.0
    return counts


def with_pieces(matrix: FeatureMatrix, jobs: pl.DataFrame, *, digits: bool) -> FeatureMatrix:
    """The features with the pieces of each job's name and script."""
    texts = jobs.select(pl.concat_str(pl.col("job_name").fill_null(""), pl.lit(" "), pl.col("script_path").fill_null("")))
    known: dict[str, NDArray[np.float32]] = {}
    rows = [known.setdefault(text, pieces(text, digits=digits)) for text in texts.to_series().to_list()]
    names = (*matrix.names, *(f"name.piece_{bucket}" for bucket in range(BUCKETS)))
    return FeatureMatrix(matrix.moment, names, np.concatenate([matrix.values, np.stack(rows)], axis=1))


def judge(labelled: LabelledJobs, seed: int) -> dict[str, dict[str, float]]:
    """ROC and PR area of each variant on the jobs after the cut."""
    plain = labelled.features[Moment.SUBMIT]
    [split] = splits_at((TIME_CUT,), labelled.submit, labelled.end, labelled.reached(Moment.SUBMIT))
    truth, settings, figures = labelled.failed[split.test], TrainingSettings(seed=seed), {}
    for variant in VARIANTS:
        matrix = plain if variant == "without" else with_pieces(plain, labelled.jobs, digits=variant == "digits as they are")
        model = fit_risk_at(replace(labelled, features={Moment.SUBMIT: matrix}), Moment.SUBMIT, split.train, settings)
        risk = model.risk(matrix.rows(split.test))
        figures[variant] = {"roc_auc": float(roc_auc(truth, risk)), "pr_auc": float(pr_auc(truth, risk))}
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10, help="how many seeds of the model and of simulated sites")
    parser.add_argument("--logs", default=",".join(LOGS), help="which logs, separated by commas")
    given = parser.parse_args()
    results = {name: LOGS[name](range(given.seeds)) for name in given.logs.split(",")}
    summary: dict[str, Any] = {name: _summary(figures) for name, figures in results.items()}
    RESULT.write_text(json.dumps({"summary": summary, **results}, indent=1) + "\n")
    print(json.dumps(summary, indent=1))


def _of_xdmod(seeds: range) -> list[dict[str, dict[str, float]]]:
    file = Path(os.environ["STORMPETREL_DATA"]) / "sacct/pozidriv.sacct.gz"
    jobs = read_log([str(file)], None, ReadOptions(fields=XDMOD_FIELDS.split(","))).jobs
    labelled = label_jobs(jobs, TrainingSettings(), [Moment.SUBMIT])
    return [judge(labelled, seed) for seed in seeds]


def _of_simulated(seeds: range) -> list[dict[str, dict[str, float]]]:
    sites = (pl.concat(simulate(ClusterSpec(days=DAYS, seed=FIRST_SEED + seed))) for seed in seeds)
    return [judge(label_jobs(site, TrainingSettings(), [Moment.SUBMIT]), 0) for site in sites]


LOGS: Final = {"xdmod": _of_xdmod, "simulated": _of_simulated}


def _summary(figures: list[dict[str, dict[str, float]]]) -> dict[str, Any]:
    """Mean of each variant, and of the differences to `without` with their standard deviation over seeds."""
    out: dict[str, Any] = {}
    for variant in VARIANTS:
        out[variant] = {}
        for area in ("roc_auc", "pr_auc"):
            values = np.array([each[variant][area] for each in figures])
            gain = values - np.array([each["without"][area] for each in figures])
            out[variant][area] = {
                "mean": round(float(values.mean()), 4),
                "gain": round(float(gain.mean()), 4),
                "std": round(float(gain.std()), 4),
            }
    return out


if __name__ == "__main__":
    main()
