"""From the end of a window to its committed score: 20,000 CPU threads at 1 Hz, read from a server that speaks like Prometheus.

`python -m benchmarks.watch_traces [--nodes N] [--minutes M]`: the watcher of traces as `stormpetrel watch` runs it, on a real
site, in real time. The server is a process of its own on loopback; its CPU time is not counted, but it runs on the same cores.
`cpu_behind_end_s` is our own CPU time from the end of a window to its commit. Results in benchmarks/results/watch_traces.json.
"""

from __future__ import annotations

import argparse
import io
import itertools
import json
import os
import platform
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from numba import njit

from stormpetrel.config import settings_from
from stormpetrel.lifecycle.trace_models import Scored
from stormpetrel.sources.prometheus.cpu_shares import DISTINGUISHED, SAMPLE_TIME, THREAD_JOB
from stormpetrel.store.site import Site, create_site
from stormpetrel.watch.incident_keeper import IncidentKeeper
from stormpetrel.watch.logs import Log
from stormpetrel.watch.trace_findings import TraceFindings
from stormpetrel.watch.watcher import SteppingWatcher

RESULTS = Path(__file__).parent / "results" / "watch_traces.json"
LAG_LIMIT_S = 5.0  # asked: from the end of a window to its committed score
COLD_LIMIT_S = 20.0  # asked: from the start of the process to the first score
SCORES_LIMIT_MB, WINDOWS_LIMIT_MB = 200.0, 2000.0  # asked: a day
CPUS = 128  # threads of a node
MODES = ("idle", "iowait", "irq", "nice", "softirq", "steal", "system", "user")
PERIOD_S = 600  # after which the shares come again
KINDS = 16  # of nodes: two of the same kind do the same
BASE = 10_000_000  # hundredths of a second: all counters have six digits before the point
JOB_S = 1800  # each node runs two jobs at a time, for half an hour
WINDOW_S = 100.0


# The server


