"""How long generators of workloads take, and in how much memory; writes benchmarks/results/synth_speed.json.

STORMPETREL_DATA=… python -m benchmarks.synth_speed [--only fit,sampling,million,streaming] [--generator sessions]
        [--peers copulagan,sdv-copulagan] [--epochs 300] [--timed-epochs N] [--stream 1000000 10000000] [--out FILE]

- fit: learning Theta (the published file without its first 50 rows) and making 16,000 jobs, beside our CopulaGAN and SDV's at the
  same number of epochs, each in a process of its own with one thread; CPU seconds without and with the imports. With
  `--timed-epochs N` networks are timed at N and 2 N epochs and the rest is a straight line through both, and marked so.
- sampling: jobs a second on one core, from models of Theta and HPC2N.
- million: learning a log of a million jobs (HPC2N five times, each time with new users, one after the other) on two threads.
- streaming: the peak of memory while 1 and 10 million jobs are made.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from stormpetrel.synth.workload import Workload

RESULT: Final = Path(__file__).parent / "results" / "synth_speed.json"
JOBS: Final = 16_000
MILLION: Final = 1_000_000
EPOCHS: Final = 300  # SDV's own default
NETWORKS: Final = ("copulagan", "sdv-copulagan")
ASKED: Final = {"times_less_cpu": 20.0, "jobs_per_second": 50_000.0, "million_s": 180.0}
_THREADS: Final = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "POLARS_MAX_THREADS")
_WEEK_S: Final = 7 * 86_400
PARTS: Final = ("fit", "sampling", "million", "streaming")


def main() -> None:
    options = _options()
    if options.case:
        _case(json.loads(options.case))
        return
    results: dict[str, Any] = json.loads(options.out.read_text()) if options.out.exists() else {}
    run: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
        "fit": fit_and_sample, "sampling": sampling, "million": million, "streaming": streaming,
    }  # fmt: skip
    for name in options.only.split(","):
        results[name] = {**run[name](options), "generator": options.generator, "load": os.getloadavg()[0]}
        options.out.write_text(json.dumps(results, indent=1) + "\n")


def fit_and_sample(options: argparse.Namespace) -> dict[str, Any]:
    peers = [name for name in options.peers.split(",") if not name.startswith("sdv-") or find_spec("sdv")]
    names = [options.generator, *peers]
    found = {name: _fit_of(name, options) for name in names}
    ours = found[options.generator]
    for name, figures in found.items():
        ratio = figures["cpu_s"] / ours["cpu_s"]
        figures["times_ours"], figures["times_ours_with_imports"] = ratio, figures["process_cpu_s"] / ours["process_cpu_s"]
        print(
            f"fit + {JOBS:,} jobs, {name:<16}{figures['cpu_s']:9.1f} s CPU ({figures['process_cpu_s']:.1f} with imports) "
            f"{ratio:8.1f}× (asked: {ASKED['times_less_cpu']:.0f}×){'  ' + figures['how'] if figures['how'] else ''}"
        )
    return {"jobs": JOBS, "epochs": options.epochs, "generators": found}


def _fit_of(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """CPU seconds at the epochs that are asked for: measured, or a line through two shorter trainings."""
    case = {"what": "fit", "name": name, "log": "theta-intervals", "jobs": JOBS}
    if name not in NETWORKS:
        return {**measure(case), "how": ""}
    timed = options.timed_epochs
    if not timed or 2 * timed >= options.epochs:
        return {**measure({**case, "epochs": options.epochs}), "how": ""}
    short, long = (measure({**case, "epochs": epochs}) for epochs in (timed, 2 * timed))
    more = (options.epochs - timed) * (long["cpu_s"] - short["cpu_s"]) / timed
    figures = {**short, "cpu_s": short["cpu_s"] + more, "process_cpu_s": short["process_cpu_s"] + more}
    how = f"extrapolated from {timed} and {2 * timed} epochs to {options.epochs}"
    return {**figures, "wall_s": None, "how": how, "timed": {"short": short, "long": long}}


def sampling(options: argparse.Namespace) -> dict[str, Any]:
    found = {}
    for log in ("theta-intervals", "hpc2n"):
        case = {"what": "stream", "name": options.generator, "log": log, "jobs": options.sample}
        figures = measure(case)
        found[log] = {**figures, "jobs_per_cpu_s": figures["jobs"] / figures["cpu_s"]}
        print(f"sampling, {log}: {found[log]['jobs_per_cpu_s']:,.0f} jobs/s/core (asked: {ASKED['jobs_per_second']:,.0f})")
    return {"logs": found}


def million(options: argparse.Namespace) -> dict[str, Any]:
    case = {"what": "fit", "name": options.generator, "log": "million", "jobs": JOBS, "threads": 2}
    figures = measure(case)
    told = f"{figures['fit_wall_s']:.0f} s, {figures['fit_cpu_s']:.0f} s CPU, peak {figures['peak_bytes'] / 1e6:,.0f} MB"
    print(f"fit of {figures['learnt']:,} jobs on two threads: {told} (asked: {ASKED['million_s']:.0f} s)")
    return figures


def streaming(options: argparse.Namespace) -> dict[str, Any]:
    cases = []
    for jobs in options.stream:
        figures = measure({"what": "stream", "name": options.generator, "log": "kth", "jobs": jobs})
        cases.append(figures)
        sizes = f"peak {figures['peak_bytes'] / 1e6:,.0f} MB, {figures['fitted_bytes'] / 1e6:,.0f} MB before the first job"
        print(f"streaming {jobs:,} jobs: {sizes}, {figures['jobs'] / figures['cpu_s']:,.0f} jobs/s/core")
    return {"cases": cases}


def measure(case: dict[str, Any]) -> dict[str, Any]:
    """One case in a process of its own."""
    environment = {**os.environ, **dict.fromkeys(_THREADS, str(case.get("threads", 1)))}
    command = [sys.executable, "-m", "benchmarks.synth_speed", "--case", json.dumps(case)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def _case(case: dict[str, Any]) -> None:
    """Learn a log, then make jobs and forget them."""
    import polars as pl  # noqa: F401  (imports are not part of the work)

    from stormpetrel.synth.choose import new_generator
    from stormpetrel.synth.contract import Wanted

    if case["name"] in NETWORKS:
        import torch

        torch.set_num_threads(int(case.get("threads", 1)))
    real = _log(case["log"])
    settings = {"epochs": case["epochs"]} if "epochs" in case else {}
    generator = new_generator(case["name"], seed=0, **settings)
    start, cpu_start = time.perf_counter(), time.process_time()
    generator.fit(real)
    fitted, cpu_fitted, fitted_bytes = time.perf_counter(), time.process_time(), _peak()
    made = sum(frame.height for frame in generator.batches(Wanted(jobs=case["jobs"], seed=1)))
    done, cpu_done = time.perf_counter(), time.process_time()
    spent = {"wall_s": done - start, "cpu_s": cpu_done - cpu_start, "process_cpu_s": cpu_done}
    if case["what"] == "stream":  # what was learnt before is not part of it
        spent = {"wall_s": done - fitted, "cpu_s": cpu_done - cpu_fitted, "process_cpu_s": cpu_done}
    parts = {"fit_wall_s": fitted - start, "fit_cpu_s": cpu_fitted - cpu_start, "fitted_bytes": fitted_bytes}
    print(json.dumps({"jobs": made, "learnt": real.height, **spent, **parts, "peak_bytes": _peak()}))


def _log(name: str) -> Workload:
    from benchmarks.synth_study import LOGS, read_workload

    folder = Path(os.environ["STORMPETREL_DATA"])
    return read_workload(folder, LOGS[name]) if name != "million" else _repeated(read_workload(folder, LOGS["hpc2n"]), MILLION)


def _repeated(log: Workload, jobs: int) -> Workload:
    """A log several times, each time with users of its own, by whole weeks later."""
    import polars as pl

    from stormpetrel.synth.workload import SUBMIT, WHO, Workload

    span_s = log.submit_s()[-1] - log.submit_s()[0]
    later_s = int(span_s // _WEEK_S + 1) * _WEEK_S
    names = [name for name in WHO if name in log.jobs.columns]
    times = range(-(-jobs // log.height))
    frames = [
        log.jobs.with_columns(
            pl.col(SUBMIT) + pl.duration(seconds=number * later_s), *(pl.col(name) + f"-{number}" for name in names)
        )
        for number in times
    ]
    return Workload(pl.concat(frames)[:jobs], log.has_clock)


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(PARTS), help="parts to run, separated by commas")
    parser.add_argument("--generator", default="sessions", help="ours")
    parser.add_argument("--peers", default=",".join(NETWORKS), help="networks beside it; SDV's where it is installed")
    parser.add_argument("--epochs", type=int, default=EPOCHS, help="of the peers")
    parser.add_argument("--timed-epochs", type=int, help="epochs that are run; the rest is a straight line")
    parser.add_argument("--sample", type=int, default=MILLION, help="jobs of the rate of sampling")
    parser.add_argument("--stream", type=int, nargs="+", default=[MILLION, 10 * MILLION], help="jobs of the peaks of memory")
    parser.add_argument("--out", type=Path, default=RESULT, help="file of the results")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
