"""`stormpetrel demo`, as a newcomer sees it: pages that live, and nothing left behind when it is stopped or killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request

import psutil
import pytest

from stormpetrel.store.site import open_site
from tests.parts import free_ports, wait_until


def jobs_on(url: str) -> dict[str, object]:
    try:
        with urllib.request.urlopen(f"{url}/api/v1/jobs?limit=5&risk_min=0", timeout=10) as answer:
            return dict(json.load(answer))
    except OSError:
        return {}


@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_the_demo_shows_a_living_site_and_leaves_no_process_behind(tmp_path, number):
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    words = [sys.executable, "-m", "stormpetrel", "demo", str(tmp_path / "demo"), "--address", f"127.0.0.1:{port}"]
    with (tmp_path / "said.txt").open("w") as said:
        demo = subprocess.Popen(words, stdout=said, stderr=said, cwd=tmp_path)
    try:
        wait_until(lambda: jobs_on(url).get("total", 0) > 1000, "the last week is judged", limit_s=240)
        before = jobs_on(url)["items"][0]["submit_time"]
        wait_until(lambda: jobs_on(url)["items"][0]["submit_time"] > before, "a new job is judged", limit_s=120)
        children = psutil.Process(demo.pid).children(recursive=True)
        assert children
    finally:
        demo.send_signal(number)
        demo.wait(timeout=90)
    wait_until(lambda: not any(child.is_running() for child in children), "the watch ends with the demo", limit_s=60)
    assert f"http://127.0.0.1:{port}" in (tmp_path / "said.txt").read_text()
    with open_site(tmp_path / "demo") as site:
        assert not site.predictions.read().select("job_id", "array_task", "submit_time", "moment").collect().is_duplicated().any()