class MadeCounters:
    """Counters of nodes that are not there; each is scraped every second at a place of its own within the second."""

    def __init__(self, nodes: int, seed: int = 0, *, now_s: float) -> None:
        rng = np.random.default_rng(seed)
        self.nodes = nodes
        self.origin = int(now_s) // PERIOD_S * PERIOD_S - 3 * 3600
        grown = self._grown(rng)  # (kinds * cpus, seconds, modes) hundredths of a second
        self.sums = (
            np.cumsum(grown, axis=1).transpose(0, 2, 1).reshape(-1, PERIOD_S).astype(np.int64)
        )  # (kinds * cpus * modes, s)
        self.offset_ms = rng.integers(0, 1000, nodes)
        labels = [
            f'{{"metric":{{"__name__":"node_cpu_seconds_total","cpu":"{cpu}","instance":"n{node:03d}:9100","job":"node",'
            f'"mode":"{mode}"}},"values":['.encode()
            for cpu in range(CPUS) for node in range(nodes) for mode in MODES
        ]  # fmt: skip
        self.labels = np.frombuffer(b"".join(labels), dtype=np.uint8)
        self.ends = np.cumsum([len(label) for label in labels])

    def _grown(self, rng: np.random.Generator) -> npt.NDArray[np.int64]:
        """What each mode grows by in each second, in steps of a hundredth, as the kernel counts it."""
        threads = KINDS * CPUS
        busy = np.clip(np.repeat(rng.beta(2, 2, (KINDS, 2)), CPUS // 2, axis=1).ravel(), 0.05, 0.98)
        wave = 0.1 * np.sin(np.arange(PERIOD_S) / rng.uniform(5, 60, (threads, 1)) + rng.uniform(0, 6, (threads, 1)))
        user = np.clip(busy[:, None] + wave + rng.normal(0, 0.05, (threads, PERIOD_S)), 0, 0.95)
        odd = rng.random((threads, PERIOD_S)) < 0.002  # waits for its disk now and then
        waits = np.where(odd, 0.9 * (1 - user), rng.exponential(0.004, user.shape)).clip(0, 1 - user)
        system = np.clip(rng.normal(0.03, 0.01, user.shape), 0, 1 - user - waits)
        parts = {"user": user, "iowait": waits, "system": system}
        whole = np.zeros((threads, PERIOD_S, len(MODES)), dtype=np.int64)
        for mode, share in parts.items():
            whole[:, :, MODES.index(mode)] = np.floor(100 * share)
        whole[:, :, MODES.index("idle")] = 100 - whole.sum(axis=2)
        return whole

    def counters(self, nodes: npt.NDArray[np.int64], start_s: float, end_s: float) -> bytes:
        """The result of a query for the counters of some nodes."""
        samples = int(end_s - start_s) + 2
        size = int(self.labels.size / self.nodes * nodes.size * 1.2) + nodes.size * CPUS * len(MODES) * (samples * 30 + 4) + 100
        out = np.empty(size, dtype=np.uint8)
        end = _write(
            out, nodes, self.offset_ms, self.labels, self.ends, self.sums, self.nodes, self.origin,
            round(start_s * 1000), round(end_s * 1000), len(MODES), CPUS, KINDS, PERIOD_S, BASE,
        )  # fmt: skip
        return out[: max(0, end - 1)].tobytes()

    def beside(self, nodes: npt.NDArray[np.int64], start_s: float, end_s: float) -> bytes:
        """The result of a query for jobs and clocks."""
        entries = []
        for node in nodes.tolist():
            offset_s = self.offset_ms[node] / 1000
            times = [f"{at + offset_s:.3f}" for at in range(int(start_s) - 1, int(end_s) + 1) if start_s < at + offset_s <= end_s]
            if not times:
                continue
            ones = ",".join(f'[{at},"1"]' for at in times)
            where = f'"instance":"n{node:03d}:9100","job":"node"'
            clock = ",".join(f'[{at},"{at}"]' for at in times)
            entries.append(f'{{"metric":{{"__name__":"{SAMPLE_TIME}",{where}}},"values":[{clock}]}}')
            entries.append(f'{{"metric":{{"__name__":"{DISTINGUISHED}",{where}}},"values":[{ones}]}}')
            number = int(end_s) // JOB_S % 1000 * 1000 + node
            entries += [
                f'{{"metric":{{"__name__":"{THREAD_JOB}","cpu":"{cpu}",{where},"jobid":"{number}{cpu * 2 // CPUS}"}},'
                f'"values":[{ones}]}}'
                for cpu in range(CPUS)
            ]
        return ",".join(entries).encode()


@njit(cache=True, nogil=True)
def _digits(out, at, number, count):  # type: ignore[no-untyped-def]
    for place in range(count - 1, -1, -1):
        out[at + place] = 48 + number % 10
        number //= 10
    return at + count


@njit(cache=True, nogil=True)
def _write(out, nodes, offset_ms, labels, ends, sums, all_nodes, origin, start_ms, end_ms, modes, cpus, kinds, period, base):  # type: ignore[no-untyped-def]
    """Series by series `{"metric":{...},"values":[[1700000000.123,"123456.78"],...]},`; where it ends."""
    at = 0
    for cpu in range(cpus):
        for node in nodes:
            first = (start_ms - offset_ms[node]) // 1000 + 1  # seconds whose sample is behind the start
            last = (end_ms - offset_ms[node]) // 1000
            if last < first:
                continue
            for mode in range(modes):
                number = (cpu * all_nodes + node) * modes + mode
                begin = ends[number - 1] if number else 0
                size = ends[number] - begin
                out[at : at + size] = labels[begin : begin + size]
                at += size
                row = sums[((node % kinds) * cpus + cpu) * modes + mode]
                for second in range(first, last + 1):
                    gone = second - origin
                    value = base + gone // period * row[period - 1] + row[gone % period]
                    out[at] = 91
                    at = _digits(out, at + 1, second, 10)
                    out[at] = 46
                    at = _digits(out, at + 1, offset_ms[node], 3)
                    out[at], out[at + 1] = 44, 34
                    at = _digits(out, at + 2, value // 100, 6)
                    out[at] = 46
                    at = _digits(out, at + 1, value % 100, 2)
                    out[at], out[at + 1], out[at + 2] = 34, 93, 44
                    at += 3
                out[at - 1], out[at], out[at + 1] = 93, 125, 44
                at += 2
    return at


def serve(port: int, nodes: int, *, ahead_s: float = 0.0) -> None:
    """Answer queries until the process is ended; `ahead_s` is how far the site's clock is ahead of this machine's."""
    made = MadeCounters(nodes, now_s=time.time() + ahead_s)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            form = urllib.parse.parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            query, at_s = form["query"][0], min(float(form["time"][0]), time.time() + ahead_s - 0.05)  # a scrape takes a moment
            body = _answer(made, query, float(form["time"][0]), at_s)
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            return

    made.counters(np.arange(1), time.time() + ahead_s - 2, time.time() + ahead_s)  # compiled before anybody asks
    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


def _answer(made: MadeCounters, query: str, queried_s: float, end_s: float) -> bytes:
    span = re.search(r"\[(\d+)ms\]", query)
    start_s = queried_s - int(span[1]) / 1000 if span else queried_s
    if query.startswith("sum by"):
        rows = [
            {"metric": {"instance": f"n{node:03d}:9100"}, "value": [queried_s, str(int(end_s - start_s) * CPUS * len(MODES))]}
            for node in range(made.nodes)
        ]
        return json.dumps({"status": "success", "data": {"resultType": "vector", "result": rows}}).encode()
    nodes = np.array(sorted({int(number) for number in re.findall(r"n(\d{3,})", query)}), dtype=np.int64)
    result = made.counters(nodes, start_s, end_s) if "node_cpu" in query else made.beside(nodes, start_s, end_s)
    return b'{"status":"success","data":{"resultType":"matrix","result":[' + result + b"]}}"


# What is measured


def measure(site: Site, minutes: float, started: float) -> dict[str, Any]:
    """Follow the server in real time; the first window may be behind by what a cold start takes."""
    lags: list[dict[str, float]] = []
    first_score_s, cpu_at_end = 0.0, 0.0

    def note(scored: Scored) -> None:
        nonlocal first_score_s
        cursor = site.cpu_windows.cursor("prometheus")
        if not scored.scored or cursor is None:
            return
        now = time.time()
        first_score_s = first_score_s or now - started
        lags.append({
            "lag_s": round(now - cursor / 1e6, 2), "cpu_behind_end_s": round(_cpu_s() - cpu_at_end, 2),
            "windows": scored.scored, "flagged": scored.flagged, "cpu_s": round(_cpu_s(), 2),
            "at_s": round(now - started, 1), "rss_mb": round(_rss_mb(), 1),
        })  # fmt: skip
        print(json.dumps(lags[-1]), flush=True)

    findings = TraceFindings(site, note=note)
    watcher = SteppingWatcher(findings, site, IncidentKeeper(site), Log(io.StringIO()))
    end, has_threshold = time.time() + 60 * minutes, False
    while time.time() < end:
        cpu_at_end = _cpu_s()  # the last step before the end of a window is over before it
        pause_s = watcher.step()
        if watcher.health.problem:
            print("problem:", watcher.health.problem, flush=True)
        if lags and not has_threshold:
            has_threshold = True
            _set_threshold(site)
            findings._model = None
        time.sleep(max(0.0, min(pause_s, end - time.time())))
    return {"first_score_s": round(first_score_s, 2), "moments": lags}


def _set_threshold(site: Site) -> None:
    """A threshold by the first windows, as a day of them would set it: so that some are flagged within minutes."""
    scores = site.trace_scores.read().select("score", "stands_for").collect()
    every = np.repeat(scores["score"].to_numpy(), scores["stands_for"].to_numpy())
    share = site.settings.traces.alarm_share
    promise = {
        "asked": share, "share": share, "threshold": float(np.quantile(every, 1 - share)),
        "calm": {"windows": every.size, "independent": 100_000, "hours": 24.0},
    }  # fmt: skip
    site.state.set_fact("traces_shipped_promise", json.dumps(promise))


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _rss_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def _bytes_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*.parquet") if "_delta_log" not in path.parts)


def summary(site: Site, found: dict[str, Any], nodes: int) -> dict[str, Any]:
    """What was asked for, beside what was measured."""
    moments = found["moments"]
    live = [one for one in moments if one["lag_s"] < WINDOW_S][1:]  # the first ones are the cold start's
    lags = [one["lag_s"] for one in live]
    spans = [(b["cpu_s"] - a["cpu_s"]) / (b["at_s"] - a["at_s"]) for a, b in itertools.pairwise(live)]
    a_day = 86_400 / WINDOW_S / max(1, len(moments))
    scores_mb = _bytes_of(site.trace_scores.table.path) * a_day / 1e6
    windows_mb = _bytes_of(site.cpu_windows.table.path) * a_day / 1e6
    rows = site.trace_scores.read().collect()
    return {
        "threads": nodes * CPUS,
        "windows_scored": len(moments),
        "lag_s": {"median": statistics.median(lags), "max": max(lags), "asked": LAG_LIMIT_S} if lags else None,
        "first_score_s": {"measured": found["first_score_s"], "asked": COLD_LIMIT_S},
        "cpu_behind_end_s": statistics.median(one["cpu_behind_end_s"] for one in live) if live else None,
        "cpu_s_per_s": round(statistics.mean(spans), 3) if spans else None,
        "rss_mb": [one["rss_mb"] for one in moments],
        "scores_mb_a_day": {"measured": round(scores_mb, 1), "asked": SCORES_LIMIT_MB},
        "windows_mb_a_day": {"measured": round(windows_mb, 1), "asked": WINDOWS_LIMIT_MB},
        "score_rows_a_moment": round(rows.height / max(1, len(moments))),
        "windows_counted": int(rows["stands_for"].sum()),
        "windows_kept_a_moment": round(site.cpu_windows.read().select(pl.len()).collect().item() / max(1, len(moments))),
        "moments": moments,
    }


@contextmanager
def serving(port: int, nodes: int, *, ahead_s: float = 0.0) -> Iterator[subprocess.Popen[bytes]]:
    """The server in a process of its own, until the end of the block."""
    words = ["--serve", "--port", str(port), "--nodes", str(nodes), f"--ahead-s={ahead_s}"]
    server = subprocess.Popen([sys.executable, "-m", "benchmarks.watch_traces", *words])
    try:
        _wait_for(port)
        yield server
    finally:
        server.terminate()
        server.wait()


def main() -> None:
    """Start the server, watch it, and write what was measured."""
    started = time.time()
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--nodes", type=int, default=157, help=f"of {CPUS} threads each")
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--port", type=int, default=19_643)
    parser.add_argument("--since-s", type=float, default=220.0, help="how far back the first run reads")
    parser.add_argument("--serve", action="store_true", help="be the server")
    parser.add_argument("--ahead-s", type=float, default=0.0, help=argparse.SUPPRESS)  # of the site's clock
    options = parser.parse_args()
    if options.serve:
        serve(options.port, options.nodes, ahead_s=options.ahead_s)
        return
    with serving(options.port, options.nodes):
        since = datetime.fromtimestamp(time.time() - options.since_s, UTC).isoformat()
        prometheus = {"url": f"http://127.0.0.1:{options.port}", "since": since}
        with tempfile.TemporaryDirectory() as folder:
            settings = settings_from({"site": {"cluster": "bench"}, "prometheus": prometheus, "traces": {"window_s": WINDOW_S}})
            started = time.time()
            with create_site(Path(folder) / "site", settings) as site:
                result = summary(site, measure(site, options.minutes, started), options.nodes)
    result["machine"] = {"cores": os.cpu_count(), "python": platform.python_version(), "load": os.getloadavg()}
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps({name: value for name, value in result.items() if name != "moments"}, indent=1))


def _wait_for(port: int) -> None:
    import socket

    for _ in range(600):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise SystemExit("The server did not start.")


if __name__ == "__main__":
    main()
