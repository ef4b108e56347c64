"""What is on this machine: sacct, slurmrestd, Prometheus, HTCondor, LSF, the time zone.

this machine -> discover -> Found. Everything is tried for a few seconds at most, and nothing is changed.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from zoneinfo import available_timezones

from stormpetrel.sources.http import BusyError, HttpClient, TooLongError, UntrustedError

_PATIENCE_S: Final = 5.0
_SLURMRESTD_SOCKETS: Final = ("/run/slurmrestd/slurmrestd.socket", "/run/slurmrestd.socket", "/run/slurm/slurmrestd.socket")
_SLURMRESTD_URL: Final = "http://127.0.0.1:6820"
_PROMETHEUS_URL: Final = "http://127.0.0.1:9090"


@dataclass(frozen=True, slots=True)
class Found:
    """What was found, and a line about each thing that was looked for."""

    time_zone: str
    sacct: str = ""
    cluster: str = ""
    rest_url: str = ""
    prometheus_url: str = ""
    event_log: str = ""
    lines: tuple[str, ...] = field(default=())


def discover(run: Callable[[Sequence[str]], str] | None = None, *, sockets: Sequence[str] = _SLURMRESTD_SOCKETS) -> Found:
    """Look for everything; `run` runs a command and returns what it prints (empty if it fails)."""
    ask = run or answer_of
    zone = local_zone()
    sacct, lsid = shutil.which("sacct") or "", shutil.which("lsid") or ""
    cluster = _cluster_name(ask) if sacct else ""
    lsf_cluster = _lsf_cluster_name(ask) if lsid else ""
    rest = _slurmrestd(sockets)
    prometheus = _PROMETHEUS_URL if _responds(f"{_PROMETHEUS_URL}/-/ready", {200}) else ""
    event_log = ask(["condor_config_val", "EVENT_LOG"]).strip() if shutil.which("condor_config_val") else ""
    event_log = event_log if event_log.startswith("/") else ""
    condor = shutil.which("condor_history") or ""
    found_lsf = f"{shutil.which('bacct') or lsid}, cluster {lsf_cluster}" if lsf_cluster else ""
    lines = (
        f"time zone: {zone}",
        f"sacct: {sacct or 'not found'}" + (f", cluster {cluster}" if cluster else ""),
        f"slurmrestd: {rest or 'not found'}",
        f"HTCondor: {condor or 'not found'}" + (f", event log {event_log}" if event_log else ""),
        f"LSF: {found_lsf or 'not found'}",
        f"Prometheus: {prometheus or 'not found'}",
    )
    return Found(zone, sacct, cluster or lsf_cluster, rest, prometheus, event_log, lines)


def answer_of(command: Sequence[str]) -> str:
    """What a command prints; empty where it is not there, fails or takes too long."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_S, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return ""
    return done.stdout if done.returncode == 0 else ""


def local_zone() -> str:
    """The zone this machine is set to, where it says so by name; else UTC."""
    known = available_timezones()
    named = os.environ.get("TZ", "").lstrip(":")
    if named in known:
        return named
    try:
        named = Path("/etc/timezone").read_text().strip()
    except OSError:
        named = ""
    if named not in known:
        named = str(Path("/etc/localtime").resolve()).partition("zoneinfo/")[2]
    return named if named in known else "UTC"


def _cluster_name(ask: Callable[[Sequence[str]], str]) -> str:
    match = re.search(r"^ClusterName\s*=\s*(\S+)", ask(["scontrol", "show", "config"]), re.MULTILINE)
    return match.group(1) if match else ""


def _lsf_cluster_name(ask: Callable[[Sequence[str]], str]) -> str:
    match = re.search(r"^My cluster name is (\S+)", ask(["lsid"]), re.MULTILINE)
    return match.group(1) if match else ""


def _slurmrestd(sockets: Sequence[str]) -> str:
    for path in sockets:
        try:
            if stat.S_ISSOCK(os.stat(path).st_mode):  # noqa: PTH116 - Path.is_socket hides why it fails
                return f"unix://{path}"
        except OSError:
            continue
    # 401: it is there and wants a token.
    return _SLURMRESTD_URL if _responds(f"{_SLURMRESTD_URL}/openapi/v3", {200, 401}) else ""


def _responds(url: str, codes: set[int]) -> bool:
    client = HttpClient(url, timeout_s=1.0)
    try:
        return client.exchange("GET").status in codes
    except (BusyError, UntrustedError, TooLongError):
        return False
    finally:
        client.close()
