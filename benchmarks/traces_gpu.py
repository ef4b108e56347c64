"""What one GPU does for CPU traces: windows per second, what limits it, from which size on it pays, and training.

`PYTHONPATH=src python3 -m benchmarks.traces_gpu [--out FILE] [--only SECTION,…] [--threads N]`

Needs a GPU; all is measured in one run, beside ONNX Runtime on the CPU cores of the same machine. Windows are simulated; where
speed does not depend on the weights they are random. Times on the GPU are those of its own events, medians of several rounds
after a warm-up. Ceilings (a copy, a product of two matrices, the bus) are measured in the same run. A section that fails says
so and leaves the others alone. Results in benchmarks/results/traces_gpu.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from scipy.stats import spearmanr
from torch import Tensor

from stormpetrel.engine import Engine
from stormpetrel.records.windows import Windows, cut_windows
from stormpetrel.simulate.telemetry.campaigns import CampaignSpec, simulate_campaign
from stormpetrel.traces.networks.architecture import Architecture, AutoencoderSettings, flops_per_window
from stormpetrel.traces.networks.autoencoder import TraceAutoencoder
from stormpetrel.traces.networks.device_scorer import (
    ABSOLUTE,
    FULL_TOLERANCE,
    HALF_TOLERANCE,
    DeviceEnsemble,
    DeviceSlidingScores,
)
from stormpetrel.traces.networks.ensemble import train_ensemble
from stormpetrel.traces.networks.layers import make_network
from stormpetrel.traces.networks.runtime import TraceScorer
from stormpetrel.traces.networks.stacked import Precision
from stormpetrel.traces.shipped import SHIPPED

RESULTS = Path(__file__).parent / "results" / "traces_gpu.json"
GPU: Final = torch.device("cuda")
ALONE: Final = (Architecture.VANILLA, Architecture.FAST)  # that score each thread by itself
MODELS: Final = 10
THREADS: Final = 1_280_000  # 10,000 nodes of 128
EPOCHS: Final = 5
_ROUNDS: Final = 7
_MATRIX: Final = 8192
_COPY_BYTES: Final = 4 << 30
_PORTIONS: Final = (1024, 4096, 8192, 16384, 32768)
_BATCHES: Final = (1, 8, 32, 128, 512, 2048, 8192, 32768, 131072)
_NODE_THREADS: Final = 128
_SECTIONS: dict[str, Callable[[argparse.Namespace], Any]] = {}

Array = npt.NDArray[np.float32]


def section(measure: Callable[[argparse.Namespace], Any]) -> Callable[[argparse.Namespace], Any]:
    """Measure this with the others, under its name."""
    _SECTIONS[measure.__name__] = measure
    return measure


@section
def ceilings(_asked: argparse.Namespace) -> dict[str, float]:
    """What the GPU, its memory and the bus do at most, on random numbers."""
    numbers: dict[str, float] = {}
    for name, dtype in (("fp16", torch.float16), ("fp32", torch.float32)):
        a, b = (torch.randn(_MATRIX, _MATRIX, device=GPU, dtype=dtype) for _ in range(2))
        numbers[f"matmul_{name}_tflops"] = 2e-12 * _MATRIX**3 / gpu_s(partial(torch.matmul, a, b))
    torch.backends.cuda.matmul.allow_tf32 = True
    a, b = (torch.randn(_MATRIX, _MATRIX, device=GPU) for _ in range(2))
    numbers["matmul_tf32_tflops"] = 2e-12 * _MATRIX**3 / gpu_s(partial(torch.matmul, a, b))
    torch.backends.cuda.matmul.allow_tf32 = False
    source = torch.randint(0, 255, (_COPY_BYTES,), dtype=torch.uint8, device=GPU)
    target = torch.empty_like(source)
    numbers["copy_gb_per_s"] = 2e-9 * _COPY_BYTES / gpu_s(lambda: target.copy_(source))
    pinned, pageable = torch.empty(1 << 30, dtype=torch.uint8, pin_memory=True), torch.ones(1 << 30, dtype=torch.uint8)
    part = target[: 1 << 30]
    numbers["to_device_gb_per_s"] = 1.073741824 / gpu_s(lambda: part.copy_(pinned, non_blocking=True))
    numbers["from_device_gb_per_s"] = 1.073741824 / gpu_s(lambda: pinned.copy_(part, non_blocking=True))
    numbers["into_pinned_gb_per_s"] = 1.073741824 / wall_s(lambda: pinned.copy_(pageable))
    return numbers


@section
def equality(_asked: argparse.Namespace) -> dict[str, Any]:
    """How far the scores of the GPU are from those of ONNX Runtime, on trained networks."""
    windows = node_windows(4096)
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        folders = {"shipped": SHIPPED}
        for kind in Architecture:
            settings = AutoencoderSettings(architecture=kind, max_epochs=EPOCHS)
            try:
                TraceAutoencoder(settings).fit(windows, node_windows(1024, seed=1), device="cuda").save(Path(scratch) / kind)
                folders[str(kind)] = Path(scratch) / kind
            except Exception as error:  # one architecture must not take the others with it
                results[str(kind)] = {"failed": str(error)}
        for name, folder in folders.items():
            try:
                expected_z, expected = TraceScorer.load(folder).embed_and_score(windows)
                results[name] = {
                    str(precision): differences(DeviceEnsemble.load([folder], precision=precision), windows, expected_z, expected)
                    for precision in Precision
                }
            except Exception as error:
                results[name] = {"failed": str(error)}
    return results


def differences(ensemble: DeviceEnsemble, windows: Windows, expected_z: Array, expected: npt.NDArray[Any]) -> dict[str, float]:
    z, scores = ensemble.embed_and_score(windows)
    apart = np.abs(scores[0] - expected)
    tolerance = HALF_TOLERANCE if ensemble.precision is Precision.HALF else FULL_TOLERANCE
    return {
        "largest_of_tolerance": float((apart / (ABSOLUTE + tolerance * expected)).max()),
        "largest_relative": float((apart / np.maximum(expected, 1e-12)).max()),
        "p99_relative": float(np.quantile(apart / np.maximum(expected, 1e-12), 0.99)),
        "largest_absolute": float(apart.max()),
        "median_score": float(np.median(expected)),
        "smallest_score": float(expected.min()),
        "rank_correlation": float(spearmanr(scores[0], expected).statistic),
        "largest_of_embedding": float(np.abs(z[0] - expected_z).max() / np.abs(expected_z).max()),
    }


@section
def speed(_asked: argparse.Namespace) -> dict[str, Any]:
    """Windows per second that lie on the device already, by portion; and from and to the memory of the host."""
    results: dict[str, Any] = {}
    for kind in ALONE:
        for models in (1, MODELS):
            by_portion = {}
            for portion in _PORTIONS:
                ensemble = random_ensemble(kind, models, Precision.HALF, portion)
                rates = random_rates(portion)
                seconds = gpu_s(partial(scored, ensemble, rates))
                by_portion[str(portion)] = {"windows_per_s": portion / seconds, "model_windows_per_s": models * portion / seconds}
            best = max(by_portion, key=lambda portion: by_portion[portion]["windows_per_s"])
            results[f"{kind}_{models}"] = {
                "resident": by_portion[best], "best_portion": int(best), "by_portion": by_portion,
                "full_precision": per_second(random_ensemble(kind, models, Precision.FULL, 8192), 8192),
                "plain_torch_half": per_second(without_kernels(kind, models), 8192),
                "with_transfer": transferred(kind, models, int(best)),
            }  # fmt: skip
    return results


def per_second(ensemble: DeviceEnsemble, portion: int) -> dict[str, float]:
    seconds = gpu_s(partial(scored, ensemble, random_rates(portion)))
    return {"windows_per_s": portion / seconds, "model_windows_per_s": ensemble.models * portion / seconds}


def transferred(kind: Architecture, models: int, portion: int) -> dict[str, float]:
    """From an array of the host to arrays of the host: embeddings and scores."""
    ensemble = random_ensemble(kind, models, Precision.HALF, portion)
    windows = repeated(node_windows(16384), 400_000)
    with_z, alone = (wall_s(partial(work, windows), rounds=3) for work in (ensemble.embed_and_score, ensemble.score))
    return {
        "windows": len(windows), "windows_per_s": len(windows) / alone, "with_embeddings_windows_per_s": len(windows) / with_z,
        "bus_gb_per_s": 1e-9 * windows.rates.nbytes / alone,
    }  # fmt: skip


@section
def roofline(_asked: argparse.Namespace) -> dict[str, Any]:
    """Of ten models: FLOP and bytes per second, the bytes counted as what each step of the computation reads and writes once."""
    results: dict[str, Any] = {}
    for kind in ALONE:
        ensemble = random_ensemble(kind, MODELS, Precision.HALF, 32768)
        rates = random_rates(32768)
        seconds = gpu_s(partial(scored, ensemble, rates))
        windows, flop, moved = MODELS * len(rates), flops_per_window(ensemble.settings), bytes_per_window(ensemble.settings)
        results[str(kind)] = {
            "windows": len(rates), "seconds": seconds, "mflop_per_window": 1e-6 * flop, "kb_per_window": 1e-3 * moved,
            "tflops": 1e-12 * flop * windows / seconds, "gb_per_s": 1e-9 * moved * windows / seconds,
            "kernels": kernel_times(ensemble, rates),
        }  # fmt: skip
    return results


def bytes_per_window(settings: AutoencoderSettings) -> float:
    """What one model's steps read and write of a window in 16 bits; rates in 32 bits, shared by ten models; weights are few."""
    rates = 16 * settings.steps / MODELS
    inner = 2 * settings.hidden + settings.embedding  # hidden, embedding and hidden again
    if settings.architecture is Architecture.FAST:
        # the rates are read in 32 bits, written and read in 16 by the first layer; each bent layer goes by three times more
        numbers = 4 * settings.padded_steps
        return 1.5 * rates + 2 * (numbers / MODELS + 4 * (2 * settings.flat + inner) + 2 * numbers) + rates
    sizes, steps, moved = [3, *settings.channels], settings.padded_steps, 0.0
    for place, channels in enumerate(settings.channels):
        moved += (2 * steps * sizes[place] if place else 0) + steps * channels  # read, and written at half the length
        steps //= 2
    moved += 2 * (4 * settings.flat + 4 * inner)  # read once by the encoder, written by the decoder and bent in a step of its own
    before = settings.channels[-1]
    for channels in [*reversed(settings.channels[:-1]), settings.channels[0]]:
        moved += 2 * steps * before + 4 * steps * channels
        before, steps = channels, 2 * steps
    return moved + 2 * steps * before + 2 * rates


