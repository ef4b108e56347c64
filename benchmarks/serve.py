"""How many predictions a second the API gives, and how fast; beside a bare endpoint of the same framework that only echoes.

`python -m benchmarks.serve [SITE] [--watch] [--only CASE …] [--rate N] [--seconds N]`: a real `stormpetrel serve` (one worker)
over a copy of SITE, or over the demo's site, which is made first; `check` and `submit` come over the Unix socket. Requests are
sent at fixed times over 16 connections whether or not earlier ones have been answered, and a latency counts from the time at
which a request was due. Checks and submissions are also sent one after the other, which tells the CPU time that the server
spends on each, HTTP and all its threads included, and checks run in a thread of this process, without a server.
With `--watch` a `stormpetrel watch` runs on the same site, whose clock runs 60 times as fast as ours.
Results in benchmarks/results/serve.json; with `--only` the other cases stay there as they were.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import httpx

RESULTS = Path(__file__).parent / "results" / "serve.json"
ASKED_PER_SECOND = 500
ASKED_P99_MS = 50.0
PAGES_PER_SECOND = 10
PAGES_P99_MS = 300.0
CHECKS_PER_SECOND = 10
CHECKS_P99_MS = 20.0
CASES = ("predict", "jobs", "check", "submit")
OVER_THE_SOCKET = ("check", "submit")
NOT_COUNTED = 20  # checks that read what later ones find
CONNECTIONS = 16
WARM_UP_S = 5.0
_TICKS = os.sysconf("SC_CLK_TCK")
QUERIES = (
    "", "?sort=-risk", "?sort=user&sort=-submit_time", "?flagged=true&sort=-confidence", "?state=FAILED&limit=100", "?search=12",
    "?risk_min=0.5&page=2", "?page=7&sort=job_name", "?failed=true&known=true", "?limit=1000",
)  # fmt: skip


# --- the load -----------------------------------------------------------------------------------------------------------------


@dataclass
class Load:
    """What came of some requests: latencies in seconds, and how many were not answered with 200."""

    latencies: list[float] = field(default_factory=list)
    bad: int = 0
    began: float = 0.0
    ended: float = 0.0

    def figures(self) -> dict[str, float]:
        """Rate, and the latencies that people ask about, in milliseconds."""
        ranked = sorted(self.latencies)
        at = {
            f"p{share:g}_ms": 1e3 * ranked[min(len(ranked) - 1, int(share / 100 * len(ranked)))] for share in (50, 95, 99, 99.9)
        }
        span = self.ended - self.began
        return {"answered": len(ranked), "bad": self.bad, "per_second": len(ranked) / span, **at, "max_ms": 1e3 * ranked[-1]}


class _Wire(asyncio.Protocol):
    """One connection that is kept open, one request at a time; plain bytes, since a client library costs as much as a server."""

    def __init__(self) -> None:
        self._answer: asyncio.Future[bool] | None = None
        self._seen = b""
        self._wanted = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def ask(self, request: bytes) -> asyncio.Future[bool]:
        self._answer = asyncio.get_running_loop().create_future()
        self._seen, self._wanted = b"", 0
        self._transport.write(request)
        return self._answer

    def data_received(self, data: bytes) -> None:
        self._seen += data
        if not self._wanted:
            end = self._seen.find(b"\r\n\r\n")
            if end < 0:
                return
            head = self._seen[:end].lower()
            length = head.split(b"content-length:")[1].split(b"\r\n")[0]
            self._wanted = end + 4 + int(length)
        if len(self._seen) >= self._wanted and self._answer is not None:
            self._answer.set_result(self._seen.startswith(b"HTTP/1.1 200"))
            self._answer = None

    def connection_lost(self, _error: Exception | None) -> None:
        if self._answer is not None:
            self._answer.set_exception(ConnectionError("the server hung up"))


async def _send(port: int | Path, requests: Sequence[bytes], *, rate: float, seconds: float) -> Load:
    loop = asyncio.get_running_loop()
    free: asyncio.Queue[_Wire] = asyncio.Queue()
    for _ in range(CONNECTIONS):
        if isinstance(port, Path):
            _, wire = await loop.create_unix_connection(_Wire, str(port))
        else:
            _, wire = await loop.create_connection(_Wire, "127.0.0.1", port)
        free.put_nowait(wire)
    load = Load(began=time.perf_counter() + 0.1)

    async def one(number: int, wire: _Wire, due: float) -> None:
        if await wire.ask(requests[number % len(requests)]):
            load.latencies.append(time.perf_counter() - due)
        else:
            load.bad += 1
        free.put_nowait(wire)

    under_way: set[asyncio.Task[None]] = set()
    for number in range(int(rate * seconds)):
        due = load.began + number / rate
        if (wait := due - time.perf_counter()) > 0:
            await asyncio.sleep(wait)
        task = loop.create_task(one(number, await free.get(), due))
        under_way.add(task)
        task.add_done_callback(under_way.discard)
    await asyncio.gather(*under_way)
    load.ended = time.perf_counter()
    return load


def send(port: int | Path, requests: Sequence[bytes], *, rate: float, seconds: float) -> Load:
    """Send requests at a rate, each due at its time, to a port of this machine or to a socket."""
    with contextlib.suppress(ImportError):
        import uvloop

        return uvloop.run(_send(port, requests, rate=rate, seconds=seconds))
    return asyncio.run(_send(port, requests, rate=rate, seconds=seconds))


def request_bytes(method: str, path: str, body: dict[str, Any] | None = None) -> bytes:
    content = b"" if body is None else json.dumps(body).encode()
    kind = b"" if body is None else b"Content-Type: application/json\r\n"
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(content)}\r\n".encode()
    return head + kind + b"\r\n" + content


def prediction_bodies(site: Path, count: int = 1000) -> list[dict[str, Any]]:
    """Requests as the site's own users would make them."""
    import polars as pl

    from stormpetrel.store.site import open_site

    names = {"req_cpus": "cpus", "req_nodes": "nodes", "req_mem_bytes": "memory_bytes"}
    same = ("user", "job_name", "account", "partition", "time_limit_s", "work_dir")
    with open_site(site) as opened:
        jobs = opened.jobs.read_jobs().select(*same, *(pl.col(old).alias(new) for old, new in names.items())).collect()
    chosen = jobs.sample(min(count, jobs.height), seed=1)
    return [{name: value for name, value in row.items() if value is not None} for row in chosen.to_dicts()]


