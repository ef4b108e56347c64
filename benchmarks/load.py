"""How much one machine bears: CPU threads at 1 Hz and a million jobs a day, for an hour, then twice, five and ten times as many.

`python -m benchmarks.load --threads 20000 --minutes 60 --factor 1,2,5,10 [--step-minutes 10] [--jobs-a-day 1000000]`: for each
factor a fresh copy of a site with a history of simulated jobs and a model of them, a `stormpetrel watch` and a `stormpetrel
serve` as processes of their own, and beside them the generators: a server that answers as Prometheus does (a process of its own)
and a `sacct` that this process answers. The first factor runs for `--minutes`, the others for `--step-minutes`; the jobs are the
same for all. A step that is in benchmarks/results/load.json is run again with `--again` only. What is measured: from the end of
each window to the commit of its scores; memory and CPU of each process, those of the generators apart; growth of the tables; node
windows that were skipped because there was no time; how long the API takes to answer. The machine's load average, and how many
cores others took, are noted with each step: neighbours make lags longer, never shorter.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl
from tests.parts.command_line import change_settings, start
from tests.parts.quick_sacct import answering

from benchmarks.watch_jobs import Accounting, copied, history_of, make_site, resident_bytes, stream_of, watching
from benchmarks.watch_load import WindowCommits, cpu_of
from benchmarks.watch_traces import CPUS, WINDOW_S, serving
from stormpetrel.records.times import running_clock
from stormpetrel.simulate.feed import set_clock
from stormpetrel.store.site import Site, open_site

RESULTS: Final = Path(__file__).parent / "results" / "load.json"
JOBS_A_DAY: Final = 1_000_000
EVENTS_OF_A_JOB: Final = 3  # submission, start, end
_DAY_S: Final = 86_400
_SINCE_S: Final = 230.0  # how far back the counters are read at the start
_LOOK_S: Final = 5.0
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_METRIC: Final = re.compile(r'^stormpetrel_(traces_\w+?)(?:_total)?(?:\{result="(\w+)"\})? ([\d.e+-]+|NaN)$', re.MULTILINE)
_API: Final = ("/api/v1/health", "/api/v1/alarms?limit=20")


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def faces(folder: Path, port: int) -> Iterator[subprocess.Popen[str]]:
    """A `stormpetrel serve` of the site."""
    process = start(folder, "serve", "--address", f"127.0.0.1:{port}")
    for stream in (process.stdout, process.stderr):
        assert stream
        os.set_blocking(stream.fileno(), False)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=120)


def busy_s() -> float:
    """CPU seconds that the machine has spent so far, whoever spent them."""
    words = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    user, nice, system, _idle, _iowait, irq, softirq = (int(word) for word in words[:7])
    return (user + nice + system + irq + softirq) / _TICKS


def bytes_of(folder: Path) -> int:
    """What lies in a folder and below."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:
            continue  # gone meanwhile: a file of a version that is no longer kept
    return total


