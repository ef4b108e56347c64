"""A real Prometheus, or a real VictoriaMetrics, on loopback: `with RealPrometheus([address]) as server: server.url`.

Each scrapes the exporters at the given addresses (`host:port`) every `interval_s`, keeps what it saw in a folder of its own, and
is gone afterwards. `stop` and `start` leave a gap, as a restart does.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx

from tests.parts import Daemon, free_ports, require, wait_until


class RealPrometheus:
    """A Prometheus of its own, as a context manager."""

    program, package = "prometheus", "prometheus"

    def __init__(self, targets: Sequence[str], *, interval_s: float = 1.0, job: str = "node", rules: str = "") -> None:
        self._targets, self._interval_s, self._job, self._rules = list(targets), interval_s, job, rules
        self._daemon: Daemon | None = None

    def __enter__(self) -> RealPrometheus:
        require(self.program, "setpriv", install=f"{self.package} util-linux")
        self.folder = Path(tempfile.mkdtemp(prefix="petrel-prometheus-"))
        (self.port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{self.port}"
        self._config = self.folder / "scrape.yml"
        self._config.write_text(self._scrape_config())
        (self.folder / "rules.yml").write_text(self._rules)
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
        """Start the server, on the port and with the data it had before."""
        self._daemon = Daemon(self.program, self._command(), log=self.folder / "server.log")
        wait_until(lambda: self._answers(self._ready_path), f"{self.program} is ready", limit_s=30, alive=self._daemon)

    def stop(self) -> None:
        """Stop the server; what it holds stays."""
        if self._daemon is not None:
            self._daemon.stop()

    def query(self, expression: str) -> list[dict[str, Any]]:
        """What an expression comes to now."""
        answer = httpx.get(f"{self.url}/api/v1/query", params={"query": expression}, timeout=10)
        return list(answer.json()["data"]["result"])

    def wait_for_samples(self, metric: str, count: int, *, limit_s: float = 30.0) -> None:
        """Wait until every series of a metric has so many samples within the last minutes."""
        what = f"{self.program} has {count} samples of {metric}"
        wait_until(lambda: self.samples(metric) >= count, what, limit_s=limit_s, alive=self._daemon)

    def samples(self, metric: str) -> int:
        """How many samples every series of a metric has at least within the last minutes."""
        found = self.query(f"min(count_over_time({metric}[5m]))")
        return int(found[0]["value"][1]) if found else 0

    def firing(self) -> set[str]:
        """The names of the alerts that fire."""
        alerts = httpx.get(f"{self.url}/api/v1/alerts", timeout=10).json()["data"]["alerts"]
        return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}

    _ready_path = "/-/ready"

    def _command(self) -> list[str]:
        return [
            self.program, f"--config.file={self._config}", f"--storage.tsdb.path={self.folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}", "--storage.tsdb.retention.time=1d", "--log.level=warn",
            f"--web.console.templates={self.folder}", f"--web.console.libraries={self.folder}",
        ]  # fmt: skip

    def _scrape_config(self) -> str:
        targets = ", ".join(f"'{target}'" for target in self._targets)
        every = f"{round(self._interval_s * 1000)}ms"
        # Only where there are rules: VictoriaMetrics refuses keys that it does not know.
        rules = f"  evaluation_interval: {every}\nrule_files: [rules.yml]\n" if self._rules else ""
        return (
            f"global:\n  scrape_interval: {every}\n  scrape_timeout: {every}\n{rules}"
            f"scrape_configs:\n- job_name: {self._job}\n  static_configs:\n  - targets: [{targets}]\n"
        )

    def _answers(self, path: str) -> bool:
        try:
            return httpx.get(f"{self.url}{path}", timeout=5).status_code == 200
        except httpx.HTTPError:
            return False


class RealVictoria(RealPrometheus):
    """A VictoriaMetrics in place of the Prometheus."""

    program, package = "victoria-metrics", "victoria-metrics"
    _ready_path = "/health"

    def _command(self) -> list[str]:
        # latencyOffset: it would keep the last half minute to itself. The rest keeps it small.
        return [
            self.program, f"-promscrape.config={self._config}", f"-storageDataPath={self.folder / 'data'}",
            f"-httpListenAddr=127.0.0.1:{self.port}", "-search.latencyOffset=0s", "-retentionPeriod=1d",
            "-memory.allowedPercent=5", "-loggerLevel=WARN",
        ]  # fmt: skip
