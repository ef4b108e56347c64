"""The prior of jobs: learnt from public logs and simulated sites, judged on each log that it has not seen.

STORMPETREL_DATA=… python -m benchmarks.jobs_prior [--only kth,…] [--write]

Without options every log is left out in turn, and what the first days would have been worth goes to
benchmarks/results/jobs_prior.json. `--write` makes the files that are shipped (src/stormpetrel/jobs/prior/shipped) anew, from all
logs whose licence allows it and from the simulated sites; the same data and seed give the same files.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import polars as pl

from stormpetrel.jobs.moments import MOMENTS, Moment
from stormpetrel.jobs.prior.first_days import first_days
from stormpetrel.jobs.prior.learning import fit_prior
from stormpetrel.jobs.prior.shipped import SHIPPED, VERSION
from stormpetrel.jobs.prior.young_sites import PriorLog, PriorRows, sample_young_sites
from stormpetrel.records.states import DEFAULT_FAILURE_STATES
from stormpetrel.simulate.cluster import simulate
from stormpetrel.simulate.spec import ClusterSpec
from stormpetrel.sources.formats import ReadOptions
from stormpetrel.sources.reading import read_log

RESULT: Final = Path(__file__).parent / "results" / "jobs_prior.json"
SEED: Final = 0
FAILED_OR_KILLED: Final = ("FAILED", "TIMEOUT", "CANCELLED", "OUT_OF_MEMORY", "NODE_FAIL")
# file, format, failures, left out; and whether its licence lets us learn from it
LOGS: Final[dict[str, tuple[str, str | None, tuple[str, ...], tuple[str, ...], bool]]] = {
    "curie": ("jobs/CEA-Curie-2011-2.1-cln.swf.gz", None, ("FAILED",), ("CANCELLED",), True),
    "kth": ("jobs/KTH-SP2-1996-2.1-cln.swf.gz", None, ("FAILED",), (), True),
    "mira": ("jobs/mira.csv.gz", "lumos", FAILED_OR_KILLED, (), True),
    "theta": ("jobs/theta.csv.gz", "lumos", FAILED_OR_KILLED, (), True),
    "thetagpu": ("jobs/thetagpu.csv.gz", "lumos", FAILED_OR_KILLED, (), True),
    "xdmod": ("sacct/pozidriv.sacct.gz", "sacct", tuple(map(str, DEFAULT_FAILURE_STATES)), (), False),
    "supercloud": ("jobs/mit_supercloud_sample.csv.gz", "supercloud", tuple(map(str, DEFAULT_FAILURE_STATES)), (), False),
}
XDMOD_FIELDS: Final = (
    "jobid jobidraw cluster partition qos account group gid user uid submit eligible start end elapsed exitcode state nnodes "
    "ncpus reqcpus reqmem reqtres alloctres timelimit nodelist jobname"
).split()
# nodes and load of the simulated sites, by seed; a third of a public log's rows each
SIMULATED: Final = {3: (8, 0.5), 4: (32, 0.8), 5: (64, 0.65)}
SIMULATED_ROWS: Final = 7_000


def public_log(name: str) -> PriorLog:
    file, format_name, failed, dropped, _ = LOGS[name]
    options = ReadOptions(fields=XDMOD_FIELDS if name == "xdmod" else None)
    jobs = read_log([str(Path(os.environ["STORMPETREL_DATA"]) / file)], format_name, options).jobs
    return PriorLog.of(name, jobs, failed, dropped)


def simulated_rows(moments: Sequence[Moment]) -> list[PriorRows]:
    rows = []
    for seed, (nodes, load) in SIMULATED.items():
        jobs = pl.concat(simulate(ClusterSpec(days=60, nodes=nodes, load=load, seed=seed)))
        log = PriorLog.of(f"simulated {seed}", jobs)
        rows.append(sample_young_sites(log, moments=moments, most_rows=SIMULATED_ROWS, seed=SEED))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(LOGS), help="logs to judge, separated by commas")
    parser.add_argument("--write", action="store_true", help="make the shipped files anew, and judge nothing")
    given = parser.parse_args()
    moments = MOMENTS if given.write else (Moment.SUBMIT,)
    teachers = {name: public_log(name) for name, entry in LOGS.items() if entry[-1]}
    rows = {name: sample_young_sites(log, moments=moments, seed=SEED) for name, log in teachers.items()}
    others = simulated_rows(moments)
    if given.write:
        write(teachers, [*rows.values(), *others])
        return
    results: dict[str, Any] = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    for name in given.only.split(","):
        began = time.monotonic()
        prior = fit_prior([*(part for other, part in rows.items() if other != name), *others], Moment.SUBMIT, seed=SEED)
        results[name] = asdict(first_days(teachers.get(name) or public_log(name), prior, seed=SEED))
        RESULT.write_text(json.dumps(results, indent=1) + "\n")
        print(f"{name}: {time.monotonic() - began:.0f} s, load {os.getloadavg()[0]:.1f}", flush=True)
        for period in results[name]["periods"]:
            print(f"  first {period['days']} days, {period['starts']} starts, {period['jobs']:,} jobs")
            for who, area in period["roc_auc"].items():
                print(f"    {who:<10}ROC {area:.3f}  log loss {period['log_loss'][who]:.3f}", flush=True)


def write(teachers: dict[str, PriorLog], rows: Sequence[PriorRows]) -> None:
    learnt_from = {name: log.fingerprint for name, log in teachers.items()}
    for moment in MOMENTS:
        model = fit_prior(rows, moment, seed=SEED)
        model.metadata = {"version": VERSION, "logs": learnt_from, "simulated_seeds": list(SIMULATED), "seed": SEED}
        folder = SHIPPED / str(moment)
        if folder.exists():
            shutil.rmtree(folder)
        model.save(folder)
        size = sum(file.stat().st_size for file in folder.iterdir())
        print(f"{moment}: {model.n_train_:,} jobs, {model.failed_share_:.1%} failed, {size:,} bytes")


if __name__ == "__main__":
    main()
