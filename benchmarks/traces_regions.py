"""Known regions and the index of past windows, measured.

python -m benchmarks.traces_regions [--index] [--naming] [--seeds 10] -> benchmarks/results/traces_regions.json
python -m benchmarks.traces_regions --index --sizes 10000000    # one more size; the others stay as they are

--index: recall of the ten nearest and queries per second of the inverted index beside the exact one, on embeddings of simulated
windows by the shipped encoder, spread out to 10^5, 3·10^5 and 10^6 vectors by noise of a tenth of their scale. --naming: a region
named from the trouble of one simulated campaign; which share of the same trouble, and of everything else, raises the name in a
later campaign.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stormpetrel.records.traces import ANOMALOUS_TYPES, MIXED
from stormpetrel.records.windows import Windows, cut_windows
from stormpetrel.simulate.telemetry.campaigns import CampaignSpec, simulate_campaign
from stormpetrel.traces.regions import Regions, fit_region
from stormpetrel.traces.shipped import load_shipped
from stormpetrel.traces.vector_index import PROBES, ExactIndex, IvfIndex, Vectors

RESULTS = Path(__file__).parent / "results" / "traces_regions.json"
SIZES = (100_000, 300_000, 1_000_000)
QUERIES = 200
PART = 1_000_000 + QUERIES


def campaign(seed: int) -> Windows:
    """Ten nodes of 32 threads for half an hour."""
    return cut_windows(simulate_campaign(CampaignSpec(name=f"c{seed}", nodes=10, threads_per_node=32, minutes=30, seed=seed)))


def spread_out(seen: Vectors, size: int, rng: np.random.Generator) -> Vectors:
    """So many vectors around some embeddings, a million at a time."""
    parts = []
    for first in range(0, size, PART):
        count = min(PART, size - first)
        noise = 0.1 * seen.std(axis=0) * rng.standard_normal((count, seen.shape[1]))
        parts.append((seen[rng.integers(len(seen), size=count)] + noise).astype(np.float32))
    return np.concatenate(parts)


def measure_index(sizes: Sequence[int]) -> list[dict[str, Any]]:
    """Recall and speed by size."""
    scorer = load_shipped(threads=1).scorer
    seen = np.concatenate([scorer.embed(campaign(seed)) for seed in range(3)])
    rng = np.random.default_rng(0)
    rows = []
    for size in sizes:
        vectors = spread_out(seen, size + QUERIES, rng)
        past, queries = vectors[:size], vectors[size:]
        began = time.process_time()
        fast = IvfIndex(past)
        built_s = time.process_time() - began
        exact = ExactIndex(past)
        times = {}
        answers = {}
        for name, index in (("exact", exact), ("ivf", fast)):
            began = time.process_time()
            answers[name] = np.concatenate([index.search(query[None], 10).row for query in queries])  # one at a time, as asked
            times[name] = (time.process_time() - began) / QUERIES
        recall = np.mean([len(set(a) & set(b)) / 10 for a, b in zip(*(answers[n].tolist() for n in answers), strict=True)])
        row = {"vectors": size, "cells": fast.cells, "probes": PROBES, "recall_at_10": float(recall), "build_s": built_s}
        rows.append(row | {f"{name}_ms": 1e3 * seconds for name, seconds in times.items()})
        print(
            f"{size:>9,} vectors: recall@10 {recall:.3f}, exact {1e3 * times['exact']:.2f} ms, "
            f"IVF {1e3 * times['ivf']:.2f} ms a query ({times['exact'] / times['ivf']:.0f}×), built in {built_s:.1f} s"
        )
    return rows


def measure_naming(seeds: int) -> dict[str, dict[str, float]]:
    """Share of windows that raise the name in a later campaign, of the trouble itself and of everything else."""
    scorer = load_shipped(threads=1).scorer
    shares: dict[str, list[float]] = {"trouble": [], "others": []}
    for seed in range(seeds):
        first, later = campaign(100 + 2 * seed), campaign(101 + 2 * seed)
        known, after = scorer.embed(first), scorer.embed(later)
        bad = np.isin(first.job_types(), sorted(ANOMALOUS_TYPES))
        calm = ~bad & (first.job_types() != MIXED)
        examples = np.flatnonzero(bad)[:: max(1, int(bad.sum()) // 128)][:128]
        region = fit_region("bad", known[examples], first.start_s[examples].tolist(), known[calm])
        named = Regions((region,)).names_of(after).name == "bad"
        worse, others = np.isin(later.job_types(), sorted(ANOMALOUS_TYPES)), later.job_types() != MIXED
        shares["trouble"].append(float(named[worse].mean()))
        shares["others"].append(float(named[others & ~worse].mean()))
    summary = {name: {"mean": float(np.mean(v)), "std": float(np.std(v)), "n": len(v)} for name, v in shares.items()}
    for name, figures in summary.items():
        print(f"{name}: {figures['mean']:.4f} ± {figures['std']:.4f} of its windows raise the name ({seeds} seeds)")
    return summary


def main() -> None:
    """Measure what was asked for, by default both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--index", action="store_true")
    parser.add_argument("--naming", action="store_true")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES, help="vectors in the index")
    chosen = parser.parse_args()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if chosen.index or not chosen.naming:
        before = [row for row in results.get("index", ()) if row["vectors"] not in chosen.sizes]
        results["index"] = sorted([*before, *measure_index(chosen.sizes)], key=lambda row: row["vectors"])
    if chosen.naming or not chosen.index:
        results["naming"] = measure_naming(chosen.seeds)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
