"""Do neighbours help to foretell a thread? The next ten seconds from the last 100 steps, on simulated campaigns at 1 and 10 Hz.

PYTHONPATH=src python3 -m benchmarks.traces_forecast [--device cuda] [--seeds 3] [--workers 1] [--out FILE.json]

Compared: the network on each thread alone, the same with the other threads of its job, and two rules (the last second goes on;
the mean of the last ten seconds goes on). Errors are mean squared differences of one-second means over the next ten seconds and
the four modes, on normal windows of a campaign that nothing was trained on; every seed has its own campaigns and first weights.
The gain is what neighbours take off the error of the same seed. It needs numpy, torch and safetensors only.
"""

from __future__ import annotations

import argparse
import json
import time
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.options import add_workers, engine_of
from benchmarks.thread_forecast import ForecastSettings, TraceForecaster, goes_on, past_and_future, steps_needed
from stormpetrel.engine import Progress
from stormpetrel.records.traces import Split, Trace
from stormpetrel.records.windows import Windows, cut_windows, join_windows
from stormpetrel.simulate.telemetry.campaigns import campaign_set
from stormpetrel.traces.separability import MeanStd

RESULTS: Final = Path(__file__).parent / "results" / "traces_forecast.json"
STRIDE_S: Final = 20  # between the windows of a thread
_KINDS: Final = {"alone": False, "with_neighbours": True}


def main() -> None:
    options = _options()
    result: dict[str, Any] = {
        "what": "error of the next ten seconds, simulated campaigns",
        "device": options.device,
        "seeds": options.seeds,
    }
    for step_s in (1.0, 0.1):
        began = time.monotonic()
        result[f"{round(1 / step_s)}_hz"] = compared(options, step_s)
        print(f"({time.monotonic() - began:.0f} s)\n", flush=True)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(f"Written: {options.out}")


def compared(options: argparse.Namespace, step_s: float) -> dict[str, Any]:
    errors: dict[str, list[dict[str, float]]] = {}
    windows: dict[str, int] = {}
    work, seeds = partial(_one_seed, options, step_s), range(options.seeds)
    for seed, (counts, judged) in enumerate(engine_of(options).map(work, seeds, name=lambda seed: f"seed {seed}")):
        windows = counts
        for name, figures in judged.items():
            errors.setdefault(name, []).append(figures)
        print(f"  seed {seed}: " + ", ".join(f"{name} {found[-1]['all']:.5f}" for name, found in errors.items()), flush=True)
    told = {name: _spread(found) for name, found in errors.items()}
    pairs = list(zip(errors["alone"], errors["with_neighbours"], strict=True))
    gain = _spread([{kind: 1 - heard[kind] / alone[kind] for kind in alone} for alone, heard in pairs])
    print(f"{1 / step_s:.0f} Hz, {windows}")
    _show(told | {"gain by neighbours": gain})
    return {"windows": windows, "errors": told, "gain_by_neighbours": gain}


def _one_seed(
    options: argparse.Namespace, step_s: float, seed: int, _progress: Progress
) -> tuple[dict[str, int], dict[str, dict[str, float]]]:
    """How many windows there were, and the errors of every forecast by job type, with campaigns and networks of one seed."""
    campaigns = campaign_set(seed + 1, step_s=step_s, nodes=options.nodes, minutes=options.minutes)
    parts = {split: _windows(campaigns, split, step_s) for split in Split}
    past, future = past_and_future(parts[Split.TEST].of_normal(), ForecastSettings())
    foretold = {"last_second_goes_on": goes_on(past), "last_ten_seconds_go_on": goes_on(past, last_s=10)}
    for name, neighbours in _KINDS.items():
        settings = ForecastSettings(neighbours=neighbours, seed=seed, max_epochs=options.epochs)
        model = TraceForecaster(settings).fit(parts[Split.TRAIN], parts[Split.VALIDATION], device=options.device)
        foretold[name] = model.forecast(past)
    judged = {name: by_type(rates, future, past.job_types()) for name, rates in foretold.items()}
    return {str(split): len(part) for split, part in parts.items()}, judged


def by_type(foretold: np.ndarray, future: np.ndarray, types: np.ndarray) -> dict[str, float]:
    error = ((foretold - future) ** 2).mean(axis=(1, 2))
    return {"all": float(error.mean())} | {str(kind): float(error[types == kind].mean()) for kind in np.unique(types)}


def _windows(campaigns: list[Trace], split: Split, step_s: float) -> Windows:
    steps, stride = steps_needed(ForecastSettings(), step_s), round(STRIDE_S / step_s)
    return join_windows([cut_windows(trace, steps=steps, stride=stride) for trace in campaigns if trace.split is split])


def _spread(found: list[dict[str, float]]) -> dict[str, Any]:
    return {kind: MeanStd.of([one[kind] for one in found]).as_dict() for kind in found[0]}


def _show(told: dict[str, Any]) -> None:
    kinds = list(next(iter(told.values())))
    print(f"{'':24}" + "".join(f"{kind:>20}" for kind in kinds))
    for name, errors in told.items():
        print(f"{name:24}" + "".join(f"{errors[kind]['mean']:>12.5f} ±{errors[kind]['std']:.5f}" for kind in kinds))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seeds", type=int, default=3)
    add_workers(parser)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--nodes", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--out", type=Path, default=RESULTS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
