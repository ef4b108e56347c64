"""Whether similar names and scripts help to forecast failures; writes benchmarks/results/jobs_names.json.

STORMPETREL_DATA=… python -m benchmarks.jobs_names [--seeds 5] [--logs xdmod,simulated,worded,random,scripts,…] [--first-days]

The risk at submission with `jobs.similar_names` (rates of applications lean on those of similar names and scripts, and the groups
have features of their own) and without, fitted on the jobs before 80 % of the log and judged on those after it: on all of
them, and on the *first jobs*, those of applications (stems of names) of which fewer than three jobs have ended. *Young*: the same
on the first six days alone, cut in the middle. Logs: the sacct sample of xdmod, whose names are hashes (nothing can be learnt of
their pieces: a check against leaks), seeds of the model; simulated sites of 40 days from seed 61 on, one per seed, whose names
are application and campaign number; *worded*: the same with three words instead of each campaign's number (`align-fine-ring`), so
that each campaign is an application of its own, which only shows that a relation that is there is found; *random*: with the
words alone, so that similar names mean nothing.

Sites with scripts (no log that we know has them; `simulate/job_scripts.py` writes them): the names and directories of *random*,
and each campaign's script is edited from a template of its application. *scripts*: nothing else is changed. *fragile scripts*:
a quarter of the templates crash in half of their jobs, whoever uses them. *unrelated scripts*: a control, templates are drawn.
There *known* is the bound: names tell the application, where templates are fragile the template, and nothing is grouped.

`--first-days` judges the first 1, 3 and 10 days of the worded sites and of those with scripts instead, begun on twelve days each
with nothing known before: user's rate so far, the shipped prior, the site's own model, and the two together.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from benchmarks.scripted_sites import Kind, ScriptedSite, scripted_site, three_words
from stormpetrel.jobs.features import FeatureMatrix
from stormpetrel.jobs.moments import Moment
from stormpetrel.jobs.prior.first_days import FORECASTERS, first_days
from stormpetrel.jobs.prior.shipped import prior_of
from stormpetrel.jobs.prior.young_sites import PriorLog
from stormpetrel.jobs.training import TrainingSettings, fit_risk_at, label_jobs
from stormpetrel.learn.metrics import pr_auc, roc_auc
from stormpetrel.learn.splits import TIME_CUT, splits_at
from stormpetrel.learn.threads import wait_politely
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
AREAS: Final = ("roc_auc", "pr_auc")
WITHOUT: Final = "without"
FIRST_DAYS: Final = (1, 3, 10)
STARTS: Final = 12
Figures = dict[str, dict[str, float | int | None]]
Variants = Mapping[str, tuple[pl.DataFrame, bool]]  # the jobs of a site, and whether similar names and scripts count


@dataclass(frozen=True, slots=True)
class Judged:
    """Forecasts of the jobs after a cut, and which of them are first jobs of an application."""

    truth: NDArray[np.bool_]
    risk: NDArray[np.float64]
    first: NDArray[np.bool_]


def judge(jobs: pl.DataFrame, *, similar_names: bool, seed: int, cut: float = TIME_CUT) -> Judged:
    """The risk of the jobs after the cut, learnt from those before it."""
    settings = TrainingSettings(seed=seed, similar_names=similar_names)
    labelled = label_jobs(jobs, settings, [Moment.SUBMIT], profiles_from=cut)
    features = labelled.features[Moment.SUBMIT]
    [split] = splits_at((cut,), labelled.submit, labelled.end, labelled.reached(Moment.SUBMIT))
    risk = fit_risk_at(labelled, Moment.SUBMIT, split.train, settings).risk(features.rows(split.test))
    return Judged(labelled.failed[split.test], risk, _is_first(features.rows(split.test)))


def _is_first(features: FeatureMatrix) -> NDArray[np.bool_]:
    ended = np.expm1(features.values[:, features.names.index("family.ended_30d")])  # decayed, so that old ones count as fewer
    return np.asarray(ended < FEW)


def _areas(truth: NDArray[np.bool_], risk: NDArray[np.float64]) -> dict[str, float | int | None]:
    both = bool(truth.any() and not truth.all())
    return {"roc_auc": roc_auc(truth, risk) if both else None, "pr_auc": pr_auc(truth, risk) if both else None, "n": truth.size}


def compare(variants: Variants, seed: int, *, cut: float = TIME_CUT, prefix: str = "") -> dict[str, Figures]:
    """ROC and PR area of each variant, of all jobs after the cut and of the first jobs, as they are without similar names."""
    judged = {name: judge(jobs, similar_names=similar, seed=seed, cut=cut) for name, (jobs, similar) in variants.items()}
    first = judged[WITHOUT].first
    return {
        name: {f"{prefix}all": _areas(one.truth, one.risk), f"{prefix}first jobs": _areas(one.truth[first], one.risk[first])}
        for name, one in judged.items()
    }


def compare_old_and_young(variants: Variants, seed: int) -> dict[str, Figures]:
    """The figures of each variant: of the whole log, and of its first days."""
    young = {
        name: (jobs.filter(pl.col("submit_time") < pl.col("submit_time").min() + pl.duration(days=YOUNG_DAYS)), similar)
        for name, (jobs, similar) in variants.items()
    }
    whole, begun = compare(variants, seed), compare(young, seed, cut=0.5, prefix="young, ")
    return {name: {**whole[name], **begun[name]} for name in variants}


def with_and_without(jobs: pl.DataFrame) -> Variants:
    """A log judged with similar names and without."""
    return {WITHOUT: (jobs, False), "similar names": (jobs, True)}


def worded(jobs: pl.DataFrame, *, with_application: bool) -> pl.DataFrame:
    """The jobs of a simulated site with three words for each campaign, instead of its number."""
    names = []
    for user, name in zip(jobs["user"].to_list(), jobs["job_name"].to_list(), strict=True):
        words = three_words(user, name)
        names.append(f"{name.partition('-')[0]}-{words}" if with_application else words)
    return jobs.with_columns(job_name=pl.Series(names))


def with_scripts(site: ScriptedSite) -> Variants:
    """A site with scripts, judged by less and by more of what its jobs are called and run."""
    return {
        WITHOUT: (site.unnamed, False),
        "names": (site.unnamed, True),
        "names and scripts": (site.signed, True),
        "known": (site.named, False),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5, help="how many seeds of the model, or of simulated sites")
    parser.add_argument("--logs", default="", help="which logs, separated by commas; all where none are named")
    parser.add_argument("--first-days", action="store_true", help="judge the first days of the sites with scripts")
    given = parser.parse_args()
    wait_politely()
    logs, section = (BEGUN, "first days") if given.first_days else (LOGS, "time split")
    for name in given.logs.split(",") if given.logs else logs:
        if given.first_days:
            periods = [_first_days_of(BEGUN[name](FIRST_SEED + seed), seed) for seed in range(given.seeds)]
            _keep(section, name, _summary_of_days(periods), periods)
        else:
            figures = list(LOGS[name](range(given.seeds)))
            _keep(section, name, _summary(figures), figures)


def _keep(section: str, log: str, summary: dict[str, Any], seeds: Sequence[Any]) -> None:
    """Print a log's summary, and write it and what it is made of to the result."""
    results: dict[str, Any] = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    results.setdefault(section, {})[log] = {"summary": summary, "first_seed": FIRST_SEED, "seeds": seeds}
    RESULT.write_text(json.dumps(results, indent=1) + "\n")
    print(section, log, json.dumps(summary, indent=1), flush=True)