def script_bodies(bodies: Sequence[dict[str, Any]], count: int = 200) -> list[dict[str, Any]]:
    """The same requests as job scripts, as `check` sends them."""
    scripts = []
    for body in bodies[:count]:
        lines = [f"#SBATCH --job-name={body.get('job_name', 'run')}", f"#SBATCH --ntasks={body.get('cpus', 1)}"]
        if "time_limit_s" in body:
            lines.append(f"#SBATCH --time={max(1, int(body['time_limit_s'] // 60))}")
        if "memory_bytes" in body:
            lines.append(f"#SBATCH --mem={max(1, body['memory_bytes'] >> 20)}M")
        text = "\n".join(["#!/bin/bash", *lines, "srun ./run", ""])
        scripts.append({"text": text, "user": body.get("user"), "name": "run.sh"})
    return scripts


# --- the servers --------------------------------------------------------------------------------------------------------------


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@contextlib.contextmanager
def process(arguments: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    started = subprocess.Popen([sys.executable, "-m", *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield started
    finally:
        started.terminate()
        started.wait(timeout=60)


@contextlib.contextmanager
def server(arguments: list[str], port: int, ready: bytes, *, limit_s: float = 180.0) -> Iterator[subprocess.Popen[bytes]]:
    """A server in a process of its own, once it answers a request with 200."""
    with process(arguments) as started:
        end = time.monotonic() + limit_s
        while not _answers(port, ready):
            if started.poll() is not None or time.monotonic() > end:
                sys.exit(f"{' '.join(arguments)} did not begin to answer.")
            time.sleep(0.2)
        yield started


def _answers(port: int, request: bytes) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
            connection.sendall(request)
            return connection.recv(64).startswith(b"HTTP/1.1 200")
    except OSError:
        return False


def echo(port: int) -> None:
    """The peer: the same framework, the same JSON in and out, and no prediction."""
    import uvicorn
    from fastapi import Body, FastAPI

    app = FastAPI()

    @app.post("/echo")
    async def answer(asked: dict[str, Any] = Body()) -> dict[str, Any]:
        return asked

    uvicorn.run(app, port=port, log_level="warning", access_log=False)


def cpu_seconds(process_id: int) -> float:
    words = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / _TICKS


# --- the site -----------------------------------------------------------------------------------------------------------------


def prepare(given: Path | None, folder: Path) -> Path:
    """A copy of the site, or the demo's, that lets one viewer ask as often as the benchmark does."""
    from stormpetrel.config import SITE_FILE, load_settings, settings_as_toml

    site = folder / "site"
    if given is None:
        print("making the demo's site …", flush=True)
        subprocess.run(
            [sys.executable, "-m", "stormpetrel", "demo", str(site), "--no-serve", "--json"],
            check=True,
            stdout=subprocess.DEVNULL,
        )
    else:
        shutil.copytree(given, site)
        for path in (site / SITE_FILE, *site.glob("feed/*")):
            if path.suffix != ".parquet" and path.is_file():
                path.write_text(path.read_text().replace(str(given.resolve()), str(site.resolve())))
    settings = load_settings(site)
    often = settings.serve.model_copy(update={"requests_per_minute": 10_000_000, "socket": str(folder / "api.sock")})
    (site / SITE_FILE).write_text(settings_as_toml(settings.model_copy(update={"serve": often})))
    return site


# --- the measurement ----------------------------------------------------------------------------------------------------------


def measured(
    case: str, port: int | Path, server_id: int, requests: Sequence[bytes], *, rate: float, seconds: float
) -> dict[str, Any]:
    """One case: warmed up, then measured, with the share of a core that the server and this process took."""
    send(port, requests, rate=rate, seconds=WARM_UP_S)
    before, own_before, began = cpu_seconds(server_id), time.process_time(), time.monotonic()
    load = send(port, requests, rate=rate, seconds=seconds)
    span = time.monotonic() - began
    shares = {"server_cores": (cpu_seconds(server_id) - before) / span, "load_cores": (time.process_time() - own_before) / span}
    result = {"case": case, "asked_per_second": rate, "seconds": seconds, **load.figures(), **shares}
    print(
        f"  {case:<28} {result['per_second']:7.1f}/s   p50 {result['p50_ms']:6.1f} ms   p99 {result['p99_ms']:6.1f} ms   "
        f"max {result['max_ms']:6.1f} ms   {result['bad']} refused   cores: server {shares['server_cores']:.2f}, load "
        f"{shares['load_cores']:.2f}",
        flush=True,
    )
    return result


def submissions(bodies: Sequence[dict[str, Any]], count: int = 200) -> list[dict[str, Any]]:
    """The same requests as the filter inside sbatch sends them."""
    made = []
    for body in bodies[:count]:
        options = {"job-name": body.get("job_name", "run"), "ntasks": str(body.get("cpus", 1))}
        if "time_limit_s" in body:
            options["time"] = str(max(1, int(body["time_limit_s"] // 60)))
        if "memory_bytes" in body:
            options["mem"] = f"{max(1, body['memory_bytes'] >> 20)}M"
        made.append({"options": options})
    return made


def measure(site: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    bodies = prediction_bodies(site)
    asked = [request_bytes("POST", "/api/v1/predict", body) for body in bodies]
    pages = [request_bytes("GET", f"/api/v1/jobs{query}") for query in QUERIES]
    kinds: dict[str, tuple[Sequence[bytes], float, float]] = {
        "predict": (asked, options.rate, options.seconds),
        "jobs": (pages, PAGES_PER_SECOND, max(10.0, options.seconds / 2)),
        "check": (
            [request_bytes("POST", "/api/v1/predict/script", body) for body in script_bodies(bodies)],
            CHECKS_PER_SECOND,
            options.seconds,
        ),
        "submit": (
            [request_bytes("POST", "/api/v1/predict/submit", body) for body in submissions(bodies)],
            CHECKS_PER_SECOND,
            options.seconds,
        ),
    }
    kinds = {case: kind for case, kind in kinds.items() if case in options.only}
    results = []
    in_thread = [checks_in_a_thread(site, bodies)] if "check" in options.only else []
    port = free_port()
    with server(["benchmarks.serve", "--echo", str(port)], port, request_bytes("POST", "/echo", {})) as peer:
        echoed = [request_bytes("POST", "/echo", body) for body in bodies]
        results.append(measured("echo", port, peer.pid, echoed, rate=options.rate, seconds=options.seconds))
    port = free_port()
    words = ["stormpetrel", "--site", str(site), "serve", "--address", f"127.0.0.1:{port}"]
    with server(words, port, asked[0]) as served:
        for case, (requests, rate, seconds) in kinds.items():
            door = site.parent / "api.sock" if case in OVER_THE_SOCKET else port
            results.append(measured(case, door, served.pid, requests, rate=rate, seconds=seconds))
            if case in OVER_THE_SOCKET:
                results.append(one_by_one(case, site.parent / "api.sock", served.pid, requests))
        if options.watch:
            with process(["stormpetrel", "--site", str(site), "watch", "--address", ""]) as watch:
                _wait_for_watch(port)
                for case, (requests, rate, seconds) in kinds.items():
                    spent = cpu_seconds(watch.pid)
                    door = site.parent / "api.sock" if case in OVER_THE_SOCKET else port
                    result = measured(f"{case}, watch running", door, served.pid, requests, rate=rate, seconds=seconds)
                    results.append({**result, "watch_cores": (cpu_seconds(watch.pid) - spent) / (WARM_UP_S + seconds)})
    return [*results, *in_thread]


def one_by_one(case: str, socket_path: Path, server_id: int, requests: Sequence[bytes]) -> dict[str, Any]:
    """Requests one after the other over the socket: what each takes by the clock, and of the server's CPU."""
    clock = (~server_id << 3) | 2  # of the CPU time of a process, as clock_getcpuclockid(3) makes it; /proc counts in 10 ms
    clock_ms, cpu_ms = [], []
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(socket_path))
        for number, request in enumerate(requests):
            began, before = time.perf_counter(), time.clock_gettime(clock)
            connection.sendall(request)
            if not _whole_answer(connection).startswith(b"HTTP/1.1 200"):
                sys.exit(f"{case} was refused.")
            if number >= NOT_COUNTED:
                clock_ms.append(1e3 * (time.perf_counter() - began))
                cpu_ms.append(1e3 * (time.clock_gettime(clock) - before))
    return _shown(f"{case}, one by one", clock_ms, cpu_ms)


def _whole_answer(connection: socket.socket) -> bytes:
    """One answer, whose head tells its length."""
    seen = b""
    while b"\r\n\r\n" not in seen:
        seen += connection.recv(65536) or sys.exit("The server hung up.")
    head, _, body = seen.partition(b"\r\n\r\n")
    missing = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0]) - len(body)
    while missing > 0:
        missing -= len(connection.recv(65536) or sys.exit("The server hung up."))
    return seen


def _shown(case: str, clock_ms: list[float], cpu_ms: list[float]) -> dict[str, Any]:
    """Clock and CPU of single requests, printed."""
    figures: dict[str, float] = {}
    for prefix, took in (("", clock_ms), ("cpu_", cpu_ms)):
        ranked = sorted(took)
        figures |= {f"{prefix}p{share}_ms": ranked[int(share / 100 * len(ranked))] for share in (50, 99)}
        figures |= {f"{prefix}max_ms": ranked[-1]}
    print(
        f"  {case:<28} clock p50 {figures['p50_ms']:6.1f} ms   p99 {figures['p99_ms']:6.1f} ms   max {figures['max_ms']:6.1f} ms"
        f"   CPU p50 {figures['cpu_p50_ms']:6.1f} ms   p99 {figures['cpu_p99_ms']:6.1f} ms   max {figures['cpu_max_ms']:6.1f} ms",
        flush=True,
    )
    return {"case": case, "answered": len(clock_ms), **figures}


def checks_in_a_thread(site: Path, bodies: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Single checks by the code that serves them, in a thread of this process: of the CPU time, other work does not count."""
    from stormpetrel.answers.jobs.check import check_script
    from stormpetrel.answers.live_site import LiveSite
    from stormpetrel.answers.schemas.predictions import ScriptRequest
    from stormpetrel.answers.viewer import LOCAL
    from stormpetrel.store.site import open_site

    clock_ms, cpu_ms = [], []
    with open_site(site) as opened:
        live = LiveSite(opened)
        live.refresh()
        live.outlook()
        for number, body in enumerate(script_bodies(bodies)):
            began, before = time.perf_counter(), time.thread_time()
            check_script(live, LOCAL, ScriptRequest(**body))
            if number >= NOT_COUNTED:
                clock_ms.append(1e3 * (time.perf_counter() - began))
                cpu_ms.append(1e3 * (time.thread_time() - before))
    return _shown("check, in a thread", clock_ms, cpu_ms)


def _wait_for_watch(port: int, limit_s: float = 120.0) -> None:
    """Until the watch has caught up with the site's clock, as the server sees it."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        lines = httpx.get(f"http://127.0.0.1:{port}/api/v1/health").json()["lines"]
        if all(line["level"] == "ok" for line in lines if line["name"] in ("Watch", "Forecasts")):
            return
        time.sleep(1.0)
    sys.exit("The watch did not catch up.")


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("site", type=Path, nargs="?", help="a site with models; the demo's if left out")
    parser.add_argument("--watch", action="store_true", help="measure once more while a watch runs on the site")
    parser.add_argument("--only", nargs="+", choices=CASES, default=CASES, help="cases; the echo is always there")
    parser.add_argument("--rate", type=float, default=ASKED_PER_SECOND, help="predictions per second")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long each case is measured")
    parser.add_argument("--echo", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.echo:
        echo(options.echo)
        return
    asked = f"asked: {ASKED_PER_SECOND} predictions/s with p99 < {ASKED_P99_MS:g} ms, pages with p99 <= {PAGES_P99_MS:g} ms"
    asked += f", checks with p99 <= {CHECKS_P99_MS:g} ms"
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, one worker; {asked}")
    with tempfile.TemporaryDirectory() as folder:
        results = measure(prepare(options.site, Path(folder)), options)
    peer = results[0]
    for result in results:
        if "server_cores" not in result:
            continue
        ratios = {f"{name}_to_echo": result[name] / peer[name] for name in ("p50_ms", "p99_ms", "server_cores")}
        compared = result["case"].startswith(("predict", "check", "submit"))
        result |= ratios if compared else {}
        if compared:
            words = ", ".join(f"{name.removesuffix('_to_echo')} {ratio:.1f}" for name, ratio in ratios.items())
            print(f"  {result['case']}, times those of the echo: {words}")
    about = {"python": platform.python_version(), "cores": os.cpu_count(), "workers": 1, "connections": CONNECTIONS}
    for result in results:
        result["load"] = round(os.getloadavg()[0], 1)
    RESULTS.parent.mkdir(exist_ok=True)
    measured_now = {result["case"] for result in results}
    before = json.loads(RESULTS.read_text())["cases"] if RESULTS.exists() else []
    others = [case for case in before if case["case"] not in measured_now] if options.only != CASES else []
    RESULTS.write_text(json.dumps({**about, "cases": [*others, *results]}, indent=1) + "\n")


if __name__ == "__main__":
    main()
