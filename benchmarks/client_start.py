"""What the light client itself takes for a `check`, beside a service that answers at once: wall time and CPU time of the process.

`python -m benchmarks.client_start` -> benchmarks/results/client_start.json. The peer, in turns, is `/usr/bin/python3 -c pass`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import stormpetrel_client

PYTHON = "/usr/bin/python3"
RESULTS = Path(__file__).parent / "results/client_start.json"
ANSWER: dict[str, Any] = {
    "script": "job.sh", "request": {"req_cpus": 8}, "warnings": [], "cluster": None, "risk": 0.6, "verdict": None, "advice": [],
    "needs": None, "wait": None, "notes": [],
}  # fmt: skip


def serve(listener: socket.socket) -> None:
    """Answer every request at once."""
    body = json.dumps(ANSWER).encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection:
            data = connection.recv(65536)
            while b"-t 5" not in data:  # of the script, in the body
                data += connection.recv(65536)
            connection.sendall(head.encode() + body)


def run(command: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Wall and CPU time of a process in milliseconds."""
    began = time.perf_counter()
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{command} ended with {process.returncode}")
    return 1000 * (time.perf_counter() - began), 1000 * (used.ru_utime + used.ru_stime)


def figures(values: list[float]) -> dict[str, float]:
    """Median and 99th percentile."""
    return {"p50": round(statistics.median(values), 1), "p99": round(statistics.quantiles(values, n=100)[98], 1)}


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--client", type=Path, default=Path(stormpetrel_client.__file__).parents[1])
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
        script = Path(folder) / "job.sh"
        script.write_text("#!/bin/sh\n#SBATCH -t 5\ntrue\n")
        listener.bind(f"{folder}/api.sock")
        listener.listen()
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        environment = {"PYTHONPATH": str(options.client), "STORMPETREL_SERVICE": f"unix://{folder}/api.sock", "HOME": folder}
        commands = {
            "check": [PYTHON, "-m", "stormpetrel_client", "check", str(script)],
            "python": [PYTHON, "-c", "pass"],
        }
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
        for _ in range(options.runs):
            for name, command in commands.items():
                times[name].append(run(command, environment))
    result = {
        name: {"wall_ms": figures([wall for wall, _ in rows]), "cpu_ms": figures([cpu for _, cpu in rows])}
        for name, rows in times.items()
    }
    result |= {"runs": options.runs, "python_version": platform.python_version(), "cores": os.cpu_count()}  # type: ignore[dict-item]
    options.output.write_text(json.dumps(result, indent=1) + "\n")
    sys.stdout.write(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
