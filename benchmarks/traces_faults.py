"""The detector of traces beside its baselines, on the bench of faults: simulated campaigns of several seeds, and real runs.

    python -m benchmarks.traces_faults --seeds 10                       # simulated: three node-days of calm per seed
    python -m benchmarks.traces_faults --campaigns exathlon             # real runs, split by span of time
    python -m benchmarks.traces_faults --seeds 2 --only --without embedding   # the detector without one of its inputs
    python -m benchmarks.traces_faults --seeds 10 --promised-only       # simulated: promised and realised shares alone
    python -m benchmarks.traces_faults --seeds 10 --only kmeans --keep DIR   # detector and kmeans anew, the rest as it was
    python -m benchmarks.traces_faults --spoilt 0 0.05 0.1 --campaigns exathlon --seeds 3   # unlabelled faults in training
    python -m benchmarks.traces_faults --examples --campaigns exathlon --seeds 2   # faults of examples/, on both

Per fault and severity the ROC area and the recall at one false alarm per node and day, for node windows. The first four campaigns
of each seed teach (an hour each); the fifth, later one, is judged.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from stormpetrel.records.windows import Windows
from stormpetrel.simulate.telemetry.campaigns import CampaignSpec, campaign_set, simulate_campaign
from stormpetrel.traces.campaign_splits import Cut, SplitWindows, split_traces
from stormpetrel.traces.detector.detector import DetectorSettings
from stormpetrel.traces.detector.layout import Layout
from stormpetrel.traces.exam.study import CEILING, DETECTOR, VISIBLE, FaultStudy, run_fault_study
from stormpetrel.traces.faults.bench import ASIDE, BENCH, TUNED
from stormpetrel.traces.faults.contract import SEVERITIES, Fault, inject, load_faults

INPUTS: Final = ("embedding", "hour", "peers", "contrast")
RESULTS: Final = Path(__file__).parent / "results"
EXAMPLES: Final = Path(__file__).parent.parent / "examples" / "trace_faults.py"
EXAMPLE_FAULTS: Final = (
    "memory_bandwidth", "cron_storm", "irq_storm", "desynchronised_ranks", "lagging_samples", "numa_imbalance", "creeping_leak",
)  # fmt: skip
NODES, THREADS, TRAIN_MINUTES = 5, 32, 60.0


def simulated(seed: int, minutes: float) -> SplitWindows:
    """Four campaigns of an hour to learn from, and a later one of so many minutes."""
    traces = campaign_set(seed, train=3, validation=1, test=1, nodes=NODES, threads_per_node=THREADS, minutes=TRAIN_MINUTES)
    last = traces[-1]
    long = CampaignSpec(
        name=last.name, split=last.split, nodes=NODES, threads_per_node=THREADS, minutes=minutes, seed=seed * 1000 + 500,
        start_s=float(last.time_s[0]), first_job_id=90_001,
    )  # fmt: skip
    return split_traces([*traces[:-1], simulate_campaign(long)], Cut())


def figures(study: FaultStudy) -> dict[str, Any]:
    """A study as JSON can hold it."""
    return {
        "faults": {
            fault: {
                severity: {name: {"roc_auc": found.roc_auc, "recall": found.recall} for name, found in scorers.items()}
                for severity, scorers in severities.items()
            }
            for fault, severities in study.figures.items()
        },
        "mean": dict(study.mean),
        "interval": dict(study.interval),
        "strata": dict(study.strata),
        "strata_windows": dict(study.strata_windows),
        "not_visible": list(study.not_visible),
        "promised": {str(share): realised for share, realised in study.promised.items()},
        "promised_levels": {
            level: {str(share): realised for share, realised in shares.items()} for level, shares in study.promised_levels.items()
        },
        "calm_windows": study.calm_windows,
        "spans": study.spans,
        "windows_per_second": study.windows_per_second,
    }


def last_results(name: str) -> Mapping[str, Any]:
    """The results of the last whole run."""
    results: Mapping[str, Any] = json.loads((RESULTS / name).read_text(encoding="utf-8"))
    return results


def beside_references(study: dict[str, Any], last: Mapping[str, Any]) -> dict[str, Any]:
    """A study of the detector alone with the baselines and ceilings of a whole run; means are over the cells visible there."""
    hidden = {tuple(key) for key in last["not_visible"]}
    anew = list(study["mean"])
    for fault, severities in study["faults"].items():
        for severity, scorers in severities.items():
            severities[severity] = {**last["faults"].get(fault, {}).get(severity, {}), **scorers}
    cells = [(f, s) for f, severities in study["faults"].items() for s in severities if (f, s) not in hidden]
    own = {name: float(np.mean([study["faults"][f][s][name]["roc_auc"] for f, s in cells])) for name in anew}
    return {**last, **study, "mean": {**last["mean"], **own}, "interval": {**last["interval"], **study["interval"]},
            "strata": {part: {**last["strata"][part], **study["strata"][part]} for part in study["strata"]},
            "not_visible": last["not_visible"]}  # fmt: skip


def over_seeds(studies: Sequence[Mapping[str, Any]], last: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Means and spreads over seeds; a cell counts where the mean ceiling does. What was not judged anew is as in `last`."""
    first = studies[0]["faults"]
    cells: dict[str, dict[str, dict[str, dict[str, Any]]]] = {}
    for fault, severities in first.items():
        for severity, scorers in severities.items():
            cells.setdefault(fault, {})[severity] = {
                name: {
                    figure: _spread([study["faults"][fault][severity][name][figure] for study in studies])
                    for figure in ("roc_auc", "recall")
                }
                for name in scorers
            }
    for fault, severities in last["faults"].items() if last else ():
        for severity, scorers in severities.items():
            if fault in cells:
                cells[fault][severity] = {**scorers, **cells[fault][severity]}
    keys = [(fault, severity) for fault, severities in cells.items() for severity in severities]
    visible = [key for key in keys if cells[key[0]][key[1]][CEILING]["roc_auc"]["mean"] >= VISIBLE]
    parts = {"all": BENCH, "tuned": TUNED, "aside": ASIDE}
    means = {
        part: {
            name: float(np.mean([cells[f][s][name]["roc_auc"]["mean"] for f, s in visible if f in {x.name for x in faults}]))
            for name in next(iter(next(iter(cells.values())).values()))
        }
        for part, faults in parts.items()
        if any(f in {x.name for x in faults} for f, _ in visible)
    }
    promised = {share: _spread([study["promised"][share] for study in studies]) for share in studies[0]["promised"]}
    levels = {
        level: {share: _spread([study["promised_levels"][level][share] for study in studies]) for share in shares}
        for level, shares in studies[0]["promised_levels"].items()
    }
    not_visible = [key for key in keys if key not in visible]
    return {"faults": cells, "mean": means, "not_visible": not_visible, "promised": promised, "promised_levels": levels}


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {"mean": float(np.mean(values)), "std": float(np.std(values))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument(
        "--minutes", type=float, default=864.0, help="of the campaign that is judged: 864 × 5 nodes are 3 node-days"
    )
    parser.add_argument("--nodes-per-fault", type=int, default=80)
    parser.add_argument("--campaigns", type=Path, help="a folder of recorded runs, in place of simulated campaigns")
    parser.add_argument("--tuned-only", action="store_true", help="leave out the faults that are kept aside")
    parser.add_argument(
        "--only",
        nargs="*",
        help="judge the detector and these baselines alone; others and ceilings stay as the last whole run has them",
    )
    parser.add_argument("--keep", type=Path, help="folder for the figures of each seed; those that are there are not made again")
    parser.add_argument("--examples", action="store_true", help="the faults of examples/trace_faults.py in place of the bench")
    parser.add_argument(
        "--spoilt", type=float, nargs="*", help="shares of the training windows that hold a fault nobody labelled"
    )
    parser.add_argument("--promised-only", action="store_true", help="no faults: only which share of calm windows is flagged")
    parser.add_argument("--without", nargs="*", default=[], choices=INPUTS, help="inputs of the detector that are left out")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    parser.add_argument("--results-name", default=None)
    options = parser.parse_args()
    faults = TUNED if options.tuned_only else BENCH
    began = time.monotonic()
    if options.examples:
        examples(options, began)
        return
    if options.spoilt:
        spoilt_training(options, began)
        return
    if options.campaigns:
        study = of_runs(options, faults)
        if options.only is not None:
            study = beside_references(study, last_results("traces_faults_real.json"))
        show(study["mean"])
        show_promised(study["promised_levels"])
        names = {"tuned": [fault.name for fault in TUNED], "aside": [fault.name for fault in ASIDE]}
        write(options, "traces_faults_real.json", {**study, **names, "seconds": round(time.monotonic() - began)})
        return
    if options.promised_only:
        promised_of_seeds(options, began)
        return
    studies = []
    last = last_results("traces_faults.json") if options.only is not None else None
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        study = of_seed(options, seed, faults)
        studies.append(study)
        print(f"seed {seed}: detector {study['mean']['detector']:.3f}, promised and realised {study['promised']}", flush=True)
        about = {"seeds": len(studies), "node_days": len(studies) * NODES * options.minutes / 1440}
        result = {**over_seeds(studies, last), **about, "per_seed": [each["mean"] for each in studies]}
        write(options, "traces_faults.json", {**result, "seconds": round(time.monotonic() - began)})  # what there is so far
    show(result["mean"]["tuned" if options.tuned_only else "all"])
    levels = result["promised_levels"].items()
    show_promised({level: {share: value["mean"] for share, value in shares.items()} for level, shares in levels})


def examples(options: argparse.Namespace, began: float) -> None:
    """The faults of the examples on real runs and on simulated seeds, in one file of results."""
    faults = load_faults([f"{EXAMPLES}:{name}" for name in EXAMPLE_FAULTS], ())
    studies = {
        f"seed {seed}": of_seed(options, seed, faults) for seed in range(options.first_seed, options.first_seed + options.seeds)
    }
    if options.campaigns:
        studies["real"] = of_runs(options, faults)
    for name, study in studies.items():
        print(name)
        show(study["mean"])
    write(options, "traces_faults_examples.json", {"studies": studies, "seconds": round(time.monotonic() - began)})


def spoilt_training(options: argparse.Namespace, began: float) -> None:
    """What it costs the detector if some of what it learns as calm holds faults: mean over all cells, simulated and real."""
    splits = {
        f"seed {seed}": simulated(seed, options.minutes) for seed in range(options.first_seed, options.first_seed + options.seeds)
    }
    if options.campaigns:
        splits["real"] = runs(options)
    result: dict[str, dict[str, Any]] = {}
    for name, split in splits.items():
        for share in options.spoilt:
            train, validation = (with_faults(windows, share) for windows in (split.train, split.validation))
            changed = replace(split, train=train, validation=validation)
            study = run_fault_study(changed, BENCH, most_nodes=options.nodes_per_fault, references=(), **inputs(options))
            cells = [found[DETECTOR] for severities in study.figures.values() for found in severities.values()]
            means = {figure: float(np.mean([getattr(cell, figure) for cell in cells])) for figure in ("roc_auc", "recall")}
            flagged = {str(promised): value for promised, value in study.promised.items()}
            result.setdefault(name, {})[str(share)] = {**means, "promised": flagged}
            print(name, share, means, flagged, flush=True)
    write(options, "traces_faults_spoilt.json", {"studies": result, "seconds": round(time.monotonic() - began)})


def with_faults(windows: Windows, share: float) -> Windows:
    """The windows with a fault of the bench, of any severity, in a share of the node windows; nobody labels them."""
    layout, rng, rates = Layout.of(windows), np.random.default_rng(17), windows.rates.copy()
    for node in rng.choice(layout.nodes, round(share * layout.nodes), replace=False):
        rows = np.flatnonzero(layout.node == node)
        fault, severity = BENCH[rng.integers(len(BENCH))], SEVERITIES[rng.integers(len(SEVERITIES))]
        if rows.size:
            rates[rows] = inject(fault, rates[rows].transpose(1, 0, 2), severity, int(node)).transpose(1, 0, 2)
    return replace(windows, rates=rates)


def of_runs(options: argparse.Namespace, faults: Sequence[Fault]) -> dict[str, Any]:
    """The study of recorded runs."""
    return figures(run_fault_study(runs(options), faults, references=options.only, **inputs(options)))


def inputs(options: argparse.Namespace) -> dict[str, Any]:
    """The inputs of the detector that can be left out, and the shipped encoder for its embeddings."""
    from stormpetrel.traces.shipped import load_shipped

    left_out = dict.fromkeys(options.without, False)
    return {"settings": DetectorSettings(**left_out), "encoder": load_shipped(threads=1).scorer.embed}


def runs(options: argparse.Namespace) -> SplitWindows:
    """Recorded runs, split by span of time."""
    from stormpetrel.sources.trace_files import read_campaigns

    return split_traces(read_campaigns([options.campaigns]), Cut())


def of_seed(options: argparse.Namespace, seed: int, faults: Sequence[Fault]) -> dict[str, Any]:
    """The study of one seed: read where it was kept, else made, and kept."""
    kept = options.keep / f"seed-{seed}.json" if options.keep else None
    if kept and kept.exists():
        study: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8"))
        return study
    windows = simulated(seed, options.minutes)
    found = run_fault_study(
        windows, faults, seed=seed, most_nodes=options.nodes_per_fault, references=options.only, **inputs(options)
    )
    study = figures(found)
    if kept:
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(study), encoding="utf-8")
    return study


