"""What a site of many jobs costs: training, `check` and `why` on the command line, `serve`, `watch`, each page's first drawing.

`python -m benchmarks.jobs_scale [--jobs N …] [--only STEP …] [--keep DIR]`: simulated jobs, again and again under other names,
over at most two years; each step in a process of its own, seconds by the clock and peak memory. Each size is replaced on its own
in benchmarks/results/jobs_scale.json, `--only` those steps; the growth is drawn in docs/figures/jobs-scale.svg.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any

import polars as pl

from benchmarks.jobs import SIMULATED, simulated
from stormpetrel.config import settings_from
from stormpetrel.ingest.commit import commit_jobs
from stormpetrel.jobs.predictor import known_by
from stormpetrel.records.jobs import FIELD_BIT
from stormpetrel.store.site import create_site, open_site

AT_FIRST = 300_000  # jobs of the overview that a start of `serve` waits for
PERIODS = 10  # of simulated weeks, one after the other; more jobs than that are several clusters' worth at once
_TIMES = ("submit_time", "eligible_time", "start_time", "end_time")


def periods(jobs: int, now: datetime) -> Iterator[pl.DataFrame]:
    """So many jobs in order of time, about a tenth at a time; the last are submitted just before `now`."""
    once = simulated()
    first: datetime = once["submit_time"].min()  # type: ignore[assignment]
    last: datetime = once["submit_time"].max()  # type: ignore[assignment]
    weeks = timedelta(days=7 * -(-(last - first).days // 7))
    copies = max(1, round(jobs / once.height))
    at_once = -(-copies // PERIODS)
    back = -(-copies // at_once)
    for period in range(back):
        shift = (now - last) - weeks * (back - 1 - period)
        numbers = range(period * at_once, min(copies, (period + 1) * at_once))
        parts = [
            once.with_columns(
                pl.col(_TIMES) + shift,
                job_id=pl.col("job_id") + number * 10 * SIMULATED,
                job_id_raw=pl.col("job_id_raw") + number * 10 * SIMULATED,
                user=pl.col("user") + f"-{number}",
                node_list=pl.col("node_list").str.replace(r"^n", f"r{number - numbers[0]}n"),
            )
            for number in numbers
        ]
        yield known_by(pl.concat(parts), now).sort("submit_time")


def make_site(folder: Path, jobs: int) -> None:
    """A site with so many jobs in its table, and nothing learnt."""
    now = datetime.now(UTC).replace(microsecond=0)
    values = {"site": {"name": "scale", "cluster": "petrel"}, "serve": {"requests_per_minute": 10_000_000}}
    seen = 0
    with create_site(folder, settings_from(values)) as site:
        for frame in periods(jobs, now):
            numbered = frame.with_columns(fingerprint=pl.int_range(seen, seen + pl.len()), line=pl.int_range(pl.len()))
            commit_jobs(site.jobs, numbered, fields=sum(FIELD_BIT.values()), as_of=now)
            seen += frame.height


RESULTS = Path(__file__).parent / "results" / "jobs_scale.json"
FIGURE = Path(__file__).parents[1] / "docs" / "figures" / "jobs-scale.svg"
SIZES = (100_000, 1_000_000, 3_000_000, 10_000_000)
LEARNT = 40_000  # jobs that the models of `models` learn from: what is timed here does not depend on them
SCRIPT = "#!/bin/bash\n#SBATCH --job-name=relax\n#SBATCH --ntasks=16\n#SBATCH --mem=8G\n#SBATCH --time=2:00:00\nsrun ./relax\n"


def models(folder: Path) -> None:
    """Models of all moments from the latest jobs: not a training of the site, which `train` is."""
    from stormpetrel.lifecycle.job_models import enter_job_models, fit_job_models

    with open_site(folder) as site:
        now = site.now()
        recent = site.jobs.read_jobs(since=now - timedelta(days=60)).collect().sort("submit_time").tail(LEARNT)
        enter_job_models(site, fit_job_models(site, until=now, jobs=recent), promoted_by="benchmark", why="a benchmark")


def train(folder: Path) -> None:
    """`jobs train`, all moments."""
    from stormpetrel.lifecycle.job_models import train_job_models

    with open_site(folder) as site:
        train_job_models(site, progress=lambda step: print(f"{time.process_time():22.1f} s CPU  {step}", file=sys.stderr))


def features(folder: Path) -> None:
    """What a training does before it fits: labels, profiles, the sweep, and the features of the rows that fits take."""
    from stormpetrel.jobs.moments import MOMENTS
    from stormpetrel.lifecycle.job_models import training_settings
    from stormpetrel.lifecycle.training_pieces import label_site

    with open_site(folder) as site:
        label_site(site, training_settings(site.settings), MOMENTS, until=site.now(), answers=False)


def snapshot(folder: Path) -> None:
    """The first sweeps, whose results are kept: the history, and the past of the outlook."""
    from stormpetrel.lifecycle.history_snapshot import carry_history
    from stormpetrel.lifecycle.job_models import carry_outlook, load_models

    with open_site(folder) as site:
        carry_history(site, load_models(site), until=site.now())
        carry_outlook(site, until=site.now())


def check(folder: Path) -> Run:
    """`check` on the command line, cold."""
    script = folder / "relax.sh"
    script.write_text(SCRIPT)
    return command("--site", str(folder), "check", str(script), "--user", "jope036-0", "--json")


def why(folder: Path) -> Run:
    """`why` on the command line, cold, of a job that failed today."""
    with open_site(folder) as site:
        ended = site.jobs.read_jobs(since=site.now() - timedelta(days=1)).filter(pl.col("state") == "FAILED")
        job = str(ended.select(pl.col("job_id").max()).collect().item())
    return command("--site", str(folder), "why", job, "--json")


def stream(folder: Path) -> None:
    """What `watch` and `serve` do before they can judge: models and history in memory, up to now."""
    from stormpetrel.lifecycle.live import open_stream

    with open_site(folder) as site:
        open_stream(site, horizon=site.now())


def serve(folder: Path) -> None:
    """From the start of `serve` until its pages can be asked for."""
    from stormpetrel.answers.overview.overview import Overview

    with open_site(folder) as site:
        Overview().refresh(site, most=AT_FIRST)


def overview(folder: Path) -> None:
    """All months of the overview in memory, as `serve` has them soon after."""
    from stormpetrel.answers.overview.overview import Overview

    with open_site(folder) as site:
        Overview().refresh(site)


def trends(folder: Path) -> None:
    """The sums by day that Trends and waste are drawn from, as kept by an earlier start."""
    from stormpetrel.answers.history.day_book import make_book
    from stormpetrel.answers.live_site import LiveSite

    with open_site(folder) as site:
        make_book(LiveSite(site), "", None)


STEPS: dict[str, Callable[[Path], Run | None]] = {
    step.__name__: step for step in (models, features, train, snapshot, check, why, stream, serve, overview, trends)
}
TWICE = ("check", "why", "trends")  # the second time counts: the first keeps what it worked out, compiled functions and bytecode


@dataclass(frozen=True)
class Run:
    """What a command took: seconds by the clock, and its largest memory in bytes."""

    seconds: float
    peak_bytes: int


def command(*arguments: str) -> Run:
    """Run a command."""
    began, most = time.perf_counter(), 0
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}  # installed programs have it
    process = subprocess.Popen([sys.executable, "-m", "stormpetrel", *arguments], stdout=subprocess.DEVNULL, env=env)
    while process.poll() is None:
        most = max(most, peak_bytes(process.pid))
        time.sleep(0.005)
    if process.returncode:
        raise SystemExit(f"stormpetrel {' '.join(arguments)} ended with {process.returncode}")
    return Run(time.perf_counter() - began, most)


def peak_bytes(process: int | str = "self") -> int:
    """The largest memory of a process so far; `ru_maxrss` would count what its parent had when it was started."""
    with suppress(OSError):
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return 1024 * int(line.split()[1])
    return 0  # it is over


def measured(step: str, folder: Path) -> dict[str, Any]:
    """One step in a process of its own: seconds by the clock and of CPU, peak memory, and the load of the machine meanwhile.

    Of `check` and `why` it is the command alone that counts, its start included; of the others the process.
    """
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    arguments = [sys.executable, "-m", "benchmarks.jobs_scale", "--step", step, str(folder)]
    done = subprocess.run(arguments, stdout=subprocess.PIPE, text=True, check=True)
    seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    own = json.loads(done.stdout.splitlines()[-1])
    return {"seconds": seconds, "cpu_s": cpu, **own, "load": os.getloadavg()[0]}


def run_step(step: str, folder: Path) -> None:
    """Do a step, and print its largest memory; of a command also its seconds."""
    run = STEPS[step](folder)
    figures: dict[str, float] = {"peak_bytes": peak_bytes()}
    if run is not None:
        spent = resource.getrusage(resource.RUSAGE_CHILDREN)
        figures = {"seconds": run.seconds, "cpu_s": spent.ru_utime + spent.ru_stime, "peak_bytes": run.peak_bytes}
    print(json.dumps(figures))


def draw(cases: dict[str, dict[str, Any]]) -> None:
    """Peak memory and CPU seconds of each step by the number of jobs."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for axis, figure_name, unit, label in (
        (axes[0], "cpu_s", 1.0, "CPU seconds"),
        (axes[1], "peak_bytes", 2.0**30, "peak memory (GiB)"),
    ):
        for step in STEPS:
            points = sorted((int(jobs), case[step][figure_name] / unit) for jobs, case in cases.items() if step in case)
            if points and step != "models":
                axis.plot(*zip(*points, strict=True), marker="o", label=step)
        axis.set(xscale="log", yscale="log", xlabel="jobs", ylabel=label)
    axes[0].legend(fontsize=7)
    figure.savefig(FIGURE, metadata={"Date": None})


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=float, nargs="+", default=SIZES)
    parser.add_argument("--only", nargs="+", choices=list(STEPS), default=list(STEPS))
    parser.add_argument("--keep", type=Path, help="make the sites here and leave them there; those that are there are used")
    parser.add_argument("--make", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--step", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.make:
        make_site(Path(options.make[0]), int(options.make[1]))
        return
    if options.step:
        run_step(options.step[0], Path(options.step[1]))
        return
    stored = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"cases": {}}
    versions = {name: version(name) for name in ("stormpetrel", "polars", "xgboost-cpu", "numba", "numpy")}
    stored |= {"python": platform.python_version(), "cores": os.cpu_count(), "versions": versions}
    with tempfile.TemporaryDirectory(prefix="stormpetrel-bench-") as temporary:
        for jobs in map(int, options.jobs):
            folder = (options.keep or Path(temporary)) / f"site-{jobs}"
            if not folder.exists():
                subprocess.run([sys.executable, "-m", "benchmarks.jobs_scale", "--make", str(folder), str(jobs)], check=True)
            case = stored["cases"].setdefault(str(jobs), {})
            for step in options.only:
                if step in TWICE:
                    measured(step, folder)
                case[step] = measured(step, folder)
                figures = case[step]
                print(
                    f"{jobs:>12,}  {step:<10}{figures['seconds']:8.1f} s{figures['cpu_s']:8.1f} s CPU"
                    f"{figures['peak_bytes'] / 2**30:7.2f} GiB  load {figures['load']:.1f}",
                    flush=True,
                )
                RESULTS.write_text(json.dumps(stored, indent=2) + "\n")
    draw(stored["cases"])


if __name__ == "__main__":
    main()
