"""How long the simulated cluster takes for a million jobs, in how much memory; and whether its jobs look like real ones.

`python -m benchmarks.simulate [--jobs N …] [--nodes N …]`: each case in a process of its own, results in
benchmarks/results/simulate.json. `--compare [--workers 1]` prints the table of docs/simulator.md instead, `--plots FOLDER` draws
the distributions as SVG; both need STORMPETREL_DATA.
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
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.options import add_workers

if TYPE_CHECKING:
    import polars as pl

RESULTS = Path(__file__).parent / "results" / "simulate.json"
LIMIT_S = 180.0  # asked for a million jobs
SEEDS = 5


def run_case(jobs: int, nodes: int) -> None:
    """One simulation in this process; what is timed is the work, without the imports."""
    from stormpetrel.simulate.cluster import ClusterSpec, simulate

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    began, began_cpu = time.perf_counter(), time.process_time()
    rows = sum(frame.height for frame in simulate(ClusterSpec(nodes=nodes, jobs=jobs, days=None)))
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - began_cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    sizes = {"peak_bytes": peak, "imported_bytes": before}
    print(json.dumps({"jobs": rows, "nodes": nodes, "seconds": seconds, "cpu_seconds": cpu_seconds, **sizes}))


def measure(jobs: int, nodes: int) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.simulate", "--case", str(jobs), str(nodes)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def logs() -> dict[str, pl.DataFrame]:
    from benchmarks.simulate_compare import read_logs

    folder = os.environ.get("STORMPETREL_DATA")
    if not folder:
        sys.exit("Set STORMPETREL_DATA to the folder of public logs.")
    return read_logs(Path(folder))


def default_site(seed: int = 1) -> pl.DataFrame:
    import polars as pl

    from stormpetrel.simulate.cluster import ClusterSpec, simulate

    return pl.concat(simulate(ClusterSpec(seed=seed)))


@dataclass(frozen=True, slots=True)
class CompareSeed:
    """Compares the default site of a seed with the public logs."""

    real: dict[str, pl.DataFrame]

    def __call__(self, seed: int, _progress: Callable[[float, str], None]) -> pl.DataFrame:
        """The table of the seed."""
        from benchmarks.simulate_compare import compare_with_logs

        return compare_with_logs(default_site(seed), self.real)


def compare(workers: int) -> None:
    """The table of the docs: the default site beside the public logs, with how many of five seeds lie within their range."""
    import polars as pl

    from stormpetrel.engine import Engine

    work = CompareSeed(logs())
    tables = list(Engine(workers).map(work, range(1, SEEDS + 1), name=lambda seed: f"seed {seed}"))
    within = [sum(bool(table["within"][row]) for table in tables) for row in range(tables[0].height)]
    shown = tables[0].drop("within").with_columns(within=pl.Series([f"{count} of {SEEDS}" for count in within]))
    print("| " + " | ".join(shown.columns) + " |\n|" + " --- |" * len(shown.columns))
    for row in shown.iter_rows():
        print("| " + " | ".join(_cell(value) for value in row) + " |")
    print(f"\n{sum(within)} of {SEEDS * len(within)} figures lie within the range of the real logs.")


def plots(folder: Path) -> None:
    """Three SVG files: how intervals, run times and cores are distributed, real and simulated."""
    from benchmarks.simulate_compare import cdf_svg, distributions

    mixes = {name: distributions(frame) for name, frame in {**logs(), "simulated": default_site()}.items()}
    folder.mkdir(parents=True, exist_ok=True)
    for figure in ("interval_s", "runtime_s", "cores"):
        text = cdf_svg(figure, {name: values[figure] for name, values in mixes.items()})
        (folder / f"simulator-{figure}.svg").write_text(text)


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return "–" if value is None else str(value)


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--nodes", type=int, nargs="+", default=[100, 1000])
    parser.add_argument("--compare", action="store_true", help="print the comparison with real logs")
    add_workers(parser)
    parser.add_argument("--plots", type=Path, help="draw the distributions into this folder")
    parser.add_argument("--case", type=int, nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        run_case(*options.case)
        return
    if options.compare:
        compare(options.workers)
        return
    if options.plots:
        plots(options.plots)
        return
    results: list[dict[str, Any]] = []
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores; asked: a million jobs in at most {LIMIT_S:.0f} s")
    for jobs, nodes in product(options.jobs, options.nodes):
        result = measure(jobs, nodes)
        results.append({**result, "jobs_per_second": result["jobs"] / result["seconds"]})
        rate, peak = results[-1]["jobs_per_second"], result["peak_bytes"] / 1e6
        spent = f"{result['seconds']:8.1f} s ({result['cpu_seconds']:.1f} s CPU)"
        print(f"  {jobs:>10,} jobs on {nodes:>6,} nodes {spent} {rate:10,.0f} jobs/s   peak {peak:,.0f} MB")
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(
        json.dumps({"python": platform.python_version(), "cores": os.cpu_count(), "cases": results}, indent=1) + "\n"
    )


if __name__ == "__main__":
    main()