def kernel_times(ensemble: DeviceEnsemble, rates: Tensor) -> list[dict[str, Any]]:
    """Microseconds on the device by kernel, of one call, the longest first."""
    from torch.profiler import ProfilerActivity, profile

    scored(ensemble, rates)
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as profiler:
        for _ in range(3):
            scored(ensemble, rates)
        torch.cuda.synchronize()
    rows = [
        {"kernel": event.key[:90], "us": event.self_device_time_total / 3, "calls": event.count / 3}
        for event in profiler.key_averages()
        if event.self_device_time_total > 0
    ]
    return sorted(rows, key=lambda row: -row["us"])[:24]


@section
def crossover(_asked: argparse.Namespace) -> dict[str, Any]:
    """Milliseconds of one call for so many windows, from and to the host's memory: GPU, all cores, one core."""
    results: dict[str, Any] = {}
    windows = repeated(node_windows(16384), max(_BATCHES))
    for kind in ALONE:
        settings = AutoencoderSettings(architecture=kind)
        network = make_network(settings).eval()
        weights = {name: tensor.numpy() for name, tensor in network.state_dict().items()}
        cores = os.cpu_count() or 1
        with_cores: dict[str, Any] = {
            "gpu": DeviceEnsemble([network], device=GPU, precision=Precision.HALF, portion=16384),
            "cores": TraceScorer.of_weights(settings, weights, {}, threads=cores),
            "core": TraceScorer.of_weights(settings, weights, {}, threads=1),
        }
        rows = []
        for batch in _BATCHES:
            some = windows.take(slice(batch))
            row: dict[str, Any] = {"windows": batch}
            for name, scorer in with_cores.items():
                if batch <= 32768 or name != "core":
                    row[f"{name}_ms"] = 1e3 * wall_s(partial(scorer.embed_and_score, some), rounds=3)
            rows.append(row)
        faster = [row["windows"] for row in rows if row["gpu_ms"] < row["cores_ms"]]
        than_one = [row["windows"] for row in rows if "core_ms" in row and row["gpu_ms"] < row["core_ms"]]
        results[str(kind)] = {
            "cpu_cores": cores, "rows": rows, "gpu_faster_than_cores_from": min(faster, default=None),
            "gpu_faster_than_one_core_from": min(than_one, default=None),
        }  # fmt: skip
    return results


