"""Every query of the Grafana dashboards returns something: a real Prometheus scrapes a real watch and a real exporter."""

from __future__ import annotations

import contextlib
import json
import math
import sys
from collections.abc import Iterator
from datetime import timedelta

import httpx
import pytest

from stormpetrel.records.times import running_clock
from stormpetrel.simulate.feed import set_clock
from tests.exporter.made import SLURM, FakeNode
from tests.parts import Daemon, free_ports, wait_until
from tests.parts.alarm_findings import finding
from tests.parts.command_line import start
from tests.parts.grafana_dashboards import NAMES, label_queries, queries
from tests.parts.prometheus import RealPrometheus
from tests.parts.raised_incidents import raise_incidents
from tests.parts.watched_site import TRAINED, copy_site, move_clock, watched_site_once

pytestmark = pytest.mark.prometheus
LIMIT_S = 90


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealPrometheus]:
    """A Prometheus that scrapes a watch over a simulated cluster, whose clock runs, and the exporter of a node with a job."""
    folder = tmp_path_factory.mktemp("grafana")
    site = copy_site(watched_site_once(tmp_path_factory), folder / "site", watch={"address": "127.0.0.1:0"})
    move_clock(site, TRAINED + timedelta(hours=20))
    raise_incidents(site, finding(when=TRAINED + timedelta(hours=19)), watcher="tests")  # one is open when the watch begins
    set_clock(site.folder / "feed", running_clock(TRAINED + timedelta(hours=20), speed=600.0))
    site.close()
    node = FakeNode(folder / "node").devices()
    node.job(f"{SLURM}/job_17", cpus="0-1")
    (port,) = free_ports(1)
    words = [sys.executable, "-m", "stormpetrel.exporter", "--address", f"127.0.0.1:{port}", "--root", str(node.root)]
    exporter = Daemon("exporter", words, log=folder / "exporter.log")
    try:
        with start(folder / "site", "watch", "--json") as watch:
            try:
                with RealPrometheus([f"127.0.0.1:{port}", f"127.0.0.1:{_port_of(watch)}"], interval_s=0.5) as prometheus:
                    yield prometheus
            finally:
                watch.kill()
    finally:
        exporter.stop()


def _port_of(watch) -> int:
    """The port on which the watch shows its metrics, of the log line that says so; the rest of the log is read away."""
    import threading

    for line in watch.stderr:
        fact = json.loads(line)
        if fact["event"] == "watching":
            threading.Thread(target=watch.stderr.read, daemon=True).start()
            return int(fact["metrics_port"])
    raise AssertionError("the watch has ended")


def finite(rows: list[dict]) -> bool:
    return any(math.isfinite(float(row["value"][1])) for row in rows)


def test_every_query_returns_series(server):
    waiting = {(name, query) for name in NAMES for query in queries(name)}

    def answered() -> bool:
        waiting.difference_update({(name, query) for name, query in waiting if finite(server.query(query))})
        return not waiting

    with contextlib.suppress(TimeoutError):
        wait_until(answered, "every query returns series", limit_s=LIMIT_S)
    assert sorted(waiting) == []


def test_every_variable_has_values(server):
    def values(metric: str, label: str) -> list[str]:
        address = f"{server.url}/api/v1/label/{label}/values"
        return list(httpx.get(address, params={"match[]": metric}, timeout=10).json()["data"])

    asked = {pair for name in NAMES for pair in label_queries(name)}
    wait_until(lambda: all(values(*pair) for pair in asked), "every variable has values", limit_s=LIMIT_S)
    assert values("cgroup_info", "jobid") == ["17"]
