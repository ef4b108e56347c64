"""A real Ray on this machine, with a token, without its dashboard: `with RealRay() as ray: ray.address`.

The processes of Ray are found by the folder of its session, and ended one by one: `ray stop` would end every Ray of this user.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import psutil

from tests.parts import Daemon, free_ports, need, wait_until

ROOT = Path(__file__).parents[2]
STORE_BYTES = 80_000_000  # the least that Ray takes is 75 MiB
_STARTS = 4  # Ray gives itself 30 s, which no setting changes: on a very busy machine it takes more than one try


class RealRay:
    """A head node with so many CPUs; more nodes by `join`."""

    def __init__(self, cpus: int = 2) -> None:
        self._cpus = cpus

    def __enter__(self) -> RealRay:
        need("ray")
        self.folder = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))  # sockets lie in it: the path has to be short
        self.token = secrets.token_hex(32)
        self.client_port, metrics = _free_above_workers(2)
        path = os.pathsep.join([str(ROOT / "src"), str(ROOT / "client"), str(ROOT)])
        self._env = {
            **os.environ, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": self.token, "RAY_TMPDIR": str(self.folder),
            "AUTOSCALER_METRIC_PORT": str(metrics), "PYTHONPATH": path,
        }  # fmt: skip
        self._env.pop("RAY_ADDRESS", None)
        self._nodes: list[Daemon] = []
        try:
            for tries_left in reversed(range(_STARTS)):
                try:
                    self._start_head()
                except RuntimeError:
                    if not tries_left:
                        raise
                    self._end_processes()
                else:
                    break
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start_head(self) -> None:
        options = ["--head", "--port=0", f"--ray-client-server-port={self.client_port}", "--include-dashboard=false"]
        self._start("head", [*options, f"--temp-dir={self.folder}"])
        noted = self.folder / "ray_current_cluster"
        wait_until(lambda: noted.is_file() and bool(noted.read_text()), "Ray is up", limit_s=120, alive=self._nodes[-1])
        self.address = noted.read_text().strip()

    def join(self) -> Daemon:
        """Start another node on this machine; it has joined when Ray counts its CPUs."""
        return self._start(f"node{len(self._nodes)}", [f"--address={self.address}"])

    def environment(self) -> dict[str, str]:
        """What a driver needs to join this Ray."""
        return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": self.token, "RAY_ADDRESS": self.address}

    def processes(self) -> list[psutil.Process]:
        """All that belongs to this Ray: what has its folder on the command line or its token in the environment."""
        return [process for process in psutil.process_iter() if self._is_ours(process)]

    def kill(self, node: Daemon) -> None:
        """End a node as a power failure would: its raylet, and with it its workers."""
        for process in [child for child in psutil.Process(node.process.pid).children(recursive=True) if child.name() == "raylet"]:
            process.kill()
        node.stop()

    def __exit__(self, *_: object) -> None:
        for node in reversed(self._nodes):
            if node.process.poll() is None:
                node.process.send_signal(signal.SIGTERM)
        self._end_processes()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _end_processes(self) -> None:
        for _ in range(3):  # what is killed may have started another one in the meantime
            processes = self.processes()
            for process in processes:
                try:
                    process.kill()
                except psutil.NoSuchProcess:
                    continue
            psutil.wait_procs(processes, timeout=10)
        for node in self._nodes:
            node.stop()
        self._nodes.clear()

    def _start(self, name: str, options: list[str]) -> Daemon:
        command = [
            str(Path(sys.executable).parent / "ray"), "start", "--block", "--disable-usage-stats", "--include-log-monitor=false",
            f"--dashboard-agent-listen-port={_free_above_workers(1)[0]}", f"--num-cpus={self._cpus}",
            f"--object-store-memory={STORE_BYTES}", *options,
        ]  # fmt: skip
        self._nodes.append(Daemon(f"ray {name}", command, log=self.folder / f"{name}.log", env=self._env))
        return self._nodes[-1]

    def _is_ours(self, process: psutil.Process) -> bool:
        try:
            return process.pid != os.getpid() and process.environ().get("RAY_TMPDIR") == str(self.folder)
        except psutil.Error:
            return False


def _free_above_workers(count: int) -> list[int]:
    """Ports that none of Ray's workers takes: theirs are those from 10,002 to 19,999."""
    return [port for port in free_ports(40) if port > 20_000][:count]
