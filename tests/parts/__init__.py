"""Real servers for tests: started in a folder of their own, on free loopback ports, and stopped again whatever happens.

What every part needs: is the program there (or the Python package), which ports are free, has it come up yet, and an end that
leaves nothing behind.
"""

from __future__ import annotations

import importlib.util
import os
import random
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

# Daemons live in folders that are on no ordinary user's PATH; Debian keeps PostgreSQL's even further away.
_SERVER_FOLDERS = ("/usr/sbin", "/sbin", "/usr/lib/postgresql/15/bin")
_PORTS = range(10_000, 32_000)  # below the range from which the system takes ports for outgoing connections
POLL_S = 0.05


def is_bare() -> bool:
    """Whether the tests shall run as on a machine without real components and public logs; `.ci/run` does so once."""
    return os.environ.get("STORMPETREL_TEST_BARE") == "1"


def hide_public_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a test, and what it starts, run as on a machine that has no public logs."""
    monkeypatch.delenv("STORMPETREL_DATA", raising=False)


def find_program(name: str) -> str | None:
    """The path of a program; a name with a slash is a pattern for a file (`/usr/lib/*/slurm-wlm/auth_jwt.so`).

    This is the one door to real components: a test that looks for one by itself fails where there is none.
    """
    if is_bare():
        return None
    if "/" in name:
        return next((str(path) for path in Path("/").glob(name.lstrip("/"))), None)
    return shutil.which(name, path=os.pathsep.join((os.environ.get("PATH", os.defpath), *_SERVER_FOLDERS)))


def require(*programs: str, install: str) -> None:
    """Skip the test where a program is missing; on CI, where all of them must be there, fail it."""
    missing = [name for name in programs if find_program(name) is None]
    if not missing:
        return
    reason = f"not on this machine: {', '.join(missing)} (apt-get install {install})"
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def need(*packages: str) -> None:
    """Skip a test, or above its imports a whole file, where a Python package is missing; on CI, where all are there, fail it.

    The one door to torch, SDV, JupyterLab and Ray: `make setup` leaves them out. A test says it as `@pytest.mark.needs("torch")`.
    """
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if not missing:
        return
    reason = f"not in this environment: {', '.join(missing)} (make setup-full)"
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason, allow_module_level=True)


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 on which nothing listens."""
    held: list[socket.socket] = []
    try:
        for port in random.sample(_PORTS, 1000):
            candidate = socket.socket()
            try:
                candidate.bind(("127.0.0.1", port))
            except OSError:
                candidate.close()
                continue
            held.append(candidate)
            if len(held) == count:
                return [taken.getsockname()[1] for taken in held]
    finally:
        for taken in held:
            taken.close()
    raise RuntimeError(f"{count} free ports were not found")


def wait_until(condition: Callable[[], bool], what: str, *, limit_s: float, alive: Daemon | None = None) -> None:
    """Wait for a condition; past the limit, or once the daemon that should bring it about has ended, fail and say so."""
    give_up = time.monotonic() + limit_s
    while not condition():
        if alive is not None and alive.process.poll() is not None:
            raise RuntimeError(f"{alive.name} ended with {alive.process.returncode} before: {what}.\n{alive.last_words()}")
        if time.monotonic() > give_up:
            raise TimeoutError(f"Not within {limit_s:.0f} s: {what}.\n{alive.last_words() if alive else ''}")
        time.sleep(POLL_S)


class Daemon:
    """A server process in the foreground, with its log; ends with the process that started it."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        stop_signal: signal.Signals = signal.SIGTERM,
    ) -> None:
        self.name, self._log, self._stop_signal = name, log, stop_signal
        program = find_program(command[0]) or command[0]
        # setpriv keeps the process id (runuser would put a process between), and lets the server die with pytest.
        wrapper = ["setpriv", "--pdeathsig", "TERM", *_become(user), "--"]
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                [*wrapper, program, *command[1:]],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=dict(env) if env is not None else None,
                cwd=log.parent,
                start_new_session=True,
            )

    def last_words(self) -> str:
        """The end of its log."""
        return self._log.read_text(errors="replace")[-2000:]

    def stop(self, *, limit_s: float = 15.0) -> None:
        """Ask it to end; past the limit, end it."""
        if self.process.poll() is None:
            self.process.send_signal(self._stop_signal)
            try:
                self.process.wait(limit_s)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(limit_s)


def is_root() -> bool:
    """Whether servers can be given a user of their own (and must be: MariaDB and PostgreSQL do not run as root)."""
    return os.geteuid() == 0


def _become(user: str | None) -> list[str]:
    return ["--reuid", user, "--regid", user, "--init-groups"] if user and is_root() else []