def _of_xdmod(seeds: range) -> Iterator[dict[str, Figures]]:
    file = Path(os.environ["STORMPETREL_DATA"]) / "sacct/pozidriv.sacct.gz"
    jobs = read_log([str(file)], None, ReadOptions(fields=XDMOD_FIELDS.split(","))).jobs
    for seed in seeds:
        yield compare(with_and_without(jobs), seed)


def _of_simulated(
    seeds: range, change: Callable[[pl.DataFrame], pl.DataFrame] = lambda jobs: jobs
) -> Iterator[dict[str, Figures]]:
    for seed in seeds:
        yield compare_old_and_young(with_and_without(change(_simulated(FIRST_SEED + seed))), 0)


def _of_scripted(kind: Kind) -> Callable[[range], Iterator[dict[str, Figures]]]:
    def figures(seeds: range) -> Iterator[dict[str, Figures]]:
        for seed in seeds:
            yield compare_old_and_young(with_scripts(scripted_site(kind, ClusterSpec(days=DAYS, seed=FIRST_SEED + seed))), 0)

    return figures


def _first_days_of(variants: Variants, seed: int) -> dict[str, list[dict[str, Any]]]:
    """Of each variant of a site, the figures of its first days."""
    figures = {}
    for name, (jobs, similar) in variants.items():
        log = PriorLog.of(name, jobs)
        days = first_days(log, prior_of(Moment.SUBMIT), starts=STARTS, days=FIRST_DAYS, seed=seed, similar_names=similar)
        figures[name] = [asdict(period) for period in days.periods]
    return figures


