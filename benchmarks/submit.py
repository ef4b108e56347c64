"""What the filter inside sbatch adds to a submission, beside the same sbatch without it; and what `check` takes.

`python -m benchmarks.submit SITE [--submissions N]`: a real Slurm (the tests') and `stormpetrel serve` of a site with a model, at
a Unix socket. Submissions in turn without the filter (STORMPETREL_SUBMIT=off), with the service up, slow (a second), hung
and gone; p50 and p99 of each, and what is added to both. `check` through the light client, a process each, beside a Python
that does nothing; and how large the client's installation is.
Results in benchmarks/results/submit.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from tests.parts.command_line import change_settings
from tests.parts.slurm import RealSlurm

RESULTS = Path(__file__).parent / "results" / "submit.json"
ROOT = Path(__file__).parents[1]
FILTER = ROOT / "integrations/slurm/cli_filter.lua"
READY_S = 120.0
SLOW_S = 1.0
WARM_UP = 40  # submissions that are not counted
SCRIPT = "#!/bin/bash\n#SBATCH --time=20 --mem=2G --cpus-per-task=4 --job-name=fit_3\nsrun fit\n"


def measured(act: Callable[[], object], times: int) -> dict[str, float]:
    """p50 and p99 of what an act takes, in milliseconds."""
    took = []
    for _ in range(times):
        began = time.perf_counter()
        act()
        took.append((time.perf_counter() - began) * 1000)
    return {"p50_ms": round(float(np.quantile(took, 0.5)), 1), "p99_ms": round(float(np.quantile(took, 0.99)), 1)}


@contextmanager
def slow_service(path: Path) -> Iterator[None]:
    """A service that accepts at once and answers a second later."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    path.chmod(0o666)
    listener.listen(64)
    over = threading.Event()

    def answer(connection: socket.socket) -> None:
        with connection:
            over.wait(SLOW_S)
            with suppress(OSError):  # the filter has gone on without us
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")

    def accept() -> None:
        with suppress(OSError):  # the listener is closed at the end
            while True:
                threading.Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield
    finally:
        over.set()
        listener.close()
        path.unlink()


def installed_bytes(folder: Path) -> int:
    """Size of the light client where pip has put it."""
    words = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), str(ROOT / "client")]
    subprocess.run(words, check=True, env={**os.environ, "PIP_ONLY_BINARY": ""})
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def serving(site: Path, path: Path) -> subprocess.Popen[bytes]:
    """`stormpetrel serve` of a copy of the site, once it answers at the socket."""
    change_settings(site, serve={"socket": str(path)})
    words = [sys.executable, "-m", "stormpetrel", "--site", str(site), "serve", "--address", "127.0.0.1:0"]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    give_up = time.monotonic() + READY_S
    while time.monotonic() < give_up:
        with socket.socket(socket.AF_UNIX) as probe:
            if path.exists() and probe.connect_ex(str(path)) == 0:
                return process
        time.sleep(0.2)
    process.kill()
    raise SystemExit("serve did not come up")


def measure(site: Path, submissions: int) -> dict[str, Any]:
    """All figures."""
    folder = Path(tempfile.mkdtemp(prefix="petrel-submit-", dir="/tmp"))
    folder.chmod(0o755)
    path = folder / "api.sock"
    files = {"cli_filter.lua": FILTER.read_text()}
    figures: dict[str, Any] = {"submissions": submissions, "processors": os.cpu_count(), "python": platform.python_version()}
    copy = folder / "site"
    shutil.copytree(site, copy)
    (folder / "job.sh").write_text(SCRIPT)
    with RealSlurm(nodes=1, accounting=False, settings={"CliFilterPlugins": "cli_filter/lua"}, more_files=files) as slurm:

        def submit(**environment: str) -> None:
            env = {**slurm.env, "STORMPETREL_SOCKET": str(path), **environment}
            words = ["sbatch", "--hold", "--output=/dev/null", str(folder / "job.sh")]
            subprocess.run(words, env=env, cwd="/", capture_output=True, check=True)

        figures["without"] = measured(lambda: submit(STORMPETREL_SUBMIT="off"), submissions)
        figures["gone"] = measured(submit, submissions)
        with slow_service(path):
            figures["slow"] = measured(submit, submissions)
        process = serving(copy, path)
        try:
            for _ in range(WARM_UP):  # the first answers read the past; sbatch does not wait for them
                submit()
            figures["up"] = measured(submit, submissions)
            client = [sys.executable, "-m", "stormpetrel_client", "check", str(folder / "job.sh")]
            env = {**os.environ, "STORMPETREL_SERVICE": f"unix://{path}", "PYTHONPATH": str(ROOT / "client")}
            figures["check"] = measured(lambda: subprocess.run(client, env=env, capture_output=True, check=True), submissions)
            nothing = [sys.executable, "-c", ""]
            figures["python_alone"] = measured(lambda: subprocess.run(nothing, check=True), submissions)
            process.send_signal(signal.SIGSTOP)
            figures["hung"] = measured(submit, submissions)
        finally:
            process.send_signal(signal.SIGCONT)
            process.terminate()
            process.wait(timeout=30)
    figures["client_bytes"] = installed_bytes(folder / "client")
    shutil.rmtree(folder)
    for name in ("gone", "up", "slow", "hung"):
        for quantile in ("p50", "p99"):
            added_ms = figures[name][f"{quantile}_ms"] - figures["without"][f"{quantile}_ms"]
            figures[name][f"added_{quantile}_ms"] = round(added_ms, 1)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("site", type=Path, help="a site with a model; it is copied")
    parser.add_argument("--submissions", type=int, default=50)
    options = parser.parse_args()
    figures = measure(options.site, options.submissions)
    RESULTS.write_text(json.dumps(figures, indent=2) + "\n")
    for name, figure in figures.items():
        print(f"{name:12} {figure}")


if __name__ == "__main__":
    main()
