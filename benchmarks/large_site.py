"""`serve` and `watch` on a large site: how long until they are ready, their largest memory, and each page's first drawing.

`python -m benchmarks.large_site SITE …`: sites that `benchmarks.jobs_scale --keep` has made, with models and snapshots. Each
process is started anew; pages are opened in a browser, one after the other, each for the first time. `request` is the slowest
request of a page, `drawn` until nothing more was asked for (the browser's own time included), `cpu` what the service spent on
it. Results by number of jobs in benchmarks/results/large_site.json.
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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.jobs_scale import peak_bytes
from benchmarks.pages import CHROMIUM, ROW, VIEWS

RESULTS = Path(__file__).parent / "results" / "large_site.json"
MORE_VIEWS = ("/", "/alarms", "/capacity", "/nodes", "/cluster", "/me", "/actions", "/cases", "/rehearsal", "/generator")
QUIET_MS = 500  # without a request: a page is drawn
SETTLED_S = 60.0  # a service is left alone for so long before its pages are opened: older months come, sums are prepared


@contextmanager
def started(site: Path, command: str) -> Iterator[tuple[int, str]]:
    """A process of ours, and where it answers."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    words = [sys.executable, "-m", "stormpetrel", "--site", str(site), command, "--address", address]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
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
    with started(site, "watch") as (process, url):
        ready = until_answered(f"{url}/readyz")
        cpu = cpu_seconds(process)
        time.sleep(SETTLED_S)
        return {"ready_s": ready, "ready_cpu_s": cpu, "peak_bytes": peak_bytes(process), "load": os.getloadavg()[0]}


def serving(site: Path, views: tuple[str, ...]) -> dict[str, Any]:
    """A service: until it answers with jobs, until it has the history as well, and its pages."""
    with started(site, "serve") as (process, url):
        jobs = until_answered(f"{url}/api/v1/jobs?limit=1")
        ready = jobs + until_answered(f"{url}/readyz")
        cpu = cpu_seconds(process)
        time.sleep(SETTLED_S)
        alone = peak_bytes(process)
        pages = drawn(process, url, views)
        return {
            "jobs_s": jobs, "ready_s": ready, "ready_cpu_s": cpu, "peak_before_pages_bytes": alone,
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sites", type=Path, nargs="+")
    parser.add_argument("--only", choices=("serve", "watch"), nargs="+", default=("serve", "watch"))
    options = parser.parse_args()
    from stormpetrel.store.site import open_site

    stored = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"cases": {}}
    stored |= {"python": platform.python_version(), "cores": os.cpu_count()}
    for path in options.sites:
        with open_site(path) as site:
            jobs = site.jobs.read_jobs().select("job_id").collect().height
        case = stored["cases"].setdefault(str(jobs), {})
        for command in options.only:
            case[command] = serving(path, (*VIEWS, *MORE_VIEWS)) if command == "serve" else watching(path)
            shown = {name: round(value, 2) for name, value in case[command].items() if name != "pages"}
            print(f"{jobs:>12,}  {command}  {shown}", flush=True)
            RESULTS.write_text(json.dumps(stored, indent=1) + "\n")


if __name__ == "__main__":
    main()
