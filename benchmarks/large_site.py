"""`serve` and `watch` on a large site: how long until they are ready, their largest memory, and each page's first drawing.

`python -m benchmarks.large_site SITE …`: sites that `benchmarks.jobs_scale --keep` has made, with models and snapshots. Each
process is started anew. `first`: a `serve` that finds neither older months nor sums by month, which it makes (those of the site
are deleted before), until it rests. `serve`: the next one, whose pages are opened in a browser, one after the other, each for the
first time. `request` is the slowest request of a page, `drawn` until nothing more was asked for (with the browser's own time),
`cpu` what the service spent on it. `first_watch` and `watch`: with a `sacct` that knows of no job since; the first of a site also
asks it for the last 30 days, and counts all events. Results by number of jobs in benchmarks/results/large_site.json, drawn in
docs/figures/large-site.svg.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.jobs_scale import peak_bytes
from benchmarks.pages import CHROMIUM, ROW, VIEWS
from stormpetrel.sources.slurm.live import WANTED

RESULTS = Path(__file__).parent / "results" / "large_site.json"
FIGURE = Path(__file__).parents[1] / "docs" / "figures" / "large-site.svg"
GOALS = {"ready": 20.0, "memory": 2.0, "page": 2.0}  # seconds, GB, seconds
MORE_VIEWS = ("/", "/alarms", "/capacity", "/nodes", "/cluster", "/me", "/actions", "/cases", "/rehearsal", "/generator")
QUIET_MS = 500  # without a request: a page is drawn
IDLE_SACCT = """#!/bin/sh
case "$*" in *--helpformat*) echo "%s" ;; esac
"""
RESTING_S, RESTING_CPU_S = 15.0, 0.5  # a service that spent so little in so many seconds has nothing left to do
SETTLED_S = 60.0  # a service is left alone for so long before its pages are opened: older months come, sums are prepared


@contextmanager
def idle_sacct() -> Iterator[dict[str, str]]:
    """An environment with a `sacct` that knows of no jobs, and no `squeue` next to it."""
    with tempfile.TemporaryDirectory(prefix="stormpetrel-bench-") as folder:
        command = Path(folder) / "sacct"
        command.write_text(IDLE_SACCT % " ".join(WANTED))
        command.chmod(0o755)
        yield {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}


@contextmanager
def started(site: Path, command: str, environment: Mapping[str, str] | None = None) -> Iterator[tuple[int, str]]:
    """A process of ours, and where it answers."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    words = [sys.executable, "-m", "stormpetrel", "--site", str(site), command, "--address", address]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment) as process:
        try:
            yield process.pid, f"http://{address}"
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=120)


def until_answered(url: str, is_ready: Callable[[bytes], bool] = bool, limit_s: float = 600.0) -> float:
    """Seconds until an address answers with what is wanted."""
    began = time.monotonic()
    while time.monotonic() - began < limit_s:
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                if is_ready(answer.read()):
                    return time.monotonic() - began
        except OSError:
            pass
        time.sleep(0.05)
    raise SystemExit(f"{url} did not answer within {limit_s:.0f} s")


