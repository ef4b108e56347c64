"""The way of a second of CPU time: the kernel's counter, the real exporter, a real server, windows in the table."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import polars as pl
import pytest

from stormpetrel.answers.site.doctor import examine
from stormpetrel.errors import SourceUnavailableError
from stormpetrel.ingest.traces import TraceReport, ingest_live
from stormpetrel.records.checks import Finding
from stormpetrel.records.window_frames import windows_of
from stormpetrel.sources.http import Retries
from stormpetrel.store.site import Site
from stormpetrel.store.source_health import SourceBook
from stormpetrel.watch.incident_keeper import IncidentKeeper
from stormpetrel.watch.logs import Log
from stormpetrel.watch.trace_findings import TraceFindings
from stormpetrel.watch.watcher import SteppingWatcher
from tests.builders import make_site
from tests.parts import Daemon, free_ports, wait_until
from tests.parts.prometheus import RealPrometheus, RealVictoria

pytestmark = pytest.mark.prometheus
CPUS = sum(line.startswith("cpu") and line[3].isdigit() for line in Path("/proc/stat").read_text().splitlines())


@pytest.fixture(scope="module")
def exporter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the real exporter, on this machine's own counters; it does not see the cgroups of jobs of other tests."""
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}"
    folder = tmp_path_factory.mktemp("exporter")
    (folder / "proc").symlink_to("/proc")
    command = [sys.executable, "-m", "stormpetrel.exporter", "--address", address, "--root", str(folder)]
    daemon = Daemon("exporter", command, log=folder / "log")
    try:
        wait_until(lambda: answers(address), "the exporter answers", limit_s=30, alive=daemon)
        yield address
    finally:
        daemon.stop()


