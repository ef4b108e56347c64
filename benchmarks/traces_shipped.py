"""Make the encoder of CPU windows that Stormpetrel ships: trained on simulated campaigns alone, judged on others.

PYTHONPATH=src python3 -m benchmarks.traces_shipped [--out FOLDER] [--seed 0] [--date YYYY-MM-DD] [--device cpu|cuda]
        [--trained MODEL]

It writes FOLDER (src/stormpetrel/traces/shipped_encoder by default, in place of what is there): the model as every saved
autoencoder (weights.safetensors, encoder.onnx, decoder.onnx, score.onnx, model.json), about.json with its map, where Bad IO lies
and the figures, and CARD.md. Same seed, device, versions and machine type: same files. It needs torch; training takes a minute or
two of one CPU core. `--trained MODEL` takes a model that was trained elsewhere on just these windows (it is checked) and does the
rest.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np

from stormpetrel.answers.studies.trace_study import evaluation_answer
from stormpetrel.records.traces import MIXED_JOB, Split, Trace
from stormpetrel.records.windows import Windows, cut_windows, join_windows
from stormpetrel.simulate.telemetry.campaigns import campaign_set
from stormpetrel.sources.trace_files import read_campaigns
from stormpetrel.traces.baselines import mean_iowait
from stormpetrel.traces.diagnosis import known_bad_io
from stormpetrel.traces.evaluation import evaluate
from stormpetrel.traces.networks.architecture import Architecture, AutoencoderSettings, Scorer, flops_per_window
from stormpetrel.traces.networks.autoencoder import TraceAutoencoder, is_trained_on
from stormpetrel.traces.networks.fitting_windows import FittingScorer
from stormpetrel.traces.networks.runtime import TraceScorer
from stormpetrel.traces.separability import PcaMap
from stormpetrel.traces.shipped import ABOUT, CARD, FORMAT_VERSION, SHIPPED

COMMAND: Final = "python -m benchmarks.traces_shipped"
THREADS: Final = 1
RECORDED: Final = Path(__file__).parent / "recorded"
RECORDED_STEPS: Final = 40  # the recorded jobs are short
VERSION: Final = 2  # 1 was a convolutional network
# Small and large nodes are seen. Of campaigns: nodes, threads of each, how many to learn from, to stop by, to test on.
SIZES: Final = ((5, 32, 3, 1, 1), (8, 8, 2, 0, 1), (2, 64, 1, 0, 0))
MINUTES: Final = 30.0
SETTINGS: Final = AutoencoderSettings(architecture=Architecture.FAST, channels=(24,), hidden=96)  # .6 MB of files
FIGURES: Final = {
    "re_normal": ("error of normal windows", 4),
    "re_anomalous": ("error of Bad IO", 4),
    "roc_auc": ("ROC area, Bad IO against the rest", 3),
    "mean_iowait_roc_auc": ("ROC area of the mean iowait alone", 3),
    "silhouette": ("silhouette of job types", 3),
}
LIMITS: Final = (
    "It has never seen your machines. A high score says that a window is unlike *simulated* jobs; it may be normal at your site.",
    "It promises no share of false flags. It flags nothing until the site's own calm windows are enough to set a threshold by.",
    "Quiet or regular trouble (a job that fell silent, a thread that spins) reconstructs well and scores low.",
    "Where Bad IO lies is known from simulated Bad IO. The rule of one line, mean iowait, tells Bad IO as well.",
    "Windows of another length or step are fitted to what it sees: coarser steps held, finer ones averaged, shorter repeated.",
)


def main() -> None:
    options = _options()
    import torch

    torch.set_num_threads(THREADS)
    windows = campaign_windows(options.seed)
    print({split.value: len(those) for split, those in windows.items()}, flush=True)
    model = _model(options, windows)
    with tempfile.TemporaryDirectory(dir=options.out.parent) as made:
        folder = Path(made) / "shipped"
        model.save(folder)
        about = _about(options, model, windows, TraceScorer.load(folder, threads=THREADS))
        (folder / ABOUT).write_text(json.dumps(about, indent=1) + "\n")
        (folder / CARD).write_text(card(about))
        for path in folder.iterdir():
            path.chmod(0o644)
        shutil.rmtree(options.out, ignore_errors=True)
        shutil.move(folder, options.out)
        options.out.chmod(0o755)
    print(card(about))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=SHIPPED, help="folder of the model")
    parser.add_argument("--seed", type=int, default=0, help="of the campaigns and of the network")
    parser.add_argument("--date", default=f"{datetime.now(UTC):%Y-%m-%d}", help="that the card names")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--trained", type=Path, help="folder of a model that was trained on just these windows")
    return parser.parse_args()


def _model(options: argparse.Namespace, windows: dict[Split, Windows]) -> TraceAutoencoder:
    train, validation = windows[Split.TRAIN], windows[Split.VALIDATION]
    settings = replace(SETTINGS, seed=options.seed)
    if not options.trained:
        return TraceAutoencoder(settings).fit(train, validation, device=options.device, progress=_shown(time.monotonic()))
    model = TraceAutoencoder.load(options.trained)
    if model.settings != settings or not is_trained_on(model, train, validation):
        raise SystemExit(f"{options.trained} was not trained on these windows with these settings.")
    return model


def campaign_windows(seed: int) -> dict[Split, Windows]:
    """The windows of all campaigns, by what they are for; each size of nodes has seeds of its own."""
    traces: list[Trace] = []
    for place, (nodes, threads, train, validation, test) in enumerate(SIZES):
        counts = {"train": train, "validation": validation, "test": test}
        traces += campaign_set(10 * seed + place, **counts, nodes=nodes, threads_per_node=threads, minutes=MINUTES)
    return {split: join_windows([cut_windows(trace) for trace in traces if trace.split is split]) for split in Split}


def _about(
    options: argparse.Namespace, model: TraceAutoencoder, windows: dict[Split, Windows], scorer: TraceScorer
) -> dict[str, Any]:
    train, test = windows[Split.TRAIN], windows[Split.TEST]
    taught = join_windows([train, windows[Split.VALIDATION]])
    trouble = known_bad_io(scorer, taught)
    assert trouble is not None
    evaluation = evaluate({Architecture.FAST: [scorer]}, train, test, seed=options.seed)
    judged = evaluation_answer(evaluation).model_dump()
    return {
        "format_version": FORMAT_VERSION,
        "version": VERSION,
        "made": options.date,
        "command": f"{COMMAND} --seed {options.seed} --device {model.data_['device']} --date {options.date}",
        "versions": model.versions_,
        "seed": options.seed,
        "step_s": train.step_s,
        "window_s": train.window_s,
        "campaigns": [
            dict(zip(("nodes", "threads_per_node", "train", "validation", "test"), size, strict=True)) | {"minutes": MINUTES}
            for size in SIZES
        ],
        "windows": {split.value: len(those) for split, those in windows.items()},
        "normal_windows": {split.value: len(those.of_normal()) for split, those in windows.items()},
        "epochs": len(model.history_.train),
        "flop_per_window": flops_per_window(model.settings),
        "figures": {"simulated": _simulated(judged), "recorded": _recorded(FittingScorer(scorer, train.step_s))},
        "map": PcaMap.fit(scorer.embed(train.of_normal())).as_dict(),
        "bad_io": trouble.record(),
    }


def _simulated(judged: dict[str, Any]) -> dict[str, Any]:
    figures, baselines = judged["model"][Architecture.FAST.value], judged["baselines"]
    return {
        **{name: figures[name]["mean"] for name in ("re_normal", "re_anomalous", "silhouette", "roc_auc")},
        "mean_iowait_roc_auc": baselines["mean_iowait"]["roc_auc"],
        "pca_re_normal": baselines["pca"]["re_normal"],
    }


def _recorded(scorer: Scorer) -> dict[str, Any]:
    """On jobs that really ran on a machine with two CPUs; none of them was learnt from."""
    from stormpetrel.learn.metrics import roc_auc

    traces = read_campaigns([RECORDED])
    windows = join_windows([cut_windows(trace, steps=RECORDED_STEPS, stride=5) for trace in traces])
    windows = windows.take(windows.job != MIXED_JOB)
    bad, scores = windows.is_anomalous(), scorer.score(windows)
    return {
        "windows": len(windows),
        "window_s": windows.window_s,
        "re_normal": float(scores[~bad].mean()),
        "re_anomalous": float(scores[bad].mean()),
        "roc_auc": roc_auc(bad, scores),
        "mean_iowait_roc_auc": roc_auc(bad, np.asarray(mean_iowait(windows))),
    }


def card(about: dict[str, Any]) -> str:
    """The model card, from what is known of the model."""
    sizes = "; ".join(
        f"{size['train'] + size['validation'] + size['test']} of {size['nodes']} nodes with {size['threads_per_node']} threads"
        for size in about["campaigns"]
    )
    normal, minutes = about["normal_windows"], about["campaigns"][0]["minutes"]
    facts = {
        "made": f"{about['made']}, by `{about['command']}` with torch {about['versions']['torch']}",
        "trained on": f"**simulated campaigns only** ({sizes}; {minutes:g} minutes each): {normal['train']:,} normal windows to "
        f"learn from, {normal['validation']:,} to stop by; no window of any real machine",
        "seed": f"{about['seed']} (campaigns and network), {about['epochs']} epochs",
        "cost": f"{about['flop_per_window'] / 1e6:.2f} MFLOP per window",
        "files": "`encoder.onnx`, `decoder.onnx`, `score.onnx` (both and the score), the same weights as `weights.safetensors`, "
        "`model.json` with a digest of each, `about.json`; nothing is pickled",
    }
    parts = [
        f"# The shipped encoder of CPU windows, version {about['version']}",
        f"A small autoencoder of windows of {about['window_s']:g} s in steps of {about['step_s']:g} s, each\n"
        "thread alone (`fast`), so that a site has embeddings and scores before it has trained a model of its own.",
        "\n".join(["| | |", "| --- | --- |", *(f"| {name} | {words} |" for name, words in facts.items())]),
        figure_table(about),
        "Limits:",
        "\n".join(f"- {limit}" for limit in LIMITS),
    ]
    return "\n\n".join(parts) + "\n"


def figure_table(about: dict[str, Any]) -> str:
    """The figures as a table of Markdown."""
    simulated, recorded = about["figures"]["simulated"], about["figures"]["recorded"]
    heads = ("figure", "simulated, kept aside", f"recorded on a machine with two CPUs (windows of {recorded['window_s']:g} s)")
    rows: list[tuple[str, ...]] = [("windows", f"{about['windows']['test']:,}", f"{recorded['windows']:,}")]
    for name, (words, digits) in FIGURES.items():
        rows.append((words, *("" if name not in found else f"{found[name]:.{digits}f}" for found in (simulated, recorded))))
    lines = [heads, ("---",) * 3, *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _shown(began: float) -> Any:
    def show(fraction: float, words: str) -> None:
        print(f"  {100 * fraction:5.1f} %  {time.monotonic() - began:6.0f} s  {words}", file=sys.stderr, flush=True)

    return show


if __name__ == "__main__":
    main()
