"""What a score of every thread at every second costs, from a hundred threads to a million; and how it ranks windows.

PYTHONPATH=src python3 -m benchmarks.traces_scale [--largest 1000000] [--rounds 5]

Each size runs in a process of its own, on one thread: CPU seconds for one step of all threads (best of some rounds) by
`SlidingScores` with the shipped encoder and with a `fast` network of the default size (random weights: speed does not depend on
them), next to the vanilla network scoring the same windows anew, and the memory of the process; and what the watch does of it,
`SlidingSpans` with the shipped encoder: nodes of 64 threads with two jobs each, every second summed up by node and job. The rank
correlation of the sliding score with the score of the whole windows is taken over simulated threads at every second. Results in
benchmarks/results/traces_scale.json, the figure in docs/figures/traces-scale.svg.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from math import log10
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from stormpetrel.records.traces import NodeSteps
from stormpetrel.records.windows import cut_windows
from stormpetrel.simulate.telemetry.campaigns import CampaignSpec, simulate_campaign
from stormpetrel.traces.networks.architecture import Architecture, AutoencoderSettings
from stormpetrel.traces.networks.runtime import TraceScorer
from stormpetrel.traces.shipped import SHIPPED
from stormpetrel.traces.sliding import SlidingScores, SlidingSpans

RESULTS: Final = Path(__file__).parent / "results" / "traces_scale.json"
FIGURE: Final = Path(__file__).parents[1] / "docs" / "figures" / "traces-scale.svg"
SIZES: Final = (100, 1_000, 10_000, 100_000, 1_000_000)
ASKED_THREADS: Final = 100_000  # on one core, every second
VANILLA_UP_TO: Final = 10_000  # threads; beyond, it grows with their number
SHORTEST_S: Final = 0.05  # of a round
NODE_THREADS: Final = 64
SPAN_STEPS: Final = 50  # as in the watch, with windows of 100 s
CALM_SHARE: Final = 0.999  # of calm windows lie below the threshold
LINES: Final = {  # name of the cost, its line in the figure
    "vanilla_cpu_s": ("vanilla, anew each second: CPU s", "#b2182b"),
    "fast_cpu_s": ("fast, default size: CPU s", "#2166ac"),
    "spans_cpu_s": ("the watch, summed up by node and job: CPU s", "#762a83"),
    "shipped_cpu_s": ("fast, shipped: CPU s", "#4d9221"),
    "spans_rss_gb": ("memory of the watch's part: GB", "#777777"),
}

Rates = npt.NDArray[np.float32]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--largest", type=int, default=SIZES[-1], help="threads")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--case", type=int, help="measure one number of threads in this process, and print it")
    parser.add_argument("--spans", type=int, help="the same of what the watch does")
    options = parser.parse_args()
    if options.case or options.spans:
        print(json.dumps(measure(options.case, options.rounds) if options.case else spans_cost(options.spans, options.rounds)))
        return
    cases = [_in_process(size, options.rounds) for size in SIZES if size <= options.largest]
    libraries = {name: version(name) for name in ("onnxruntime", "numpy")}
    machine = {"cores": os.cpu_count(), "python": platform.python_version(), **libraries, "load": os.getloadavg()[0]}
    result = {"machine": machine, "asked_threads": ASKED_THREADS, "cases": cases, "rank_correlation": rank_correlation()}
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    FIGURE.write_text(scale_svg(cases))
    print(json.dumps(result, indent=1))


def _in_process(size: int, rounds: int) -> dict[str, Any]:
    """Each in a process of its own, so that peaks of memory are their own."""
    case: dict[str, Any] = {}
    for what in ("--case", "--spans"):
        command = [sys.executable, "-m", "benchmarks.traces_scale", what, str(size), "--rounds", str(rounds)]
        case |= json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    print(case, file=sys.stderr, flush=True)
    return case


def measure(threads: int, rounds: int) -> dict[str, Any]:
    """The cost of one step of so many threads, in this process."""
    before = _peak_gb()
    case: dict[str, Any] = {"threads": threads, "rss_before_gb": before}
    case |= sliding_cost(_shipped(), threads, rounds, "shipped")
    case["rss_gb"] = _peak_gb()  # before anything else is measured
    case |= sliding_cost(_random(Architecture.FAST), threads, rounds, "fast")
    if threads <= VANILLA_UP_TO:
        windows = cut_windows(simulate_campaign(CampaignSpec(nodes=1, threads_per_node=100, minutes=2, seed=0))).take(slice(100))
        vanilla = _random(Architecture.VANILLA)
        case["vanilla_cpu_s"] = _best(lambda: [vanilla.score(windows) for _ in range(threads // 100)], rounds)
    return case


def sliding_cost(scorer: TraceScorer, threads: int, rounds: int, name: str) -> dict[str, float]:
    """CPU seconds of one step once all threads have a whole window, and the memory that the windows need."""
    scores = SlidingScores(scorer, threads)
    some = simulated_rates(min(threads, 512), scorer.settings.steps)  # (steps, threads, 4)
    times = -(-threads // some.shape[1])
    for step in some:
        scores.push(np.tile(step, (times, 1))[:threads])
    last = np.tile(some[-1], (times, 1))[:threads]
    return {f"{name}_cpu_s": _best(lambda: scores.push(last), rounds), "held_gb": scores.bytes_held / 1e9}


def spans_cost(threads: int, rounds: int) -> dict[str, float]:
    """CPU seconds of one second of the watch: its nodes' steps are pushed one at a time, and its spans are given out."""
    scorer = _shipped()
    steps, nodes = scorer.settings.steps, -(-threads // NODE_THREADS)
    some = simulated_rates(min(threads, 512), 2 * steps)
    threshold = float(np.quantile(_scores(scorer, some), CALM_SHARE))
    spans = SlidingSpans(scorer, threshold, SPAN_STEPS)
    sizes = [min(NODE_THREADS, threads - NODE_THREADS * node) for node in range(nodes)]
    jobs = [np.arange(size, dtype=np.int32)[None] // (NODE_THREADS // 2) for size in sizes]
    places = [(np.arange(size) + NODE_THREADS * node) % some.shape[1] for node, size in enumerate(sizes)]
    rows = 0

    def second(number: int) -> float:
        nonlocal rows
        rates = some[number % len(some)]
        coming = [
            NodeSteps(f"n{node:05}", tuple(range(size)), number, rates[None, places[node]], jobs[node], (f"{node}a", f"{node}b"))
            for node, size in enumerate(sizes)
        ]
        began = time.process_time()
        spans.push(coming)
        rows += spans.take(number + 1).height
        return time.process_time() - began

    for number in range(steps):
        second(number)
    whole = [
        np.mean([second(number) for number in range(first, first + SPAN_STEPS)]) for first in _firsts(steps, threads, rounds)
    ]
    return {"spans_cpu_s": float(min(whole)), "spans_rss_gb": _peak_gb(), "spans_rows": rows}


def _firsts(steps: int, threads: int, rounds: int) -> range:
    """Where each measured span begins; of very many threads one must do."""
    return range(steps, steps + (rounds if threads <= ASKED_THREADS else 1) * SPAN_STEPS, SPAN_STEPS)


def _scores(scorer: TraceScorer, rates: Rates) -> Rates:
    """Of the last window of each thread, at every second."""
    scores = SlidingScores(scorer, rates.shape[1])
    every: Rates = np.concatenate([scores.push(step) for step in rates])
    scored: Rates = every[np.isfinite(every)]
    return scored


def simulated_rates(threads: int, steps: int) -> Rates:
    """Rates of the threads of one simulated node, step by step: (steps, threads, 4)."""
    trace = simulate_campaign(CampaignSpec(nodes=1, threads_per_node=threads, minutes=max(4.0, steps / 60 + 0.1), seed=0))
    return np.ascontiguousarray(trace.rates[:steps])


def rank_correlation() -> dict[str, float]:
    """The sliding score next to the score of every whole window, at each of some hundred seconds of simulated threads."""
    from scipy.stats import spearmanr

    trace = simulate_campaign(CampaignSpec(nodes=2, threads_per_node=32, minutes=6, seed=1))
    scorer = _shipped()
    scores = SlidingScores(scorer, trace.threads)
    sliding = np.array([scores.push(step) for step in trace.rates])[scorer.settings.steps - 1 :]  # (seconds, threads)
    full = scorer.score(cut_windows(trace, stride=1)).reshape(sliding.shape)
    return {
        "windows": sliding.size,
        "spearman": float(spearmanr(sliding.ravel(), full.ravel()).statistic),
        "largest_relative_difference": float(np.max(np.abs(sliding - full) / full)),
    }


def _shipped() -> TraceScorer:
    return TraceScorer.load(SHIPPED, threads=1)


def _random(architecture: Architecture) -> TraceScorer:
    from stormpetrel.traces.networks.layers import make_network

    settings = AutoencoderSettings(architecture=architecture)
    weights = {name: tensor.detach().numpy() for name, tensor in make_network(settings).state_dict().items()}
    return TraceScorer.of_weights(settings, weights, {}, threads=1)


def _best(work: Callable[[], object], rounds: int) -> float:
    """CPU seconds of one call, the best of some rounds."""
    work()
    best = np.inf
    for _ in range(rounds):
        calls, began = 0, time.process_time()
        while calls == 0 or time.process_time() - began < SHORTEST_S:
            work()
            calls += 1
        best = min(best, (time.process_time() - began) / calls)
    return float(best)


def _peak_gb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def scale_svg(cases: Sequence[Mapping[str, float]]) -> str:
    """Both axes logarithmic; the dashed line is the second that there is for a step."""
    width, height, left, top, lowest, highest = 640, 400, 60, 20, -5, 2

    def at(threads: float, value: float) -> tuple[float, float]:
        across = (log10(threads) - 2) / 4 * (width - left - 20)
        return left + across, top + (highest - log10(value)) / (highest - lowest) * (height - top - 50)

    def text(x: float, y: float, words: str, more: str = "") -> str:
        return f'<text x="{x:.1f}" y="{y:.1f}" font-family="sans-serif" font-size="12" {more}>{words}</text>'

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for power in range(lowest, highest + 1):
        (x, y), (end, _) = at(100, 10**power), at(1e6, 10**power)
        dash = ' stroke-dasharray="6 4" stroke-width="2"' if power == 0 else ""
        parts.append(f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{end:.1f}" y2="{y:.1f}" stroke="#cccccc"{dash}/>')
        parts.append(text(x - 6, y + 4, f"{10.0**power:g}", 'text-anchor="end"'))
    for power in range(2, 7):
        x, y = at(10**power, 10**lowest)
        parts.append(text(x, y + 18, f"{10**power:,}", 'text-anchor="middle"'))
    parts.append(text(left + 200, height - 8, "threads, each scored every second on one core"))
    for place, (name, (words, colour)) in enumerate(LINES.items()):
        points = [at(case["threads"], case[name]) for case in cases if name in case]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points]
        parts.append(text(left + 12, top + 16 + 16 * place, words, f'fill="{colour}"'))
    return "\n".join([*parts, "</svg>"]) + "\n"


if __name__ == "__main__":
    main()
