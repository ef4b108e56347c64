"""What the exporter costs on a node of 128 CPUs with 16 jobs, beside an exporter made with prometheus_client for the same CPUs.

`python -m benchmarks.exporter [--cpus N] [--jobs N] [--seconds N]`: a recorded node (/proc/stat and Slurm's cgroups v2, written
anew before each scrape) under a folder in memory; each exporter in a process of its own, scraped over one kept connection at
1 Hz, and then as fast as it answers. CPU time is that of the whole process. The peer reads /proc/stat only, no jobs.

What the recorded node leaves out is the kernel's work of making the files. It is estimated beside: CPU time per read of real
files of this machine (/proc/stat, and those of a real cgroup where one can be made), against that of the recorded ones.
Results in benchmarks/results/exporter.json.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import platform
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from stormpetrel.exporter.files import Files
from stormpetrel.exporter.job_groups import find_hierarchies
from stormpetrel.exporter.proc_stat import MODES, TICKS_PER_SECOND

RESULTS = Path(__file__).parent / "results" / "exporter.json"
LIMIT_SHARE = 0.005  # asked: of a core at 1 Hz
LIMIT_BYTES = 40_000_000  # asked
WARM_UP = 20
FAST_S = 5.0
JOB_FILES = ("cpu.stat", "memory.stat", "memory.current", "memory.max", "cpu.pressure", "memory.pressure", "io.pressure")
_COUNTERS = [f"counter_{number} {number * 4096}\n" for number in range(45)]
_MEMORY_STAT = "anon {0}\nfile {1}\n" + "".join(_COUNTERS[:7]) + "shmem {1}\n" + "".join(_COUNTERS[7:])  # the kernel's order
_PRESSURE = "some avg10=0.13 avg60=0.05 avg300=0.01 total={0}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total={1}\n"


# --- the recorded node --------------------------------------------------------------------------------------------------------


class RecordedNode:
    """A node under a folder whose counters move on when they are told to."""

    def __init__(self, root: Path, cpus: int, jobs: int) -> None:
        self.root, self.cpus, self.jobs, self.steps = root, cpus, jobs, 0
        top = root / "sys/fs/cgroup"
        self.groups = [top / "system.slice/slurmstepd.scope" / f"job_{1_000_000 + number}" for number in range(jobs)]
        for group in self.groups:
            (group / "step_0/user/task_0").mkdir(parents=True)
        for number in range(40):  # what else is in these folders on a node
            (top / "system.slice" / f"unit{number}.service").mkdir()
            (top / "system.slice/slurmstepd.scope" / f"file{number}").touch()
        (top / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
        (root / "proc/pressure").mkdir(parents=True)
        (root / "proc/pressure/cpu").write_text(_PRESSURE.format(1, 0))
        share = cpus // max(1, jobs)
        for number, group in enumerate(self.groups):
            self._process(number, group)
            for name in ("cpuset.cpus", "cpuset.cpus.effective"):
                (group / name).write_text(f"{number * share}-{(number + 1) * share - 1}\n")
        self.move_on()

    def _process(self, number: int, group: Path) -> None:
        folder = self.root / "proc" / str(5000 + number)
        folder.mkdir()
        (folder / "status").write_text(f"Name:\tfit\nUid:\t{1000 + number}\t0\t0\t0\nCpus_allowed_list:\t0-127\n")
        for below in (group, group / "step_0", group / "step_0/user"):
            (below / "cgroup.threads").touch()
        (group / "step_0/user/task_0/cgroup.threads").write_text(f"{5000 + number}\n")

    def move_on(self) -> None:
        """A second later: every counter has another value."""
        self.steps += 1
        since = 30 * 86_400 * TICKS_PER_SECOND + self.steps * TICKS_PER_SECOND
        rows = [
            [since // 3 + cpu, 17 + cpu, since // 40, since // 2 + cpu, since // 90 + cpu, 0, since // 999, 0]
            for cpu in range(self.cpus)
        ]
        lines = [f"cpu{cpu} {' '.join(map(str, row))} 0 0" for cpu, row in enumerate(rows)]
        total = " ".join(str(sum(column)) for column in zip(*rows, strict=True))
        interrupts = " ".join(str(number % 7 * self.steps) for number in range(12 * self.cpus))
        text = f"cpu  {total} 0 0\n" + "\n".join(lines) + f"\nintr {since} {interrupts}\nctxt 1\nbtime 1\nsoftirq 1 2 3\n"
        (self.root / "proc/stat").write_text(text)
        for number, group in enumerate(self.groups):
            used = (number + 1) * 8_000_000 * self.steps
            content = {
                "cpu.stat": f"usage_usec {used}\nuser_usec {used - 9}\nsystem_usec 9\nnr_periods 0\nthrottled_usec 0\n",
                "memory.stat": _MEMORY_STAT.format(used, used // 2),
                "memory.current": f"{used}\n",
                "memory.max": "17179869184\n",
                **{f"{kind}.pressure": _PRESSURE.format(used, used // 3) for kind in ("cpu", "memory", "io")},
            }
            for name, words in content.items():
                (group / name).write_text(words)


# --- the exporters ------------------------------------------------------------------------------------------------------------


def peer(port: int, root: str) -> None:
    """The peer: prometheus_client with a collector for /proc/stat, as most exporters in Python are written."""
    from prometheus_client import CollectorRegistry, start_http_server
    from prometheus_client.core import CounterMetricFamily

    class Collector:
        def collect(self) -> Iterator[Any]:
            family = CounterMetricFamily("node_cpu_seconds", "Seconds the CPUs spent in each mode.", labels=["cpu", "mode"])
            for line in Path(root, "proc/stat").read_text().splitlines():
                words = line.split()
                if words and words[0].startswith("cpu") and words[0] != "cpu":
                    for mode, ticks in zip(MODES, words[1:9], strict=True):
                        family.add_metric([words[0][3:], mode], int(ticks) / TICKS_PER_SECOND)
            yield family

    registry = CollectorRegistry()
    registry.register(Collector())
    _, thread = start_http_server(port, addr="127.0.0.1", registry=registry)
    thread.join()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@contextlib.contextmanager
def started(words: list[str], port: int) -> Iterator[int]:
    """A process, once it listens; its id."""
    process = subprocess.Popen([sys.executable, *words], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        give_up = time.monotonic() + 60
        while True:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            if process.poll() is not None or time.monotonic() > give_up:
                sys.exit(f"{' '.join(words)} did not begin to answer.")
            time.sleep(0.1)
        yield process.pid
    finally:
        process.terminate()
        process.wait(timeout=30)


# --- the measurement ----------------------------------------------------------------------------------------------------------


def cpu_seconds(process_id: int) -> float:
    """CPU time of a process, to the nanosecond, with that of its threads that have ended."""
    return time.clock_gettime((~process_id << 3) | 2)  # what clock_getcpuclockid(3) gives for it


def memory_bytes(process_id: int, name: str = "VmHWM") -> int:
    lines = Path(f"/proc/{process_id}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1]) * 1024


def scrape(connection: http.client.HTTPConnection) -> int:
    connection.request("GET", "/metrics")
    answer = connection.getresponse()
    body = answer.read()
    if answer.status != 200:
        sys.exit(f"/metrics was answered with {answer.status}: {body[:200]!r}")
    return len(body)


def measured(case: str, words: list[str], node: RecordedNode, seconds: float) -> dict[str, Any]:
    """One exporter: at 1 Hz, then as fast as it answers."""
    port = free_port()
    with started([word.format(port=port) for word in words], port) as process_id:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        for _ in range(WARM_UP):
            size = scrape(connection)
        steady = _at_one_hertz(connection, node, process_id, seconds)
        fast = _at_full_speed(connection, node, process_id)
        result: dict[str, Any] = {"case": case, "bytes": size, **steady, **fast, "peak_bytes": memory_bytes(process_id)}
        connection.close()
    print(
        f"  {case:<42} {100 * result['share_of_core_at_1_hz']:6.3f} % of a core at 1 Hz   "
        f"{1e3 * result['cpu_s_per_scrape']:6.2f} ms CPU per scrape at full speed   {result['peak_bytes'] / 1e6:5.1f} MB",
        flush=True,
    )
    return result


def _at_one_hertz(
    connection: http.client.HTTPConnection, node: RecordedNode, process_id: int, seconds: float
) -> dict[str, float]:
    count, before, began = int(seconds), cpu_seconds(process_id), time.monotonic()
    for number in range(count):
        node.move_on()
        time.sleep(max(0.0, began + number + 1 - time.monotonic()))
        scrape(connection)
    span = time.monotonic() - began
    used = cpu_seconds(process_id) - before
    return {"scrapes": count, "seconds": span, "share_of_core_at_1_hz": used / span, "cpu_s_per_scrape_at_1_hz": used / count}


def _at_full_speed(connection: http.client.HTTPConnection, node: RecordedNode, process_id: int) -> dict[str, float]:
    count, spent, began = 0, 0.0, time.monotonic()
    while time.monotonic() < began + FAST_S:
        node.move_on()
        before = cpu_seconds(process_id)
        scrape(connection)
        spent += cpu_seconds(process_id) - before
        count += 1
    return {"fast_scrapes": count, "cpu_s_per_scrape": spent / count}


def _cpu_s(call: Callable[[], object], count: int = 300) -> float:
    began = time.process_time()
    for _ in range(count):
        call()
    return (time.process_time() - began) / count


def kernel_cost(node: RecordedNode) -> dict[str, float | None]:
    """CPU seconds per read: real files against recorded ones."""
    files = Files()
    recorded = sum(_cpu_s(lambda name=name: files.read(str(node.groups[0] / name))) for name in JOB_FILES)  # type: ignore[misc]
    figures: dict[str, float | None] = {
        "recorded_stat_s": _cpu_s(lambda: files.read(str(node.root / "proc/stat"), 1 << 22)),
        "real_stat_s": _cpu_s(lambda: files.read("/proc/stat", 1 << 22)),
        "real_stat_cpus": float(os.cpu_count() or 0),
        "recorded_job_s": recorded,
        "real_job_s": None,
        "real_job_files": None,
    }
    v2 = find_hierarchies(files).v2
    folder = Path(v2) / f"petrel-benchmark-{os.getpid()}"
    with contextlib.suppress(OSError):
        folder.mkdir()
        try:
            there = [name for name in JOB_FILES if (folder / name).exists()]
            real = sum(_cpu_s(lambda name=name: files.read(str(folder / name))) for name in there)  # type: ignore[misc]
            figures |= {"real_job_s": real, "real_job_files": float(len(there))}
        finally:
            folder.rmdir()
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cpus", type=int, default=128)
    parser.add_argument("--jobs", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--peer", nargs=2, metavar=("PORT", "ROOT"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.peer:
        peer(int(asked.peer[0]), asked.peer[1])
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        node = RecordedNode(Path(folder), asked.cpus, asked.jobs)
        root = str(node.root)
        ours = ["-m", "stormpetrel.exporter", "--address", "127.0.0.1:{port}", "--root", root]
        cases = [
            measured(f"stormpetrel, {asked.cpus} CPUs, {asked.jobs} jobs", ours, node, asked.seconds),
            measured(
                "prometheus_client, the CPUs alone", ["-m", "benchmarks.exporter", "--peer", "{port}", root], node, asked.seconds
            ),
        ]
        kernel = kernel_cost(node)
    result = {
        "machine": {"cores": os.cpu_count(), "python": platform.python_version(), "load": os.getloadavg()[0]},
        "cpus": asked.cpus,
        "jobs": asked.jobs,
        "limit_share_of_core": LIMIT_SHARE,
        "limit_bytes": LIMIT_BYTES,
        "cases": cases,
        "ours_to_peer_cpu_per_scrape": cases[0]["cpu_s_per_scrape"] / cases[1]["cpu_s_per_scrape"],
        "kernel": kernel,
    }
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    print(f"  CPU per scrape, ours to the peer's: {result['ours_to_peer_cpu_per_scrape']:.2f}; one read: {json.dumps(kernel)}")


if __name__ == "__main__":
    main()
