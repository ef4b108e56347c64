"""Up to where one real Prometheus scrapes nodes of 128 threads at 1 Hz, and what it costs: CPU, memory, disk, and a read of it.

`python -m benchmarks.load_prometheus [--nodes 10,20,40,80,157,314] [--seconds 60]`: for each number of nodes a fresh Prometheus
(the one on the path) that scrapes as many exporters each second. The exporters are one process on loopback that answers in
their text format; its CPU is measured apart. `kept` is the share of the samples due that were stored; below .99 it is broken. A
read is what the watch does each tenth of a window: the counters of 16 nodes over ten seconds, as raw samples. Each step is
written to benchmarks/results/load_prometheus.json when it is over.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import numpy as np
from numba import njit

from benchmarks.load import bytes_of, free_port
from benchmarks.watch_jobs import resident_bytes
from benchmarks.watch_load import cpu_of
from benchmarks.watch_traces import BASE, CPUS, JOB_S, KINDS, MODES, PERIOD_S, MadeCounters
from stormpetrel.config import PrometheusSection
from stormpetrel.sources.prometheus.cpu_traces import PrometheusTraces

RESULTS: Final = Path(__file__).parent / "results" / "load_prometheus.json"
WARM_UP_S: Final = 25.0
ENOUGH: Final = 0.99  # share of samples that must be stored
_SERIES: Final = CPUS * (len(MODES) + 1)  # of one exporter: counters, and which job a thread has
_READ_NODES: Final = 16
_READ_S: Final = 10.0


# The exporters


class Exposition:
    """What the exporter of a node says at a moment, in the text format of Prometheus."""

    def __init__(self, nodes: int) -> None:
        made = MadeCounters(1, now_s=time.time())  # the counters of all kinds of nodes; labels are written here
        self.sums, self.origin = made.sums, made.origin
        lines = [f'node_cpu_seconds_total{{cpu="{cpu}",mode="{mode}"}} '.encode() for cpu in range(CPUS) for mode in MODES]
        self.lines = np.frombuffer(b"".join(lines), dtype=np.uint8)
        self.ends = np.cumsum([len(line) for line in lines])
        self.nodes = nodes

    def text(self, node: int, now_s: float) -> bytes:
        """One scrape."""
        out = np.empty(self.lines.size + len(self.ends) * 11, dtype=np.uint8)
        end = _write(
            out, node, self.lines, self.ends, self.sums, int(now_s) - self.origin, len(MODES), CPUS, KINDS, PERIOD_S, BASE
        )
        number = int(now_s) // JOB_S * 10_000 + node
        jobs = "".join(f'stormpetrel_thread_job_info{{cpu="{cpu}",jobid="{number}{2 * cpu // CPUS}"}} 1\n' for cpu in range(CPUS))
        return out[:end].tobytes() + jobs.encode()


@njit(cache=True, nogil=True)
def _write(out, node, lines, ends, sums, gone, modes, cpus, kinds, period, base):  # type: ignore[no-untyped-def]
    at = 0
    for cpu in range(cpus):
        for mode in range(modes):
            number = cpu * modes + mode
            begin = ends[number - 1] if number else 0
            size = ends[number] - begin
            out[at : at + size] = lines[begin : begin + size]
            at += size
            row = sums[((node % kinds) * cpus + cpu) * modes + mode]
            value = base + gone // period * row[period - 1] + row[gone % period]
            for place in range(8, -1, -1):
                if place == 6:
                    out[at + place] = 46
                    continue
                out[at + place] = 48 + value % 10
                value //= 10
            out[at + 9] = 10
            at += 10
    return at


def serve(port: int, nodes: int) -> None:
    """Answer scrapes until the process is ended."""
    exposition = Exposition(nodes)
    exposition.text(0, time.time())

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = exposition.text(int(self.path.rpartition("/")[2]), time.time())
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            return

    class Server(ThreadingHTTPServer):
        request_queue_size = 2048
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            return  # a scrape that was given up after its second is counted by Prometheus

    Server(("127.0.0.1", port), Handler).serve_forever()


# What is measured


@contextmanager
def prometheus(folder: Path, exporters: int, nodes: int) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A Prometheus that scrapes as many nodes each second, and its port."""
    port = free_port()
    targets = [
        {
            "targets": [f"127.0.0.1:{exporters}"],
            "labels": {"instance": f"n{node:03d}:9100", "__metrics_path__": f"/node/{node}"},
        }
        for node in range(nodes)
    ]
    scrape = {"job_name": "node", "scrape_interval": "1s", "scrape_timeout": "1s", "static_configs": targets}
    (folder / "prometheus.yml").write_text(json.dumps({"scrape_configs": [scrape]}))  # JSON is YAML
    words = [
        "prometheus", f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}", "--log.level=error",
    ]  # fmt: skip
    process = subprocess.Popen(words, stderr=subprocess.DEVNULL)
    try:
        for _ in range(300):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=2).read()
                break
            except OSError:
                time.sleep(0.2)
        else:
            raise SystemExit("Prometheus did not start.")
        yield process, port
    finally:
        process.terminate()
        process.wait()


