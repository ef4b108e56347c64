"""Is the fast autoencoder as good as the vanilla one? Ten seeds of each on simulated, recorded and public real runs.

PYTHONPATH=src python3 -m benchmarks.traces_fast [--models 10] [--out FOLDER] [--only simulated,recorded,exathlon]

Vanilla is trained as for Table 2 (60 epochs at most, 40 on the public runs), fast for 150 at most: it takes a fraction of the CPU
time even so, which stands next to the figures. Both learn from the same windows and are judged on the same others. Public runs
(STORMPETREL_DATA/telemetry/exathlon) overlap in time, several saw the same seconds: two runs teach and two later ones test,
none of which shares a second with another. Models are kept in FOLDER and used again. Results in
benchmarks/results/traces_fast.json, one data set after the other.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from stormpetrel.answers.studies.trace_study import evaluation_answer
from stormpetrel.records.traces import Split
from stormpetrel.simulate.telemetry.campaigns import campaign_set
from stormpetrel.sources.trace_files import read_campaigns
from stormpetrel.traces.campaign_splits import Cut, SplitWindows, split_traces
from stormpetrel.traces.evaluation import FIGURES, evaluate
from stormpetrel.traces.networks.architecture import Architecture, AutoencoderSettings
from stormpetrel.traces.networks.ensemble import train_ensemble
from stormpetrel.traces.networks.runtime import TraceScorer

HERE: Final = Path(__file__).parent
RESULTS: Final = HERE / "results" / "traces_fast.json"
KINDS: Final = (Architecture.VANILLA, Architecture.FAST)
FAST_EPOCHS: Final = 150
VANILLA_EPOCHS: Final = {"simulated": 60, "recorded": 150, "exathlon": 40}
# Runs of which no two share a second; the others overlap with one of them.
RUNS: Final = {
    "5_0_100000_37": Split.TRAIN, "1_0_100000_16": Split.TRAIN, "1_0_100000_15": Split.TEST, "1_0_500000_18": Split.TEST,
}  # fmt: skip


def data_set(name: str) -> SplitWindows:
    """The windows of a data set, by what they are for."""
    if name == "simulated":
        return split_traces(campaign_set(0, train=3, nodes=5, minutes=30.0))
    if name == "recorded":
        return split_traces(read_campaigns([HERE / "recorded"]), Cut(40.0, 5.0))
    runs = read_campaigns([Path(os.environ["STORMPETREL_DATA"]) / "telemetry" / "exathlon"])
    return split_traces([replace(run, split=RUNS[run.name]) for run in runs if run.name in RUNS])


def measure(name: str, models: int, folder: Path) -> dict[str, Any]:
    """The figures of both ensembles on one data set, and what a model costs to train in CPU seconds (None where it was kept)."""
    split = data_set(name)
    scorers, training = {}, {}
    for kind in KINDS:
        epochs = FAST_EPOCHS if kind is Architecture.FAST else VANILLA_EPOCHS[name]
        settings = AutoencoderSettings(architecture=kind, steps=split.train.steps, max_epochs=epochs)
        kept = len(list((folder / name).glob(f"{kind}-*")))
        began = time.process_time()
        folders = train_ensemble(
            settings, split.train, split.validation, models=models, folder=folder / name, device="cpu",
            progress=lambda share, text: print(f"  {name} {100 * share:5.1f} %  {text}", flush=True),
        )  # fmt: skip
        seconds = (time.process_time() - began) / max(1, models - kept)
        training[str(kind)] = {"cpu_s_per_model": None if kept else round(seconds, 1), "epochs_at_most": epochs}
        scorers[kind] = [TraceScorer.load(path, threads=1) for path in folders]
    judged = evaluation_answer(evaluate(scorers, split.train, split.test)).model_dump()
    return {
        "windows": split.counts(),
        "training": training,
        **{part: judged[part] for part in ("model", "baselines", "by_job_type")},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=10, help="of each architecture; their seeds follow each other from 0")
    parser.add_argument("--out", type=Path, required=True, help="folder of the models")
    parser.add_argument("--only", default=",".join(VANILLA_EPOCHS), help="data sets, separated by commas")
    options = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in options.only.split(","):
        measured = measure(name, options.models, options.out)
        machine = {"python": platform.python_version(), "torch": str(torch.__version__), "load": os.getloadavg()[0]}
        known[name] = {"models": options.models, "machine": machine, **measured}
        RESULTS.write_text(json.dumps(known, indent=1) + "\n")
        _show(name, measured)


def _show(name: str, measured: dict[str, Any]) -> None:
    print(f"\n{name:<14}" + "".join(f"{kind!s:>22}" for kind in KINDS), f"{'PCA':>10}")
    for figure in FIGURES:
        spreads = (measured["model"][str(kind)][figure] for kind in KINDS)
        pca = measured["baselines"]["pca"].get(figure)
        cells = ("-" if spread is None else f"{spread['mean']:.5f} ± {spread['std']:.5f}" for spread in spreads)
        print(f"{figure:<14}" + "".join(f"{cell:>22}" for cell in cells), "-" if pca is None else f"{pca:10.5f}")
    print("training", json.dumps(measured["training"]), flush=True)


if __name__ == "__main__":
    main()
