"""A real Alertmanager on loopback: `with RealAlertmanager() as server: server.url`.

It keeps what it is told in a folder of its own, and passes notifications on to `receiver_url` where there is one.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import httpx

from tests.parts import Daemon, free_ports, require, wait_until


class RealAlertmanager:
    """An Alertmanager of its own, as a context manager."""

    program = "prometheus-alertmanager"

    def __init__(self, receiver_url: str = "") -> None:
        self._receiver_url = receiver_url
        self._daemon: Daemon | None = None

    def __enter__(self) -> RealAlertmanager:
        require(self.program, "setpriv", install="prometheus-alertmanager util-linux")
        self.folder = Path(tempfile.mkdtemp(prefix="petrel-alertmanager-"))
        (self.port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{self.port}"
        (self.folder / "alertmanager.yml").write_text(self._config())
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self) -> None:
        """Start the server, on the port it had before."""
        command = [
            self.program, f"--config.file={self.folder / 'alertmanager.yml'}", f"--storage.path={self.folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}", "--cluster.listen-address=", "--log.level=warn",
        ]  # fmt: skip
        self._daemon = Daemon(self.program, command, log=self.folder / "server.log")
        wait_until(self._is_ready, "Alertmanager is ready", limit_s=30, alive=self._daemon)

    def stop(self) -> None:
        """Stop the server; it forgets all alerts."""
        if self._daemon is not None:
            self._daemon.stop()

    def alerts(self) -> list[dict[str, Any]]:
        """The alerts that fire."""
        return list(httpx.get(f"{self.url}/api/v2/alerts", timeout=10).json())

    def groups(self) -> list[dict[str, Any]]:
        """The alerts that fire, by group."""
        return list(httpx.get(f"{self.url}/api/v2/alerts/groups", timeout=10).json())

    def _config(self) -> str:
        route = "route:\n  receiver: people\n  group_by: [incident]\n  group_wait: 100ms\n  group_interval: 200ms\n"
        hook = f"  webhook_configs:\n  - url: {self._receiver_url}\n    send_resolved: true\n" if self._receiver_url else ""
        return f"{route}receivers:\n- name: people\n{hook}"

    def _is_ready(self) -> bool:
        try:
            return httpx.get(f"{self.url}/-/ready", timeout=5).status_code == 200
        except httpx.HTTPError:
            return False