def cpu_seconds(process: int) -> float:
    """What a process has spent so far, in all of its threads."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def watching(site: Path) -> dict[str, float]:
    """A watch, until it has judged for the first time, and a minute more."""
    with idle_sacct() as environment, started(site, "watch", environment) as (process, url):
        ready = until_answered(f"{url}/readyz")
        cpu = cpu_seconds(process)
        time.sleep(SETTLED_S)
        return {
            "ready_s": ready, "ready_cpu_s": cpu, "cpu_s": cpu_seconds(process), "peak_bytes": peak_bytes(process),
            "load": os.getloadavg()[0],
        }  # fmt: skip


def serving_first(site: Path) -> dict[str, float]:
    """A service that makes the files of older months and the sums by day, until it rests."""
    for pattern in ("overview-*", "days-*", "profiles-*"):
        for path in (site / "snapshots").glob(pattern):
            path.unlink()
    with started(site, "serve") as (process, url):
        jobs = until_answered(f"{url}/api/v1/jobs?limit=1")
        ready = jobs + until_answered(f"{url}/readyz")
        cpu = cpu_seconds(process)
        until_resting(process)
        return {
            "jobs_s": jobs, "ready_s": ready, "ready_cpu_s": cpu, "cpu_s": cpu_seconds(process),
            "peak_bytes": peak_bytes(process), "load": os.getloadavg()[0],
        }  # fmt: skip


def until_resting(process: int, limit_s: float = 1800.0) -> None:
    """Wait until a process does nothing but look whether anything has changed."""
    began = time.monotonic()
    while time.monotonic() - began < limit_s:
        before = cpu_seconds(process)
        time.sleep(RESTING_S)
        if cpu_seconds(process) - before < RESTING_CPU_S:
            return
    raise SystemExit(f"the service was not done within {limit_s:.0f} s")


def serving(site: Path, views: tuple[str, ...]) -> dict[str, Any]:
    """A service: until it answers with jobs, until it has the history as well, and its pages."""
    with started(site, "serve") as (process, url):
        jobs = until_answered(f"{url}/api/v1/jobs?limit=1")
        jobs_cpu = cpu_seconds(process)
        ready = jobs + until_answered(f"{url}/readyz")
        cpu = cpu_seconds(process)
        time.sleep(SETTLED_S)
        alone = peak_bytes(process)
        pages = drawn(process, url, views)
        return {
            "jobs_s": jobs, "jobs_cpu_s": jobs_cpu, "ready_s": ready, "ready_cpu_s": cpu, "peak_before_pages_bytes": alone,
            "peak_bytes": peak_bytes(process), "load": os.getloadavg()[0], "pages": pages,
        }  # fmt: skip


def drawn(process: int, url: str, views: tuple[str, ...]) -> dict[str, dict[str, float]]:
    """Each page for the first time."""
    from playwright.sync_api import sync_playwright

    out = {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM)
        page = browser.new_page()
        page.goto(f"{url}/login")  # what every page needs of the browser is loaded before
        for view in views:
            requests: list[float] = []

            def note(request: Any, requests: list[float] = requests) -> None:
                timing = request.timing
                if "/assets/" not in request.url and "_dash-component-suites" not in request.url:
                    requests.append(timing["responseEnd"] - max(0.0, timing["requestStart"]))

            page.on("requestfinished", note)
            began, before = time.perf_counter(), cpu_seconds(process)
            page.goto(url + view)
            page.locator("main h1").first.wait_for(timeout=60_000)
            if view.startswith("/jobs"):
                page.locator(ROW).first.wait_for(timeout=60_000)
            page.get_by_text("being computed").first.wait_for(state="hidden", timeout=600_000)
            page.wait_for_load_state("networkidle", timeout=60_000)
            took = time.perf_counter() - began - QUIET_MS / 1000
            page.remove_listener("requestfinished", note)
            out[view] = {
                "request_ms": max(requests, default=0.0), "drawn_ms": 1000 * took, "cpu_s": cpu_seconds(process) - before,
                "peak_bytes": peak_bytes(process), "load": os.getloadavg()[0],
            }  # fmt: skip
            print(f"  {view:<40}" + "".join(f"{name} {value:,.2f}  " for name, value in out[view].items()), flush=True)
        browser.close()
    return out


def draw(cases: dict[str, dict[str, Any]]) -> None:
    """Readiness, largest memory and the slowest page by the number of jobs, with what is wanted of ten million."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 3, figsize=(9, 3.2), layout="constrained")
    lines: tuple[tuple[int, str, str, Callable[[dict[str, Any]], float]], ...] = (
        (0, "serve", "serve answers with jobs", lambda case: case["jobs_s"]),
        (0, "serve", "serve has the history", lambda case: case["ready_s"]),
        (0, "watch", "watch has judged", lambda case: case["ready_s"]),
        (1, "first", "serve, first start", lambda case: case["peak_bytes"] / 1e9),
        (1, "serve", "serve, all pages opened", lambda case: case["peak_bytes"] / 1e9),
        (1, "watch", "watch", lambda case: case["peak_bytes"] / 1e9),
        (2, "serve", "slowest page", lambda case: max(page["drawn_ms"] for page in case["pages"].values()) / 1000),
    )
    for axis, part, label, figure_of in lines:
        points = sorted((int(jobs), figure_of(case[part])) for jobs, case in cases.items() if part in case)
        if points:
            axes[axis].plot(*zip(*points, strict=True), marker="o", label=label)
    for axis, (goal, unit) in enumerate(
        (("ready", "seconds until ready"), ("memory", "largest memory (GB)"), ("page", "seconds"))
    ):
        axes[axis].axhline(GOALS[goal], color="grey", linestyle=":", label="wanted at most")
        axes[axis].set(xscale="log", xlabel="jobs", ylabel=unit, ylim=(0, None))
        axes[axis].legend(fontsize=7)
    figure.savefig(FIGURE, metadata={"Date": None})


PARTS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "first": serving_first,
    "serve": lambda site: serving(site, (*VIEWS, *MORE_VIEWS)),
    "first_watch": watching,
    "watch": watching,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sites", type=Path, nargs="+")
    parser.add_argument("--only", choices=list(PARTS), nargs="+", default=list(PARTS))
    options = parser.parse_args()
    from stormpetrel.store.site import open_site

    stored = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"cases": {}}
    stored |= {"python": platform.python_version(), "cores": os.cpu_count()}
    for path in options.sites:
        with open_site(path) as site:
            jobs = site.jobs.read_jobs().select("job_id").collect().height
        case = stored["cases"].setdefault(str(jobs), {})
        for part in options.only:
            case[part] = PARTS[part](path)
            shown = {name: round(value, 2) for name, value in case[part].items() if name != "pages"}
            print(f"{jobs:>12,}  {part}  {shown}", flush=True)
            RESULTS.write_text(json.dumps(stored, indent=1) + "\n")
    draw(stored["cases"])


if __name__ == "__main__":
    main()
