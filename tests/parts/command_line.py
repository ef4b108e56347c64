"""The command line: as a process of its own, or in this one where the process is not what is claimed; and how it failed.

A process costs about a second, most of it imports; `run_here` costs what the command itself does.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import io
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

from stormpetrel.config import SITE_FILE, load_settings, settings_as_toml, settings_from
from stormpetrel.faces.cli.main import main

_MAIN = "import sys; sys.argv[0] = 'stormpetrel'; from stormpetrel.faces.cli.main import main; main()"


def build_commands_once() -> None:
    """Let typer make the tree of commands once per process, not once per command: 50 ms each, as long as many commands take."""
    import typer.main

    typer.main.get_command = functools.cache(typer.main.get_command)


def words_for(site: Path, *arguments: str) -> list[str]:
    """The command line that works on a site."""
    return [sys.executable, "-c", _MAIN, "--site", str(site), *arguments]


def run(site: Path, *arguments: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(words_for(site, *arguments), env=env, capture_output=True, text=True, timeout=120)


def run_here(site: Path, *arguments: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command to its end in this process: the same words, streams and exit code as of `run`, without a new interpreter."""
    done = call_main(["--site", str(site), *arguments], env=env)
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def call_main(
    words: Sequence[str], *, stdin: bytes = b"", cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Call `main` as the interpreter would with these words, and put back whatever it changes in this process.

    Parameters
    ----------
    stdin
        What lies in the standard input, which is no terminal; neither are the two other streams.
    env
        The whole environment, as for a process; this process's own by default.
    """
    out, err = io.BytesIO(), io.BytesIO()
    with _process_kept(), contextlib.chdir(cwd or Path.cwd()), _environment(os.environ if env is None else env):
        sys.argv = ["stormpetrel", *words]
        sys.stdin, sys.stdout, sys.stderr = (io.TextIOWrapper(raw, encoding="utf-8") for raw in (io.BytesIO(stdin), out, err))
        code = _exit_code_of_main()
        sys.stdout.flush()
        sys.stderr.flush()
        told = out.getvalue(), err.getvalue()
    return subprocess.CompletedProcess(["stormpetrel", *words], code, *told)


def _exit_code_of_main() -> int:
    """What the interpreter makes of the end of a program: SystemExit is its code, any other exception a trace and 1."""
    try:
        main()
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return (end.code or 0) & 0xFF
        sys.stderr.write(f"{end.code}\n")
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


@contextlib.contextmanager
def _process_kept() -> Iterator[None]:
    """Words, streams, umask, warnings, log and signal handlers, and the search for garbage are afterwards as they were."""
    umask = os.umask(0)
    os.umask(umask)
    log = logging.getLogger()
    handlers, level = list(log.handlers), log.level
    in_main_thread = threading.current_thread() is threading.main_thread()
    signals = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE)}
    names = ("argv", "stdin", "stdout", "stderr")
    with patch.multiple(sys, **{name: getattr(sys, name) for name in names}), warnings.catch_warnings():
        try:
            yield
        finally:
            os.umask(umask)
            log.handlers[:], log.level = handlers, level
            for number, handler in signals.items() if in_main_thread else ():
                signal.signal(number, handler)
            gc.enable()
            atexit.unregister(gc.freeze)


@contextlib.contextmanager
def _environment(wanted: Mapping[str, str]) -> Iterator[None]:
    """Only what differs is touched: other threads may be reading the environment."""
    before = dict(os.environ)
    _change_environment(dict(wanted))
    try:
        yield
    finally:
        _change_environment(before)


def _change_environment(wanted: Mapping[str, str]) -> None:
    for name in set(os.environ) - set(wanted):
        del os.environ[name]
    for name, value in wanted.items():
        if os.environ.get(name) != value:
            os.environ[name] = value


def start(site: Path, *arguments: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    """Start a command and go on."""
    pipe = subprocess.PIPE
    return subprocess.Popen(words_for(site, *arguments), env=env, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def report_of(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """What a command that went well printed with --json."""
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def complaint_of(done: subprocess.CompletedProcess[str]) -> str:
    """The one clear line of a command that failed: exit code 1, nothing else on either stream, no traceback."""
    assert done.returncode == 1, (done.returncode, done.stdout, done.stderr)
    assert not done.stdout
    lines = done.stderr.splitlines()
    assert len(lines) == 1 and lines[0].startswith("stormpetrel: "), done.stderr
    return lines[0]


def change_settings(site: Path, **sections: Mapping[str, object]) -> None:
    """Set some keys in a site's site.toml, as a person would with an editor."""
    values = load_settings(site).model_dump()
    for name, keys in sections.items():
        values[name] |= keys
    (site / SITE_FILE).write_text(settings_as_toml(settings_from(values)))
