"""How many windows of CPU traces a core scores per second, beside torch and beside what torch itself exports.

`python -m benchmarks.traces [--windows N] [--rounds N]`: simulated windows of a node of 128 threads, networks with random weights
(speed does not depend on them), one thread everywhere. Times are CPU seconds of the process, the best of several rounds; wall
time stands beside them. The peak is that of a product of two float32 matrices in the same run. Results in
benchmarks/results/traces.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.stats import spearmanr
from threadpoolctl import threadpool_limits
from torch import Tensor, nn

from stormpetrel.records.windows import Windows, cut_windows
from stormpetrel.simulate.telemetry.campaigns import CampaignSpec, simulate_campaign
from stormpetrel.traces.networks.architecture import Architecture, AutoencoderSettings, flops_per_window
from stormpetrel.traces.networks.layers import AutoencoderNetwork, make_network
from stormpetrel.traces.networks.message_kernel import MessageKernel
from stormpetrel.traces.networks.message_passing import Graphs, MessagePassing
from stormpetrel.traces.networks.onnx_files import decoder_onnx, encoder_onnx
from stormpetrel.traces.networks.runtime import AT_ONCE, FAST_AT_ONCE, Session, TraceScorer

RESULTS = Path(__file__).parent / "results" / "traces.json"
ASKED_WINDOWS = 6_500  # per second and core, vanilla, score included
ASKED_FAST = 100_000  # per second and core, fast, score included
FAST_PORTIONS = (16, 64, 128, 256, 512, 1024)
ASKED_THREADS = 500_000  # per second and core, message passing alone, 128 threads per graph
GRAPH_SIZES = (8, 32, 64, 128, 256)
THREADS = 128  # per node
_PEER_BATCH = 256  # what torch likes best here
_SHORTEST_S = 0.1  # of a round


def best(work: Callable[[], object], rounds: int) -> dict[str, float]:
    """CPU and wall seconds of one call, each the best of some rounds of at least a tenth of a second."""
    work()
    cpu, wall = [], []
    for _ in range(rounds):
        calls, cpu_start, wall_start = 0, time.process_time(), time.perf_counter()
        while time.process_time() - cpu_start < _SHORTEST_S:
            work()
            calls += 1
        cpu.append((time.process_time() - cpu_start) / calls)
        wall.append((time.perf_counter() - wall_start) / calls)
    return {"cpu_s": min(cpu), "wall_s": min(wall)}


def per_second(number: int, seconds: dict[str, float]) -> dict[str, float]:
    return {"per_cpu_second": round(number / seconds["cpu_s"]), "per_wall_second": round(number / seconds["wall_s"])}


def sgemm_gflops(rounds: int) -> dict[str, float]:
    """The best of three sizes, for the three libraries that are here; which of them is fastest depends on the processor."""
    peaks = {"numpy": 0.0, "torch": 0.0, "onnxruntime": 0.0}
    for size in (256, 512, 1024):
        a = np.random.default_rng(0).random((size, size), dtype=np.float32)
        t = torch.from_numpy(a)
        product = Session(_product(a), threads=1)
        works: dict[str, Callable[[], object]] = {
            "numpy": partial(np.matmul, a, a), "torch": partial(torch.matmul, t, t), "onnxruntime": partial(product.run, "a", a),
        }  # fmt: skip
        for name, work in works.items():
            peaks[name] = max(peaks[name], 2e-9 * size**3 / best(work, rounds)["cpu_s"])
    return peaks


def _product(b: npt.NDArray[np.float32]) -> bytes:
    """A graph that multiplies its input with a matrix that it holds."""
    from onnx import TensorProto, helper, numpy_helper

    first, last = (helper.make_tensor_value_info(name, TensorProto.FLOAT, list(b.shape)) for name in ("a", "c"))
    product = helper.make_node("MatMul", ["a", "b"], ["c"])
    graph = helper.make_graph([product], "product", [first], [last], [numpy_helper.from_array(b, "b")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


def simulated(count: int) -> Windows:
    """So many windows of one node's threads, rounded down to whole nodes."""
    minutes = max(1, count // THREADS) * 100 / 60
    trace = simulate_campaign(CampaignSpec(nodes=1, threads_per_node=THREADS, minutes=minutes, seed=0))
    windows = cut_windows(trace)
    return windows.take(slice(len(windows) // THREADS * THREADS))


def weights_of(network: nn.Module) -> dict[str, Any]:
    return {name: tensor.detach().numpy() for name, tensor in network.state_dict().items()}


class TorchPeer:
    """Scores by torch in batches, the graphs found beforehand."""

    def __init__(self, network: AutoencoderNetwork, windows: Windows) -> None:
        self.network, cpu = network, torch.device("cpu")
        parts = [windows.take(slice(start, start + _PEER_BATCH)) for start in range(0, len(windows), _PEER_BATCH)]
        number = {Architecture.NODE_GNN: Windows.node_graphs, Architecture.JOB_GNN: Windows.job_graphs}
        find = number.get(network.settings.architecture)
        self.parts = [(torch.from_numpy(part.rates), Graphs.of_numbers(find(part), cpu) if find else None) for part in parts]

    def score(self) -> Tensor:
        """The scores of all windows."""
        with torch.inference_mode():
            return torch.cat([(self.network(rates, graphs) - rates).square().mean(dim=(1, 2)) for rates, graphs in self.parts])


def measure_autoencoder(architecture: Architecture, windows: Windows, rounds: int) -> dict[str, Any]:
    """Windows per second of the runtime and of torch, and how far their answers are apart."""
    settings = AutoencoderSettings(architecture=architecture)
    network = make_network(settings).eval()
    scorer, peer = TraceScorer.of_weights(settings, weights_of(network), {}, threads=1), TorchPeer(network, windows)
    ours, theirs = scorer.score(windows), peer.score().numpy()
    fast = per_second(len(windows), best(lambda: scorer.score(windows), rounds))
    slow = per_second(len(windows), best(peer.score, rounds))
    return {
        "windows": fast,
        "torch_eager": slow,
        "to_torch_eager": fast["per_cpu_second"] / slow["per_cpu_second"],
        "largest_difference_of_scores": float(np.abs(ours - theirs).max()),
        "rank_correlation": float(spearmanr(ours, theirs).statistic),
    }


def measure_torch_export(windows: Windows, rounds: int) -> dict[str, float]:
    """The vanilla network as torch exports it (the old exporter: the new one needs another package), in ONNX Runtime."""
    network = make_network(AutoencoderSettings()).eval()
    whole = Session(_exported(network, torch.from_numpy(windows.rates[:2])), threads=1)

    def score() -> None:
        for start in range(0, len(windows), AT_ONCE):
            rates = windows.rates[start : start + AT_ONCE]
            np.square(whole.run("rates", rates) - rates).mean(axis=(1, 2))

    return per_second(len(windows), best(score, rounds))


def measure_without_blocks(windows: Windows, rounds: int) -> dict[str, float]:
    """Our own graphs with ONNX Runtime's blocked layout switched off; convolutions over one axis never get it."""
    import onnxruntime

    network, options = make_network(AutoencoderSettings()).eval(), onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    encoder, decoder = (
        onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
        for graph in (encoder_onnx(network), decoder_onnx(network))
    )

    def score() -> None:
        for start in range(0, len(windows), AT_ONCE):
            rates = windows.rates[start : start + AT_ONCE]
            (z,) = encoder.run(None, {"rates": rates})
            np.square(decoder.run(None, {"z": z})[0] - rates).mean(axis=(1, 2))

    return per_second(len(windows), best(score, rounds))


def measure_portions(windows: Windows, rounds: int) -> dict[str, float]:
    """Windows per CPU second of the graph of `fast` that scores, by how many windows go through it at once."""
    settings = AutoencoderSettings(architecture=Architecture.FAST)
    scorer = TraceScorer.of_weights(settings, weights_of(make_network(settings).eval()), {}, threads=1)

    def score(size: int) -> None:
        for start in range(0, len(windows), size):
            scorer.embed_and_score_rates(windows.rates[start : start + size])

    return {str(size): per_second(len(windows), best(partial(score, size), rounds))["per_cpu_second"] for size in FAST_PORTIONS}


def _exported(network: nn.Module, example: Tensor) -> bytes:
    axes = {"rates": {0: "windows"}, "back": {0: "windows"}}
    names: dict[str, Any] = {"input_names": ["rates"], "output_names": ["back"], "dynamic_axes": axes}
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is deprecated
        torch.onnx.export(network, (example,), Path(folder) / "network.onnx", **names, dynamo=False)
        return (Path(folder) / "network.onnx").read_bytes()


def naive_messages(step: MessagePassing, z: Tensor) -> Tensor:
    """The same step by the letter: an MLP on each pair of embeddings. (graphs, threads, embedding) both ways."""
    graphs, threads, size = z.shape
    shape = (graphs, threads, threads, size)
    pairs = torch.cat([z[:, :, None].expand(shape), z[:, None].expand(shape)], dim=3)  # (graphs, threads, threads, 2 × embedding)
    both = torch.cat([step.receiver.weight, step.sender.weight], dim=1)
    hidden = nn.functional.linear(pairs, both, step.receiver.bias).relu()  # (graphs, threads, threads, hidden)
    alpha = step.weight(hidden)[..., 0] * (1 - torch.eye(threads))
    message = alpha @ z / max(threads - 1, 1)
    changed: Tensor = z + step.update(step.hidden(torch.cat([z, message], dim=2)).relu())
    return changed


def measure_messages(threads: int, rounds: int) -> dict[str, Any]:
    """Threads per second of one step on graphs of so many threads: compiled, factorised in torch, and naive in torch."""
    size, count = 16, 8192 // threads * threads
    torch.manual_seed(0)
    step, z = MessagePassing(size).eval(), torch.randn(count, size)
    numbers = np.arange(count) // threads
    kernel = MessageKernel.of_weights(size, {f"message_passing.{name}": value for name, value in weights_of(step).items()})
    graphs, by_graph = Graphs.of_numbers(numbers, torch.device("cpu")), z.reshape(-1, threads, size)

    def naive() -> Tensor:  # some graphs at a time: all at once would need gigabytes
        return torch.cat([naive_messages(step, part) for part in torch.split(by_graph, max(1, 512 // threads))])

    with torch.inference_mode():
        difference = np.abs(kernel(z.numpy(), numbers) - naive().reshape(count, size).numpy()).max()
        seconds = best(lambda: kernel(z.numpy(), numbers), rounds)
        factorised, pairs = best(lambda: step(z, graphs), rounds), best(naive, rounds)
    return {
        "threads": per_second(count, seconds),
        "us_per_thread": 1e6 * seconds["cpu_s"] / count,
        "torch_factorised": per_second(count, factorised),
        "torch_naive_pairs": per_second(count, pairs),
        "to_naive_pairs": pairs["cpu_s"] / seconds["cpu_s"],
        "largest_difference": float(difference),
    }


def measure(count: int, rounds: int) -> dict[str, Any]:
    windows, settings = simulated(count), AutoencoderSettings()
    peaks = sgemm_gflops(rounds)
    networks = {str(kind): measure_autoencoder(kind, windows, rounds) for kind in Architecture}
    flop = flops_per_window(settings)
    gflops = 1e-9 * flop * networks["vanilla"]["windows"]["per_cpu_second"]
    fast_flop = flops_per_window(AutoencoderSettings(architecture=Architecture.FAST))
    fast_gflops = 1e-9 * fast_flop * networks["fast"]["windows"]["per_cpu_second"]
    export = measure_torch_export(windows, rounds)
    return {
        "windows": len(windows),
        "mflop_per_window": 1e-6 * flop,
        "sgemm_gflops": peaks,
        "asked_windows_per_second": ASKED_WINDOWS,
        "windows_per_second_per_core": networks,
        "vanilla_gflops": gflops,
        "vanilla_of_sgemm_peak": gflops / max(peaks.values()),
        "fast": {
            "asked_windows_per_second": ASKED_FAST,
            "mflop_per_window": 1e-6 * fast_flop,
            "to_vanilla": networks["fast"]["windows"]["per_cpu_second"] / networks["vanilla"]["windows"]["per_cpu_second"],
            "gflops": fast_gflops,
            "of_sgemm_peak": fast_gflops / max(peaks.values()),
            "windows_at_once": FAST_AT_ONCE,
            "per_cpu_second_by_windows_at_once": measure_portions(windows, rounds),
        },
        "vanilla_by_torch_onnx_export": export,
        "vanilla_without_blocked_layout": measure_without_blocks(windows, rounds),
        "asked_threads_per_second": ASKED_THREADS,
        "message_passing_per_core": {str(threads): measure_messages(threads, rounds) for threads in GRAPH_SIZES},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--windows", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=8)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    with threadpool_limits(1):
        result = measure(asked.windows, asked.rounds)
    libraries = {name: version(name) for name in ("torch", "onnxruntime", "numba", "numpy")}
    machine = {"cores": os.cpu_count(), "python": platform.python_version(), **libraries, "load": os.getloadavg()[0]}
    RESULTS.write_text(json.dumps({"machine": machine, **result}, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
