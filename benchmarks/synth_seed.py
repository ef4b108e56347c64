"""CTGAN, TVAE and CopulaGAN of ours against those of SDV, on Theta; writes results/synth_seed.json.

STORMPETREL_DATA=../shared/data python -m benchmarks.synth_seed [--epochs 30] [--seeds 3] [--workers 1] [--only ctgan,sdv-ctgan]

Theta without its first 50 rows (the machine was being filled). Each generator learns all of it, at equal epochs and the same
seeds, on one thread, and makes as many jobs; its figures are against what it learnt from. The generators
take turns, so that a busy hour of the machine hits all of them.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.options import add_workers, engine_of
from stormpetrel.engine import Progress
from stormpetrel.sources.tables.workload_table import read_workload_table
from stormpetrel.synth.choose import new_generator
from stormpetrel.synth.contract import Wanted, sample
from stormpetrel.synth.score.c2st import c2st
from stormpetrel.synth.score.fidelity import fidelity
from stormpetrel.synth.workload import Workload, tidy

RESULTS: Final = Path(__file__).parent / "results"
LEFT_OUT: Final = 50
PEERS: Final = {
    "ctgan": "sdv-ctgan",
    "tvae": "sdv-tvae",
    "copulagan": "sdv-copulagan",
    "gaussian-copula": "sdv-gaussian-copula",
    "rows": None,
}
WITHOUT_EPOCHS: Final = ("gaussian-copula", "rows")
COLUMNS: Final = ("interval_s", "cores", "nodes", "time_limit_s", "runtime_s")


def main() -> None:
    options = _options()
    real = theta()
    known = list(dict.fromkeys(name for pair in PEERS.items() for name in pair if name))
    names = options.only.split(",") if options.only else known
    runs: list[dict[str, Any]] = []
    tasks = [(seed, name) for seed in range(options.seeds) for name in names]
    for run in engine_of(options).map(Run(real, options.epochs), tasks, name=lambda task: f"seed {task[0]}, {task[1]}"):
        runs.append(run)
        print(f"seed {run['seed']} {_line(run['generator'], run)}", flush=True)
        result = {"jobs": real.height, "epochs": options.epochs, "threads": 1, "generators": _means(runs), "runs": runs}
        result["ratios"] = _ratios(result["generators"])
        (RESULTS / "synth_seed.json").write_text(json.dumps(result, indent=1) + "\n")
    _show(result)


def theta() -> Workload:
    """The log that the published generators learnt from."""
    data = os.environ.get("STORMPETREL_DATA")
    if not data:
        raise SystemExit("Set STORMPETREL_DATA to the folder of the public logs.")
    table = read_workload_table(Path(data) / "synthetic" / "theta_real.csv.gz")
    return tidy(table.jobs[LEFT_OUT:], has_clock=table.has_clock)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--seeds", type=int, default=3)
    add_workers(parser)
    parser.add_argument("--only", default="", help="generators, separated by commas; all if left out")
    return parser.parse_args()


@dataclass(frozen=True, slots=True)
class Run:
    """Fits a generator on one thread, draws as many jobs, and compares them with the real ones."""

    real: Workload
    epochs: int

    def __call__(self, task: tuple[int, str], _progress: Progress) -> dict[str, Any]:
        """The figures of a seed and a generator."""
        import torch

        torch.set_num_threads(1)
        seed, name = task
        return _run(self.real, name, self.epochs, seed)


def _run(real: Workload, name: str, epochs: int, seed: int) -> dict[str, Any]:
    settings = {"seed": seed} if name in WITHOUT_EPOCHS else {"seed": seed, "epochs": epochs, "device": "cpu"}
    generator = new_generator(name, **settings)
    began = time.process_time()
    generator.fit(real)
    fitted = time.process_time()
    made = sample(generator, Wanted(jobs=real.height, seed=seed))
    drawn = time.process_time()
    found = fidelity(real, made).as_dict()
    return {
        "generator": name,
        "seed": seed,
        **{f"ks {column}": found["columns"][column]["ks"] for column in COLUMNS},
        "lag1": found["lag1"]["synthetic"],
        "lag1 real": found["lag1"]["real"],
        "acf_mae": found["acf_mae"],
        "dispersion": found["dispersion"]["synthetic"],
        "dispersion real": found["dispersion"]["real"],
        "same_user_share": found["same_user_share"]["synthetic"],
        "same_user_share real": found["same_user_share"]["real"],
        "c2st_row": c2st(real, made),
        "c2st_sequence": c2st(real, made, sequence=True),
        "fit_cpu_s": fitted - began,
        "draw_cpu_s": drawn - fitted,
    }


def _means(runs: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Mean, standard deviation and number of each figure, by generator."""
    made: dict[str, dict[str, Any]] = {}
    for name in dict.fromkeys(run["generator"] for run in runs):
        of_it = [run for run in runs if run["generator"] == name]
        for figure in (key for key in of_it[0] if key not in ("generator", "seed")):
            values = np.array([run[figure] for run in of_it], dtype=np.float64)
            spread = {"mean": float(values.mean()), "std": float(values.std()), "n": len(values)}
            made.setdefault(name, {})[figure] = spread
    return made


def _ratios(means: dict[str, dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Each of ours ÷ its peer: mean KS over the columns, C2ST, CPU of fit and draw."""
    ratios = {}
    for ours, peer in PEERS.items():
        if ours in means and peer in means:
            pair = [_summary(means[name]) for name in (ours, peer)]
            ratios[f"{ours} / {peer}"] = {figure: pair[0][figure] / pair[1][figure] for figure in pair[0] if pair[1][figure]}
    return ratios


def _summary(figures: dict[str, Any]) -> dict[str, float]:
    return {
        "mean ks": float(np.mean([figures[f"ks {column}"]["mean"] for column in COLUMNS])),
        "ks interval_s": figures["ks interval_s"]["mean"],
        "c2st_row": figures["c2st_row"]["mean"],
        "cpu": figures["fit_cpu_s"]["mean"] + figures["draw_cpu_s"]["mean"],
    }


def _show(result: dict[str, Any]) -> None:
    print(f"\nmeans over seeds, {result['epochs']} epochs, {result['jobs']:,} jobs")
    for name, figures in result["generators"].items():
        print(_line(name, {figure: spread["mean"] for figure, spread in figures.items()}))
    for pair, ratios in result["ratios"].items():
        print(f"{pair:40s}" + "  ".join(f"{figure} {value:.2f}" for figure, value in ratios.items()))


def _line(name: str, figures: dict[str, Any]) -> str:
    ks = " ".join(f"{column} {figures[f'ks {column}']:.3f}" for column in COLUMNS)
    order = f"lag1 {figures['lag1']:.3f} ({figures['lag1 real']:.3f}) dispersion {figures['dispersion']:.2f}"
    tests = f"c2st {figures['c2st_row']:.3f}/{figures['c2st_sequence']:.3f}"
    return f"{name:20s} KS {ks} · {order} · {tests} · CPU {figures['fit_cpu_s']:.1f} + {figures['draw_cpu_s']:.2f} s"


if __name__ == "__main__":
    main()