def answers(address: str) -> bool:
    try:
        return httpx.get(f"http://{address}/healthz", timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


def site_for(folder: Path, server: RealPrometheus, *, step_s: float, window_s: float) -> Site:
    prometheus = {"url": server.url, "step_s": step_s, "settle_s": 3 * step_s, "overlap_s": 60.0}
    nothing_else = {"slurm": {"sacct": "there-is-none"}, "site": {"cluster": "here"}}  # for which the doctor would have to wait
    return make_site(folder, prometheus=prometheus, traces={"window_s": window_s}, **nothing_else)


def prometheus_finding(site: Site) -> Finding:
    (found,) = (finding for finding in examine(site) if finding.check == "prometheus")
    return found


def ingest_until(site: Site, windows: int, *, limit_s: float = 60.0) -> TraceReport:
    """Read on until there are so many windows; the last report."""
    last = TraceReport()

    def enough() -> bool:
        nonlocal last
        with contextlib.suppress(SourceUnavailableError):  # no window has passed since the server was started
            last = ingest_live(site)
        return site.cpu_windows.read().select(pl.len()).collect().item() >= windows

    wait_until(enough, f"{windows} windows are there", limit_s=limit_s)
    return last


@pytest.fixture(scope="module")
def servers(exporter: str) -> Iterator[dict[str, RealPrometheus]]:
    """Both kinds of server, watching the exporter every 0.4 s, and one to restart; Prometheus waits 5 s before it begins."""
    with (
        RealPrometheus([exporter], interval_s=0.4) as prometheus,
        RealVictoria([exporter], interval_s=0.4) as victoria,
        RealPrometheus([exporter], interval_s=0.2) as restarted,
    ):
        yield {"prometheus": prometheus, "victoria": victoria, "restarted": restarted}


@pytest.mark.parametrize("kind", ["prometheus", "victoria"])
def test_counters_of_this_machine_become_windows_that_sum_to_one(
    kind: str, servers: dict[str, RealPrometheus], tmp_path: Path
) -> None:
    with site_for(tmp_path / "site", servers[kind], step_s=0.4, window_s=2.0) as site:
        servers[kind].wait_for_samples("node_cpu_seconds_total", 6)
        report = ingest_until(site, CPUS)
        rows = site.cpu_windows.read().collect()
        windows = windows_of(rows)
        assert windows.rates.shape[1:] == (5, 4) and np.allclose(windows.rates.sum(axis=2), 1, atol=1e-5)
        assert (windows.rates >= 0).all() and windows.rates[:, :, 3].max() < 1  # this very test makes work
        assert set(rows["node"]) == {"127.0.0.1"} and set(rows["cpu"]) == set(range(CPUS))
        assert all(start.timestamp() % 2 == 0 for start in rows["window_start"])
        assert report.nodes == {"127.0.0.1"} and not report.notes
        again = ingest_live(site)
        assert again.known >= rows.height and again.changed == 0


@pytest.mark.parametrize("kind", ["prometheus", "victoria"])
def test_memory_pressure_and_disks_of_this_machine_become_shares_of_the_node(
    kind: str, servers: dict[str, RealPrometheus], tmp_path: Path
) -> None:
    with site_for(tmp_path / "site", servers[kind], step_s=0.4, window_s=2.0) as site:
        servers[kind].wait_for_samples("node_memory_MemTotal_bytes", 6)
        report = ingest_until(site, CPUS)
        metrics = site.node_metrics.read().collect()
        assert metrics["node"].unique().to_list() == ["127.0.0.1"] and not report.notes
        assert metrics["memory_used"].is_between(0.01, 0.99).all()
        offered = [name for name in ("memory_pressure", "io_pressure", "cpu_pressure") if Path("/proc/pressure/cpu").exists()]
        for name in (*offered, "disk_busy"):
            assert metrics[name].drop_nulls().len() and metrics[name].drop_nulls().is_between(0, 1).all()
        assert metrics["network_busy"].null_count() == metrics.height  # the exporter of this test sees no /sys


def test_the_watch_scores_each_window_as_soon_as_it_is_whole(servers: dict[str, RealPrometheus], tmp_path: Path) -> None:
    with site_for(tmp_path / "site", servers["prometheus"], step_s=0.4, window_s=2.0) as site:
        servers["prometheus"].wait_for_samples("node_cpu_seconds_total", 6)
        book = SourceBook()
        watcher = SteppingWatcher(TraceFindings(site, book), site, IncidentKeeper(site), Log(io.StringIO()))

        def scored() -> pl.DataFrame:
            watcher.step()
            return site.trace_scores.read().collect()

        wait_until(lambda: scored().height >= 3 * CPUS, "three windows of each thread are scored", limit_s=60)
        scores, windows = scored(), site.cpu_windows.read().collect()
        assert scores.height == windows.height and scores["score"].is_finite().all()
        assert site.node_metrics.read().collect()["memory_used"].is_between(0.01, 0.99).all()
        (source,) = book.sources()
        assert source.name == "prometheus (traces)" and source.last_good and not source.problem
        assert watcher.health.problem == "" and site.incidents.list() == []
        again = TraceFindings(site, state=IncidentKeeper(site).state_of("traces") or watcher.watcher.state)
        assert again.step(site.now()) == [] and again.state >= watcher.watcher.state


def test_a_server_that_was_restarted_leaves_a_gap_and_nothing_is_lost(
    servers: dict[str, RealPrometheus], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Retries, "pause_after", lambda *_: 0.01)
    server = servers["restarted"]
    with site_for(tmp_path / "site", server, step_s=0.2, window_s=1.0) as site:
        server.wait_for_samples("node_cpu_seconds_total", 8)
        ingest_until(site, CPUS)
        cursor = site.cpu_windows.cursor("prometheus")
        fine = prometheus_finding(site)
        assert fine.level == "ok" and "1 nodes every 0.2 s" in fine.what
        held = server.samples("node_cpu_seconds_total")
        server.stop()
        with pytest.raises(SourceUnavailableError, match=r"cannot be reached.*The cursor stays at"):
            ingest_live(site)
        assert site.cpu_windows.cursor("prometheus") == cursor
        problem = prometheus_finding(site)
        assert problem.level == "problem" and "cannot be reached" in problem.what
        server.start()
        before = site.cpu_windows.read().collect()
        server.wait_for_samples("node_cpu_seconds_total", held + 15)
        report = ingest_until(site, before.height + 2 * CPUS)
        assert report.gaps and report.left_out["gap"] >= CPUS
        rows = site.cpu_windows.read().collect()
        assert np.allclose(windows_of(rows).rates.sum(axis=2), 1, atol=1e-5)
        between = rows["window_start"].unique().sort().diff().drop_nulls().dt.total_milliseconds()
        assert between.max() > 1_000 and between.min() == 1_000
