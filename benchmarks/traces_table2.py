"""Table 2 of the published study on simulated campaigns: ensembles of three autoencoders, and how long they take to train.

PYTHONPATH=src python3 -m benchmarks.traces_table2 [--device cuda] [--models 10] [--workers 1] [--out DIR] [--pack N]
        [--campaigns FOLDER] [--results-name traces_exathlon.json]

It needs numpy, torch, scikit-learn, scipy and safetensors only. DIR gets `traces_table2.json` and a folder `models` with one
folder per model, none of whose files is larger than 16 MiB; stopped anywhere, it goes on from there (the seconds of training are
then those of the last start). `--pack N` also writes the first N models of each architecture as one tar file per architecture.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from benchmarks.options import add_workers, engine_of
from stormpetrel.answers.studies.trace_study import evaluation_answer
from stormpetrel.simulate.telemetry.campaigns import campaign_set
from stormpetrel.sources.trace_files import read_campaigns
from stormpetrel.traces.campaign_splits import Cut, SplitWindows, split_traces
from stormpetrel.traces.evaluation import FIGURES, PUBLISHED, evaluate, why_not
from stormpetrel.traces.networks.architecture import Architecture, AutoencoderSettings, flops_per_window
from stormpetrel.traces.networks.autoencoder import TraceAutoencoder
from stormpetrel.traces.networks.ensemble import train_ensemble

RESULTS: Final = Path(__file__).parent / "results"
LARGEST_FILE: Final = 16 * 1024 * 1024


def main() -> None:
    options = _options()
    began = time.monotonic()
    split = _split(options)
    print(f"campaigns made in {time.monotonic() - began:.1f} s, windows: {split.counts()}", flush=True)
    device = _device(options.device)
    result: dict[str, Any] = {
        "what": f"Table 2 on {options.campaigns.name if options.campaigns else 'simulated'} campaigns",
        "campaigns": {name: getattr(options, name) for name in ("seed", "train", "nodes", "minutes")},
        "windows": split.counts(),
        "device": device,
        "load_at_start": os.getloadavg()[0],
        "flop_per_window": flops_per_window(AutoencoderSettings()),
    }
    result["published"] = {
        str(kind): {name: spread.as_dict() for name, spread in figures.items()} for kind, figures in PUBLISHED.items()
    }
    options.out.mkdir(parents=True, exist_ok=True)
    scorers: dict[Architecture, list[TraceAutoencoder]] = {}
    why = {kind: words for kind in Architecture if (words := why_not(kind, split.train, split.test))}
    for kind, folders, told in _trained(options, split, why):
        result.setdefault("training", {})[str(kind)] = told
        scorers[kind] = [TraceAutoencoder.load(path, device=device["type"]) for path in folders]
        result |= evaluation_answer(evaluate(scorers, split.train, split.test, why=why)).model_dump()
        (options.out / options.results_name).write_text(json.dumps(result, indent=1) + "\n")
        _pack(kind, folders, options.out, options.pack)
    _show(result)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--models", type=int, default=10, help="of each architecture")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    add_workers(parser)
    parser.add_argument("--pack", type=int, default=0, help="models of each architecture to write as a tar file")
    parser.add_argument("--only", default=",".join(Architecture), help="architectures, separated by commas")
    parser.add_argument("--campaigns", type=Path, help="folder of campaign files; simulated if left out")
    parser.add_argument("--window", type=float, default=100.0, help="seconds, of campaigns from files")
    parser.add_argument("--stride", type=float, help="seconds from one window to the next; side by side if left out")
    parser.add_argument("--results-name", default="traces_table2.json", help="of the JSON file")
    parser.add_argument("--seed", type=int, default=0, help="of the campaigns")
    parser.add_argument("--train", type=int, default=3, help="campaigns to train on; one more each to stop by and to test on")
    parser.add_argument("--nodes", type=int, default=5, help="of 32 threads")
    parser.add_argument("--minutes", type=float, default=30.0, help="of each campaign")
    parser.add_argument("--epochs", type=int, default=AutoencoderSettings().max_epochs, help="at most")
    return parser.parse_args()


def _device(name: str) -> dict[str, Any]:
    import torch

    from stormpetrel.traces.networks.training import device_named

    device = device_named(name)
    shown = torch.cuda.get_device_name(device) if device.type == "cuda" else (platform.processor() or platform.machine())
    return {"type": device.type, "name": shown, "torch": str(torch.__version__), "threads": torch.get_num_threads()}


def _trained(
    options: argparse.Namespace, split: SplitWindows, why: dict[Architecture, str]
) -> Iterator[tuple[Architecture, list[Path], dict[str, Any]]]:
    """Each architecture as it is done: its model folders, and how long they took."""
    for kind in (Architecture(name) for name in options.only.split(",") if Architecture(name) not in why):
        began = time.monotonic()
        folders = _ensemble(options, split, kind)
        seconds = time.monotonic() - began
        models = [TraceAutoencoder.load(path) for path in folders]
        histories = [model.history_ for model in models]
        told = {
            "seconds": round(seconds, 1),
            "seconds_per_model": round(seconds / options.models, 2),
            "models_at_once": options.workers,
            "epochs": [len(history.train) for history in histories],
            "best_epoch": [history.best_epoch + 1 for history in histories],
            "validation_error": [min(history.validation) for history in histories],
            "train_error": [history.train[history.best_epoch] for history in histories],
            "settings": models[0].settings.record(),
        }
        print(f"{kind}: {options.models} models in {seconds:.0f} s, epochs {told['epochs']}", flush=True)
        yield kind, folders, told


def _ensemble(options: argparse.Namespace, split: SplitWindows, kind: Architecture) -> list[Path]:
    """The models of an architecture; several at a time where that is asked for: one small network does not fill a GPU."""
    settings = AutoencoderSettings(architecture=kind, steps=split.train.steps, max_epochs=options.epochs, seed=0)
    return train_ensemble(
        settings, split.train, split.validation, models=options.models, folder=options.out / "models", device=options.device,
        progress=_shown(time.monotonic()), engine=engine_of(options),
    )  # fmt: skip


def _split(options: argparse.Namespace) -> SplitWindows:
    if options.campaigns:
        return split_traces(read_campaigns([options.campaigns]), Cut(options.window, options.stride))
    return split_traces(campaign_set(options.seed, train=options.train, nodes=options.nodes, minutes=options.minutes))


def _shown(began: float) -> Any:
    """Progress on stderr, at most once in ten seconds."""
    last = [began]

    def show(fraction: float, words: str) -> None:
        now = time.monotonic()
        if now - last[0] >= 10 or fraction >= 1:
            last[0] = now
            print(f"  {100 * fraction:5.1f} %  {now - began:6.0f} s  {words}", file=sys.stderr, flush=True)

    return show


def _show(result: dict[str, Any]) -> None:
    print(f"\n{'':<14}" + "".join(f"{kind!s:>22}" for kind in result["model"]))
    for name in FIGURES:
        print(f"{name:<14}" + "".join(f"{_figure(figures, name):>22}" for figures in result["model"].values()))
        print(f"{'  published':<14}" + "".join(f"{_figure(result['published'].get(kind), name):>22}" for kind in result["model"]))
    print("baselines:", json.dumps(result["baselines"]))
    for kind, types in result["by_job_type"].items():
        print(f"{kind:<10}" + "  ".join(f"{name} {errors['mean']:.5f}" for name, errors in types.items()))


def _figure(figures: dict[str, Any] | None, name: str) -> str:
    found = (figures or {}).get(name)
    return "-" if found is None else f"{found['mean']:.4f} ± {found['std']:.4f}"


def _pack(kind: Architecture, folders: list[Path], out: Path, models: int) -> None:
    for path in (file for folder in folders for file in folder.iterdir()):
        if path.stat().st_size > LARGEST_FILE:
            raise SystemExit(f"{path} is larger than {LARGEST_FILE:,} bytes.")
    if models:
        with tarfile.open(out / f"{kind}.tar", "w") as tar:
            for path in folders[:models]:
                tar.add(path, arcname=path.name)


if __name__ == "__main__":
    main()
