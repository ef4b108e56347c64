"""What a second worker of a Ray cluster is worth: a study of event models, whose seeds are the items, with one and two workers.

    python -m benchmarks.cluster_engine --seeds 24 --repeat 3
    python -m benchmarks.cluster_engine --draw

It starts a Ray of two CPUs on this machine, with the tests' own part, and runs the same study by local processes as well. Workers
have started before the clock does. The serial share follows from both times (Amdahl: 2·T2/T1 − 1; on a machine of two cores it
contains what driver and Ray take from the workers), and the speed-up up to 64 workers is computed from it, not measured. Figures
in benchmarks/results/cluster_engine.json, the curve in docs/figures/cluster-engine.svg.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
import zlib
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from tests.parts.ray import RealRay

from stormpetrel.engine import Engine, cpu_seconds
from stormpetrel.rehearse.event_study import Recipe, StudyPlan, run_study

RESULTS: Final = Path(__file__).parent / "results" / "cluster_engine.json"
FIGURE: Final = Path(__file__).parents[1] / "docs" / "figures" / "cluster-engine.svg"
MODELS: Final = ("unsupervised", "xgboost", "iforest")
PLACES: Final = ("local", "ray")
WORKERS: Final = (1, 2)
MOST: Final = 64


def measured(place: str, workers: int, seeds: int) -> dict[str, float]:
    """Seconds of wall and CPU of one study; those of the driver are its own CPU."""
    plan = StudyPlan((Recipe(),), tuple(range(seeds)), MODELS, engine=Engine(workers, place))
    began, driver_s, cpu_s = time.perf_counter(), time.process_time(), cpu_seconds()
    runs = [run for some in run_study(plan) for run in some]
    took = {"wall_s": time.perf_counter() - began, "driver_cpu_s": time.process_time() - driver_s, "cpu_s": cpu_seconds() - cpu_s}
    figures = json.dumps([[run.model, run.seed, run.figures] for run in runs], sort_keys=True)
    return {key: round(value, 3) for key, value in took.items()} | {"digest": zlib.crc32(figures.encode())}


def serial_share(one_s: float, two_s: float) -> float:
    """The share of the time with one worker that a second one does not shorten."""
    return max(0.0, 2 * two_s / one_s - 1)


def speed_up(share: float, workers: int) -> float:
    """By Amdahl's law."""
    return 1 / (share + (1 - share) / workers)


def summary(seeds: int, repeat: int) -> dict[str, Any]:
    """Medians over repetitions, serial shares, and the computed curve."""
    cases: dict[str, dict[str, Any]] = {}
    load_before = os.getloadavg()[0]
    with RealRay(cpus=2) as ray:
        os.environ |= ray.environment()
        for place in PLACES:
            measured(place, 2, 2)  # workers start, libraries are loaded, functions compiled
            for workers in WORKERS if place == "ray" else (2,):
                runs = [measured(place, workers, seeds) for _ in range(repeat)]
                cases[f"{place} {workers}"] = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
                print(place, workers, cases[f"{place} {workers}"], flush=True)
        from stormpetrel.engine.on_ray import leave_cluster

        leave_cluster()
    one, two = cases["ray 1"], cases["ray 2"]
    shares = {
        "from_two_workers": serial_share(one["wall_s"], two["wall_s"]),
        "driver_cpu": one["driver_cpu_s"] / one["wall_s"],
    }
    curve = {str(n): {name: round(speed_up(share, n), 2) for name, share in shares.items()} for n in (1, 2, 4, 8, 16, 32, 64)}
    return {
        "seeds": seeds,
        "repeat": repeat,
        "cores": os.cpu_count(),
        "load_before": round(load_before, 1),  # of other programs: above a few, the wall times are theirs
        "python": platform.python_version(),
        "versions": {name: version(name) for name in ("ray", "numpy", "xgboost-cpu", "scikit-learn")},
        "cases": cases,
        "same_results": len({case["digest"] for case in cases.values()}) == 1,
        "speed_up_of_two": round(one["wall_s"] / two["wall_s"], 3),
        "serial_share": {name: round(share, 4) for name, share in shares.items()},
        "computed_speed_up": curve,
    }


def draw(figures: dict[str, Any]) -> None:
    """The two measured points, and the computed curves."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "stormpetrel"
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(6, 4), layout="constrained")
    workers = range(1, MOST + 1)
    labels = {
        "from_two_workers": "computed (Amdahl) from the two measured",
        "driver_cpu": "computed: driver's own CPU time as serial share",
    }
    for name, label in labels.items():
        share = figures["serial_share"][name]
        axis.plot(workers, [speed_up(share, n) for n in workers], linestyle="--", label=f"{label}: {share:.1%}")
    axis.plot(workers, workers, color="#bbbbbb", linewidth=0.8, label="linear")
    axis.plot([1, 2], [1, figures["speed_up_of_two"]], "o", color="black", label="measured")
    axis.set(xscale="log", yscale="log", xlabel="workers of one CPU", ylabel="speed-up", xticks=[1, 2, 4, 8, 16, 32, 64])
    axis.set_xticklabels(["1", "2", "4", "8", "16", "32", "64"])
    axis.legend(fontsize=7)
    figure.savefig(FIGURE, metadata={"Date": None})


def main() -> None:
    """Measure, print, write, draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=24)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--draw", action="store_true", help="draw the stored figures again, measure nothing")
    options = parser.parse_args()
    if not options.draw:
        figures = summary(options.seeds, options.repeat)
        RESULTS.write_text(json.dumps(figures, indent=1) + "\n")
        print(json.dumps(figures, indent=1))
    draw(json.loads(RESULTS.read_text()))


if __name__ == "__main__":
    main()
