"""How long the requests of the pages take on a large site, as a real browser sees them, while the watch runs.

`python -m benchmarks.pages SITE [--rounds N] [--no-watch]`: starts `serve` (and `watch`) on the site, opens every page,
sorts, filters and pages the table, opens jobs, and takes the time of every request from its sending to its last byte. The peer in
the same run is `/healthz`, which asks nothing of the site. Results in benchmarks/results/pages.json.
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
import time
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).parent / "results" / "pages.json"
LIMIT_MS = 300.0  # asked of the 99th percentile
VIEWS = (
    "/jobs",
    "/jobs?view=all",
    "/jobs?view=all&sort=user",
    "/jobs?view=all&sort=-confidence",
    "/jobs?view=all&state=equals:FAILED",
    "/jobs?view=all&job_name=contains:fit",
    "/trends",
    "/trends?by=account&every=1mo",
    "/waste",
    "/profiles",
    "/model",
    "/health",
)
ROW = "#jobs-grid .ag-center-cols-container .ag-row .ag-cell[col-id=job]:not(:empty)"
CHROMIUM = "/usr/bin/chromium"


@contextmanager
def running(site: Path, *, watch: bool) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    commands = [["serve", "--address", address], *([["watch", "--address", ""]] if watch else [])]
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    processes = [
        subprocess.Popen([sys.executable, "-m", "stormpetrel", "--site", str(site), *words], **quiet) for words in commands
    ]
    try:
        wait_for(f"http://{address}/api/v1/jobs?limit=1")
        wait_for(f"http://{address}/api/v1/quality")
        time.sleep(20.0)  # the first looks, and what is prepared in the background
        yield f"http://{address}"
    finally:
        for process in processes:
            process.send_signal(signal.SIGTERM)
        for process in processes:
            process.wait(timeout=120)


def wait_for(url: str, limit_s: float = 300.0) -> None:
    give_up = time.monotonic() + limit_s
    while True:
        try:
            with urllib.request.urlopen(url, timeout=30):
                return
        except OSError:
            if time.monotonic() > give_up:
                sys.exit(f"{url} did not answer within {limit_s:.0f} s")
            time.sleep(1.0)


def measure(url: str, rounds: int) -> dict[str, list[float]]:
    """Milliseconds of every request, by the view during which it was made."""
    from playwright.sync_api import sync_playwright

    times: dict[str, list[float]] = defaultdict(list)
    now = "start"

    def note(request: Any) -> None:
        timing = request.timing
        if "/assets/" not in request.url and "_dash-component-suites" not in request.url and timing["responseEnd"] > 0:
            times[now].append(timing["responseEnd"] - max(0.0, timing["requestStart"]))

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM)
        page = browser.new_page()
        page.on("requestfinished", note)
        for turn in range(rounds + 1):
            for view in VIEWS:
                now = view if turn else "first look"
                page.goto(url + view)
                page.locator("main h1").first.wait_for(timeout=60_000)
                if view.startswith("/jobs"):
                    page.locator(ROW).first.wait_for(timeout=60_000)
                page.wait_for_timeout(1500)
                if view == "/jobs?view=all":
                    now = "open a job" if turn else "first look"
                    page.locator(ROW).nth(turn % 8).click()
                    page.locator("#panel-waterfall, .verdict").first.wait_for(timeout=60_000)
                    page.wait_for_timeout(1000)
            for _ in range(20):
                started = time.perf_counter()
                with urllib.request.urlopen(f"{url}/healthz", timeout=30):
                    pass
                times["peer: /healthz"].append(1000 * (time.perf_counter() - started))
        browser.close()
    return times


def figures(values: list[float]) -> dict[str, float]:
    array = np.array(values)
    return {
        "requests": len(values),
        "p50_ms": round(float(np.median(array)), 1),
        "p99_ms": round(float(np.quantile(array, 0.99)), 1),
        "max_ms": round(float(array.max()), 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("site", type=Path)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--no-watch", action="store_true")
    asked = parser.parse_args()
    from stormpetrel.store.site import open_site

    with open_site(asked.site) as site:
        jobs = int(site.jobs.read_jobs().select("job_id").collect().height)
    with running(asked.site, watch=not asked.no_watch) as url:
        times = measure(url, asked.rounds)
    known = [value for name, values in times.items() if name not in ("first look", "peer: /healthz") for value in values]
    views = {name: figures(values) for name, values in times.items()}
    machine = {"python": platform.python_version(), "cores": os.cpu_count(), "load": os.getloadavg()[0]}
    result = {"jobs": jobs, "watch": not asked.no_watch, "limit_ms": LIMIT_MS, "all": figures(known), "views": views}
    RESULTS.write_text(json.dumps({**machine, **result}, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