def promised_of_seeds(options: argparse.Namespace, began: float) -> None:
    """Print, seed by seed, which share of the calm windows of a later simulated campaign is flagged; keep the means."""
    studies: list[Mapping[str, Mapping[float, float]]] = []
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        study = run_fault_study(simulated(seed, options.minutes), (), seed=seed, references=(), **inputs(options))
        studies.append(study.promised_levels)
        print(f"seed {seed}")
        show_promised({level: {str(share): value for share, value in of.items()} for level, of in study.promised_levels.items()})
    means = {
        level: {str(share): _spread([each[level][share] for each in studies]) for share in shares}
        for level, shares in studies[0].items()
    }
    show_promised({level: {share: value["mean"] for share, value in shares.items()} for level, shares in means.items()})
    about = {"first_seed": options.first_seed, "seeds": options.seeds, "seconds": round(time.monotonic() - began)}
    write(options, "traces_promised.json", {"promised_levels": means, **about})


def write(options: argparse.Namespace, name: str, result: Mapping[str, Any]) -> None:
    """Put a result in the folder of results."""
    out = options.out / (options.results_name or name)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def show(means: Mapping[str, float | None]) -> None:
    """Print the mean ROC area of each scorer, best first."""
    for name, mean in sorted(means.items(), key=lambda item: -(item[1] or 0)):
        print(f"{name:18s} {mean:.3f}" if mean is not None else f"{name:18s} -")


def show_promised(levels: Mapping[str, Mapping[str, float]]) -> None:
    """Print which share of calm windows is flagged where which share is promised, level by level."""
    for level, shares in levels.items():
        print(f"{level:7s}" + "; ".join(f" {float(share):.1%} promised, {value:.2%} flagged" for share, value in shares.items()))


if __name__ == "__main__":
    main()