@section
def one_second(asked: argparse.Namespace) -> dict[str, Any]:
    """One second of all threads through ten models: windows that slide on the device, and whole windows sent each second."""
    return {"threads": asked.threads, "models": MODELS, **{str(kind): second_of(kind, asked.threads) for kind in ALONE}}


def second_of(kind: Architecture, threads: int) -> dict[str, Any]:
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    ensemble = random_ensemble(kind, MODELS, Precision.HALF, 16384)
    sliding = DeviceSlidingScores(ensemble, threads)
    step = np.random.default_rng(0).dirichlet(np.ones(4), size=threads).astype(np.float32)
    push_s = wall_s(lambda: sliding.push(step).cpu(), rounds=5)
    on_device_s = gpu_s(lambda: sliding.push(step), rounds=3)
    windows = repeated(node_windows(16384), threads)
    whole_s = wall_s(lambda: ensemble.score(windows), rounds=3)
    return {
        "sliding_s": push_s, "sliding_on_device_s": on_device_s, "sliding_met": push_s <= 1,
        "device_memory_gb": 1e-9 * torch.cuda.max_memory_allocated(),
        "whole_windows_s": whole_s, "whole_windows_met": whole_s <= 1,
        "whole_windows_full_precision_s": wall_s(partial(full_ensemble(kind).score, windows), rounds=1),
    }  # fmt: skip