def appended(port: int) -> float:
    """Samples that Prometheus has stored so far."""
    text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30).read().decode()
    values = re.findall(r"^prometheus_tsdb_head_samples_appended_total\S* ([\d.e+]+)$", text, re.MULTILINE)
    return sum(float(value) for value in values)


def asked(port: int, query: str) -> float:
    """The value of a query."""
    url = f"http://127.0.0.1:{port}/api/v1/query?query={urllib.request.quote(query)}"  # type: ignore[attr-defined]
    rows = json.loads(urllib.request.urlopen(url, timeout=60).read())["data"]["result"]
    return float(rows[0]["value"][1]) if rows else float("nan")


def a_read(port: int, process: int, nodes: int) -> dict[str, float]:
    """What a read of the newest ten seconds of some nodes costs both sides; the median of five."""
    settings = PrometheusSection(url=f"http://127.0.0.1:{port}")
    took, theirs, ours, samples = [], [], [], 0
    labels = [f"n{node:03d}:9100" for node in range(min(nodes, _READ_NODES))]
    with PrometheusTraces(settings, window_s=100.0) as reading:
        for _ in range(5):
            end_s = time.time() - 1
            began, before, own = time.monotonic(), cpu_of(process), time.process_time()
            samples = int(reading.counters(labels, end_s - _READ_S, end_s).values.size)
            took.append(time.monotonic() - began)
            theirs.append(cpu_of(process) - before)
            ours.append(time.process_time() - own)
    middle = {"seconds": np.median(took), "prometheus_cpu_s": np.median(theirs), "our_cpu_s": np.median(ours)}
    return {"samples": samples, **{name: round(float(value), 4) for name, value in middle.items()}}


def measure(nodes: int, seconds: float) -> dict[str, Any]:
    """One number of nodes."""
    exporters = free_port()
    server = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.load_prometheus", "--serve", str(exporters), "--nodes", str(nodes)]
    )
    try:
        with tempfile.TemporaryDirectory() as name, prometheus(Path(name), exporters, nodes) as (process, port):
            time.sleep(WARM_UP_S)
            began, before, stored = time.monotonic(), cpu_of(process.pid), appended(port)
            generator, disk = cpu_of(server.pid), bytes_of(Path(name) / "data")
            time.sleep(seconds)
            stored, lasted = appended(port) - stored, time.monotonic() - began
            cores, own = (cpu_of(process.pid) - before) / lasted, (cpu_of(server.pid) - generator) / lasted
            grown = bytes_of(Path(name) / "data") - disk
            due = nodes * (_SERIES + 5) * lasted  # five series of its own about each scrape
            result = {
                "nodes": nodes, "threads": nodes * CPUS, "samples_per_s": round(stored / lasted),
                "kept": round(min(1.0, stored / due), 4),
                "up": asked(port, "sum(up)") / nodes, "scrape_s": round(asked(port, "max(scrape_duration_seconds)"), 3),
                "cores": round(cores, 3), "generator_cores": round(own, 3),
                "rss_mb": round(resident_bytes(process.pid) / 1e6), "wal_bytes_per_sample": round(grown / max(1.0, stored), 2),
                "read": a_read(port, process.pid, nodes), "load_average": os.getloadavg()[0],
            }  # fmt: skip
    finally:
        server.terminate()
        server.wait()
    return result


def main() -> None:
    """Measure each number of nodes until Prometheus loses samples."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", default="10,20,40,80,157,314")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)  # the port of the exporters, in a process of their own
    options = parser.parse_args()
    if options.serve:
        serve(options.serve, int(options.nodes))
        return
    if shutil.which("prometheus") is None:
        raise SystemExit("There is no prometheus on the path.")
    version = subprocess.run(["prometheus", "--version"], capture_output=True, text=True, check=True).stdout.split()[2]
    steps: list[dict[str, Any]] = []
    for nodes in (int(text) for text in options.nodes.split(",")):
        steps.append(measure(nodes, options.seconds))
        print(json.dumps(steps[-1]), flush=True)
        RESULTS.write_text(json.dumps({"version": version, "cores": os.cpu_count(), "steps": steps}, indent=1) + "\n")
        if steps[-1]["kept"] < ENOUGH:
            break


if __name__ == "__main__":
    main()
