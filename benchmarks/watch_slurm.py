"""What `watch` costs beside a real Slurm with 500 running and 3,000 waiting jobs, and how soon a burst of 3,000 is judged.

`python -m benchmarks.watch_slurm [--running N] [--waiting N] [--single N] [--burst N] [--idle S]`: starts a Slurm of its own, as
the tests do, with nodes that pretend to have enough CPUs, a site that has learnt from a simulated log, and `stormpetrel watch`
as a process of its own. An idle look is one at which nothing has changed; its CPU time is that of the watch itself and of the
commands that it runs (squeue, sacct). Results in benchmarks/results/watch_slurm.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import polars as pl
from tests.builders import make_site
from tests.parts import free_ports, wait_until
from tests.parts.command_line import start
from tests.parts.slurm import RealSlurm
from tests.parts.watched_site import simulated_jobs

from stormpetrel.ingest.jobs import ingest_jobs
from stormpetrel.lifecycle.job_models import train_job_models
from stormpetrel.simulate.writing import sacct_text
from stormpetrel.sources.slurm.sacct_text import SacctText
from stormpetrel.store.site import Site

RESULTS = Path(__file__).parent / "results" / "watch_slurm.json"
IDLE_CPU_S, BURST_S = 0.3, 10.0  # asked: CPU of a look at which nothing has changed; from a burst to its predictions
POLL_S = 5.0
_SLEEP = "--wrap=sleep 100000"
_NODES = 2
_FIELDS = (
    "JobID JobIDRaw Cluster JobName User Account Partition Submit Start End Elapsed State ExitCode Timelimit ReqCPUS AllocCPUS "
    "ReqNodes NNodes ReqMem NodeList WorkDir"
).split()
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Usage:
    """What a process has used: CPU seconds of its own and of the commands it ran, looks, memory."""

    own_s: float
    commands_s: float
    looks: float
    resident_bytes: int
    peak_bytes: int


def usage_of(process: subprocess.Popen[str], port: int) -> Usage:
    words = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    user, system, of_children, of_children_system = (int(words[position]) / _TICKS for position in (11, 12, 13, 14))
    status = Path(f"/proc/{process.pid}/status").read_text()
    resident, peak = (int(re.search(rf"{name}:\s+(\d+) kB", status)[1]) * 1024 for name in ("VmRSS", "VmHWM"))  # type: ignore[index]
    metrics = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=60).text
    looks = float(re.search(r"^stormpetrel_watch_step_seconds_count (\S+)", metrics, re.MULTILINE)[1])  # type: ignore[index]
    return Usage(user + system, of_children + of_children_system, looks, resident, peak)


def learnt_site(folder: Path, port: int) -> Site:
    """A site that has learnt from a simulated log of a month ago, and is told to watch the Slurm here."""
    slurm = {"since": f"{datetime.now(UTC):%Y-%m-%d}", "pause_s": 0.0, "timeout_s": 120.0}
    watch = {"poll_s": POLL_S, "address": f"127.0.0.1:{port}", "retrain_hours": 0.0}
    site = make_site(folder, slurm=slurm, watch=watch)
    log = folder.parent / "log.txt"
    jobs = simulated_jobs().with_columns(pl.col("^.*_time$") - timedelta(days=30))
    log.write_text("|".join(_FIELDS) + "\n" + sacct_text(jobs, fields=_FIELDS, delimiter="|"))
    ingest_jobs(site, SacctText(log))
    train_job_models(site)
    return site


@contextmanager
def watching(site: Site, slurm: RealSlurm) -> Iterator[subprocess.Popen[str]]:
    process = start(site.folder, "watch", "--json", env=slurm.env)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=120)


def submit_many(slurm: RealSlurm, count: int) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: slurm.submit("--mem=1", f"--job-name=fit{number % 7}", _SLEEP), range(count)))


def open_jobs(site: Site) -> dict[str, int]:
    return dict(site.jobs.open_jobs()["state"].value_counts().iter_rows())


def judged(site: Site, since: datetime, moment: str = "submit") -> int:
    said = site.predictions.read(since=since).filter(pl.col("moment") == moment, pl.col("submit_time") >= since)
    return int(said.select(pl.len()).collect().item())


def seconds_until(condition: Callable[[], bool], what: str) -> float:
    started = time.monotonic()
    wait_until(condition, what, limit_s=600)
    return time.monotonic() - started


def idle(site: Site, process: subprocess.Popen[str], port: int, seconds: float) -> dict[str, Any]:
    """The cost of looks at which nothing changes, and whether any of them wrote."""
    versions = (site.jobs.table.version(), site.jobs.sightings.version(), site.predictions.table.version())
    before = usage_of(process, port)
    time.sleep(seconds)
    after = usage_of(process, port)
    looks = after.looks - before.looks
    own, commands = (after.own_s - before.own_s) / looks, (after.commands_s - before.commands_s) / looks
    now = (site.jobs.table.version(), site.jobs.sightings.version(), site.predictions.table.version())
    return {
        "looks": looks,
        "own_cpu_s_per_look": round(own, 4),
        "commands_cpu_s_per_look": round(commands, 4),
        "cpu_s_per_look": round(own + commands, 4),
        "commits": sum(now) - sum(versions),
        "resident_bytes": after.resident_bytes,
        "peak_bytes": after.peak_bytes,
    }


def burst(site: Site, submit: Callable[[], object], count: int) -> dict[str, Any]:
    """From the end of a burst of submissions until its jobs, and what was said about them, can be read by others."""
    since = datetime.now(UTC).replace(microsecond=0)
    waiting = open_jobs(site).get("PENDING", 0)
    started = time.monotonic()
    submit()
    submitted_s = time.monotonic() - started
    listed_s = seconds_until(lambda: open_jobs(site).get("PENDING", 0) >= waiting + count, f"{count} jobs are in the table")
    judged_s = listed_s + seconds_until(lambda: judged(site, since) >= count, f"{count} jobs are judged")
    return {
        "jobs": count,
        "submitting_s": round(submitted_s, 2),
        "in_table_s": round(listed_s, 2),
        "judged_s": round(judged_s, 2),
    }


def measure(asked: argparse.Namespace) -> dict[str, Any]:
    (port,) = free_ports(1)
    settings = {"MaxArraySize": "100001", "MaxJobCount": "200000", "JobAcctGatherType": "jobacct_gather/none"}
    with (
        tempfile.TemporaryDirectory() as folder,
        learnt_site(Path(folder) / "site", port) as site,
        RealSlurm(nodes=_NODES, cpus=asked.running // _NODES, settings=settings) as slurm,
    ):
        began = datetime.now(UTC).replace(microsecond=0)
        slurm.submit("--mem=1", f"--array=0-{asked.running - 1}", _SLEEP)
        slurm.submit("--mem=1", f"--array=0-{asked.waiting - asked.single - 1}", _SLEEP)
        submit_many(slurm, asked.single)
        with watching(site, slurm) as process:
            wanted = {"RUNNING": asked.running, "PENDING": asked.waiting}
            start_s = seconds_until(lambda: open_jobs(site) == wanted, f"the table has {wanted}")
            two_minutes = lambda: judged(site, began, "2min") >= asked.running  # noqa: E731
            seconds_until(two_minutes, "what runs has been judged for the last time")
            at_rest = idle(site, process, port, asked.idle)
            array = burst(site, lambda: slurm.submit("--mem=1", f"--array=0-{asked.burst - 1}", _SLEEP), asked.burst)
            single = burst(site, lambda: submit_many(slurm, asked.burst_single), asked.burst_single)
            usage = usage_of(process, port)
    return {
        "running": asked.running,
        "waiting": asked.waiting,
        "waiting_singly": asked.single,
        "poll_s": POLL_S,
        "first_look_s": round(start_s, 2),
        "idle": at_rest,
        "burst_of_an_array": array,
        "burst_of_single_jobs": single,
        "resident_bytes": usage.resident_bytes,
        "peak_bytes": usage.peak_bytes,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--running", type=int, default=500)
    parser.add_argument("--waiting", type=int, default=3000)
    parser.add_argument("--single", type=int, default=1000, help="of the waiting, so many are jobs of their own")
    parser.add_argument("--burst", type=int, default=3000)
    parser.add_argument("--burst-single", type=int, default=300)
    parser.add_argument("--idle", type=float, default=60.0, help="seconds of rest that are measured")
    asked = parser.parse_args()
    result = measure(asked)
    machine = {"cores": os.cpu_count(), "python": platform.python_version(), "polars": pl.__version__, "load": os.getloadavg()[0]}
    limits = {"idle_cpu_s": IDLE_CPU_S, "burst_s": BURST_S}
    RESULTS.write_text(json.dumps({"machine": machine, "limits": limits, **result}, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