def full_ensemble(kind: Architecture) -> DeviceEnsemble:
    return random_ensemble(kind, MODELS, Precision.FULL, 8192)


@section
def training(_asked: argparse.Namespace) -> dict[str, Any]:
    """Seconds of one training of each architecture, same windows and epochs, on the GPU and on the CPU's cores."""
    train, validation = campaign_windows((0, 1, 2)), campaign_windows((3,))
    results: dict[str, Any] = {"windows": len(train), "validation": len(validation), "epochs": EPOCHS}
    for kind in Architecture:
        settings = AutoencoderSettings(architecture=kind, max_epochs=EPOCHS, patience=EPOCHS)
        row: dict[str, Any] = {}
        for device in ("cuda", "cpu"):
            warm = replace(settings, max_epochs=1)
            if device == "cuda":
                TraceAutoencoder(warm).fit(train, validation, device=device)
            began = time.perf_counter()
            model = TraceAutoencoder(settings).fit(train, validation, device=device)
            torch.cuda.synchronize()
            row[f"{device}_s"] = time.perf_counter() - began
            row[f"{device}_validation_error"] = min(model.history_.validation)
        results[str(kind)] = {**row, "cpu_over_gpu": row["cpu_s"] / row["cuda_s"]}
    return results


@section
def ensemble_training(_asked: argparse.Namespace) -> dict[str, Any]:
    """Seconds of ten trainings, ten at a time, each in a process of its own: all on the one GPU, or on the CPU's cores."""
    train, validation = campaign_windows((0, 1, 2)), campaign_windows((3,))
    results: dict[str, Any] = {"models": MODELS, "epochs": EPOCHS}
    for kind in ALONE:
        settings = AutoencoderSettings(architecture=kind, max_epochs=EPOCHS, patience=EPOCHS)
        row = {}
        for device in ("cuda", "cpu"):
            with tempfile.TemporaryDirectory() as folder:
                began = time.perf_counter()
                parts: dict[str, Any] = {"folder": Path(folder), "models": MODELS, "device": device, "engine": Engine(MODELS)}
                train_ensemble(settings, train, validation, **parts)
                row[f"{device}_s"] = time.perf_counter() - began
        results[str(kind)] = row
    return results


