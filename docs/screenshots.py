"""Screenshots of every page, light and dark, for the docs: `python docs/screenshots.py [--site DEMO] [--only jobs,waste]`.

Makes a demo site (or takes the one named), watches and serves it, and photographs it with Chromium into docs/screenshots/.
"""

from __future__ import annotations

import argparse
import json
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

OUT = Path(__file__).parent / "screenshots"
CHROMIUM = "/usr/bin/chromium"
LAPTOP, PHONE = (1366, 860), (390, 844)
PAGES = {
    "now": "/",
    "alarms": "/alarms",
    "incident": "/alarms",  # its newest
    "jobs": "/jobs",
    "job": "/jobs?view=all&prediction=equals:Fail",  # with its riskiest job open
    "trends": "/trends",
    "waste": "/waste",
    "profiles": "/profiles",
    "nodes": "/nodes?span=all",
    "cluster": "/cluster",
    "capacity": "/capacity",
    "generator": "/generator",
    "model": "/model",
    "health": "/health",
}
ON_A_PHONE = ("now", "jobs", "job")


def stormpetrel(*words: str, **options: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "stormpetrel", *words]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True, **options)


@contextmanager
def served(site: Path) -> Iterator[str]:
    """The site, watched and served until the block ends."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = f"127.0.0.1:{port}"
    processes = [
        stormpetrel("--site", str(site), "watch", "--address", ""),
        stormpetrel("--site", str(site), "serve", "--address", address),
    ]
    try:
        wait_for(lambda: predictions_in(address) > 1000 and sent_incidents(address))
        yield f"http://{address}"
    finally:
        for process in processes:
            process.send_signal(signal.SIGTERM)
        for process in processes:
            process.wait(timeout=60)


def predictions_in(address: str) -> int:
    try:
        with urllib.request.urlopen(f"http://{address}/api/v1/jobs?limit=1&risk_min=0", timeout=10) as answer:
            return int(json.load(answer)["total"])
    except (OSError, ValueError, KeyError):
        return 0


def sent_incidents(address: str) -> list[int]:
    """The open incidents that somebody was told of, the newest first."""
    try:
        with urllib.request.urlopen(f"http://{address}/api/v1/alarms?severity=page", timeout=10) as answer:
            return [incident["id"] for incident in json.load(answer)["incidents"]]
    except (OSError, ValueError, KeyError):
        return []


def wait_for(condition: Any, limit_s: float = 300.0) -> None:
    give_up = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > give_up:
            sys.exit("The site did not come up within five minutes.")
        time.sleep(1.0)


def photograph(url: str, only: set[str]) -> None:
    from playwright.sync_api import sync_playwright

    OUT.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM)
        for theme in ("light", "dark"):
            for size, names in ((LAPTOP, list(PAGES)), (PHONE, list(ON_A_PHONE))):
                context = browser.new_context(viewport={"width": size[0], "height": size[1]}, color_scheme=theme)
                page = context.new_page()
                for name in [name for name in names if name in only]:
                    query = f"?incident={sent_incidents(url.removeprefix('http://'))[0]}" if name == "incident" else ""
                    page.goto(url + PAGES[name] + query)
                    settle(page)
                    if name == "generator" and not page.locator("text=No generator has been fitted").count():
                        page.locator("#generator-cdf .js-plotly-plot").wait_for(timeout=120_000)
                        settle(page)
                    if name in ("jobs", "job"):
                        page.locator("#jobs-grid .risk").first.wait_for(timeout=60_000)
                    if name == "job":
                        page.locator(
                            "#jobs-grid .ag-center-cols-container .ag-row .ag-cell[col-id=job]:not(:empty)"
                        ).first.click()
                        page.locator("#panel-waterfall .js-plotly-plot").wait_for(timeout=30_000)
                        settle(page)
                    suffix = "-phone" if size == PHONE else ""
                    page.screenshot(path=OUT / f"{name}-{theme}{suffix}.png")
                    sys.stderr.write(f"{name} {theme}{suffix}\n")
                context.close()
        browser.close()


def settle(page: Any) -> None:
    """Wait until nothing is loading any more, and nothing is still being drawn."""
    page.locator("main h1").first.wait_for(timeout=60_000)
    page.wait_for_load_state("networkidle")
    page.wait_for_function("() => !document.querySelector('[data-dash-is-loading=true]')")
    page.wait_for_timeout(2500)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--site", type=Path, help="a demo site that is there already")
    parser.add_argument("--only", default=",".join(PAGES), help="names of pages")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        site = asked.site or Path(folder) / "demo"
        if not asked.site:
            subprocess.run([sys.executable, "-m", "stormpetrel", "demo", str(site), "--no-serve"], check=True)
        with served(site) as url:
            photograph(url, set(asked.only.split(",")))


if __name__ == "__main__":
    main()