def _simulated(seed: int) -> pl.DataFrame:
    return pl.concat(simulate(ClusterSpec(days=DAYS, seed=seed)))


def _begun(kind: Kind) -> Callable[[int], Variants]:
    def variants(seed: int) -> Variants:
        judged = with_scripts(scripted_site(kind, ClusterSpec(days=DAYS, seed=seed)))
        return {name: judged[name] for name in (WITHOUT, "names and scripts")}

    return variants


SCRIPTED: Final[dict[str, Kind]] = {"scripts": "related", "fragile scripts": "fragile", "unrelated scripts": "unrelated"}
BEGUN: Final[dict[str, Callable[[int], Variants]]] = {
    "worded": lambda seed: with_and_without(worded(_simulated(seed), with_application=True)),
    **{name: _begun(kind) for name, kind in SCRIPTED.items()},
}
LOGS: Final[dict[str, Callable[[range], Iterator[dict[str, Figures]]]]] = {
    "xdmod": _of_xdmod,
    "simulated": _of_simulated,
    "worded": lambda seeds: _of_simulated(seeds, lambda jobs: worded(jobs, with_application=True)),
    "random": lambda seeds: _of_simulated(seeds, lambda jobs: worded(jobs, with_application=False)),
    **{name: _of_scripted(kind) for name, kind in SCRIPTED.items()},
}


def _summary(figures: list[dict[str, Figures]]) -> dict[str, Any]:
    """Of each part the mean area without, and the mean gain of each variant with its standard deviation over the seeds."""
    out: dict[str, Any] = {}
    for part in figures[0][WITHOUT]:
        out[part] = {"jobs": [each[WITHOUT][part]["n"] for each in figures]}
        for variant in figures[0]:
            areas = {area: _gain([(each[WITHOUT][part][area], each[variant][part][area]) for each in figures]) for area in AREAS}
            if variant != WITHOUT and areas["roc_auc"]:
                out[part][variant] = areas
    return out


def _gain(pairs: Sequence[tuple[float | int | None, float | int | None]]) -> dict[str, float | int]:
    """The mean before, and the mean and standard deviation of what is gained, over the pairs that are known."""
    known = [(float(before), float(after)) for before, after in pairs if before is not None and after is not None]
    if not known:
        return {}
    gains = np.array([after - before for before, after in known])
    return {
        "without": round(float(np.mean([before for before, _ in known])), 4),
        "gain": round(float(gains.mean()), 4),
        "std": round(float(gains.std()), 4),
        "better": int((gains > 0).sum()),
    }


def _summary_of_days(seeds: Sequence[dict[str, list[dict[str, Any]]]]) -> dict[str, Any]:
    """Of each period, forecaster and variant: mean ROC area and log loss over the sites, and what is gained over without."""
    out: dict[str, Any] = {}
    for place, period in enumerate(seeds[0][WITHOUT]):
        rows = out[f"first {period['days']} days"] = {"jobs": [each[WITHOUT][place]["jobs"] for each in seeds]}
        for forecaster in FORECASTERS:
            rows[forecaster] = {
                variant: {
                    figure: _gain([tuple(each[name][place][figure][forecaster] for name in (WITHOUT, variant)) for each in seeds])
                    for figure in ("roc_auc", "log_loss")
                }
                for variant in seeds[0]
                if forecaster != "user_rate" or variant == WITHOUT
            }
    return out


if __name__ == "__main__":
    main()