def gpu_s(work: Callable[[], object], rounds: int = _ROUNDS) -> float:
    """Seconds on the device of one call: median of some rounds of at least five milliseconds."""
    for _ in range(3):
        work()
    torch.cuda.synchronize()
    began = time.perf_counter()
    work()
    torch.cuda.synchronize()
    calls = max(1, int(0.005 / max(1e-6, time.perf_counter() - began)))
    times = []
    for _ in range(rounds):
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        for _ in range(calls):
            work()
        last.record()
        last.synchronize()
        times.append(float(1e-3 * first.elapsed_time(last) / calls))
    return statistics.median(times)


def wall_s(work: Callable[[], object], rounds: int = 5) -> float:
    """Seconds of one call by the clock: the median, after a warm-up."""
    work()
    torch.cuda.synchronize()
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        work()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def scored(ensemble: DeviceEnsemble, rates: Tensor) -> None:
    with torch.inference_mode():
        ensemble.embed_and_score_rates(rates)


def random_ensemble(kind: Architecture, models: int, precision: Precision, portion: int) -> DeviceEnsemble:
    networks = [make_network(AutoencoderSettings(architecture=kind, seed=seed)).eval() for seed in range(models)]
    return DeviceEnsemble(networks, device=GPU, precision=precision, portion=portion)


def without_kernels(kind: Architecture, models: int) -> DeviceEnsemble:
    """In 16 bits by torch's own layers alone."""
    ensemble = random_ensemble(kind, models, Precision.HALF, 8192)
    ensemble._stack._kernels = None
    return ensemble


def random_rates(windows: int) -> Tensor:
    rates = torch.rand(windows, 100, 4, device=GPU).square_()
    return rates / rates.sum(2, keepdim=True)


def node_windows(count: int, seed: int = 0) -> Windows:
    """So many windows of one simulated node's threads."""
    minutes = -(-count // _NODE_THREADS) * 100 / 60 + 0.1
    trace = simulate_campaign(CampaignSpec(nodes=1, threads_per_node=_NODE_THREADS, minutes=minutes, seed=seed))
    return cut_windows(trace).take(slice(count))


def campaign_windows(seeds: Sequence[int]) -> Windows:
    """Windows of simulated campaigns (5 nodes of 32 threads, 30 minutes each), as one."""
    parts = [cut_windows(simulate_campaign(CampaignSpec(seed=seed))) for seed in seeds]
    return joined(parts)


def joined(parts: Sequence[Windows]) -> Windows:
    names = ("rates", "start_s", "node", "cpu")
    together: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    together["trace"] = np.repeat(np.arange(len(parts), dtype=np.int32), [len(part) for part in parts])
    before = np.cumsum([0, *(len(part.jobs) for part in parts)])
    together["job"] = np.concatenate(
        [np.where(part.job >= 0, part.job + first, part.job) for part, first in zip(parts, before, strict=False)]
    ).astype(np.int32)
    jobs = tuple(job for part in parts for job in part.jobs)
    return replace(parts[0], **together, traces=tuple(str(number) for number in range(len(parts))), jobs=jobs)


def repeated(windows: Windows, count: int) -> Windows:
    """So many windows: the same again and again."""
    return windows.take(np.arange(count) % len(windows))


def machine() -> dict[str, Any]:
    properties = torch.cuda.get_device_properties(0)
    model = [
        line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")
    ]
    query = ["nvidia-smi", "--query-gpu=driver_version,clocks.sm,clocks.mem,temperature.gpu", "--format=csv,noheader"]
    return {
        "gpu": properties.name, "multiprocessors": properties.multi_processor_count, "memory_gb": properties.total_memory / 1e9,
        "cpu": model[0], "cores": os.cpu_count(), "python": platform.python_version(), "load": os.getloadavg()[0],
        "nvidia_smi": subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip(),
        **{name: version(name) for name in ("torch", "triton", "onnxruntime", "numpy")},
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--only", default="")
    parser.add_argument("--threads", type=int, default=THREADS)
    asked = parser.parse_args()
    chosen = [name for name in _SECTIONS if not asked.only or name in asked.only.split(",")]
    result: dict[str, Any] = {"machine": machine()}
    for name in chosen:
        began = time.perf_counter()
        try:
            result[name] = _SECTIONS[name](asked)
        except Exception:  # the others are worth having
            result[name] = {"failed": traceback.format_exc()[-1500:]}
        torch.cuda.empty_cache()
        print(f"## {name} {time.perf_counter() - began:.1f} s\n{json.dumps(result[name])}", flush=True)
        asked.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
