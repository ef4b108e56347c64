"""Recording: the real exporter and a real Prometheus for as long as a campaign lasts, or a server that is there already.

start -> Recorder: check() while the jobs run, read() afterwards. What was started is stopped whatever happens.
"""

from __future__ import annotations

import json
import math
import os
import platform
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from stormpetrel.config import PrometheusSection
from stormpetrel.errors import SourceUnavailableError, UsageError
from stormpetrel.records.traces import Trace
from stormpetrel.rehearse.processes import RunningProgram, python_module, start, stop, undisturbed

STEP_S: Final = 1.0
_READY_LIMIT_S: Final = 60.0
_LAST_SAMPLE_LIMIT_S: Final = 20.0
_MARGIN_S: Final = 1.5
_RETRY_AFTER_S: Final = 0.2
_MEMORY: Final = Path("/dev/shm")  # noqa: S108  so that the disk of the jobs and the recording do not disturb each other
_HOW: Final = "Install it (Debian: apt-get install prometheus), or name a server that scrapes an exporter here: --prometheus URL."


@dataclass(frozen=True, slots=True)
class Recorder:
    """A server that has this machine's counters."""

    settings: PrometheusSection
    node: str
    programs: tuple[RunningProgram, ...] = field(default=())

    @property
    def by(self) -> str:
        """Who records: `own` exporter and Prometheus, or the `server` that was named."""
        return "own" if self.programs else "server"

    def check(self) -> None:
        """Raise if what records has ended."""
        for program in self.programs:
            if program.ended():
                raise SourceUnavailableError(
                    f"The {program.name} ended during the campaign: {program.last_complaint() or 'without a word'}.",
                    hint="Nothing was written; run the same command again.",
                )

    def read(self, start_s: float, end_s: float) -> Trace:
        """What was recorded of this machine between two moments (Unix seconds), on a grid of whole steps."""
        from stormpetrel.sources.prometheus.cpu_traces import PrometheusTraces

        step_s = self.settings.step_s
        first_s, last_s = math.floor(start_s / step_s) * step_s, math.ceil(end_s / step_s) * step_s
        _wait_for_samples(self, last_s + _MARGIN_S, _LAST_SAMPLE_LIMIT_S)  # to know a step, one after it is needed
        with PrometheusTraces(self.settings) as source:
            return source.trace(first_s, last_s)


@contextmanager
def own_recorder(folder: Path, threads_file: Path | None) -> Iterator[Recorder]:
    """Start the exporter and Prometheus on loopback; they and what they wrote are gone at the end.

    `threads_file` tells the exporter whose thread is whose, where cgroups cannot.
    """
    prometheus = shutil.which("prometheus")
    if prometheus is None:
        raise UsageError("A campaign is recorded by Prometheus, and there is none here.", hint=_HOW)
    programs: list[RunningProgram] = []
    memory = _MEMORY if _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > 1 << 30 else folder
    data = Path(tempfile.mkdtemp(prefix="stormpetrel-recording-", dir=memory))
    try:
        scraped, port = _free_port(), _free_port()
        command = [*python_module("stormpetrel.exporter"), "--address", f"127.0.0.1:{scraped}"]
        command += ["--threads-file", str(threads_file)] if threads_file else []
        programs.append(start("exporter", command, folder=folder))
        config = data / "prometheus.yml"
        config.write_text(json.dumps(_prometheus_config(scraped)))  # JSON is YAML
        command = [prometheus, f"--config.file={config}", f"--storage.tsdb.path={data / 'tsdb'}", "--log.level=warn"]
        command += [f"--web.listen-address=127.0.0.1:{port}", "--storage.tsdb.retention.time=30d"]
        programs.append(start("prometheus", command, folder=folder))
        recorder = Recorder(PrometheusSection(url=f"http://127.0.0.1:{port}", step_s=STEP_S), node_name(), tuple(programs))
        _wait_for_samples(recorder, time.time(), _READY_LIMIT_S)
        yield recorder
    finally:
        with undisturbed():
            stop(programs)
            shutil.rmtree(data, ignore_errors=True)


@contextmanager
def other_recorder(url: str, node: str) -> Iterator[Recorder]:
    """A server that scrapes an exporter on this machine already."""
    from stormpetrel.sources.prometheus.query import any_of

    name = node or node_name()
    mine = f"instance=~{any_of([name], ending='(:[0-9]+)?')}"
    recorder = Recorder(PrometheusSection(url=url, step_s=STEP_S, select=mine), name)
    _wait_for_samples(recorder, time.time() - _LAST_SAMPLE_LIMIT_S, _LAST_SAMPLE_LIMIT_S)
    yield recorder


def _prometheus_config(port: int) -> dict[str, object]:
    target = {"targets": [f"127.0.0.1:{port}"], "labels": {"instance": node_name()}}
    scrape = {"job_name": "stormpetrel", "scrape_interval": f"{STEP_S:g}s", "scrape_timeout": f"{STEP_S:g}s"}
    return {"global": {"scrape_interval": f"{STEP_S:g}s"}, "scrape_configs": [{**scrape, "static_configs": [target]}]}


def _wait_for_samples(recorder: Recorder, since_s: float, limit_s: float) -> None:
    """Wait until the server has samples of this machine that are younger than a moment."""
    from stormpetrel.sources.prometheus.query import PrometheusServer

    newest = f"max(timestamp(node_cpu_seconds_total{{{recorder.settings.select}}}))"
    give_up = time.monotonic() + limit_s
    reason = ""
    with PrometheusServer(recorder.settings, pause=lambda _seconds: None) as server:
        while time.monotonic() < give_up:
            recorder.check()
            try:
                samples = server.instant(newest, time.time())
                if samples and samples[0].values[-1] >= since_s:
                    return
                reason = ""
            except SourceUnavailableError as error:  # not up yet
                reason = f" {error.what}"
            time.sleep(_RETRY_AFTER_S)
    raise SourceUnavailableError(
        f"No samples of the CPUs of {recorder.node!r} arrived within {limit_s:.0f} s.{reason}",
        hint="Does the server scrape an exporter that runs here, every second, and call it so (--node)?",
    )


def _free_port() -> int:
    """A port of 127.0.0.1 on which nothing listens at this moment."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])


BUSY_LOAD: Final = 0.5  # of the last minute: above, an idle thread is not idle


def machine_facts() -> dict[str, Any]:
    """The facts, at this moment."""
    return {
        "node": node_name(),
        "cpus": os.cpu_count(),
        "cpu_model": _field(Path("/proc/cpuinfo"), "model name"),
        "kernel": platform.release(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "python": platform.python_version(),
        "load_before": round(os.getloadavg()[0], 2),
    }


def node_name() -> str:
    """How this machine calls itself, without its domain."""
    return socket.gethostname().partition(".")[0] or "localhost"


def _field(path: Path, name: str) -> str:
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip()[:100] for line in lines if line.partition(":")[0].strip() == name), "")
