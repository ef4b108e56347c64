"""Whether similar names help to forecast failures; writes benchmarks/results/jobs_names.json.

STORMPETREL_DATA=… python -m benchmarks.jobs_names [--seeds 5] [--logs xdmod,simulated,worded,random]

The risk at submission with `jobs.similar_names` (rates of applications lean on those of similar names, and groups of similar
names have features of their own) and without, fitted on the jobs before 80 % of the log and judged on those after it: on all of
them, and on the *first jobs*, those of applications (stems of names) of which fewer than three jobs have ended. *Young*: the same
on the first six days alone, cut in the middle. Logs: the sacct sample of xdmod, whose names are hashes (nothing can be learnt of
their pieces: a check against leaks), seeds of the model; simulated sites of 40 days from seed 61 on, one per seed, whose names
are application and campaign number; *worded*: the same with three words instead of each campaign's number (`align-fine-ring`), so
that each campaign is an application of its own, which only shows that a relation that is there is found; *random*: with the
words alone, so that similar names mean nothing. No log that we know has scripts.
"""

from __future__ import annotations

import argparse
import json
import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stormpetrel.jobs.features import FeatureMatrix
from stormpetrel.jobs.moments import Moment
from stormpetrel.jobs.training import TrainingSettings, fit_risk_at, label_jobs
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
DAYS: Final = 40
YOUNG_DAYS: Final = 6
FIRST_SEED: Final = 61
FEW: Final = 3.0  # ended jobs of an application
VARIANTS: Final = {"without": False, "similar names": True}
WORDS: Final = (
    "coarse fine wide deep fast slow final early cold warm north south small large plain mixed box ring mesh grid wave slab tube "
    "core film cube cell disk node chain sheet cloud"
).split()
Figures = dict[str, dict[str, float | int | None]]


def judge(jobs: pl.DataFrame, *, similar_names: bool, seed: int, cut: float = TIME_CUT) -> Figures:
    """ROC and PR area on the jobs after the cut, and on the first jobs of an application among them."""
    settings = TrainingSettings(seed=seed, similar_names=similar_names)
    labelled = label_jobs(jobs, settings, [Moment.SUBMIT], profiles_from=cut)
    features = labelled.features[Moment.SUBMIT]
    [split] = splits_at((cut,), labelled.submit, labelled.end, labelled.reached(Moment.SUBMIT))
    risk = fit_risk_at(labelled, Moment.SUBMIT, split.train, settings).risk(features.rows(split.test))
    truth, first = labelled.failed[split.test], _is_first(features.rows(split.test))
    return {"all": _areas(truth, risk), "first jobs": _areas(truth[first], risk[first])}


def _is_first(features: FeatureMatrix) -> NDArray[np.bool_]:
    ended = np.expm1(features.values[:, features.names.index("family.ended_30d")])  # decayed, so that old ones count as fewer
    return np.asarray(ended < FEW)


def _areas(truth: NDArray[np.bool_], risk: NDArray[np.float64]) -> dict[str, float | int | None]:
    both = bool(truth.any() and not truth.all())
    return {"roc_auc": roc_auc(truth, risk) if both else None, "pr_auc": pr_auc(truth, risk) if both else None, "n": truth.size}


def compare(jobs: pl.DataFrame, seed: int) -> dict[str, Figures]:
    """The figures of each variant: of the whole log, and of its first days."""
    young = jobs.filter(pl.col("submit_time") < pl.col("submit_time").min() + pl.duration(days=YOUNG_DAYS))
    figures: dict[str, Figures] = {}
    for name, similar in VARIANTS.items():
        whole, begun = judge(jobs, similar_names=similar, seed=seed), judge(young, similar_names=similar, seed=seed, cut=0.5)
        figures[name] = {**whole, **{f"young, {part}": areas for part, areas in begun.items()}}
    return figures


def worded(jobs: pl.DataFrame, *, with_application: bool) -> pl.DataFrame:
    """The jobs of a simulated site with three words for each campaign, instead of its number."""
    names = []
    for user, name in zip(jobs["user"].to_list(), jobs["job_name"].to_list(), strict=True):
        number = zlib.crc32(f"{user}/{name}".encode())
        words = "-".join(WORDS[number // len(WORDS) ** place % len(WORDS)] for place in range(3))
        names.append(f"{name.partition('-')[0]}-{words}" if with_application else words)
    return jobs.with_columns(job_name=pl.Series(names))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5, help="how many seeds of the model, or of simulated sites")
    parser.add_argument("--logs", default=",".join(LOGS), help="which logs, separated by commas")
    given = parser.parse_args()
    results: dict[str, Any] = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    for name in given.logs.split(","):
        figures = list(LOGS[name](range(given.seeds)))
        results[name] = {"summary": _summary(figures), "seeds": figures}
        RESULT.write_text(json.dumps(results, indent=1) + "\n")
        print(name, json.dumps(results[name]["summary"], indent=1), flush=True)


def _of_xdmod(seeds: range) -> Iterator[dict[str, Figures]]:
    file = Path(os.environ["STORMPETREL_DATA"]) / "sacct/pozidriv.sacct.gz"
    jobs = read_log([str(file)], None, ReadOptions(fields=XDMOD_FIELDS.split(","))).jobs
    for seed in seeds:
        yield {name: judge(jobs, similar_names=similar, seed=seed) for name, similar in VARIANTS.items()}


def _of_simulated(
    seeds: range, change: Callable[[pl.DataFrame], pl.DataFrame] = lambda jobs: jobs
) -> Iterator[dict[str, Figures]]:
    for seed in seeds:
        yield compare(change(pl.concat(simulate(ClusterSpec(days=DAYS, seed=FIRST_SEED + seed)))), 0)


LOGS: Final[dict[str, Callable[[range], Iterator[dict[str, Figures]]]]] = {
    "xdmod": _of_xdmod,
    "simulated": _of_simulated,
    "worded": lambda seeds: _of_simulated(seeds, lambda jobs: worded(jobs, with_application=True)),
    "random": lambda seeds: _of_simulated(seeds, lambda jobs: worded(jobs, with_application=False)),
}


def _summary(figures: list[dict[str, Figures]]) -> dict[str, Any]:
    """Of each part the mean area without, and the mean gain of similar names with its standard deviation over the seeds."""
    out: dict[str, Any] = {}
    for part in figures[0]["without"]:
        out[part] = {"jobs": [each["without"][part]["n"] for each in figures]}
        for area in ("roc_auc", "pr_auc"):
            pairs = [(each["without"][part][area], each["similar names"][part][area]) for each in figures]
            known = [(float(before), float(after)) for before, after in pairs if before is not None and after is not None]
            if known:
                gains = np.array([after - before for before, after in known])
                out[part][area] = {
                    "without": round(float(np.mean([before for before, _ in known])), 4),
                    "gain": round(float(gains.mean()), 4),
                    "std": round(float(gains.std()), 4),
                    "better": int((gains > 0).sum()),
                }
    return out


if __name__ == "__main__":
    main()