def sampling_of(port: int) -> dict[str, float]:
    """What the watch says about its sampling."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            text = answer.read().decode()
    except OSError:
        return {}
    return {name + (f"_{result}" if result else ""): float(value) for name, result, value in _METRIC.findall(text)}


class Api:
    """Asks the API as a page that is open does, and notes how long each answer takes."""

    def __init__(self, port: int) -> None:
        self._port, self.latency_s, self.bad = port, [], Counter()  # type: tuple[int, list[float], Counter[str]]

    def ask(self) -> None:
        """One question of each kind."""
        for path in _API:
            began = time.monotonic()
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self._port}{path}", timeout=30) as answer:
                    answer.read()
                self.latency_s.append(time.monotonic() - began)
            except urllib.error.HTTPError as error:
                self.bad[f"{path.partition('?')[0]}: {error.code}"] += 1
            except OSError as error:
                self.bad[f"{path.partition('?')[0]}: {error}" if self.latency_s else "serve was not up yet"] += 1


def measure(folder: Path, now: datetime, threads: int, minutes: float, most_gb: float) -> dict[str, Any]:
    """Run the watch, the faces and the generators for so long, and return what was seen."""
    nodes, ports = -(-threads // CPUS), [free_port() for _ in range(3)]
    set_clock(folder / "feed", running_clock(now))
    ahead_s = now.timestamp() - time.time()
    with ExitStack() as stack:
        server = stack.enter_context(serving(ports[0], nodes, ahead_s=ahead_s))
        site = stack.enter_context(open_site(folder))
        since = site.now() - timedelta(seconds=_SINCE_S)
        prometheus = {"url": f"http://127.0.0.1:{ports[0]}", "since": since.isoformat()}
        address = f"127.0.0.1:{ports[1]}"
        change_settings(folder, prometheus=prometheus, traces={"window_s": WINDOW_S}, watch={"address": address})
        commits = WindowCommits(site, ahead_s)
        watch = stack.enter_context(watching(folder))
        first_prediction_s = watch.first_predictions_s()
        serve = stack.enter_context(faces(folder, ports[2]))
        processes = {"watch": watch.process.pid, "serve": serve.pid, "generator_of_counters": server.pid}
        api, looks, problems = Api(ports[2]), [], []  # type: Api, list[dict[str, Any]], list[str]
        began, disk = time.monotonic(), bytes_of(folder / "tables")
        before, machine = {name: cpu_of(pid) for name, pid in processes.items()}, busy_s()
        own, children = time.process_time(), watch.cpu_s()[1]
        stopped = ""
        while not stopped and time.monotonic() - began < 60 * minutes:
            time.sleep(_LOOK_S)
            problems += [f"{fact['event']}: {fact.get('what')}" for fact in watch.log() if "problem" in fact["event"]]
            api.ask()
            memory = {name: resident_bytes(pid) for name, pid in processes.items()}
            at = {"at_s": round(time.monotonic() - began, 1), "load_average": os.getloadavg()[0]}
            looks.append({**at, "rss": memory, "sampling": sampling_of(ports[1])})
            if sum(memory.values()) > most_gb * 1e9:
                stopped = f"memory above {most_gb:g} GB"
        seconds = time.monotonic() - began
        used = {name: (cpu_of(pid) - before[name]) / seconds for name, pid in processes.items()}
        used["sacct_commands_of_the_watch"] = (watch.cpu_s()[1] - children) / seconds
        used["generator_of_jobs_and_this_benchmark"] = (time.process_time() - own) / seconds
        others = (busy_s() - machine) / seconds - sum(used.values())
        commits.end()
        result = {
            "threads": nodes * CPUS, "nodes": nodes, "minutes": round(seconds / 60, 1), "stopped": stopped,
            "first_prediction_s": round(first_prediction_s, 1),
            "cores": {name: round(share, 3) for name, share in used.items()},
            "cores_of_others": round(max(0.0, others), 2),
            "disk_mb_an_hour": round((bytes_of(folder / "tables") - disk) / 1e6 * 3600 / seconds, 1),
            "disk_mb": round(bytes_of(folder / "tables") / 1e6, 1),
            **figures(looks, commits.moments), "api": latencies(api), "problems": list(dict.fromkeys(problems))[:20],
            "predictions": delays(site, site.now() - timedelta(seconds=seconds - 60), site.now() - timedelta(seconds=30)),
        }  # fmt: skip
        result["coverage"] = coverage_of(site)
    return result


def coverage_of(site: Site) -> list[dict[str, Any]]:
    """The table of coverage: one row for each window in which the watch sampled, or decided to."""
    rows = site.trace_coverage.read().sort("window_start").collect()
    names = ["every", "nodes", "judged", "skipped", "passed_over", "lag_s", "load", "next_every"]
    return rows.select(names).with_columns(pl.col("lag_s", "load").round(2)).to_dicts()


def figures(looks: list[dict[str, Any]], moments: list[dict[str, float]]) -> dict[str, Any]:
    """Lags, memory and what was skipped."""
    lags = [moment["lag_s"] for moment in moments[1:]]  # the first is the cold start's
    last: dict[str, float] = next((look["sampling"] for look in reversed(looks) if look["sampling"]), {})
    judged, skipped = (last.get(f"traces_node_windows_{name}", 0.0) for name in ("judged", "skipped"))
    rotations = [look["sampling"].get("traces_rotation_windows", 1.0) for look in looks if look["sampling"]]
    loads = [load for look in looks if (load := look["sampling"].get("traces_load"))]
    return {
        "windows": len(lags),
        "window_lag_s": {
            "median": round(float(np.median(lags)), 2), "p95": round(float(np.quantile(lags, 0.95)), 2), "max": max(lags),
        } if lags else None,
        "window_lags_s": lags,
        "trace_load": {"median": round(float(np.median(loads)), 3), "max": round(max(loads), 3)} if loads else None,
        "node_windows": {"judged": int(judged), "skipped": int(skipped)},
        "longest_rotation": int(max(rotations, default=1)),
        "rss_mb": {name: memory_of([look["rss"][name] for look in looks]) for name in (looks[0]["rss"] if looks else ())},
        "load_average": {
            "mean": round(float(np.mean([look["load_average"] for look in looks])), 1),
            "max": round(max(look["load_average"] for look in looks), 1),
        } if looks else None,
    }  # fmt: skip


def memory_of(sizes: list[int]) -> dict[str, Any]:
    """The highest of these sizes, and the median of each quarter of the time, in megabytes."""
    quarters = [part for part in np.array_split(np.array(sizes) / 1e6, 4) if part.size]
    return {"max": round(max(sizes) / 1e6), "by_quarter": [round(float(np.median(part))) for part in quarters]}


def latencies(api: Api) -> dict[str, Any]:
    """How long the API took to answer."""
    if not api.latency_s:
        return {"answered": 0, "bad": api.bad.total(), "why": api.bad}
    p50, p99 = np.quantile(api.latency_s, [0.5, 0.99])
    return {
        "answered": len(api.latency_s),
        "bad": api.bad.total(),
        "why": api.bad,
        "p50_ms": round(1e3 * p50, 1),
        "p99_ms": round(1e3 * p99, 1),
    }


def delays(site: Site, since: datetime, until: datetime) -> dict[str, Any] | None:
    """From a moment of a job to the time from which on its prediction could be read."""
    made = site.predictions.table.scan().filter(pl.col("moment_time").is_between(since, until))
    lag = made.select(lag_s=(pl.col("predicted_at") - pl.col("moment_time")).dt.total_milliseconds() / 1e3, late="late").collect()
    if not lag.height:
        return None
    p50, p99 = np.quantile(lag["lag_s"], [0.5, 0.99])
    return {"predictions": lag.height, "p50_s": round(p50, 2), "p99_s": round(p99, 2), "late": int(lag["late"].sum())}


def done_before(options: argparse.Namespace) -> dict[str, Any]:
    """The result as far as it goes."""
    result: dict[str, Any] = {"asked": {"threads": options.threads, "jobs_a_day": options.jobs_a_day}, "steps": {}}
    if RESULTS.exists():
        result |= json.loads(RESULTS.read_text())
    for factor in options.factor.split(",") if options.again else ():
        result["steps"].pop(f"{float(factor):g}", None)
    return result


def keep(result: Mapping[str, Any]) -> None:
    """Write the result, whole or not at all."""
    text = json.dumps(result, indent=1)
    short = re.sub(r"\[\s+([^\[\]{}]*?)\s+\]", lambda found: "[" + re.sub(r"\s+", " ", found[1]) + "]", text)
    beside = RESULTS.with_suffix(".tmp")
    beside.write_text(short + "\n")
    beside.replace(RESULTS)


def main() -> None:
    """Run each step that is not there yet, and write it down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=20_000)
    parser.add_argument("--minutes", type=float, default=60.0, help="of the first factor")
    parser.add_argument("--step-minutes", type=float, default=10.0, help="of the others")
    parser.add_argument("--factor", default="1,2,5,10", help="times so many threads, one step after the other")
    parser.add_argument("--jobs-a-day", type=float, default=JOBS_A_DAY)
    parser.add_argument("--history", type=int, default=40_000, help="jobs")
    parser.add_argument("--most-gb", type=float, default=6.0, help="memory of all processes, from which on a step is stopped")
    parser.add_argument("--again", action="store_true", help="also the steps that are there already")
    options = parser.parse_args()
    result, factors = done_before(options), [float(text) for text in options.factor.split(",")]
    rate = options.jobs_a_day * EVENTS_OF_A_JOB / _DAY_S
    with tempfile.TemporaryDirectory() as folder, answering(Accounting().answer) as address:
        jobs, now = history_of(options.history)
        known = jobs.filter(pl.col("submit_time") <= now)
        longest = max(options.minutes, options.step_minutes) + 10
        frames = [known, stream_of(known, now, rate=rate, minutes=longest)]
        make_site(Path(folder) / "load", frames, now, address)
        for number, factor in enumerate(factors):
            name = f"{factor:g}"
            if name in result["steps"]:
                print(f"factor {name}: there already", file=sys.stderr, flush=True)
                continue
            minutes = options.minutes if number == 0 else options.step_minutes
            with copied(Path(folder) / "load") as site_folder:
                step = measure(site_folder, now, round(options.threads * factor), minutes, options.most_gb)
            result["steps"][name] = {"events_per_s": round(rate, 1), **step}
            result["machine"] = {"cores": os.cpu_count(), "python": platform.python_version(), "polars": pl.__version__}
            keep(result)
            short = {key: value for key, value in step.items() if key not in ("window_lags_s", "coverage")}
            print(json.dumps({"factor": factor, **short}, indent=1), flush=True)
    for one, other in itertools.pairwise(sorted(result["steps"], key=float)):
        print(f"{one} → {other}: {result['steps'][one]['window_lag_s']} → {result['steps'][other]['window_lag_s']}")


if __name__ == "__main__":
    main()
