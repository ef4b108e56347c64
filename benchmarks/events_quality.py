"""How good the alarm of the grid is, simulated and on three public logs with outages; writes results/events_quality.json.

STORMPETREL_DATA=… python -m benchmarks.events_quality [--datasets simulated,curie,hpc2n,mira] [--seeds 0-9] [--models …]
        [--workers 2] [--series FOLDER] [--out FILE]

It can be run in pieces: runs are kept in the file one by one, and those of the same data set, seed and model are replaced. With
`--series FOLDER` the hourly counts of the logs are kept there as .npz and read from there the next time, so that a machine that
has numpy, scipy, scikit-learn, xgboost and torch only can do the rest.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.options import add_workers, engine_of
from stormpetrel.events.evaluation import ALL_NAMES, Run, merged, summary
from stormpetrel.records.event_series import EventSeries
from stormpetrel.rehearse.event_study import Recipe, StudyPlan, run_study

RESULT: Final = Path(__file__).parent / "results" / "events_quality.json"
# name -> file of the public logs, and the clock by which its people worked
LOGS: Final = {
    "curie": ("jobs/CEA-Curie-2011-2.1-cln.swf.gz", "Europe/Paris"),
    "hpc2n": ("jobs/HPC2N-2002-2.1-cln.swf.gz", "Europe/Stockholm"),
    "mira": ("jobs/mira.csv.gz", "America/Chicago"),
}
SIMULATED: Final = "simulated"
SHOWN: Final = ("pr_auc", "roc_auc", "recall_at_one_per_week", "false_alarms_per_week", "precision", "delay_hours", "fit_s")


def main() -> None:
    options = _options()
    kept = json.loads(options.out.read_text()) if options.out.exists() else {"runs": []}
    runs = [Run.of_json(run) for run in kept["runs"]]
    plan = StudyPlan(
        tuple(_recipe(name, options) for name in options.datasets.split(",")),
        _seeds(options.seeds),
        tuple(name for name in options.models.split(",") if name),
        engine=engine_of(options),
    )
    began = time.monotonic()
    for some in run_study(plan):
        runs = merged(runs, some)
        _write(options.out, runs)
        for run in some:
            area = run.figures.get("pr_auc")
            told = run.error or f"PR {area or 0:.3f}, trained in {run.fit_s:.0f} s"
            print(f"{time.monotonic() - began:6.0f} s  {run.dataset}, seed {run.seed}, {run.model}: {told}", flush=True)
    show(summary(runs, order=ALL_NAMES))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", default=",".join((SIMULATED, *LOGS)), help="separated by commas")
    parser.add_argument("--seeds", default="0-9", help="one, several separated by commas, or from-to")
    parser.add_argument("--models", default="", help="models and baselines, separated by commas; all if left out")
    parser.add_argument("--hours", type=int, default=Recipe().hours, help="of a simulated grid")
    add_workers(parser, default=2)
    parser.add_argument("--series", type=Path, help="folder of the hourly counts of the logs")
    parser.add_argument("--out", type=Path, default=RESULT, help="file of the results")
    return parser.parse_args()


def _seeds(text: str) -> tuple[int, ...]:
    """The seeds of `3`, `1,4` or `0-9`."""
    first, _, last = text.partition("-")
    return tuple(range(int(first), int(last) + 1)) if last else tuple(int(word) for word in text.split(","))


def _recipe(name: str, options: argparse.Namespace) -> Recipe:
    return Recipe(hours=options.hours) if name == SIMULATED else Recipe(name, _series(name, options.series))


def _series(name: str, folder: Path | None) -> EventSeries:
    """The hourly counts of a public log, kept in a folder where one is named."""
    kept = folder / f"{name}.npz" if folder else None
    if kept and kept.exists():
        with np.load(kept, allow_pickle=False) as parts:
            kinds = tuple(str(kind) for kind in parts["kinds"])
            bucket_s, zone = int(parts["bucket_s"]), str(parts["zone"])
            return EventSeries(parts["start_s"], bucket_s, kinds, parts["counts"], parts["label"], zone=zone)
    from stormpetrel.rehearse.event_study import read_recording

    file, zone = LOGS[name]
    series = read_recording(Path(os.environ["STORMPETREL_DATA"]) / file, zone=zone).series
    if kept:
        kept.parent.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(
            kept, start_s=series.start_s, bucket_s=series.bucket_s, kinds=np.array(series.kinds), counts=series.counts,
            label=series.label, zone=zone,
        )  # fmt: skip
    return series


def _write(path: Path, runs: list[Run]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    result = {
        "what": "the alarm of the grid: models and baselines, simulated and on recorded counts with injected outages",
        **summary(runs, order=ALL_NAMES),
        "runs": [run.as_json() for run in runs],
    }
    fresh = path.with_suffix(".new")
    fresh.write_text(_lines(result) + "\n")
    fresh.replace(path)


def _lines(result: dict[str, Any]) -> str:
    """JSON that is read line by line: one line per run, the rest indented."""
    rest = {name: value for name, value in result.items() if name != "runs"}
    runs = ",\n  ".join(json.dumps(run) for run in result["runs"])
    return json.dumps(rest, indent=1).removesuffix("\n}") + ',\n "runs": [\n  ' + runs + "\n ]\n}"


def show(found: dict[str, Any]) -> None:
    for name, dataset in found["datasets"].items():
        print(f"\n{name} ({len(dataset['seeds'])} seeds)\n{'':<20}" + "".join(f"{title[:15]:>17}" for title in SHOWN))
        for part in ("models", "baselines"):
            for model, figures in dataset[part].items():
                print(f"{model:<20}" + "".join(f"{_figure(figures[title]):>17}" for title in SHOWN))
                for seed, error in figures.get("errors", {}).items():
                    print(f"  seed {seed}: {error}")
        for kind, severities in dataset["by_outage"].items():
            for severity, models in severities.items():
                shares = "  ".join(f"{model} {one['recall']:.2f}" for model, one in models.items())
                print(f"  {kind}, {severity} ({max(one['n'] for one in models.values())}): {shares}")


def _figure(figure: dict[str, Any]) -> str:
    return "-" if not figure["n"] else f"{figure['mean']:.3f} ± {figure['std']:.3f}"


if __name__ == "__main__":
    main()
